// Cells that keep their value against noise.
#include "drivers.cuh"

// cells: `count` 16-bit full-scale samples, this frame's. before: what was shown last. shown: what
// is shown now, which may be `before`: cells where they differ by `steps` or more.
KERNEL(hold_cells)(const u16 *cells, const u16 *before, u16 *shown, int count, int steps)
{
    for_apart(1, count, [=](int, int at) INLINED {
        const int now = cells[at], last = before[at];
        const int change = now < last ? last - now : now - last;
        shown[at] = (u16)(change >= steps ? now : last);
    });
}
