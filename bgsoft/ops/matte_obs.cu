// The OBS matte's steps at frame size. Counterpart: steps 5 to 7 of bgsoft/matte/obs.py.
// Planes are (rows, columns) uint8 background masks, 255 = background.

#include "cells.cuh"
#include "matte.cuh"

// The small mask enlarged by tables (see resample.cuh); above 128 becomes 255 and the rest 0 where
// `binarise`.
extern "C" __global__ void obs_enlarge(
    const u8* __restrict__ mask, int pitch, const float* __restrict__ x_table, int x_stride,
    const float* __restrict__ y_table, int y_stride, int mode, u8* __restrict__ out, int binarise,
    int rows, int columns)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= columns || y >= rows)
        return;
    int value = resample(mask, pitch, 1, 0, mode, x_table + x * x_stride, y_table + y * y_stride);
    if (binarise)
        value = value > 128 ? 255 : 0;
    out[y * columns + x] = (u8)value;
}

// Extreme over `reach` samples each way along one axis; samples outside don't count.
extern "C" __global__ void obs_extreme(
    const u8* __restrict__ plane, u8* __restrict__ out, int reach, int largest, int along_rows,
    int rows, int columns)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= columns || y >= rows)
        return;
    int at = along_rows ? x : y, size = along_rows ? columns : rows;
    int stride = along_rows ? 1 : columns;
    const u8* line = plane + (along_rows ? y * columns : x);
    int stop = min(at + reach, size - 1), end = largest ? 255 : 0;
    int best = line[at * stride];
    for (int i = max(at - reach, 0); i <= stop && best != end; i++) {
        int value = line[i * stride];
        best = largest ? max(best, value) : min(best, value);
    }
    out[y * columns + x] = (u8)best;
}

// Sums over 2 * radius + 1 samples along a row, mirrored at the edges (BORDER_REFLECT_101).
// One thread 32 samples.
extern "C" __global__ void obs_row_sums(
    const u8* __restrict__ plane, int* __restrict__ sums, int radius, int rows, int columns)
{
    int x = (blockIdx.x * blockDim.x + threadIdx.x) * 32;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= columns || y >= rows)
        return;
    const u8* line = plane + y * columns;
    int sum = 0;
    for (int i = x - radius; i <= x + radius; i++)
        sum += line[reflect(i, columns)];
    for (int end = min(x + 32, columns); x < end; x++) {
        sums[y * columns + x] = sum;
        sum += line[reflect(x + radius + 1, columns)] - line[reflect(x - radius, columns)];
    }
}

// Means of (2 * radius + 1)^2 samples from the row sums, to nearest. One thread 32 rows of a column.
extern "C" __global__ void obs_column_means(
    const int* __restrict__ sums, u8* __restrict__ out, int radius, int rows, int columns)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = (blockIdx.y * blockDim.y + threadIdx.y) * 32;
    if (x >= columns || y >= rows)
        return;
    int area = (2 * radius + 1) * (2 * radius + 1), sum = area / 2;
    for (int i = y - radius; i <= y + radius; i++)
        sum += sums[reflect(i, rows) * columns + x];
    for (int end = min(y + 32, rows); y < end; y++) {
        out[y * columns + x] = (u8)(sum / area);
        sum += sums[reflect(y + radius + 1, rows) * columns + x];
        sum -= sums[reflect(y - radius, rows) * columns + x];
    }
}

// Background to alpha, and alpha's means on the grid: one thread a grid cell of F x F pixels.
template <int F>
OP void finish(
    const u8* __restrict__ background, u8* alpha, u8* __restrict__ reduced, int height, int width,
    int rows, int columns)
{
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= columns || row >= rows)
        return;
    for (int y = row * F; y < min(row * F + F, height); y++)
        for (int x = column * F; x < min(column * F + F, width); x++)
            alpha[y * width + x] = (u8)(255 - background[y * width + x]);
    reduced[row * columns + column] = (u8)cell<F>(alpha, height, width, 1, 0, row, column);
}

#define FINISH_KERNEL(F)                                                                          \
    extern "C" __global__ void obs_finish_##F(                                                    \
        const u8* background, u8* alpha, u8* reduced, int height, int width, int rows,            \
        int columns)                                                                              \
    {                                                                                             \
        finish<F>(background, alpha, reduced, height, width, rows, columns);                      \
    }

FINISH_KERNEL(1)
FINISH_KERNEL(2)
FINISH_KERNEL(4)
FINISH_KERNEL(8)
FINISH_KERNEL(16)
FINISH_KERNEL(32)
FINISH_KERNEL(64)
