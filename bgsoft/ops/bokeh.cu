// Defocus: cells averaged over an anti-aliased disc, highlights counting more.
//
// Launched by bgsoft/composite/filters.py, which does the same on the host in the frequency domain;
// results agree but for float32 rounding.
#include "background.cuh"

#define TILE_COLUMNS 32
#define THREAD_ROWS 4
#define OUTPUTS 4  // one below the other in each thread
#define TILE_ROWS (THREAD_ROWS * OUTPUTS)

struct Highlights {
    float black, span, gain;

    // 1 + gain * y^6, y the luma between black and white.
    OP float weight(float luma) const
    {
        const float y = fminf(fmaxf((luma - black) / span, 0.0f), 1.0f);
        const float squared = y * y;
        return squared * squared * squared * gain + 1.0f;
    }
};

OP void add_scaled(float2 &sum, float2 value, float weight)
{
    sum.x = fmaf(value.x, weight, sum.x);
    sum.y = fmaf(value.y, weight, sum.y);
}

OP void add_scaled(float4 &sum, float4 value, float weight)
{
    sum.x = fmaf(value.x, weight, sum.x);
    sum.y = fmaf(value.y, weight, sum.y);
    sum.z = fmaf(value.z, weight, sum.z);
    sum.w = fmaf(value.w, weight, sum.w);
}

// Averages of read(y, x) over the disc, handed to write(y, x, sum); by a block of (TILE_COLUMNS,
// THREAD_ROWS) with a tile of (TILE_ROWS + 2·reach) × (TILE_COLUMNS + 2·reach) values.
//
// disc: (2·reach + 1)² weights; half_heights: of each of its columns, how many rows next to the
// middle one are not zero.
template <class Value, class Read, class Write>
OP void average(
    Value *tile, const float *disc, const int *half_heights, int reach, int rows, int columns,
    Read read, Write write)
{
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
    Value sum[OUTPUTS] = {};
    for (int tap = 0; tap < side; ++tap) {
        const int half = half_heights[tap];
        const float *column = disc + (reach - half) * side + tap;
        const Value *values = tile + (first_row + reach - half) * width + threadIdx.x + tap;
        // Each value counts for all outputs, with weights that move down the disc's column.
        float weight[OUTPUTS] = {};
        for (int step = 0; step <= 2 * half + OUTPUTS - 1; ++step) {
            for (int output = OUTPUTS - 1; output > 0; --output)
                weight[output] = weight[output - 1];
            weight[0] = step <= 2 * half ? column[step * side] : 0.0f;
            const Value value = values[step * width];
            for (int output = 0; output < OUTPUTS; ++output)
                add_scaled(sum[output], value, weight[output]);
        }
    }
    const int x = left + threadIdx.x;
    for (int output = 0; output < OUTPUTS; ++output) {
        const int y = top + first_row + output;
        if (x < columns && y < rows)
            write(y, x, sum[output]);
    }
}

// All three planes, where they are of the same size.
//
// plan: rows, columns and reach, then the offsets of luma, Cb and Cr in `source` and in `target`.
extern "C" __global__ void bokeh_together(
    const int *plan, const float *disc, const int *half_heights, const u16 *source, u16 *target,
    float black, float span, float gain)
{
    extern __shared__ float4 values[];
    const int columns = plan[1];
    const Highlights highlights = {black, span, gain};
    const u16 *luma = source + plan[3], *cb = source + plan[4], *cr = source + plan[5];
    u16 *to_luma = target + plan[6], *to_cb = target + plan[7], *to_cr = target + plan[8];
    average<float4>(
        values, disc, half_heights, plan[2], plan[0], columns,
        [=](int y, int x) {
            const int at = y * columns + x;
            const float weight = highlights.weight((float)luma[at]);
            return make_float4(
                (float)luma[at] * weight, (float)cb[at] * weight, (float)cr[at] * weight, weight);
        },
        [=](int y, int x, float4 sum) {
            const int at = y * columns + x;
            to_luma[at] = to_cell(sum.x / sum.w);
            to_cb[at] = to_cell(sum.y / sum.w);
            to_cr[at] = to_cell(sum.z / sum.w);
        });
}

// Luma alone; plan: rows, columns, reach and the offsets in `source` and `target`.
extern "C" __global__ void bokeh_luma(
    const int *plan, const float *disc, const int *half_heights, const u16 *source, u16 *target,
    float black, float span, float gain)
{
    extern __shared__ float2 pairs[];
    const int columns = plan[1];
    const Highlights highlights = {black, span, gain};
    const u16 *luma = source + plan[3];
    u16 *to_luma = target + plan[4];
    average<float2>(
        pairs, disc, half_heights, plan[2], plan[0], columns,
        [=](int y, int x) {
            const float value = (float)luma[y * columns + x];
            const float weight = highlights.weight(value);
            return make_float2(value * weight, weight);
        },
        [=](int y, int x, float2 sum) { to_luma[y * columns + x] = to_cell(sum.x / sum.y); });
}

// Chroma of about half of luma's size; the weight is luma's, averaged over the area of a sample.
//
// plan: rows, columns and reach, rows and columns of luma, then the offsets of luma, Cb and Cr in
// `source` and of Cb and Cr in `target`.
extern "C" __global__ void bokeh_chroma(
    const int *plan, const float *disc, const int *half_heights, const u16 *source, u16 *target,
    float black, float span, float gain)
{
    extern __shared__ float4 values[];
    const int rows = plan[0], columns = plan[1], luma_rows = plan[3], luma_columns = plan[4];
    const Highlights highlights = {black, span, gain};
    const u16 *luma = source + plan[5], *cb = source + plan[6], *cr = source + plan[7];
    u16 *to_cb = target + plan[8], *to_cr = target + plan[9];
    const float high = (float)luma_rows / (float)rows, wide = (float)luma_columns / (float)columns;
    average<float4>(
        values, disc, half_heights, plan[2], rows, columns,
        [=](int y, int x) {
            const float top = (float)y * high, left = (float)x * wide;
            const float bottom = fminf(top + high, (float)luma_rows);
            const float right = fminf(left + wide, (float)luma_columns);
            float sum = 0.0f;
            for (int row = (int)top; (float)row < bottom; ++row) {
                const float rise = fminf((float)row + 1.0f, bottom) - fmaxf((float)row, top);
                for (int column = (int)left; (float)column < right; ++column) {
                    const float run
                        = fminf((float)column + 1.0f, right) - fmaxf((float)column, left);
                    const float value = (float)luma[row * luma_columns + column];
                    sum += highlights.weight(value) * (rise * run);
                }
            }
            const float weight = sum / ((bottom - top) * (right - left));
            const int at = y * columns + x;
            return make_float4((float)cb[at] * weight, (float)cr[at] * weight, weight, 0.0f);
        },
        [=](int y, int x, float4 sum) {
            const int at = y * columns + x;
            to_cb[at] = to_cell(sum.x / sum.z);
            to_cr[at] = to_cell(sum.y / sum.z);
        });
}
