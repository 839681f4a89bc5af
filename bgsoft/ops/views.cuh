// What a face model is shown of a frame, and how sure it is. Layout of WARP_VIEW in bgsoft/face/warp.py.
#pragma once

#include "drivers.cuh"

struct View {
    float x_x, x_y, x_0;  // frame x = x_x * u + x_y * v + x_0, continuous pixels of the input (u, v)
    float y_x, y_y, y_0;
    // Of the frame, on a device: (height, width), (chroma height, chroma width, 2), and the same of its
    // grid; rows follow each other without padding.
    const sample_t *luma, *chroma, *grid_luma, *grid_chroma;
};

// Of a logit; 0 where that is no number. Beyond 60 it is 0 or 1 in float32 anyway, and the exponential
// would overflow.
OP float probability(float logit)
{
    return 1.0f / (1.0f + expf(-fminf(fmaxf(logit, -60.0f), 60.0f)));
}
