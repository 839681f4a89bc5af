// The OBS matte's steps at frame size; what the host has not is OpenCV's there (bgsoft/matte/obs.py).
// Planes are (rows, columns) uint8 background masks, 255 = background.

#include "drivers.cuh"
#include "matte.cuh"

// The small mask enlarged by tables (see resample.cuh); above 128 becomes 255 and the rest 0 where
// `binarise`.
KERNEL(obs_enlarge)(
    const u8 *mask, int pitch, const float *x_table, int x_stride, const float *y_table,
    int y_stride, int mode, u8 *out, int binarise, int rows, int columns)
{
    for_apart(rows, columns, [=](int y, int x) INLINED {
        const int value =
            resized_byte(mask, pitch, x_table, x_stride, y_table, y_stride, mode, y, x);
        out[y * columns + x] = (u8)(binarise ? (value > 128 ? 255 : 0) : value);
    });
}

#if ON_DEVICE
// Extreme over `reach` samples each way along one axis; samples outside don't count.
DEVICE_KERNEL(obs_extreme)(
    const u8* __restrict__ plane, u8* __restrict__ out, int reach, int largest, int along_rows,
    int rows, int columns)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= columns || y >= rows)
        return;
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
}

// Sums over 2 * radius + 1 samples along a row, mirrored at the edges (BORDER_REFLECT_101).
// One thread 32 samples.
DEVICE_KERNEL(obs_row_sums)(
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
DEVICE_KERNEL(obs_column_means)(
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

// Background to alpha.
KERNEL(obs_invert)(const u8 *background, u8 *alpha, int rows, int columns)
{
    for_apart(rows, columns, [=](int y, int x) INLINED {
        const size_t at = (size_t)y * columns + x;
        alpha[at] = (u8)(255 - background[at]);
    });
}
