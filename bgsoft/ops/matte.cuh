// Functions shared by kernels that make or change mattes.
#pragma once

#include "drivers.cuh"
#include "resample.cuh"

// Box of everything that is not flat in half of the alpha plane, inclusive; empty if right < 0.
enum BoxSide { BOX_LEFT, BOX_TOP, BOX_RIGHT, BOX_BOTTOM };

// Index mirrored at the ends, which are not repeated (BORDER_REFLECT_101).
OP int reflect(int index, int size)
{
    if (size == 1)
        return 0;
    while (index < 0 || index >= size)
        index = index < 0 ? -index : 2 * size - 2 - index;
    return index;
}

OP int to_byte(float value)
{
    return clamp_int(nearest(value), 0, 255);
}

// Mean of 2 x 2 samples or what the edges leave of them; rounded as cell<2>() does. Those
// outside are not looked at.
OP int halve(int a, int right, int below, int across, bool has_right, bool has_bottom)
{
    if (has_right && has_bottom)
        return (a + right + below + across + 2) >> 2;
    if (!has_right && !has_bottom)
        return a;
    return nearest((float)(a + (has_right ? right : below)) * 0.5f);
}

#if !ON_DEVICE
// A row of a plane enlarged bilinearly, as blend_u8 does it: two lines in 1/128, of which the pixels
// [first, last) may be above 0, and their weights in 1/2048.
struct EnlargedRow {
    const u16 *upper, *lower;
    u16 upper_weight, lower_weight;
    int first, last;

    OP u8 at(int x) const
    {
        const u16 a = (u16)((u32)upper_weight * upper[x] >> 16);
        const u16 b = (u16)((u32)lower_weight * lower[x] >> 16);
        return (u8)((u16)(a + b + 2) >> 2);
    }
};

// A line of the plane, enlarged by F, from cell `first` to before `last`; what remains of cells at
// both ends is theirs alone.
template <int F>
OP void enlarge_line_by(const u8 *cells, int first, int last, u16 *__restrict__ line)
{
    for (int index = 0; index < F / 2; ++index) {
        line[F * first + index] = (u16)(128 * cells[first]);
        line[F * last - 1 - index] = (u16)(128 * cells[last - 1]);
    }
    u16 *__restrict__ between = line + F / 2;
    const auto blend = [=](int x, int index) INLINED {
        const u16 part = (u16)((2 * index + 1) * 64 / F);
        between[F * x + index] = (u16)(cells[x] * (128 - part) + cells[x + 1] * part);
    };
    // Cells of a vector's size or more are vectorised one by one.
    if constexpr (F < 16) {
        INDEPENDENT
        for (int x = first; x < last - 1; ++x)
            UNROLLED
            for (int index = 0; index < F; ++index)
                blend(x, index);
    } else {
        for (int x = first; x < last - 1; ++x)
            INDEPENDENT
            for (int index = 0; index < F; ++index)
                blend(x, index);
    }
}

OUTLINED void enlarge_line(int shift, const u8 *cells, int first, int last, u16 *line)
{
    switch (shift) {
    case 0:
        for (int x = first; x < last; ++x)
            line[x] = (u16)(128 * cells[x]);
        break;
    case 1: enlarge_line_by<2>(cells, first, last, line); break;
    case 2: enlarge_line_by<4>(cells, first, last, line); break;
    case 3: enlarge_line_by<8>(cells, first, last, line); break;
    case 4: enlarge_line_by<16>(cells, first, last, line); break;
    case 5: enlarge_line_by<32>(cells, first, last, line); break;
    default: enlarge_line_by<64>(cells, first, last, line); break;
    }
}

// Calls emit(y, row) for the `height` rows of a plane of (rows, columns) enlarged by 1 << shift, cell
// centres aligned; shift is 0 to 6. lines: room for two rows of columns << shift.
template <class Emit>
OP void enlarge_rows(
    int shift, const u8 *plane, int rows, int columns, int height, int width, u16 *lines,
    const Emit &emit)
{
    const int pitch = columns << shift;
    int spans[2][2] = {};  // pixels of a line that are filled in
    const auto make_line = [&](int row) {
        const u8 *cells = plane + (size_t)row * columns;
        int first = 0, last = columns;
        for (size_t eight = 0; first + 8 <= columns; first += 8) {
            __builtin_memcpy(&eight, cells + first, 8);
            if (eight != 0)
                break;
        }
        while (first < last && cells[first] == 0)
            ++first;
        for (size_t eight = 0; last - 8 >= first; last -= 8) {
            __builtin_memcpy(&eight, cells + last - 8, 8);
            if (eight != 0)
                break;
        }
        while (first < last && cells[last - 1] == 0)
            --last;
        const bool is_empty = first == last;
        // An empty cell on each side, for the edge to fade.
        first = max(first - 1, 0);
        last = min(last + 1, columns);
        if (!is_empty)
            enlarge_line(shift, cells, first, last, lines + (row & 1) * pitch);
        spans[row & 1][0] = is_empty ? width : first << shift;
        spans[row & 1][1] = is_empty ? 0 : min(last << shift, width);
    };
    make_line(0);
    for (int y = 0, made = 0; y < height; ++y) {
        const int position = (2 * y + 1) * (1024 >> shift) - 1024;
        const int above = max(position >> 11, 0), below = min((position >> 11) + 1, rows - 1);
        if (below > made)
            make_line(made = below);
        const int last = max(spans[0][1], spans[1][1]);
        const int first = min(min(spans[0][0], spans[1][0]), last);
        for (int index = 0; index < 2; ++index) {
            u16 *line = lines + index * pitch;
            int *span = spans[index];
            if (span[1] == 0)
                span[0] = span[1] = first;
            while (span[0] > first)
                line[--span[0]] = 0;
            while (span[1] < last)
                line[span[1]++] = 0;
        }
        const u16 weight = position & 2047;
        emit(y, EnlargedRow{
            lines + (above & 1) * pitch, lines + (below & 1) * pitch, (u16)(2048 - weight), weight,
            first, last});
    }
}

// Repeats the ends of a line's part [first, last) beyond the plane's edges.
template <class T>
OP void repeat_edges(T *line, int first, int last, int size, int reach)
{
    for (int x = first == 0 ? -reach : 0; x < 0; ++x)
        line[x] = line[0];
    for (int x = size; last == size && x < size + reach; ++x)
        line[x] = line[size - 1];
}
#endif
