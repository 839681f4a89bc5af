// Planes of the zoomed segmenter. Counterpart: bgsoft/segment/cpu.py; all sums in float32.

#include "resample.cuh"

#define CELL 4

// Mean over one cell of a plane on the grid; one that an edge cuts, over what it holds.
template <typename T>
OP void average(
    const T* __restrict__ plane, int rows, int columns, float scale, float* __restrict__ cells,
    int cell_rows, int cell_columns)
{
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= cell_columns || row >= cell_rows)
        return;
    int bottom = min(rows, (row + 1) * CELL), right = min(columns, (column + 1) * CELL);
    float sum = 0.0f;
    for (int y = row * CELL; y < bottom; y++)
        for (int x = column * CELL; x < right; x++)
            sum += (float)plane[y * columns + x] * scale;
    int count = (bottom - row * CELL) * (right - column * CELL);
    cells[row * cell_columns + column] = sum * (1.0f / (float)count);
}

// One thread a cell. luma: (rows, columns); scale: to 8-bit codes; cells: (cell_rows, cell_columns).
extern "C" __global__ void luma_cells(
    const sample_t* luma, int rows, int columns, float scale, float* cells, int cell_rows,
    int cell_columns)
{
    average(luma, rows, columns, scale, cells, cell_rows, cell_columns);
}

// The same of a mask.
extern "C" __global__ void mask_cells(
    const float* mask, int rows, int columns, float* cells, int cell_rows, int cell_columns)
{
    average(mask, rows, columns, 1.0f, cells, cell_rows, cell_columns);
}

// One thread an output sample. mask: (.., pitch); out: (rows, columns), made by the tables.
extern "C" __global__ void resize_mask(
    const float* mask, int pitch, const float* x_table, int x_stride, const float* y_table,
    int y_stride, int mode, float* out, int rows, int columns)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= columns || y >= rows)
        return;
    out[y * columns + x] =
        resample_float(mask, pitch, mode, x_table + x * x_stride, y_table + y * y_stride);
}

// Where a sample of the grid lies among its cells: enlarging them is bilinear.
struct Place {
    int top_left, top_right, bottom_left, bottom_right;
    float right, down;
};

OP Place place_of(int y, int x, int rows, int columns)
{
    float at_y = ((float)y + 0.5f) * (1.0f / CELL) - 0.5f;
    float at_x = ((float)x + 0.5f) * (1.0f / CELL) - 0.5f;
    int y0 = (int)floorf(at_y), x0 = (int)floorf(at_x);
    int top = clamp_int(y0, 0, rows - 1) * columns, left = clamp_int(x0, 0, columns - 1);
    int bottom = clamp_int(y0 + 1, 0, rows - 1) * columns;
    int beside = clamp_int(x0 + 1, 0, columns - 1);
    return {top + left,    top + beside,        bottom + left,
            bottom + beside, at_x - (float)x0, at_y - (float)y0};
}

// How much a whole look counts, in cells: least .. most, in full where the picture stands still.
struct WholePass {
    const float *luma, *seen;
    float least, most, moved, span;

    OP float in_cell(int at) const
    {
        float weight = (moved - fabsf(luma[at] - seen[at])) / span;
        return fminf(fmaxf(weight, least), most);
    }

    OP float at(const Place& place) const
    {
        float left = 1.0f - place.right;
        float upper = in_cell(place.top_left) * left + in_cell(place.top_right) * place.right;
        float lower = in_cell(place.bottom_left) * left + in_cell(place.bottom_right) * place.right;
        return upper * (1.0f - place.down) + lower * place.down;
    }
};

// How far the close look has faded in at sample `at` of `count`; 0 widths: at once.
OP float ramp(int at, int count, float first, float last)
{
    float rise = first > 0.0f ? ((float)at + 0.5f) / first : 1.0f;
    float fall = last > 0.0f ? ((float)(count - 1 - at) + 0.5f) / last : 1.0f;
    return fminf(fminf(rise, fall), 1.0f);
}

// The mask of a frame from its looks; one thread a sample.
//
// general, landscape, mask: (rows, columns). luma, general_seen, landscape_seen: (cell_rows,
// cell_columns), of this frame and of those that were looked at; each look counts from its least to
// its most: the most up to a change of moved - span, the least from moved on. close: (..,
// close_pitch), resized by the tables to the box left .. right, top .. bottom (half-open; empty
// where there is none), where its weight is close_weight, faded in over the four widths. lift: factor
// of the mean.
extern "C" __global__ void blend_passes(
    const float* general, const float* landscape, const float* luma, const float* general_seen,
    const float* landscape_seen, int cell_rows, int cell_columns, float general_least,
    float general_most, float landscape_least, float landscape_most, float moved, float span,
    const float* close, int close_pitch, const float* x_table, int x_stride,
    const float* y_table, int y_stride, int mode, int left, int top, int right, int bottom,
    float fade_left, float fade_top, float fade_right, float fade_bottom, float close_weight,
    float lift, float* mask, int rows, int columns)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= columns || y >= rows)
        return;
    int at = y * columns + x;
    Place place = place_of(y, x, cell_rows, cell_columns);
    WholePass first = {luma, general_seen, general_least, general_most, moved, span};
    WholePass second = {luma, landscape_seen, landscape_least, landscape_most, moved, span};
    float total = first.at(place), other = second.at(place);
    float sum = general[at] * total + landscape[at] * other;
    total += other;
    if (x >= left && x < right && y >= top && y < bottom) {
        const float *x_row = x_table + (x - left) * x_stride, *y_row = y_table + (y - top) * y_stride;
        float weight = ramp(y - top, bottom - top, fade_top, fade_bottom) *
                       (close_weight * ramp(x - left, right - left, fade_left, fade_right));
        sum += resample_float(close, close_pitch, mode, x_row, y_row) * weight;
        total += weight;
    }
    mask[at] = fminf(lift * sum / total, 1.0f);
}
