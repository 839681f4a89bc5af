// Guided filter: fit of alpha to luma, Cb and Cr on half a plane, evaluated on the plane. Formulas:
// bgsoft/matte/guided.py.
//
// `packed` is half of the plane, (rows, columns) of four bytes each: alpha, luma, Cb, Cr. Windows are
// squares of 2 * radius + 1 cells, edge cells repeated; a cell is one of `packed`, or 2 x 2 of them
// where the spacing of windows is 2. The result, `terms`, is two (rows, columns) float32 planes:
// factor of luma, and the other terms on this picture, alpha scaled to 0-1.
#include "window_fit.cuh"

// Where the filter may change something, in cells of half the plane, half-open.
struct Box {
    int left, top, right, bottom;

    OP Box(const int *limits, int margin) : left(0), top(0), right(0), bottom(0)
    {
        if (limits[BOX_RIGHT] < 0)
            return;
        left = max(limits[BOX_LEFT] - margin, 0);
        top = max(limits[BOX_TOP] - margin, 0);
        right = limits[BOX_RIGHT] + 1 + margin;
        bottom = limits[BOX_BOTTOM] + 1 + margin;
    }
};

#if !ON_DEVICE
// A line and the one below it blended, then enlarged along itself to [2 * first, 2 * last); a sample
// more is written on each side.
OP void double_line(
    const float *upper, const float *lower, float part, int first, int last, int size,
    float *__restrict__ between, float *__restrict__ out)
{
    const int start = max(first - 1, 0), stop = min(last + 1, size);
    for (int x = start; x < stop; ++x)
        between[x] = along(upper[x], lower[x], part);
    repeat_edges(between, start, stop, size, 1);
    INDEPENDENT
    for (int x = first - 1; x < last; ++x) {
        out[2 * x + 1] = along(between[x], between[x + 1], 0.25f);
        out[2 * x + 2] = along(between[x], between[x + 1], 0.75f);
    }
}
#endif

// Part of an averaged function that depends on a cell's chroma.
OP float other_terms(float cb_factor, float cr_factor, float constant, u32 cell)
{
    constant += cb_factor * ((float)(int)(cell >> 16 & 0xFF) * (1.0f / 255.0f));
    return constant + cr_factor * ((float)(int)(cell >> 24) * (1.0f / 255.0f));
}

// Whether a cell's alpha differs from that of the next one along, below or across.
OP bool is_uneven(const u32 *row, const u32 *lower, int x, int next)
{
    return (((row[x] ^ row[next]) | (row[x] ^ lower[x]) | (row[x] ^ lower[next])) & 0xFF) != 0;
}

#if ON_DEVICE
// moments: (MOMENTS, fit_rows, fit_columns) int32, a cell each. Widens the box in the limits around
// cells that differ from their neighbours.
DEVICE_KERNEL(guided_moments)(
    const u32 *__restrict__ packed, int *__restrict__ moments, int *limits, int spacing, int rows,
    int columns, int fit_rows, int fit_columns)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    bool uneven = false;
    if (x < fit_columns && y < fit_rows) {
        const u32 *upper = packed + (size_t)(spacing * y) * columns;
        const u32 *lower = spacing * y + 1 < rows ? upper + columns : upper;
        int sums[MOMENTS] = {};
        if (spacing == 1)
            add_cell<1>(upper, lower, x, true, sums);
        else
            add_cell<2>(upper, lower, x, 2 * x + 1 < columns, sums);
        size_t cells = (size_t)fit_rows * fit_columns, at = (size_t)y * fit_columns + x;
        for (int i = 0; i < MOMENTS; i++)
            moments[i * cells + at] = sums[i];
        for (int cy = spacing * y; cy < min(spacing * (y + 1), rows); cy++) {
            const u32 *row = packed + (size_t)cy * columns;
            const u32 *below = cy + 1 < rows ? row + columns : row;
            for (int cx = spacing * x; cx < min(spacing * (x + 1), columns); cx++)
                uneven = uneven || is_uneven(row, below, cx, min(cx + 1, columns - 1));
        }
    }
    const u32 row = __ballot_sync(0xffffffffu, uneven);
    if (threadIdx.x != 0 || row == 0)
        return;
    const int left = blockIdx.x * 32;
    atomicMin(limits + BOX_LEFT, spacing * (left + __ffs((int)row) - 1));
    atomicMax(limits + BOX_RIGHT, spacing * (left + 32 - __clz((int)row)));
    atomicMin(limits + BOX_TOP, spacing * y);
    atomicMax(limits + BOX_BOTTOM, spacing * (y + 1));
}

