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
    int border;  // sample beyond the edges; negative: the edges' own
};

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

template <int CHANNELS, bool INSIDE>
OP float sample_at(const Plane& plane, int row, int column, int channel)
{
    const int y = INSIDE ? row : clamp_int(row, 0, plane.rows - 1);
    const int x = INSIDE ? column : clamp_int(column, 0, plane.columns - 1);
    const int sample = plane.samples[(y * plane.columns + x) * CHANNELS + channel];
    return (float)(plane.border >= 0 && (y != row || x != column) ? plane.border : sample);
}

// Adds bilinear samples at `v`, of every `taps`-th `u` from the first on, to those of pixels in a row.
template <int CHANNELS, bool INSIDE>
OP void add_bilinear(const Plane& plane, int first_u, int v, int count, int (*sums)[RUN])
{
    INDEPENDENT
    for (int pixel = 0; pixel < count; pixel++) {
        const Spot spot(plane, first_u + pixel * plane.taps, v);
        // Far outside, where a whole number would overflow, everything is border.
        const float x = INSIDE ? spot.x : fminf(fmaxf(spot.x, -4.0f), (float)plane.columns + 4.0f);
        const float y = INSIDE ? spot.y : fminf(fmaxf(spot.y, -4.0f), (float)plane.rows + 4.0f);
        const float left = floorf(x), top = floorf(y), dx = x - left, dy = y - top;
        UNROLLED
        for (int channel = 0; channel < CHANNELS; channel++) {
            const auto at = [&](int down, int right) INLINED {
                return sample_at<CHANNELS, INSIDE>(
                    plane, (int)top + down, (int)left + right, channel);
            };
            const float first = at(0, 0) + dy * (at(1, 0) - at(0, 0));
            const float second = at(0, 1) + dy * (at(1, 1) - at(0, 1));
            sums[channel][pixel] += nearest(first + dx * (second - first));
        }
    }
}

// Means of taps x taps samples for pixels in a row, as 8 bits.
template <int CHANNELS>
OP void look(const Plane& plane, int y, int x, int count, int (*codes)[RUN])
{
    const int taps = plane.taps;
    for (int channel = 0; channel < CHANNELS; channel++)
        for (int pixel = 0; pixel < count; pixel++)
            codes[channel][pixel] = 0;
    for (int tap = 0; tap < taps * taps; tap++) {
        const int u = x * taps + tap % taps, v = y * taps + tap / taps;
        const Spot first(plane, u, v), last(plane, u + (count - 1) * taps, v);
        // On the host that takes two thirds of the time.
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
// 3 biases. tensor: (count, 3, size, size) float32. Covers (count * size, size).
KERNEL(warp_views)(
    const View* views, const int* matrix, const float* norm, float* tensor, int size, int count)
{
    for_runs(count * size, size, 1, RUN, [&](int row, int x, int pixels) INLINED {
        const int item = row / size, y = row % size;
        int codes[3][RUN];
        look<1>(views[item].luma, y, x, pixels, codes);
        look<2>(views[item].chroma, y, x, pixels, codes + 1);
        for (int channel = 0; channel < 3; channel++) {
            float* target = tensor + ((size_t)(item * 3 + channel) * size + y) * size + x;
            for (int pixel = 0; pixel < pixels; pixel++) {
                const int value = rgb_code(
                    matrix + 4 * channel, codes[0][pixel], codes[1][pixel], codes[2][pixel]);
                target[pixel] = (float)value * norm[channel] + norm[3 + channel];
            }
        }
    });
}
