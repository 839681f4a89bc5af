// Moving and feathering edges of uint8 planes; what the host has not is OpenCV's there
// (bgsoft/matte/contour.py, bgsoft/matte/obs.py).

#include "drivers.cuh"
#include "matte.cuh"

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

// Mean over squares of 2 * radius + 1, to nearest; the edges are mirrored (BORDER_REFLECT_101), or
// their samples repeated.
DEVICE_KERNEL(box_blur)(
    const u8* __restrict__ plane, u8* __restrict__ out, int radius, int repeat, int rows, int columns)
{
    for_samples(rows, columns, [=](int y, int x) {
        const auto within = [=](int at, int size) {
            return repeat ? clamp_int(at, 0, size - 1) : reflect(at, size);
        };
        int sum = 0, side = 2 * radius + 1;
        for (int dy = -radius; dy <= radius; dy++) {
            const u8* line = plane + within(y + dy, rows) * columns;
            for (int dx = -radius; dx <= radius; dx++)
                sum += line[within(x + dx, columns)];
        }
        out[y * columns + x] = (u8)((sum + side * side / 2) / (side * side));
    });
}

// Extreme over `reach` samples each way along one axis; samples outside don't count.
DEVICE_KERNEL(extreme)(
    const u8* __restrict__ plane, u8* __restrict__ out, int reach, int largest, int along_rows,
    int rows, int columns)
{
    for_samples(rows, columns, [=](int y, int x) {
        int at = along_rows ? x : y, size = along_rows ? columns : rows;
        int stride = along_rows ? 1 : columns;
        const u8* line = plane + (along_rows ? y * columns : x);
        int stop = min(at + reach, size - 1), end = largest ? 255 : 0;
        int best = line[at * stride];
        for (int i = max(at - reach, 0); i <= stop && best != end; i++) {
            int value = line[i * stride];
            best = largest ? max(best, value) : min(best, value);
        }
        out[y * columns + x] = (u8)best;
    });
}

// Sums over 2 * radius + 1 samples along a row, mirrored at the edges (BORDER_REFLECT_101).
// One thread 32 samples.
DEVICE_KERNEL(row_sums)(
    const u8* __restrict__ plane, int* __restrict__ sums, int radius, int rows, int columns)
{
    int x = (blockIdx.x * blockDim.x + threadIdx.x) * 32;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= columns || y >= rows)
        return;
    const u8* line = plane + y * columns;
    int sum = 0;
    for (int i = x - radius; i <= x + radius; i++)
        sum += line[reflect(i, columns)];
    for (int end = min(x + 32, columns); x < end; x++) {
        sums[y * columns + x] = sum;
        sum += line[reflect(x + radius + 1, columns)] - line[reflect(x - radius, columns)];
    }
}

// Means of (2 * radius + 1)^2 samples from the row sums, to nearest. One thread 32 rows of a column.
DEVICE_KERNEL(column_means)(
    const int* __restrict__ sums, u8* __restrict__ out, int radius, int rows, int columns)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = (blockIdx.y * blockDim.y + threadIdx.y) * 32;
    if (x >= columns || y >= rows)
        return;
    int area = (2 * radius + 1) * (2 * radius + 1), sum = area / 2;
    for (int i = y - radius; i <= y + radius; i++)
        sum += sums[reflect(i, rows) * columns + x];
    for (int end = min(y + 32, rows); y < end; y++) {
        out[y * columns + x] = (u8)(sum / area);
        sum += sums[reflect(y + radius + 1, rows) * columns + x];
        sum -= sums[reflect(y - radius, rows) * columns + x];
    }
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
