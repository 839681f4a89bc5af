// Guided filter: fit of alpha to luma, Cb and Cr on half a plane, its evaluation on the plane, and
// contour smoothing. Formulas: bgsoft/matte/guided.py.
//
// Window sums are whole numbers, of samples less 128, so that next to nothing is lost to cancellation
// (nothing up to a radius of 2 at a spacing of 1); the rest is float32.
//
// `packed` is half of the plane, (rows, columns) of four bytes each: alpha, luma, Cb, Cr. Windows are
// squares of 2 * radius + 1 cells, edge cells repeated; a cell is one of `packed`, or 2 x 2 of them
// where the spacing of windows is 2. The result, `terms`, is two (rows, columns) float32 planes:
// factor of luma, and the other terms on this picture, alpha scaled to 0-1.
#include "matte.cuh"

#define MAX_SMOOTH_RADIUS 16

// Sums over a window: alpha, luma, Cb, Cr; alpha by these three; their products by the upper
// triangle, row by row.
#define MOMENTS 13

OP void add_moments(u32 cell, int sums[MOMENTS])
{
    const int a = (int)(cell & 0xFF) - 128, y = (int)(cell >> 8 & 0xFF) - 128;
    const int cb = (int)(cell >> 16 & 0xFF) - 128, cr = (int)(cell >> 24) - 128;
    sums[0] += a;
    sums[1] += y;
    sums[2] += cb;
    sums[3] += cr;
    sums[4] += a * y;
    sums[5] += a * cb;
    sums[6] += a * cr;
    sums[7] += y * y;
    sums[8] += y * cb;
    sums[9] += y * cr;
    sums[10] += cb * cb;
    sums[11] += cb * cr;
    sums[12] += cr * cr;
}

// Moments of a cell; what the edges cut off is repeated. upper, lower: rows of `packed`.
template <int SPACING>
OP void add_cell(const u32 *upper, const u32 *lower, int x, bool has_right, int sums[MOMENTS])
{
    if (SPACING == 1) {
        add_moments(upper[x], sums);
        return;
    }
    const int right = has_right ? 2 * x + 1 : 2 * x;
    add_moments(upper[2 * x], sums);
    add_moments(upper[right], sums);
    add_moments(lower[2 * x], sums);
    add_moments(lower[right], sums);
}

// Of two quantities, from their sums over `count` samples and that of their products, scaled to 0-1.
OP float covariance(float count, int products, int first, int second, float unit)
{
    return (count * (float)products - (float)first * (float)second) * unit;
}

// The function of least squares of a window: factors of luma (x), Cb (y) and Cr (z), constant (w).
// The symmetric 3 x 3 system is solved by L*D*L^T factorisation, forward and back substitution.
OP float4 fit_window(const int m[MOMENTS], int samples, float epsilon)
{
    const float n = (float)samples, unit = 1.0f / (n * n * 65025.0f);
    float d0 = covariance(n, m[7], m[1], m[1], unit) + epsilon;
    float c01 = covariance(n, m[8], m[1], m[2], unit);
    float c02 = covariance(n, m[9], m[1], m[3], unit);
    float d1 = covariance(n, m[10], m[2], m[2], unit) + epsilon;
    float c12 = covariance(n, m[11], m[2], m[3], unit);
    float d2 = covariance(n, m[12], m[3], m[3], unit) + epsilon;
    float y0 = covariance(n, m[4], m[0], m[1], unit);
    float y1 = covariance(n, m[5], m[0], m[2], unit);
    float y2 = covariance(n, m[6], m[0], m[3], unit);
    const float l10 = c01 / d0, l20 = c02 / d0;
    d1 -= l10 * c01;
    c12 -= l10 * c02;
    const float l21 = c12 / d1;
    d2 -= l20 * c02;
    d2 -= l21 * c12;
    y1 -= l10 * y0;
    y2 -= l20 * y0;
    y2 -= l21 * y1;
    y2 /= d2;
    y1 = y1 / d1 - l21 * y2;
    y0 = y0 / d0 - l10 * y1 - l20 * y2;
    const float mean = 1.0f / (n * 255.0f);
    const int middle = 128 * samples;
    float rest = (float)(m[0] + middle) * mean;
    rest -= y0 * ((float)(m[1] + middle) * mean);
    rest -= y1 * ((float)(m[2] + middle) * mean);
    rest -= y2 * ((float)(m[3] + middle) * mean);
    float4 fit;
    fit.x = y0;
    fit.y = y1;
    fit.z = y2;
    fit.w = rest;
    return fit;
}

