// From code values to a network's input. Rounding: P010 to 8 bits (half to even), R'G'B' to 8 bits (floor
// after adding a half, in 1/1024), then code * gain + bias in float32.
#pragma once

#include "drivers.cuh"

OP int to_eight_bits(int sample)
{
#if SAMPLE_BITS == 8
    return sample;
#else
    return min(255, nearest((float)sample * (1.0f / 256.0f)));
#endif
}

// A channel of R'G'B', 8 bits, by its row of the matrix.
OP int rgb_code(const int* m, int luma, int cb, int cr)
{
    return clamp_int((m[0] * luma + m[1] * cb + m[2] * cr + m[3]) >> 10, 0, 255);
}

#if !ON_DEVICE
// Planes of `count` pixels. matrix, norm: see preprocess.cu; tensor: (3, count), or (count, 3) if
// channels_last.
static inline void normalise(
    const sample_t *luma, const sample_t *chroma, int count, const int *matrix, const float *norm,
    float *tensor, int channels_last)
{
    const auto channel_of = [=](int channel, float* target, int step) INLINED {
        const int m[] = {
            matrix[4 * channel], matrix[4 * channel + 1], matrix[4 * channel + 2],
            matrix[4 * channel + 3]};
        const float gain = norm[channel], bias = norm[3 + channel];
        INDEPENDENT
        for (int at = 0; at < count; at++) {
            int value = rgb_code(
                m, to_eight_bits(luma[at]), to_eight_bits(chroma[2 * at]),
                to_eight_bits(chroma[2 * at + 1]));
            target[at * step] = (float)value * gain + bias;
        }
    };
    for (int channel = 0; channel < 3; channel++)
        if (channels_last)
            channel_of(channel, tensor + channel, 3);
        else
            channel_of(channel, tensor + (size_t)channel * count, 1);
}
#endif
