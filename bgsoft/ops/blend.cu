// Blending of a background into a frame, in place: luma and chroma together.
//
// At 8 bit both products of α·frame + (1 − α)·background are rounded on their own, so a sample is at
// most one code value off; at 10 bit they are rounded to 1/64 of a code value and their sum to a
// whole one.
//
// The alpha of a run is read first: opaque samples are left alone, and the frame is not read where
// only the background shows.
#include "background.cuh"
#include "drivers.cuh"

// Luma samples of a run's rows, of which it has two.
#if ON_DEVICE
#define COLUMNS 2
#else
#define COLUMNS 128
#endif
#define PAIRS (COLUMNS / 2)

// A sample, or a product of two at 8 bit: the narrower, the more of them the host does at once.
#if ON_DEVICE || SAMPLE_BITS != 8
typedef u32 lane_t;
#else
typedef u16 lane_t;
#endif

// Samples of a row, of which `count` exist; the values of others are unchanged.
template <class T>
OP void read_run(const T *row, int count, lane_t values[COLUMNS])
{
    if (count == COLUMNS)
        for (int index = 0; index < COLUMNS; ++index)
            values[index] = row[index];
    else
        for (int index = 0; index < COLUMNS; ++index)
            if (index < count)
                values[index] = row[index];
}

// The product of a sample and a weight of 255ths, over 255, to the nearest; 255 is odd, so there
// are no halves.
OP lane_t weighted(lane_t sample, lane_t weight)
{
#if SAMPLE_BITS == 8
    const lane_t product = (lane_t)(sample * weight + 128);
    return (lane_t)((lane_t)(product + (product >> 8)) >> 8);
#else
    return (sample * weight + 127) / 255;
#endif
}

// The stored value of a sum of weighted samples.
OP lane_t written(lane_t sum)
{
#if SAMPLE_BITS == 8
    return sum < 255 ? sum : (lane_t)255;
#else
    return (sum + 32) & 0xFFC0;
#endif
}

OP lane_t mixed(lane_t sample, lane_t other, lane_t alpha)
{
    return written((lane_t)(weighted(sample, alpha) + weighted(other, (lane_t)(255 - alpha))));
}

// One row of samples and its background mixed, where there is background to be seen.
//
// background(frame, samples) fills in `samples`; `frame` is valid where it asks for it, or where
// alpha is above 0.
template <bool READS_FRAME, class Background>
OP void mix_run(
    sample_t *row, int count, const lane_t alpha[COLUMNS], Background background)
{
    lane_t all = 255, any = 0;
    for (int index = 0; index < COLUMNS; ++index) {
        all &= alpha[index];
        any |= alpha[index];
    }
    if (all == 255)
        return;
    lane_t frame[COLUMNS] = {}, samples[COLUMNS] = {};
    if (READS_FRAME || any)
        read_run(row, count, frame);
    background(frame, samples);
    // Without alpha, weighing changes nothing: most of a picture is so. Two loops, as a condition inside
    // takes twice the time on the host.
    if (any) {
        for (int index = 0; index < COLUMNS; ++index)
            samples[index] = mixed(frame[index], samples[index], alpha[index]);
    } else {
        for (int index = 0; index < COLUMNS; ++index)
            samples[index] = written(samples[index]);
    }
    if (count == COLUMNS)
        for (int index = 0; index < COLUMNS; ++index)
            row[index] = (sample_t)samples[index];
    else
        for (int index = 0; index < COLUMNS; ++index)
            if (index < count)
                row[index] = (sample_t)samples[index];
}

// Before the rows of a run.
template <class Background>
OP void begin_rows(const Background &, int, int)
{
}

