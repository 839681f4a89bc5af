// Views of frames to the input batch of a face model: on a device every view of a batch in one launch, on
// the host one that is upright and of 8 bits. Rounding: each bilinear sample to a whole one, the mean of
// several of them as well. The host makes them as OpenCV does, which makes all other views there; its
// places are rounded, so samples may differ from a device's by a little.

#include "rgb.cuh"
#include "views.cuh"

#if ON_DEVICE
// The same for all views.
struct Layout {
    int height, width, chroma_height, chroma_width, grid_height, grid_width;
    int factor;               // frame pixels per grid cell, each way
    float min_grid_samples;   // cells per input pixel from which the grid is sharp enough
    float max_spacing;        // samples between two bilinear samples, at most
    int max_taps;             // bilinear samples of an input pixel along each axis, at most
    int black, neutral;       // luma and chroma beyond the edges; negative: the edges' own
};

// One plane as one view sees it.
struct Sampled {
    const sample_t* samples;
    int rows, columns;
    float x_x, x_y, x_0;  // plane column = x_x * u + x_y * v + x_0, sample centres whole,
    float y_x, y_y, y_0;  // for sub-pixel (u, v) of the input, `taps` of them a pixel each way
    int taps;
    int border;  // sample beyond the edges, as in Layout
};

// As _place of bgsoft/face/warp.py; cell: frame pixels a sample.
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
    plane.border = border;
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
    return to_eight_bits(nearest((float)sum / (float)(plane.taps * plane.taps)));
}

// One thread an input pixel of one view (z).
// matrix: 3 x 4 int32 in 1/1024 for (Y, Cb, Cr, 1), the half for rounding included; norm: 3 gains,
// 3 biases. tensor: (batch, 3, size, size) float32.
extern "C" __global__ void warp_views(
    const View* __restrict__ views, Layout layout, const int* __restrict__ matrix,
    const float* __restrict__ norm, float* __restrict__ tensor, int size)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int item = blockIdx.z;
    if (x >= size || y >= size)
        return;
    const View view = views[item];
    float scale = sqrtf(fabsf(view.x_x * view.y_y - view.x_y * view.y_x));
    float cell = (float)layout.factor;
    Sampled luma, chroma;
    if (layout.factor > 1 && scale / cell >= layout.min_grid_samples) {
        int rows = layout.grid_height, columns = layout.grid_width;
        luma = sampled(view, layout, view.grid_luma, rows, columns, cell, layout.black);
        chroma = sampled(view, layout, view.grid_chroma, rows, columns, cell, layout.neutral);
    } else {
        luma = sampled(
            view, layout, view.luma, layout.height, layout.width, 1.0f, layout.black);
        chroma = sampled(
            view, layout, view.chroma, layout.chroma_height, layout.chroma_width, 2.0f,
            layout.neutral);
    }
    int code[3];
    code[0] = viewed(luma, 1, 0, x, y);
    code[1] = viewed(chroma, 2, 0, x, y);
    code[2] = viewed(chroma, 2, 1, x, y);
    for (int channel = 0; channel < 3; channel++) {
        int value = rgb_code(matrix + 4 * channel, code[0], code[1], code[2]);
        tensor[((item * 3 + channel) * size + y) * size + x] =
            (float)value * norm[channel] + norm[3 + channel];
    }
}
#else
// How bilinear samples of one plane are made, a row of its columns first: each as cv2.warpAffine makes
// those of so many channels.
template <int CHANNELS>
struct Bilinear;

// In float32.
template <>
struct Bilinear<1> {
    typedef float number;

    // Where sample `at` lies along a row, or down a column: between the one returned and the next. A
    // double is rounded once, as by a fused multiplication.
    static OP int place(double step, double origin, int at, bool down, float* part)
    {
        const float moved = (float)step * (float)at;
        const float exact = down ? moved + (float)origin
                                 : (float)((double)(float)step * at + (double)(float)origin);
        const float first = floorf(exact);
        *part = exact - first;
        return (int)first;
    }

    static OP float along(float before, float after, float part)
    {
        return before + part * (after - before);
    }

    static OP int sample(float before, float after, float part)
    {
        return nearest(along(before, after, part));
    }
};

// In places of 1/32.
template <>
struct Bilinear<2> {
    typedef int number;

    static OP int place(double step, double origin, int at, bool down, int* part)
    {
        const double along = down ? 0.0 : step * at, across = down ? step * at + origin : origin;
        const int exact =
            ((int)__builtin_rint(along * 1024.0) + (int)__builtin_rint(across * 1024.0) + 16) >> 5;
        *part = exact & 31;
        return exact >> 5;
    }

