// The soft matte from the raw mask to clean opacity on the grid, and from there to the frame.
// Counterparts: bgsoft/matte/mask.py.

#include "matte.cuh"
#include "union_find.cuh"

#define MAX_WINDOW_RADIUS 4

// P010's grid to 8 bits, half to even; luma and chroma of `luma_count` and `chroma_count` samples.
extern "C" __global__ void eight_bits(
    const u16* __restrict__ luma, const u16* __restrict__ chroma, u8* __restrict__ out_luma,
    u8* __restrict__ out_chroma, int luma_count, int chroma_count)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < luma_count)
        out_luma[at] = (u8)to_byte((float)luma[at] * (1.0f / 256.0f));
    else if (at - luma_count < chroma_count)
        out_chroma[at - luma_count] = (u8)to_byte((float)chroma[at - luma_count] * (1.0f / 256.0f));
}

// Temporal filter and soft threshold: raw mask to opacity, at the model's resolution.
//
// mask: (rows, columns) float32. luma: (.., luma_pitch) uint8, resized by the tables. states:
// (2, rows, columns) float32, read in turns. sums: (rows, columns) uint16, window sums of the last
// picture; replaced. ramps: 256 weights for the mask's change, then 256 for luma's. curve: 256
// opacities. radius: of the window. base: weight where nothing happens; 1: no filter. Starts the
// frame's flags.
extern "C" __global__ void temporal_threshold(
    const float* __restrict__ mask, const u8* __restrict__ luma, int luma_pitch,
    const float* __restrict__ x_table, int x_stride, const float* __restrict__ y_table,
    int y_stride, int mode, float* states, u16* __restrict__ sums, const u8* __restrict__ ramps,
    const u8* __restrict__ curve, u8* __restrict__ opacity, int* flags, int radius, float base,
    float luma_steps, float scale, float offset, int rows, int columns)
{
    __shared__ u8 change[8 + 2 * MAX_WINDOW_RADIUS][32 + 2 * MAX_WINDOW_RADIUS];
    __shared__ u8 picture[8 + 2 * MAX_WINDOW_RADIUS][32 + 2 * MAX_WINDOW_RADIUS];
    int left = blockIdx.x * 32, top = blockIdx.y * 8;
    int thread = threadIdx.y * 32 + threadIdx.x;
    int parity = flags[FLAG_PARITY];
    const float* last = states + parity * rows * columns;
    float* next = states + (1 - parity) * rows * columns;
    bool follows = base < 1.0f;
    if (follows) {
        int tile_columns = 32 + 2 * radius, tile = tile_columns * (8 + 2 * radius);
        for (int i = thread; i < tile; i += 256) {
            int ty = i / tile_columns, tx = i % tile_columns;
            int y = reflect(top - radius + ty, rows), x = reflect(left - radius + tx, columns);
            picture[ty][tx] = (u8)resample(
                luma, luma_pitch, 1, 0, mode, x_table + x * x_stride, y_table + y * y_stride);
            int at = y * columns + x;
            change[ty][tx] = (u8)to_byte(fabsf((mask[at] - last[at]) * 255.0f));
        }
        __syncthreads();
    }
    if (blockIdx.x == 0 && blockIdx.y == 0 && thread == 0) {
        flags[FLAG_PERSON_EXCEEDS] = 0;
        flags[FLAG_BACKGROUND_EXCEEDS] = 0;
    }
    int x = left + threadIdx.x, y = top + threadIdx.y;
    if (x >= columns || y >= rows)
        return;
    int at = y * columns + x;
    float state = mask[at];
    if (follows) {
        int mask_sum = 0, luma_sum = 0, side = 2 * radius + 1;
        for (int dy = 0; dy < side; dy++)
            for (int dx = 0; dx < side; dx++) {
                mask_sum += change[threadIdx.y + dy][threadIdx.x + dx];
                luma_sum += picture[threadIdx.y + dy][threadIdx.x + dx];
            }
        int area = side * side;
        int luma_change = to_byte((float)abs(luma_sum - (int)sums[at]) * luma_steps);
        sums[at] = (u16)luma_sum;
        if (flags[FLAG_FRESH] == 0) {
            int mask_change = (mask_sum + area / 2) / area;
            int weight = max((int)ramps[mask_change], (int)ramps[256 + luma_change]);
            float before = last[at];
            float share = (float)weight * ((1.0f - base) / 255.0f) + base;
            state = before + (state - before) * share;
        }
    }
    // A model that overflows must not spoil every frame after.
    if (state != state)
        state = 0.0f;
    next[at] = state;
    opacity[at] = curve[to_byte(state * scale + offset)];
}

