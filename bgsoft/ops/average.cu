// Mattes averaged with masks, in float32; see bgsoft/segment/averaged.py.

#include "drivers.cuh"
#include "resample.cuh"

// From where a person begins: 0 at low, 1 at low + 1 / gain.
OP float person(float opacity, float low, float gain)
{
    return fminf(fmaxf((opacity - low) * gain, 0.0f), 1.0f);
}

// What the mean of a matte and a mask would change, on the grid; one thread a sample.
//
// matte: (.., pitch), averaged by the tables to (rows, columns). mask, change: (rows, columns).
KERNEL(find_change)(
    const float *matte, int pitch, const float *x_table, int x_stride, const float *y_table,
    int y_stride, int mode, const float *mask, float low, float gain, float *change, int rows,
    int columns)
{
    for_apart(rows, columns, [=](int y, int x) INLINED {
        const float seen =
            resized_float(matte, pitch, x_table, x_stride, y_table, y_stride, mode, y, x);
        const int at = y * columns + x;
        change[at] = person((seen + mask[at]) * 0.5f, low, gain) - person(seen, low, gain);
    });
}

#if ON_DEVICE
// The least gain and the least loss within reach of each sample, each way; one thread a sample.
//
// change: (rows, columns). eroded: (2, rows, columns), gains and losses.
DEVICE_KERNEL(erode_change)(
    const float *change, float *eroded, int reach, int rows, int columns)
{
    for_samples(rows, columns, [=](int y, int x) {
        float least = 1.0f, most = -1.0f;
        for (int row = max(0, y - reach); row <= min(rows - 1, y + reach); row++)
            for (int column = max(0, x - reach); column <= min(columns - 1, x + reach); column++) {
                float value = change[row * columns + column];
                least = fminf(least, value);
                most = fmaxf(most, value);
            }
        int at = y * columns + x;
        eroded[at] = fmaxf(least, 0.0f);
        eroded[rows * columns + at] = fmaxf(-most, 0.0f);
    });
}

// Back to the width that they had: what was too thin for the reach is gone.
DEVICE_KERNEL(dilate_change)(
    const float *eroded, float *change, int reach, int rows, int columns)
{
    for_samples(rows, columns, [=](int y, int x) {
        float gained = 0.0f, lost = 0.0f;
        for (int row = max(0, y - reach); row <= min(rows - 1, y + reach); row++)
            for (int column = max(0, x - reach); column <= min(columns - 1, x + reach); column++) {
                gained = fmaxf(gained, eroded[row * columns + column]);
                lost = fmaxf(lost, eroded[(rows + row) * columns + column]);
            }
        change[y * columns + x] = gained - lost;
    });
}
#endif

// Adds the change, (.., pitch) and enlarged by the tables, to a matte of (rows, columns).
KERNEL(apply_change)(
    const float *change, int pitch, const float *x_table, int x_stride, const float *y_table,
    int y_stride, int mode, float *matte, int rows, int columns)
{
    for_apart(rows, columns, [=](int y, int x) INLINED {
        const float added =
            resized_float(change, pitch, x_table, x_stride, y_table, y_stride, mode, y, x);
        const int at = y * columns + x;
        if (added != 0.0f)
            matte[at] = fminf(fmaxf(matte[at] + added, 0.0f), 1.0f);
    });
}
