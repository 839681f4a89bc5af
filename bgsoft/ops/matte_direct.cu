// The matte of a model that makes one at the frame's size. Counterpart: CpuDirectMatte in
// bgsoft/matte/cpu.py.
// Rounding, as there: opacity half to even, cells as those of the analysis frame.

#include "cells.cuh"

// mask (count) float32 in 0 to 1, alpha (count) uint8. One thread a pixel.
extern "C" __global__ void opacity(const float* __restrict__ mask, u8* __restrict__ alpha, int count)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count)
        alpha[at] = (u8)clamp_int(nearest(mask[at] * 255.0f), 0, 255);
}

// alpha (height, width), reduced (rows, columns), both uint8. One thread a cell.
#define REDUCE_ALPHA(F)                                                                           \
    extern "C" __global__ void reduce_alpha_##F(                                                  \
        const u8* __restrict__ alpha, u8* __restrict__ reduced, int height, int width, int rows,  \
        int columns)                                                                              \
    {                                                                                             \
        int column = blockIdx.x * blockDim.x + threadIdx.x;                                       \
        int row = blockIdx.y * blockDim.y + threadIdx.y;                                          \
        if (column < columns && row < rows)                                                       \
            reduced[row * columns + column] =                                                     \
                (u8)cell<F>(alpha, height, width, 1, 0, row, column);                             \
    }

REDUCE_ALPHA(1)
REDUCE_ALPHA(2)
REDUCE_ALPHA(4)
REDUCE_ALPHA(8)
REDUCE_ALPHA(16)
REDUCE_ALPHA(32)
REDUCE_ALPHA(64)
