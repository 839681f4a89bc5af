// Colours of mosaic blocks: means of the cells that they cover.
//
// Launched by bgsoft/composite/filters.py.
#include "background.cuh"
#include "drivers.cuh"

// Sums over the cells of a row that a block covers, `edge` of them; `left` lie beyond the frame in the first.
//
// cells: (3, rows, columns) at the offsets, 16-bit full scale. sums: (3, rows, block_columns).
KERNEL(pixelate_rows)(
    const u16 *cells, const int *offsets, u32 *sums, int rows, int columns, int block_columns,
    int edge, int left)
{
    for_samples(rows, block_columns, [=](int y, int block) INLINED {
        const int first = max(block * edge - left, 0), end = min((block + 1) * edge - left, columns);
        for (int plane = 0; plane < 3; ++plane) {
            const u16 *line = cells + offsets[plane] + y * columns;
            u32 sum = 0;
            for (int x = first; x < end; ++x)
                sum += line[x];
            sums[(plane * rows + y) * block_columns + block] = sum;
        }
    });
}

// The blocks, (3, block_rows, block_columns), rounded to code values, halves to even.
KERNEL(pixelate_blocks)(
    const u32 *sums, sample_t *blocks, int rows, int columns, int block_rows, int block_columns,
    int edge, int top, int left)
{
    for_samples(block_rows, block_columns, [=](int row, int block) INLINED {
        const int first = max(row * edge - top, 0), end = min((row + 1) * edge - top, rows);
        const int width = min((block + 1) * edge - left, columns) - max(block * edge - left, 0);
        const float count = (float)((end - first) * width) * (float)(1 << FULL_SHIFT);
        for (int plane = 0; plane < 3; ++plane) {
            u64 sum = 0;
            for (int y = first; y < end; ++y)
                sum += sums[(plane * rows + y) * block_columns + block];
            blocks[(plane * block_rows + row) * block_columns + block] = to_sample((float)sum / count);
        }
    });
}
