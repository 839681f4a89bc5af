// What the matte keeps from frame to frame: masks averaged over time, and the edge that is fitted on
// the frame. Windows are mirrored at the edges (BORDER_REFLECT_101).
#include "matte.cuh"

#define MAX_WINDOW_RADIUS 4

// A window's mean of 8-bit samples to the nearest, by a multiplication; for up to 81 samples.
OP int window_mean(u32 sum, u32 area)
{
    return (int)((sum + area / 2) * ((1u << 22) / area + 1) >> 22);
}

OP u8 mask_change(float mask, float before)
{
    return (u8)to_byte(fabsf((mask - before) * 255.0f));
}

// Change of the window sums of luma, in steps.
OP int luma_change(int sum, int before, float luma_steps)
{
    const int change = sum < before ? before - sum : sum - before;
    return to_byte((float)change * luma_steps);
}

OP float averaged(float mask, float before, int weight, float base)
{
    return before + (mask - before) * ((float)weight * ((1.0f - base) / 255.0f) + base);
}

// A model that overflows must not spoil every frame after.
OP float number(float state)
{
    return state != state ? 0.0f : state;
}

// Temporal filter and soft threshold: raw mask to opacity, at the model's resolution.
//
// mask, before, state: (rows, columns) float32, the last mask averaged and this one. luma:
// (.., luma_pitch) uint8, resized by the tables; without tables of the mask's size. sums_before,
// sums: (rows, columns) uint16, window sums of both pictures. ramps: 256 weights for the mask's
// change, then 256 for luma's. curve: 256 opacities. fresh: there is no mask before. radius: of the
// window. base: weight where nothing happens; 1: no filter. scratch: on the host, two planes of the
// mask's size and three lines of u16 with 2 * radius more columns. Starts the frame's flags.
KERNEL(temporal_threshold)(
    const float *mask, const u8 *luma, int luma_pitch, const float *x_table, int x_stride,
    const float *y_table, int y_stride, int mode, const float *before, float *state,
    const u16 *sums_before, u16 *sums, const u8 *ramps, const u8 *curve, u8 *opacity, int *flags,
    int fresh, int radius, float base, float luma_steps, float scale, float offset, int rows,
    int columns, u8 *scratch)
{
    const bool follows = base < 1.0f;
    const int area = (2 * radius + 1) * (2 * radius + 1);
#if ON_DEVICE
    __shared__ u8 change[8 + 2 * MAX_WINDOW_RADIUS][32 + 2 * MAX_WINDOW_RADIUS];
    __shared__ u8 picture[8 + 2 * MAX_WINDOW_RADIUS][32 + 2 * MAX_WINDOW_RADIUS];
    int left = blockIdx.x * 32, top = blockIdx.y * 8;
    int thread = threadIdx.y * 32 + threadIdx.x;
    if (follows) {
        int tile_columns = 32 + 2 * radius, tile = tile_columns * (8 + 2 * radius);
        for (int i = thread; i < tile; i += 256) {
            int ty = i / tile_columns, tx = i % tile_columns;
            int y = reflect(top - radius + ty, rows), x = reflect(left - radius + tx, columns);
            picture[ty][tx] = (u8)resample(
                luma, luma_pitch, 1, 0, mode, x_table + x * x_stride, y_table + y * y_stride);
            int at = y * columns + x;
            change[ty][tx] = fresh ? 0 : mask_change(mask[at], before[at]);
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
    float value = mask[at];
    if (follows) {
        int mask_sum = 0, luma_sum = 0, side = 2 * radius + 1;
        for (int dy = 0; dy < side; dy++)
            for (int dx = 0; dx < side; dx++) {
                mask_sum += change[threadIdx.y + dy][threadIdx.x + dx];
                luma_sum += picture[threadIdx.y + dy][threadIdx.x + dx];
            }
        sums[at] = (u16)luma_sum;
        if (!fresh) {
            int moved = ramps[256 + luma_change(luma_sum, sums_before[at], luma_steps)];
            int weight = max((int)ramps[window_mean(mask_sum, area)], moved);
            value = averaged(value, before[at], weight, base);
        }
    }
    state[at] = value = number(value);
    opacity[at] = curve[to_byte(value * scale + offset)];
#else
    flags[FLAG_PERSON_EXCEEDS] = flags[FLAG_BACKGROUND_EXCEEDS] = 0;
    const int count = rows * columns, pitch = columns + 2 * radius;
    u8 *changes = scratch, *weights = scratch + count;
    u16 *line = (u16 *)(scratch + 2 * count);
    if (follows) {
        const WindowSums window(luma, radius, rows, columns, line);
        for (int y = 0; y < rows; ++y)
            window.row(y, sums + (size_t)y * columns);
    }
    if (!follows || fresh) {
        for (int at = 0; at < count; ++at)
            state[at] = number(mask[at]);
    } else {
        for (int at = 0; at < count; ++at)
            changes[at] = mask_change(mask[at], before[at]);
        const WindowSums window(changes, radius, rows, columns, line);
        u16 *mask_sums = line + pitch;
        u8 *means = (u8 *)(line + 2 * pitch), *steps = means + columns;
        for (int y = 0; y < rows; ++y) {
            const size_t start = (size_t)y * columns;
            window.row(y, mask_sums);
            for (int x = 0; x < columns; ++x)
                means[x] = (u8)window_mean(mask_sums[x], area);
            for (int x = 0; x < columns; ++x)
                steps[x] = (u8)luma_change(sums[start + x], sums_before[start + x], luma_steps);
            for (int x = 0; x < columns; ++x)
                weights[start + x] = max(ramps[means[x]], ramps[256 + steps[x]]);
        }
        for (int at = 0; at < count; ++at)
            state[at] = number(averaged(mask[at], before[at], weights[at], base));
    }
    for (int at = 0; at < count; ++at)
        opacity[at] = (u8)to_byte(state[at] * scale + offset);
    for (int at = 0; at < count; ++at)
        opacity[at] = curve[opacity[at]];
#endif
}

// How far the matte may stay behind, by what the mean of luma has changed over the window.
//
// luma: (rows, columns) uint8. sums: (rows, columns) uint16, window sums of the last picture;
// replaced. reaches: 256 of them. reach: (rows, columns) uint8. scratch: on the host, two lines with
// 2 * radius more columns.
KERNEL(steady_reach)(
    const u8 *luma, u16 *sums, const u8 *reaches, u8 *reach, int radius, float luma_steps, int rows,
    int columns, u16 *scratch)
{
#if ON_DEVICE
    for_samples(rows, columns, [=](int y, int x) {
        int sum = 0, at = y * columns + x;
        for (int dy = -radius; dy <= radius; dy++)
            for (int dx = -radius; dx <= radius; dx++)
                sum += luma[reflect(y + dy, rows) * columns + reflect(x + dx, columns)];
        reach[at] = reaches[luma_change(sum, sums[at], luma_steps)];
        sums[at] = (u16)sum;
    });
#else
    const WindowSums window(luma, radius, rows, columns, scratch);
    u16 *now = scratch + columns + 2 * radius;
    for (int y = 0; y < rows; ++y) {
        const size_t start = (size_t)y * columns;
        window.row(y, now);
        for (int x = 0; x < columns; ++x) {
            reach[start + x] = (u8)luma_change(now[x], sums[start + x], luma_steps);
            sums[start + x] = now[x];
        }
        for (int x = 0; x < columns; ++x)
            reach[start + x] = reaches[reach[start + x]];
    }
#endif
}

// Opacity moved towards the last one, no further than `reach`; what is clear or opaque stays so.
OP int steadied(int now, int before, int reach, float share)
{
    const int room = min(min(now, 255 - now), reach);
    const int value = to_byte((float)before * (1.0f - share) + (float)now * share);
    return clamp_int(value, now - room, now + room);
}

// Moves the matte towards the last one, no further than its reach.
//
// alpha, state: (height, width) uint8, replaced by the same. reach: (rows, columns), enlarged
// bilinearly by 1 << shift. share: of the new matte. fresh: there is no last one. lines: on the host,
// see enlarge_rows.
KERNEL(steady_alpha)(
    u8 *alpha, u8 *state, const u8 *reach, int shift, float share, int fresh, int rows, int columns,
    int height, int width, u16 *lines)
{
#if ON_DEVICE
    for_samples(height, width, [=](int y, int x) {
        size_t at = (size_t)y * width + x;
        int now = alpha[at];
        if (now > 0 && now < 255 && !fresh) {
            int room = enlarged_byte(reach, rows, columns, y, x, shift);
            alpha[at] = (u8)steadied(now, state[at], room, share);
        }
        state[at] = alpha[at];
    });
#else
    if (!fresh)
        enlarge_rows(
            shift, reach, rows, columns, height, width, lines,
            [&](int y, const EnlargedRow row) INLINED {
                u8 *__restrict__ now = alpha + (size_t)y * width;
                const u8 *__restrict__ before = state + (size_t)y * width;
                for (int first = row.first; first < row.last; first += 64) {
                    const int last = min(first + 64, row.last);
                    u8 partial = 0;
                    for (int x = first; x < last; ++x)
                        partial |= (u8)((u8)(now[x] + 1) > 1);
                    for (int x = first; partial && x < last; ++x)
                        now[x] = (u8)steadied(now[x], before[x], row.at(x), share);
                }
            });
    __builtin_memcpy(state, alpha, (size_t)height * width);
#endif
}