// Blends background.luma(y, x, count, frame, samples) and background.chroma(y, x, pairs, ...).
// READS_FRAME: the background is made of the frame. KEEPS_PARTIAL: samples with any alpha stay as they
// are.
template <bool READS_FRAME = false, bool KEEPS_PARTIAL = false, class Background>
OP void blend(
    sample_t *luma, sample_t *chroma, const u8 *alpha, int height, int width,
    const Background &background)
{
    [[maybe_unused]] int begun = -1;  // rows that the background is ready for
    for_runs<false>(height, width, 2, COLUMNS, [&](int y, int x, int count) INLINED {
        const int rows = min(2, height - y);
        lane_t matte[2][COLUMNS], opaque = 255;
        for (int row = 0; row < 2; ++row) {
            for (int index = 0; index < COLUMNS; ++index)
                matte[row][index] = 255;
            if (row < rows)
                read_run(alpha + (size_t)(y + row) * width + x, count, matte[row]);
            for (int index = 0; index < COLUMNS; ++index) {
                if (KEEPS_PARTIAL)
                    matte[row][index] = matte[row][index] > 0 ? 255 : 0;
                opaque &= matte[row][index];
            }
        }
        if (opaque == 255)
            return;
#if !ON_DEVICE
        if (begun != y)
            begin_rows(background, y, rows);
        begun = y;
#endif
        for (int row = 0; row < 2; ++row) {
            if (row >= rows)
                break;
            mix_run<READS_FRAME>(
                luma + (size_t)(y + row) * width + x, count, matte[row],
                [&](const lane_t frame[COLUMNS], lane_t samples[COLUMNS]) INLINED {
                    background.luma(y + row, x, count, frame, samples);
                });
        }
        const int pairs = (count + 1) / 2;
        lane_t pair_alpha[COLUMNS];
        if (rows == 2 && count == COLUMNS) {
            for (int pair = 0; pair < PAIRS; ++pair)
                pair_alpha[2 * pair] = pair_alpha[2 * pair + 1] = (lane_t)area_mean(
                    matte[0][2 * pair] + matte[0][2 * pair + 1] + matte[1][2 * pair]
                        + matte[1][2 * pair + 1],
                    4);
        } else {
            for (int pair = 0; pair < PAIRS; ++pair) {
                const int columns = min(2, count - 2 * pair);
                u32 sum = 0;
                for (int row = 0; row < rows; ++row)
                    for (int column = 0; column < columns; ++column)
                        sum += matte[row][2 * pair + column];
                pair_alpha[2 * pair] = pair_alpha[2 * pair + 1]
                    = (lane_t)(columns > 0 ? area_mean(sum, rows * columns) : 255);
            }
        }
        if (KEEPS_PARTIAL)
            for (int index = 0; index < COLUMNS; ++index)
                pair_alpha[index] = pair_alpha[index] > 0 ? 255 : 0;
        const size_t pitch = 2 * (size_t)((width + 1) / 2);
        mix_run<READS_FRAME>(
            chroma + (y / 2) * pitch + x, 2 * pairs, pair_alpha,
            [&](const lane_t frame[COLUMNS], lane_t samples[COLUMNS]) INLINED {
                background.chroma(y / 2, x / 2, pairs, frame, samples);
            });
    });
}

// Cells enlarged bilinearly and dithered.
//
// A row of cells is interpolated downwards first, then along. The host does the first for whole
// rows, before their runs: `lines` has room for four rows of `line_pitch` (two of luma, Cb, Cr).
struct GridBackground {
    const u16 *luma_cells, *cb_cells, *cr_cells;
    int rows, columns, chroma_rows, chroma_columns;
    int log_factor, chroma_log_factor;  // of samples per cell, each way
    const u8 *dither;  // (128, pitch), for luma and chroma alike; whole runs may be read
    int pitch;
    float *lines;
    int line_pitch;

    // Cut off to a code value after the threshold has been added.
    static OP lane_t code(u16 value, u8 threshold)
    {
        const u16 raised = (u16)(value + threshold);  // code values leave room for a threshold
#if SAMPLE_BITS == 8
        return raised >> 8;
#else
        return raised & 0xFFC0;
#endif
    }

    OP void luma(
        int y, int x, int, const lane_t[COLUMNS], lane_t samples[COLUMNS]) const
    {
        u16 fine[COLUMNS];
        enlarge<COLUMNS>(luma_cells, rows, columns, log_factor, y, x, lines + (y & 1) * line_pitch, fine);
        const u8 *thresholds = dither + (y & 127) * pitch;
        for (int index = 0; index < COLUMNS; ++index)
            samples[index] = code(fine[index], thresholds[x + index]);
    }

    OP void chroma(
        int y, int x, int, const lane_t[COLUMNS], lane_t samples[COLUMNS]) const
    {
        u16 cb[PAIRS], cr[PAIRS];
        enlarge<PAIRS>(cb_cells, chroma_rows, chroma_columns, chroma_log_factor, y, x, lines + 2 * line_pitch, cb);
        enlarge<PAIRS>(cr_cells, chroma_rows, chroma_columns, chroma_log_factor, y, x, lines + 3 * line_pitch, cr);
        const u8 *thresholds = dither + (y & 63) * pitch;
        for (int pair = 0; pair < PAIRS; ++pair) {
            const u8 threshold = thresholds[x + pair];
            samples[2 * pair] = code(cb[pair], threshold);
            samples[2 * pair + 1] = code(cr[pair], threshold);
        }
    }
};

#if !ON_DEVICE
OP void begin_rows(const GridBackground &grid, int y, int count)
{
    for (int row = 0; row < count; ++row)
        interpolate(grid.luma_cells, grid.rows, grid.columns, grid.log_factor, y + row,
            grid.lines + row * grid.line_pitch);
    const u16 *planes[] = {grid.cb_cells, grid.cr_cells};
    for (int plane = 0; plane < 2; ++plane)
        interpolate(planes[plane], grid.chroma_rows, grid.chroma_columns, grid.chroma_log_factor,
            y / 2, grid.lines + (2 + plane) * grid.line_pitch);
}
#endif

