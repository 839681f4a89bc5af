// What the matte keeps from frame to frame: masks averaged over time, and the edge that is fitted on
// the frame. Windows are mirrored at the edges (BORDER_REFLECT_101).
#include "matte.cuh"

// Over how many samples changes are averaged, since single ones are noise: the window of
// bgsoft/matte/temporal.py.
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

// Weight, in 1/255, of what is new where the window sum of the mask's change is so much.
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

#if ON_DEVICE
// Sums over windows of 2 * radius + 1 samples each way; the host's are OpenCV's.
DEVICE_KERNEL(window_sums)(const u8 *plane, u16 *sums, int radius, int rows, int columns)
{
    for_samples(rows, columns, [=](int y, int x) {
        int sum = 0;
        for (int dy = -radius; dy <= radius; dy++)
            for (int dx = -radius; dx <= radius; dx++)
                sum += plane[reflect(y + dy, rows) * columns + reflect(x + dx, columns)];
        sums[y * columns + x] = (u16)sum;
    });
}
#endif

// By how much a mask has changed, in 1/255: (rows, columns).
KERNEL(mask_change)(const float *mask, const float *before, u8 *change, int rows, int columns)
{
    for_apart(rows, columns, [=](int y, int x) INLINED {
        const int at = y * columns + x;
        change[at] = (u8)to_byte(fabsf((mask[at] - before[at]) * 255.0f));
    });
}

// Temporal filter and soft threshold: raw mask to opacity, at the model's resolution.
//
// It runs from 0 to 1 while scale * mask + offset goes from 0 to 255, as 3 x^2 - 2 x^3, or if not `shaped`
// straight.
//
// mask, before, state: (rows, columns) float32, the last mask averaged and this one. mask_sums,
// sums_before, sums: (rows, columns) uint16, window sums of the mask's change and of both pictures.
// follows: masks before count. base: weight where nothing happens.
KERNEL(average_mask)(
    const float *mask, const float *before, float *state, const u16 *mask_sums,
    const u16 *sums_before, const u16 *sums, u8 *opacity, int follows, float base, float scale,
    float offset, int shaped, int rows, int columns)
{
    for_apart(rows, columns, [=](int y, int x) INLINED {
        const int at = y * columns + x;
        float value = mask[at];
        if (follows) {
            const int weight = max(mask_weight(mask_sums[at]), luma_weight(sums[at], sums_before[at]));
            value = averaged(value, before[at], weight, base);
        }
        state[at] = value = number(value);
        const int code = to_byte(value * scale + offset);
        opacity[at] = (u8)(shaped ? smooth_step(code, 0.0f, 255.0f) : code);
    });
}

// How far the matte may stay behind, by the window sums of this picture and the last, (rows, columns)
// uint16. reach: (rows, columns) uint8.
KERNEL(steady_reach)(const u16 *sums, const u16 *before, u8 *reach, int rows, int columns)
{
    for_apart(rows, columns, [=](int y, int x) INLINED {
        const int at = y * columns + x;
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
