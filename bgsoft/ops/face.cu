// Changes of mattes by faces; see bgsoft/face/guard.py. Host and device give identical bits.
#include "matte.cuh"

#define OUTLINE_POINTS 36
#define FULL_STRENGTH 256
#define RUN 8 // columns that are drawn together
#define MISSING_THREADS TOGETHER(128)
#define COVER_THREADS TOGETHER(256)
#define DRAWN (ON_DEVICE ? RUN : 1 << 20) // columns that a thread draws

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

// A matte's planes.
struct Planes {
    u8 *reduced, *alpha;
    int rows, columns, height, width;
    int shift; // log2 of pixels per cell
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

    // Share left of it in a square that begins at `place`, by its rise: exactly 1 if it lies beyond
    // the square, 0 if before.
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

// Share of a face, weighted by its opacity, that a matte covers; 1 if it has no inside on the grid.
OP float covered_share(u64 inside, u64 covers)
{
    return inside > 0 ? (float)((double)covers / (255.0 * (double)inside)) : 1.0f;
}

// How strongly a face of which the matte covers this share is filled in, to FULL_STRENGTH: by how far
// what is missing is from missed to filled.
OP int fill_strength(const Outline& outline, float share, float missed, float filled)
{
    const float missing = (1.0f - share - missed) / (filled - missed);
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
    SHARED int all_lacks, all_cells;
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
        const int lacks = sum_together(own_lacks, &all_lacks);
        const int cells = sum_together(own_cells, &all_cells);
        if (thread == 0)
            shares[face] = lacks / (255.0 * max(cells, 1));
    });
}

// Share of each face that a matte, cut down to a limit, covers, and strength of its filling.
//
// reduced, limit: (rows, columns); limit may be none. Of each of `count` outlines: shares, (rows,
// columns) of which its box is filled in, row after row; strengths; and told, the share that the matte
// covers, 0-1, of the first `measured` ones. On a device a block an outline.
KERNEL(measure_covers)(
    const u8* reduced, const u8* limit, const Outline* outlines, u8* shares, int* strengths,
    float* told, int rows, int grid_columns, int count, int measured, float missed, float filled)
{
    SHARED u64 all_inside, all_covers;
    const u8* ceiling = limit ? limit : reduced;
    for_blocks(count, [&](int index, int thread) INLINED {
        const Outline& outline = outlines[index];
        const Box& box = outline.box;
        const int columns = box.columns(), parts = (columns - 1) / DRAWN + 1;
        const float one = 1.0f / (float)outline.side;
        u8* own = shares + (size_t)index * rows * grid_columns;
        u64 own_inside = 0, own_covers = 0;
        for (int part = thread; part < box.rows() * parts; part += COVER_THREADS) {
            const int y = part / parts, row = box.top + y;
            const int begin = part % parts * DRAWN, end = min(begin + DRAWN, columns);
            Crossing edges[OUTLINE_POINTS];
            int crossed = 0;
            for (int from = OUTLINE_POINTS - 1, to = 0; to < OUTLINE_POINTS; from = to++) {
                edges[crossed] = crossing(outline, from, to, row);
                crossed += edges[crossed].rise != 0.0f;
            }
            for (int first = begin; first < end; first += RUN) {
                float sums[RUN] = {};
                for (int edge = 0; edge < crossed; ++edge)
                    for (int lane = 0; lane < RUN; ++lane)
                        sums[lane] += edges[edge].share((float)(box.left + first + lane) * one);
                for (int lane = 0; lane < min(RUN, end - first); ++lane) {
                    const int x = first + lane, at = row * grid_columns + box.left + x;
                    const u8 share = own[y * columns + x] = enclosed(sums[lane]);
                    const u32 weight = fill_opacity(share, FULL_STRENGTH);
                    own_inside += weight;
                    own_covers += weight * min(reduced[at], ceiling[at]);
                }
            }
        }
        const u64 inside = sum_together(own_inside, &all_inside);
        const u64 covers = sum_together(own_covers, &all_covers);
        if (thread > 0)
            return;
        const float share = covered_share(inside, covers);
        strengths[index] = fill_strength(outline, share, missed, filled);
        if (index < measured)
            told[index] = share;
    });
}

// Changes the cells of a box and its pixels in the frame: body(sample, value) is what becomes of each.
//
// values: (box's rows, its columns), enlarged for the pixels; beyond it there is nothing that has a
// part in them. On a device a thread a cell of the grid.
template <class Body>
OP void change_box(
    const Planes& matte, const Box& box, const u8* values, u16* lines, const Body& body)
{
    const int rows = box.rows(), columns = box.columns(), shift = matte.shift;
    u8* reduced = matte.reduced + (size_t)box.top * matte.columns + box.left;
    u8* alpha = matte.alpha + ((size_t)box.top << shift) * matte.width + (box.left << shift);
    const int height = min(rows << shift, matte.height - (box.top << shift));
    const int width = min(columns << shift, matte.width - (box.left << shift));
#if ON_DEVICE
    const int row = blockIdx.y * blockDim.y + threadIdx.y - box.top;
    const int column = blockIdx.x * blockDim.x + threadIdx.x - box.left;
    if (row < 0 || row >= rows || column < 0 || column >= columns)
        return;
    u8* cell = reduced + row * matte.columns + column;
    *cell = body(*cell, values[row * columns + column]);
    const int bottom = min((row + 1) << shift, height), right = min((column + 1) << shift, width);
    for (int y = row << shift; y < bottom; y++)
        for (int x = column << shift; x < right; x++) {
            u8* pixel = alpha + (size_t)y * matte.width + x;
            *pixel = body(*pixel, enlarged_byte(values, rows, columns, y, x, shift));
        }
#else
    for (int y = 0; y < rows; ++y) {
        u8* cells = reduced + (size_t)y * matte.columns;
        INDEPENDENT
        for (int x = 0; x < columns; ++x)
            cells[x] = body(cells[x], values[y * columns + x]);
    }
    enlarge_rows(
        shift, values, rows, columns, height, width, lines, [&](int y, const EnlargedRow row) INLINED {
            u8* pixels = alpha + (size_t)y * matte.width;
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
    const u8* limit, const Outline* outlines, const u8* shares, const int* strengths, u8* reduced,
    u8* alpha, u16* lines, int count, int rows, int columns, int height, int width, int shift)
{
    const Planes matte = {reduced, alpha, rows, columns, height, width, shift};
    const auto cut = [](u8 sample, u8 ceiling) INLINED { return (u8)min(sample, ceiling); };
    if (limit)
        change_box(matte, {0, 0, columns, rows}, limit, lines, cut);
    for (int index = 0; index < count; ++index) {
        const int strength = strengths[index];
        const auto fill = [=](u8 sample, u8 share) INLINED {
            return (u8)max(sample, fill_opacity(share, strength));
        };
        const u8* own = shares + (size_t)index * rows * columns;
        if (strength > 0)
            change_box(matte, outlines[index].box, own, lines, fill);
    }
}
