// Landmarks from model input to frame, and the extents of each face, in float32: on a device one block a
// face.
#include "views.cuh"

#define THREADS TOGETHER(128)
#define BOUNDS 8
#define MEASURES (BOUNDS + 3)

OP float worst(float a, float b, bool largest)
{
    // A point that is no number spoils the extent.
    if (isnan(a) || isnan(b))
        return a + b;
    return largest ? fmaxf(a, b) : fminf(a, b);
}

// shown: the view of each face. raw: (faces, count, 3) input pixels. logits: (faces). found: (faces,
// 3 * count + 11): rows of x, y, z in frame pixels; left, top, right, bottom of the points; the same
// along the face's own axes, which are turned as its eyes are; the way from its right eye to its left,
// across and down; and how probably it is a face. Launch with THREADS threads a block and a block a
// face.
KERNEL(read_meshes)(
    const View* shown, const float* raw, const float* logits, float* found, int faces, int count,
    int right_eye, int left_eye)
{
    SHARED float bounds[BOUNDS][THREADS];
    for_blocks(faces, [&](int face, int thread) INLINED {
        const View view = shown[face];
        const float *given = raw + (size_t)face * count * 3;
        const float *right = given + right_eye * 3, *left = given + left_eye * 3;
        float *target = found + (size_t)face * (3 * count + MEASURES), *measured = target + 3 * count;
        float dx = left[0] - right[0], dy = left[1] - right[1];
        float across = view.x_x * dx + view.x_y * dy, down = view.y_x * dx + view.y_y * dy;
        float length = hypotf(across, down);
        float cosine = length > 0.0f ? across / length : 0.0f;
        float sine = length > 0.0f ? down / length : 0.0f;
        float scale = sqrtf(fabsf(view.x_x * view.y_y - view.x_y * view.y_x));

        float own[BOUNDS];
        for (int i = thread; i < count; i += THREADS) {
            float u = given[3 * i], v = given[3 * i + 1];
            float x = view.x_x * u + view.x_y * v + view.x_0;
            float y = view.y_x * u + view.y_y * v + view.y_0;
            target[i] = x;
            target[count + i] = y;
            target[2 * count + i] = scale * given[3 * i + 2];
            float places[4] = {x, y, x * cosine + y * sine, y * cosine - x * sine};
            for (int k = 0; k < BOUNDS; k++) {
                // left, top, right, bottom of the frame's axes, then of the face's
                float place = places[(k >= 4 ? 2 : 0) + (k & 1)];
                own[k] = i == thread ? place : worst(own[k], place, (k & 2) != 0);
            }
        }
        for (int k = 0; k < BOUNDS; k++)
            bounds[k][thread] = own[k];
#if ON_DEVICE
        __syncthreads();
        for (int step = THREADS / 2; step > 0; step /= 2) {
            if (thread < step)
                for (int k = 0; k < BOUNDS; k++)
                    bounds[k][thread] =
                        worst(bounds[k][thread], bounds[k][thread + step], (k & 2) != 0);
            __syncthreads();
        }
#endif
        for (int k = thread; k < BOUNDS; k += THREADS)
            measured[k] = bounds[k][0];
        if (thread == 0) {
            measured[BOUNDS] = across;
            measured[BOUNDS + 1] = down;
            measured[BOUNDS + 2] = probability(logits[face]);
        }
    });
}