// What an averaged function makes of a cell's chroma.
OP float other_terms(float cb_factor, float cr_factor, float constant, u32 cell)
{
    constant += cb_factor * ((float)(int)(cell >> 16 & 0xFF) * (1.0f / 255.0f));
    return constant + cr_factor * ((float)(int)(cell >> 24) * (1.0f / 255.0f));
}

OP int refined(float slope, float rest, int luma, float steepen, float offset)
{
    return to_byte(slope * (float)luma * steepen + rest * (255.0f * steepen) + offset);
}

// Where the filter may change something, in cells of half the plane, half-open.
struct Box {
    int left, top, right, bottom;

    OP Box(const int *flags, int margin) : left(0), top(0), right(0), bottom(0)
    {
        if (flags[FLAG_RIGHT] < 0)
            return;
        left = max(flags[FLAG_LEFT] - margin, 0);
        top = max(flags[FLAG_TOP] - margin, 0);
        right = flags[FLAG_RIGHT] + 1 + margin;
        bottom = flags[FLAG_BOTTOM] + 1 + margin;
    }
};

// Whether a cell's alpha differs from that of the next one along, below or across.
OP bool is_uneven(const u32 *row, const u32 *lower, int x, int next)
{
    return (((row[x] ^ row[next]) | (row[x] ^ lower[x]) | (row[x] ^ lower[next])) & 0xFF) != 0;
}

#if ON_DEVICE
// moments: (MOMENTS, fit_rows, fit_columns) int32, a cell each. Widens the box in the flags around
// cells that differ from their neighbours.
KERNEL(guided_moments)(
    const u32 *__restrict__ packed, int *__restrict__ moments, int *flags, int spacing, int rows,
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
    atomicMin(flags + FLAG_LEFT, spacing * (left + __ffs((int)row) - 1));
    atomicMax(flags + FLAG_RIGHT, spacing * (left + 32 - __clz((int)row)));
    atomicMin(flags + FLAG_TOP, spacing * y);
    atomicMax(flags + FLAG_BOTTOM, spacing * (y + 1));
}

// fits: (rows, columns, 4) float32. samples: of a window.
KERNEL(guided_fit)(
    const int *__restrict__ moments, float4 *__restrict__ fits, int samples, int radius,
    float epsilon, int rows, int columns)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= columns || y >= rows)
        return;
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
}

// Functions averaged over the windows that a cell lies in.
KERNEL(guided_average)(
    const float4 *__restrict__ fits, float4 *__restrict__ averaged, int radius, int rows,
    int columns)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= columns || y >= rows)
        return;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int dy = -radius; dy <= radius; dy++) {
        float4 row = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (int dx = -radius; dx <= radius; dx++) {
            float4 fit = fits[(size_t)clamp_int(y + dy, 0, rows - 1) * columns
                              + clamp_int(x + dx, 0, columns - 1)];
            row.x += fit.x;
            row.y += fit.y;
            row.z += fit.z;
            row.w += fit.w;
        }
        sum.x += row.x;
        sum.y += row.y;
        sum.z += row.z;
        sum.w += row.w;
    }
    int side = 2 * radius + 1;
    float share = 1.0f / (float)(side * side);
    averaged[(size_t)y * columns + x]
        = make_float4(sum.x * share, sum.y * share, sum.z * share, sum.w * share);
}

