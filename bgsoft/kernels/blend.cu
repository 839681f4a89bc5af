// Blending of a background into a frame, in place: one launch for luma and chroma.
//
// Counterparts on the CPU: bgsoft/composite/blend.py (Blender), upsample.py (GridBackground),
// plate.py, filters.py. Rounding is the same: at 8 bit both products of
// α·frame + (1 − α)·background are rounded on their own; at 10 bit they are rounded to 1/64 of a
// code value and their sum to a whole one.
//
// Each thread has 8 × 2 luma samples and their 4 × 1 chroma pairs. It reads alpha first, leaves
// opaque samples alone and does not read the frame where only the background shows. `whole` says
// that the width is a multiple of 8 and that planes are aligned to 16 bytes, so that a thread's
// samples are read and written at once.
#include "background.cuh"

#define COLUMNS 8
#define PAIRS (COLUMNS / 2)

#if SAMPLE_BITS == 8
typedef uint2 packed_t;
#else
typedef uint4 packed_t;
#endif

__device__ __forceinline__ void unpack(uint2 packed, u32 values[COLUMNS])
{
#pragma unroll
    for (int index = 0; index < 4; ++index) {
        values[index] = (packed.x >> (8 * index)) & 0xFF;
        values[4 + index] = (packed.y >> (8 * index)) & 0xFF;
    }
}

__device__ __forceinline__ void unpack(uint4 packed, u32 values[COLUMNS])
{
    const u32 words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
    for (int index = 0; index < 4; ++index) {
        values[2 * index] = words[index] & 0xFFFF;
        values[2 * index + 1] = words[index] >> 16;
    }
}

__device__ __forceinline__ void pack(const u32 values[COLUMNS], uint2 *packed)
{
    uint2 result;
    result.x = values[0] | values[1] << 8 | values[2] << 16 | values[3] << 24;
    result.y = values[4] | values[5] << 8 | values[6] << 16 | values[7] << 24;
    *packed = result;
}

__device__ __forceinline__ void pack(const u32 values[COLUMNS], uint4 *packed)
{
    uint4 result;
    result.x = values[0] | values[1] << 16;
    result.y = values[2] | values[3] << 16;
    result.z = values[4] | values[5] << 16;
    result.w = values[6] | values[7] << 16;
    *packed = result;
}

// 8 samples of a frame's or a plate's row, of which `count` exist; others are left as they are.
__device__ __forceinline__ void read_run(
    const sample_t *row, int count, bool whole, u32 values[COLUMNS])
{
    if (whole) {
        unpack(*reinterpret_cast<const packed_t *>(row), values);
        return;
    }
#pragma unroll
    for (int index = 0; index < COLUMNS; ++index)
        if (index < count)
            values[index] = row[index];
}

__device__ __forceinline__ void write_run(
    sample_t *row, int count, bool whole, const u32 values[COLUMNS])
{
    if (whole) {
        pack(values, reinterpret_cast<packed_t *>(row));
        return;
    }
#pragma unroll
    for (int index = 0; index < COLUMNS; ++index)
        if (index < count)
            row[index] = (sample_t)values[index];
}

__device__ __forceinline__ u32 mixed(u32 sample, u32 other, u32 alpha)
{
    // 255 is odd, so that there are no halves to be rounded.
    const u32 part = (sample * alpha + 127) / 255;
    const u32 rest = (other * (255 - alpha) + 127) / 255;
#if SAMPLE_BITS == 8
    return min(part + rest, 255u);
#else
    return (part + rest + 32) & 0xFFC0;
#endif
}

// One row of samples and its background mixed, where there is background to be seen.
//
// background(frame, samples) fills in `samples`; `frame` is valid where it asks for it, or where
// alpha is above 0.
template <bool READS_FRAME, class Background>
__device__ __forceinline__ void mix_run(
    sample_t *row, int count, bool whole, const u32 alpha[COLUMNS], Background background)
{
    u32 all = 255, any = 0;
#pragma unroll
    for (int index = 0; index < COLUMNS; ++index) {
        all &= alpha[index];
        any |= alpha[index];
    }
    if (all == 255)
        return;
    u32 frame[COLUMNS] = {}, samples[COLUMNS] = {};
    if (READS_FRAME || any)
        read_run(row, count, whole, frame);
    background(frame, samples);
#pragma unroll
    for (int index = 0; index < COLUMNS; ++index)
        samples[index] = mixed(frame[index], samples[index], alpha[index]);
    write_run(row, count, whole, samples);
}

