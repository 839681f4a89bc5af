// Views of frames to the input batch of a face model. Rounding: each bilinear sample to a whole one, the
// mean of several of them as well.
#include "rgb.cuh"

#if ON_DEVICE
#define RUN 1  // pixels of a row that are made together
#else
#define RUN 64
#endif

// One plane as one view sees it; as _PLANE in bgsoft/face/warp.py.
struct Plane {
    const sample_t* samples;  // (rows, columns, channels)
    float x_x, x_y, x_0;      // column = x_x * u + x_y * v + x_0, sample centres whole,
    float y_x, y_y, y_0;      // for sub-pixel (u, v) of the input, `taps` of them a pixel each way
    int rows, columns, taps;
    int border;  // sample beyond the edges, or EDGE or MIRRORED
};

#define EDGE -1      // beyond a plane its edge is repeated,
#define MIRRORED -2  // or the plane is mirrored at its edge, as far as it reaches

// A row or column of a plane of `count` that stands for one that may lie beyond it.
OP int inside(int at, int count, int border)
{
    if (border == MIRRORED)
        at = at < 0 ? -1 - at : at >= count ? 2 * count - 1 - at : at;
    return clamp_int(at, 0, count - 1);
}

struct View {
    Plane luma, chroma;
};

// Where a sub-pixel of the input lies on a plane.
struct Spot {
    float x, y;

    OP Spot(const Plane& plane, int u, int v)
        : x(plane.x_x * (float)u + plane.x_y * (float)v + plane.x_0),
          y(plane.y_x * (float)u + plane.y_y * (float)v + plane.y_0)
    {
    }

    // Whether it lies between four of its samples.
    OP bool is_inside(const Plane& plane) const
    {
        return x >= 0.0f && y >= 0.0f && x < (float)(plane.columns - 1) && y < (float)(plane.rows - 1);
    }
};

// Two neighbours of a row, all of their channels, read at once: the first in the low bits.
template <int BYTES>
struct Neighbours {
    typedef u16 whole __attribute__((aligned(1), may_alias));
};
template <>
struct Neighbours<4> {
    typedef u32 whole __attribute__((aligned(1), may_alias));
};
template <>
struct Neighbours<8> {
    typedef u64 whole __attribute__((aligned(1), may_alias));
};

// Adds bilinear samples at `v`, of every `taps`-th `u` from the first on, to those of pixels in a row.
// INSIDE: all lie between four samples of the plane; then it takes half of the time on the host.
template <int CHANNELS, bool INSIDE>
OP void add_bilinear(const Plane& plane, int first_u, int v, int count, int (*sums)[RUN])
{
    typedef typename Neighbours<2 * CHANNELS * sizeof(sample_t)>::whole whole;
    const int columns = plane.columns, rows = plane.rows, border = plane.border;
    INDEPENDENT
    for (int pixel = 0; pixel < count; pixel++) {
        const Spot spot(plane, first_u + pixel * plane.taps, v);
        // Farther outside a whole number could overflow.
        const float width = (float)columns, height = (float)rows;
        const float x = INSIDE ? spot.x : fminf(fmaxf(spot.x, -width - 4.0f), 2.0f * width + 4.0f);
        const float y = INSIDE ? spot.y : fminf(fmaxf(spot.y, -height - 4.0f), 2.0f * height + 4.0f);
        const float left = floorf(x), top = floorf(y), dx = x - left, dy = y - top;
        const int column = (int)left, row = (int)top;
        const sample_t* four = plane.samples + (row * columns + column) * CHANNELS;
        const whole upper = INSIDE ? *(const whole*)four : 0;
        const whole lower = INSIDE ? *(const whole*)(four + columns * CHANNELS) : 0;
        UNROLLED
        for (int channel = 0; channel < CHANNELS; channel++) {
            const auto at = [&](int down, int right) INLINED {
                if (INSIDE)
                    return (float)(sample_t)(
                        (down ? lower : upper) >> SAMPLE_BITS * (right * CHANNELS + channel));
                const int r = inside(row + down, rows, border);
                const int c = inside(column + right, columns, border);
                const int sample = plane.samples[(r * columns + c) * CHANNELS + channel];
                const bool is_border = border >= 0 && (r != row + down || c != column + right);
                return (float)(is_border ? border : sample);
            };
            const float first = at(0, 0) + dy * (at(1, 0) - at(0, 0));
            const float second = at(0, 1) + dy * (at(1, 1) - at(0, 1));
            sums[channel][pixel] += nearest(first + dx * (second - first));
        }
    }
}

#if !ON_DEVICE
#define BLENDED 256 // columns of a plane that a run of upright pixels may need

