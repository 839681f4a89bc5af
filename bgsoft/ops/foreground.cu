// People's own colour where they are partly transparent.
//
// Launched by bgsoft/composite/foreground.py. Rounds to code values, halves to even.
//
// Levels of cells (see Level), each twice as large as those before, the first twice as large as the
// analysis frame's. cells: luma, Cb, Cr as stored sample values, and alpha in [0, 1]. foreground,
// background: what is estimated of the same; w means nothing.
#include "background.cuh"
#include "drivers.cuh"

// How strongly colours keep to those of the level before, against the sample itself. With less,
// edges are better where the matte is right, and worse where it is not.
#define HOLD 0.1f
// Of a neighbour that shows nothing of the colour.
#define MIN_WEIGHT 1e-4f

OP void add(float4 &sum, float4 value, float weight)
{
    sum.x += value.x * weight;
    sum.y += value.y * weight;
    sum.z += value.z * weight;
    sum.w += value.w * weight;
}

// The mean of 2x2 values of (rows, columns), or what the edges leave of them.
template <class Value>
OP float4 mean_2x2(int rows, int columns, int y, int x, const Value &value)
{
    const int bottom = min(2 * y + 2, rows), right = min(2 * x + 2, columns);
    const float weight = 1.0f / (float)((bottom - 2 * y) * (right - 2 * x));
    float4 mean = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int row = 2 * y; row < bottom; ++row)
        for (int column = 2 * x; column < right; ++column)
            add(mean, value(row, column), weight);
    return mean;
}

// Bilinear interpolation between cells of half as many a sample.
OP float4 doubled(const float4 *colors, Level coarse, int y, int x)
{
    const Between down(y, 0.5f, coarse.rows), along(x, 0.5f, coarse.columns);
    const float4 *upper = colors + coarse.offset + down.first * coarse.columns;
    const float4 *lower = colors + coarse.offset + down.second * coarse.columns;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    add(sum, upper[along.first], (1.0f - down.part) * (1.0f - along.part));
    add(sum, upper[along.second], (1.0f - down.part) * along.part);
    add(sum, lower[along.first], down.part * (1.0f - along.part));
    add(sum, lower[along.second], down.part * along.part);
    return sum;
}

// A colour times what it counts, which is w.
OP float4 counted(float4 color, float share)
{
    const float weight = share * share * (share * share) + MIN_WEIGHT;
    return make_float4(color.x * weight, color.y * weight, color.z * weight, weight);
}

// The first level, from 2x2 cells of the analysis frame, (rows, columns), or what the edges leave of
// them. Without `has_chroma`, chroma comes at half the grid's size.
KERNEL(foreground_first)(
    const sample_t *luma, const sample_t *chroma, const u8 *matte, int rows, int columns,
    int has_chroma, float4 *cells)
{
    const int cell_columns = (columns + 1) / 2;
    for_samples((rows + 1) / 2, cell_columns, [&](int y, int x) INLINED {
        const int index = y * cell_columns + x;
        float4 mean = mean_2x2(rows, columns, y, x, [=](int row, int column) INLINED {
            const int cell = row * columns + column;
            const sample_t *pair = chroma + 2 * (has_chroma ? cell : index);
            return make_float4(
                (float)luma[cell], (float)pair[0], (float)pair[1], (float)matte[cell]);
        });
        mean.w *= 1.0f / 255.0f;
        cells[index] = mean;
    });
}

// The levels of the pyramid; each function makes one cell of level `index`.
struct Pyramid {
    const int *table;
    float4 *cells, *foreground, *background;
    float4 *moved;  // of one level, both colours of a cell

    // The cell, from those of the level before.
    OP void halve(int index, int y, int x) const
    {
        const Level level = level_of(table, index), fine = level_of(table, index - 1);
        const float4 *from = cells + fine.offset;
        cells[level.offset + y * level.columns + x] = mean_2x2(
            fine.rows, fine.columns, y, x,
            [=](int row, int column) INLINED { return from[row * fine.columns + column]; });
    }

