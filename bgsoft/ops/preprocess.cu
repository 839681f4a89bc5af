// The analysis frame to one item of a network's input batch, in one launch; resized samples are rounded
// to whole ones. On the host OpenCV has brought it to the input's size.

#include "resample.cuh"
#include "rgb.cuh"

#if ON_DEVICE
// IEEE half of a finite float, rounded to nearest even; written out since NVRTC has no headers.
OP u16 half_bits(float value)
{
    u32 bits = __float_as_uint(value);
    u32 sign = (bits >> 16) & 0x8000u;
    u32 magnitude = bits & 0x7fffffffu;
    if (magnitude >= 0x47800000u)  // 65536 and more
        return (u16)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) {  // subnormal as a half: whole multiples of 2^-24
        return (u16)(sign | (u32)nearest(__uint_as_float(magnitude) * 16777216.0f));
    }
    u32 rounded = magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u);
    return (u16)(sign | (rounded >> 13));
}

OP void store(float* tensor, int at, float value) { tensor[at] = value; }
OP void store(u16* tensor, int at, float value)
{
    tensor[at] = half_bits(value);
}

// One thread an output pixel.
// luma (.., luma_pitch), chroma (.., chroma_pitch / 2, 2); four tables as in resample.cuh.
// matrix: 3 x 4 int32 in 1/1024 for (Y, Cb, Cr, 1), the half for rounding included; norm: 3 gains,
// 3 biases. tensor: (batch, 3, height, width), or (batch, height, width, 3) if channels_last.
template <typename T>
OP void preprocess(
    const sample_t* __restrict__ luma, int luma_pitch, const float* __restrict__ luma_x,
    int luma_x_stride, const float* __restrict__ luma_y, int luma_y_stride, int luma_mode,
    const sample_t* __restrict__ chroma, int chroma_pitch, const float* __restrict__ chroma_x,
    int chroma_x_stride, const float* __restrict__ chroma_y, int chroma_y_stride,
    int chroma_mode, const int* __restrict__ matrix,
    const float* __restrict__ norm, T* __restrict__ tensor, int height, int width, int item,
    int channels_last)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    const float* chroma_column = chroma_x + x * chroma_x_stride;
    const float* chroma_row = chroma_y + y * chroma_y_stride;
    int code[3];
    code[0] = resample(
        luma, luma_pitch, 1, 0, luma_mode, luma_x + x * luma_x_stride, luma_y + y * luma_y_stride);
    code[1] = resample(chroma, chroma_pitch, 2, 0, chroma_mode, chroma_column, chroma_row);
    code[2] = resample(chroma, chroma_pitch, 2, 1, chroma_mode, chroma_column, chroma_row);
    for (int k = 0; k < 3; k++)
        code[k] = to_eight_bits(code[k]);
    for (int channel = 0; channel < 3; channel++) {
        int value = rgb_code(matrix + 4 * channel, code[0], code[1], code[2]);
        float normal = (float)value * norm[channel] + norm[3 + channel];
        int at = channels_last ? ((item * height + y) * width + x) * 3 + channel
                               : ((item * 3 + channel) * height + y) * width + x;
        store(tensor, at, normal);
    }
}

#define PREPROCESS_KERNEL(NAME, T)                                                                \
    extern "C" __global__ void NAME(                                                              \
        const sample_t* luma, int luma_pitch, const float* luma_x, int luma_x_stride,             \
        const float* luma_y, int luma_y_stride, int luma_mode, const sample_t* chroma,            \
        int chroma_pitch, const float* chroma_x, int chroma_x_stride, const float* chroma_y,      \
        int chroma_y_stride, int chroma_mode, const int* matrix, const float* norm, T* tensor,    \
        int height, int width, int item, int channels_last)                                       \
    {                                                                                             \
        preprocess<T>(                                                                            \
            luma, luma_pitch, luma_x, luma_x_stride, luma_y, luma_y_stride, luma_mode, chroma,    \
            chroma_pitch, chroma_x, chroma_x_stride, chroma_y, chroma_y_stride, chroma_mode,      \
            matrix, norm, tensor, height, width, item, channels_last);                            \
    }

PREPROCESS_KERNEL(preprocess_float32, float)
PREPROCESS_KERNEL(preprocess_float16, u16)
#else
// The same into float32; there are no tables.
KERNEL(preprocess_float32)(
    const sample_t *luma, int luma_pitch, const float *luma_x, int luma_x_stride,
    const float *luma_y, int luma_y_stride, int luma_mode, const sample_t *chroma,
    int chroma_pitch, const float *chroma_x, int chroma_x_stride, const float *chroma_y,
    int chroma_y_stride, int chroma_mode, const int *matrix, const float *norm, float *tensor,
    int height, int width, int item, int channels_last)
{
    const int count = height * width;
    tensor += (size_t)item * 3 * count;
    normalise(luma, chroma, count, matrix, norm, tensor, channels_last);
}
#endif
