// What faces do to mattes; see bgsoft/face/editor.py. Both sides have the same results, to the bit.
#include "matte.cuh"

#define OUTLINE_POINTS 36
#define MAX_OUTLINES 12 // all of a kernel's arguments may take 4,096 bytes
#define FULL_STRENGTH 256
#define RUN 8 // columns that the host draws together
#define MISSING_THREADS TOGETHER(128)

// Of the grid, half-open.
struct Box {
    int left, top, right, bottom;

    OP int rows() const { return bottom - top; }
    OP int columns() const { return right - left; }
};

// One face's cover, in cells of the grid; as OUTLINE in bgsoft/face/guard.py.
struct Outline {
    float x[OUTLINE_POINTS], y[OUTLINE_POINTS]; // frame pixels
    float scale, shift_x, shift_y;              // to cells
    float opacity;
    int side;
    Box box;
};

// What is done to one matte; as EDIT in bgsoft/face/editor.py. The first `measured` of its outlines
// are told of. A face is filled in by how far what is missing of it is from missed to filled.
struct MatteEdit {
    float missed, filled;
    int rows, columns, height, width;
    int shift; // log2 of pixels per cell
    int count, measured;
    Outline outlines[MAX_OUTLINES];
};

OP float clamp_unit(float value)
{
    return fminf(fmaxf(value, 0.0f), 1.0f);
}

// Integral of clamp_unit from minus infinity.
OP float ramp(float value)
{
    const float part = clamp_unit(value);
    return part * (value - 0.5f * part);
}

// An edge of an outline within the rows of the squares around a row's cells. In sides of a square,
// from the corner of the square around the first of them on.
struct Crossing {
    float rise; // downwards; 0: it is not within them
    float enters, leaves;

    // What lies left of it in a square that begins at `place`, by its rise: exactly all of it if it
    // lies beyond the square, nothing if before.
    OP float share(float place) const
    {
        const float a = enters - place, b = leaves - place, width = b - a;
        const float mean = fabsf(width) > 1e-3f ? (ramp(b) - ramp(a)) / width
                                                : clamp_unit(0.5f * (a + b));
        return rise * (fminf(a, b) >= 1.0f ? 1.0f : mean);
    }
};

// That of the edge between two points.
OP Crossing crossing(const Outline& outline, int from, int to, int row)
{
    const float one = 1.0f / (float)outline.side, scale = outline.scale * one;
    const float shift_x = (outline.shift_x - 0.5f) * one + 0.5f;
    const float shift_y = (outline.shift_y - ((float)row + 0.5f)) * one + 0.5f;
    const float y0 = outline.y[from] * scale + shift_y, y1 = outline.y[to] * scale + shift_y;
    const float top = clamp_unit(y0), bottom = clamp_unit(y1);
    if (top == bottom)
        return {0.0f, 0.0f, 0.0f};
    const float x0 = outline.x[from] * scale + shift_x, x1 = outline.x[to] * scale + shift_x;
    const float slope = (x1 - x0) / (y1 - y0);
    return {bottom - top, x0 + (top - y0) * slope, x0 + (bottom - y0) * slope};
}

// By Green's theorem the edges' shares add up to that of a square which the outline encloses; 0-255.
OP u8 enclosed(float sum)
{
    return (u8)nearest(255.0f * fminf(fabsf(sum), 1.0f));
}

// Opacity of a fill, 0-255, from the enclosed share, 0-255: from one half of it on.
OP u8 fill_opacity(u8 share, int strength)
{
    const u16 inside = share > 127 ? (u16)(2 * share - 255) : (u16)0;
    return (u8)((u16)(inside * strength + FULL_STRENGTH / 2) / FULL_STRENGTH);
}

// The share of a face, inside as much as it is opaque, that a matte covers; 1 if it has no inside on
// the grid.
OP float covered_share(u64 inside, u64 covers)
{
    return inside > 0 ? (float)((double)covers / (255.0 * (double)inside)) : 1.0f;
}

// How strongly a face of which the matte covers this share is filled in, to FULL_STRENGTH.
OP int fill_strength(const MatteEdit& edit, const Outline& outline, float share)
{
    const float missing = (1.0f - share - edit.missed) / (edit.filled - edit.missed);
    return nearest(FULL_STRENGTH * (outline.opacity * clamp_unit(missing)));
}

// The square of a face on the grid, in cells: its middle, and its side along the line between the eyes.
struct Square {
    double x, y, across, down;
};

