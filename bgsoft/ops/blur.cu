// Gaussian blur of the background's cells.
//
// Counterpart on the CPU: BlurBackground in bgsoft/composite/filters.py (cv2.GaussianBlur on float32
// with BORDER_REFLECT); sums in another order, result rounded halves up.
#include "background.cuh"

#define TILE 32
#define MAX_REACH 15
#define SPAN (TILE + 2 * MAX_REACH)

// Both passes over tiles of TILE × TILE cells, blockIdx.z = 0 (luma), 1 (Cb), 2 (Cr).
//
// plan: for each plane rows, columns, reach (cells to each side), the offset of its 2·reach + 1
// weights in `taps`, and the offsets of the plane in `source` and `target`. Blocks of (TILE, 8).
extern "C" __global__ void blur_planes(
    const int *plan, const float *taps, const u16 *source, u16 *target)
{
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
            sum = fmaf(tile[row][threadIdx.x + tap], weights[tap], sum);
        along[row][threadIdx.x] = sum;
    }
    __syncthreads();
    const int x = left + threadIdx.x;
    if (x >= columns)
        return;
    for (int row = threadIdx.y; row < TILE && top + row < rows; row += blockDim.y) {
        float sum = 0.0f;
        for (int tap = 0; tap <= 2 * reach; ++tap)
            sum = fmaf(along[row + tap][threadIdx.x], weights[tap], sum);
        target[plane[5] + (top + row) * columns + x] = to_cell(sum);
    }
}
