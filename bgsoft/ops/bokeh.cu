// Defocus: cells averaged over an anti-aliased disc, highlights counting more.
//
// Launched by bgsoft/composite/filters.py, which does the same on the host in the frequency domain;
// results agree but for float32 rounding.
#include "background.cuh"

#define TILE_COLUMNS 32
#define THREAD_ROWS 4
#define OUTPUTS 4  // one below the other in each thread
#define TILE_ROWS (THREAD_ROWS * OUTPUTS)

// What a cell counts: 1 + gain * y^6, y the luma between black and white.
OP float highlight(float luma, float black, float span, float gain)
{
    const float y = fminf(fmaxf((luma - black) / span, 0.0f), 1.0f);
    const float squared = y * y;
    return squared * squared * squared * gain + 1.0f;
}

OP void add_scaled(float4 &sum, float4 value, float weight)
{
    sum.x = fmaf(value.x, weight, sum.x);
    sum.y = fmaf(value.y, weight, sum.y);
    sum.z = fmaf(value.z, weight, sum.z);
    sum.w = fmaf(value.w, weight, sum.w);
}

// Planes of the same size, two of chroma or all three, averaged over the disc; or luma alone, three times.
// The weight is luma's, averaged over the area of a sample where that is larger. By a block of
// (TILE_COLUMNS, THREAD_ROWS) with a tile of (TILE_ROWS + 2·reach) × (TILE_COLUMNS + 2·reach) values.
//
// plan: rows, columns and reach, rows and columns of luma, its offset in `source`, then the offsets of
// three planes in `source` and in `target`. disc: (2·reach + 1)² weights; half_heights: of each of its
// columns, how many rows next to the middle one are not zero.
DEVICE_KERNEL(bokeh)(
    const int *plan, const float *disc, const int *half_heights, const u16 *source, u16 *target,
    float black, float span, float gain)
{
    extern __shared__ float4 tile[];
    const int rows = plan[0], columns = plan[1], reach = plan[2];
    const int luma_rows = plan[3], luma_columns = plan[4];
    const u16 *luma = source + plan[5];
    const float high = (float)luma_rows / (float)rows, wide = (float)luma_columns / (float)columns;
    const auto read = [=](int y, int x) {
        const float top = (float)y * high, left = (float)x * wide;
        const float bottom = fminf(top + high, (float)luma_rows);
        const float right = fminf(left + wide, (float)luma_columns);
        float sum = 0.0f;
        for (int row = (int)top; (float)row < bottom; ++row) {
            const float rise = fminf((float)row + 1.0f, bottom) - fmaxf((float)row, top);
            for (int column = (int)left; (float)column < right; ++column) {
                const float run = fminf((float)column + 1.0f, right) - fmaxf((float)column, left);
                const float value = (float)luma[row * luma_columns + column];
                sum += highlight(value, black, span, gain) * (rise * run);
            }
        }
        const float weight = sum / ((bottom - top) * (right - left));
        const u16 *cell = source + y * columns + x;
        return make_float4(
            (float)cell[plan[6]] * weight, (float)cell[plan[7]] * weight,
            (float)cell[plan[8]] * weight, weight);
    };
    const int left = blockIdx.x * TILE_COLUMNS, top = blockIdx.y * TILE_ROWS;
    const int width = TILE_COLUMNS + 2 * reach, height = TILE_ROWS + 2 * reach;
    for (int row = threadIdx.y; row < height; row += THREAD_ROWS) {
        const int y = reflected(top + row - reach, rows);
        for (int column = threadIdx.x; column < width; column += TILE_COLUMNS)
            tile[row * width + column] = read(y, reflected(left + column - reach, columns));
    }
    __syncthreads();
    const int side = 2 * reach + 1;
    const int first_row = threadIdx.y * OUTPUTS;
    float4 sum[OUTPUTS] = {};
    for (int tap = 0; tap < side; ++tap) {
        const int half = half_heights[tap];
        const float *column = disc + (reach - half) * side + tap;
        const float4 *values = tile + (first_row + reach - half) * width + threadIdx.x + tap;
        // Each value counts for all outputs, with weights that move down the disc's column.
        float weight[OUTPUTS] = {};
        for (int step = 0; step <= 2 * half + OUTPUTS - 1; ++step) {
            for (int output = OUTPUTS - 1; output > 0; --output)
                weight[output] = weight[output - 1];
            weight[0] = step <= 2 * half ? column[step * side] : 0.0f;
            const float4 value = values[step * width];
            for (int output = 0; output < OUTPUTS; ++output)
                add_scaled(sum[output], value, weight[output]);
        }
    }
    const int x = left + threadIdx.x;
    for (int output = 0; output < OUTPUTS; ++output) {
        const int y = top + first_row + output;
        if (x >= columns || y >= rows)
            continue;
        u16 *cell = target + y * columns + x;
        cell[plan[9]] = to_cell(sum[output].x / sum[output].w);
        cell[plan[10]] = to_cell(sum[output].y / sum[output].w);
        cell[plan[11]] = to_cell(sum[output].z / sum[output].w);
    }
}