// The share, 0-1, that a matte lacks where a face is expected; 0 where none of that is on the grid.
//
// reduced: (rows, columns). disc: (2, points), where the face is looked at in its square, in parts of
// the side. shares: of faces, of which this is one. On a device one block.
KERNEL(measure_missing)(
    const u8* reduced, BY_VALUE(Square) square, const double* disc, double* shares, int points,
    int rows, int columns, int face)
{
    SHARED int lacks, cells;
    for_blocks(1, [&](int, int thread) INLINED {
        int own_lacks = 0, own_cells = 0;
        for (int index = thread; index < points; index += MISSING_THREADS) {
            const double u = disc[index], v = disc[points + index];
            const double column = floor(square.x + square.across * u - square.down * v);
            const double row = floor(square.y + square.down * u + square.across * v);
            if (!(column >= 0.0 && column < columns && row >= 0.0 && row < rows))
                continue;
            own_cells++;
            own_lacks += 255 - reduced[(size_t)row * columns + (size_t)column];
        }
#if ON_DEVICE
        if (thread == 0)
            lacks = cells = 0;
        __syncthreads();
        atomicAdd(&lacks, own_lacks);
        atomicAdd(&cells, own_cells);
        __syncthreads();
#else
        lacks = own_lacks, cells = own_cells;
#endif
        if (thread == 0)
            shares[face] = lacks / (255.0 * max(cells, 1));
    });
}

// What a matte, cut down to a limit, has of each face, and how strongly it is to be filled in.
//
// reduced, limit: (rows, columns); limit may be none. Of each outline: shares, (rows, columns) of
// which its box is filled in, row after row; strengths; and told, the share that the matte covers,
// 0-1, of those that are measured. sums: on the host, room for rows of whole runs. On a device a
// block an outline.
#if ON_DEVICE
extern "C" __global__ void __launch_bounds__(1024) measure_covers(
    const u8* reduced, const u8* limit, u8* shares, int* strengths, float* told,
    BY_VALUE(MatteEdit) edit, float*)
{
    __shared__ u64 inside, covers;
    const Outline& outline = edit.outlines[blockIdx.x];
    const Box& box = outline.box;
    const u8* most = limit ? limit : reduced;
    shares += (size_t)blockIdx.x * edit.rows * edit.columns;
    const int thread = threadIdx.y * blockDim.x + threadIdx.x;
    if (thread == 0)
        inside = covers = 0;
    __syncthreads();
    const int columns = box.columns(), cells = box.rows() * columns;
    u64 own_inside = 0, own_covers = 0;
    for (int cell = thread; cell < cells; cell += blockDim.x * blockDim.y) {
        const int row = box.top + cell / columns, column = box.left + cell % columns;
        const float place = (float)column * (1.0f / (float)outline.side);
        float sum = 0.0f;
        for (int from = OUTLINE_POINTS - 1, to = 0; to < OUTLINE_POINTS; from = to++) {
            const Crossing edge = crossing(outline, from, to, row);
            if (edge.rise != 0.0f)
                sum += edge.share(place);
        }
        shares[cell] = enclosed(sum);
        const int weight = fill_opacity(shares[cell], FULL_STRENGTH);
        const int at = row * edit.columns + column;
        own_inside += weight;
        own_covers += weight * min((int)reduced[at], (int)most[at]);
    }
    if (own_inside > 0) {
        atomicAdd(&inside, own_inside);
        atomicAdd(&covers, own_covers);
    }
    __syncthreads();
    if (thread > 0)
        return;
    const float share = covered_share(inside, covers);
    strengths[blockIdx.x] = fill_strength(edit, outline, share);
    if ((int)blockIdx.x < edit.measured)
        told[blockIdx.x] = share;
}
#else
// Sums of which the enclosed shares of an outline's box are made; pitch: whole runs.
static void draw(const Outline& outline, float* __restrict__ sums, int pitch)
{
    const Box& box = outline.box;
    const float side = (float)outline.side, one = 1.0f / side;
    const auto index = [](float place, int end) INLINED {
        return (int)fminf(fmaxf(place, 0.0f), (float)end);
    };
    __builtin_memset(sums, 0, sizeof(float) * box.rows() * pitch);
    for (int from = OUTLINE_POINTS - 1, to = 0; to < OUTLINE_POINTS; from = to++) {
        const float y0 = outline.y[from] * outline.scale + outline.shift_y - (float)box.top;
        const float y1 = outline.y[to] * outline.scale + outline.shift_y - (float)box.top;
        // A cell more on every side: what they are found by is rounded, too.
        const int last_row = index(fmaxf(y0, y1) + 0.5f * side + 2.0f, box.rows());
        for (int row = index(fminf(y0, y1) - 0.5f * side - 2.0f, last_row); row < last_row; ++row) {
            const Crossing edge = crossing(outline, from, to, box.top + row);
            if (edge.rise == 0.0f)
                continue;
            const float low = fminf(edge.enters, edge.leaves) * side - (float)box.left;
            const float high = fmaxf(edge.enters, edge.leaves) * side - (float)box.left;
            const int first = index(low - side - 1.0f, pitch) / RUN * RUN;
            const int last = index(high + 2.0f, pitch);
            float* line = sums + row * pitch;
            for (int x = 0; x < first; ++x)
                line[x] += edge.rise;
            for (int x = first; x < last; x += RUN)
                for (int lane = x; lane < x + RUN; ++lane)
                    line[lane] += edge.share((float)(box.left + lane) * one);
        }
    }
}