// fits: (rows, columns, 4) float32. samples: of a window.
DEVICE_KERNEL(guided_fit)(
    const int *__restrict__ moments, float4 *__restrict__ fits, int samples, int radius,
    float epsilon, int rows, int columns)
{
    for_samples(rows, columns, [=](int y, int x) {
        size_t cells = (size_t)rows * columns;
        int sums[MOMENTS] = {};
        for (int dy = -radius; dy <= radius; dy++)
            for (int dx = -radius; dx <= radius; dx++) {
                size_t at = (size_t)clamp_int(y + dy, 0, rows - 1) * columns
                    + clamp_int(x + dx, 0, columns - 1);
                for (int i = 0; i < MOMENTS; i++)
                    sums[i] += moments[i * cells + at];
            }
        fits[(size_t)y * columns + x] = fit_window(sums, samples, epsilon);
    });
}

OP void add(float4 &sum, float4 value)
{
    sum.x += value.x;
    sum.y += value.y;
    sum.z += value.z;
    sum.w += value.w;
}

// Functions averaged over the windows that a cell lies in.
DEVICE_KERNEL(guided_average)(
    const float4 *__restrict__ fits, float4 *__restrict__ averaged, int radius, int rows,
    int columns)
{
    for_samples(rows, columns, [=](int y, int x) {
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (int dy = -radius; dy <= radius; dy++) {
            const float4 *line = fits + (size_t)clamp_int(y + dy, 0, rows - 1) * columns;
            float4 row = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            for (int dx = -radius; dx <= radius; dx++)
                add(row, line[clamp_int(x + dx, 0, columns - 1)]);
            add(sum, row);
        }
        int side = 2 * radius + 1;
        float share = 1.0f / (float)(side * side);
        averaged[(size_t)y * columns + x]
            = make_float4(sum.x * share, sum.y * share, sum.z * share, sum.w * share);
    });
}

// Averaged functions on half the plane, (rows, columns), enlarged for a spacing of 2.
DEVICE_KERNEL(guided_terms)(
    const float4 *__restrict__ averaged, const u32 *__restrict__ packed, float *__restrict__ terms,
    int spacing, int rows, int columns, int fit_rows, int fit_columns)
{
    for_samples(rows, columns, [=](int y, int x) {
        const size_t at = (size_t)y * columns + x;
        float4 fit = averaged[spacing == 1 ? at : 0];
        if (spacing == 2) {
            const Between down(y, 0.5f, fit_rows), across(x, 0.5f, fit_columns);
            const float4 *upper = averaged + (size_t)down.first * fit_columns;
            const float4 *lower = averaged + (size_t)down.second * fit_columns;
            const float4 a = upper[across.first], b = upper[across.second];
            const float4 c = lower[across.first], d = lower[across.second];
            const auto blend = [=](float a, float b, float c, float d) {
                return along(along(a, c, down.part), along(b, d, down.part), across.part);
            };
            fit = make_float4(
                blend(a.x, b.x, c.x, d.x), blend(a.y, b.y, c.y, d.y), blend(a.z, b.z, c.z, d.z),
                blend(a.w, b.w, c.w, d.w));
        }
        terms[at] = fit.x;
        terms[(size_t)rows * columns + at] = other_terms(fit.y, fit.z, fit.w, packed[at]);
    });
}
#else
// The box around cells that differ from their neighbours.
OP void find_box(const u32 *packed, int *limits, int rows, int columns)
{
    int left = columns, right = -1;
    for (int y = 0; y < rows; ++y) {
        const u32 *row = packed + (size_t)y * columns, *lower = y + 1 < rows ? row + columns : row;
        const int last = columns - 1;
        int any = is_uneven(row, lower, last, last);
        for (int x = 0; x < last; ++x)
            any |= is_uneven(row, lower, x, x + 1);
        if (!any)
            continue;
        limits[BOX_TOP] = min(limits[BOX_TOP], y);
        limits[BOX_BOTTOM] = y + 1;
        for (int x = 0; x < left; ++x)
            if (is_uneven(row, lower, x, min(x + 1, last)))
                left = x;
        for (int x = last; x > right; --x)
            if (is_uneven(row, lower, x, min(x + 1, last)))
                right = x;
    }
    limits[BOX_LEFT] = left;
    limits[BOX_RIGHT] = right < 0 ? -1 : right + 1;
}

