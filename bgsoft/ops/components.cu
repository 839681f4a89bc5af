// Large connected components on the half grid, and the limits that they set to alpha.
// Counterpart: IslandFilter in bgsoft/matte/mask.py. Every block is 32 x 8 cells, a warp along a
// row, and x % 32 is the lane: initial labels are runs within such stretches of a row.
//
// flags: see matte.cuh.

#include "matte.cuh"
#include "union_find.cuh"

// Joins labels across rows and stretches. labels (rows, columns), NO_LABEL outside components.
// diagonal: 8-connected rather than 4-connected.
extern "C" __global__ void merge_components(int* labels, int rows, int columns, int diagonal)
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

// Set in the area of a component that stays whatever its size; no frame has so many cells.
#define GAP (1 << 30)

// Flattens labels to their roots; per root, counts cells and those that `region` (0 or 1, the
// result of the last frame) held. areas, kept: (rows * columns), 0 before; an area gets GAP where
// the mask is below `gap` at the centre of one of its cells.
//
// gap: 0 where none counts. states: of temporal_threshold, (2, mask_rows, mask_columns); the mask
// is that of the flags' parity. factor: frame pixels of the grid's cell. height, width: the
// frame's, which the mask covers (MattePlan.mask_samples).
extern "C" __global__ void count_components(
    int* labels, const u8* __restrict__ region, int* areas, int* kept, int rows, int columns,
    const int* __restrict__ flags, float gap, const float* __restrict__ states, int mask_rows,
    int mask_columns, int factor, int height, int width)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int at = y * columns + x;
    int root = NO_LABEL;
    bool was_kept = false, is_gap = false;
    if (x < columns && y < rows && labels[at] != NO_LABEL) {
        root = find_root(labels, at);
        labels[at] = root;
        was_kept = region[at] != 0;
        if (gap > 0.0f) {
            int row = min((2 * y + 1) * factor * mask_rows / height, mask_rows - 1);
            int column = min((2 * x + 1) * factor * mask_columns / width, mask_columns - 1);
            const float* mask = states + flags[FLAG_PARITY] * mask_rows * mask_columns;
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

OP bool stays(
    int label, const int* __restrict__ areas, const int* __restrict__ kept, int sure, int low,
    int high, bool fresh)
{
    int area = areas[label];
    if (!fresh && area >= low && area < high)
        return 2 * kept[label] >= area;
    return area >= sure;
}

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
// its skirt, blurred by 3 x 3; flags[flag] becomes 1 where `small` exceeds it. next_labels: initial
// labels of the region's complement; null where nobody needs them.
extern "C" __global__ void decide_components(
    const int* __restrict__ labels, const int* __restrict__ areas, const int* __restrict__ kept,
    u8* __restrict__ region, const int* __restrict__ spans, int radius, int sure, int low, int high,
    const u8* __restrict__ small, int invert, u8* __restrict__ limit, int* flags, int flag,
    int* __restrict__ next_labels, int rows, int columns)
{
    // Bit i of a row is column (block's first column) - halo + i; near_rows: - 1 + i.
    __shared__ unsigned long long region_rows[TILE_ROWS], lost_rows[TILE_ROWS], near_rows[10];
    int lane = threadIdx.x, warp = threadIdx.y;
    int left = blockIdx.x * 32, top = blockIdx.y * 8;
    int halo = max(radius, LOST_RIM) + 1;
    bool fresh = flags[FLAG_FRESH] != 0;
    for (int row = warp; row < 8 + 2 * halo; row += 8) {
        unsigned long long stay_bits = 0, lost_bits = 0;
        for (int part = 0; part < 2; part++) {
            int bit = 32 * part + lane;
            int x = left - halo + bit, y = top - halo + row;
            bool stay = false, lost = false;
            if (bit < 32 + 2 * halo && x >= 0 && x < columns && y >= 0 && y < rows) {
                int label = labels[y * columns + x];
                if (label != NO_LABEL) {
                    stay = stays(label, areas, kept, sure, low, high, fresh);
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
        int value = (255 * count + 4) / 9;
        limit[at] = (u8)value;
        exceeds = (invert ? 255 - small[at] : small[at]) > value;
    }
    if (__syncthreads_or(exceeds) && lane == 0 && warp == 0)
        flags[flag] = 1;
}
