// What faces do to mattes.
//
// Counterpart on the CPU: CpuMatteEditor in bgsoft/face/guard.py.
#include "resample.cuh"

#define OUTLINE_POINTS 36
#define MAX_OUTLINES 12 // all of a kernel's arguments may take 4,096 bytes
#define TILE_ROWS 8
#define TILE_COLUMNS 32

// One face's cover, in cells of the grid; as Outline in bgsoft/face/guard.py.
struct Outline {
    float x[OUTLINE_POINTS], y[OUTLINE_POINTS]; // frame pixels
    float scale, shift_x, shift_y;              // to cells
    float opacity;
    int side;
    int left, top, right, bottom;
};

// What is to be done to one matte. Outlines from index first on, of a list that may be longer:
// later parts go on from what earlier ones have made. Those before index measured are told of.
// A face is filled in by how far what is missing of it is from missed to filled.
struct MatteEdit {
    float missed, filled;
    int rows, columns, height, width;
    int shift; // log2 of pixels per cell
    int has_limit;
    int first, count, measured;
    Outline outlines[MAX_OUTLINES];
};

OP float clamp_unit(float value)
{
    return fminf(fmaxf(value, 0.0f), 1.0f);
}

// Integral of clamp_unit from minus infinity.
OP float ramp(float value)
{
    if (value <= 0.0f)
        return 0.0f;
    return value < 1.0f ? 0.5f * value * value : value - 0.5f;
}

// The share of a square around a cell that the outline encloses, 0-255.
//
// By Green's theorem, an edge at a time: what lies left of the edge, inside the square.
OP int covered(const Outline& outline, int row, int column)
{
    // From frame pixels to sides of the square, from its corner on.
    float one = 1.0f / (float)outline.side;
    float scale = outline.scale * one;
    float shift_x = (outline.shift_x - ((float)column + 0.5f)) * one + 0.5f;
    float shift_y = (outline.shift_y - ((float)row + 0.5f)) * one + 0.5f;
    float x0 = outline.x[OUTLINE_POINTS - 1] * scale + shift_x;
    float y0 = outline.y[OUTLINE_POINTS - 1] * scale + shift_y;
    float share = 0.0f;
    for (int i = 0; i < OUTLINE_POINTS; i++) {
        float x1 = outline.x[i] * scale + shift_x;
        float y1 = outline.y[i] * scale + shift_y;
        float from = clamp_unit(y0), to = clamp_unit(y1);
        if (from != to) {
            float slope = (x1 - x0) / (y1 - y0);
            float left = x0 + (from - y0) * slope, right = x0 + (to - y0) * slope;
            float width = right - left;
            float mean = fabsf(width) > 1e-3f ? (ramp(right) - ramp(left)) / width
                                              : clamp_unit(0.5f * (left + right));
            share += (to - from) * mean;
        }
        x0 = x1;
        y0 = y1;
    }
    return nearest(255.0f * fminf(fabsf(share), 1.0f));
}

// Opacity of a fill, 0-255, at most strength, from the enclosed share, 0-255.
OP int fill_opacity(int share, float strength)
{
    return clamp_int(nearest((float)(2 * share - 255) * strength), 0, 255);
}

// What a matte, cut down to a limit, has of each face, and how strongly it is to be filled in.
//
// reduced, limit: (rows, columns); limit is not read unless has_limit. strengths: one for each
// outline of this part. told: the share that the matte covers, 0-1, for each measured outline of
// all parts. A block an outline.
extern "C" __global__ void __launch_bounds__(1024) measure_covers(
    const u8* reduced, const u8* limit, float* strengths, float* told,
    const __grid_constant__ MatteEdit edit)
{
    __shared__ unsigned long long inside, covers;
    const Outline& outline = edit.outlines[blockIdx.x];
    int thread = threadIdx.y * blockDim.x + threadIdx.x;
    if (thread == 0)
        inside = covers = 0;
    __syncthreads();
    int columns = outline.right - outline.left;
    int cells = columns * (outline.bottom - outline.top);
    unsigned long long own_inside = 0, own_covers = 0;
    for (int cell = thread; cell < cells; cell += blockDim.x * blockDim.y) {
        int row = outline.top + cell / columns, column = outline.left + cell % columns;
        int weight = fill_opacity(covered(outline, row, column), 1.0f);
        int at = row * edit.columns + column;
        int value = reduced[at];
        if (edit.has_limit)
            value = min(value, (int)limit[at]);
        own_inside += weight;
        own_covers += weight * value;
    }
    if (own_inside > 0) {
        atomicAdd(&inside, own_inside);
        atomicAdd(&covers, own_covers);
    }
    __syncthreads();
    if (thread > 0)
        return;
    // A face that has no inside on the grid counts as covered.
    float share = inside > 0 ? (float)((double)covers / (255.0 * (double)inside)) : 1.0f;
    float missing = (1.0f - share - edit.missed) / (edit.filled - edit.missed);
    strengths[blockIdx.x] = outline.opacity * clamp_unit(missing);
    int index = edit.first + blockIdx.x;
    if (index < edit.measured)
        told[index] = share;
}

