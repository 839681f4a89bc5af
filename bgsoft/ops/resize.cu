// Planes of float32 averaged to a smaller size, for the host: a device samples them as it reads.
#include "drivers.cuh"

#if !ON_DEVICE
// One row of an axis' table: first source sample, how many, and a weight for each.
struct Averaged {
    int first, count;
    const float *weights;

    Averaged(const float *row) : first((int)row[0]), count((int)row[1]), weights(row + 2) {}
};

// As resample_float averages: rows first. source: (source_rows, pitch); tables as in resample.cuh;
// room: source_columns + x_stride + (1 + x_stride) * columns numbers.
KERNEL(resize_area)(
    const float *source, int pitch, int source_columns, const float *x_table, int x_stride,
    const float *y_table, int y_stride, float *out, int rows, int columns, float *room)
{
    const int taps = x_stride - 2;
    float *line = room, *weights = line + source_columns + x_stride;
    int *first = (int *)(weights + taps * columns);
    for (int x = 0; x < columns; x++) {
        const Averaged own(x_table + x * x_stride);
        first[x] = own.first;
        for (int tap = 0; tap < taps; tap++)
            weights[tap * columns + x] = tap < own.count ? own.weights[tap] : 0.0f;
    }
    for (int x = source_columns; x < source_columns + x_stride; x++)
        line[x] = 0.0f;  // what weights of 0 are of
    for (int y = 0; y < rows; y++, out += columns) {
        const Averaged own(y_table + y * y_stride);
        const float *plane = source + (size_t)own.first * pitch;
        for (int x = 0; x < source_columns; x++)
            line[x] = plane[x] * own.weights[0];
        for (int row = 1; row < own.count; row++) {
            plane += pitch;
            INDEPENDENT
            for (int x = 0; x < source_columns; x++)
                line[x] += plane[x] * own.weights[row];
        }
        INDEPENDENT
        for (int x = 0; x < columns; x++)
            out[x] = line[first[x]] * weights[x];
        for (int tap = 1; tap < taps; tap++) {
            const float *weight = weights + tap * columns;
            INDEPENDENT
            for (int x = 0; x < columns; x++)
                out[x] += line[first[x] + tap] * weight[x];
        }
    }
}
#endif
