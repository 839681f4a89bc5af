// Moving and feathering edges of uint8 planes; what the host has not is OpenCV's there
// (bgsoft/matte/contour.py, bgsoft/matte/obs.py).

#include "drivers.cuh"
#include "matte.cuh"

// A code of an edge whose ramp is made steeper.
OP int steeper(int code, float slope, float shift)
{
    return to_byte((float)code * slope + shift);
}

#if ON_DEVICE

// Extreme of a plane over rows of a window that is symmetric to both axes; cells outside the plane
// don't count. spans: 2 * reach + 1 half-widths, row by row, -1 for an empty one.
OP int window_extreme(
    const u8* __restrict__ plane, const int* __restrict__ spans, int reach, bool largest, int x,
    int y, int rows, int columns)
{
    int best = plane[y * columns + x], end = largest ? 255 : 0;
    for (int dy = -reach; dy <= reach && best != end; dy++) {
        int span = spans[dy + reach], row = y + dy;
        if (span < 0 || row < 0 || row >= rows)
            continue;
        const u8* line = plane + row * columns;
        int stop = min(x + span, columns - 1);
        for (int at = max(x - span, 0); at <= stop; at++)
            best = largest ? max(best, (int)line[at]) : min(best, (int)line[at]);
    }
    return best;
}

// Dilation (outwards) or erosion by `whole` steps, blended with that by one step more.
// spans: half-widths of the windows of both, 2 * (whole + 1) + 1 values each.
DEVICE_KERNEL(shift_edge)(
    const u8* __restrict__ plane, u8* __restrict__ out, const int* __restrict__ spans, int whole,
    float fraction, int outwards, int rows, int columns)
{
    for_samples(rows, columns, [=](int y, int x) {
        int reach = whole + 1;
        int value = window_extreme(plane, spans, reach, outwards != 0, x, y, rows, columns);
        if (fraction > 0.0f) {
            int more = window_extreme(
                plane, spans + 2 * reach + 1, reach, outwards != 0, x, y, rows, columns);
            value = to_byte(along((float)value, (float)more, fraction));
        }
        out[y * columns + x] = (u8)value;
    });
}

// Mean over squares of 2 * radius + 1, to nearest; the edges are mirrored (BORDER_REFLECT_101).
DEVICE_KERNEL(box_blur)(
    const u8* __restrict__ plane, u8* __restrict__ out, int radius, int rows, int columns)
{
    for_samples(rows, columns, [=](int y, int x) {
        int sum = 0, side = 2 * radius + 1;
        for (int dy = -radius; dy <= radius; dy++) {
            const u8* line = plane + reflect(y + dy, rows) * columns;
            for (int dx = -radius; dx <= radius; dx++)
                sum += line[reflect(x + dx, columns)];
        }
        out[y * columns + x] = (u8)((sum + side * side / 2) / (side * side));
    });
}

// Weighted means of squares, edges repeated, then the ramp; the host's means are OpenCV's. weights:
// 2 * radius + 1 whole numbers that add up to 256.
DEVICE_KERNEL(smooth_contour)(
    const u8 *plane, u8 *out, const int *weights, int radius, float slope, float shift, int rows,
    int columns)
{
    for_samples(rows, columns, [=](int y, int x) {
        int sum = 32768;
        for (int i = -radius; i <= radius; i++) {
            const u8 *row = plane + (size_t)clamp_int(y + i, 0, rows - 1) * columns;
            int line = 0;
            for (int j = -radius; j <= radius; j++)
                line += weights[j + radius] * row[clamp_int(x + j, 0, columns - 1)];
            sum += weights[i + radius] * line;
        }
        out[(size_t)y * columns + x] = (u8)steeper(sum >> 16, slope, shift);
    });
}

// Extreme over `reach` samples each way along one axis; samples outside don't count.
template <class T>
OP void extreme_along(
    const T* plane, T* out, int reach, bool largest, bool along_rows, int rows, int columns)
{
    for_samples(rows, columns, [=](int y, int x) {
        int at = along_rows ? x : y, size = along_rows ? columns : rows;
        int stride = along_rows ? 1 : columns;
        const T* line = plane + (along_rows ? y * columns : x);
        T best = line[at * stride];
        for (int i = max(at - reach, 0); i <= min(at + reach, size - 1); i++)
            best = largest == (line[i * stride] > best) ? line[i * stride] : best;
        out[y * columns + x] = best;
    });
}

DEVICE_KERNEL(extreme)(
    const u8* plane, u8* out, int reach, int largest, int along_rows, int rows, int columns)
{
    extreme_along(plane, out, reach, largest, along_rows, rows, columns);
}

DEVICE_KERNEL(extreme_float)(
    const float* plane, float* out, int reach, int largest, int along_rows, int rows, int columns)
{
    extreme_along(plane, out, reach, largest, along_rows, rows, columns);
}

// Sums over 2 * radius + 1 samples along an axis, mirrored at the edges (BORDER_REFLECT_101), divided
// to nearest.
template <bool ALONG_ROWS, class T, class R>
OP void box_along(const T* plane, R* out, int radius, int divisor, int rows, int columns)
{
    for_samples(rows, columns, [=](int y, int x) {
        int sum = divisor / 2;
        for (int i = -radius; i <= radius; i++)
            sum += ALONG_ROWS ? plane[y * columns + reflect(x + i, columns)]
                              : plane[reflect(y + i, rows) * columns + x];
        out[y * columns + x] = (R)(sum / divisor);
    });
}

DEVICE_KERNEL(row_sums)(const u8* plane, int* sums, int radius, int rows, int columns)
{
    box_along<true>(plane, sums, radius, 1, rows, columns);
}

// Means of squares from the row sums.
DEVICE_KERNEL(column_means)(const int* sums, u8* out, int radius, int rows, int columns)
{
    box_along<false>(sums, out, radius, (2 * radius + 1) * (2 * radius + 1), rows, columns);
}

#else

// The ramp of an edge made steeper, in place: (rows, columns) uint8.
KERNEL(steepen_contour)(u8 *plane, float slope, float shift, int rows, int columns)
{
    for_apart(rows, columns, [=](int y, int x) INLINED {
        u8 &cell = plane[(size_t)y * columns + x];
        cell = (u8)steeper(cell, slope, shift);
    });
}

#endif

// A plane resized by tables (see resample.cuh); the larger of it and `floor_plane` where given. binarise:
// above 128 becomes 255 and the rest 0. plane: (.., pitch); out, floor_plane: (rows, columns).
KERNEL(resize_plane)(
    const u8 *plane, int pitch, const float *x_table, int x_stride, const float *y_table,
    int y_stride, int mode, const u8 *floor_plane, int binarise, u8 *out, int rows, int columns)
{
    for_apart(rows, columns, [=](int y, int x) INLINED {
        const int value =
            resized_byte(plane, pitch, x_table, x_stride, y_table, y_stride, mode, y, x);
        const int at = y * columns + x, shown = binarise ? (value > 128 ? 255 : 0) : value;
        out[at] = (u8)(floor_plane ? max(shown, (int)floor_plane[at]) : shown);
    });
}
