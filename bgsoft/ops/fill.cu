// The picture without its people: push-pull interpolation of what is around them.
//
// Launched by bgsoft/composite/fill.py.
//
// Pyramid: levels of float4 (three planes, each times the weight; the weight); see Level. A level that has
// been filled in holds the filled planes instead.
#include "background.cuh"
#include "drivers.cuh"

// Grid cells count as background in full up to CLEAR_ALPHA, not at all from here on.
#define PERSON_ALPHA 40
// Weight of the whole picture's mean; decides only where (almost) no background is to be seen.
#define LAST_RESORT 1e-4f

OP float4 mixed(float4 first, float4 second, float part)
{
    const float rest = 1.0f - part;
    return make_float4(
        first.x * rest + second.x * part,
        first.y * rest + second.y * part,
        first.z * rest + second.z * part,
        first.w * rest + second.w * part);
}

// Cell (y, x) of `to`, by bilinear interpolation in the cells of `from`.
OP float4 resampled(const float4 *cells, Level from, Level to, int y, int x)
{
    const Between down(y, (float)from.rows / (float)to.rows, from.rows);
    const Between along(x, (float)from.columns / (float)to.columns, from.columns);
    const float4 *upper = cells + down.first * from.columns, *lower = cells + down.second * from.columns;
    const float4 first = mixed(upper[along.first], upper[along.second], along.part);
    const float4 second = mixed(lower[along.first], lower[along.second], along.part);
    return mixed(first, second, down.part);
}

OP float4 laid_over(float4 weighted, float4 below)
{
    const float shows = 1.0f - weighted.w;
    return make_float4(
        below.x * shows + weighted.x,
        below.y * shows + weighted.y,
        below.z * shows + weighted.z,
        1.0f);
}

// What a cell counts whose largest matte sample near it is `alpha`.
OP float person_weight(float alpha)
{
    const float weight = (PERSON_ALPHA - alpha) / (PERSON_ALPHA - CLEAR_ALPHA);
    return fminf(fmaxf(weight, 0.0f), 1.0f);
}

struct Grid {
    const sample_t *luma, *chroma;
    const u8 *matte;
    int rows, columns;
    bool has_chroma;  // or else chroma comes at half the grid's size
    int cell_columns;

    // A cell of 2x2 grid cells, 16-bit full scale, and its weight.
    OP float weighted(int y, int x, u32 values[3]) const
    {
        values[0] = halved_full(luma, 1, y, x);
        if (has_chroma) {
            values[1] = halved_full(chroma, 2, y, x);
            values[2] = halved_full(chroma + 1, 2, y, x);
        } else {
            const sample_t *pair = chroma + 2 * (y * cell_columns + x);
            values[1] = (u32)pair[0] << FULL_SHIFT;
            values[2] = (u32)pair[1] << FULL_SHIFT;
        }
        // One grid cell beyond the larger cell, since cells next to a person are mixed.
        const float alpha = (float)near_matte(matte, rows, columns, 2 * y, 2 * x, 2);
        return person_weight(alpha);
    }

    // Mean of 2x2 samples, or what the edges leave of them. `step` samples lie between neighbours.
    OP u32 halved_full(
        const sample_t *plane, int step, int y, int x) const
    {
        const int bottom = min(2 * y + 2, rows), right = min(2 * x + 2, columns);
        u32 sum = 0;
        int count = 0;
        for (int row = 2 * y; row < bottom; ++row)
            for (int column = 2 * x; column < right; ++column, ++count)
                sum += (u32)plane[(row * columns + column) * step] << FULL_SHIFT;
        return area_mean(sum, count);
    }
};

#if ON_DEVICE
#define CELLS 1
#else
#define CELLS 32

// Cells of a run away from the grid's edges, and their weights.
OP void inner_run(const Grid &grid, int y, int x, u16 values[3][CELLS], float weights[CELLS])
{
    const int pitch = grid.columns;
    const u8 *matte = grid.matte + (size_t)(2 * y - 1) * pitch + 2 * x - 1;
    u8 line[2 * CELLS + 2];
    for (int index = 0; index < 2 * CELLS + 2; ++index)
        line[index] = max(max(matte[index], matte[index + pitch]),
            max(matte[index + 2 * pitch], matte[index + 3 * pitch]));
    for (int cell = 0; cell < CELLS; ++cell)
        weights[cell] = person_weight(max(max(line[2 * cell], line[2 * cell + 1]),
            max(line[2 * cell + 2], line[2 * cell + 3])));
    auto halve = [=](const sample_t *plane, int step, u16 means[CELLS]) INLINED {
        const sample_t *upper = plane + (size_t)step * (2 * y * pitch + 2 * x);
        const sample_t *lower = upper + step * pitch;
        for (int cell = 0; cell < CELLS; ++cell) {
            const int left = 2 * cell * step, right = left + step;
            const u32 sum = upper[left] + upper[right] + lower[left] + lower[right];
            means[cell] = (u16)area_mean(sum << FULL_SHIFT, 4);
        }
    };
    halve(grid.luma, 1, values[0]);
    if (grid.has_chroma) {
        halve(grid.chroma, 2, values[1]);
        halve(grid.chroma + 1, 2, values[2]);
        return;
    }
    const sample_t *pairs = grid.chroma + 2 * (y * grid.cell_columns + x);
    for (int cell = 0; cell < CELLS; ++cell) {
        values[1][cell] = (u16)(pairs[2 * cell] << FULL_SHIFT);
        values[2][cell] = (u16)(pairs[2 * cell + 1] << FULL_SHIFT);
    }
}

