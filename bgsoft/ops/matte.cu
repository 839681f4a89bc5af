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
// plane's chroma has the plane's size; otherwise half of it, unchanged.
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

// Everything that the guided filter reads, on half a plane: see matte_guided.cu.
//
// alpha, luma: (rows, columns) uint8. chroma: (chroma_rows, chroma_columns, 2) uint8, of the same size
// or half of it. Clears the box.
KERNEL(pack_half)(
    const u8 *alpha, const u8 *luma, const u8 *chroma, int chroma_rows, int chroma_columns,
    u32 *packed, int *box, int rows, int columns)
{
    const int half_rows = (rows + 1) / 2, half_columns = (columns + 1) / 2;
    // For a plane of one cell both sizes are the same.
    const bool fine = chroma_rows != half_rows || chroma_columns != half_columns;
    for_runs(half_rows, half_columns, 1, RUN, [&](int y, int first, int count) INLINED {
        if (first == 0 && y == 0) {
            box[BOX_LEFT] = box[BOX_TOP] = 0x7fffffff;
            box[BOX_RIGHT] = box[BOX_BOTTOM] = -1;
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

// Grid alpha to the frame's: bilinear by a power of two, cell centres aligned, as blend_u8 does it.
//
// shift: log2 of the factor, 0 to 6. lines: on the host, see enlarge_rows.
KERNEL(enlarge_alpha)(
    const u8 *plane, u8 *alpha, int shift, int rows, int columns, int height, int width, u16 *lines)
{
#if ON_DEVICE
    for_samples(height, width, [=](int y, int x) {
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

// Limits alpha on the grid, in place: (rows, columns) uint8. ceiling, rest: maxima of alpha and of
// the background's opacity, of half the size each, enlarged bilinearly. lines: on the host, see
// enlarge_rows.
KERNEL(limit_alpha)(u8 *alpha, const u8 *ceiling, const u8 *rest, int rows, int columns, u16 *lines)
{
    const int half_rows = (rows + 1) / 2, half_columns = (columns + 1) / 2;
#if ON_DEVICE
    for_samples(rows, columns, [=](int y, int x) {
        u8 &cell = alpha[y * columns + x];
        const int upper = enlarged_byte(ceiling, half_rows, half_columns, y, x, 1);
        const int lower = 255 - enlarged_byte(rest, half_rows, half_columns, y, x, 1);
        cell = (u8)max(min((int)cell, upper), lower);
    });
#else
    // Alpha, then opacity of the background.
    for (int side = 0; side < 2; ++side) {
        const u8 turned = side ? 255 : 0;
        const auto limit = [&](int y, const EnlargedRow row) INLINED {
            u8 *__restrict__ target = alpha + (size_t)y * columns;
            __builtin_memset(target, turned, row.first);
            __builtin_memset(target + row.last, turned, columns - row.last);
            for (int x = row.first; x < row.last; ++x)
                target[x] = min((u8)(target[x] ^ turned), row.at(x)) ^ turned;
        };
        const u8 *plane = side ? rest : ceiling;
        enlarge_rows(1, plane, half_rows, half_columns, rows, columns, lines, limit);
    }
#endif
}
