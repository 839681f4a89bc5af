// Guided filter on half the grid, evaluated on the grid, and contour smoothing.
// Counterparts: GuidedFilter and ContourSmoother in bgsoft/matte/edge.py.
// Window sums are whole numbers here, so nothing is lost to cancellation; the rest is float32.

#include "matte.cuh"

#define MAX_RADIUS 6
#define MAX_SMOOTH_RADIUS 16

// Fits alpha to luma, Cb and Cr in every window, and averages the functions over windows.
//
// packed: (rows, columns, 4) uint8: alpha, luma, Cb, Cr. Windows: squares of 2 * radius + 1, edge
// samples repeated. epsilon: added to the guide's variances, of samples scaled to 0-1. out:
// (rows, columns, 2) float32: averaged factor of luma, and the other terms on this picture, alpha
// scaled to 0-1. Widens the box in the flags around cells whose 3 x 3 neighbours are not all equal.
extern "C" __global__ void fit_guided(
    const uchar4* __restrict__ packed, float2* __restrict__ out, int* flags, int radius,
    float epsilon, int rows, int columns)
{
    __shared__ uchar4 tile[8 + 4 * MAX_RADIUS][32 + 4 * MAX_RADIUS];
    __shared__ float4 fits[8 + 2 * MAX_RADIUS][32 + 2 * MAX_RADIUS];
    int left = blockIdx.x * 32, top = blockIdx.y * 8;
    int thread = threadIdx.y * 32 + threadIdx.x;
    int wide = 32 + 4 * radius;
    for (int i = thread; i < wide * (8 + 4 * radius); i += 256) {
        int ty = i / wide, tx = i % wide;
        int y = clamp_int(top - 2 * radius + ty, 0, rows - 1);
        int x = clamp_int(left - 2 * radius + tx, 0, columns - 1);
        tile[ty][tx] = packed[y * columns + x];
    }
    __syncthreads();
    wide = 32 + 2 * radius;
    int side = 2 * radius + 1;
    float count = (float)(side * side);
    // Sums of products times count minus products of sums are count^2 * 255^2 times a covariance.
    float unit = 1.0f / (count * count * 65025.0f);
    for (int i = thread; i < wide * (8 + 2 * radius); i += 256) {
        int fy = i / wide, fx = i % wide;
        // Beyond the edges the functions are repeated: those of the nearest cell.
        int ty = clamp_int(top - radius + fy, 0, rows - 1) - top + radius;
        int tx = clamp_int(left - radius + fx, 0, columns - 1) - left + radius;
        int sa = 0, s0 = 0, s1 = 0, s2 = 0, a0 = 0, a1 = 0, a2 = 0;
        int s00 = 0, s01 = 0, s02 = 0, s11 = 0, s12 = 0, s22 = 0;
        for (int dy = 0; dy < side; dy++)
            for (int dx = 0; dx < side; dx++) {
                uchar4 cell = tile[ty + dy][tx + dx];
                int a = cell.x, g0 = cell.y, g1 = cell.z, g2 = cell.w;
                sa += a;
                s0 += g0;
                s1 += g1;
                s2 += g2;
                a0 += a * g0;
                a1 += a * g1;
                a2 += a * g2;
                s00 += g0 * g0;
                s01 += g0 * g1;
                s02 += g0 * g2;
                s11 += g1 * g1;
                s12 += g1 * g2;
                s22 += g2 * g2;
            }
        long long n = side * side;
        float y[3] = {
            (float)(n * a0 - (long long)sa * s0) * unit,
            (float)(n * a1 - (long long)sa * s1) * unit,
            (float)(n * a2 - (long long)sa * s2) * unit,
        };
        float d0 = (float)(n * s00 - (long long)s0 * s0) * unit + epsilon;
        float c01 = (float)(n * s01 - (long long)s0 * s1) * unit;
        float c02 = (float)(n * s02 - (long long)s0 * s2) * unit;
        float d1 = (float)(n * s11 - (long long)s1 * s1) * unit + epsilon;
        float c12 = (float)(n * s12 - (long long)s1 * s2) * unit;
        float d2 = (float)(n * s22 - (long long)s2 * s2) * unit + epsilon;
        solve(d0, c01, c02, d1, c12, d2, y);
        float mean = 1.0f / (count * 255.0f);
        float rest = (float)sa * mean;
        rest -= y[0] * ((float)s0 * mean);
        rest -= y[1] * ((float)s1 * mean);
        rest -= y[2] * ((float)s2 * mean);
        fits[fy][fx] = make_float4(y[0], y[1], y[2], rest);
    }
    __syncthreads();
    int x = left + threadIdx.x, y = top + threadIdx.y;
    bool inside = x < columns && y < rows, uneven = false;
    if (inside) {
        float f0 = 0.0f, f1 = 0.0f, f2 = 0.0f, rest = 0.0f;
        for (int dy = 0; dy < side; dy++)
            for (int dx = 0; dx < side; dx++) {
                float4 fit = fits[threadIdx.y + dy][threadIdx.x + dx];
                f0 += fit.x;
                f1 += fit.y;
                f2 += fit.z;
                rest += fit.w;
            }
        uchar4 own = tile[threadIdx.y + 2 * radius][threadIdx.x + 2 * radius];
        rest += f1 * ((float)own.z * (1.0f / 255.0f));
        rest += f2 * ((float)own.w * (1.0f / 255.0f));
        float share = 1.0f / count;
        out[y * columns + x] = make_float2(f0 * share, rest * share);
        for (int dy = -1; dy <= 1; dy++)
            for (int dx = -1; dx <= 1; dx++)
                uneven = uneven ||
                    tile[threadIdx.y + 2 * radius + dy][threadIdx.x + 2 * radius + dx].x != own.x;
    }
    u32 row = __ballot_sync(0xffffffffu, uneven);
    if (threadIdx.x == 0 && row != 0) {
        atomicMin(flags + FLAG_LEFT, left + __ffs((int)row) - 1);
        atomicMax(flags + FLAG_RIGHT, left + 31 - __clz((int)row));
        atomicMin(flags + FLAG_TOP, y);
        atomicMax(flags + FLAG_BOTTOM, y);
    }
}

