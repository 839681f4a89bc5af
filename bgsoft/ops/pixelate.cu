// Colours of mosaic blocks: means of what they show of the background.
//
// Counterpart on the CPU: PixelateBackground in bgsoft/composite/filters.py.
#include "background.cuh"

#define THREADS 256
#define VALUES 7  // sums of luma, Cb and Cr away from people, their number; sums of all three

// Level 0 of a pyramid (see fill.cu) of blocks, and sums of all cells.
//
// plan: rows and columns of the blocks; cells per block each way; rows and columns of the cells;
// cells above and left of the frame in the first blocks; rows and columns of luma and of chroma;
// samples per cell of luma and of chroma; rows and columns of the grid; how many cells lie on a
// grid cell, how many grid cells on a cell; grid cells after one that are near to it.
// sums: (blocks of threads, 3). blockDim.x threads, a power of two, work on each mosaic block;
// THREADS in all.
extern "C" __global__ void pixelate_blocks(
    const int *plan, const sample_t *luma, const sample_t *chroma, const u8 *matte,
    float4 *levels, u64 *sums)
{
    __shared__ u64 partial[VALUES][THREADS];
    const int block_columns = plan[1], edge = plan[2], rows = plan[3], columns = plan[4];
    const int cells_per_grid = plan[15], grid_per_cell = plan[16];
    const int lane = threadIdx.x, lanes = blockDim.x;
    const int thread = threadIdx.y * lanes + lane;
    const int block = blockIdx.x * blockDim.y + threadIdx.y;
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
            const u32 values[3] = {
                cell_mean(luma, plan[7], plan[8], 1, 0, plan[11], y, x),
                cell_mean(chroma, plan[9], plan[10], 2, 0, plan[12], y, x),
                cell_mean(chroma, plan[9], plan[10], 2, 1, plan[12], y, x)};
            const u32 near = near_matte(
                matte, plan[13], plan[14], y * grid_per_cell / cells_per_grid,
                x * grid_per_cell / cells_per_grid, plan[17]);
            const bool clear = near <= CLEAR_ALPHA;
            for (int plane = 0; plane < 3; ++plane) {
                own[plane] += clear ? values[plane] : 0;
                own[4 + plane] += values[plane];
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
    if (exists && lane == 0) {
        const u64 known = partial[3][thread];
        const float count = (float)known;
        levels[block] = known == 0
            ? make_float4(0.0f, 0.0f, 0.0f, 0.0f)
            : make_float4(
                (float)partial[0][thread] / count, (float)partial[1][thread] / count,
                (float)partial[2][thread] / count, 1.0f);
    }
    // From each mosaic block's first thread to the very first.
    for (int step = blockDim.y / 2; step > 0; step /= 2) {
        if (lane == 0 && threadIdx.y < step)
            for (int value = 4; value < VALUES; ++value)
                partial[value][thread] += partial[value][thread + step * lanes];
        __syncthreads();
    }
    if (thread < 3)
        sums[blockIdx.x * 3 + thread] = partial[4 + thread][0];
}
