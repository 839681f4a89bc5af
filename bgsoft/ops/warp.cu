// Views of frames to the input batch of a face model: every view of a batch in one launch.
// Counterpart: bgsoft/face/warp.py (CpuWarper). Rounding: each bilinear sample to a whole one, the
// mean of several of them as well, P010 to 8 bits (half to even), R'G'B' to 8 bits (floor after
// adding a half, in 1/1024), then code * gain + bias in float32. cv2.warpAffine rounds coordinates
// in older versions, so samples may differ from its own by a little.

#include "samples.cuh"
#include "views.cuh"

// Where the samples of one frame are; rows follow each other without padding.
struct FramePlanes {
    const sample_t *luma, *chroma;            // (height, width), (chroma height, chroma width, 2)
    const sample_t *grid_luma, *grid_chroma;  // (grid height, grid width[, 2])
};

// The same for all frames.
struct Layout {
    int height, width, chroma_height, chroma_width, grid_height, grid_width;
    int factor;               // frame pixels per grid cell, each way
    float min_grid_samples;   // cells per input pixel from which the grid is sharp enough
    float max_spacing;        // samples between two bilinear samples, at most
    int max_taps;             // bilinear samples of an input pixel along each axis, at most
    int black, neutral;       // luma and chroma beyond the edges
};

// One plane as one view sees it.
struct Sampled {
    const sample_t* samples;
    int rows, columns;
    float x_x, x_y, x_0;  // plane column = x_x * u + x_y * v + x_0, sample centres whole,
    float y_x, y_y, y_0;  // for sub-pixel (u, v) of the input, `taps` of them a pixel each way
    int taps;
    int border;  // sample beyond the edges; negative: the edge's own
};

// As CpuWarper._plane of the counterpart; cell: frame pixels a sample.
OP Sampled sampled(
    const View& view, const Layout& layout, const sample_t* samples, int rows, int columns,
    float cell, int border)
{
    float scale = sqrtf(fabsf(view.x_x * view.y_y - view.x_y * view.y_x));
    int taps = 1;
    while (taps < layout.max_taps && scale / cell / (float)taps > layout.max_spacing)
        taps *= 2;
    float each = 1.0f / ((float)taps * cell);
    Sampled plane;
    plane.samples = samples;
    plane.rows = rows;
    plane.columns = columns;
    plane.x_x = view.x_x * each;
    plane.x_y = view.x_y * each;
    plane.x_0 = (view.x_x + view.x_y) * 0.5f * each + view.x_0 / cell - 0.5f;
    plane.y_x = view.y_x * each;
    plane.y_y = view.y_y * each;
    plane.y_0 = (view.y_x + view.y_y) * 0.5f * each + view.y_0 / cell - 0.5f;
    plane.taps = taps;
    plane.border = view.repeat_edges ? -1 : border;
    return plane;
}

OP int sample_at(
    const sample_t* p, const Sampled& plane, int channels, int channel, int row, int column)
{
    if (plane.border >= 0 &&
        (row < 0 || column < 0 || row >= plane.rows || column >= plane.columns))
        return plane.border;
    row = clamp_int(row, 0, plane.rows - 1);
    column = clamp_int(column, 0, plane.columns - 1);
    return p[(row * plane.columns + column) * channels + channel];
}

OP int bilinear(
    const sample_t* p, const Sampled& plane, int channels, int channel, float x, float y)
{
    // Far outside, where a whole number would overflow, everything is border.
    x = fminf(fmaxf(x, -4.0f), (float)plane.columns + 4.0f);
    y = fminf(fmaxf(y, -4.0f), (float)plane.rows + 4.0f);
    float left = floorf(x), top = floorf(y);
    int column = (int)left, row = (int)top;
    float dx = x - left, dy = y - top;
    float p00 = (float)sample_at(p, plane, channels, channel, row, column);
    float p01 = (float)sample_at(p, plane, channels, channel, row, column + 1);
    float p10 = (float)sample_at(p, plane, channels, channel, row + 1, column);
    float p11 = (float)sample_at(p, plane, channels, channel, row + 1, column + 1);
    float first = p00 + dy * (p10 - p00);
    float second = p01 + dy * (p11 - p01);
    return nearest(first + dx * (second - first));
}

// Mean of taps x taps bilinear samples, as 8 bits.
OP int viewed(
    const Sampled& plane, int channels, int channel, int x, int y)
{
    const sample_t* p = plane.samples;
    int sum = 0;
    for (int j = 0; j < plane.taps; j++) {
        float v = (float)(y * plane.taps + j);
        for (int i = 0; i < plane.taps; i++) {
            float u = (float)(x * plane.taps + i);
            sum += bilinear(
                p, plane, channels, channel, plane.x_x * u + plane.x_y * v + plane.x_0,
                plane.y_x * u + plane.y_y * v + plane.y_0);
        }
    }
    int mean = nearest((float)sum / (float)(plane.taps * plane.taps));
#if SAMPLE_BITS == 8
    return mean;
#else
    return min(255, nearest((float)mean * (1.0f / 256.0f)));
#endif
}

// One thread an input pixel of one view (z).
// matrix: 3 x 4 int32 in 1/1024 for (Y, Cb, Cr, 1), the half for rounding included; norm: 3 gains,
// 3 biases. tensor: (batch, 3, size, size) float32.
extern "C" __global__ void warp_views(
    const View* __restrict__ views, const FramePlanes* __restrict__ frames, Layout layout,
    const int* __restrict__ matrix, const float* __restrict__ norm, float* __restrict__ tensor,
    int size)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int item = blockIdx.z;
    if (x >= size || y >= size)
        return;
    const View view = views[item];
    const FramePlanes frame = frames[view.frame];
    float scale = sqrtf(fabsf(view.x_x * view.y_y - view.x_y * view.y_x));
    float cell = (float)layout.factor;
    Sampled luma, chroma;
    if (layout.factor > 1 && scale / cell >= layout.min_grid_samples) {
        int rows = layout.grid_height, columns = layout.grid_width;
        luma = sampled(view, layout, frame.grid_luma, rows, columns, cell, layout.black);
        chroma = sampled(view, layout, frame.grid_chroma, rows, columns, cell, layout.neutral);
    } else {
        luma = sampled(
            view, layout, frame.luma, layout.height, layout.width, 1.0f, layout.black);
        chroma = sampled(
            view, layout, frame.chroma, layout.chroma_height, layout.chroma_width, 2.0f,
            layout.neutral);
    }
    int code[3];
    code[0] = viewed(luma, 1, 0, x, y);
    code[1] = viewed(chroma, 2, 0, x, y);
    code[2] = viewed(chroma, 2, 1, x, y);
    for (int channel = 0; channel < 3; channel++) {
        const int* m = matrix + 4 * channel;
        int value = (m[0] * code[0] + m[1] * code[1] + m[2] * code[2] + m[3]) >> 10;
        tensor[((item * 3 + channel) * size + y) * size + x] =
            (float)clamp_int(value, 0, 255) * norm[channel] + norm[3 + channel];
    }
}