// As add_bilinear, where rows of the input lie along rows of the plane: these are blended first, each
// column once. False, with nothing added, where that would take too many columns.
template <int CHANNELS>
static inline bool add_upright(const Plane& plane, int first_u, int v, int count, int (*sums)[RUN])
{
    const int columns = plane.columns, rows = plane.rows, border = plane.border;
    const float width = (float)columns, height = (float)rows;
    int lefts[RUN], rights[RUN];
    float parts[RUN];
    INDEPENDENT
    for (int pixel = 0; pixel < count; pixel++) {
        const Spot spot(plane, first_u + pixel * plane.taps, v);
        const float x = fminf(fmaxf(spot.x, -width - 4.0f), 2.0f * width + 4.0f), left = floorf(x);
        parts[pixel] = x - left;
        lefts[pixel] = inside((int)left, columns, border);
        rights[pixel] = inside((int)left + 1, columns, border);
    }
    int low = columns, high = 0;
    for (int pixel = 0; pixel < count; pixel++) {
        low = min(low, min(lefts[pixel], rights[pixel]));
        high = max(high, max(lefts[pixel], rights[pixel]));
    }
    if (high - low >= BLENDED)
        return false;
    const Spot spot(plane, first_u, v);
    const float y = fminf(fmaxf(spot.y, -height - 4.0f), 2.0f * height + 4.0f), top = floorf(y);
    const float dy = y - top;
    const sample_t* upper = plane.samples + inside((int)top, rows, border) * columns * CHANNELS;
    const sample_t* lower = plane.samples + inside((int)top + 1, rows, border) * columns * CHANNELS;
    for (int channel = 0; channel < CHANNELS; channel++) {
        float blended[BLENDED];
        INDEPENDENT
        for (int at = 0; at <= high - low; at++) {
            const int sample = (low + at) * CHANNELS + channel;
            const float above = (float)upper[sample];
            blended[at] = above + dy * ((float)lower[sample] - above);
        }
        INDEPENDENT
        for (int pixel = 0; pixel < count; pixel++) {
            const float first = blended[lefts[pixel] - low], second = blended[rights[pixel] - low];
            sums[channel][pixel] += nearest(first + parts[pixel] * (second - first));
        }
    }
    return true;
}
#endif

// Means of taps x taps samples for pixels in a row, as 8 bits.
template <int CHANNELS>
OUTLINED void sample_run(const Plane& plane, int y, int x, int count, int (*codes)[RUN])
{
    const int taps = plane.taps;
    for (int channel = 0; channel < CHANNELS; channel++)
        for (int pixel = 0; pixel < count; pixel++)
            codes[channel][pixel] = 0;
    for (int tap = 0; tap < taps * taps; tap++) {
        const int u = x * taps + tap % taps, v = y * taps + tap / taps;
#if !ON_DEVICE
        const bool is_upright = plane.y_x == 0.0f && plane.x_y == 0.0f && plane.border < 0;
        if (is_upright && add_upright<CHANNELS>(plane, u, v, count, codes))
            continue;
#endif
        const Spot first(plane, u, v), last(plane, u + (count - 1) * taps, v);
        if (!ON_DEVICE && first.is_inside(plane) && last.is_inside(plane))
            add_bilinear<CHANNELS, true>(plane, u, v, count, codes);
        else
            add_bilinear<CHANNELS, false>(plane, u, v, count, codes);
    }
    for (int channel = 0; channel < CHANNELS; channel++)
        for (int pixel = 0; pixel < count; pixel++) {
            const float mean = (float)codes[channel][pixel] / (float)(taps * taps);
            codes[channel][pixel] = to_eight_bits(nearest(mean));
        }
}

// matrix: 3 x 4 int32 in 1/1024 for (Y, Cb, Cr, 1), the half for rounding included; norm: 3 gains,
// 3 biases. tensor: (count, 3, height, width) float32. Covers (count * height, width).
KERNEL(warp_views)(
    const View* views, const int* matrix, const float* norm, float* tensor, int height, int width,
    int count)
{
    for_runs(count * height, width, 1, RUN, [&](int row, int x, int pixels) INLINED {
        const int item = row / height, y = row % height;
        int codes[3][RUN];
        sample_run<1>(views[item].luma, y, x, pixels, codes);
        sample_run<2>(views[item].chroma, y, x, pixels, codes + 1);
        for (int channel = 0; channel < 3; channel++) {
            float* target = tensor + ((size_t)(item * 3 + channel) * height + y) * width + x;
            for (int pixel = 0; pixel < pixels; pixel++) {
                const int value = rgb_code(
                    matrix + 4 * channel, codes[0][pixel], codes[1][pixel], codes[2][pixel]);
                target[pixel] = (float)value * norm[channel] + norm[3 + channel];
            }
        }
    });
}
