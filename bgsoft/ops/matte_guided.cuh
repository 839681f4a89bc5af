// What the guided filter's fit and its evaluation share.
#pragma once

#include "matte.cuh"

// Where the filter may change something, in cells of half the plane, half-open.
struct Box {
    int left, top, right, bottom;

    OP Box(const int *limits, int margin) : left(0), top(0), right(0), bottom(0)
    {
        if (limits[BOX_RIGHT] < 0)
            return;
        left = max(limits[BOX_LEFT] - margin, 0);
        top = max(limits[BOX_TOP] - margin, 0);
        right = limits[BOX_RIGHT] + 1 + margin;
        bottom = limits[BOX_BOTTOM] + 1 + margin;
    }
};

#if !ON_DEVICE
// A line and the one below it blended, then enlarged along itself to [2 * first, 2 * last); a sample
// more is written on each side.
OP void double_line(
    const float *upper, const float *lower, float part, int first, int last, int size,
    float *__restrict__ between, float *__restrict__ out)
{
    const int start = max(first - 1, 0), stop = min(last + 1, size);
    for (int x = start; x < stop; ++x)
        between[x] = along(upper[x], lower[x], part);
    repeat_edges(between, start, stop, size, 1);
    INDEPENDENT
    for (int x = first - 1; x < last; ++x) {
        out[2 * x + 1] = along(between[x], between[x + 1], 0.25f);
        out[2 * x + 2] = along(between[x], between[x + 1], 0.75f);
    }
}
#endif
