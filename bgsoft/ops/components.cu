// Large connected components on the half grid, and the limits that they set to alpha. The host's
// labels are OpenCV's. On a device every block is 32 x 8 cells, a warp along a row, and x % 32 is the
// lane: initial labels are runs within such stretches of a row.
//
// flags: see matte.cuh.
#include "matte.cuh"

// Set in the area of a component that stays whatever its size; no frame has so many cells.
#define GAP (1 << 30)

// The sample of a mask, which covers `pixels`, in which the centre of a cell of the half grid lies.
// factor: pixels of the grid's cell.
OP int mask_sample(int cell, int factor, int samples, int pixels)
{
    return min((2 * cell + 1) * factor * samples / pixels, samples - 1);
}

// sure, low, high: IslandPlan. fresh: no earlier frame counts.
OP bool stays(int area, int kept, int sure, int low, int high, bool fresh)
{
    if (!fresh && area >= low && area < high)
        return 2 * kept >= area;
    return area >= sure;
}

// The blurred region, from how many of 3 x 3 cells it holds.
OP int limit_of(int count)
{
    return (255 * count + 4) / 9;
}

#if ON_DEVICE
#include "union_find.cuh"

// Opacity to the grid and to half of it, with the initial labels of the person's components.
//
// opacity: (.., pitch) uint8. coarse: (rows, columns) uint8. small, labels: half of that, rounded
// up. counters: four planes of the half grid's size, cleared.
DEVICE_KERNEL(opacity_to_grid)(
    const u8* __restrict__ opacity, int pitch, const float* __restrict__ x_table, int x_stride,
    const float* __restrict__ y_table, int y_stride, int mode, u8* __restrict__ coarse,
    u8* __restrict__ small, int* __restrict__ labels, int* __restrict__ counters, int rows,
    int columns)
{
    int half_rows = (rows + 1) / 2, half_columns = (columns + 1) / 2;
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    int at = y * half_columns + x;
    bool inside = x < half_columns && y < half_rows;
    bool person = false;
    if (inside) {
        bool has_right = 2 * x + 1 < columns, has_bottom = 2 * y + 1 < rows;
        int values[4];
        for (int part = 0; part < 4; part++) {
            int gx = 2 * x + (part & 1), gy = 2 * y + (part >> 1);
            values[part] = 0;
            if (gx >= columns || gy >= rows)
                continue;
            values[part] = resample(
                opacity, pitch, 1, 0, mode, x_table + gx * x_stride, y_table + gy * y_stride);
            coarse[gy * columns + gx] = (u8)values[part];
        }
        int mean = halve(values[0], values[1], values[2], values[3], has_right, has_bottom);
        small[at] = (u8)mean;
        person = mean > 127;
        for (int plane = 0; plane < 4; plane++)
            counters[plane * half_rows * half_columns + at] = 0;
    }
    u32 row = __ballot_sync(0xffffffffu, person);
    int lane = threadIdx.x;
    if (inside)
        labels[at] = person ? at - lane + run_start(row, lane) : NO_LABEL;
}

// Joins labels across rows and stretches. labels (rows, columns), NO_LABEL outside components.
// diagonal: 8-connected rather than 4-connected.
DEVICE_KERNEL(merge_components)(int* labels, int rows, int columns, int diagonal)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= columns || y >= rows)
        return;
    int at = y * columns + x;
    if (labels[at] == NO_LABEL)
        return;
    bool west = x > 0 && labels[at - 1] != NO_LABEL;
    if (west && x % 32 == 0)
        unite(labels, at, at - 1);
    if (y == 0)
        return;
    int above = at - columns;
    bool north = labels[above] != NO_LABEL;
    bool north_west = x > 0 && labels[above - 1] != NO_LABEL;
    // Neighbours that are joined through the west or east neighbour are left to it.
    if (north) {
        if (!(west && north_west))
            unite(labels, at, above);
        return;
    }
    if (!diagonal)
        return;
    if (north_west && !west)
        unite(labels, at, above - 1);
    bool east = x + 1 < columns && labels[at + 1] != NO_LABEL;
    if (!east && x + 1 < columns && labels[above + 1] != NO_LABEL)
        unite(labels, at, above + 1);
}

