// What the matte keeps from frame to frame: masks averaged over time, and the edge that is fitted on
// the frame. Windows are mirrored at the edges (BORDER_REFLECT_101).
#include "matte.cuh"

// A window's mean of 8-bit samples to the nearest, by a multiplication; for up to 81 samples.
OP int window_mean(u32 sum, u32 area)
{
    return (int)((sum + area / 2) * ((1u << 22) / area + 1) >> 22);
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
// mask, before, state: (rows, columns) float32, the last mask averaged and this one. mask_sums,
// sums_before, sums: (rows, columns) uint16, window sums of the mask's change and of both pictures;
// area: samples of a window. follows: masks before count. ramps: 256 weights for the mask's change,
// then 256 for luma's. curve: 256 opacities. base: weight where nothing happens.
KERNEL(average_mask)(
    const float *mask, const float *before, float *state, const u16 *mask_sums,
    const u16 *sums_before, const u16 *sums, u8 *opacity, int follows, const u8 *ramps,
    const u8 *curve, int area, float base, float luma_steps, float scale, float offset, int rows,
    int columns)
{
    for_apart(rows, columns, [=](int y, int x) INLINED {
        const int at = y * columns + x;
        float value = mask[at];
        if (follows) {
            const int moved = ramps[256 + luma_change(sums[at], sums_before[at], luma_steps)];
            const int weight = max((int)ramps[window_mean(mask_sums[at], area)], moved);
            value = averaged(value, before[at], weight, base);
        }
        state[at] = value = number(value);
        opacity[at] = curve[to_byte(value * scale + offset)];
    });
}

// How far the matte may stay behind, by what the mean of luma has changed over the window.
//
// sums, before: (rows, columns) uint16, window sums of this picture and the last. reaches: 256 of
// them. reach: (rows, columns) uint8.
KERNEL(steady_reach)(
    const u16 *sums, const u16 *before, const u8 *reaches, u8 *reach, float luma_steps, int rows,
    int columns)
{
    for_apart(rows, columns, [=](int y, int x) INLINED {
        const int at = y * columns + x;
        reach[at] = reaches[luma_change(sums[at], before[at], luma_steps)];
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
