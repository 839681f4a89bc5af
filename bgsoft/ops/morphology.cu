// Moving and feathering edges of uint8 planes; what the host has not is OpenCV's there
// (bgsoft/matte/contour.py).

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
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= columns || y >= rows)
        return;
    int reach = whole + 1;
    int value = window_extreme(plane, spans, reach, outwards != 0, x, y, rows, columns);
    if (fraction > 0.0f) {
        int more = window_extreme(
            plane, spans + 2 * reach + 1, reach, outwards != 0, x, y, rows, columns);
        value = to_byte((float)value * (1.0f - fraction) + (float)more * fraction);
    }
    out[y * columns + x] = (u8)value;
}

// Mean over squares of 2 * radius + 1, mirrored at the edges (BORDER_REFLECT_101), to nearest.
DEVICE_KERNEL(box_blur)(
    const u8* __restrict__ plane, u8* __restrict__ out, int radius, int rows, int columns)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= columns || y >= rows)
        return;
    int sum = 0, side = 2 * radius + 1;
    for (int dy = -radius; dy <= radius; dy++) {
        const u8* line = plane + reflect(y + dy, rows) * columns;
        for (int dx = -radius; dx <= radius; dx++)
            sum += line[reflect(x + dx, columns)];
    }
    out[y * columns + x] = (u8)((sum + side * side / 2) / (side * side));
}

#endif

// A plane resized by tables (see resample.cuh); the larger of it and `floor_plane` where given.
// plane: (.., pitch); out, floor_plane: (rows, columns).
KERNEL(resize_plane)(
    const u8 *plane, int pitch, const float *x_table, int x_stride, const float *y_table,
    int y_stride, int mode, const u8 *floor_plane, u8 *out, int rows, int columns)
{
    for_apart(rows, columns, [=](int y, int x) INLINED {
        const int value =
            resized_byte(plane, pitch, x_table, x_stride, y_table, y_stride, mode, y, x);
        const int at = y * columns + x;
        out[at] = (u8)(floor_plane ? max(value, (int)floor_plane[at]) : value);
    });
}