// Flattens labels to their roots; per root, counts cells and those that `region` (0 or 1, the
// result of the last frame) held. areas, kept: (rows * columns), 0 before; an area gets GAP where
// the mask is below `gap` at the centre of one of its cells.
//
// region: null where no earlier frame counts. gap: 0 where none counts. mask: (mask_rows,
// mask_columns), averaged. factor: frame pixels of the grid's cell. height, width: the frame's.
DEVICE_KERNEL(count_components)(
    int* labels, const u8* __restrict__ region, int* areas, int* kept, int rows, int columns,
    float gap, const float* __restrict__ mask, int mask_rows, int mask_columns, int factor,
    int height, int width)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int at = y * columns + x;
    int root = NO_LABEL;
    bool was_kept = false, is_gap = false;
    if (x < columns && y < rows && labels[at] != NO_LABEL) {
        root = find_root(labels, at);
        labels[at] = root;
        was_kept = region != 0 && region[at] != 0;
        if (gap > 0.0f) {
            int row = mask_sample(y, factor, mask_rows, height);
            int column = mask_sample(x, factor, mask_columns, width);
            is_gap = mask[row * mask_columns + column] < gap;
        }
    }
    // One addition a component and warp: a large component is a single address.
    u32 same = __match_any_sync(0xffffffffu, (u32)root);
    u32 keeping = __ballot_sync(0xffffffffu, was_kept);
    u32 gaps = __ballot_sync(0xffffffffu, is_gap);
    if (root != NO_LABEL && __ffs((int)same) - 1 == (int)threadIdx.x) {
        atomicAdd(areas + root, __popc(same));
        if ((same & keeping) != 0)
            atomicAdd(kept + root, __popc(same & keeping));
        if ((same & gaps) != 0)
            atomicOr(areas + root, GAP);
    }
}

#define MAX_HALO 15
#define TILE_ROWS (8 + 2 * MAX_HALO)

// Whether any of the bits column - reach .. column + reach of a row is set; reach < 0: none.
OP bool any_near(unsigned long long row, int column, int reach)
{
    if (reach < 0)
        return false;
    return ((row >> (column - reach)) & ((2ull << (2 * reach)) - 1ull)) != 0;
}

// Decides which components stay and makes the limit that they set.
//
// labels, areas, kept: as count_components left them. region: (rows, columns), becomes 1 where a
// component stays. spans: 2 * radius + 1 half-widths of the skirt's disc, row by row. small: alpha
// on the half grid; `invert` makes it background's. limit: (rows, columns) uint8, the region with
// its skirt, blurred by 3 x 3; its flag becomes 1 where `small` exceeds it. next_labels: initial
// labels of the region's complement; null where nobody needs them.
DEVICE_KERNEL(decide_components)(
    const int* __restrict__ labels, const int* __restrict__ areas, const int* __restrict__ kept,
    u8* __restrict__ region, const int* __restrict__ spans, int radius, int sure, int low, int high,
    int fresh, const u8* __restrict__ small, int invert, u8* __restrict__ limit, int* flags,
    int* __restrict__ next_labels, int rows, int columns)
{
    // Bit i of a row is column (block's first column) - halo + i; near_rows: - 1 + i.
    __shared__ unsigned long long region_rows[TILE_ROWS], lost_rows[TILE_ROWS], near_rows[10];
    int lane = threadIdx.x, warp = threadIdx.y;
    int left = blockIdx.x * 32, top = blockIdx.y * 8;
    int halo = max(radius, LOST_RIM) + 1;
    for (int row = warp; row < 8 + 2 * halo; row += 8) {
        unsigned long long stay_bits = 0, lost_bits = 0;
        for (int part = 0; part < 2; part++) {
            int bit = 32 * part + lane;
            int x = left - halo + bit, y = top - halo + row;
            bool stay = false, lost = false;
            if (bit < 32 + 2 * halo && x >= 0 && x < columns && y >= 0 && y < rows) {
                int label = labels[y * columns + x];
                if (label != NO_LABEL) {
                    stay = stays(areas[label], kept[label], sure, low, high, fresh);
                    lost = !stay;
                }
            }
            stay_bits |= (unsigned long long)__ballot_sync(0xffffffffu, stay) << (32 * part);
            lost_bits |= (unsigned long long)__ballot_sync(0xffffffffu, lost) << (32 * part);
        }
        if (lane == 0) {
            region_rows[row] = stay_bits;
            lost_rows[row] = lost_bits;
        }
    }
    __syncthreads();
    for (int row = warp; row < 10; row += 8) {
        unsigned long long bits = 0;
        for (int part = 0; part < 2; part++) {
            int bit = 32 * part + lane;
            bool near = false;
            if (bit < 34) {
                int column = bit + halo - 1, centre = row + halo - 1;
                for (int dy = -radius; dy <= radius; dy++)
                    near = near || any_near(region_rows[centre + dy], column, spans[dy + radius]);
                // A component that goes must not survive in the skirt of one that stays.
                bool beside_lost = false, beside_region = false;
                for (int dy = -LOST_RIM; dy <= LOST_RIM; dy++)
                    beside_lost = beside_lost || any_near(lost_rows[centre + dy], column, LOST_RIM);
                for (int dy = -1; dy <= 1; dy++)
                    beside_region = beside_region || any_near(region_rows[centre + dy], column, 1);
                near = near && (!beside_lost || beside_region);
            }
            bits |= (unsigned long long)__ballot_sync(0xffffffffu, near) << (32 * part);
        }
        if (lane == 0)
            near_rows[row] = bits;
    }
    __syncthreads();
    int x = left + lane, y = top + warp;
    u32 own = (u32)(region_rows[warp + halo] >> halo);
    bool exceeds = false;
    if (x < columns && y < rows) {
        int at = y * columns + x;
        region[at] = (u8)(own >> lane & 1u);
        if (next_labels != 0)
            next_labels[at] = (own >> lane & 1u) ? NO_LABEL : at - lane + run_start(~own, lane);
        int count = 0;
        for (int dy = -1; dy <= 1; dy++)
            for (int dx = -1; dx <= 1; dx++) {
                int ny = reflect(y + dy, rows) - top + 1, nx = reflect(x + dx, columns) - left + 1;
                count += (int)(near_rows[ny] >> nx & 1ull);
            }
        int value = limit_of(count);
        limit[at] = (u8)value;
        exceeds = (invert ? 255 - small[at] : small[at]) > value;
    }
    if (__syncthreads_or(exceeds) && lane == 0 && warp == 0)
        flags[FLAG_PERSON_EXCEEDS + invert] = 1;
}
#else
// A plane of bytes with a margin on all sides, so that neighbours are at fixed distances.
struct Padded {
    u8 *cells;
    int pitch, size, first, last;  // of cells; all rows of the plane lie in [first, last)

