// Planes of the zoomed segmenter, in float32; see bgsoft/segment/planes.py.

#include "drivers.cuh"
#include "resample.cuh"

#define CELL 4

// Weight of whole passes, in cells: 1 where the picture stands still, min_weight from a change of
// `moved` on.
struct Stillness {
    const float *luma, *seen;
    float min_weight, moved, span;

    OP float in_cell(int at) const
    {
        float weight = (moved - fabsf(luma[at] - seen[at])) / span;
        return fminf(fmaxf(weight, min_weight), 1.0f);
    }
};

// Means over the cells of a plane on the grid, times scale; of those that an edge cuts, over what
// they hold. One thread a cell. Sum: what a row of a cell is added up in.
template <class T, class Sum>
OP void average(
    const T *__restrict__ plane, int rows, int columns, float scale, float *__restrict__ cells,
    int cell_rows, int cell_columns)
{
    for_samples(cell_rows, cell_columns, [=](int row, int column) INLINED {
        const int height = min(CELL, rows - row * CELL), width = min(CELL, columns - column * CELL);
        const T *first = plane + (size_t)row * CELL * columns + column * CELL;
        float total = 0.0f;
        for (int y = 0; y < height; y++) {
            Sum sum = 0;
            for (int x = 0; x < width; x++)
                sum += first[y * columns + x];
            total += (float)sum;
        }
        cells[row * cell_columns + column] = total * (scale / (float)(width * height));
    });
}

// luma: (rows, columns); scale: to 8-bit codes; cells: (cell_rows, cell_columns).
KERNEL(luma_cells)(
    const sample_t *luma, int rows, int columns, float scale, float *cells, int cell_rows,
    int cell_columns)
{
    average<sample_t, int>(luma, rows, columns, scale, cells, cell_rows, cell_columns);
}

// The same of a mask.
KERNEL(mask_cells)(
    const float *mask, int rows, int columns, float *cells, int cell_rows, int cell_columns)
{
    average<float, float>(mask, rows, columns, 1.0f, cells, cell_rows, cell_columns);
}

// One thread an output sample. mask: (.., pitch); out: (rows, columns), made by the tables.
KERNEL(resize_mask)(
    const float *mask, int pitch, const float *x_table, int x_stride, const float *y_table,
    int y_stride, int mode, float *out, int rows, int columns)
{
    for_apart(rows, columns, [=](int y, int x) INLINED {
        out[y * columns + x] =
            resized_float(mask, pitch, x_table, x_stride, y_table, y_stride, mode, y, x);
    });
}

// How far the close pass has faded in at sample `at` of `count`; 0 widths: at once.
OP float ramp(int at, int count, float first, float last)
{
    float rise = first > 0.0f ? ((float)at + 0.5f) / first : 1.0f;
    float fall = last > 0.0f ? ((float)(count - 1 - at) + 0.5f) / last : 1.0f;
    return fminf(fminf(rise, fall), 1.0f);
}

#if ON_DEVICE
// How much whole passes count in a sample of the grid: as its cells do, enlarged.
OP float weight_at(const Stillness& still, Between down, Between across, int columns)
{
    const auto in_row = [=](int row) {
        return along(
            still.in_cell(row * columns + across.first),
            still.in_cell(row * columns + across.second),
            across.part);
    };
    return along(in_row(down.first), in_row(down.second), down.part);
}
#else
// A row of weights, enlarged along it. cells: room for a row of them, and one at each end.
static void enlarge_weights(
    const Stillness& still, int row, int columns, float* cells, float* line)
{
    INDEPENDENT
    for (int column = 0; column < columns; column++)
        cells[column] = still.in_cell(row * columns + column);
    cells[-1] = cells[0];
    cells[columns] = cells[columns - 1];
    INDEPENDENT
    for (int column = 0; column < columns; column++) {
        const float before = cells[column - 1], own = cells[column], after = cells[column + 1];
        float* target = line + CELL * column;
        target[0] = before * 0.375f + own * 0.625f;
        target[1] = before * 0.125f + own * 0.875f;
        target[2] = own * 0.875f + after * 0.125f;
        target[3] = own * 0.625f + after * 0.375f;
    }
}
#endif