    // Both colours, those of the next level moved towards what the picture asks for, and counted.
    OP void move(int index, int y, int x) const
    {
        const Level level = level_of(table, index);
        const int at = y * level.columns + x;
        const float4 cell = cells[level.offset + at];
        float4 color = cell, other = cell;
        if (index + 1 < table[0]) {
            const Level coarse = level_of(table, index + 1);
            color = doubled(foreground, coarse, y, x);
            other = doubled(background, coarse, y, x);
        }
        const float share = cell.w, rest = 1.0f - share;
        const float total = share * share + rest * rest + HOLD;
        float4 left = cell;
        add(left, color, -share);
        add(left, other, -rest);
        add(color, left, share / total);
        add(other, left, rest / total);
        moved[2 * at] = counted(color, share);
        moved[2 * at + 1] = counted(other, rest);
    }

    // The colours: what has been moved, averaged over 3x3 cells.
    OP void average(int index, int y, int x) const
    {
        const Level level = level_of(table, index);
        float4 front = make_float4(0.0f, 0.0f, 0.0f, 0.0f), back = front;
        for (int dy = -1; dy <= 1; ++dy) {
            const float4 *line = moved + 2 * clamp_int(y + dy, 0, level.rows - 1) * level.columns;
            for (int dx = -1; dx <= 1; ++dx) {
                const float4 *pair = line + 2 * clamp_int(x + dx, 0, level.columns - 1);
                add(front, pair[0], 1.0f);
                add(back, pair[1], 1.0f);
            }
        }
        const int at = level.offset + y * level.columns + x;
        foreground[at] = make_float4(front.x / front.w, front.y / front.w, front.z / front.w, 0.0f);
        background[at] = make_float4(back.x / back.w, back.y / back.w, back.z / back.w, 0.0f);
    }
};

KERNEL(foreground_halve)(
    int index, const int *table, float4 *cells, float4 *foreground, float4 *background, float4 *moved)
{
    const Pyramid pyramid = {table, cells, foreground, background, moved};
    const Level level = level_of(table, index);
    for_samples(level.rows, level.columns, [&](int y, int x) INLINED { pyramid.halve(index, y, x); });
}

KERNEL(foreground_move)(
    int index, const int *table, float4 *cells, float4 *foreground, float4 *background, float4 *moved)
{
    const Pyramid pyramid = {table, cells, foreground, background, moved};
    const Level level = level_of(table, index);
    for_samples(level.rows, level.columns, [&](int y, int x) INLINED { pyramid.move(index, y, x); });
}

KERNEL(foreground_average)(
    int index, const int *table, float4 *cells, float4 *foreground, float4 *background, float4 *moved)
{
    const Pyramid pyramid = {table, cells, foreground, background, moved};
    const Level level = level_of(table, index);
    for_samples(level.rows, level.columns, [&](int y, int x) INLINED { pyramid.average(index, y, x); });
}

// Cells of the levels after `first`, then the colours of these levels and of `first`. One block.
BLOCK_KERNEL(foreground_coarse)(
    int first, const int *table, float4 *cells, float4 *foreground, float4 *background, float4 *moved)
{
    const Pyramid pyramid = {table, cells, foreground, background, moved};
    for (int index = first + 1; index < table[0]; ++index) {
        const Level level = level_of(table, index);
        for_samples_together(level.rows, level.columns, [&](int y, int x) INLINED {
            pyramid.halve(index, y, x);
        });
    }
    for (int index = table[0] - 1; index >= first; --index) {
        const Level level = level_of(table, index);
        for_samples_together(level.rows, level.columns, [&](int y, int x) INLINED {
            pyramid.move(index, y, x);
        });
        for_samples_together(level.rows, level.columns, [&](int y, int x) INLINED {
            pyramid.average(index, y, x);
        });
    }
}

