// Guided filter on half the frame, with windows at every second cell; evaluate_smooth of
// matte_guided.cu puts the result on the frame. Counterpart: GuidedFilter in bgsoft/matte/edge.py,
// with a spacing of 2. All float32, as there; samples scaled to 0-1. Then what steadies the edge over
// time; counterpart: bgsoft/matte/steady.py.

#include "matte.cuh"

// Of alpha and the picture, means of what is needed for the fit, over pairs of half cells each way.
#define MOMENTS 13

// Sample (x, y) of half a (height, width) plane.
OP int half_sample(
    const u8* __restrict__ plane, int x, int y, int height, int width)
{
    bool has_right = 2 * x + 1 < width, has_bottom = 2 * y + 1 < height;
    const u8* at = plane + (size_t)(2 * y) * width + 2 * x;
    int values[4] = {at[0], 0, 0, 0};
    if (has_right)
        values[1] = at[1];
    if (has_bottom)
        values[2] = at[width];
    if (has_right && has_bottom)
        values[3] = at[width + 1];
    return halve(values, has_right, has_bottom);
}

// alpha, luma: (height, width) uint8. chroma: (half_rows, half_columns, 2) uint8. moments:
// (MOMENTS, rows, columns) float32, a window centre each: alpha, luma, Cb, Cr; alpha by these
// three; their products by the upper triangle, row by row. Widens the box in the flags, in half
// cells, where alpha is not flat.
extern "C" __global__ void fine_moments(
    const u8* __restrict__ alpha, const u8* __restrict__ luma, const u8* __restrict__ chroma,
    float* __restrict__ moments, int* flags, int height, int width, int rows, int columns)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= columns || y >= rows)
        return;
    int half_rows = (height + 1) / 2, half_columns = (width + 1) / 2;
    int sums[MOMENTS];
    for (int i = 0; i < MOMENTS; i++)
        sums[i] = 0;
    int count = 0, first = half_sample(alpha, 2 * x, 2 * y, height, width);
    bool uneven = false;
    for (int part = 0; part < 4; part++) {
        int hx = 2 * x + (part & 1), hy = 2 * y + (part >> 1);
        if (hx >= half_columns || hy >= half_rows)
            continue;
        int a = half_sample(alpha, hx, hy, height, width);
        const u8* pair = chroma + 2 * ((size_t)hy * half_columns + hx);
        int g[3] = {half_sample(luma, hx, hy, height, width), pair[0], pair[1]};
        uneven = uneven || a != first;
        sums[0] += a;
        int at = 7;
        for (int i = 0; i < 3; i++) {
            sums[1 + i] += g[i];
            sums[4 + i] += a * g[i];
            for (int j = i; j < 3; j++)
                sums[at++] += g[i] * g[j];
        }
        count++;
    }
    // A step may lie right between two centres.
    if (2 * x + 2 < half_columns)
        uneven = uneven || half_sample(alpha, 2 * x + 2, 2 * y, height, width) != first;
    if (2 * y + 2 < half_rows)
        uneven = uneven || half_sample(alpha, 2 * x, 2 * y + 2, height, width) != first;
    size_t cells = (size_t)rows * columns, at = (size_t)y * columns + x;
    for (int i = 0; i < MOMENTS; i++) {
        float unit = i < 4 ? 255.0f : 65025.0f;
        moments[i * cells + at] = (float)sums[i] / (unit * (float)count);
    }
    if (uneven) {
        atomicMin(flags + FLAG_LEFT, 2 * x);
        atomicMax(flags + FLAG_RIGHT, 2 * x + 1);
        atomicMin(flags + FLAG_TOP, 2 * y);
        atomicMax(flags + FLAG_BOTTOM, 2 * y + 1);
    }
}

// The function of least squares of every window of 2 * radius + 1 centres each way, those at the
// edges repeated. fits: (rows, columns, 4) float32: factors of luma, Cb and Cr, constant.
extern "C" __global__ void fine_fit(
    const float* __restrict__ moments, float4* __restrict__ fits, int radius, float epsilon,
    int rows, int columns)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= columns || y >= rows)
        return;
    size_t cells = (size_t)rows * columns;
    float m[MOMENTS];
    for (int i = 0; i < MOMENTS; i++)
        m[i] = 0.0f;
    for (int dy = -radius; dy <= radius; dy++)
        for (int dx = -radius; dx <= radius; dx++) {
            size_t at = (size_t)clamp_int(y + dy, 0, rows - 1) * columns
                + clamp_int(x + dx, 0, columns - 1);
            for (int i = 0; i < MOMENTS; i++)
                m[i] += moments[i * cells + at];
        }
    int side = 2 * radius + 1;
    float share = 1.0f / (float)(side * side);
    for (int i = 0; i < MOMENTS; i++)
        m[i] *= share;
    float f[3] = {m[4] - m[1] * m[0], m[5] - m[2] * m[0], m[6] - m[3] * m[0]};
    solve(
        m[7] - m[1] * m[1] + epsilon, m[8] - m[1] * m[2], m[9] - m[1] * m[3],
        m[10] - m[2] * m[2] + epsilon, m[11] - m[2] * m[3], m[12] - m[3] * m[3] + epsilon, f);
    float rest = m[0] - f[0] * m[1];
    rest -= f[1] * m[2];
    rest -= f[2] * m[3];
    fits[(size_t)y * columns + x] = make_float4(f[0], f[1], f[2], rest);
}