// The mask of a frame from its passes; one thread a sample.
//
// whole, mask: (rows, columns); the sum of whole passes, times their weights, whose sum is share. luma,
// seen: (cell_rows, cell_columns), of this frame and of the one that the whole passes saw. They count by
// their share where the picture stands still, up to a change of moved - span, and by `min_weight` of it
// from moved on. close: (.., close_pitch), resized by the tables to the box left .. right, top .. bottom
// (half-open; empty where there is none), where its weight is close_weight, faded in over the four widths.
//
// lines: on the host, room for 2 rows of whole cells, a row of cells and two, and a row of the grid.
KERNEL(blend_passes)(
    const float *whole, float share, const float *luma, const float *seen, int cell_rows,
    int cell_columns, float min_weight, float moved, float span, const float *close,
    int close_pitch, const float *x_table, int x_stride, const float *y_table, int y_stride,
    int mode, int left, int top, int right, int bottom, float fade_left, float fade_top,
    float fade_right, float fade_bottom, float close_weight, float *mask, int rows, int columns,
    float *lines)
{
    const Stillness still = {luma, seen, min_weight, moved, span};
#if ON_DEVICE
    for_samples(rows, columns, [&](int y, int x) {
        const Between down(y, 1.0f / CELL, cell_rows);
        const Between across(x, 1.0f / CELL, cell_columns);
        const int at = y * columns + x;
        const float counts = weight_at(still, down, across, cell_columns);
        float sum = whole[at] * counts, total = share * counts;
        if (x >= left && x < right && y >= top && y < bottom) {
            float weight = ramp(y - top, bottom - top, fade_top, fade_bottom) *
                           (close_weight * ramp(x - left, right - left, fade_left, fade_right));
            sum += resized_float(
                       close, close_pitch, x_table, x_stride, y_table, y_stride, mode, y - top,
                       x - left) * weight;
            total += weight;
        }
        mask[at] = fminf(sum / total, 1.0f);
    });
#else
    const int width = CELL * cell_columns;
    float *cells = lines + 2 * width + 1, *across = cells + cell_columns + 1;
    for (int x = left; x < right; x++)
        across[x - left] = close_weight * ramp(x - left, right - left, fade_left, fade_right);
    int held[] = {-1, -1};
    for (int y = 0; y < rows; y++) {
        const Between between_rows(y, 1.0f / CELL, cell_rows);
        const int first = between_rows.first, second = between_rows.second;
        for (int row = first; row <= second; row++)
            if (held[row & 1] != row) {
                held[row & 1] = row;
                enlarge_weights(still, row, cell_columns, cells, lines + (row & 1) * width);
            }
        const float down = between_rows.part, up = 1.0f - down;
        const float *upper = lines + (first & 1) * width, *lower = lines + (second & 1) * width;
        const float *whole_row = whole + (size_t)y * columns;
        float *target = mask + (size_t)y * columns;
        const auto blend = [&](int x, float added, float weight) INLINED {
            const float counts = upper[x] * up + lower[x] * down;
            target[x] = fminf((whole_row[x] * counts + added) / (share * counts + weight), 1.0f);
        };
        const bool beside = y < top || y >= bottom;
        INDEPENDENT
        for (int x = 0; x < (beside ? columns : left); x++)
            blend(x, 0.0f, 0.0f);
        if (beside)
            continue;
        const float *close_row = close + (size_t)(y - top) * close_pitch;
        const float faded = ramp(y - top, bottom - top, fade_top, fade_bottom);
        INDEPENDENT
        for (int x = left; x < right; x++) {
            const float weight = faded * across[x - left];
            blend(x, close_row[x - left] * weight, weight);
        }
        INDEPENDENT
        for (int x = right; x < columns; x++)
            blend(x, 0.0f, 0.0f);
    }
#endif
}

// A mask averaged with a pass over the box left .. right, top .. bottom of it, in place; no sample loses
// more than max_loss. One thread a sample of the box. mask: (.., columns); the others as above.
KERNEL(average_pass)(
    const float *close, int close_pitch, const float *x_table, int x_stride, const float *y_table,
    int y_stride, int mode, int left, int top, int right, int bottom, float fade_left,
    float fade_top, float fade_right, float fade_bottom, float close_weight, float max_loss,
    float *mask, int columns)
{
    const int height = bottom - top, width = right - left;
    for_apart(height, width, [=](int y, int x) INLINED {
        const float weight = ramp(y, height, fade_top, fade_bottom) *
                             (close_weight * ramp(x, width, fade_left, fade_right));
        float &own = mask[(size_t)(top + y) * columns + left + x];
        const float added = resized_float(
            close, close_pitch, x_table, x_stride, y_table, y_stride, mode, y, x);
        const float mean = fminf((own + added * weight) / (1.0f + weight), 1.0f);
        own = fmaxf(mean, own - max_loss);
    });
}