    OP Padded(u8 *buffer, int margin, int rows, int columns)
        : cells(buffer), pitch(columns + 2 * margin), size(pitch * (rows + 2 * margin)),
          first(margin * pitch), last(first + rows * pitch)
    {
    }

    OP u8 *row(int y, int margin) const { return cells + first + y * pitch + margin; }

    OP void clear() const { __builtin_memset(cells, 0, size); }

    // Becomes 1, too, where `other` is `distance` cells away.
    OP void spread(const Padded &other, int distance) const
    {
        u8 *__restrict__ target = cells;
        const u8 *__restrict__ source = other.cells;
        const int margin = distance < 0 ? -distance : distance;
        for (int at = margin; at < size - margin; ++at)
            target[at] |= source[at + distance];
    }

    // Becomes `other` grown by a square, by way of `between`.
    OP void grow(const Padded &other, const Padded &between, int reach) const
    {
        clear();
        between.clear();
        for (int distance = -reach; distance <= reach; ++distance)
            between.spread(other, distance);
        for (int distance = -reach; distance <= reach; ++distance)
            spread(between, distance * pitch);
    }
};

// Decides which components stay and makes the limit that they set.
//
// labels: (rows, columns), 0 outside components, below `count`. mask, gap and what follows: see
// count_components; mask is null where no gap counts. before: the region of the frame before; null:
// it does not count, or is not known yet: then FLAG_UNSURE says whether it has to be. spans: 2 *
// radius + 1 half-widths of the skirt's disc. small: alpha on the half grid; `invert` makes it
// background's. region, rest: become 1 where a component stays, and elsewhere. limit: the region with
// its skirt, blurred by 3 x 3; its flag becomes 1 where `small` exceeds it. counters: 2 * count.
// scratch: five planes with a margin of max(radius, LOST_RIM) + 1, and a byte a label.
KERNEL(keep_components)(
    const int *labels, int count, int *counters, const u8 *before, const float *mask, float gap,
    int mask_rows, int mask_columns, int factor, int height, int width, const int *spans, int radius,
    int sure, int low, int high, int fresh, const u8 *small, int invert, u8 *region, u8 *rest,
    u8 *limit, int *flags, int rows, int columns, u8 *scratch)
{
    int *areas = counters, *kept = counters + count;
    for (int label = 0; label < 2 * count; ++label)
        counters[label] = 0;
    const int cells = rows * columns;
    for (int start = 0; start < cells;) {
        const int label = labels[start];
        int end = start, was_kept = 0;
        for (; end < cells && labels[end] == label; ++end)
            was_kept += before ? before[end] : 0;
        areas[label] += end - start;
        kept[label] += was_kept;
        start = end;
    }
    bool all = true, unsure = false;
    for (int label = 1; label < count; ++label) {
        unsure |= areas[label] >= low && areas[label] < high;
        all &= stays(areas[label], kept[label], sure, low, high, fresh);
    }
    flags[FLAG_UNSURE] = unsure && !fresh && !before;
    if (flags[FLAG_UNSURE])
        return;
    for (int at = 0; mask && !all && at < cells; ++at) {
        const int row = mask_sample(at / columns, factor, mask_rows, height);
        const int column = mask_sample(at % columns, factor, mask_columns, width);
        if (mask[row * mask_columns + column] < gap)
            areas[labels[at]] |= GAP;
    }
    const int margin = max(radius, LOST_RIM) + 1;
    const int size = (rows + 2 * margin) * (columns + 2 * margin);
    const Padded stay(scratch, margin, rows, columns), lost(scratch + size, margin, rows, columns);
    const Padded near(scratch + 2 * size, margin, rows, columns);
    const Padded wide(scratch + 3 * size, margin, rows, columns);
    const Padded other(scratch + 4 * size, margin, rows, columns);
    u8 *table = scratch + 5 * size;
    table[0] = 0;
    for (int label = 1; label < count; ++label)
        table[label] = stays(areas[label], kept[label], sure, low, high, fresh);
    stay.clear();
    for (int y = 0; y < rows; ++y) {
        const int *row = labels + y * columns;
        u8 *__restrict__ target = stay.row(y, margin);
        for (int x = 0; x < columns; ++x)
            target[x] = all ? row[x] != 0 : table[row[x]];
        for (int x = 0; x < columns; ++x) {
            region[y * columns + x] = target[x];
            rest[y * columns + x] = 1 - target[x];
        }
    }
    near.clear();
    wide.clear();
    for (int span = 0; span <= radius; ++span) {
        wide.spread(stay, span);
        wide.spread(stay, -span);
        for (int dy = -radius; dy <= radius; ++dy)
            if (spans[dy + radius] == span)
                near.spread(wide, dy * near.pitch);
    }
    if (!all) {
        // A component that goes must not survive in the skirt of one that stays.
        lost.clear();
        for (int y = 0; y < rows; ++y)
            for (int x = 0; x < columns; ++x)
                lost.row(y, margin)[x] = labels[y * columns + x] != 0 && !stay.row(y, margin)[x];
        wide.grow(lost, other, LOST_RIM);
        lost.grow(stay, other, 1);
        for (int at = near.first; at < near.last; ++at)
            near.cells[at] &= (wide.cells[at] ^ 1) | lost.cells[at];
    }
    for (int y = 0; y < rows; ++y) {
        u8 *row = near.row(y, margin);
        row[-1] = row[reflect(-1, columns)];
        row[columns] = row[reflect(columns, columns)];
    }
    __builtin_memcpy(near.row(-1, 0), near.row(reflect(-1, rows), 0), near.pitch);
    __builtin_memcpy(near.row(rows, 0), near.row(reflect(rows, rows), 0), near.pitch);
    u8 exceeds = 0;
    for (int y = 0; y < rows; ++y) {
        const u8 *a = near.row(y - 1, margin), *b = a + near.pitch, *c = b + near.pitch;
        u8 *__restrict__ target = limit + y * columns;
        const u8 *__restrict__ opacity = small + y * columns;
        for (int x = 0; x < columns; ++x) {
            const u8 held = (u8)(a[x - 1] + a[x] + a[x + 1] + b[x - 1] + b[x] + b[x + 1] + c[x - 1]
                + c[x] + c[x + 1]);
            target[x] = (u8)limit_of(held);
            exceeds |= (u8)((u8)(invert ? 255 - opacity[x] : opacity[x]) > target[x]);
        }
    }
    flags[FLAG_PERSON_EXCEEDS + invert] = exceeds;
}
#endif