// Functions averaged over the windows that a centre lies in.
extern "C" __global__ void fine_average(
    const float4* __restrict__ fits, float4* __restrict__ averaged, int radius, int rows,
    int columns)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= columns || y >= rows)
        return;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int dy = -radius; dy <= radius; dy++)
        for (int dx = -radius; dx <= radius; dx++) {
            float4 fit = fits[(size_t)clamp_int(y + dy, 0, rows - 1) * columns
                              + clamp_int(x + dx, 0, columns - 1)];
            sum.x += fit.x;
            sum.y += fit.y;
            sum.z += fit.z;
            sum.w += fit.w;
        }
    int side = 2 * radius + 1;
    float share = 1.0f / (float)(side * side);
    averaged[(size_t)y * columns + x]
        = make_float4(sum.x * share, sum.y * share, sum.z * share, sum.w * share);
}

// Averaged functions enlarged to half cells, their chroma terms evaluated. out: (half_rows,
// half_columns, 2) float32: factor of luma, and the other terms.
extern "C" __global__ void fine_terms(
    const float4* __restrict__ averaged, const u8* __restrict__ chroma, float2* __restrict__ out,
    int half_rows, int half_columns, int rows, int columns)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= half_columns || y >= half_rows)
        return;
    // Twice as many samples: a quarter of a spacing from the centres.
    int right = x & 1, bottom = y & 1;
    int x0 = max(x / 2 - 1 + right, 0), x1 = min(x / 2 + right, columns - 1);
    int y0 = max(y / 2 - 1 + bottom, 0), y1 = min(y / 2 + bottom, rows - 1);
    float wx = right ? 0.25f : 0.75f, wy = bottom ? 0.25f : 0.75f;
    float4 p00 = averaged[(size_t)y0 * columns + x0], p01 = averaged[(size_t)y0 * columns + x1];
    float4 p10 = averaged[(size_t)y1 * columns + x0], p11 = averaged[(size_t)y1 * columns + x1];
    float w00 = (1.0f - wx) * (1.0f - wy), w01 = wx * (1.0f - wy);
    float w10 = (1.0f - wx) * wy, w11 = wx * wy;
    size_t at = (size_t)y * half_columns + x;
    float rest = p00.w * w00 + p01.w * w01 + p10.w * w10 + p11.w * w11;
    rest += (p00.y * w00 + p01.y * w01 + p10.y * w10 + p11.y * w11)
        * ((float)chroma[2 * at] * (1.0f / 255.0f));
    rest += (p00.z * w00 + p01.z * w01 + p10.z * w10 + p11.z * w11)
        * ((float)chroma[2 * at + 1] * (1.0f / 255.0f));
    out[at] = make_float2(p00.x * w00 + p01.x * w01 + p10.x * w10 + p11.x * w11, rest);
}

// How far the matte may stay behind, by what the mean of luma has changed over the window.
//
// luma: (rows, columns) uint8. sums: (rows, columns) uint16, window sums of the last picture;
// replaced. reaches: 256 of them. reach: (rows, columns) uint8.
extern "C" __global__ void steady_reach(
    const u8* __restrict__ luma, u16* __restrict__ sums, const u8* __restrict__ reaches,
    u8* __restrict__ reach, int radius, float luma_steps, int rows, int columns)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= columns || y >= rows)
        return;
    int sum = 0, at = y * columns + x;
    for (int dy = -radius; dy <= radius; dy++)
        for (int dx = -radius; dx <= radius; dx++)
            sum += luma[reflect(y + dy, rows) * columns + reflect(x + dx, columns)];
    reach[at] = reaches[to_byte((float)abs(sum - (int)sums[at]) * luma_steps)];
    sums[at] = (u16)sum;
}

// Moves the matte towards the last one, no further than its reach. One thread a pixel.
//
// alpha, state: (height, width) uint8, replaced by the same. reach: (rows, columns), enlarged
// bilinearly by 1 << shift. share: of the new matte. fresh: there is no last one.
extern "C" __global__ void steady_alpha(
    u8* __restrict__ alpha, u8* __restrict__ state, const u8* __restrict__ reach, int shift,
    float share, int fresh, int rows, int columns, int height, int width)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    size_t at = (size_t)y * width + x;
    int now = alpha[at], value = now;
    // What is clear or opaque stays so.
    int room = min(now, 255 - now);
    if (room > 0 && !fresh) {
        // Positions in 1/2048 of a cell, as in enlarge_alpha.
        int one = 2048 >> (shift + 1);
        int position_y = (2 * y + 1) * one - 1024, position_x = (2 * x + 1) * one - 1024;
        int y0 = position_y >> 11, wy = position_y & 2047;
        int x0 = position_x >> 11, wx = position_x & 2047;
        const u8* above = reach + max(y0, 0) * columns;
        const u8* below = reach + min(y0 + 1, rows - 1) * columns;
        int left = max(x0, 0), right = min(x0 + 1, columns - 1);
        room = min(room, blend_u8(
            above[left], above[right], below[left], below[right], 2048 - wx, wx, 2048 - wy, wy));
        value = to_byte((float)state[at] * (1.0f - share) + (float)now * share);
        value = clamp_int(value, now - room, now + room);
        alpha[at] = (u8)value;
    }
    state[at] = (u8)value;
}
