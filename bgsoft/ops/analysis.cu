// The analysis frame and what scene detection reads of it.
// Counterparts: bgsoft/analysis/cpu.py (reduce_*), bgsoft/analysis/scenes.py (measure).

#include "cells.cuh"
#include "resample.cuh"

// One thread a grid cell: its luma and, for F > 1, its chroma.
// luma (height, width), chroma (ceil(height / 2), ceil(width / 2), 2); out: (rows, columns) and
// (rows, columns, 2).
template <int F>
OP void reduce(
    const sample_t* __restrict__ luma, const sample_t* __restrict__ chroma,
    sample_t* __restrict__ out_luma, sample_t* __restrict__ out_chroma,
    int height, int width, int rows, int columns)
{
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= columns || row >= rows)
        return;
    int at = row * columns + column;
    out_luma[at] = (sample_t)cell<F>(luma, height, width, 1, 0, row, column);
    int chroma_height = (height + 1) / 2, chroma_width = (width + 1) / 2;
    if (F == 1) {
        // The grid is the frame: chroma keeps its own size.
        if (row < chroma_height && column < chroma_width) {
            int from = 2 * (row * chroma_width + column);
            out_chroma[from] = chroma[from];
            out_chroma[from + 1] = chroma[from + 1];
        }
        return;
    }
    const int half = F > 1 ? F / 2 : 1;
    for (int channel = 0; channel < 2; channel++)
        out_chroma[2 * at + channel] =
            (sample_t)cell<half>(chroma, chroma_height, chroma_width, 2, channel, row, column);
}

#define REDUCE_KERNEL(F)                                                                          \
    extern "C" __global__ void reduce_##F(                                                        \
        const sample_t* luma, const sample_t* chroma, sample_t* out_luma, sample_t* out_chroma,   \
        int height, int width, int rows, int columns)                                             \
    {                                                                                             \
        reduce<F>(luma, chroma, out_luma, out_chroma, height, width, rows, columns);              \
    }

REDUCE_KERNEL(1)
REDUCE_KERNEL(2)
REDUCE_KERNEL(4)
REDUCE_KERNEL(8)
REDUCE_KERNEL(16)
REDUCE_KERNEL(32)
REDUCE_KERNEL(64)

// Thumbnail of the grid's luma, and its summed squared difference from a kept picture.
//
// One warp a thumbnail sample (blocks of 32 x 8). thumb: (thumb_rows, thumb_columns) float32,
// sample / peak, the sample rounded to a whole one first as on the CPU. Tables and mode: see
// resample.cuh. kept: (rows, columns), compared where `compare` is not 0; error is added to.
extern "C" __global__ void measure(
    const sample_t* __restrict__ luma, const sample_t* __restrict__ kept,
    const float* __restrict__ x_table, int x_stride, const float* __restrict__ y_table,
    int y_stride, int mode, float scale, float* __restrict__ thumb,
    unsigned long long* __restrict__ error, int thumb_rows, int thumb_columns, int rows,
    int columns, int compare)
{
    int lane = threadIdx.x;
    int index = blockIdx.x * blockDim.y + threadIdx.y;
    bool inside = index < thumb_rows * thumb_columns;
    const float* x_row = x_table + (inside ? index % thumb_columns : 0) * x_stride;
    const float* y_row = y_table + (inside ? index / thumb_columns : 0) * y_stride;
    float sum = 0.0f;
    if (mode != RESAMPLE_LINEAR) {
        int x0 = (int)x_row[0], nx = (int)x_row[1], y0 = (int)y_row[0], ny = (int)y_row[1];
        for (int x = lane; x < nx; x += 32) {
            // Whole cells are averaged by one division at the end: sums of samples stay exact.
            float part = 0.0f;
            for (int y = 0; y < ny; y++) {
                float value = (float)luma[(y0 + y) * columns + x0 + x];
                part += mode == RESAMPLE_CELLS ? value : value * y_row[2 + y];
            }
            sum += mode == RESAMPLE_CELLS ? part : part * x_row[2 + x];
        }
        for (int step = 16; step > 0; step /= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (mode == RESAMPLE_CELLS && nx == 2 && ny == 2)
            sum = (float)(((int)sum + 2) >> 2);
        else if (mode == RESAMPLE_CELLS)
            sum *= 1.0f / (float)(nx * ny);
    } else {
        sum = (float)resample(luma, columns, 1, 0, mode, x_row, y_row);
    }
    if (inside && lane == 0)
        thumb[index] = rintf(sum) * scale;
    if (compare == 0)
        return;
    unsigned long long squares = 0;
    int threads = gridDim.x * blockDim.x * blockDim.y;
    for (int at = index * 32 + lane; at < rows * columns; at += threads) {
        long long difference = (int)luma[at] - (int)kept[at];
        squares += (unsigned long long)(difference * difference);
    }
    for (int step = 16; step > 0; step /= 2)
        squares += __shfl_xor_sync(0xffffffffu, squares, step);
    if (lane == 0)
        atomicAdd(error, squares);
}