// Averaged functions on half the plane, (rows, columns), enlarged for a spacing of 2.
KERNEL(guided_terms)(
    const float4 *__restrict__ averaged, const u32 *__restrict__ packed, float *__restrict__ terms,
    int spacing, int rows, int columns, int fit_rows, int fit_columns)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= columns || y >= rows)
        return;
    size_t at = (size_t)y * columns + x, rest = (size_t)rows * columns + at;
    if (spacing == 1) {
        const float4 fit = averaged[at];
        terms[at] = fit.x;
        terms[rest] = other_terms(fit.y, fit.z, fit.w, packed[at]);
        return;
    }
    const Doubled down(y, fit_rows), along(x, fit_columns);
    const float4 *upper = averaged + (size_t)down.first * fit_columns;
    const float4 *lower = averaged + (size_t)down.second * fit_columns;
    float4 a = upper[along.first], b = upper[along.second];
    float4 c = lower[along.first], d = lower[along.second];
    terms[at] = along.blend(down.blend(a.x, c.x), down.blend(b.x, d.x));
    terms[rest] = other_terms(
        along.blend(down.blend(a.y, c.y), down.blend(b.y, d.y)),
        along.blend(down.blend(a.z, c.z), down.blend(b.z, d.z)),
        along.blend(down.blend(a.w, c.w), down.blend(b.w, d.w)), packed[at]);
}