KERNEL(measure_covers)(
    const u8* reduced, const u8* limit, u8* shares, int* strengths, float* told,
    BY_VALUE(MatteEdit) edit, float* sums)
{
    const u8* most = limit ? limit : reduced;
    for (int index = 0; index < edit.count; ++index) {
        const Outline& outline = edit.outlines[index];
        const Box& box = outline.box;
        const int columns = box.columns(), pitch = (columns + RUN - 1) / RUN * RUN;
        draw(outline, sums, pitch);
        u64 inside = 0, covers = 0;
        for (int row = 0; row < box.rows(); ++row) {
            const size_t at = (size_t)(box.top + row) * edit.columns + box.left;
            u8* own = shares + (size_t)index * edit.rows * edit.columns + row * columns;
            u32 row_inside = 0, row_covers = 0;
            INDEPENDENT
            for (int x = 0; x < columns; ++x) {
                own[x] = enclosed(sums[row * pitch + x]);
                const u32 weight = fill_opacity(own[x], FULL_STRENGTH);
                row_inside += weight;
                row_covers += weight * min(reduced[at + x], most[at + x]);
            }
            inside += row_inside;
            covers += row_covers;
        }
        const float share = covered_share(inside, covers);
        strengths[index] = fill_strength(edit, outline, share);
        if (index < edit.measured)
            told[index] = share;
    }
}
#endif

// Changes the cells of a box and its pixels in the frame: body(sample, value) is what becomes of each.
//
// values: (box's rows, its columns), enlarged for the pixels; beyond it there is nothing that has a
// part in them. On a device a thread a cell of the grid.
template <class Body>
OP void change_box(
    const MatteEdit& edit, const Box& box, const u8* values, u8* reduced, u8* alpha, u16* lines,
    const Body& body)
{
    const int rows = box.rows(), columns = box.columns(), shift = edit.shift;
    reduced += (size_t)box.top * edit.columns + box.left;
    alpha += ((size_t)box.top << shift) * edit.width + (box.left << shift);
    const int height = min(rows << shift, edit.height - (box.top << shift));
    const int width = min(columns << shift, edit.width - (box.left << shift));
#if ON_DEVICE
    const int row = blockIdx.y * blockDim.y + threadIdx.y - box.top;
    const int column = blockIdx.x * blockDim.x + threadIdx.x - box.left;
    if (row < 0 || row >= rows || column < 0 || column >= columns)
        return;
    u8* cell = reduced + row * edit.columns + column;
    *cell = body(*cell, values[row * columns + column]);
    const int bottom = min((row + 1) << shift, height), right = min((column + 1) << shift, width);
    for (int y = row << shift; y < bottom; y++)
        for (int x = column << shift; x < right; x++) {
            u8* pixel = alpha + (size_t)y * edit.width + x;
            *pixel = body(*pixel, enlarged_byte(values, rows, columns, y, x, shift));
        }
#else
    for (int y = 0; y < rows; ++y) {
        u8* cells = reduced + (size_t)y * edit.columns;
        INDEPENDENT
        for (int x = 0; x < columns; ++x)
            cells[x] = body(cells[x], values[y * columns + x]);
    }
    enlarge_rows(
        shift, values, rows, columns, height, width, lines, [&](int y, const EnlargedRow row) INLINED {
            u8* pixels = alpha + (size_t)y * edit.width;
            for (int x = 0; x < row.first; ++x)
                pixels[x] = body(pixels[x], 0);
            INDEPENDENT
            for (int x = row.first; x < row.last; ++x)
                pixels[x] = body(pixels[x], row.at(x));
            for (int x = row.last; x < width; ++x)
                pixels[x] = body(pixels[x], 0);
        });
#endif
}

// A matte cut down to a limit, then faces filled in; both of its planes, in place.
//
// alpha: (height, width). The others as for measure_covers, which comes first. lines: on the host, see
// enlarge_rows. One thread a cell.
KERNEL(edit_matte)(
    const u8* limit, const u8* shares, const int* strengths, u8* reduced, u8* alpha,
    BY_VALUE(MatteEdit) edit, u16* lines)
{
    const auto cut = [](u8 sample, u8 most) INLINED { return (u8)min(sample, most); };
    if (limit)
        change_box(edit, {0, 0, edit.columns, edit.rows}, limit, reduced, alpha, lines, cut);
    for (int index = 0; index < edit.count; ++index) {
        const int strength = strengths[index];
        const auto fill = [=](u8 sample, u8 share) INLINED {
            return (u8)max(sample, fill_opacity(share, strength));
        };
        const u8* own = shares + (size_t)index * edit.rows * edit.columns;
        if (strength > 0)
            change_box(edit, edit.outlines[index].box, own, reduced, alpha, lines, fill);
    }
}