// Fits for the cells [left, right) x [top, bottom), row by row; lines have room for 2 * radius cells
// beyond the plane on each side.
template <int SPACING>
struct Fitter {
    const u32 *packed;
    int rows, columns, fit_rows, fit_columns, radius, pitch;
    float epsilon;
    int left, right;
    int *columns_sums, *window_sums;  // MOMENTS lines each
    float *fits, *row_sums;           // 4 lines; 4 lines for each of 2 * radius + 1 rows

    OP int reach_left(int reach) const { return max(left - reach, 0); }
    OP int reach_right(int reach) const { return min(right + reach, fit_columns); }

    template <int SIGN>
    OUTLINED void add_row(int y) const
    {
        // Copies, which stay in registers while lines are written.
        const auto [packed, rows, columns, fit_rows, fit_columns, radius, pitch, epsilon, left, right,
                    columns_sums, window_sums, fits, row_sums] = *this;
        y = clamp_int(y, 0, fit_rows - 1);
        const int last = reach_right(2 * radius), step = pitch, limit = columns;
        const int whole = SPACING == 2 ? min(last, columns / 2) : last;
        int *sums = columns_sums;
        const u32 *upper = packed + (size_t)(SPACING * y) * columns;
        const u32 *lower = SPACING * y + 1 < rows ? upper + columns : upper;
        const auto add = [&](int x, bool has_right) INLINED {
            int m[MOMENTS] = {};
            add_cell<SPACING>(upper, lower, x, has_right, m);
            UNROLLED
            for (int i = 0; i < MOMENTS; ++i)
                sums[i * step + x] += SIGN * m[i];
        };
        INDEPENDENT
        for (int x = reach_left(2 * radius); x < whole; ++x)
            add(x, true);
        if (SPACING == 2 && whole < last)
            add(whole, 2 * whole + 1 < limit);
    }

    OUTLINED void fit_row(int y) const
    {
        // Copies, which stay in registers while lines are written.
        const auto [packed, rows, columns, fit_rows, fit_columns, radius, pitch, epsilon, left, right,
                    columns_sums, window_sums, fits, row_sums] = *this;
        const int first = reach_left(radius), last = reach_right(radius);
        const int side = 2 * radius + 1;
        for (int i = 0; i < MOMENTS; ++i) {
            int *__restrict__ line = columns_sums + i * pitch;
            int *__restrict__ window = window_sums + i * pitch;
            repeat_edges(line, reach_left(2 * radius), reach_right(2 * radius), fit_columns, radius);
            for (int x = first; x < last; ++x)
                window[x] = line[x - radius];
            for (int dx = 1 - radius; dx <= radius; ++dx)
                for (int x = first; x < last; ++x)
                    window[x] += line[x + dx];
        }
        const int count = SPACING * SPACING * side * side;
        const int *window = window_sums;
        float *found = fits;
        const int step = pitch;
        const float regularizer = epsilon;
        INDEPENDENT
        for (int x = first; x < last; ++x) {
            int m[MOMENTS];
            UNROLLED
            for (int i = 0; i < MOMENTS; ++i)
                m[i] = window[i * step + x];
            const float4 fit = fit_window(m, count, regularizer);
            found[x] = fit.x;
            found[step + x] = fit.y;
            found[2 * step + x] = fit.z;
            found[3 * step + x] = fit.w;
        }
        for (int i = 0; i < 4; ++i) {
            float *__restrict__ line = fits + i * pitch;
            float *__restrict__ sums = row_sums + (y % side * 4 + i) * pitch;
            repeat_edges(line, first, last, fit_columns, radius);
            for (int x = left; x < right; ++x)
                sums[x] = line[x - radius];
            for (int dx = 1 - radius; dx <= radius; ++dx)
                for (int x = left; x < right; ++x)
                    sums[x] += line[x + dx];
        }
    }

