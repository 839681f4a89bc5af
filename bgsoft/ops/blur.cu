// Gaussian blur of the background's cells, along rows first; the result is rounded halves up.
//
// Launched by bgsoft/composite/filters.py.
//
// plan: for each plane rows, columns, reach (cells to each side), the offset of its 2·reach + 1 weights in
// `taps`, the offsets of the plane in `source`, in `target` and in `along`, and the pitch of its rows there:
// whole runs.
#include "background.cuh"
#include "drivers.cuh"

#if ON_DEVICE
#define RUN 1
#else
#define RUN 64
#endif

// RUN sums of samples, tap by tap, each times its weight.
template <class Samples>
OP void weigh(const float *taps, int reach, float sums[RUN], const Samples &samples_of)
{
    for (int index = 0; index < RUN; ++index)
        sums[index] = 0.0f;
    for (int tap = 0; tap <= 2 * reach; ++tap) {
        const float *samples = samples_of(tap);
        for (int index = 0; index < RUN; ++index)
            sums[index] += samples[index] * taps[tap];
    }
}

// line: of the host, room for a row of whole runs with the widest reach on each side.
KERNEL(blur_along)(
    const int *plan, const float *taps, const u16 *source, float *along, float *line)
{
    for_planes(3, [=](int index) INLINED {
        const int *plane = plan + 8 * index;
        const int rows = plane[0], columns = plane[1], reach = plane[2], pitch = plane[7];
        const float *weights = taps + plane[3];
        const u16 *cells = source + plane[4];
        float *sums = along + plane[6];
#if ON_DEVICE
        for_samples(rows, columns, [=](int y, int x) {
            float sum = 0.0f;
            for (int tap = 0; tap <= 2 * reach; ++tap)
                sum += (float)cells[y * columns + reflected(x + tap - reach, columns)] * weights[tap];
            sums[y * pitch + x] = sum;
        });
#else
        for (int y = 0; y < rows; ++y) {
            for (int x = 0; x < columns; ++x)
                line[reach + x] = (float)cells[y * columns + x];
            for (int step = 1; step <= reach; ++step) {
                line[reach - step] = line[reach + reflected(-step, columns)];
                line[reach + columns - 1 + step] = line[reach + reflected(columns - 1 + step, columns)];
            }
            for (int x = 0; x < pitch; x += RUN)
                weigh(weights, reach, sums + y * pitch + x, [=](int tap) INLINED {
                    return line + x + tap;
                });
        }
#endif
    });
}

KERNEL(blur_down)(const int *plan, const float *taps, const float *along, u16 *target)
{
    for_planes(3, [=](int index) INLINED {
        const int *plane = plan + 8 * index;
        const int rows = plane[0], columns = plane[1], reach = plane[2], pitch = plane[7];
        for_runs(rows, columns, 1, RUN, [=](int y, int x, int length) INLINED {
            float sums[RUN];
            weigh(taps + plane[3], reach, sums, [=](int tap) INLINED {
                return along + plane[6] + reflected(y + tap - reach, rows) * pitch + x;
            });
            for (int index = 0; index < RUN; ++index)
                if (index < length)
                    target[plane[5] + y * columns + x + index] = to_cell(sums[index]);
        });
    });
}
