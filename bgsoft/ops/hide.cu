// Makes a place of a frame unrecognisable: means of coarse cells, and the drawing of these.
//
// Launched by bgsoft/hide/hider.py, for luma and chroma at once: blockIdx.z = 0, 1. A place is given
// in even frame pixels: left, top, right, bottom of its box, which may lie beyond the frame,
// and the edge of its cells. The first begins at left and top, the last may end after right and
// bottom. cells: (rows, columns, 2) float32 of luma, then (rows, columns, 3) of chroma: the mean of
// each channel, times the share that counts; at last that share.
#include "drivers.cuh"

#if ON_DEVICE
#define RUN 1     // samples of a row that a thread draws
#define LANES 32  // threads for the mean of a cell
#define DOES(plane) (blockIdx.z == plane)
#else
#define RUN (1 << 20)
#define LANES 1
#define DOES(plane) true
#endif

// A place in one plane, in samples: of luma each is a frame pixel and has a channel; of chroma STEP = 2
// pixels each way, and as many channels.
template <int STEP>
struct Place {
    int height, width, left, top, right, bottom, edge, rows, columns;

    OP Place(int height, int width, int left, int top, int right, int bottom, int edge)
        : height((height + STEP - 1) / STEP), width((width + STEP - 1) / STEP), left(left / STEP),
          top(top / STEP), right(right / STEP), bottom(bottom / STEP), edge(edge / STEP),
          rows((bottom - top + edge - 1) / edge), columns((right - left + edge - 1) / edge)
    {
    }
};

template <int STEP>
OP void take_means(
    const Place<STEP> &place, const sample_t *plane, const u8 *alpha, int alpha_width, float *means)
{
    const int columns = place.columns, edge = place.edge;
    for_samples(place.rows * columns, LANES, [&](int cell, int lane) INLINED {
        const int top = place.top + cell / columns * edge, left = place.left + cell % columns * edge;
        u64 sums[STEP + 1] = {};
        for (int row = top; row < top + edge; ++row)
            for (int column = left + lane; column < left + edge; column += LANES) {
                // The frame's edge is repeated outside.
                const size_t y = clamp_int(row, 0, place.height - 1);
                const size_t x = clamp_int(column, 0, place.width - 1);
                const u32 share = alpha ? alpha[(y * alpha_width + x) * STEP] : 255;
                for (int channel = 0; channel < STEP; ++channel)
                    sums[channel] += share * plane[(y * place.width + x) * STEP + channel];
                sums[STEP] += share;
            }
        for (int value = 0; value <= STEP; ++value) {
#if ON_DEVICE
            for (int lanes = LANES / 2; lanes > 0; lanes /= 2)
                sums[value] += __shfl_xor_sync(0xffffffffu, sums[value], lanes);
#endif
            const double whole = 255.0 * edge * edge;
            if (lane == 0)
                means[cell * (STEP + 1) + value] = (float)((double)sums[value] / whole);
        }
    });
}

// Means of a place's cells. With alpha, (height, width), a sample counts by the matte above its first
// pixel; without, all of it. A warp a cell: (cells, LANES, 2).
KERNEL(hide_means)(
    const sample_t *luma, const sample_t *chroma, const u8 *alpha, float *cells, int height,
    int width, int left, int top, int right, int bottom, int edge)
{
    const Place<1> light(height, width, left, top, right, bottom, edge);
    const Place<2> color(height, width, left, top, right, bottom, edge);
    if (DOES(0))
        take_means(light, luma, alpha, width, cells);
    if (DOES(1))
        take_means(color, chroma, alpha, width, cells + 2 * light.rows * light.columns);
}

// How far samples are hidden: 1 in the ellipse, falling to 0 in a rim around it, whose width is a part
// of the half axes. In frame pixels.
struct Ellipse {
    float x, y, cosine, sine, across, along, feather;

    template <int STEP>
    OP float weight(int row, int column) const
    {
        const float dx = ((float)column + 0.5f) * STEP - x, dy = ((float)row + 0.5f) * STEP - y;
        const float u = (dx * cosine + dy * sine) / across, v = (dy * cosine - dx * sine) / along;
        const float inside = (1.0f + feather - sqrtf(u * u + v * v)) * (1.0f / feather);
        return fminf(fmaxf(inside, 0.0f), 1.0f);
    }
};

// The cells that a sample lies between, along a side; where they are not smoothed, the one it lies in.
struct Between {
    int edge, first, second, begin, end;  // begin, end: of the samples for which they are these
    float scale;

