// The picture without its people: push-pull interpolation of their surroundings, at the resolution of a
// filter.
//
// Launched by bgsoft/composite/picture.py.
//
// Pyramid: levels of float4 (three planes, each times the weight; the weight); see Level. Levels from
// the second on are filled in, and then hold the filled planes instead.
#include "background.cuh"
#include "drivers.cuh"

// Grid cells count as background in full up to CLEAR_ALPHA, as little as can be from here on.
#define PERSON_ALPHA 40

OP float4 mixed(float4 first, float4 second, float part)
{
    const float rest = 1.0f - part;
    return make_float4(
        first.x * rest + second.x * part,
        first.y * rest + second.y * part,
        first.z * rest + second.z * part,
        first.w * rest + second.w * part);
}

// Cell (y, x) of `to`, by bilinear interpolation in the cells of `from`.
OP float4 resampled(const float4 *cells, Level from, Level to, int y, int x)
{
    const Between down(y, (float)from.rows / (float)to.rows, from.rows);
    const Between along(x, (float)from.columns / (float)to.columns, from.columns);
    const float4 *upper = cells + down.first * from.columns, *lower = cells + down.second * from.columns;
    const float4 first = mixed(upper[along.first], upper[along.second], along.part);
    const float4 second = mixed(lower[along.first], lower[along.second], along.part);
    return mixed(first, second, down.part);
}

OP float4 laid_over(float4 weighted, float4 below)
{
    const float shows = 1.0f - weighted.w;
    return make_float4(
        below.x * shows + weighted.x,
        below.y * shows + weighted.y,
        below.z * shows + weighted.z,
        1.0f);
}

// Cells of 2x2 grid cells, 16-bit full scale, and the pyramid's first level.
//
// shape: rows and columns of the grid, whether chroma is on it, or else comes at half its size.
// min_weight: the weight of people. cells: (3, rows, columns). marks: of the host, room for a row of the grid and three cells.
KERNEL(fill_prepare)(
    const sample_t *luma, const sample_t *chroma, const u8 *matte, const int *shape, float min_weight,
    const int *table, u16 *cells, float4 *levels, u8 *marks)
{
    const int rows = shape[0], columns = shape[1];
    const bool has_chroma = shape[2];
    const Level finest = level_of(table, 0);
    const int size = finest.rows * finest.columns;
    // The mean of 2x2 samples, or of those inside the edges.
    const auto halved = [=](int plane, int y, int x, bool whole) INLINED {
        const sample_t *samples = plane == 0 ? luma : chroma + plane - 1;
        if (plane > 0 && !has_chroma)
            return (u16)(samples[2 * (y * finest.columns + x)] << FULL_SHIFT);
        const int step = plane == 0 ? 1 : 2;
        const sample_t *upper = samples + step * (2 * y * columns + 2 * x);
        const int right = whole || 2 * x + 1 < columns ? step : 0;
        const sample_t *lower = upper + (whole || 2 * y + 1 < rows ? step * columns : 0);
        return (u16)area_mean((u32)(upper[0] + upper[right] + lower[0] + lower[right]) << FULL_SHIFT, 4);
    };
    const auto weigh = [=](int y, int x, u32 alpha) INLINED {
        const float part = ((float)PERSON_ALPHA - (float)alpha) / (PERSON_ALPHA - CLEAR_ALPHA);
        const float weight = fminf(fmaxf(part, min_weight), 1.0f);
        const u16 *cell = cells + y * finest.columns + x;
        levels[y * finest.columns + x] = make_float4(
            (float)cell[0] * weight, (float)cell[size] * weight, (float)cell[2 * size] * weight,
            weight);
    };
    // One grid cell beyond the larger cell, since cells next to a person are mixed.
#if ON_DEVICE
    for_samples(finest.rows, finest.columns, [&](int y, int x) {
        for (int plane = 0; plane < 3; ++plane)
            cells[plane * size + y * finest.columns + x] = halved(plane, y, x, false);
        weigh(y, x, near_matte(matte, rows, columns, 2 * y, 2 * x));
    });
#else
    for (int y = 0; y < finest.rows; ++y) {
        const int whole = 2 * y + 1 < rows ? columns / 2 : 0;
        UNROLLED  // so that steps are constants
        for (int plane = 0; plane < 3; ++plane) {
            u16 *line = cells + plane * size + y * finest.columns;
            for (int x = 0; x < whole; ++x)
                line[x] = halved(plane, y, x, true);
            for (int x = whole; x < finest.columns; ++x)
                line[x] = halved(plane, y, x, false);
        }
        near_row(matte, rows, columns, 2 * y, marks);
        for (int x = 0; x < finest.columns; ++x)
            weigh(y, x, marks[2 * x]);
    }
#endif
}

