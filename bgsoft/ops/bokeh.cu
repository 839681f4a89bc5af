// Defocus: cells averaged over an anti-aliased disc, highlights counting more.
//
// Launched by bgsoft/composite/filters.py.
//
// plan: rows, columns and reach; rows and columns of luma, its offset in `source`, and its cells per cell
// each way (2 where chroma's are larger); then the offsets of three planes in `source` and in `target`:
// planes of the same size, all three, or two of chroma, or luma alone.
#include "background.cuh"
#include "drivers.cuh"

// Cells that a thread averages; the host's loads and adds for them don't wait for each other.
#if ON_DEVICE
#define RUN 1
#else
#define RUN 16
#endif

// Planes times what their cells count, and that; `reach` more on each side. Luma y in [0, 1] counts
// 1 + gain * y^6: at the power of about two an average would be of light instead of code values; more lets
// discs stand out as they do where a sensor had clipped what was much brighter than white.
KERNEL(bokeh_weigh)(
    const int *plan, const u16 *source, float4 *weighted, float black, float span, float gain)
{
    const int rows = plan[0], columns = plan[1], reach = plan[2];
    const int luma_rows = plan[3], luma_columns = plan[4], scale = plan[6];
    const u16 *luma = source + plan[5];
    const int pitch = columns + 2 * reach;
    for_samples(rows + 2 * reach, pitch, [=](int at_y, int at_x) INLINED {
        const int y = reflected(at_y - reach, rows), x = reflected(at_x - reach, columns);
        const int bottom = min((y + 1) * scale, luma_rows);
        const int right = min((x + 1) * scale, luma_columns);
        float sum = 0.0f;
        for (int row = y * scale; row < bottom; ++row)
            for (int column = x * scale; column < right; ++column) {
                const float light = ((float)luma[row * luma_columns + column] - black) / span;
                const float y1 = fminf(fmaxf(light, 0.0f), 1.0f), y2 = y1 * y1;
                sum += y2 * y2 * y2 * gain + 1.0f;
            }
        const float weight = sum / (float)((bottom - y * scale) * (right - x * scale));
        const u16 *cell = source + y * columns + x;
        weighted[at_y * pitch + at_x] = make_float4(
            (float)cell[plan[7]] * weight, (float)cell[plan[8]] * weight,
            (float)cell[plan[9]] * weight, weight);
    });
}

// disc: (2·reach + 1)² weights; half_widths: of each of its rows, how many next to the middle one are
// not zero. weighted: as above, and a run more at the end.
KERNEL(bokeh_average)(
    const int *plan, const float *disc, const int *half_widths, const float *weighted, u16 *target)
{
    const int rows = plan[0], columns = plan[1], reach = plan[2];
    const int side = 2 * reach + 1, pitch = columns + 2 * reach;
    for_runs(rows, columns, 1, RUN, [=](int y, int x, int count) INLINED {
        float sums[4 * RUN] = {};
        for (int row = 0; row < side; ++row) {
            const float *weights = disc + row * side + reach;
            const float *values = weighted + 4 * ((y + row) * pitch + x + reach);
            for (int tap = -half_widths[row]; tap <= half_widths[row]; ++tap)
                for (int index = 0; index < 4 * RUN; ++index)
                    sums[index] += values[4 * tap + index] * weights[tap];
        }
        for (int cell = 0; cell < RUN; ++cell) {
            if (cell >= count)
                break;
            u16 *made = target + y * columns + x + cell;
            made[plan[10]] = to_cell(sums[4 * cell] / sums[4 * cell + 3]);
            made[plan[11]] = to_cell(sums[4 * cell + 1] / sums[4 * cell + 3]);
            made[plan[12]] = to_cell(sums[4 * cell + 2] / sums[4 * cell + 3]);
        }
    });
}
