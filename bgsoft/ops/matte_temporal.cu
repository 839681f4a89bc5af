// State of the matte between frames: masks averaged over time, and the edge that is fitted on the
// frame. Windows are mirrored at the edges (BORDER_REFLECT_101).
#include "matte.cuh"

// Reach and area of the window over which changes are averaged, since single ones are noise; as in
// bgsoft/matte/temporal.py.
#define REACH 2
#define AREA 25

// Mean change of the mask, in 1/255, at which following starts, and at which it is immediate.
#define MASK_STARTS 38.25f
#define MASK_FOLLOWS 102.0f
// Change of the mean of 8-bit luma likewise, in steps of 1/32: where the picture moves, the mask may. The
// mean of the window moves with an edge, while noise and fine texture cancel out in it.
#define LUMA_STEPS 32.0f
#define LUMA_STARTS 32.0f
#define LUMA_FOLLOWS 112.0f

// By how much opacity, in 1/255, may stay behind what is fitted on the frame, where the picture stands
// still. Twice as much takes 9 % more off the flicker, but a third more stays behind slow movement.
#define HELD_CODES 8.0f

// The whole number that rises smoothly from 0 to 255 while a code goes from start to end.
OP int smooth_step(int code, float start, float end)
{
    const float x = fminf(fmaxf(((float)code - start) * (1.0f / (end - start)), 0.0f), 1.0f);
    return nearest(x * x * (765.0f - 510.0f * x));
}

// Weight, in 1/255, of the new mask for a window sum of its change.
OP int mask_weight(int sum)
{
    return smooth_step(nearest((float)sum * (1.0f / AREA)), MASK_STARTS, MASK_FOLLOWS);
}

// The same by the window sums of two pictures.
OP int luma_weight(int sum, int before)
{
    const int change = sum < before ? before - sum : sum - before;
    return smooth_step(to_byte((float)change * (LUMA_STEPS / AREA)), LUMA_STARTS, LUMA_FOLLOWS);
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

// By how much a mask has changed, in 1/255.
OP u8 mask_change(float mask, float before)
{
    return (u8)to_byte(fabsf((mask - before) * 255.0f));
}

#if !ON_DEVICE
// The same of a whole one: (rows, columns).
KERNEL(mask_changes)(const float *mask, const float *before, u8 *change, int rows, int columns)
{
    for_apart(rows, columns, [=](int y, int x) INLINED {
        const int at = y * columns + x;
        change[at] = mask_change(mask[at], before[at]);
    });
}
#endif

// Temporal filter and soft threshold: raw mask to opacity, at the model's resolution.
//
// It runs from 0 to 1 while scale * mask + offset goes from 0 to 255, as 3 x^2 - 2 x^3, or if not `shaped`
// straight.
//
// mask, before, state: (rows, columns) float32, the last mask averaged and this one. picture: (..,
// pitch) uint8, resized by the tables. mask_sums, sums_before, sums: (rows, columns) uint16, window sums
// of the mask's change and of both pictures; of this frame OpenCV's on the host, on a device made here.
// follows: masks before count. base: weight where nothing happens; 1: no filter.
KERNEL(average_mask)(
    const float *mask, const u8 *picture, int pitch, const float *x_table, int x_stride,
    const float *y_table, int y_stride, int mode, const float *before, float *state,
    const u16 *mask_sums, const u16 *sums_before, u16 *sums, u8 *opacity, int follows, float base,
    float scale, float offset, int shaped, int rows, int columns)
{
    const auto average = [=](int at, int mask_sum, int sum) INLINED {
        float value = mask[at];
        if (follows) {
            const int weight = max(mask_weight(mask_sum), luma_weight(sum, sums_before[at]));
            value = averaged(value, before[at], weight, base);
        }
        state[at] = value = number(value);
        const int code = to_byte(value * scale + offset);
        opacity[at] = (u8)(shaped ? smooth_step(code, 0.0f, 255.0f) : code);
    };
#if ON_DEVICE
    __shared__ u8 changes[8 + 2 * REACH][32 + 2 * REACH], lumas[8 + 2 * REACH][32 + 2 * REACH];
    const int left = blockIdx.x * 32, top = blockIdx.y * 8, wide = 32 + 2 * REACH;
    const int thread = threadIdx.y * 32 + threadIdx.x;
    for (int i = thread; base < 1.0f && i < wide * (8 + 2 * REACH); i += 256) {
        const int y = reflect(top - REACH + i / wide, rows);
        const int x = reflect(left - REACH + i % wide, columns), at = y * columns + x;
        lumas[i / wide][i % wide] =
            (u8)resized_byte(picture, pitch, x_table, x_stride, y_table, y_stride, mode, y, x);
        changes[i / wide][i % wide] = follows ? mask_change(mask[at], before[at]) : 0;
    }
    __syncthreads();
    const int x = left + threadIdx.x, y = top + threadIdx.y, at = y * columns + x;
    if (x >= columns || y >= rows)
        return;
    int mask_sum = 0, sum = 0;
    if (base < 1.0f) {
        for (int dy = 0; dy <= 2 * REACH; dy++)
            for (int dx = 0; dx <= 2 * REACH; dx++) {
                mask_sum += changes[threadIdx.y + dy][threadIdx.x + dx];
                sum += lumas[threadIdx.y + dy][threadIdx.x + dx];
            }
        sums[at] = (u16)sum;
    }
    average(at, mask_sum, sum);
#else
    for_apart(rows, columns, [=](int y, int x) INLINED {
        const int at = y * columns + x;
        average(at, mask_sums[at], sums[at]);
    });
#endif
}

// How far the matte may stay behind, by the window sums of this picture and the last, (rows, columns)
// uint16; those of this one, luma, are OpenCV's on the host, on a device made here. reach: (rows,
// columns) uint8.
KERNEL(steady_reach)(
    const u8 *luma, u16 *sums, const u16 *before, u8 *reach, int rows, int columns)
{
    for_apart(rows, columns, [=](int y, int x) INLINED {
        const int at = y * columns + x;
#if ON_DEVICE
        int sum = 0;
        for (int dy = -REACH; dy <= REACH; dy++)
            for (int dx = -REACH; dx <= REACH; dx++)
                sum += luma[reflect(y + dy, rows) * columns + reflect(x + dx, columns)];
        sums[at] = (u16)sum;
#endif
        const int weight = luma_weight(sums[at], before[at]);
        reach[at] = (u8)nearest(HELD_CODES - (float)weight * (HELD_CODES / 255.0f));
    });
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
// bilinearly by 1 << shift. share: of the new matte. fresh: without a last one. lines: on the host,
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
