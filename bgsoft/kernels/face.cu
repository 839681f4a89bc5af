// What faces do to mattes and frames.
//
// Counterparts: CpuMatteEditor in bgsoft/face/protect.py (edit_*), CpuAnonymizer in
// bgsoft/face/anonymize.py (hide_*).
#include "resample.cuh"

// The matte on the grid: cut down to the limit, then raised to the cover, into a plane of its own.
//
// reduced, out, limit: (rows, columns); has_limit 0: no limit. cover: (bottom - top, right - left),
// packed, of the box of cells [left, right) x [top, bottom), which may be empty. faces: (count, 4)
// boxes of cells left, top, right, bottom, half-open, inside the cover's; sums: count, zeroed: to
// each is added the matte before any change, over cells of its box that are a face's wholly.
extern "C" __global__ void edit_grid(
    const u8* __restrict__ reduced, u8* __restrict__ out, const u8* __restrict__ cover,
    const u8* __restrict__ limit, const int* __restrict__ faces, u32* __restrict__ sums, int count,
    int has_limit, int left, int top, int right, int bottom, int rows, int columns)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= columns || y >= rows)
        return;
    int at = y * columns + x;
    int before = reduced[at], value = before;
    if (has_limit)
        value = min(value, (int)limit[at]);
    if (x >= left && x < right && y >= top && y < bottom) {
        int covered = cover[(y - top) * (right - left) + x - left];
        value = max(value, covered);
        if (covered == 255)
            for (int face = 0; face < count; face++) {
                const int* box = faces + 4 * face;
                if (x >= box[0] && y >= box[1] && x < box[2] && y < box[3])
                    atomicAdd(sums + face, (u32)before);
            }
    }
    out[at] = (u8)value;
}

// One pixel of a packed plane of cells, enlarged as enlarge_alpha in matte.cu does.
// rows, columns: of the packed plane; y, x: pixel from the corner of its first cell. Beyond a side
// that is kept cells repeat the last value (the grid ends there), beyond others they are 0.
__device__ __forceinline__ int enlarged(
    const u8* __restrict__ plane, int rows, int columns, int y, int x, int shift, int keep_left,
    int keep_top, int keep_right, int keep_bottom)
{
    int one = 2048 >> (shift + 1);
    int position_y = (2 * y + 1) * one - 1024, position_x = (2 * x + 1) * one - 1024;
    int y0 = position_y >> 11, wy = position_y & 2047;
    int x0 = position_x >> 11, wx = position_x & 2047;
    int values[4];
    for (int i = 0; i < 4; i++) {
        int row = y0 + (i >> 1), column = x0 + (i & 1);
        bool inside = (row >= 0 || keep_top) && (row < rows || keep_bottom) &&
                      (column >= 0 || keep_left) && (column < columns || keep_right);
        row = clamp_int(row, 0, rows - 1);
        column = clamp_int(column, 0, columns - 1);
        values[i] = inside ? plane[row * columns + column] : 0;
    }
    return blend_u8(values[0], values[1], values[2], values[3], 2048 - wx, wx, 2048 - wy, wy);
}

// The same on the frame's alpha, in place; one thread a pixel of the part from (first_x, first_y).
//
// alpha: (height, width); shift: log2 of pixels per cell; the rest as for edit_grid.
extern "C" __global__ void edit_alpha(
    u8* __restrict__ alpha, const u8* __restrict__ cover, const u8* __restrict__ limit,
    int has_limit, int left, int top, int right, int bottom, int rows, int columns, int shift,
    int height, int width, int first_x, int first_y)
{
    int x = first_x + blockIdx.x * blockDim.x + threadIdx.x;
    int y = first_y + blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    long long at = (long long)y * width + x;
    int before = alpha[at], value = before;
    if (has_limit)
        value = min(value, enlarged(limit, rows, columns, y, x, shift, 1, 1, 1, 1));
    int reach = 1 << shift;
    int near_x = x - left * reach, near_y = y - top * reach;
    int cover_rows = bottom - top, cover_columns = right - left;
    if (cover_rows > 0 && cover_columns > 0 && near_x >= -reach && near_y >= -reach &&
        near_x < (cover_columns + 1) * reach && near_y < (cover_rows + 1) * reach)
        value = max(
            value,
            enlarged(
                cover, cover_rows, cover_columns, near_y, near_x, shift, left == 0, top == 0,
                right == columns, bottom == rows));
    if (value != before)
        alpha[at] = (u8)value;
}

