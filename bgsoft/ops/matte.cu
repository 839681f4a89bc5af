// Clean opacity on the analysis frame, from the mask's size, and from there to the frame.
#include "matte.cuh"

// Samples of a run: one for a thread, whole rows on the host.
#if ON_DEVICE
#define RUN 1
#else
#define RUN (1 << 20)
#endif

// 10 bits in the high bits of 16 to 8, half to even. (rows, columns).
KERNEL(eight_bits)(const u16 *deep, u8 *out, int rows, int columns)
{
    for_apart(rows, columns, [=](int y, int x) INLINED {
        const size_t at = (size_t)y * columns + x;
        out[at] = (u8)to_byte((float)deep[at] * (1.0f / 256.0f));
    });
}

// Opacity in [0, 1] to 8 bits, half to even. (rows, columns).
KERNEL(opacity)(const float *mask, u8 *alpha, int rows, int columns)
{
    for_apart(rows, columns, [=](int y, int x) INLINED {
        const size_t at = (size_t)y * columns + x;
        alpha[at] = (u8)to_byte(mask[at] * 255.0f);
    });
}

// A cell of half a plane: alpha, luma, Cb, Cr. WHOLE: both sides of it are within the plane. FINE: the
// plane's chroma has the plane's size; otherwise half of it, and is taken as it is.
template <bool WHOLE, bool FINE>
OP u32 packed_cell(
    const u8 *alpha, const u8 *luma, const u8 *chroma, int x, int y, int rows, int columns)
{
    const bool has_right = WHOLE || 2 * x + 1 < columns, has_bottom = WHOLE || 2 * y + 1 < rows;
    const size_t at = (size_t)(2 * y) * columns + 2 * x;
    const size_t right = has_right ? 1 : 0, below = has_bottom ? columns : 0;
    // No arrays here: a loop around this is vectorised.
    const auto mean = [&](const u8 *plane, int step) INLINED {
        const u8 *upper = plane + step * at, *lower = upper + step * below;
        return (u32)halve(
            upper[0], upper[step * right], lower[0], lower[step * right], has_right, has_bottom);
    };
    const u32 cell = mean(alpha, 1) | mean(luma, 1) << 8;
    if (FINE)
        return cell | mean(chroma, 2) << 16 | mean(chroma + 1, 2) << 24;
    const u8 *pair = chroma + 2 * ((size_t)y * ((columns + 1) / 2) + x);
    return cell | (u32)pair[0] << 16 | (u32)pair[1] << 24;
}

// What a limit on half the grid is at a cell of the grid.
OP int limit_at(const u8 *upper, const u8 *lower, int left, int right, float across, float down)
{
    const int wx = (int)(across * 2048.0f), wy = (int)(down * 2048.0f);
    return blend_u8(
        upper[left], upper[right], lower[left], lower[right], 2048 - wx, wx, 2048 - wy, wy);
}

// Calls body(x, left, right, part) for the samples of a row from `first` on, with their neighbours on a
// row half as long and how near they are to the right one.
template <class Body>
OP void for_doubled(int first, int count, int half_columns, const Body &body)
{
    const auto at_edge = [&](int x) INLINED {
        const Between along(x, 0.5f, half_columns);
        body(x, along.first, along.second, along.part);
    };
    at_edge(first);
#if !ON_DEVICE
    INDEPENDENT
    for (int half = 0; half < half_columns - 1; ++half) {
        body(2 * half + 1, half, half + 1, 0.25f);
        body(2 * half + 2, half, half + 1, 0.75f);
    }
    if (count == 2 * half_columns)
        at_edge(count - 1);
#endif
}

// Alpha on the grid within its limits, in place: (rows, columns) uint8. limits: person's and
// background's, (half rows, half columns) uint8 each, enlarged bilinearly where the flags say that
// they are exceeded.
KERNEL(limit_alpha)(u8 *alpha, const u8 *limits, const int *flags, int rows, int columns)
{
    const bool cut = flags[FLAG_PERSON_EXCEEDS] != 0, fill = flags[FLAG_BACKGROUND_EXCEEDS] != 0;
    if (!cut && !fill)
        return;
    const int half_rows = (rows + 1) / 2, half_columns = (columns + 1) / 2;
    const size_t plane = (size_t)half_rows * half_columns;
    for_runs(rows, columns, 1, RUN, [&](int y, int first, int count) INLINED {
        const Between down(y, 0.5f, half_rows);
        const u8 *upper = limits + (size_t)down.first * half_columns;
        const u8 *lower = limits + (size_t)down.second * half_columns;
        u8 *row = alpha + (size_t)y * columns;
        const auto cut_at = [&](int x, int left, int right, float part) INLINED {
            const int limit = limit_at(upper, lower, left, right, part, down.part);
            row[x] = (u8)min((int)row[x], limit);
        };
        const u8 *upper_rest = upper + plane, *lower_rest = lower + plane;
        const auto fill_at = [&](int x, int left, int right, float part) INLINED {
            const int limit = limit_at(upper_rest, lower_rest, left, right, part, down.part);
            row[x] = (u8)max((int)row[x], 255 - limit);
        };
        if (cut)
            for_doubled(first, count, half_columns, cut_at);
        if (fill)
            for_doubled(first, count, half_columns, fill_at);
    });
}