    // averaged: 4 lines.
    void average_row(int y, float *averaged) const
    {
        const int side = 2 * radius + 1;
        const float share = 1.0f / (float)(side * side);
        for (int i = 0; i < 4; ++i) {
            float *__restrict__ line = averaged + i * pitch;
            for (int x = left; x < right; ++x)
                line[x] = 0.0f;
            for (int dy = -radius; dy <= radius; ++dy) {
                const int row = clamp_int(y + dy, 0, fit_rows - 1) % side;
                const float *__restrict__ sums = row_sums + (row * 4 + i) * pitch;
                for (int x = left; x < right; ++x)
                    line[x] += sums[x];
            }
            for (int x = left; x < right; ++x)
                line[x] *= share;
        }
    }

    // Calls emit(y, lines) with the averaged functions of each row.
    template <class Emit>
    void run(int top, int bottom, float *averaged, const Emit &emit) const
    {
        int next = max(top - radius, 0);
        for (int i = 0; i < MOMENTS * pitch; ++i)
            columns_sums[i - 2 * radius] = 0;
        for (int y = next - radius - 1; y < next + radius; ++y)
            add_row<1>(y);
        for (int y = top; y < bottom; ++y) {
            for (; next <= min(y + radius, fit_rows - 1); ++next) {
                add_row<-1>(next - radius - 1);
                add_row<1>(next + radius);
                fit_row(next);
            }
            float *lines = averaged + (y & 1) * 4 * pitch;
            average_row(y, lines);
            emit(y, lines);
        }
    }
};

// Columns of lines in `scratch`.
OP int line_pitch(int columns, int radius)
{
    return columns + 4 * radius + 2;
}

template <int SPACING>
void fit_plane(
    const u32 *packed, float *terms, const int *limits, int radius, int margin, float epsilon,
    int rows, int columns, float *scratch)
{
    const Box box(limits, margin);
    if (box.right == 0)
        return;
    // Evaluation looks at the neighbours, too.
    const int left = max(box.left - 1, 0), right = min(box.right + 1, columns);
    const int top = max(box.top - 1, 0), bottom = min(box.bottom + 1, rows);
    const int fit_rows = (rows + SPACING - 1) / SPACING;
    const int fit_columns = (columns + SPACING - 1) / SPACING;
    const int pitch = line_pitch(fit_columns, radius);
    float *line = scratch + 2 * radius + 1, *fits = line + 2 * MOMENTS * pitch;
    const Fitter<SPACING> fitter = {
        packed, rows, columns, fit_rows, fit_columns, radius, pitch, epsilon,
        SPACING == 1 ? left : max(left / 2 - 1, 0),
        SPACING == 1 ? right : min((right + 1) / 2 + 1, fit_columns),
        (int *)line, (int *)line + MOMENTS * pitch, fits, fits + 4 * pitch};
    line = fits + 4 * pitch;
    float *averaged = line += 4 * (2 * radius + 1) * pitch;
    float *between = line += 8 * pitch;
    float *enlarged = line + pitch;
    const size_t plane = (size_t)rows * columns;
    const auto write = [&](int y, const float *lines, int width) INLINED {
        const u32 *cells = packed + (size_t)y * columns;
        const float *cb = lines + width, *cr = cb + width, *constant = cr + width;
        float *slope = terms + (size_t)y * columns, *rest = slope + plane;
        const int first = left, last = right;
        INDEPENDENT
        for (int x = first; x < last; ++x) {
            slope[x] = lines[x];
            rest[x] = other_terms(cb[x], cr[x], constant[x], cells[x]);
        }
    };
    if (SPACING == 1) {
        fitter.run(top, bottom, averaged, [&](int y, const float *lines) { write(y, lines, pitch); });
        return;
    }
    const int first = max(top / 2 - 1, 0);
    const int end = min((bottom + 1) / 2 + 1, fit_rows);
    fitter.run(first, end, averaged, [&](int y, const float *) {
        const bool is_last = y == fit_rows - 1;
        const int stop = min(2 * y + (is_last ? 2 : 1), bottom);
        for (int row = max(2 * y - 1, top); row < stop; ++row) {
            const Between down(row, 0.5f, fit_rows);
            if (down.first < first)
                continue;
            for (int i = 0; i < 4; ++i)
                double_line(
                    averaged + ((down.first & 1) * 4 + i) * pitch,
                    averaged + ((down.second & 1) * 4 + i) * pitch, down.part, left / 2,
                    (right + 1) / 2, fit_columns, between, enlarged + 2 * i * pitch);
            write(row, enlarged, 2 * pitch);
        }
    });
}