// One cell of the refined plane.
OP int evaluate(
    const u8 *coarse, const float *__restrict__ terms, const u8 *__restrict__ luma, int x, int y,
    const Box &box, float steepen, float offset, int rows, int columns)
{
    size_t at = (size_t)y * columns + x;
    if (x < 2 * box.left || x >= 2 * box.right || y < 2 * box.top || y >= 2 * box.bottom)
        return coarse[at];
    int half_columns = (columns + 1) / 2, half_rows = (rows + 1) / 2;
    const Doubled down(y, half_rows), along(x, half_columns);
    const float *rest = terms + (size_t)half_rows * half_columns;
    size_t upper = (size_t)down.first * half_columns, lower = (size_t)down.second * half_columns;
    float slope_at = along.blend(
        down.blend(terms[upper + along.first], terms[lower + along.first]),
        down.blend(terms[upper + along.second], terms[lower + along.second]));
    float rest_at = along.blend(
        down.blend(rest[upper + along.first], rest[lower + along.first]),
        down.blend(rest[upper + along.second], rest[lower + along.second]));
    return refined(slope_at, rest_at, luma[at], steepen, offset);
}
#else
// The box around cells that differ from their neighbours.
OP void find_box(const u32 *packed, int *flags, int rows, int columns)
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
        flags[FLAG_TOP] = min(flags[FLAG_TOP], y);
        flags[FLAG_BOTTOM] = y + 1;
        for (int x = 0; x < left; ++x)
            if (is_uneven(row, lower, x, min(x + 1, last)))
                left = x;
        for (int x = last; x > right; --x)
            if (is_uneven(row, lower, x, min(x + 1, last)))
                right = x;
    }
    flags[FLAG_LEFT] = left;
    flags[FLAG_RIGHT] = right < 0 ? -1 : right + 1;
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
    void add_row(int y) const
    {
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

    void fit_row(int y) const
    {
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
        const float least = epsilon;
        INDEPENDENT
        for (int x = first; x < last; ++x) {
            int m[MOMENTS];
            UNROLLED
            for (int i = 0; i < MOMENTS; ++i)
                m[i] = window[i * step + x];
            const float4 fit = fit_window(m, count, least);
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

// A line and the one below it blended, then enlarged along itself to [2 * first, 2 * last); a sample
// more is written on each side.
OP void double_line(
    const float *upper, const float *lower, bool is_second_half, int first, int last, int size,
    float *__restrict__ between, float *__restrict__ out)
{
    const int start = max(first - 1, 0), stop = min(last + 1, size);
    for (int x = start; x < stop; ++x)
        between[x] = Doubled::doubled(upper[x], lower[x], is_second_half);
    repeat_edges(between, start, stop, size, 1);
    INDEPENDENT
    for (int x = first - 1; x < last; ++x) {
        out[2 * x + 1] = Doubled::doubled(between[x], between[x + 1], true);
        out[2 * x + 2] = Doubled::doubled(between[x], between[x + 1], false);
    }
}

// Columns of lines in `scratch`.
OP int line_pitch(int columns, int radius)
{
    return columns + 4 * radius + 2;
}

template <int SPACING>
void fit_plane(
    const u32 *packed, float *terms, const int *flags, int radius, int margin, float epsilon,
    int rows, int columns, float *scratch)
{
    const Box box(flags, margin);
    if (box.right == 0)
        return;
    // Evaluation looks at the neighbours, too.
    const int left = max(box.left - 1, 0), right = min(box.right + 1, columns);
    const int top = max(box.top - 1, 0), bottom = min(box.bottom + 1, rows);
    Fitter<SPACING> fitter;
    fitter.packed = packed;
    fitter.rows = rows;
    fitter.columns = columns;
    fitter.fit_rows = (rows + SPACING - 1) / SPACING;
    fitter.fit_columns = (columns + SPACING - 1) / SPACING;
    fitter.radius = radius;
    fitter.epsilon = epsilon;
    fitter.left = SPACING == 1 ? left : max(left / 2 - 1, 0);
    fitter.right = SPACING == 1 ? right : min((right + 1) / 2 + 1, fitter.fit_columns);
    const int pitch = fitter.pitch = line_pitch(fitter.fit_columns, radius);
    float *line = scratch + 2 * radius + 1;
    fitter.columns_sums = (int *)line;
    fitter.window_sums = (int *)line + MOMENTS * pitch;
    fitter.fits = line += 2 * MOMENTS * pitch;
    fitter.row_sums = line += 4 * pitch;
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
    const int end = min((bottom + 1) / 2 + 1, fitter.fit_rows);
    fitter.run(first, end, averaged, [&](int y, const float *) {
        const bool is_last = y == fitter.fit_rows - 1;
        const int stop = min(2 * y + (is_last ? 2 : 1), bottom);
        for (int row = max(2 * y - 1, top); row < stop; ++row) {
            const Doubled down(row, fitter.fit_rows);
            if (down.first < first)
                continue;
            for (int i = 0; i < 4; ++i)
                double_line(
                    averaged + ((down.first & 1) * 4 + i) * pitch,
                    averaged + ((down.second & 1) * 4 + i) * pitch, down.is_second_half, left / 2,
                    (right + 1) / 2, fitter.fit_columns, between, enlarged + 2 * i * pitch);
            write(row, enlarged, 2 * pitch);
        }
    });
}

// All of it at once, and only where alpha is not flat. scratch: lines of line_pitch() floats, as many
// as Fitter and fit_plane need.
KERNEL(fit_guided)(
    const u32 *packed, float *terms, int *flags, int spacing, int radius, int margin, float epsilon,
    int rows, int columns, float *scratch)
{
    find_box(packed, flags, rows, columns);
    if (spacing == 1)
        fit_plane<1>(packed, terms, flags, radius, margin, epsilon, rows, columns, scratch);
    else
        fit_plane<2>(packed, terms, flags, radius, margin, epsilon, rows, columns, scratch);
}
#endif

// Guided result on the plane, smoothed: Gaussian in 1/256, then a ramp.
//
// coarse, luma, out: (rows, columns) uint8; out may be coarse where radius is 0. terms: used where
// `guided`, within the flags' box widened by `margin`. weights: 2 * radius + 1 whole numbers that add
// up to 256. fitted_luma: null, or becomes luma where something is written. held: write only if the
// sum of squares in the flags is above still_limit (device).
KERNEL(evaluate_smooth)(
    const u8 *coarse, const float *terms, const u8 *luma, u8 *fitted_luma, u8 *out,
    const int *flags, int guided, int margin, float steepen, float offset, const int *weights,
    int radius, float slope, float shift, int held, int still_limit, int rows, int columns,
    float *scratch)
{
#if ON_DEVICE
    __shared__ u8 tile[16 + 2 * MAX_SMOOTH_RADIUS][32 + 2 * MAX_SMOOTH_RADIUS];
    __shared__ u16 lines[16 + 2 * MAX_SMOOTH_RADIUS][32];
    if (held && *(const unsigned long long *)(flags + FLAG_SQUARES) <= (unsigned)still_limit)
        return;
    const Box box(flags, margin);
    int left = blockIdx.x * 32, top = blockIdx.y * 16;
    int thread = threadIdx.y * 32 + threadIdx.x;
    int wide = 32 + 2 * radius, tall = 16 + 2 * radius;
    for (int i = thread; i < wide * tall; i += 256) {
        int ty = i / wide, tx = i % wide;
        int y = clamp_int(top - radius + ty, 0, rows - 1);
        int x = clamp_int(left - radius + tx, 0, columns - 1);
        tile[ty][tx] = guided
            ? (u8)evaluate(coarse, terms, luma, x, y, box, steepen, offset, rows, columns)
            : coarse[(size_t)y * columns + x];
    }
    __syncthreads();
    for (int row = threadIdx.y; row < tall; row += 8) {
        int sum = 0;
        for (int i = 0; i <= 2 * radius; i++)
            sum += weights[i] * tile[row][threadIdx.x + i];
        lines[row][threadIdx.x] = (u16)sum;
    }
    __syncthreads();
    int x = left + threadIdx.x;
    for (int row = threadIdx.y; row < 16; row += 8) {
        int y = top + row;
        if (x >= columns || y >= rows)
            continue;
        int sum = 32768;
        for (int i = 0; i <= 2 * radius; i++)
            sum += weights[i] * lines[row + i][threadIdx.x];
        size_t at = (size_t)y * columns + x;
        out[at] = (u8)to_byte((float)(sum >> 16) * slope + shift);
        if (fitted_luma != 0)
            fitted_luma[at] = luma[at];
    }
#else
    const int side = 2 * radius + 1, half_columns = (columns + 1) / 2;
    const size_t half_plane = (size_t)((rows + 1) / 2) * half_columns;
    Box box(flags, guided ? margin : 0);
    if (!guided)
        box.right = box.bottom = 0;
    box.right = min(box.right, half_columns);
    // Room for the line between two lines, two enlarged ones, one of samples, and sums of a row each.
    const int pitch = 2 * half_columns + 2 * radius + 4;
    float *between = scratch + 2;
    float *enlarged = scratch + pitch;
    u8 *samples = (u8 *)(scratch + 3 * pitch) + radius;
    u16 *row_sums = (u16 *)(scratch + 4 * pitch);
    const auto evaluate_row = [&](int y, u8 *target) INLINED {
        const u8 *source = coarse + (size_t)y * columns;
        if (target != source)
            for (int x = 0; x < columns; ++x)
                target[x] = source[x];
        if (y < 2 * box.top || y >= 2 * box.bottom)
            return;
        const Doubled down(y, (rows + 1) / 2);
        for (int i = 0; i < 2; ++i) {
            const float *plane = terms + i * half_plane;
            double_line(
                plane + (size_t)down.first * half_columns, plane + (size_t)down.second * half_columns,
                down.is_second_half, box.left, box.right, half_columns, between,
                enlarged + i * pitch);
        }
        const u8 *light = luma + (size_t)y * columns;
        const float *factor = enlarged, *rest = enlarged + pitch;
        const int first = 2 * box.left, last = min(2 * box.right, columns);
        INDEPENDENT
        for (int x = first; x < last; ++x)
            target[x] = (u8)refined(factor[x], rest[x], light[x], steepen, offset);
    };
    if (radius == 0) {
        for (int y = 0; y < rows; ++y)
            evaluate_row(y, out + (size_t)y * columns);
        return;
    }
    for (int y = 0, next = 0; y < rows; ++y) {
        for (; next <= min(y + radius, rows - 1); ++next) {
            evaluate_row(next, samples);
            repeat_edges(samples, 0, columns, columns, radius);
            u16 *__restrict__ sums = row_sums + (size_t)(next % side) * pitch;
            for (int x = 0; x < columns; ++x)
                sums[x] = 0;
            for (int i = 0; i < side; ++i)
                for (int x = 0; x < columns; ++x)
                    sums[x] = (u16)(sums[x] + weights[i] * samples[x + i - radius]);
        }
        int *__restrict__ total = (int *)enlarged;
        for (int x = 0; x < columns; ++x)
            total[x] = 32768;
        for (int i = 0; i < side; ++i) {
            const int row = clamp_int(y + i - radius, 0, rows - 1) % side;
            const u16 *__restrict__ sums = row_sums + (size_t)row * pitch;
            for (int x = 0; x < columns; ++x)
                total[x] += weights[i] * sums[x];
        }
        u8 *__restrict__ result = out + (size_t)y * columns;
        for (int x = 0; x < columns; ++x)
            result[x] = (u8)to_byte((float)(total[x] >> 16) * slope + shift);
    }
#endif
}