// Opacity to the grid and to half of it, with the initial labels of the person's components.
//
// opacity: (.., pitch) uint8. coarse: (rows, columns) uint8. small, labels: half of that, rounded
// up. counters: four planes of the half grid's size, cleared. Ends the use of the temporal state.
extern "C" __global__ void opacity_to_grid(
    const u8* __restrict__ opacity, int pitch, const float* __restrict__ x_table, int x_stride,
    const float* __restrict__ y_table, int y_stride, int mode, u8* __restrict__ coarse,
    u8* __restrict__ small, int* __restrict__ labels, int* __restrict__ counters, int* flags,
    int rows, int columns)
{
    int half_rows = (rows + 1) / 2, half_columns = (columns + 1) / 2;
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    int at = y * half_columns + x;
    bool inside = x < half_columns && y < half_rows;
    bool person = false;
    if (inside) {
        bool has_right = 2 * x + 1 < columns, has_bottom = 2 * y + 1 < rows;
        int values[4];
        for (int part = 0; part < 4; part++) {
            int gx = 2 * x + (part & 1), gy = 2 * y + (part >> 1);
            values[part] = 0;
            if (gx >= columns || gy >= rows)
                continue;
            values[part] = resample(
                opacity, pitch, 1, 0, mode, x_table + gx * x_stride, y_table + gy * y_stride);
            coarse[gy * columns + gx] = (u8)values[part];
        }
        int mean = halve(values, has_right, has_bottom);
        small[at] = (u8)mean;
        person = mean > 127;
        for (int plane = 0; plane < 4; plane++)
            counters[plane * half_rows * half_columns + at] = 0;
    }
    u32 row = __ballot_sync(0xffffffffu, person);
    int lane = threadIdx.x;
    if (inside)
        labels[at] = person ? at - lane + run_start(row, lane) : NO_LABEL;
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0 && threadIdx.y == 0)
        flags[FLAG_PARITY] ^= 1;
}

// Limits applied to alpha on the grid, and everything that the guided filter reads on half of it.
//
// coarse: (rows, columns) uint8, changed in place unless `held`. limits: person's and background's,
// (half rows, half columns) uint8 each, enlarged bilinearly. luma: (rows, columns) uint8. chroma:
// (chroma_rows, chroma_columns, 2) uint8, the grid's size or half of it. packed: (half rows, half
// columns, 4) uint8: alpha, luma, Cb, Cr.
extern "C" __global__ void limit_and_pack(
    u8* __restrict__ coarse, const u8* __restrict__ limits, const u8* __restrict__ luma,
    const u8* __restrict__ chroma, int chroma_rows, int chroma_columns,
    uchar4* __restrict__ packed, int* flags, int held, int rows, int columns)
{
    int half_rows = (rows + 1) / 2, half_columns = (columns + 1) / 2;
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x == 0 && y == 0) {
        flags[FLAG_FRESH] = held ? flags[FLAG_FRESH] : 0;
        flags[FLAG_LEFT] = flags[FLAG_TOP] = 0x7fffffff;
        flags[FLAG_RIGHT] = flags[FLAG_BOTTOM] = -1;
    }
    if (x >= half_columns || y >= half_rows)
        return;
    bool has_right = 2 * x + 1 < columns, has_bottom = 2 * y + 1 < rows;
    bool cut = !held && flags[FLAG_PERSON_EXCEEDS] != 0;
    bool fill = !held && flags[FLAG_BACKGROUND_EXCEEDS] != 0;
    const u8* background_limit = limits + half_rows * half_columns;
    int alpha[4], light[4], blue[4], red[4];
    for (int part = 0; part < 4; part++) {
        int right = part & 1, bottom = part >> 1;
        int gx = 2 * x + right, gy = 2 * y + bottom;
        alpha[part] = light[part] = blue[part] = red[part] = 0;
        if (gx >= columns || gy >= rows)
            continue;
        int at = gy * columns + gx;
        int value = coarse[at];
        if (cut || fill) {
            // Twice as many samples: a quarter of a cell from the half grid's centres.
            int x0 = max(x - 1 + right, 0), x1 = min(x + right, half_columns - 1);
            int y0 = max(y - 1 + bottom, 0), y1 = min(y + bottom, half_rows - 1);
            int i00 = y0 * half_columns + x0, i01 = y0 * half_columns + x1;
            int i10 = y1 * half_columns + x0, i11 = y1 * half_columns + x1;
            int wx = right ? 1536 : 512, wy = bottom ? 1536 : 512;
            if (cut) {
                const u8* p = limits;
                value = min(value, blend_u8(
                    p[i00], p[i01], p[i10], p[i11], wx, 2048 - wx, wy, 2048 - wy));
            }
            if (fill) {
                const u8* p = background_limit;
                value = max(value, 255 - blend_u8(
                    p[i00], p[i01], p[i10], p[i11], wx, 2048 - wx, wy, 2048 - wy));
            }
            coarse[at] = (u8)value;
        }
        alpha[part] = value;
        light[part] = luma[at];
        if (chroma_rows == rows && chroma_columns == columns) {
            blue[part] = chroma[2 * at];
            red[part] = chroma[2 * at + 1];
        }
    }
    uchar4 cell;
    cell.x = (u8)halve(alpha, has_right, has_bottom);
    cell.y = (u8)halve(light, has_right, has_bottom);
    // Where chroma has half the grid's size it is taken as it is. For a grid of one cell both
    // sizes are the same.
    if (chroma_rows == half_rows && chroma_columns == half_columns) {
        cell.z = chroma[2 * (y * half_columns + x)];
        cell.w = chroma[2 * (y * half_columns + x) + 1];
    } else {
        cell.z = (u8)halve(blue, has_right, has_bottom);
        cell.w = (u8)halve(red, has_right, has_bottom);
    }
    packed[y * half_columns + x] = cell;
}

