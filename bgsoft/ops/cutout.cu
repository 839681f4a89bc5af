// What a cut-out's colour planes hold where nothing is opaque.
//
// Launched by bgsoft/composite/plate.py. Rounds to code values, halves to even.
#include "background.cuh"
#include "drivers.cuh"

// The matte of the room: (rows, columns), 255 minus the people's.
KERNEL(cutout_room)(const u8 *matte, u8 *room, int rows, int columns)
{
    for_samples(rows, columns, [&](int y, int x) INLINED {
        room[y * columns + x] = (u8)(255 - matte[y * columns + x]);
    });
}

// One sample of the fill, counted against black by weight, 0-255.
OP sample_t faded(u32 fill, u32 black, u32 weight)
{
    const u32 value = (fill * weight + 127) / 255 + (black * (255 - weight) + 127) / 255;
#if SAMPLE_BITS == 8
    return (sample_t)min((u32)rintf((float)value / 256.0f), 255u);
#else
    return (sample_t)((min(value, 65503u) + 32) & 0xFFC0);
#endif
}

// Weight of the fill where `count` of `area` samples around are seen; area is odd, so that there are
// no halves to be rounded.
OP u32 weight_of(u32 count, u32 area)
{
    return (255 * count + area / 2) / area;
}

// The fill, and planes of the frame's size that take it; only samples that are blended in.
struct Fade {
    const u8 *alpha;
    const u16 *cells;
    int rows, columns;
    float scale;
    u32 black, neutral;  // full scale
    sample_t *luma, *chroma;
    int height, width;

    // Chroma sample (y, x) and its luma.
    OP void write(int y, int x, u32 weight) const
    {
        u32 least = 255;
        for (int row = 2 * y; row < min(2 * y + 2, height); ++row)
            for (int column = 2 * x; column < min(2 * x + 2, width); ++column)
                least = min(least, (u32)alpha[(size_t)row * width + column]);
        if (least > 0)
            return;
        u32 fill[3] = {0, 0, 0};
        if (weight > 0)
            for (int plane = 0; plane < 3; ++plane)
                fill[plane]
                    = enlarged(cells + plane * rows * columns, rows, columns, scale, y, x);
        const sample_t light = faded(fill[0], black, weight);
        for (int row = 2 * y; row < min(2 * y + 2, height); ++row)
            for (int column = 2 * x; column < min(2 * x + 2, width); ++column)
                luma[(size_t)row * width + column] = light;
        sample_t *pair = chroma + 2 * ((size_t)y * ((width + 1) / 2) + x);
        pair[0] = faded(fill[1], neutral, weight);
        pair[1] = faded(fill[2], neutral, weight);
    }

    // `count` chroma samples from (y, x) on and their luma: nothing of the fill.
    OP void write_black(int y, int x, int count) const
    {
        const sample_t light = faded(0, black, 0), colour = faded(0, neutral, 0);
        for (int row = 2 * y; row < min(2 * y + 2, height); ++row)
            for (int column = 2 * x; column < min(2 * (x + count), width); ++column)
                luma[(size_t)row * width + column] = light;
        sample_t *pairs = chroma + 2 * ((size_t)y * ((width + 1) / 2) + x);
        for (int index = 0; index < 2 * count; ++index)
            pairs[index] = colour;
    }
};

#if !ON_DEVICE
#define RUN 64

struct Either {
    OP u8 operator()(u8 first, u8 second) const { return first | second; }
};

struct Sum {
    OP u8 operator()(u8 first, u8 second) const { return (u8)(first + second); }
};

// `count` rows of `width` samples that begin `step` apart, taken together.
template <class Take>
OP void combine(const u8 *first, int count, int step, int width, u8 *target, Take take)
{
    for_runs(1, width, 1, RUN, [&](int, int x, int length) INLINED {
        u8 taken[RUN] = {};
        for (int row = 0; row < count; ++row)
            for (int index = 0; index < RUN; ++index)
                if (index < length)
                    taken[index] = take(taken[index], first[row * step + x + index]);
        for (int index = 0; index < RUN; ++index)
            if (index < length)
                target[x + index] = taken[index];
    });
}
#endif