// What mattes lack at some of their cells, for each face: the sum over cells of 255 minus the matte.
//
// planes: the matte of each face. cells: (faces, points), indices into it; -1 is left out. A block a
// face.
extern "C" __global__ void __launch_bounds__(128) measure_missing(
    const u8* const* planes, const int* cells, int* missing, int points)
{
    __shared__ int sum;
    if (threadIdx.x == 0)
        sum = 0;
    __syncthreads();
    const u8* plane = planes[blockIdx.x];
    const int* own = cells + (long long)blockIdx.x * points;
    int part = 0;
    for (int index = threadIdx.x; index < points; index += blockDim.x)
        if (own[index] >= 0)
            part += 255 - plane[own[index]];
    atomicAdd(&sum, part);
    __syncthreads();
    if (threadIdx.x == 0)
        missing[blockIdx.x] = sum;
}

// A matte cut down to a limit, then faces filled in; on the grid into a plane of its own, on the
// frame's alpha in place.
//
// reduced, limit, strengths: as for measure_covers, which comes first. out: (rows, columns). alpha:
// (height, width). One thread a cell, blocks of TILE_COLUMNS x TILE_ROWS.
extern "C" __global__ void edit_matte(
    const u8* reduced, const u8* limit, const float* strengths, u8* out, u8* alpha,
    const __grid_constant__ MatteEdit edit)
{
    // The block's cells and their neighbours.
    __shared__ int cells[TILE_ROWS + 2][TILE_COLUMNS + 2];
    int first_row = blockIdx.y * TILE_ROWS, first_column = blockIdx.x * TILE_COLUMNS;
    int row = first_row + threadIdx.y, column = first_column + threadIdx.x;
    int thread = threadIdx.y * TILE_COLUMNS + threadIdx.x;
    bool exists = row < edit.rows && column < edit.columns;
    int at = row * edit.columns + column;
    int edge = 1 << edit.shift, one = 2048 >> (edit.shift + 1);
    int top = row * edge, left = column * edge;
    int bottom = min(top + edge, edit.height), right = min(left + edge, edit.width);
    int value = !exists ? 0 : edit.first > 0 ? out[at] : reduced[at];
    if (edit.has_limit && edit.first == 0 && exists) {
        value = min(value, (int)limit[at]);
        for (int y = top; y < bottom; y++)
            for (int x = left; x < right; x++) {
                int most = enlarged_byte(limit, edit.rows, edit.columns, y, x, edit.shift);
                u8* pixel = alpha + (long long)y * edit.width + x;
                *pixel = (u8)min((int)*pixel, most);
            }
    }
    for (int index = 0; index < edit.count; index++) {
        const Outline& outline = edit.outlines[index];
        float strength = strengths[index];
        if (!(strength > 0.0f) || outline.right < first_column ||
            outline.left > first_column + TILE_COLUMNS || outline.bottom < first_row ||
            outline.top > first_row + TILE_ROWS)
            continue; // the whole block
        __syncthreads();
        for (int i = thread; i < (TILE_ROWS + 2) * (TILE_COLUMNS + 2);
             i += TILE_ROWS * TILE_COLUMNS) {
            int y = clamp_int(first_row - 1 + i / (TILE_COLUMNS + 2), 0, edit.rows - 1);
            int x = clamp_int(first_column - 1 + i % (TILE_COLUMNS + 2), 0, edit.columns - 1);
            bool inside = x >= outline.left && x < outline.right && y >= outline.top &&
                          y < outline.bottom;
            cells[i / (TILE_COLUMNS + 2)][i % (TILE_COLUMNS + 2)] =
                inside ? covered(outline, y, x) : 0;
        }
        __syncthreads();
        if (exists) {
            value = max(value, fill_opacity(cells[threadIdx.y + 1][threadIdx.x + 1], strength));
            for (int y = top; y < bottom; y++) {
                int position_y = (2 * (y - top) + 1) * one - 1024;
                int wy = position_y & 2047;
                const int* above = cells[threadIdx.y + 1 + (position_y >> 11)];
                const int* below = above + TILE_COLUMNS + 2;
                for (int x = left; x < right; x++) {
                    int position_x = (2 * (x - left) + 1) * one - 1024;
                    int wx = position_x & 2047, a = threadIdx.x + 1 + (position_x >> 11);
                    int share = blend_u8(
                        above[a], above[a + 1], below[a], below[a + 1], 2048 - wx, wx, 2048 - wy,
                        wy);
                    int shown = fill_opacity(share, strength);
                    u8* pixel = alpha + (long long)y * edit.width + x;
                    if (shown > *pixel)
                        *pixel = (u8)shown;
                }
            }
        }
    }
    if (exists)
        out[at] = (u8)value;
}
