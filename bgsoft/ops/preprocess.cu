// The analysis frame to one item of a network's input batch, in one launch; resized samples are rounded
// to whole ones. On the host OpenCV has brought it to the input's size.

#include "resample.cuh"
#include "rgb.cuh"

// One thread an output pixel.
// luma (.., luma_pitch), chroma (.., chroma_pitch / 2, 2); four tables as in resample.cuh, which the host
// has none of. matrix: 3 x 4 int32 in 1/1024 for (Y, Cb, Cr, 1), the half for rounding included; norm: 3
// gains, 3 biases. tensor: (batch, 3, height, width), or (batch, height, width, 3) if channels_last.
KERNEL(preprocess)(
    const sample_t *luma, int luma_pitch, const float *luma_x, int luma_x_stride,
    const float *luma_y, int luma_y_stride, int luma_mode, const sample_t *chroma,
    int chroma_pitch, const float *chroma_x, int chroma_x_stride, const float *chroma_y,
    int chroma_y_stride, int chroma_mode, const int *matrix, const float *norm, float *tensor,
    int height, int width, int item, int channels_last)
{
#if ON_DEVICE
    for_samples(height, width, [=](int y, int x) {
        const float *chroma_column = chroma_x + x * chroma_x_stride;
        const float *chroma_row = chroma_y + y * chroma_y_stride;
        int code[] = {
            resample(
                luma, luma_pitch, 1, 0, luma_mode, luma_x + x * luma_x_stride,
                luma_y + y * luma_y_stride),
            resample(chroma, chroma_pitch, 2, 0, chroma_mode, chroma_column, chroma_row),
            resample(chroma, chroma_pitch, 2, 1, chroma_mode, chroma_column, chroma_row)};
        for (int k = 0; k < 3; k++)
            code[k] = to_eight_bits(code[k]);
        for (int channel = 0; channel < 3; channel++) {
            int value = rgb_code(matrix + 4 * channel, code[0], code[1], code[2]);
            int at = channels_last ? ((item * height + y) * width + x) * 3 + channel
                                   : ((item * 3 + channel) * height + y) * width + x;
            tensor[at] = (float)value * norm[channel] + norm[3 + channel];
        }
    });
#else
    const int count = height * width;
    float *target = tensor + (size_t)item * 3 * count;
    normalise(luma, chroma, count, matrix, norm, target, channels_last);
#endif
}