// One cell of the refined grid alpha.
OP int evaluate(
    const u8* __restrict__ coarse, const float2* __restrict__ fits, const u8* __restrict__ luma,
    int x, int y, const int* box, float steepen, float offset, int rows, int columns)
{
    int at = y * columns + x;
    if (x < 2 * box[0] || x >= 2 * box[2] || y < 2 * box[1] || y >= 2 * box[3])
        return coarse[at];
    int half_columns = (columns + 1) / 2, half_rows = (rows + 1) / 2;
    // Twice as many samples: a quarter of a cell from the half grid's centres.
    int right = x & 1, bottom = y & 1;
    int x0 = max(x / 2 - 1 + right, 0), x1 = min(x / 2 + right, half_columns - 1);
    int y0 = max(y / 2 - 1 + bottom, 0), y1 = min(y / 2 + bottom, half_rows - 1);
    float wx = right ? 0.25f : 0.75f, wy = bottom ? 0.25f : 0.75f;
    float2 p00 = fits[y0 * half_columns + x0], p01 = fits[y0 * half_columns + x1];
    float2 p10 = fits[y1 * half_columns + x0], p11 = fits[y1 * half_columns + x1];
    float slope = (p00.x * (1.0f - wx) + p01.x * wx) * (1.0f - wy) +
                  (p10.x * (1.0f - wx) + p11.x * wx) * wy;
    float rest = (p00.y * (1.0f - wx) + p01.y * wx) * (1.0f - wy) +
                 (p10.y * (1.0f - wx) + p11.y * wx) * wy;
    return to_byte(slope * (float)luma[at] * steepen + rest * (255.0f * steepen) + offset);
}

// Guided result on the grid, smoothed: Gaussian in 1/256, then a table.
//
// coarse, luma, out: (rows, columns) uint8. fits: from fit_guided, used where `guided`, within the
// flags' box widened by `margin`. weights: 2 * radius + 1 whole numbers that add up to 256. curve:
// 256 values. fitted_luma: becomes luma where something is written. held: write only if the sum of
// squares in the flags is above still_limit.
extern "C" __global__ void evaluate_smooth(
    const u8* __restrict__ coarse, const float2* __restrict__ fits, const u8* __restrict__ luma,
    u8* __restrict__ fitted_luma, u8* __restrict__ out, const int* __restrict__ flags, int guided,
    int margin, float steepen, float offset, const int* __restrict__ weights, int radius,
    const u8* __restrict__ curve, int held, unsigned long long still_limit, int rows, int columns)
{
    __shared__ u8 tile[16 + 2 * MAX_SMOOTH_RADIUS][32 + 2 * MAX_SMOOTH_RADIUS];
    __shared__ u16 lines[16 + 2 * MAX_SMOOTH_RADIUS][32];
    if (held && *(const unsigned long long*)(flags + FLAG_SQUARES) <= still_limit)
        return;
    int box[4] = {0, 0, 0, 0};
    if (guided && flags[FLAG_RIGHT] >= 0) {
        box[0] = max(flags[FLAG_LEFT] - margin, 0);
        box[1] = max(flags[FLAG_TOP] - margin, 0);
        box[2] = flags[FLAG_RIGHT] + 1 + margin;
        box[3] = flags[FLAG_BOTTOM] + 1 + margin;
    }
    int left = blockIdx.x * 32, top = blockIdx.y * 16;
    int thread = threadIdx.y * 32 + threadIdx.x;
    int wide = 32 + 2 * radius, tall = 16 + 2 * radius;
    for (int i = thread; i < wide * tall; i += 256) {
        int ty = i / wide, tx = i % wide;
        int y = clamp_int(top - radius + ty, 0, rows - 1);
        int x = clamp_int(left - radius + tx, 0, columns - 1);
        tile[ty][tx] =
            (u8)evaluate(coarse, fits, luma, x, y, box, steepen, offset, rows, columns);
    }
    __syncthreads();
    for (int row = threadIdx.y; row < tall; row += 8) {
        int sum = 0;
        for (int i = 0; i <= 2 * radius; i++)
            sum += weights[i] * tile[row][threadIdx.x + i];
        lines[row][threadIdx.x] = (u16)sum;
    }
    __syncthreads();
    int x = left + threadIdx.x;
    for (int row = threadIdx.y; row < 16; row += 8) {
        int y = top + row;
        if (x >= columns || y >= rows)
            continue;
        int sum = 32768;
        for (int i = 0; i <= 2 * radius; i++)
            sum += weights[i] * lines[row + i][threadIdx.x];
        int at = y * columns + x;
        out[at] = curve[min(sum >> 16, 255)];
        if (fitted_luma != 0)
            fitted_luma[at] = luma[at];
    }
}
