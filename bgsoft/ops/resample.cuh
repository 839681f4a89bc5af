// Resizing as OpenCV's resize does it, one output sample at a time, from per-axis tables.
//
// Tables are float32, one row of `stride` values an output row or column, made by
// bgsoft/ops/resize.py. LINEAR: two source indices, two weights (8-bit samples: weights
// in 1/2048 as whole numbers). LERP: the same with weights that are not rounded. AREA and CELLS:
// first source index, count, then a weight for each.
// Rounding: LINEAR of 8 bits is the fixed-point arithmetic of cv2.resize (11-bit weights, 4 bits
// dropped between the passes); everything else is float32, rounded half to even, except that
// CELLS of 2x2 samples of a single channel round halves up. LERP is cv2.warpAffine's arithmetic.
#pragma once

#include "samples.cuh"

enum ResampleMode {
    RESAMPLE_LINEAR = 0,
    RESAMPLE_AREA = 1,
    RESAMPLE_CELLS = 2,
    RESAMPLE_LERP = 3,
};

// Between which two of `count` source samples a target sample lies, as cv2.resize places them.
struct Between {
    int first, second;
    float part;  // of the second

    OP Between(int target, float scale, int count)
    {
        const float position = ((float)target + 0.5f) * scale - 0.5f, whole = floorf(position);
        first = clamp_int((int)whole, 0, count - 1);
        second = clamp_int((int)whole + 1, 0, count - 1);
        part = position - whole;
    }
};

// Linear interpolation.
OP float along(float first, float second, float part)
{
    return first * (1.0f - part) + second * part;
}

// Bilinear blend of 8-bit samples with weights in 1/2048.
OP int blend_u8(
    int p00, int p01, int p10, int p11, int wx0, int wx1, int wy0, int wy1)
{
    int top = p00 * wx0 + p01 * wx1;
    int bottom = p10 * wx0 + p11 * wx1;
    return (((wy0 * (top >> 4)) >> 16) + ((wy1 * (bottom >> 4)) >> 16) + 2) >> 2;
}

// One pixel of a plane of (rows, columns) enlarged by 1 << shift, cell centres aligned: positions are
// in 1/2048 of a cell.
OP int enlarged_byte(
    const u8* __restrict__ plane, int rows, int columns, int y, int x, int shift)
{
    int one = 2048 >> (shift + 1);
    int position_y = (2 * y + 1) * one - 1024, position_x = (2 * x + 1) * one - 1024;
    int y0 = position_y >> 11, wy = position_y & 2047;
    int x0 = position_x >> 11, wx = position_x & 2047;
    const u8* above = plane + max(y0, 0) * columns;
    const u8* below = plane + min(y0 + 1, rows - 1) * columns;
    int a = max(x0, 0), b = min(x0 + 1, columns - 1);
    return blend_u8(above[a], above[b], below[a], below[b], 2048 - wx, wx, 2048 - wy, wy);
}

// One sample of a plane of interleaved channels.
//
// source: (rows, columns, channels), pitch in samples a row; x_row, y_row: the output's table rows.
template <typename T>
OP int resample(
    const T* __restrict__ source, int pitch, int channels, int channel, int mode,
    const float* __restrict__ x_row, const float* __restrict__ y_row)
{
    const T* base = source + channel;
    int x0 = (int)x_row[0], x1 = (int)x_row[1];
    int y0 = (int)y_row[0], y1 = (int)y_row[1];
    if (mode == RESAMPLE_LINEAR || mode == RESAMPLE_LERP) {
        int p00 = base[y0 * pitch + x0 * channels], p01 = base[y0 * pitch + x1 * channels];
        int p10 = base[y1 * pitch + x0 * channels], p11 = base[y1 * pitch + x1 * channels];
        if (mode == RESAMPLE_LERP) {
            float left = (float)p00 + y_row[3] * (float)(p10 - p00);
            float right = (float)p01 + y_row[3] * (float)(p11 - p01);
            return nearest(left + x_row[3] * (right - left));
        }
        if (sizeof(T) == 1) {
            return blend_u8(
                p00, p01, p10, p11, (int)x_row[2], (int)x_row[3], (int)y_row[2], (int)y_row[3]);
        }
        float top = (float)p00 * x_row[2] + (float)p01 * x_row[3];
        float bottom = (float)p10 * x_row[2] + (float)p11 * x_row[3];
        return nearest(top * y_row[2] + bottom * y_row[3]);
    }
    if (mode == RESAMPLE_CELLS) {
        int sum = 0;
        for (int y = y0; y < y0 + y1; y++)
            for (int x = x0; x < x0 + x1; x++)
                sum += base[y * pitch + x * channels];
        if (channels == 1 && x1 == 2 && y1 == 2)
            return (sum + 2) >> 2;
        return nearest((float)sum * (1.0f / (float)(x1 * y1)));
    }
    float total = 0.0f;
    for (int j = 0; j < y1; j++) {
        const T* row = base + (y0 + j) * pitch + x0 * channels;
        float sum = 0.0f;
        for (int i = 0; i < x1; i++)
            sum += (float)row[i * channels] * x_row[2 + i];
        total += sum * y_row[2 + j];
    }
    return min(nearest(total), (int)(T)~0);
}

// One sample of a plane of float32; LINEAR's weights are not rounded.
OP float resample_float(
    const float* __restrict__ source, int pitch, int mode, const float* __restrict__ x_row,
    const float* __restrict__ y_row)
{
    int x0 = (int)x_row[0], x1 = (int)x_row[1];
    int y0 = (int)y_row[0], y1 = (int)y_row[1];
    if (mode == RESAMPLE_LINEAR) {
        const float *top = source + y0 * pitch, *bottom = source + y1 * pitch;
        float upper = top[x0] * x_row[2] + top[x1] * x_row[3];
        float lower = bottom[x0] * x_row[2] + bottom[x1] * x_row[3];
        return upper * y_row[2] + lower * y_row[3];
    }
    float total = 0.0f;
    for (int i = 0; i < x1; i++) {
        const float* column = source + y0 * pitch + x0 + i;
        float sum = 0.0f;
        for (int j = 0; j < y1; j++)
            sum += column[j * pitch] * y_row[2 + j];
        total += sum * x_row[2 + i];
    }
    return total;
}

// One sample of a plane at another size, (y, x) of it. The host has it at that size.
#define RESIZED(NAME, T, RESULT, RESAMPLED)                                                       \
    OP RESULT NAME(                                                                               \
        const T* source, int pitch, const float* x_table, int x_stride, const float* y_table,     \
        int y_stride, int mode, int y, int x)                                                     \
    {                                                                                             \
        if (!ON_DEVICE)                                                                           \
            return source[(size_t)y * pitch + x];                                                 \
        const float *x_row = x_table + x * x_stride, *y_row = y_table + y * y_stride;             \
        return RESAMPLED;                                                                         \
    }
RESIZED(resized_float, float, float, resample_float(source, pitch, mode, x_row, y_row))
RESIZED(resized_byte, u8, int, resample(source, pitch, 1, 0, mode, x_row, y_row))
