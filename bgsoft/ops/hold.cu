// Cells that keep their value against noise.
#include "drivers.cuh"

#define RUN 8

// cells: `count` 16-bit full-scale samples, this frame's. before: what was shown last. shown: what
// is shown now, which may be `before`: cells where they differ by `steps` or more.
KERNEL(hold_cells)(const u16 *cells, const u16 *before, u16 *shown, int count, int steps)
{
    for_runs(1, count, 1, RUN, [&](int, int first, int length) INLINED {
        UNROLL
        for (int index = 0; index < RUN; ++index)
            if (index < length) {
                const int now = cells[first + index], last = before[first + index];
                const int change = now < last ? last - now : now - last;
                shown[first + index] = (u16)(change >= steps ? now : last);
            }
    });
}
