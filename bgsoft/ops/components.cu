// Large connected components on the half grid, and the limits that they set to alpha, on a device: the
// host has OpenCV (bgsoft/matte/islands.py). Every block is 32 x 8 cells, a warp along a row, and x % 32
// is the lane: initial labels are runs within such stretches of a row. blockIdx.z is the frame: a launch
// does several at a time, whose planes of the half grid lie one behind the other.
#include "matte.cuh"

#define MAX_FRAMES 16

// By frame: opacity, (.., pitch) uint8; coarse, (rows, columns) uint8; and the mask, averaged.
struct Masks {
    const u8* opacity[MAX_FRAMES];
    u8* coarse[MAX_FRAMES];
    const float* mask[MAX_FRAMES];
};

// Label equivalence with atomics: every cell names a cell of its component with a smaller or equal
// index; cells that name themselves are roots.
// V. M. A. Oliveira, R. A. Lotufo, "A study on connected components labeling algorithms using
// GPUs", SIBGRAPI 2010 (merge by union-find); the merge without locks follows D. P. Playne,
// K. Hawick, "A new algorithm for parallel connected-component labelling on GPUs", IEEE TPDS 2018.
#define NO_LABEL (-1)

// Labels may change under the reader: they only ever come nearer to the root.
OP int find_root(const volatile int* labels, int index)
{
    int parent = labels[index];
    while (parent != index) {
        index = parent;
        parent = labels[index];
    }
    return index;
}

OP void unite(int* labels, int a, int b)
{
    a = find_root(labels, a);
    b = find_root(labels, b);
    while (a != b) {
        int high = max(a, b), low = min(a, b);
        int before = atomicMin(labels + high, low);
        if (before == high)
            return;
        // Somebody linked `high` elsewhere first: that component must be joined too.
        a = before;
        b = low;
    }
}

// Start of the run of ones that ends at `lane` in a row of 32 cells.
OP int run_start(u32 row, int lane)
{
    u32 gaps = ~row & ((1u << lane) - 1u);
    return gaps == 0 ? 0 : 32 - __clz((int)gaps);
}

// Set in the area of a component that stays whatever its size; more than the cells of any frame.
#define GAP (1 << 30)

// The sample of a mask, which covers `pixels`, in which the centre of a cell of the half grid lies.
// factor: pixels of the grid's cell.
OP int mask_sample(int cell, int factor, int samples, int pixels)
{
    return min((2 * cell + 1) * factor * samples / pixels, samples - 1);
}

// Opacity to the grid, and the initial labels of the person's components on half of it.
//
// labels: of half of (rows, columns), rounded up. areas, rest: of the half grid's size, cleared.
DEVICE_KERNEL(opacity_to_grid)(
    BY_VALUE(Masks) masks, int pitch, const float* __restrict__ x_table, int x_stride,
    const float* __restrict__ y_table, int y_stride, int mode, int* __restrict__ labels,
    int* __restrict__ areas, int* __restrict__ rest, int rows, int columns)
{
    const u8* opacity = masks.opacity[blockIdx.z];
    u8* coarse = masks.coarse[blockIdx.z];
    int half_rows = (rows + 1) / 2, half_columns = (columns + 1) / 2;
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    int frame = blockIdx.z * half_rows * half_columns, at = y * half_columns + x;
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
        person = halve(values[0], values[1], values[2], values[3], has_right, has_bottom) > 127;
        areas[frame + at] = rest[frame + at] = 0;
    }
    u32 row = __ballot_sync(0xffffffffu, person);
    int lane = threadIdx.x;
    if (inside)
        labels[frame + at] = person ? at - lane + run_start(row, lane) : NO_LABEL;
}

// Joins labels across rows and stretches. labels (rows, columns), NO_LABEL outside components.
// diagonal: 8-connected rather than 4-connected.
DEVICE_KERNEL(merge_components)(int* labels, int rows, int columns, int diagonal)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= columns || y >= rows)
        return;
    labels += blockIdx.z * rows * columns;
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