    static OP int along(int before, int after, int part)
    {
        return before * (32 - part) + after * part;
    }

    static OP int sample(int before, int after, int part)
    {
        return (along(before, after, part) + 512) >> 10;
    }
};

// One plane, (rows, columns, CHANNELS), as means of taps x taps samples, (size, size, CHANNELS). place:
// from these samples to the plane, centres whole, as x_x to y_0 of a View. border: beyond it.
template <int CHANNELS>
static void warp(
    const u8* plane, int rows, int columns, const double* place, int taps, int border, u8* out,
    int size, int* room)
{
    typedef Bilinear<CHANNELS> Kind;
    typedef typename Kind::number number;
    // Beside the plane lie two columns of border; what is farther out, is border likewise.
    const int width = size * taps;
    int *places = room;
    number *parts = (number*)(places + width + CHANNELS * size);
    number *line = parts + width + 2 * CHANNELS;
    u8* edge = (u8*)(line + CHANNELS * (columns + 2));
    // First those of the first samples of all pixels, then those of the second ones.
    for (int at = 0; at < width; at++) {
        const int x = at % size * taps + at / size;
        places[at] = clamp_int(Kind::place(place[0], place[2], x, false, parts + at), -2, columns);
    }
    for (int x = 0; x < CHANNELS * columns; x++)
        edge[x] = (u8)border;
    const int from = CHANNELS * clamp_int(places[0], 0, columns);
    const int to = CHANNELS * clamp_int(places[width - 1] + 2, 0, columns);
    const float share = 1.0f / (float)(taps * taps);
    for (int y = 0; y < size; y++, out += CHANNELS * size) {
        int *sums = places + width;
        for (int x = 0; x < CHANNELS * size; x++)
            sums[x] = 0;
        for (int tap = 0; tap < taps; tap++) {
            number part;
            const int row = Kind::place(place[4], place[5], y * taps + tap, true, &part);
            if (row < -1 || row >= rows) {
                for (int x = 0; x < CHANNELS * size; x++)
                    sums[x] += border * taps;
                continue;
            }
            const u8* upper = row < 0 ? edge : plane + (size_t)row * CHANNELS * columns;
            const u8* lower = row + 1 == rows ? edge : plane + (size_t)(row + 1) * CHANNELS * columns;
            for (int x = 0; x < 2 * CHANNELS; x++)
                line[x - 2 * CHANNELS] = line[CHANNELS * columns + x] =
                    Kind::along((number)border, (number)border, part);
            INDEPENDENT
            for (int x = from; x < to; x++)
                line[x] = Kind::along((number)upper[x], (number)lower[x], part);
            for (int channel = 0; channel < CHANNELS; channel++)
                for (int at = 0; at < taps; at++) {
                    const int *first = places + at * size;
                    const number *own = parts + at * size, *left = line + channel;
                    INDEPENDENT
                    for (int x = 0; x < size; x++) {
                        const number *two = left + CHANNELS * first[x];
                        sums[channel * size + x] += Kind::sample(two[0], two[CHANNELS], own[x]);
                    }
                }
        }
        // Means as cv2.resize makes them.
        for (int channel = 0; channel < CHANNELS; channel++, sums += size)
            for (int x = 0; x < size; x++)
                out[CHANNELS * x + channel] =
                    (u8)(CHANNELS == 1 && taps == 2 ? (sums[x] + 2) >> 2
                                                    : nearest((float)sums[x] * share));
    }
}

// A view without rotation, beyond whose edges is black. places: 2 x 6, of luma and of chroma as warp takes
// them. matrix, norm, tensor: as above, of one view. room: 4 bytes each for 2 * size * taps, 2 * size and
// 3 * columns + 8, and for size * size.
KERNEL(warp_upright)(
    const u8* luma, int rows, int columns, int luma_taps, int black, const u8* chroma,
    int chroma_rows, int chroma_columns, int chroma_taps, int neutral, const double* places,
    const int* matrix, const float* norm, float* tensor, int size, int* room)
{
    const int count = size * size;
    u8 *luma_out = (u8*)room, *chroma_out = luma_out + count;
    room += count;
    warp<1>(luma, rows, columns, places, luma_taps, black, luma_out, size, room);
    warp<2>(
        chroma, chroma_rows, chroma_columns, places + 6, chroma_taps, neutral, chroma_out, size,
        room);
    normalise(luma_out, chroma_out, count, matrix, norm, tensor, 0);
}
#endif