    OP Between(int at, int edge, int count, bool smooth) : edge(edge)
    {
        const int half = smooth ? edge / 2 : 0, cell = (at + edge - half) / edge - 1;
        first = max(cell, 0);
        second = min(cell + 1, count - 1);
        begin = cell * edge + half;
        end = begin + edge;
        scale = smooth ? 0.5f / (float)edge : 0.0f;
    }

    // How near a sample is to the second, 0-1; a cell's middle lies between samples if its edge is even.
    OP float weight(int at) const { return (float)(2 * (at - begin) + 1 - edge % 2) * scale; }
};

OP float mixed(float first, float second, float weight)
{
    return first + (second - first) * weight;
}

template <int STEP>
OP void draw(
    const Place<STEP> &place, sample_t *plane, const float *cells, const u8 *inside, bool smooth,
    float clear, float min_share, const Ellipse &ellipse)
{
    const int left = max(place.left, 0), right = min(place.right, place.width);
    const int top = max(place.top, 0), bottom = min(place.bottom, place.height);
    for_runs(bottom - top, right - left, 1, RUN, [&](int row, int column, int count) INLINED {
        const int y = top + row, stop = left + column + count;
        const Between down(y - place.top, place.edge, place.rows, smooth);
        const float below = down.weight(y - place.top);
        sample_t *line = plane + (size_t)y * place.width * STEP;
        const int half = (place.right - place.left) * STEP / 2;
        const u8 *marks = inside ? inside + (size_t)((y - place.top) * STEP / 2) * half : inside;
        for (int begin = left + column, end; begin < stop; begin = end) {
            const Between across(begin - place.left, place.edge, place.columns, smooth);
            end = min(stop, place.left + across.end);
            float first[STEP + 1], second[STEP + 1];
            UNROLLED
            for (int value = 0; value <= STEP; ++value) {
                const auto cell = [&](int row, int column) INLINED {
                    return cells[(row * place.columns + column) * (STEP + 1) + value];
                };
                const int a = across.first, b = across.second;
                first[value] = mixed(cell(down.first, a), cell(down.second, a), below);
                second[value] = mixed(cell(down.first, b), cell(down.second, b), below);
            }
            const auto marked = [&](int x) INLINED {
                return marks[(x - place.left) * STEP / 2] != 0;
            };
            for (int from = begin, upto = end; from < end; from = upto) {
                if (marks) {
                    while (from < end && !marked(from))
                        ++from;
                    upto = from;
                    while (upto < end && marked(upto))
                        ++upto;
                }
                INDEPENDENT
                for (int x = from; x < upto; ++x) {
                    const float near = across.weight(x - place.left);
                    const float share = mixed(first[STEP], second[STEP], near) + min_share;
                    const float weight = ellipse.weight<STEP>(y, x);
                    UNROLLED
                    for (int channel = 0; channel < STEP; ++channel) {
                        const float mean = mixed(first[channel], second[channel], near);
                        const float value = (mean + min_share * clear) / share;
                        sample_t *sample = line + x * STEP + channel;
                        const sample_t shown = to_sample(mixed((float)*sample, value, weight));
                        // Where nothing is hidden not a bit changes, whatever the low bits hold.
                        *sample = weight > 0.0f ? shown : *sample;
                    }
                }
            }
        }
    });
}

// Replaces the inside of an ellipse of a place by its cells, in place. smooth: enlarged smoothly, else
// unchanged. inside: (rows / 2, columns / 2) of the place, not 0 where it is hidden; or nothing, and
// all of it is. clear_luma, clear_chroma: samples of black; min_share: the share that
// counts half.
// Covers the place, two planes deep.
KERNEL(hide_draw)(
    sample_t *luma, sample_t *chroma, const float *cells, const u8 *inside, int height, int width,
    int left, int top, int right, int bottom, int edge, int smooth, int clear_luma,
    int clear_chroma, float min_share, float x, float y, float cosine, float sine, float across,
    float along, float feather)
{
    const Place<1> light(height, width, left, top, right, bottom, edge);
    const Place<2> color(height, width, left, top, right, bottom, edge);
    const float *color_cells = cells + 2 * light.rows * light.columns;
    const Ellipse ellipse = {x, y, cosine, sine, across, along, feather};
    if (DOES(0))
        draw(light, luma, cells, inside, smooth, (float)clear_luma, min_share, ellipse);
    if (DOES(1))
        draw(color, chroma, color_cells, inside, smooth, (float)clear_chroma, min_share, ellipse);
}
