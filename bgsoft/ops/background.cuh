// Cells of backgrounds: averaging into them, enlarging them, and people near them.
//
// Means and enlarging are those of the analysis frame (cells.cuh) and of cv2.resize with
// INTER_LINEAR. Cells are 16-bit full scale: the frame's sample << FULL_SHIFT.
#pragma once

#include "cells.cuh"
#include "resample.cuh"

#if SAMPLE_BITS == 8
#define FULL_SHIFT 8
#else
#define FULL_SHIFT 0
#endif

// Largest matte sample up to which a grid cell is background in full.
#define CLEAR_ALPHA 8

// Mean of 1, 2 or 4 samples with OpenCV's rounding: halves of four go up, halves of two to even.
OP u32 area_mean(u32 sum, int count)
{
    if (count == 4)
        return (sum + 2) >> 2;
    if (count == 2) {
        const u32 half = sum >> 1;
        return half + (half & sum & 1);
    }
    return sum;
}

// A channel of a plane of interleaved ones, `step` samples apart, and the edge of the cells that it is
// averaged over: a power of two up to 32.
struct Samples {
    const sample_t *plane;
    int rows, columns, step, channel, factor;
};

OUTLINED u32 cell_mean(const Samples &samples, int y, int x)
{
    const auto [plane, rows, columns, step, channel, factor] = samples;
    switch (factor) {
    case 1: return cell<1>(plane, rows, columns, step, channel, y, x);
    case 2: return cell<2>(plane, rows, columns, step, channel, y, x);
    case 4: return cell<4>(plane, rows, columns, step, channel, y, x);
    case 8: return cell<8>(plane, rows, columns, step, channel, y, x);
    case 16: return cell<16>(plane, rows, columns, step, channel, y, x);
    default: return cell<32>(plane, rows, columns, step, channel, y, x);
    }
}

// A level of a pyramid in one buffer. `table` holds the number of levels, then rows, columns and offset
// (in cells) of each.
struct Level {
    int rows, columns, offset;
};

OP Level level_of(const int *table, int index)
{
    const int *entry = table + 1 + 3 * index;
    return {entry[0], entry[1], entry[2]};
}

// A sample of cells enlarged bilinearly; `scale` is cells per sample. Rounds halves to even.
OP u32 enlarged(
    const u16 *cells, int rows, int columns, float scale, int y, int x)
{
    const Between down(y, scale, rows), across(x, scale, columns);
    const u16 *upper = cells + down.first * columns, *lower = cells + down.second * columns;
    const float first = along(upper[across.first], lower[across.first], down.part);
    const float second = along(upper[across.second], lower[across.second], down.part);
    return (u32)nearest(along(first, second, across.part));
}

#if ON_DEVICE
// N samples from (y, x) on, of cells of 1 << log_factor samples each way.
template <int N>
OP void enlarge(
    const u16 *cells, int rows, int columns, int log_factor, int y, int x, const float *,
    u16 samples[])
{
    for (int index = 0; index < N; ++index)
        samples[index]
            = (u16)enlarged(cells, rows, columns, 1.0f / (float)(1 << log_factor), y, x + index);
}
#else
// `count` cells of the row between cells that shows at row y of samples, from cell -1 on; the outermost
// ones are repeated.
OP void interpolate(
    const u16 *cells, int rows, int columns, int log_factor, int y, float *line)
{
    const Between down(y, 1.0f / (float)(1 << log_factor), rows);
    const u16 *upper = cells + down.first * columns, *lower = cells + down.second * columns;
    for (int x = 0; x < columns; ++x)
        line[1 + x] = along(upper[x], lower[x], down.part);
    line[0] = line[1];
    line[columns + 1] = line[columns];
}

// The same as enlarged(), x a multiple of N; F the samples per cell, N where they are more.
template <int N, int F>
OP void enlarge_by(const float *whole, int log_factor, int x, u16 samples[])
{
    const float *line = whole + (x >> log_factor);
    const float scale = 1.0f / (float)(F < N ? F : 1 << log_factor);
    if (F < N) {
        // From one cell's centre to the next; the first and the last half are not used.
        u16 between_centres[N + F];
        for (int cell = 0; cell <= N / F; ++cell)
            for (int index = 0; index < F; ++index)
                between_centres[cell * F + index] = (u16)nearest(
                    along(line[cell], line[cell + 1], ((float)index + 0.5f) * scale));
        for (int index = 0; index < N; ++index)
            samples[index] = between_centres[F / 2 + index];
        return;
    }
    const int inside = x & ((1 << log_factor) - 1);  // of the cell that all samples are in
    for (int index = 0; index < N; ++index) {
        const float position = ((float)(inside + index) + 0.5f) * scale - 0.5f;
        const bool before = position < 0.0f;
        const float left = before ? line[0] : line[1];
        const float right = before ? line[1] : line[2];
        samples[index] = (u16)nearest(along(left, right, before ? position + 1.0f : position));
    }
}