// One channel of the first level's colours, `scale` cells a sample.
OP float interpolated(
    const float4 *colors, int channel, Between down, Between along, int columns)
{
    const float *values = (const float *)colors + channel;
    const float *upper = values + 4 * down.first * columns;
    const float *lower = values + 4 * down.second * columns;
    return upper[4 * along.first] * ((1.0f - down.part) * (1.0f - along.part))
        + upper[4 * along.second] * ((1.0f - down.part) * along.part)
        + lower[4 * along.first] * (down.part * (1.0f - along.part))
        + lower[4 * along.second] * (down.part * along.part);
}

OP sample_t restored(sample_t sample, float share, float color, float other)
{
    const float rest = 1.0f - share;
    const float left = (float)sample - share * color - rest * other;
    return to_sample(color + share / (share * share + rest * rest + HOLD) * left);
}

// The luma samples and the chroma pair of chroma sample (y, x), where alpha is 1 to 254.
OP void restore(
    sample_t *luma, sample_t *chroma, const u8 *alpha, int height, int width,
    const float4 *foreground, const float4 *background, int rows, int columns, float scale,
    int pair_y, int pair_x)
{
    const int bottom = min(2 * pair_y + 2, height), right = min(2 * pair_x + 2, width);
    const int count = (bottom - 2 * pair_y) * (right - 2 * pair_x);
    u32 sum = 0;
    for (int y = 2 * pair_y; y < bottom; ++y)
        for (int x = 2 * pair_x; x < right; ++x)
            sum += alpha[(size_t)y * width + x];
    if (sum == 0 || sum == 255u * (u32)count)
        return;
    for (int y = 2 * pair_y; y < bottom; ++y)
        for (int x = 2 * pair_x; x < right; ++x) {
            const size_t index = (size_t)y * width + x;
            const u32 value = alpha[index];
            if (value == 0 || value == 255)
                continue;
            const Between down(y, scale, rows), along(x, scale, columns);
            luma[index] = restored(
                luma[index], (float)value / 255.0f,
                interpolated(foreground, 0, down, along, columns),
                interpolated(background, 0, down, along, columns));
        }
    const u32 mean = area_mean(sum, count);
    if (mean == 0 || mean == 255)
        return;
    const Between down(pair_y, 2.0f * scale, rows);
    const Between along(pair_x, 2.0f * scale, columns);
    sample_t *pair = chroma + 2 * ((size_t)pair_y * ((width + 1) / 2) + pair_x);
    for (int channel = 1; channel <= 2; ++channel)
        pair[channel - 1] = restored(
            pair[channel - 1], (float)mean / 255.0f,
            interpolated(foreground, channel, down, along, columns),
            interpolated(background, channel, down, along, columns));
}

#if ON_DEVICE
#define PAIRS 1
#else
#define PAIRS 32
#endif

// Samples with an alpha of 1 to 254 get the foreground's colour, in place. Chroma takes the mean
// alpha of its 2x2 luma samples.
//
// rows, columns: of the first level, with `scale` cells a luma sample. A run is PAIRS chroma samples.
KERNEL(foreground_restore)(
    sample_t *luma, sample_t *chroma, const u8 *alpha, int height, int width,
    const float4 *foreground, const float4 *background, int rows, int columns, float scale)
{
    for_runs((height + 1) / 2, (width + 1) / 2, 1, PAIRS, [&](int y, int x, int count) INLINED {
#if !ON_DEVICE
        if (2 * (x + PAIRS) <= width && 2 * y + 1 < height) {
            const u8 *upper = alpha + (size_t)2 * y * width + 2 * x;
            u8 all = 255, any = 0;
            for (int index = 0; index < 2 * PAIRS; ++index) {
                all &= upper[index] & upper[index + width];
                any |= upper[index] | upper[index + width];
            }
            if (all == 255 || any == 0)
                return;
        }
#endif
        for (int pair = 0; pair < count; ++pair)
            restore(
                luma, chroma, alpha, height, width, foreground, background, rows, columns, scale,
                y, x + pair);
    });
}
