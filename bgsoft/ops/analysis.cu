// Planes averaged over square cells, and what scene detection reads of the analysis frame.

#include "cells.cuh"
#include "drivers.cuh"
#include "resample.cuh"

#if !ON_DEVICE
// `count` cells of F x F samples beside each other, none of which an edge cuts. Returns where they
// are: in `out`, or in the plane if a cell is a sample. lines: room for twice the samples of a row.
template <int F, int STEP>
static const sample_t *mean_line(
    const sample_t *plane, int pitch, int count, sample_t *out, sample_t *lines)
{
    if constexpr (F == 1)
        return plane;
    else {
        const int length = 2 * count * STEP;
        const sample_t *below = plane + (size_t)(F / 2) * pitch;
        sample_t *rest = lines + 2 * length;
        const sample_t *p = mean_line<F / 2, STEP>(plane, pitch, 2 * count, lines, rest);
        const sample_t *q = mean_line<F / 2, STEP>(below, pitch, 2 * count, lines + length, rest);
        INDEPENDENT
        for (int x = 0; x < count; x++)
            UNROLLED
            for (int channel = 0; channel < STEP; channel++) {
                const int at = 2 * STEP * x + channel;
                out[STEP * x + channel] =
                    (sample_t)((p[at] + p[at + STEP] + q[at] + q[at + STEP] + 2) >> 2);
            }
        return out;
    }
}
#endif

// A plane of STEP interleaved channels to (rows, columns) cells; see cell() for the rounding. halved:
// what F = 2 makes of it, to start from; may be null.
template <int F, int STEP>
OUTLINED void reduce_plane(
    const sample_t *__restrict__ plane, const sample_t *halved, sample_t *__restrict__ out,
    sample_t *lines, int height, int width, int rows, int columns)
{
#if ON_DEVICE
    for_samples(rows, columns, [=](int row, int column) {
        for (int channel = 0; channel < STEP; channel++)
            out[(row * columns + column) * STEP + channel] =
                (sample_t)cell<F>(plane, height, width, STEP, channel, row, column);
    });
#else
    for (int row = 0; row < rows; row++) {
        const int whole = (row + 1) * F <= height ? width / F : 0;
        const int half_pitch = (width + 1) / 2 * STEP, pitch = width * STEP;
        const size_t first = (size_t)row * F;
        sample_t *target = out + (size_t)row * columns * STEP;
        const sample_t *made =
            halved ? mean_line<(F + 1) / 2, STEP>(
                         halved + first / 2 * half_pitch, half_pitch, whole, target, lines)
                   : mean_line<F, STEP>(plane + first * pitch, pitch, whole, target, lines);
        if (made != target)
            __builtin_memcpy(target, made, whole * STEP * sizeof(sample_t));
        const int height_of = min(F, height - row * F);
        for (int column = whole; column < columns; column++)
            for (int channel = 0; channel < STEP; channel++)
                target[column * STEP + channel] = (sample_t)cut_cell(
                    plane + first * pitch + column * F * STEP + channel, pitch, STEP, height_of,
                    min(F, width - column * F));
    }
#endif
}

template <int F>
OP void reduce(
    const sample_t *luma, const sample_t *chroma, sample_t *out_luma, sample_t *out_chroma,
    sample_t *halved, sample_t *lines, int height, int width, int rows, int columns)
{
    const int half_height = (height + 1) / 2, half_width = (width + 1) / 2;
    if (halved)
        reduce_plane<2, 1>(luma, 0, halved, lines, height, width, half_height, half_width);
    reduce_plane<F, 1>(luma, halved, out_luma, lines, height, width, rows, columns);
    if (!chroma)
        return;
    // Where the cells are the frame's samples, chroma keeps its own size.
    const int chroma_rows = F == 1 ? half_height : rows;
    const int chroma_columns = F == 1 ? half_width : columns;
    reduce_plane<(F + 1) / 2, 2>(
        chroma, 0, out_chroma, lines, half_height, half_width, chroma_rows, chroma_columns);
}

// A frame to cells of factor x factor pixels, a power of two up to 64; one thread a cell.
//
// luma (height, width), chroma (ceil(height / 2), ceil(width / 2), 2) or null; out: (rows, columns)
// and (rows, columns, 2). The host alone has halved, of chroma's size, for luma averaged over 2 x 2
// samples, null if nobody wants it; and lines, room for two rows of luma and 4 samples.
KERNEL(reduce_planes)(
    const sample_t *luma, const sample_t *chroma, sample_t *out_luma, sample_t *out_chroma,
    sample_t *halved, sample_t *lines, int factor, int height, int width, int rows, int columns)
{
#define REDUCE(F)                                                                                 \
    case F:                                                                                       \
        return reduce<F>(                                                                         \
            luma, chroma, out_luma, out_chroma, halved, lines, height, width, rows, columns);
    switch (factor) {
        REDUCE(1)
        REDUCE(2)
        REDUCE(4)
        REDUCE(8)
        REDUCE(16)
        REDUCE(32)
        REDUCE(64)
    }
}

// Thumbnail of the grid's luma, and its summed squared difference from a kept picture.
//
// On a device one warp a thumbnail sample (blocks of 32 x 8). thumb: (thumb_rows, thumb_columns)
// float32, sample / peak, the sample rounded to a whole one first. Tables and mode: see
// resample.cuh. kept: (rows, columns), compared where `compare` is not 0; error is added to.
KERNEL(measure)(
    const sample_t *luma, const sample_t *kept, const float *x_table, int x_stride,
    const float *y_table, int y_stride, int mode, float scale, float *thumb, u64 *error,
    int thumb_rows, int thumb_columns, int rows, int columns, int compare)
{
#if ON_DEVICE
    const int lane = threadIdx.x, lanes = 32, warps = gridDim.y * blockDim.y;
    const int warp = blockIdx.y * blockDim.y + threadIdx.y;
#else
    const int lane = 0, lanes = 1, warps = 1, warp = 0;
#endif
    for (int at = warp; lane == 0 && at < thumb_rows * thumb_columns; at += warps) {
        const float *x_row = x_table + at % thumb_columns * x_stride;
        const float *y_row = y_table + at / thumb_columns * y_stride;
        thumb[at] = (float)resample(luma, columns, 1, 0, mode, x_row, y_row) * scale;
    }
    u64 squares = 0;
    for (int at = warp * lanes + lane; compare && at < rows * columns; at += warps * lanes) {
        const long long difference = (int)luma[at] - (int)kept[at];
        squares += (u64)(difference * difference);
    }
#if ON_DEVICE
    for (int step = 16; step > 0; step /= 2)
        squares += __shfl_xor_sync(0xffffffffu, squares, step);
    if (lane == 0)
        atomicAdd(error, squares);
#else
    *error += squares;
#endif
}