// Everything that the guided filter reads, on half a plane: see matte_guided.cu.
//
// alpha, luma: (rows, columns) uint8. chroma: (chroma_rows, chroma_columns, 2) uint8, of the same size
// or half of it. Clears the box in the flags.
KERNEL(pack_half)(
    const u8 *alpha, const u8 *luma, const u8 *chroma, int chroma_rows, int chroma_columns,
    u32 *packed, int *flags, int rows, int columns)
{
    const int half_rows = (rows + 1) / 2, half_columns = (columns + 1) / 2;
    // For a plane of one cell both sizes are the same.
    const bool fine = chroma_rows != half_rows || chroma_columns != half_columns;
    for_runs(half_rows, half_columns, 1, RUN, [&](int y, int first, int count) INLINED {
        if (first == 0 && y == 0) {
            flags[FLAG_LEFT] = flags[FLAG_TOP] = 0x7fffffff;
            flags[FLAG_RIGHT] = flags[FLAG_BOTTOM] = -1;
        }
        u32 *row = packed + (size_t)y * half_columns;
        const int end = first + count;
        const int whole = 2 * y + 1 < rows ? min(end, columns / 2) : first;
        int x = first;
        if (fine) {
            INDEPENDENT
            for (; x < whole; ++x)
                row[x] = packed_cell<true, true>(alpha, luma, chroma, x, y, rows, columns);
            for (; x < end; ++x)
                row[x] = packed_cell<false, true>(alpha, luma, chroma, x, y, rows, columns);
        } else {
            INDEPENDENT
            for (; x < whole; ++x)
                row[x] = packed_cell<true, false>(alpha, luma, chroma, x, y, rows, columns);
            for (; x < end; ++x)
                row[x] = packed_cell<false, false>(alpha, luma, chroma, x, y, rows, columns);
        }
    });
}

// The sum of squared differences of two uint8 planes of (rows, columns), into the flags; on a device
// added to what is there.
KERNEL(squared_difference)(const u8 *a, const u8 *b, int *flags, int rows, int columns)
{
    unsigned long long squares = 0;
    const auto squared = [&](int y, int x) INLINED {
        const int difference = (int)a[(size_t)y * columns + x] - (int)b[(size_t)y * columns + x];
        return (u32)(difference * difference);
    };
#if ON_DEVICE
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int first = 8 * (blockIdx.y * blockDim.y + threadIdx.y);
    for (int y = first; x < columns && y < min(first + 8, rows); ++y)
        squares += squared(y, x);
    for (int step = 16; step > 0; step /= 2)
        squares += __shfl_xor_sync(0xffffffffu, squares, step);
    if ((threadIdx.x & 31) == 0)
        atomicAdd((unsigned long long *)(flags + FLAG_SQUARES), squares);
#else
    for (int y = 0; y < rows; ++y) {
        u32 sum = 0;
        for (int x = 0; x < columns; ++x)
            sum += squared(y, x);
        squares += sum;
    }
    *(unsigned long long *)(flags + FLAG_SQUARES) = squares;
#endif
}

// Grid alpha to the frame's: bilinear by a power of two, cell centres aligned, as blend_u8 does it.
//
// shift: log2 of the factor, 0 to 6. Ends the frame's use of the flags. lines: on the host, see
// enlarge_rows.
KERNEL(enlarge_alpha)(
    const u8 *plane, u8 *alpha, int *flags, int shift, int rows, int columns, int height, int width,
    u16 *lines)
{
#if ON_DEVICE
    for_samples(height, width, [=](int y, int x) {
        if (x == 0 && y == 0)
            flags[FLAG_SQUARES] = flags[FLAG_SQUARES + 1] = 0;
        alpha[(size_t)y * width + x] = (u8)enlarged_byte(plane, rows, columns, y, x, shift);
    });
#else
    enlarge_rows(
        shift, plane, rows, columns, height, width, lines, [&](int y, const EnlargedRow row) INLINED {
            u8 *__restrict__ target = alpha + (size_t)y * width;
            __builtin_memset(target, 0, row.first);
            __builtin_memset(target + row.last, 0, width - row.last);
            for (int x = row.first; x < row.last; ++x)
                target[x] = row.at(x);
        });
#endif
}
