// The guided filter's result on the plane (its fit: matte_guided.cu), and contour smoothing.
#include "matte_guided.cuh"

#define MAX_SMOOTH_RADIUS 16

OP int refined(float slope, float rest, int luma, float steepen, float offset)
{
    return to_byte(slope * (float)luma * steepen + rest * (255.0f * steepen) + offset);
}

#if ON_DEVICE
// One cell of the refined plane.
OP int evaluate(
    const u8 *coarse, const float *__restrict__ terms, const u8 *__restrict__ luma, int x, int y,
    const Box &box, float steepen, float offset, int rows, int columns)
{
    size_t at = (size_t)y * columns + x;
    if (x < 2 * box.left || x >= 2 * box.right || y < 2 * box.top || y >= 2 * box.bottom)
        return coarse[at];
    int half_columns = (columns + 1) / 2, half_rows = (rows + 1) / 2;
    const Between down(y, 0.5f, half_rows), across(x, 0.5f, half_columns);
    const float *rest = terms + (size_t)half_rows * half_columns;
    size_t upper = (size_t)down.first * half_columns, lower = (size_t)down.second * half_columns;
    const auto enlarged = [=](const float *plane) {
        return along(
            along(plane[upper + across.first], plane[lower + across.first], down.part),
            along(plane[upper + across.second], plane[lower + across.second], down.part), across.part);
    };
    return refined(enlarged(terms), enlarged(rest), luma[at], steepen, offset);
}
#endif

// Guided result on the plane, smoothed: Gaussian in 1/256, then a ramp.
//
// coarse, luma, out: (rows, columns) uint8; out may be coarse where radius is 0. terms: null where the
// edge is not fitted; used within the limits widened by `margin`. weights: 2 * radius + 1 whole numbers
// that add up to 256.
KERNEL(evaluate_smooth)(
    const u8 *coarse, const float *terms, const u8 *luma, u8 *out, const int *limits, int margin,
    float steepen, float offset, const int *weights, int radius, float slope, float shift, int rows,
    int columns, float *scratch)
{
#if ON_DEVICE
    __shared__ u8 tile[16 + 2 * MAX_SMOOTH_RADIUS][32 + 2 * MAX_SMOOTH_RADIUS];
    __shared__ u16 lines[16 + 2 * MAX_SMOOTH_RADIUS][32];
    const Box box(limits, margin);
    int left = blockIdx.x * 32, top = blockIdx.y * 16;
    int thread = threadIdx.y * 32 + threadIdx.x;
    int wide = 32 + 2 * radius, tall = 16 + 2 * radius;
    for (int i = thread; i < wide * tall; i += 256) {
        int ty = i / wide, tx = i % wide;
        int y = clamp_int(top - radius + ty, 0, rows - 1);
        int x = clamp_int(left - radius + tx, 0, columns - 1);
        tile[ty][tx] = terms
            ? (u8)evaluate(coarse, terms, luma, x, y, box, steepen, offset, rows, columns)
            : coarse[(size_t)y * columns + x];
    }
    __syncthreads();
    for (int row = threadIdx.y; row < tall; row += 8) {
        int sum = 0;
        for (int i = 0; i <= 2 * radius; i++)
            sum += weights[i] * tile[row][threadIdx.x + i];
        lines[row][threadIdx.x] = (u16)sum;
    }
    __syncthreads();
    int x = left + threadIdx.x;
    for (int row = threadIdx.y; row < 16; row += 8) {
        int y = top + row;
        if (x >= columns || y >= rows)
            continue;
        int sum = 32768;
        for (int i = 0; i <= 2 * radius; i++)
            sum += weights[i] * lines[row + i][threadIdx.x];
        out[(size_t)y * columns + x] = (u8)to_byte((float)(sum >> 16) * slope + shift);
    }
#else
    const int side = 2 * radius + 1, half_columns = (columns + 1) / 2;
    const size_t half_plane = (size_t)((rows + 1) / 2) * half_columns;
    Box box(limits, terms ? margin : 0);
    if (!terms)
        box.right = box.bottom = 0;
    box.right = min(box.right, half_columns);
    // Room for the line between two lines, two enlarged ones, one of samples, and sums of a row each.
    const int pitch = 2 * half_columns + 2 * radius + 4;
    float *between = scratch + 2;
    float *enlarged = scratch + pitch;
    u8 *samples = (u8 *)(scratch + 3 * pitch) + radius;
    u16 *row_sums = (u16 *)(scratch + 4 * pitch);
    const auto evaluate_row = [&](int y, u8 *target) INLINED {
        const u8 *source = coarse + (size_t)y * columns;
        if (target != source)
            for (int x = 0; x < columns; ++x)
                target[x] = source[x];
        if (y < 2 * box.top || y >= 2 * box.bottom)
            return;
        const Between down(y, 0.5f, (rows + 1) / 2);
        for (int i = 0; i < 2; ++i) {
            const float *plane = terms + i * half_plane;
            double_line(
                plane + (size_t)down.first * half_columns, plane + (size_t)down.second * half_columns,
                down.part, box.left, box.right, half_columns, between,
                enlarged + i * pitch);
        }
        const u8 *light = luma + (size_t)y * columns;
        const float *factor = enlarged, *rest = enlarged + pitch;
        const int first = 2 * box.left, last = min(2 * box.right, columns);
        INDEPENDENT
        for (int x = first; x < last; ++x)
            target[x] = (u8)refined(factor[x], rest[x], light[x], steepen, offset);
    };
    if (radius == 0) {
        for (int y = 0; y < rows; ++y)
            evaluate_row(y, out + (size_t)y * columns);
        return;
    }
    for (int y = 0, next = 0; y < rows; ++y) {
        for (; next <= min(y + radius, rows - 1); ++next) {
            evaluate_row(next, samples);
            repeat_edges(samples, 0, columns, columns, radius);
            u16 *__restrict__ sums = row_sums + (size_t)(next % side) * pitch;
            for (int x = 0; x < columns; ++x)
                sums[x] = 0;
            for (int i = 0; i < side; ++i)
                for (int x = 0; x < columns; ++x)
                    sums[x] = (u16)(sums[x] + weights[i] * samples[x + i - radius]);
        }
        int *__restrict__ total = (int *)enlarged;
        for (int x = 0; x < columns; ++x)
            total[x] = 32768;
        for (int i = 0; i < side; ++i) {
            const int row = clamp_int(y + i - radius, 0, rows - 1) % side;
            const u16 *__restrict__ sums = row_sums + (size_t)row * pitch;
            for (int x = 0; x < columns; ++x)
                total[x] += weights[i] * sums[x];
        }
        u8 *__restrict__ result = out + (size_t)y * columns;
        for (int x = 0; x < columns; ++x)
            result[x] = (u8)to_byte((float)(total[x] >> 16) * slope + shift);
    }
#endif
}