// A finished picture of the frame's size.
struct PlateBackground {
    const sample_t *luma_plane, *chroma_plane;
    int width;

    OP void luma(
        int y, int x, int count, const lane_t[COLUMNS], lane_t samples[COLUMNS]) const
    {
        read_run(luma_plane + (size_t)y * width + x, count, samples);
    }

    OP void chroma(
        int y, int x, int pairs, const lane_t[COLUMNS], lane_t samples[COLUMNS]) const
    {
        const size_t pitch = 2 * (size_t)((width + 1) / 2);
        read_run(chroma_plane + y * pitch + 2 * x, 2 * pairs, samples);
    }
};

// The frame's own samples through tables of code values.
struct MappedBackground {
    const sample_t *luma_table, *chroma_table;  // 256 or 1024 entries each

    static OP void map(
        const sample_t *table, const lane_t frame[COLUMNS], lane_t samples[COLUMNS])
    {
        for (int index = 0; index < COLUMNS; ++index)
            samples[index] = table[SAMPLE_BITS == 8 ? frame[index] : frame[index] >> 6];
    }

    OP void luma(
        int, int, int, const lane_t frame[COLUMNS], lane_t samples[COLUMNS]) const
    {
        map(luma_table, frame, samples);
    }

    OP void chroma(
        int, int, int, const lane_t frame[COLUMNS], lane_t samples[COLUMNS]) const
    {
        map(chroma_table, frame, samples);
    }
};

// Mosaic blocks.
struct BlockBackground {
    const sample_t *blocks;  // (3, rows, columns)
    int rows, columns, edge, top;  // luma samples: a block's, and above the frame in the first ones
    const u16 *block_of;  // of luma columns; whole runs may be read

    OP const sample_t *line(int plane, int y) const
    {
        return blocks + (plane * rows + (y + top) / edge) * columns;
    }

    OP void luma(int y, int x, int, const lane_t[COLUMNS], lane_t samples[COLUMNS]) const
    {
        const sample_t *light = line(0, y);
        for (int index = 0; index < COLUMNS; ++index)
            samples[index] = light[block_of[x + index]];
    }

    OP void chroma(int y, int x, int, const lane_t[COLUMNS], lane_t samples[COLUMNS]) const
    {
        const sample_t *cb = line(1, 2 * y), *cr = line(2, 2 * y);
        for (int pair = 0; pair < PAIRS; ++pair) {
            const int block = block_of[2 * (x + pair)];
            samples[2 * pair] = cb[block];
            samples[2 * pair + 1] = cr[block];
        }
    }
};

// plan: rows and columns of luma and of chroma cells, binary logarithms of samples per cell of
// luma and of chroma, the offsets of luma, Cb and Cr in `cells`, and the pitches of `dither` and of `lines`.
OP GridBackground grid_of(const int *plan, const u16 *cells, const u8 *dither, float *lines)
{
    return {cells + plan[6], cells + plan[7], cells + plan[8], plan[0], plan[1], plan[2], plan[3],
            plan[4], plan[5], dither, plan[9], lines, plan[10]};
}

KERNEL(blend_grid)(
    sample_t *luma, sample_t *chroma, const u8 *alpha, int height, int width,
    const int *plan, const u16 *cells, const u8 *dither, float *lines)
{
    blend(luma, chroma, alpha, height, width, grid_of(plan, cells, dither, lines));
}

// The same where nothing is seen.
KERNEL(blend_cutout)(
    sample_t *luma, sample_t *chroma, const u8 *alpha, int height, int width,
    const int *plan, const u16 *cells, const u8 *dither, float *lines)
{
    const GridBackground background = grid_of(plan, cells, dither, lines);
    blend<false, true>(luma, chroma, alpha, height, width, background);
}

KERNEL(blend_plate)(
    sample_t *luma, sample_t *chroma, const u8 *alpha, int height, int width,
    const sample_t *plate_luma, const sample_t *plate_chroma)
{
    const PlateBackground background = {plate_luma, plate_chroma, width};
    blend(luma, chroma, alpha, height, width, background);
}

KERNEL(blend_mapped)(
    sample_t *luma, sample_t *chroma, const u8 *alpha, int height, int width,
    const sample_t *luma_table, const sample_t *chroma_table)
{
    const MappedBackground background = {luma_table, chroma_table};
    blend<true>(luma, chroma, alpha, height, width, background);
}

// plan: rows and columns of blocks, their edge, and luma samples above the frame in the first.
KERNEL(blend_blocks)(
    sample_t *luma, sample_t *chroma, const u8 *alpha, int height, int width,
    const int *plan, const sample_t *blocks, const u16 *block_of)
{
    const BlockBackground background = {blocks, plan[0], plan[1], plan[2], plan[3], block_of};
    blend(luma, chroma, alpha, height, width, background);
}