// Blends background.luma(y, x, count, frame, samples) and background.chroma(y, x, pairs, ...).
// KEEPS_PARTIAL: samples with any alpha stay as they are.
template <bool KEEPS_PARTIAL = false, class Background>
__device__ __forceinline__ void blend(
    sample_t *luma, sample_t *chroma, const u8 *alpha, int height, int width, bool whole,
    const Background &background)
{
    const int x = COLUMNS * (blockIdx.x * blockDim.x + threadIdx.x);
    const int y = 2 * (blockIdx.y * blockDim.y + threadIdx.y);
    if (x >= width || y >= height)
        return;
    const int count = min(COLUMNS, width - x);
    const int rows = min(2, height - y);
    u32 matte[2][COLUMNS];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
        const u8 *line = alpha + (size_t)(y + row) * width + x;
        if (row < rows && whole) {
            unpack(*reinterpret_cast<const uint2 *>(line), matte[row]);
        } else {
#pragma unroll
            for (int index = 0; index < COLUMNS; ++index)
                matte[row][index] = row < rows && index < count ? line[index] : 255;
        }
        if (KEEPS_PARTIAL)
#pragma unroll
            for (int index = 0; index < COLUMNS; ++index)
                matte[row][index] = matte[row][index] > 0 ? 255 : 0;
    }
    u32 opaque = 255;
#pragma unroll
    for (int index = 0; index < COLUMNS; ++index)
        opaque &= matte[0][index] & matte[1][index];
    if (opaque == 255)
        return;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
        if (row >= rows)
            break;
        mix_run<Background::READS_FRAME>(
            luma + (size_t)(y + row) * width + x, count, whole, matte[row],
            [&](const u32 frame[COLUMNS], u32 samples[COLUMNS]) {
                background.luma(y + row, x, count, frame, samples);
            });
    }
    const int pairs = (count + 1) / 2;
    u32 pair_alpha[COLUMNS];
#pragma unroll
    for (int pair = 0; pair < PAIRS; ++pair) {
        const int columns = min(2, count - 2 * pair);
        u32 sum = matte[0][2 * pair];
        if (columns == 2)
            sum += matte[0][2 * pair + 1];
        if (rows == 2) {
            sum += matte[1][2 * pair];
            if (columns == 2)
                sum += matte[1][2 * pair + 1];
        }
        u32 mean = columns > 0 ? area_mean(sum, rows * columns) : 255;
        if (KEEPS_PARTIAL)
            mean = mean > 0 ? 255 : 0;
        pair_alpha[2 * pair] = pair_alpha[2 * pair + 1] = mean;
    }
    const size_t pitch = 2 * (size_t)((width + 1) / 2);
    mix_run<Background::READS_FRAME>(
        chroma + (y / 2) * pitch + x, 2 * pairs, whole, pair_alpha,
        [&](const u32 frame[COLUMNS], u32 samples[COLUMNS]) {
            background.chroma(y / 2, x / 2, pairs, frame, samples);
        });
}

// Cells enlarged bilinearly and dithered; bgsoft/composite/upsample.py.
struct GridBackground {
    static constexpr bool READS_FRAME = false;
    const u16 *luma_cells, *cb_cells, *cr_cells;
    int rows, columns, chroma_rows, chroma_columns;
    int log_factor, chroma_log_factor;  // of samples per cell, each way
    const u8 *dither;  // (min(H, 128), width); for luma and chroma alike
    int width;

    // N samples from (y, x) on, x a multiple of N; F the samples per cell, N where they are more.
    template <int N, int F>
    static __device__ __forceinline__ void enlarge_by(
        const u16 *cells, int rows, int columns, int log_factor, int y, int x, u32 samples[])
    {
        if (F == 1) {
#pragma unroll
            for (int index = 0; index < N; ++index)
                samples[index] = cells[y * columns + min(x + index, columns - 1)];
            return;
        }
        constexpr int SPAN = N / F + 2;
        const float scale = 1.0f / (float)(1 << log_factor);
        const Between down = between(y, scale, rows);
        const u16 *upper = cells + down.first * columns, *lower = cells + down.second * columns;
        const int first = (x >> log_factor) - 1;
        float line[SPAN];
#pragma unroll
        for (int index = 0; index < SPAN; ++index) {
            const int column = clamp_int(first + index, 0, columns - 1);
            line[index] = (float)upper[column] * (1.0f - down.part)
                + (float)lower[column] * down.part;
        }
        // Where x lies in its cell; all N samples are in it if F is N.
        const int inside = F == N ? x & ((1 << log_factor) - 1) : 0;
#pragma unroll
        for (int index = 0; index < N; ++index) {
            const int cell = F == N ? 0 : index / F;
            const float position
                = ((float)(inside + index - cell * F) + 0.5f) * scale - 0.5f;
            const bool before = position < 0.0f;
            const float left = before ? line[cell] : line[cell + 1];
            const float right = before ? line[cell + 1] : line[cell + 2];
            const float part = before ? position + 1.0f : position;
            samples[index] = (u32)rintf(left * (1.0f - part) + right * part);
        }
    }

