// Means of square cells of a plane.
#pragma once

#include "samples.cuh"

// Mean of F x F samples, halved by halves: each halving rounds halves up, as cv2.resize does.
// step: samples between neighbours of one channel (1 luma, 2 chroma); pitch: samples a row.
template <int F, typename T>
OP int whole_cell(const T* p, int pitch, int step)
{
    if constexpr (F == 1)
        return *p;
    else {
        const int h = F / 2;
        int sum = 2;
        // Large cells are not unrolled at every level.
#pragma unroll (F < 16 ? 4 : 1)
        for (int quarter = 0; quarter < 4; quarter++)
            sum += whole_cell<h>(p + (quarter >> 1) * h * pitch + (quarter & 1) * h * step, pitch, step);
        return sum >> 2;
    }
}

// The mean of rows x columns samples, what an edge leaves of a cell: rounded once, half to even, except
// that 2 x 2 samples round halves up, as cv2.resize does.
template <typename T>
OUTLINED int cut_cell(const T* p, int pitch, int step, int rows, int columns)
{
    long long sum = 0;
    for (int y = 0; y < rows; y++)
        for (int x = 0; x < columns; x++)
            sum += p[y * pitch + x * step];
    if (rows == 2 && columns == 2)
        return (int)(sum + 2) >> 2;
    return nearest((float)sum * (1.0f / (float)(rows * columns)));
}

// A cell of a plane, which the right or bottom edge may cut.
template <int F, typename T>
OP int cell(
    const T* plane, int height, int width, int step, int channel, int row, int column)
{
    int pitch = width * step;
    const T* p = plane + row * F * pitch + column * F * step + channel;
    int rows = min(F, height - row * F), columns = min(F, width - column * F);
    return rows == F && columns == F ? whole_cell<F>(p, pitch, step)
                                     : cut_cell(p, pitch, step, rows, columns);
}
