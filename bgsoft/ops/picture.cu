// The picture without its people, at the resolution that a filter asks for.
//
// Launched by bgsoft/composite/picture.py.
#include "background.cuh"
#include "drivers.cuh"

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

// Weight of sample `index` of the `count` ones that repeated halving averages into one, where
// whole ones are `size`: a power of two, of which the picture's edge cuts some off.
OP float halving_weight(int index, int size, int count)
{
    float weight = 1.0f;
    while (size > 1) {
        const int half = size / 2;
        if (count > half) {
            weight *= 0.5f;
            if (index >= half) {
                index -= half;
                count -= half;
            } else {
                count = half;
            }
        }
        size = half;
    }
    return weight;
}

// The mean that repeated halving gives, rounded once.
OP u16 coarse_cell(
    const u16 *cells, int rows, int columns, int factor, int y, int x)
{
    const int top = y * factor, left = x * factor;
    const int height = min(factor, rows - top), width = min(factor, columns - left);
    if (height == factor && width == factor) {
        u32 sum = 0;
        for (int row = top; row < top + factor; ++row)
            for (int column = left; column < left + factor; ++column)
                sum += cells[row * columns + column];
        return to_cell((float)sum / (float)(factor * factor));
    }
    float mean = 0.0f;
    for (int row = 0; row < height; ++row) {
        float along = 0.0f;
        for (int column = 0; column < width; ++column)
            along += (float)cells[(top + row) * columns + left + column]
                * halving_weight(column, factor, width);
        mean += along * halving_weight(row, factor, height);
    }
    return to_cell(mean);
}

#if !ON_DEVICE
#define RUN 32

// A plane of the grid's or of the frame's samples, people replaced by filled cells.
//
// marks: room for a row of the grid and three cells, then for one of the plane. line: for a row of
// filled cells, two cells and a run.
static void fine_plane(
    const Plane &plane, const Samples &source, const u8 *matte, const int *sizes, const u16 *cells,
    u16 *target, u8 *marks, float *line)
{
    int log_factor = 1;
    while (1 << (log_factor - 1) < plane.fine)
        ++log_factor;
    u8 *expanded = marks + sizes[3] + 3, *near = plane.fine > 1 ? expanded : marks;
    for (int y = 0; y < plane.rows; ++y, target += plane.columns) {
        if (y % plane.fine == 0) {
            near_row(matte, sizes[2], sizes[3], y / plane.fine, 2, marks);
            for (int x = 0; near == expanded && x < plane.columns; ++x)
                expanded[x] = marks[x >> (log_factor - 1)];
        }
        mean_row(source, y, plane.columns, FULL_SHIFT, target);
        u8 nearest_matte = 0;
        for (int x = 0; x < plane.columns; ++x)
            nearest_matte = max(nearest_matte, near[x]);
        if (nearest_matte <= CLEAR_ALPHA)
            continue;
        interpolate(cells, sizes[0], sizes[1], log_factor, y, line);
        for_runs(1, plane.columns, 1, RUN, [&](int, int x, int count) INLINED {
            u8 largest = 0;
            for (int cell = 0; cell < RUN; ++cell)
                largest = max(largest, (u8)(cell < count ? near[x + cell] : 0));
            if (largest <= CLEAR_ALPHA)
                return;
            u16 filled[RUN];
            enlarge<RUN>(cells, sizes[0], sizes[1], log_factor, y, x, line, filled);
            for (int cell = 0; cell < RUN; ++cell)
                if (cell < count)
                    target[x + cell] = near[x + cell] > CLEAR_ALPHA ? filled[cell] : target[x + cell];
        });
    }
}
#endif

// Planes of the picture, blockIdx.z = 0 (luma), 1 (Cb), 2 (Cr).
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
#if ON_DEVICE
    const int index = blockIdx.z;
#else
    for (int index = 0; index < 3; ++index)
#endif
    {
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
                const u32 near = near_matte(matte, sizes[2], sizes[3], grid_y, grid_x, 2);
                *sample = (u16)(near > CLEAR_ALPHA
                    ? enlarged(cells, cell_rows, cell_columns, 0.5f / (float)plane.fine, y, x)
                    : cell_mean(samples, y, x) << FULL_SHIFT);
            });
    }
}