    static __device__ __forceinline__ void enlarge_luma(
        const u16 *cells, int rows, int columns, int log_factor, int y, int x, u32 samples[])
    {
        switch (log_factor) {
        case 0: enlarge_by<8, 1>(cells, rows, columns, log_factor, y, x, samples); break;
        case 1: enlarge_by<8, 2>(cells, rows, columns, log_factor, y, x, samples); break;
        case 2: enlarge_by<8, 4>(cells, rows, columns, log_factor, y, x, samples); break;
        default: enlarge_by<8, 8>(cells, rows, columns, log_factor, y, x, samples); break;
        }
    }

    static __device__ __forceinline__ void enlarge_chroma(
        const u16 *cells, int rows, int columns, int log_factor, int y, int x, u32 samples[])
    {
        switch (log_factor) {
        case 0: enlarge_by<4, 1>(cells, rows, columns, log_factor, y, x, samples); break;
        case 1: enlarge_by<4, 2>(cells, rows, columns, log_factor, y, x, samples); break;
        default: enlarge_by<4, 4>(cells, rows, columns, log_factor, y, x, samples); break;
        }
    }

    // Cut off to a code value after the threshold has been added.
    static __device__ __forceinline__ u32 code(u32 value, u32 threshold)
    {
#if SAMPLE_BITS == 8
        return (value + threshold) >> 8;
#else
        return (value + threshold) & 0xFFC0;
#endif
    }

    __device__ __forceinline__ void luma(
        int y, int x, int, const u32[COLUMNS], u32 samples[COLUMNS]) const
    {
        u32 fine[COLUMNS];
        enlarge_luma(luma_cells, rows, columns, log_factor, y, x, fine);
        const u8 *thresholds = dither + (y & 127) * width;
#pragma unroll
        for (int index = 0; index < COLUMNS; ++index)
            samples[index] = code(fine[index], thresholds[min(x + index, width - 1)]);
    }

    __device__ __forceinline__ void chroma(
        int y, int x, int, const u32[COLUMNS], u32 samples[COLUMNS]) const
    {
        u32 cb[PAIRS], cr[PAIRS];
        enlarge_chroma(cb_cells, chroma_rows, chroma_columns, chroma_log_factor, y, x, cb);
        enlarge_chroma(cr_cells, chroma_rows, chroma_columns, chroma_log_factor, y, x, cr);
        const u8 *thresholds = dither + (y & 63) * width;
#pragma unroll
        for (int pair = 0; pair < PAIRS; ++pair) {
            const u32 threshold = thresholds[min(x + pair, width - 1)];
            samples[2 * pair] = code(cb[pair], threshold);
            samples[2 * pair + 1] = code(cr[pair], threshold);
        }
    }
};

// One colour.
struct FlatBackground {
    static constexpr bool READS_FRAME = false;
    u32 y_sample, cb_sample, cr_sample;

    __device__ __forceinline__ void luma(
        int, int, int, const u32[COLUMNS], u32 samples[COLUMNS]) const
    {
#pragma unroll
        for (int index = 0; index < COLUMNS; ++index)
            samples[index] = y_sample;
    }

    __device__ __forceinline__ void chroma(
        int, int, int, const u32[COLUMNS], u32 samples[COLUMNS]) const
    {
#pragma unroll
        for (int pair = 0; pair < PAIRS; ++pair) {
            samples[2 * pair] = cb_sample;
            samples[2 * pair + 1] = cr_sample;
        }
    }
};

// A finished picture of the frame's size.
struct PlateBackground {
    static constexpr bool READS_FRAME = false;
    const sample_t *luma_plane, *chroma_plane;
    int width;
    bool whole;

    __device__ __forceinline__ void luma(
        int y, int x, int count, const u32[COLUMNS], u32 samples[COLUMNS]) const
    {
        read_run(luma_plane + (size_t)y * width + x, count, whole, samples);
    }

    __device__ __forceinline__ void chroma(
        int y, int x, int pairs, const u32[COLUMNS], u32 samples[COLUMNS]) const
    {
        const size_t pitch = 2 * (size_t)((width + 1) / 2);
        read_run(chroma_plane + y * pitch + 2 * x, 2 * pairs, whole, samples);
    }
};

// The frame's own samples through tables of code values.
struct MappedBackground {
    static constexpr bool READS_FRAME = true;
    const sample_t *luma_table, *chroma_table;  // 256 or 1024 entries each

    static __device__ __forceinline__ void map(
        const sample_t *table, const u32 frame[COLUMNS], u32 samples[COLUMNS])
    {
#pragma unroll
        for (int index = 0; index < COLUMNS; ++index)
            samples[index] = table[SAMPLE_BITS == 8 ? frame[index] : frame[index] >> 6];
    }

    __device__ __forceinline__ void luma(
        int, int, int, const u32 frame[COLUMNS], u32 samples[COLUMNS]) const
    {
        map(luma_table, frame, samples);
    }