#endif

// Cells, the pyramid's level 0, and sums of the cells.
//
// shape: rows and columns of the grid, whether chroma is on it. cells: (3, rows, columns) uint16.
// sums: (warps of 32 x 1 cells, 3); on the host of all.
KERNEL(fill_prepare)(
    const sample_t *luma, const sample_t *chroma, const u8 *matte, const int *shape,
    const int *table, u16 *cells, float4 *levels, u64 *sums)
{
    const Level finest = level_of(table, 0);
    const Grid grid = {luma, chroma, matte, shape[0], shape[1], shape[2] != 0, finest.columns};
    u64 totals[3] = {0, 0, 0};
    for_runs(finest.rows, finest.columns, 1, CELLS, [&](int y, int x, int count) INLINED {
        u16 values[3][CELLS];
        float weights[CELLS];
#if !ON_DEVICE
        if (count == CELLS && y > 0 && x > 0 && 2 * y + 2 < grid.rows
            && 2 * (x + CELLS) < grid.columns)
            inner_run(grid, y, x, values, weights);
        else
#endif
            for (int cell = 0; cell < count; ++cell) {
                u32 each[3];
                weights[cell] = grid.weighted(y, x + cell, each);
                for (int plane = 0; plane < 3; ++plane)
                    values[plane][cell] = (u16)each[plane];
            }
        const int index = y * finest.columns + x, size = finest.rows * finest.columns;
        for (int cell = 0; cell < count; ++cell)
            levels[index + cell] = make_float4(
                (float)values[0][cell] * weights[cell], (float)values[1][cell] * weights[cell],
                (float)values[2][cell] * weights[cell], weights[cell]);
        for (int plane = 0; plane < 3; ++plane) {
            u32 sum = 0;
            for (int cell = 0; cell < count; ++cell) {
                cells[plane * size + index + cell] = values[plane][cell];
                sum += values[plane][cell];
            }
            totals[plane] += sum;
        }
    });
#if ON_DEVICE
    for (int step = 16; step > 0; step /= 2)
        for (int plane = 0; plane < 3; ++plane)
            totals[plane] += __shfl_xor_sync(0xffffffffu, totals[plane], step);
    sums += 3 * ((blockIdx.y * blockDim.y + threadIdx.y) * gridDim.x + blockIdx.x);
    if (threadIdx.x > 0)
        return;
#endif
    for (int plane = 0; plane < 3; ++plane)
        sums[plane] = totals[plane];
}

#if ON_DEVICE
// Level `index` from the finer one before it.
DEVICE_KERNEL(fill_push)(const int *table, float4 *levels, int index)
{
    const Level fine = level_of(table, index - 1), coarse = level_of(table, index);
    for_samples(coarse.rows, coarse.columns, [&](int y, int x) {
        levels[coarse.offset + y * coarse.columns + x]
            = resampled(levels + fine.offset, fine, coarse, y, x);
    });
}

// Level `index` filled in from the coarser one after it, which is.
DEVICE_KERNEL(fill_pull)(const int *table, float4 *levels, int index)
{
    const Level fine = level_of(table, index), coarse = level_of(table, index + 1);
    for_samples(fine.rows, fine.columns, [&](int y, int x) {
        float4 *cell = levels + fine.offset + y * fine.columns + x;
        *cell = laid_over(*cell, resampled(levels + coarse.offset, coarse, fine, y, x));
    });
}
#endif