// Means of the cells of a patch over one plane, as float32; the frame's edge is repeated outside.
//
// plane: (height, width, channels); means: (rows, columns, channels); left, top, edge in samples of
// the plane. One warp a cell and channel: blocks of 32 x 8, blockIdx.y the channel.
extern "C" __global__ void hide_means(
    const sample_t* __restrict__ plane, float* __restrict__ means, int height, int width,
    int channels, int left, int top, int edge, int rows, int columns)
{
    int cell = blockIdx.x * blockDim.y + threadIdx.y;
    int channel = blockIdx.y;
    bool exists = cell < rows * columns;
    int row = exists ? cell / columns : 0, column = exists ? cell % columns : 0;
    unsigned long long sum = 0;
    for (int i = threadIdx.x; i < edge * edge; i += 32) {
        int y = clamp_int(top + row * edge + i / edge, 0, height - 1);
        int x = clamp_int(left + column * edge + i % edge, 0, width - 1);
        sum += plane[((long long)y * width + x) * channels + channel];
    }
    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (exists && threadIdx.x == 0)
        means[cell * channels + channel] = (float)((double)sum / ((double)edge * edge));
}

// Replaces what is inside an ellipse by enlarged means, in place; a feathered rim lies outside it.
//
// One thread a sample position of the part [first_x, last_x) x [first_y, last_y). step: frame
// pixels per sample. Rounded half to even, to whole code values.
extern "C" __global__ void hide_blend(
    sample_t* __restrict__ plane, const float* __restrict__ means, int width, int channels,
    int left, int top, int edge, int rows, int columns, int first_x, int first_y, int last_x,
    int last_y, int step, float centre_x, float centre_y, float cosine, float sine, float across,
    float along, float feather)
{
    int x = first_x + blockIdx.x * blockDim.x + threadIdx.x;
    int y = first_y + blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= last_x || y >= last_y)
        return;
    float dx = ((float)x + 0.5f) * (float)step - centre_x;
    float dy = ((float)y + 0.5f) * (float)step - centre_y;
    float u = (dx * cosine + dy * sine) / across, v = (dy * cosine - dx * sine) / along;
    float weight = (1.0f + feather - sqrtf(u * u + v * v)) * (1.0f / feather);
    weight = fminf(fmaxf(weight, 0.0f), 1.0f);
    if (!(weight > 0.0f))
        return;
    float position_x = ((float)(x - left) + 0.5f) / (float)edge - 0.5f;
    float position_y = ((float)(y - top) + 0.5f) / (float)edge - 0.5f;
    int x0 = (int)floorf(position_x), y0 = (int)floorf(position_y);
    float wx = position_x - (float)x0, wy = position_y - (float)y0;
    int xa = clamp_int(x0, 0, columns - 1), xb = clamp_int(x0 + 1, 0, columns - 1);
    int ya = clamp_int(y0, 0, rows - 1), yb = clamp_int(y0 + 1, 0, rows - 1);
    for (int channel = 0; channel < channels; channel++) {
        const float* m = means + channel;
        float above = m[(ya * columns + xa) * channels] * (1.0f - wx) +
                      m[(ya * columns + xb) * channels] * wx;
        float below = m[(yb * columns + xa) * channels] * (1.0f - wx) +
                      m[(yb * columns + xb) * channels] * wx;
        float smooth = above * (1.0f - wy) + below * wy;
        sample_t* sample = plane + ((long long)y * width + x) * channels + channel;
        float before = (float)*sample;
        float mixed = before + (smooth - before) * weight;
#if SAMPLE_BITS == 8
        *sample = (sample_t)clamp_int(__float2int_rn(mixed), 0, 255);
#else
        *sample = (sample_t)(clamp_int(__float2int_rn(mixed / 64.0f), 0, 1023) << 6);
#endif
    }
}