// The same by any power of two, x a multiple of N. `line` has been interpolated.
template <int N>
OUTLINED void enlarge(
    const u16 *cells, int, int columns, int log_factor, int y, int x, const float *line,
    u16 samples[])
{
    switch (log_factor) {
    case 0:
        for (int index = 0; index < N; ++index)
            samples[index] = cells[y * columns + min(x + index, columns - 1)];
        break;
    case 1: enlarge_by<N, 2>(line, log_factor, x, samples); break;
    case 2: enlarge_by<N, 4>(line, log_factor, x, samples); break;
    case 3: enlarge_by<N, 8>(line, log_factor, x, samples); break;
    case 4: enlarge_by<N, 16>(line, log_factor, x, samples); break;
    case 5: enlarge_by<N, 32>(line, log_factor, x, samples); break;
    case 6: enlarge_by<N, 64>(line, log_factor, x, samples); break;
    default: enlarge_by<N, N>(line, log_factor, x, samples); break;
    }
}
#endif

// Largest matte sample from one row and column before a grid cell to two after it.
OP u8 near_matte(const u8 *matte, int rows, int columns, int y, int x)
{
    u8 largest = 0;
    for (int dy = -1; dy <= 2; ++dy) {
        const u8 *row = matte + clamp_int(y + dy, 0, rows - 1) * columns;
        for (int dx = -1; dx <= 2; ++dx)
            largest = max(largest, row[clamp_int(x + dx, 0, columns - 1)]);
    }
    return largest;
}

#if !ON_DEVICE
// near_matte() of a row of cells; `marks` has room for three more.
OP void near_row(const u8 *matte, int rows, int columns, int y, u8 *marks)
{
    const u8 *around[4];
    for (int step = 0; step < 4; ++step)
        around[step] = matte + clamp_int(y - 1 + step, 0, rows - 1) * columns;
    for (int x = 0; x < columns; ++x)
        marks[1 + x] = max(max(around[0][x], around[1][x]), max(around[2][x], around[3][x]));
    marks[0] = marks[1];
    marks[columns + 1] = marks[columns + 2] = marks[columns];
    // Each is read before it is overwritten.
    for (int x = 0; x < columns; ++x)
        marks[x] = max(max(marks[x], marks[x + 1]), max(marks[x + 2], marks[x + 3]));
}

// The first `count` cells of row y as cell_mean() makes them, full scale.
template <int F>
OP void whole_means(
    const sample_t *samples, int pitch, int step, int count, u16 *means)
{
    for (int x = 0; x < count; ++x)
        means[x] = (u16)(whole_cell<F>(samples + x * F * step, pitch, step) << FULL_SHIFT);
}

OP void mean_row(const Samples &source, int y, int count, u16 *means)
{
    const auto [plane, rows, columns, step, channel, factor] = source;
    const sample_t *samples = plane + (size_t)y * factor * columns * step + channel;
    int whole = (y + 1) * factor <= rows ? columns / factor : 0;
    switch (factor) {
    case 1: whole_means<1>(samples, columns * step, step, whole, means); break;
    case 2: whole_means<2>(samples, columns * step, step, whole, means); break;
    case 4: whole_means<4>(samples, columns * step, step, whole, means); break;
    default: whole = 0;
    }
    for (int x = whole; x < count; ++x)
        means[x] = (u16)(cell_mean(source, y, x) << FULL_SHIFT);
}
#endif


// Index of a sample beyond the edges, mirrored with the edge sample repeated (BORDER_REFLECT).
OP int reflected(int index, int count)
{
    if (index >= 0 && index < count)
        return index;
    const int period = 2 * count;
    index %= period;
    if (index < 0)
        index += period;
    return index < count ? index : period - 1 - index;
}

// 16-bit full scale from a sum or mean, halves up.
OP u16 to_cell(float value)
{
    return (u16)fminf(fmaxf(value + 0.5f, 0.0f), 65535.0f);
}
