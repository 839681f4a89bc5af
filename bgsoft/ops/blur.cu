// Gaussian blur of the background's cells, along rows first; the result is rounded halves up.
//
// Launched by bgsoft/composite/filters.py.
#include "background.cuh"
#include "drivers.cuh"

#if ON_DEVICE
#define TILE 32
#define MAX_REACH 15
#define SPAN (TILE + 2 * MAX_REACH)
#else
#define RUN 64

// RUN sums of samples `step` apart, each times its weight.
OP void weigh(const float *samples, size_t step, const float *taps, int count, float sums[RUN])
{
    for (int index = 0; index < RUN; ++index)
        sums[index] = 0.0f;
    for (int tap = 0; tap < count; ++tap)
        for (int index = 0; index < RUN; ++index)
            sums[index] += samples[tap * step + index] * taps[tap];
}

// One plane. scratch: room for rows of whole runs, `reach` more above and below, and for one more
// row with `reach` more on each side.
static void blur(
    const u16 *cells, u16 *target, int rows, int columns, const float *taps, int reach,
    float *scratch)
{
    const int count = 2 * reach + 1, pitch = (columns + RUN - 1) / RUN * RUN;
    float *along = scratch + (size_t)reach * pitch;
    float *line = along + (size_t)(rows + reach) * pitch;
    for (int y = 0; y < rows; ++y) {
        for (int x = 0; x < columns; ++x)
            line[reach + x] = (float)cells[y * columns + x];
        for (int x = -reach; x < 0; ++x)
            line[reach + x] = line[reach + reflected(x, columns)];
        for (int x = columns; x < columns + reach; ++x)
            line[reach + x] = line[reach + reflected(x, columns)];
        for (int x = 0; x < pitch; x += RUN)
            weigh(line + x, 1, taps, count, along + (size_t)y * pitch + x);
    }
    for (int step = 1; step <= reach; ++step)
        for (int x = 0; x < pitch; ++x) {
            along[x - (long)step * pitch] = along[x + (long)reflected(-step, rows) * pitch];
            along[x + (long)(rows - 1 + step) * pitch]
                = along[x + (long)reflected(rows - 1 + step, rows) * pitch];
        }
    for_runs(rows, columns, 1, RUN, [&](int y, int x, int length) INLINED {
        float sums[RUN];
        weigh(along + ((long)y - reach) * pitch + x, pitch, taps, count, sums);
        for (int index = 0; index < RUN; ++index)
            if (index < length)
                target[(size_t)y * columns + x + index] = to_cell(sums[index]);
    });
}
#endif

// blockIdx.z = 0 (luma), 1 (Cb), 2 (Cr), in tiles of TILE × TILE cells.
//
// plan: for each plane rows, columns, reach (cells to each side), the offset of its 2·reach + 1
// weights in `taps`, and the offsets of the plane in `source` and `target`. Blocks of (TILE, 8).
// scratch: of the host, see blur().
KERNEL(blur_planes)(
    const int *plan, const float *taps, const u16 *source, u16 *target, float *scratch)
{
#if ON_DEVICE
    __shared__ float tile[SPAN][SPAN + 1];
    __shared__ float along[SPAN][TILE];
    __shared__ float weights[2 * MAX_REACH + 1];
    const int *plane = plan + 6 * blockIdx.z;
    const int rows = plane[0], columns = plane[1], reach = plane[2];
    const int left = blockIdx.x * TILE, top = blockIdx.y * TILE;
    if (left >= columns || top >= rows)
        return;  // the whole block
    const u16 *cells = source + plane[4];
    const int span = TILE + 2 * reach, thread = threadIdx.y * TILE + threadIdx.x;
    if (thread <= 2 * reach)
        weights[thread] = taps[plane[3] + thread];
    for (int row = threadIdx.y; row < span; row += blockDim.y) {
        const u16 *line = cells + reflected(top + row - reach, rows) * columns;
        for (int column = threadIdx.x; column < span; column += TILE)
            tile[row][column] = (float)line[reflected(left + column - reach, columns)];
    }
    __syncthreads();
    for (int row = threadIdx.y; row < span; row += blockDim.y) {
        float sum = 0.0f;
        for (int tap = 0; tap <= 2 * reach; ++tap)
            sum += tile[row][threadIdx.x + tap] * weights[tap];
        along[row][threadIdx.x] = sum;
    }
    __syncthreads();
    const int x = left + threadIdx.x;
    if (x >= columns)
        return;
    for (int row = threadIdx.y; row < TILE && top + row < rows; row += blockDim.y) {
        float sum = 0.0f;
        for (int tap = 0; tap <= 2 * reach; ++tap)
            sum += along[row + tap][threadIdx.x] * weights[tap];
        target[plane[5] + (top + row) * columns + x] = to_cell(sum);
    }
#else
    for (const int *plane = plan; plane < plan + 18; plane += 6)
        blur(
            source + plane[4], target + plane[5], plane[0], plane[1], taps + plane[3], plane[2],
            scratch);
#endif
}
