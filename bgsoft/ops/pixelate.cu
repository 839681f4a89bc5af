// Colours of mosaic blocks: means of what they show of the background.
//
// Launched by bgsoft/composite/filters.py.
#include "background.cuh"
#include "drivers.cuh"

#define THREADS 256
#define VALUES 7  // sums of luma, Cb and Cr away from people, their number; sums of all three

OP float4 mean_of(u64 luma, u64 cb, u64 cr, u64 count)
{
    if (count == 0)
        return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    const float known = (float)count;
    return make_float4((float)luma / known, (float)cb / known, (float)cr / known, 1.0f);
}

// Level 0 of a pyramid (see fill.cu) of blocks, and sums of all cells.
//
// plan: rows and columns of the blocks; cells per block each way; rows and columns of the cells;
// cells above and left of the frame in the first blocks; rows and columns of luma and of chroma;
// samples per cell of luma and of chroma; rows and columns of the grid; how many cells lie on a
// grid cell, how many grid cells on a cell.
// sums: (blocks of threads, 3). blockDim.x threads, a power of two, work on each mosaic block;
// THREADS in all. The host has `column_sums` instead: room for VALUES rows of cells, then for one of
// the grid and three of its cells, and for two of cells.
KERNEL(pixelate_blocks)(
    const int *plan, const sample_t *luma, const sample_t *chroma, const u8 *matte,
    float4 *levels, u64 *sums, u32 *column_sums)
{
    const Samples sources[] = {
        {luma, plan[7], plan[8], 1, 0, plan[11]}, {chroma, plan[9], plan[10], 2, 0, plan[12]},
        {chroma, plan[9], plan[10], 2, 1, plan[12]}};
#if ON_DEVICE
    __shared__ u64 partial[VALUES][THREADS];
    const int block_columns = plan[1], edge = plan[2], rows = plan[3], columns = plan[4];
    const int cells_per_grid = plan[15], grid_per_cell = plan[16];
    const int lane = threadIdx.x, lanes = blockDim.x;
    const int thread = threadIdx.y * lanes + lane;
    const int block = blockIdx.y * blockDim.y + threadIdx.y;
    const bool exists = block < plan[0] * block_columns;
    u64 own[VALUES] = {};
    if (exists) {
        const int first_row = (block / block_columns) * edge - plan[5];
        const int first_column = (block % block_columns) * edge - plan[6];
        const int top = max(first_row, 0), bottom = min(first_row + edge, rows);
        const int left = max(first_column, 0), right = min(first_column + edge, columns);
        const int width = right - left;
        for (int cell = lane; cell < (bottom - top) * width; cell += lanes) {
            const int y = top + cell / width, x = left + cell % width;
            const u32 near = near_matte(
                matte, plan[13], plan[14], y * grid_per_cell / cells_per_grid,
                x * grid_per_cell / cells_per_grid, grid_per_cell);
            const bool clear = near <= CLEAR_ALPHA;
            for (int plane = 0; plane < 3; ++plane) {
                const u32 value = cell_mean(sources[plane], y, x);
                own[plane] += clear ? value : 0;
                own[4 + plane] += value;
            }
            own[3] += clear;
        }
    }
    for (int value = 0; value < VALUES; ++value)
        partial[value][thread] = own[value];
    for (int step = lanes / 2; step > 0; step /= 2) {
        __syncthreads();
        if (lane < step)
            for (int value = 0; value < VALUES; ++value)
                partial[value][thread] += partial[value][thread + step];
    }
    __syncthreads();
    if (exists && lane == 0)
        levels[block] = mean_of(
            partial[0][thread], partial[1][thread], partial[2][thread], partial[3][thread]);
    // From each mosaic block's first thread to the very first.
    for (int step = blockDim.y / 2; step > 0; step /= 2) {
        if (lane == 0 && threadIdx.y < step)
            for (int value = 4; value < VALUES; ++value)
                partial[value][thread] += partial[value][thread + step * lanes];
        __syncthreads();
    }
    if (thread < 3)
        sums[blockIdx.y * 3 + thread] = partial[4 + thread][0];
#else
    const int edge = plan[2], rows = plan[3], columns = plan[4];
    const int grid_columns = plan[14], cells_per_grid = plan[15], grid_per_cell = plan[16];
    const bool same = cells_per_grid == 1 && grid_per_cell == 1;
    u8 *marks = (u8 *)(column_sums + VALUES * columns), *expanded = marks + grid_columns + 3;
    u16 *values = (u16 *)(column_sums + (VALUES + 1) * columns + grid_columns + 3);
    const u8 *near = same ? marks : expanded;
    sums[0] = sums[1] = sums[2] = 0;
    int marked = -1;
    for (int block_row = 0; block_row < plan[0]; ++block_row) {
        const int top = block_row * edge - plan[5];
        for (int index = 0; index < VALUES * columns; ++index)
            column_sums[index] = 0;
        for (int y = max(top, 0); y < min(top + edge, rows); ++y) {
            const int grid_y = y * grid_per_cell / cells_per_grid;
            if (grid_y != marked) {
                near_row(matte, plan[13], grid_columns, grid_y, grid_per_cell, marks);
                for (int x = 0; !same && x < columns; ++x)
                    expanded[x] = marks[x * grid_per_cell / cells_per_grid];
                marked = grid_y;
            }
            u32 *counts = column_sums + 3 * columns;
            for (int x = 0; x < columns; ++x)
                counts[x] += near[x] <= CLEAR_ALPHA;
            UNROLLED  // so that steps are constants
            for (int plane = 0; plane < 3; ++plane) {
                mean_row(sources[plane], y, columns, 0, values);
                u32 *own = column_sums + plane * columns, *all = own + 4 * columns;
                for (int x = 0; x < columns; ++x) {
                    own[x] += near[x] <= CLEAR_ALPHA ? values[x] : 0;
                    all[x] += values[x];
                }
            }
        }
        for (int block = 0; block < plan[1]; ++block) {
            const int left = block * edge - plan[6];
            u64 own[4] = {};
            for (int x = max(left, 0); x < min(left + edge, columns); ++x)
                for (int value = 0; value < 4; ++value)
                    own[value] += column_sums[value * columns + x];
            levels[block_row * plan[1] + block] = mean_of(own[0], own[1], own[2], own[3]);
        }
        for (int plane = 0; plane < 3; ++plane)
            for (int x = 0; x < columns; ++x)
                sums[plane] += column_sums[(4 + plane) * columns + x];
    }
#endif
}
