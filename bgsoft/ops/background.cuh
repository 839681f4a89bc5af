// Cells of backgrounds: averaging into them, enlarging them, and people near them.
//
// Counterparts on the CPU: bgsoft/analysis/cpu.py (AreaReducer, halve), cv2.resize with
// INTER_LINEAR, cv2.dilate. Cells are 16-bit full scale: the frame's sample << FULL_SHIFT.
#pragma once

#include "cells.cuh"

#if SAMPLE_BITS == 8
#define FULL_SHIFT 8
#else
#define FULL_SHIFT 0
#endif

// Largest matte sample up to which a grid cell is background in full (bgsoft/composite/plan.py).
#define CLEAR_ALPHA 8

// Mean of 1, 2 or 4 samples with OpenCV's rounding: halves of four go up, halves of two to even.
OP u32 area_mean(u32 sum, int count)
{
    if (count == 4)
        return (sum + 2) >> 2;
    if (count == 2) {
        const u32 half = sum >> 1;
        return half + (half & sum & 1);
    }
    return sum;
}

// One cell of AreaReducer; `factor` is a power of two up to 32.
OP u32 cell_mean(
    const sample_t *plane, int rows, int columns, int step, int channel, int factor, int y, int x)
{
    switch (factor) {
    case 1: return cell<1>(plane, rows, columns, step, channel, y, x);
    case 2: return cell<2>(plane, rows, columns, step, channel, y, x);
    case 4: return cell<4>(plane, rows, columns, step, channel, y, x);
    case 8: return cell<8>(plane, rows, columns, step, channel, y, x);
    case 16: return cell<16>(plane, rows, columns, step, channel, y, x);
    default: return cell<32>(plane, rows, columns, step, channel, y, x);
    }
}

// Between which two of `count` source samples a target sample lies, as cv2.resize places them.
struct Between {
    int first, second;
    float part;  // of the second
};

OP Between between(int target, float scale, int count)
{
    const float position = ((float)target + 0.5f) * scale - 0.5f;
    const float whole = floorf(position);
    Between result;
    result.first = clamp_int((int)whole, 0, count - 1);
    result.second = clamp_int((int)whole + 1, 0, count - 1);
    result.part = position - whole;
    return result;
}

// Linear interpolation.
OP float along(float first, float second, float part)
{
    return first * (1.0f - part) + second * part;
}

// A sample of cells enlarged bilinearly; `scale` is cells per sample. Rounds halves to even.
OP u32 enlarged(
    const u16 *cells, int rows, int columns, float scale, int y, int x)
{
    const Between down = between(y, scale, rows), across = between(x, scale, columns);
    const u16 *upper = cells + down.first * columns, *lower = cells + down.second * columns;
    const float first = along(upper[across.first], upper[across.second], across.part);
    const float second = along(lower[across.first], lower[across.second], across.part);
    return (u32)nearest(along(first, second, down.part));
}

// Largest matte sample from one row and column before a grid cell to `reach` ones after it.
OP u32 near_matte(
    const u8 *matte, int rows, int columns, int y, int x, int reach)
{
    u32 largest = 0;
    for (int dy = -1; dy <= reach; ++dy) {
        const u8 *row = matte + clamp_int(y + dy, 0, rows - 1) * columns;
        for (int dx = -1; dx <= reach; ++dx)
            largest = max(largest, (u32)row[clamp_int(x + dx, 0, columns - 1)]);
    }
    return largest;
}

// Index of a sample beyond the edges, mirrored with the edge sample repeated (BORDER_REFLECT).
OP int reflected(int index, int count)
{
    if (index >= 0 && index < count)
        return index;
    const int period = 2 * count;
    index %= period;
    if (index < 0)
        index += period;
    return index < count ? index : period - 1 - index;
}

// 16-bit full scale from a sum or mean, halves up.
OP u16 to_cell(float value)
{
    return (u16)fminf(fmaxf(value + 0.5f, 0.0f), 65535.0f);
}