// Fills in all levels but the first: coarse ones are made of finer ones, and fill their gaps. One block.
//
// black, neutral: 16-bit full scale, the colour where all weights are 0.
BLOCK_KERNEL(fill_pyramid)(const int *table, float4 *levels, int black, int neutral)
{
    const int top = table[0] - 1;
    for (int index = 1; index <= top; ++index) {
        const Level fine = level_of(table, index - 1), coarse = level_of(table, index);
        for_samples_together(coarse.rows, coarse.columns, [&](int y, int x) INLINED {
            levels[coarse.offset + y * coarse.columns + x]
                = resampled(levels + fine.offset, fine, coarse, y, x);
        });
    }
    // Below the highest level is its mean.
    const Level highest = level_of(table, top);
    for_samples_together(1, 1, [&](int, int) INLINED {
        float4 below = make_float4(0.0f, 0.0f, 0.0f, 0.0f), *peak = levels + highest.offset;
        const int count = highest.rows * highest.columns;
        for (int cell = 0; cell < count; ++cell)
            below = make_float4(
                below.x + peak[cell].x, below.y + peak[cell].y, below.z + peak[cell].z,
                below.w + peak[cell].w);
        if (below.w == 0.0f)
            below = make_float4((float)black, (float)neutral, (float)neutral, 1.0f);
        below = make_float4(below.x / below.w, below.y / below.w, below.z / below.w, 1.0f);
        for (int cell = 0; cell < count; ++cell)
            peak[cell] = laid_over(peak[cell], below);
    });
    for (int index = top - 1; index >= 1; --index) {
        const Level fine = level_of(table, index), coarse = level_of(table, index + 1);
        for_samples_together(fine.rows, fine.columns, [&](int y, int x) INLINED {
            float4 *cell = levels + fine.offset + y * fine.columns + x;
            if (cell->w < 1.0f)
                *cell = laid_over(*cell, resampled(levels + coarse.offset, coarse, fine, y, x));
        });
    }
}

// Cells filled in, 16-bit full scale, where what is below shows: of the pyramid's second level, if any.
KERNEL(fill_finish)(const int *table, const float4 *levels, u16 *cells)
{
    const Level finest = level_of(table, 0), below = level_of(table, min(1, table[0] - 1));
    for_samples(finest.rows, finest.columns, [&](int y, int x) INLINED {
        const int index = y * finest.columns + x, size = finest.rows * finest.columns;
        float4 value = levels[index];
        if (value.w == 1.0f && below.offset > 0)
            return;
        if (below.offset > 0)
            value = laid_over(value, resampled(levels + below.offset, below, finest, y, x));
        cells[index] = to_cell(value.x);
        cells[size + index] = to_cell(value.y);
        cells[2 * size + index] = to_cell(value.z);
    });
}

// Number of visible cells, of 4x4 grid cells around, next to which a cell of a cut-out has full colour.
// With one its outline would have steps.
#define SEEN 4

// A cut-out's cells: filled in next to visible ones, else black.
//
// rows, columns: of the cells. filled: (3, rows, columns), and so cells. matte: on the grid.
KERNEL(outline_cells)(
    const u16 *filled, u16 *cells, int rows, int columns, const u8 *matte, int grid_rows,
    int grid_columns, int black, int neutral)
{
    for_samples(rows, columns, [=](int y, int x) INLINED {
        int seen = 0;
        for (int row = 2 * y - 1; row <= 2 * y + 2; ++row) {
            const u8 *line = matte + clamp_int(row, 0, grid_rows - 1) * grid_columns;
            for (int column = 2 * x - 1; column <= 2 * x + 2; ++column)
                seen += line[clamp_int(column, 0, grid_columns - 1)] > 0;
        }
        seen = min(seen, SEEN);
        for (int plane = 0; plane < 3; ++plane) {
            const int index = (plane * rows + y) * columns + x, rest = plane == 0 ? black : neutral;
            cells[index] = (u16)((filled[index] * seen + rest * (SEEN - seen)) / SEEN);
        }
    });
}

// Where a plane comes from; see Source in bgsoft/composite/plan.py.
#define FROM_CELLS 0  // it is the filled cells themselves: nothing to do
#define FROM_COARSE 1  // filled cells, averaged further
#define FROM_GRID 2  // the analysis frame, people replaced by filled cells
#define FROM_FRAME 3  // the frame, averaged, people replaced by filled cells

struct Plane {
    int source;
    int factor;  // source samples per cell, each way
    int fine;  // cells per cell of the analysis frame, each way; 1 or more
    int rows, columns, offset;
};

