// What the kernels of the soft matte share.
#pragma once

#include "resample.cuh"

// The matte's state that lives on the device, int32 each; names as in bgsoft/matte/cuda_mask.py.
enum MatteFlag {
    FLAG_FRESH = 0,             // 1: no earlier frame counts
    FLAG_PARITY = 1,            // which of the two temporal states is the last
    FLAG_PERSON_EXCEEDS = 2,    // 1: alpha has to be cut by the person's limit
    FLAG_BACKGROUND_EXCEEDS = 3,
    FLAG_LEFT = 4,              // what is not flat in the half-grid alpha, inclusive
    FLAG_TOP = 5,
    FLAG_RIGHT = 6,
    FLAG_BOTTOM = 7,
    FLAG_SQUARES = 8,           // two int32: unsigned 64-bit sum of squared luma differences
};

// Cells around a component that goes in which nothing of it may survive (IslandFilter: three
// dilations by 3 x 3).
#define LOST_RIM 3

// Index mirrored at the ends, which are not repeated (BORDER_REFLECT_101).
OP int reflect(int index, int size)
{
    if (size == 1)
        return 0;
    while (index < 0 || index >= size)
        index = index < 0 ? -index : 2 * size - 2 - index;
    return index;
}

// Solves the symmetric 3 x 3 system [d0 c01 c02; c01 d1 c12; c02 c12 d2] f = y: L*D*L^T
// factorisation, forward and back substitution.
OP void solve(
    float d0, float c01, float c02, float d1, float c12, float d2, float* y)
{
    float l10 = c01 / d0, l20 = c02 / d0;
    d1 -= l10 * c01;
    c12 -= l10 * c02;
    float l21 = c12 / d1;
    d2 -= l20 * c02;
    d2 -= l21 * c12;
    y[1] -= l10 * y[0];
    y[2] -= l20 * y[0];
    y[2] -= l21 * y[1];
    y[2] /= d2;
    y[1] = y[1] / d1 - l21 * y[2];
    y[0] = y[0] / d0 - l10 * y[1] - l20 * y[2];
}

OP int to_byte(float value)
{
    return clamp_int(nearest(value), 0, 255);
}

// Mean of 2 x 2 samples or what the edges leave of them; see halve() in bgsoft/analysis/cpu.py.
// values: top left, top right, bottom left, bottom right; those outside are not looked at.
OP int halve(const int* values, bool has_right, bool has_bottom)
{
    if (has_right && has_bottom)
        return (values[0] + values[1] + values[2] + values[3] + 2) >> 2;
    if (!has_right && !has_bottom)
        return values[0];
    return nearest((float)(values[0] + values[has_right ? 1 : 2]) * 0.5f);
}