// Adds up the squared differences of two uint8 planes of `count` samples.
extern "C" __global__ void squared_difference(
    const u8* __restrict__ a, const u8* __restrict__ b, int* flags, int count)
{
    unsigned long long squares = 0;
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < count; at += gridDim.x * blockDim.x) {
        int difference = (int)a[at] - (int)b[at];
        squares += (unsigned long long)(difference * difference);
    }
    for (int step = 16; step > 0; step /= 2)
        squares += __shfl_xor_sync(0xffffffffu, squares, step);
    if ((threadIdx.x & 31) == 0)
        atomicAdd((unsigned long long*)(flags + FLAG_SQUARES), squares);
}

// Grid alpha to the frame's: bilinear by a power of two, cell centres aligned.
//
// One thread 16 pixels of a row. shift: log2 of the factor, 0 to 6. wide: alpha's rows are whole
// multiples of 16 and aligned to that. Ends the frame's use of the flags.
extern "C" __global__ void enlarge_alpha(
    const u8* __restrict__ plane, u8* __restrict__ alpha, int* flags, int shift, int rows,
    int columns, int height, int width, int wide)
{
    int x = (blockIdx.x * blockDim.x + threadIdx.x) * 16;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x == 0 && y == 0) {
        flags[FLAG_SQUARES] = 0;
        flags[FLAG_SQUARES + 1] = 0;
    }
    if (x >= width || y >= height)
        return;
    // Positions in 1/2048 of a cell; the numerators are odd multiples of half a pixel.
    int one = 2048 >> (shift + 1);
    int position_y = (2 * y + 1) * one - 1024;
    int y0 = position_y >> 11, wy = position_y & 2047;
    const u8* above = plane + max(y0, 0) * columns;
    const u8* below = plane + min(y0 + 1, rows - 1) * columns;
    u32 words[4] = {0, 0, 0, 0};
    int last = -2, p00 = 0, p01 = 0, p10 = 0, p11 = 0;
#pragma unroll
    for (int i = 0; i < 16; i++) {
        int position_x = (2 * (x + i) + 1) * one - 1024;
        int x0 = position_x >> 11, wx = position_x & 2047;
        if (x0 != last) {
            int a = clamp_int(x0, 0, columns - 1), b = clamp_int(x0 + 1, 0, columns - 1);
            p00 = above[a];
            p01 = above[b];
            p10 = below[a];
            p11 = below[b];
            last = x0;
        }
        u32 value = (u32)blend_u8(p00, p01, p10, p11, 2048 - wx, wx, 2048 - wy, wy);
        words[i / 4] |= value << (8 * (i % 4));
    }
    if (wide) {
        *(uint4*)(alpha + (long long)y * width + x) =
            make_uint4(words[0], words[1], words[2], words[3]);
        return;
    }
#pragma unroll
    for (int i = 0; i < 16; i++)
        if (x + i < width)
            alpha[(long long)y * width + x + i] = (u8)(words[i / 4] >> (8 * (i % 4)));
}