OP u16 coarse_cell(
    const u16 *cells, int rows, int columns, int factor, int y, int x)
{
    const int bottom = min((y + 1) * factor, rows), right = min((x + 1) * factor, columns);
    u32 sum = 0;
    for (int row = y * factor; row < bottom; ++row)
        for (int column = x * factor; column < right; ++column)
            sum += cells[row * columns + column];
    return to_cell((float)sum / (float)((bottom - y * factor) * (right - x * factor)));
}

#if !ON_DEVICE
#define RUN 32

// A plane of the grid's or of the frame's samples, people replaced by filled cells.
//
// marks: room for a row of the grid and three cells. line: for a row of filled cells, two cells and a run.
static void fine_plane(
    const Plane &plane, const Samples &source, const u8 *matte, const int *sizes, const u16 *cells,
    u16 *target, u8 *marks, float *line)
{
    int shift = 0;
    while (1 << shift < plane.fine)
        ++shift;
    u8 anyone = 0;
    for (int y = 0; y < plane.rows; ++y, target += plane.columns) {
        if (y % plane.fine == 0) {
            near_row(matte, sizes[2], sizes[3], y >> shift, marks);
            anyone = 0;
            for (int x = 0; x < sizes[3]; ++x)
                anyone = max(anyone, marks[x]);
        }
        mean_row(source, y, plane.columns, target);
        if (anyone <= CLEAR_ALPHA)
            continue;
        interpolate(cells, sizes[0], sizes[1], shift + 1, y, line);
        for_runs(1, plane.columns, 1, RUN, [&](int, int x, int count) INLINED {
            u8 largest = 0;
            for (int cell = x >> shift; cell <= (x + count - 1) >> shift; ++cell)
                largest = max(largest, marks[cell]);
            if (largest <= CLEAR_ALPHA)
                return;
            u16 filled[RUN];
            enlarge<RUN>(cells, sizes[0], sizes[1], shift + 1, y, x, line, filled);
            for (int cell = 0; cell < RUN; ++cell)
                if (cell < count && marks[(x + cell) >> shift] > CLEAR_ALPHA)
                    target[x + cell] = filled[cell];
        });
    }
}
#endif

// Luma, Cb and Cr of the picture.
//
// plan: 3 x Plane; then rows and columns of the filled cells, of the grid, of the frame's luma, and of its
// chroma. buffer: filled cells (3, rows, columns) first, planes at
// their offsets. marks, line: of the host, see fine_plane().
KERNEL(picture_planes)(
    const int *plan, u16 *buffer, const u8 *matte, const sample_t *grid_luma,
    const sample_t *grid_chroma, const sample_t *luma, const sample_t *chroma, u8 *marks,
    float *line)
{
    const int *sizes = plan + 18;
    const int cell_rows = sizes[0], cell_columns = sizes[1];
    for_planes(3, [=](int index) INLINED {
        const int *entry = plan + 6 * index;
        const Plane plane = {entry[0], entry[1], entry[2], entry[3], entry[4], entry[5]};
        const u16 *cells = buffer + index * cell_rows * cell_columns;
        u16 *target = buffer + plane.offset;
        const int step = index == 0 ? 1 : 2;
        const int *size = sizes + (plane.source == FROM_GRID ? 2 : 2 + 2 * step);
        const sample_t *source = index == 0 ? luma : chroma;
        if (plane.source == FROM_GRID)
            source = index == 0 ? grid_luma : grid_chroma;
        const Samples samples = {source, size[0], size[1], step, index / 2, plane.factor};
#if !ON_DEVICE
        if (plane.source >= FROM_GRID)
            fine_plane(plane, samples, matte, sizes, cells, target, marks, line);
#endif
        if (plane.source == FROM_COARSE || (ON_DEVICE && plane.source != FROM_CELLS))
            for_samples(plane.rows, plane.columns, [&](int y, int x) INLINED {
                u16 *sample = target + y * plane.columns + x;
                if (plane.source == FROM_COARSE) {
                    *sample = coarse_cell(cells, cell_rows, cell_columns, plane.factor, y, x);
                    return;
                }
                const int grid_y = y / plane.fine, grid_x = x / plane.fine;
                const u32 near = near_matte(matte, sizes[2], sizes[3], grid_y, grid_x);
                *sample = (u16)(near > CLEAR_ALPHA
                    ? enlarged(cells, cell_rows, cell_columns, 0.5f / (float)plane.fine, y, x)
                    : cell_mean(samples, y, x) << FULL_SHIFT);
            });
    });
}