// All of it at once, and only where alpha is not flat. scratch: lines of line_pitch() floats, as many
// as Fitter and fit_plane need.
KERNEL(fit_guided)(
    const u32 *packed, float *terms, int *limits, int spacing, int radius, int margin, float epsilon,
    int rows, int columns, float *scratch)
{
    find_box(packed, limits, rows, columns);
    if (spacing == 1)
        fit_plane<1>(packed, terms, limits, radius, margin, epsilon, rows, columns, scratch);
    else
        fit_plane<2>(packed, terms, limits, radius, margin, epsilon, rows, columns, scratch);
}
#endif

OP u8 refined(float slope, float rest, int luma, float steepen, float offset)
{
    return (u8)to_byte(slope * (float)luma * steepen + rest * (255.0f * steepen) + offset);
}

// Alpha fitted to the picture, within the limits widened by `margin`; elsewhere unchanged.
//
// coarse, luma, out: (rows, columns) uint8; out may be coarse. scratch: on the host, room for the line
// between two lines and two enlarged ones.
KERNEL(evaluate_guided)(
    const u8 *coarse, const float *terms, const u8 *luma, u8 *out, const int *limits, int margin,
    float steepen, float offset, int rows, int columns, float *scratch)
{
    Box box(limits, margin);
    const int half_rows = (rows + 1) / 2, half_columns = (columns + 1) / 2;
    const size_t half_plane = (size_t)half_rows * half_columns;
#if ON_DEVICE
    for_samples(rows, columns, [=](int y, int x) {
        const size_t at = (size_t)y * columns + x;
        if (x < 2 * box.left || x >= 2 * box.right || y < 2 * box.top || y >= 2 * box.bottom) {
            out[at] = coarse[at];
            return;
        }
        const Between down(y, 0.5f, half_rows), across(x, 0.5f, half_columns);
        const size_t upper = (size_t)down.first * half_columns;
        const size_t lower = (size_t)down.second * half_columns;
        const auto enlarged = [=](const float *plane) {
            return along(
                along(plane[upper + across.first], plane[lower + across.first], down.part),
                along(plane[upper + across.second], plane[lower + across.second], down.part),
                across.part);
        };
        out[at] = refined(enlarged(terms), enlarged(terms + half_plane), luma[at], steepen, offset);
    });
#else
    box.right = min(box.right, half_columns);
    const int pitch = 2 * half_columns + 4;
    float *between = scratch + 2, *enlarged = scratch + pitch;
    for (int y = 0; y < rows; ++y) {
        const u8 *source = coarse + (size_t)y * columns, *light = luma + (size_t)y * columns;
        u8 *target = out + (size_t)y * columns;
        if (target != source)
            __builtin_memcpy(target, source, columns);
        if (y < 2 * box.top || y >= 2 * box.bottom)
            continue;
        const Between down(y, 0.5f, half_rows);
        for (int i = 0; i < 2; ++i) {
            const float *plane = terms + i * half_plane;
            double_line(
                plane + (size_t)down.first * half_columns, plane + (size_t)down.second * half_columns,
                down.part, box.left, box.right, half_columns, between, enlarged + i * pitch);
        }
        const float *factor = enlarged, *rest = enlarged + pitch;
        const int first = 2 * box.left, last = min(2 * box.right, columns);
        INDEPENDENT
        for (int x = first; x < last; ++x)
            target[x] = refined(factor[x], rest[x], light[x], steepen, offset);
    }
#endif
}
