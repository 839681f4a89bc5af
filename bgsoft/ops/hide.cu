// Makes a place of a frame unrecognisable: means of coarse cells, and what is drawn from them.
//
// Counterpart on the CPU: CpuHider in bgsoft/hide/cpu.py. One plane at a time: (height, width,
// channels), step frame pixels per sample. left, top, edge: the cells, in samples of the plane.
// With by_alpha a sample counts by the matte above its first pixel: alpha is (…, alpha_width), for
// the whole frame.
#include "samples.cuh"

#define SMOOTH 0
#define MOSAIC 1
#define SOLID 2

// Means of the cells as float32, (rows, columns, channels + 1): of each channel, times the share
// that counts; at last that share. The frame's edge is repeated outside.
//
// One warp a cell and channel: blocks of 32 x 8, blockIdx.y the channel, the share's included.
extern "C" __global__ void hide_means(
    const sample_t* __restrict__ plane, const u8* __restrict__ alpha, float* __restrict__ means,
    int height, int width, int channels, int step, int alpha_width, int by_alpha, int left, int top,
    int edge, int rows, int columns)
{
    int cell = blockIdx.x * blockDim.y + threadIdx.y;
    int channel = blockIdx.y;
    bool exists = cell < rows * columns;
    int row = exists ? cell / columns : 0, column = exists ? cell % columns : 0;
    unsigned long long sum = 0;
    for (int i = threadIdx.x; i < edge * edge; i += 32) {
        int y = clamp_int(top + row * edge + i / edge, 0, height - 1);
        int x = clamp_int(left + column * edge + i % edge, 0, width - 1);
        unsigned int share = by_alpha ? alpha[(long long)y * step * alpha_width + x * step] : 1;
        unsigned int value =
            channel < channels ? plane[((long long)y * width + x) * channels + channel] : 1;
        sum += (unsigned long long)value * share;
    }
    for (int lanes = 16; lanes > 0; lanes /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    if (exists && threadIdx.x == 0) {
        double all = (double)edge * edge * (by_alpha ? 255.0 : 1.0);
        means[cell * (channels + 1) + channel] = (float)((double)sum / all);
    }
}

// Replaces what is inside an ellipse, or all of a box, in place; a rim of width feather, as a part
// of the half axes, lies outside the ellipse.
//
// One thread a sample position of the box [first_x, last_x) x [first_y, last_y). Rounded half to
// even, to whole code values. clear: the sample of black; least: the share at which it counts half.
extern "C" __global__ void hide_blend(
    sample_t* __restrict__ plane, const float* __restrict__ means, int width, int channels,
    int step, int style, int by_alpha, float clear, float least, int left, int top, int edge,
    int rows, int columns, int first_x, int first_y, int last_x, int last_y, int is_ellipse,
    float centre_x, float centre_y, float cosine, float sine, float across, float along,
    float feather)
{
    int x = first_x + blockIdx.x * blockDim.x + threadIdx.x;
    int y = first_y + blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= last_x || y >= last_y)
        return;
    float weight = 1.0f;
    if (is_ellipse) {
        float dx = ((float)x + 0.5f) * (float)step - centre_x;
        float dy = ((float)y + 0.5f) * (float)step - centre_y;
        float u = (dx * cosine + dy * sine) / across, v = (dy * cosine - dx * sine) / along;
        weight = (1.0f + feather - sqrtf(u * u + v * v)) * (1.0f / feather);
        weight = fminf(fmaxf(weight, 0.0f), 1.0f);
        if (!(weight > 0.0f))
            return;
    }
    // In a mosaic a sample lies in one cell, else between the middles of four.
    float position_x = ((float)(x - left) + 0.5f) / (float)edge - 0.5f;
    float position_y = ((float)(y - top) + 0.5f) / (float)edge - 0.5f;
    int x0 = style == MOSAIC ? (x - left) / edge : (int)floorf(position_x);
    int y0 = style == MOSAIC ? (y - top) / edge : (int)floorf(position_y);
    float wx = style == MOSAIC ? 0.0f : position_x - (float)x0;
    float wy = style == MOSAIC ? 0.0f : position_y - (float)y0;
    int xa = clamp_int(x0, 0, columns - 1), xb = clamp_int(x0 + 1, 0, columns - 1);
    int ya = clamp_int(y0, 0, rows - 1), yb = clamp_int(y0 + 1, 0, rows - 1);
    float shown[3]; // the channels, of which there are two at most, and the share
    for (int channel = 0; channel < channels + by_alpha && style != SOLID; channel++) {
        const float* m = means + channel;
        int values = channels + 1;
        float above = m[(ya * columns + xa) * values] * (1.0f - wx) +
                      m[(ya * columns + xb) * values] * wx;
        float below = m[(yb * columns + xa) * values] * (1.0f - wx) +
                      m[(yb * columns + xb) * values] * wx;
        shown[channel] = above * (1.0f - wy) + below * wy;
    }
    for (int channel = 0; channel < channels; channel++) {
        float value = clear;
        if (style != SOLID)
            value = by_alpha ? (shown[channel] + least * clear) / (shown[channels] + least)
                             : shown[channel];
        sample_t* sample = plane + ((long long)y * width + x) * channels + channel;
        float before = (float)*sample;
        float mixed = before + (value - before) * weight;
#if SAMPLE_BITS == 8
        *sample = (sample_t)clamp_int(nearest(mixed), 0, 255);
#else
        *sample = (sample_t)(clamp_int(nearest(mixed / 64.0f), 0, 1023) << 6);
#endif
    }
}