// Means of the three planes, by 96 threads of a block.
OP void means_of(const u64 *sums, int sum_count, int cell_count, float means[3])
{
#if ON_DEVICE
    __shared__ u64 lane_sums[96];
    const int thread = threadIdx.x, lanes = 32;
    if (thread < 96) {
        u64 sum = 0;
        for (int index = thread / 3; index < sum_count; index += lanes)
            sum += sums[index * 3 + thread % 3];
        lane_sums[thread] = sum;
    }
    __syncthreads();
    sums = lane_sums;
    sum_count = lanes;
#endif
    for_samples_together(1, 3, [=](int, int plane) INLINED {
        u64 sum = 0;
        for (int index = 0; index < sum_count; ++index)
            sum += sums[3 * index + plane];
        means[plane] = (float)((double)sum / (double)cell_count);
    });
}

// What is below the highest level: its mean, or where it knows nothing the whole picture's.
OP float4 below_peak(const float4 *peak, int count, const float means[3])
{
    float4 below = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int cell = 0; cell < count; ++cell)
        below = make_float4(
            below.x + peak[cell].x, below.y + peak[cell].y, below.z + peak[cell].z,
            below.w + peak[cell].w);
    const float total = below.w / (float)count + LAST_RESORT;
    below.x = (below.x / (float)count + LAST_RESORT * means[0]) / total;
    below.y = (below.y / (float)count + LAST_RESORT * means[1]) / total;
    below.z = (below.z / (float)count + LAST_RESORT * means[2]) / total;
    return below;
}

// All coarse levels in one block: pushes from level `first` to the top, pulls back to `last`.
//
// On a device levels from `resident` on (above `first`) live in shared memory, which has room for them.
// sums: (sum_count, 3), together the sums of the three planes over `cell_count` cells; their means
// are used where there is no weight at all. At least 96 threads.
BLOCK_KERNEL(fill_pyramid)(
    const int *table, float4 *levels, int first, int last, int resident, const u64 *sums,
    int sum_count, int cell_count)
{
    const int top = table[0] - 1;
#if ON_DEVICE
    extern __shared__ float4 local[];
    const int base = resident <= top ? level_of(table, resident).offset : 0;
#endif
    const auto cells_of = [=](int index) INLINED {
        const int offset = level_of(table, index).offset;
#if ON_DEVICE
        if (index >= resident)
            return local + (offset - base);
#endif
        return levels + offset;
    };
    SHARED float means[3];
    means_of(sums, sum_count, cell_count, means);
    for (int index = first + 1; index <= top; ++index) {
        const Level fine = level_of(table, index - 1), coarse = level_of(table, index);
        const float4 *source = cells_of(index - 1);
        float4 *target = cells_of(index);
        for_samples_together(coarse.rows, coarse.columns, [&](int y, int x) INLINED {
            target[y * coarse.columns + x] = resampled(source, fine, coarse, y, x);
        });
    }
    const Level highest = level_of(table, top);
    float4 *peak = cells_of(top);
    const float4 below = below_peak(peak, highest.rows * highest.columns, means);
#if ON_DEVICE
    __syncthreads();
#endif
    for_samples_together(highest.rows, highest.columns, [&](int y, int x) INLINED {
        float4 *cell = peak + y * highest.columns + x;
        *cell = laid_over(*cell, below);
    });
    for (int index = top - 1; index >= last; --index) {
        const Level fine = level_of(table, index), coarse = level_of(table, index + 1);
        const float4 *source = cells_of(index + 1);
        float4 *target = cells_of(index);
        for_samples_together(fine.rows, fine.columns, [&](int y, int x) INLINED {
            float4 *cell = target + y * fine.columns + x;
            if (ON_DEVICE || cell->w < 1.0f)
                *cell = laid_over(*cell, resampled(source, coarse, fine, y, x));
        });
    }
#if ON_DEVICE
    const Level level = level_of(table, last);
    if (last >= resident)
        for (int cell = threadIdx.x; cell < level.rows * level.columns; cell += blockDim.x)
            levels[level.offset + cell] = cells_of(last)[cell];
#endif
}

// Cells filled in, 16-bit full scale, from level `filled` (0 or 1), which is filled in.
KERNEL(fill_finish)(
    const int *table, const float4 *levels, int filled, u16 *cells)
{
    const Level finest = level_of(table, 0), known = level_of(table, filled);
    for_samples(finest.rows, finest.columns, [&](int y, int x) INLINED {
        const int index = y * finest.columns + x, size = finest.rows * finest.columns;
        float4 value = levels[finest.offset + index];
        if (filled > 0) {
            if (value.w == 1.0f)
                return;  // nothing of what is below shows: the cell stays as it is
            value = laid_over(value, resampled(levels + known.offset, known, finest, y, x));
        }
        cells[index] = to_cell(value.x);
        cells[size + index] = to_cell(value.y);
        cells[2 * size + index] = to_cell(value.z);
    });
}