// The fill, fading to black away from chroma samples with any alpha: what is seen.
//
// alpha: (height, width). cells: (3, rows, columns) 16-bit full scale, of `factor` chroma samples
// each way. What is seen is widened by `reach` samples, then averaged over as many to each side.
// luma, chroma: planes of the frame's size. black, neutral: full scale. One thread a chroma sample.
// Shared memory: a byte for each chroma sample of the block and 2 * reach around it, then one for
// each of the block and reach around it. The host has `scratch` instead: see there.
KERNEL(cutout_fade)(
    const u8 *alpha, const u16 *cells, int height, int width, int rows, int columns, int factor,
    int reach, u32 black, u32 neutral, sample_t *luma, sample_t *chroma, u8 *scratch)
{
    const Fade fade = {
        alpha, cells, rows, columns, 1.0f / (float)factor, black, neutral, luma, chroma, height, width};
    const int half_rows = (height + 1) / 2, half_columns = (width + 1) / 2;
    const int side = 2 * reach + 1;
#if ON_DEVICE
    extern __shared__ u8 seen[];
    const int seen_rows = blockDim.y + 4 * reach, seen_columns = blockDim.x + 4 * reach;
    const int wide_rows = blockDim.y + 2 * reach, wide_columns = blockDim.x + 2 * reach;
    u8 *wide = seen + seen_rows * seen_columns;
    const int top = blockIdx.y * blockDim.y, left = blockIdx.x * blockDim.x;
    const int thread = threadIdx.y * blockDim.x + threadIdx.x, threads = blockDim.x * blockDim.y;
    int any = 0;
    for (int cell = thread; cell < seen_rows * seen_columns; cell += threads) {
        const int row = top - 2 * reach + cell / seen_columns;
        const int column = left - 2 * reach + cell % seen_columns;
        u32 largest = 0;
        if (row >= 0 && row < half_rows && column >= 0 && column < half_columns)
            for (int y = 2 * row; y < min(2 * row + 2, height); ++y)
                for (int x = 2 * column; x < min(2 * column + 2, width); ++x)
                    largest = max(largest, (u32)alpha[(size_t)y * width + x]);
        seen[cell] = largest > 0;
        any |= largest > 0;
    }
    any = __syncthreads_or(any);
    if (any)
        for (int cell = thread; cell < wide_rows * wide_columns; cell += threads) {
            // Beyond the frame its edge goes on.
            const int y = clamp_int(top - reach + cell / wide_columns, 0, half_rows - 1);
            const int x = clamp_int(left - reach + cell % wide_columns, 0, half_columns - 1);
            const u8 *corner = seen + (y - top + reach) * seen_columns + x - left + reach;
            u8 largest = 0;
            for (int dy = 0; dy < side; ++dy)
                for (int dx = 0; dx < side; ++dx)
                    largest |= corner[dy * seen_columns + dx];
            wide[cell] = largest;
        }
    __syncthreads();
    const int x = left + threadIdx.x, y = top + threadIdx.y;
    if (y >= half_rows || x >= half_columns)
        return;
    u32 count = 0;
    if (any)
        for (int dy = 0; dy < side; ++dy)
            for (int dx = 0; dx < side; ++dx)
                count += wide[(threadIdx.y + dy) * wide_columns + threadIdx.x + dx];
    fade.write(y, x, weight_of(count, side * side));
#else
    // `scratch` has room for two planes of chroma's size, and for a row with `reach` samples more on
    // each side.
    u8 *plane = scratch, *sums = plane + half_rows * half_columns;
    u8 *line = sums + half_rows * half_columns + reach;
    for (int x = -reach; x < half_columns + reach; ++x)
        line[x] = 0;
    for (int y = 0; y < half_rows; ++y) {
        const u8 *upper = alpha + (size_t)2 * y * width;
        const u8 *lower = 2 * y + 1 < height ? upper + width : upper;
        for (int x = 0; x < width / 2; ++x)
            line[x] = (upper[2 * x] | upper[2 * x + 1] | lower[2 * x] | lower[2 * x + 1]) > 0;
        if (width % 2)
            line[width / 2] = (upper[width - 1] | lower[width - 1]) > 0;
        combine(line - reach, side, 1, half_columns, plane + y * half_columns, Either());
    }
    for (int y = 0; y < half_rows; ++y) {
        const int top = max(y - reach, 0), bottom = min(y + reach + 1, half_rows);
        combine(plane + top * half_columns, bottom - top, half_columns, half_columns, line, Either());
        // Beyond the frame its edge goes on.
        for (int x = 1; x <= reach; ++x) {
            line[-x] = line[0];
            line[half_columns - 1 + x] = line[half_columns - 1];
        }
        combine(line - reach, side, 1, half_columns, sums + y * half_columns, Sum());
    }
    for_runs(half_rows, half_columns, 1, RUN, [&](int y, int x, int count) INLINED {
        u16 counts[RUN] = {}, any = 0;
        for (int step = -reach; step <= reach; ++step) {
            const u8 *row = sums + clamp_int(y + step, 0, half_rows - 1) * half_columns + x;
            for (int index = 0; index < RUN; ++index)
                counts[index] += index < count ? row[index] : 0;
        }
        for (int index = 0; index < RUN; ++index)
            any |= counts[index];
        if (any == 0)
            fade.write_black(y, x, count);
        else
            for (int index = 0; index < count; ++index)
                fade.write(y, x + index, weight_of(counts[index], side * side));
    });
#endif
}