// Flattens labels to their roots, and counts the cells of each. areas: (rows * columns), 0 before; an
// area gets GAP where the mask is below `gap` at the centre of one of its cells.
//
// gap: 0 where none counts. The masks are (mask_rows, mask_columns). factor: frame pixels of the grid's
// cell. height, width: the frame's.
DEVICE_KERNEL(count_components)(
    int* labels, int* areas, int rows, int columns, float gap, BY_VALUE(Masks) masks, int mask_rows,
    int mask_columns, int factor, int height, int width)
{
    const float* mask = masks.mask[blockIdx.z];
    labels += blockIdx.z * rows * columns;
    areas += blockIdx.z * rows * columns;
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int at = y * columns + x;
    int root = NO_LABEL;
    bool is_gap = false;
    if (x < columns && y < rows && labels[at] != NO_LABEL) {
        root = find_root(labels, at);
        labels[at] = root;
        if (gap > 0.0f) {
            int row = mask_sample(y, factor, mask_rows, height);
            int column = mask_sample(x, factor, mask_columns, width);
            is_gap = mask[row * mask_columns + column] < gap;
        }
    }
    // One addition a component and warp: a large component is a single address.
    u32 same = __match_any_sync(0xffffffffu, (u32)root);
    u32 gaps = __ballot_sync(0xffffffffu, is_gap);
    if (root != NO_LABEL && __ffs((int)same) - 1 == (int)threadIdx.x) {
        atomicAdd(areas + root, __popc(same));
        if ((same & gaps) != 0)
            atomicOr(areas + root, GAP);
    }
}

// The skirt's most cells: a grid's short side is 320 at most.
#define MAX_REACH 5

// Decides which components stay, those of `min_area` cells, and makes the limit that they set.
//
// labels, areas: as count_components left them. spans: 2 * reach + 1 half-widths of the skirt's disc,
// row by row. limit: (rows, columns), what stays with its skirt, blurred by 3 x 3. next_labels: initial
// labels of the complement; null where nobody needs them.
DEVICE_KERNEL(decide_components)(
    const int* __restrict__ labels, const int* __restrict__ areas, int min_area,
    const int* __restrict__ spans, int reach, u8* __restrict__ limit, int* __restrict__ next_labels,
    int rows, int columns)
{
    __shared__ u8 staying[10 + 2 * MAX_REACH][34 + 2 * MAX_REACH], near[10][34];
    int frame = blockIdx.z * rows * columns;
    labels += frame;
    areas += frame;
    int lane = threadIdx.x, thread = threadIdx.y * 32 + lane;
    int left = blockIdx.x * 32, top = blockIdx.y * 8;
    int halo = reach + 1, wide = 32 + 2 * halo;
    for (int i = thread; i < wide * (8 + 2 * halo); i += 256) {
        int x = left - halo + i % wide, y = top - halo + i / wide, label = NO_LABEL;
        if (x >= 0 && x < columns && y >= 0 && y < rows)
            label = labels[y * columns + x];
        staying[i / wide][i % wide] = label != NO_LABEL && areas[label] >= min_area;
    }
    __syncthreads();
    for (int i = thread; i < 10 * 34; i += 256) {
        u8 any = 0;
        for (int dy = -reach; dy <= reach; dy++)
            for (int dx = -spans[dy + reach]; dx <= spans[dy + reach]; dx++)
                any |= staying[i / 34 + reach + dy][i % 34 + reach + dx];
        near[i / 34][i % 34] = any;
    }
    __syncthreads();
    int x = left + lane, y = top + threadIdx.y, at = y * columns + x, count = 0;
    bool stays = staying[threadIdx.y + halo][lane + halo] != 0;
    u32 rest = __ballot_sync(0xffffffffu, !stays);
    if (x >= columns || y >= rows)
        return;
    if (next_labels != 0)
        next_labels[frame + at] = stays ? NO_LABEL : at - lane + run_start(rest, lane);
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++)
            count += near[reflect(y + dy, rows) - top + 1][reflect(x + dx, columns) - left + 1];
    limit[frame + at] = (u8)((255 * count + 4) / 9);
}
