// The picture without its people, at the resolution that a filter asks for.
//
// Counterpart on the CPU: bgsoft/composite/fill.py (FilledPicture).
#include "background.cuh"

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

// The CPU rounds after each halving; this mean is rounded once.
OP u16 coarse_cell(
    const u16 *cells, int rows, int columns, int factor, int y, int x)
{
    const int top = y * factor, left = x * factor;
    const int height = min(factor, rows - top), width = min(factor, columns - left);
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

// Planes of the picture, blockIdx.z = 0 (luma), 1 (Cb), 2 (Cr).
//
// plan: 3 x Plane; then rows and columns of the filled cells, of the grid, of the frame's luma, and
// of its chroma. buffer: filled cells (3, rows, columns) first, planes at their offsets.
extern "C" __global__ void picture_planes(
    const int *plan, u16 *buffer, const u8 *matte, const sample_t *grid_luma,
    const sample_t *grid_chroma, const sample_t *luma, const sample_t *chroma)
{
    const int index = blockIdx.z;
    const int *entry = plan + 6 * index, *sizes = plan + 18;
    const Plane plane = {entry[0], entry[1], entry[2], entry[3], entry[4], entry[5]};
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (plane.source == FROM_CELLS || y >= plane.rows || x >= plane.columns)
        return;
    const int cell_rows = sizes[0], cell_columns = sizes[1];
    const u16 *cells = buffer + index * cell_rows * cell_columns;
    u16 *target = buffer + plane.offset + y * plane.columns + x;
    if (plane.source == FROM_COARSE) {
        *target = coarse_cell(cells, cell_rows, cell_columns, plane.factor, y, x);
        return;
    }
    const int grid_rows = sizes[2], grid_columns = sizes[3];
    const int grid_y = y / plane.fine, grid_x = x / plane.fine;
    if (near_matte(matte, grid_rows, grid_columns, grid_y, grid_x, 2) > CLEAR_ALPHA) {
        const float scale = 0.5f / (float)plane.fine;
        *target = (u16)enlarged(cells, cell_rows, cell_columns, scale, y, x);
        return;
    }
    u32 sample;
    if (plane.source == FROM_GRID) {
        const int at = y * plane.columns + x;
        sample = index == 0 ? grid_luma[at] : grid_chroma[2 * at + index - 1];
    } else if (index == 0) {
        sample = cell_mean(luma, sizes[4], sizes[5], 1, 0, plane.factor, y, x);
    } else {
        sample = cell_mean(chroma, sizes[6], sizes[7], 2, index - 1, plane.factor, y, x);
    }
    *target = (u16)(sample << FULL_SHIFT);
}
