// Means of the matte over cells of the analysis frame. Counterpart: AreaReducer in
// bgsoft/analysis/cpu.py, which rounds likewise.
#include "cells.cuh"

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
