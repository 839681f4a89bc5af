// Cells that keep their value against noise. CPU: HeldCells in bgsoft/composite/upsample.py, exact.
#include "samples.cuh"

// One thread a cell.
//   cells: count 16-bit full-scale samples, this frame's.
//   shown: the same number, what is blended; follows where it differs by `steps` or more.
extern "C" __global__ void hold_cells(const u16 *cells, u16 *shown, int count, int steps)
{
    const int index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= count)
        return;
    const int now = cells[index], before = shown[index];
    if (abs(now - before) >= steps)
        shown[index] = static_cast<u16>(now);
}