    __device__ __forceinline__ void chroma(
        int, int, int, const u32 frame[COLUMNS], u32 samples[COLUMNS]) const
    {
        map(chroma_table, frame, samples);
    }
};

// Mosaic blocks: float4s of luma, Cb, Cr and 1, rounded here to code values, halves to even.
struct BlockBackground {
    static constexpr bool READS_FRAME = false;
    const float4 *colors;
    int columns, edge, top, left;  // luma samples; top and left of the frame in the first blocks

    static __device__ __forceinline__ u32 sample(float value)
    {
        const float code = SAMPLE_BITS == 8 ? 1.0f : 64.0f;
        return (u32)(rintf(value / code) * code);
    }

    __device__ __forceinline__ void luma(
        int y, int x, int, const u32[COLUMNS], u32 samples[COLUMNS]) const
    {
        const float4 *block = colors + (y + top) / edge * columns + (x + left) / edge;
        int inside = (x + left) % edge;
        u32 value = sample(block->x);
#pragma unroll
        for (int index = 0; index < COLUMNS; ++index) {
            samples[index] = value;
            // Beyond the frame's edge samples don't count, and there may be no block.
            if (++inside == edge) {
                inside = 0;
                if (index + 1 < COLUMNS && (x + left + index + 1) / edge < columns)
                    value = sample((++block)->x);
            }
        }
    }

    __device__ __forceinline__ void chroma(
        int y, int x, int, const u32[COLUMNS], u32 samples[COLUMNS]) const
    {
        const float4 *block = colors + (2 * y + top) / edge * columns + (2 * x + left) / edge;
        int inside = (2 * x + left) % edge;
        u32 cb = sample(block->y), cr = sample(block->z);
#pragma unroll
        for (int pair = 0; pair < PAIRS; ++pair) {
            samples[2 * pair] = cb;
            samples[2 * pair + 1] = cr;
            inside += 2;  // the edge and what is left of the frame are even
            if (inside >= edge) {
                inside = 0;
                if (pair + 1 < PAIRS && (2 * (x + pair + 1) + left) / edge < columns) {
                    ++block;
                    cb = sample(block->y);
                    cr = sample(block->z);
                }
            }
        }
    }
};

// plan: rows and columns of luma and of chroma cells, binary logarithms of samples per cell of
// luma and of chroma, and the offsets of luma, Cb and Cr in `cells`.
extern "C" __global__ void blend_grid(
    sample_t *luma, sample_t *chroma, const u8 *alpha, int height, int width, int whole,
    const int *plan, const u16 *cells, const u8 *dither)
{
    const GridBackground background = {
        cells + plan[6], cells + plan[7], cells + plan[8], plan[0], plan[1], plan[2], plan[3],
        plan[4], plan[5], dither, width};
    blend(luma, chroma, alpha, height, width, whole != 0, background);
}

extern "C" __global__ void blend_flat(
    sample_t *luma, sample_t *chroma, const u8 *alpha, int height, int width, int whole,
    u32 y_sample, u32 cb_sample, u32 cr_sample)
{
    const FlatBackground background = {y_sample, cb_sample, cr_sample};
    blend(luma, chroma, alpha, height, width, whole != 0, background);
}

// The plate's planes are aligned like the frame's.
extern "C" __global__ void blend_plate(
    sample_t *luma, sample_t *chroma, const u8 *alpha, int height, int width, int whole,
    const sample_t *plate_luma, const sample_t *plate_chroma)
{
    const PlateBackground background = {plate_luma, plate_chroma, width, whole != 0};
    blend(luma, chroma, alpha, height, width, whole != 0, background);
}

extern "C" __global__ void blend_cutout(
    sample_t *luma, sample_t *chroma, const u8 *alpha, int height, int width, int whole,
    const sample_t *plate_luma, const sample_t *plate_chroma)
{
    const PlateBackground background = {plate_luma, plate_chroma, width, whole != 0};
    blend<true>(luma, chroma, alpha, height, width, whole != 0, background);
}

extern "C" __global__ void blend_mapped(
    sample_t *luma, sample_t *chroma, const u8 *alpha, int height, int width, int whole,
    const sample_t *luma_table, const sample_t *chroma_table)
{
    const MappedBackground background = {luma_table, chroma_table};
    blend(luma, chroma, alpha, height, width, whole != 0, background);
}

// plan: columns of blocks, their edge, and luma samples above and left of the frame in the first.
extern "C" __global__ void blend_blocks(
    sample_t *luma, sample_t *chroma, const u8 *alpha, int height, int width, int whole,
    const int *plan, const float4 *colors)
{
    const BlockBackground background = {colors, plan[0], plan[1], plan[2], plan[3]};
    blend(luma, chroma, alpha, height, width, whole != 0, background);
}
