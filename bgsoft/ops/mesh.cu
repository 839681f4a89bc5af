// Landmarks from model input to frame, and the extents of each face: one block a face.
// Counterpart: bgsoft/face/landmarks.py (read_meshes, measure), which computes in float64; here
// everything is float32, so places differ by parts of a thousandth of a pixel.
#include "samples.cuh"

#include "views.cuh"

#define THREADS 128
#define BOUNDS 8

OP float worst(float a, float b, bool largest)
{
    // A point that is no number spoils the extent, as it does on the CPU.
    if (isnan(a) || isnan(b))
        return a + b;
    return largest ? fmaxf(a, b) : fminf(a, b);
}

// shown: the view of each face. raw: (faces, count, 3) input pixels. points: (faces, 3, count) frame
// pixels: rows of x, y, z. measures: (faces, 10): left, top, right, bottom; the same along the
// face's own axes; and the way from its right eye to its left. Launch with THREADS threads a block
// and a block a face.
extern "C" __global__ void read_meshes(
    const View* __restrict__ shown, const float* __restrict__ raw, float* __restrict__ points,
    float* __restrict__ measures, int count, int right_eye, int left_eye)
{
    __shared__ float bounds[BOUNDS][THREADS];
    int face = blockIdx.x, thread = threadIdx.x;
    const View view = shown[face];
    raw += (size_t)face * count * 3;
    points += (size_t)face * count * 3;
    const float *right = raw + right_eye * 3, *left = raw + left_eye * 3;
    float dx = left[0] - right[0], dy = left[1] - right[1];
    float across = view.x_x * dx + view.x_y * dy, down = view.y_x * dx + view.y_y * dy;
    float length = hypotf(across, down);
    float cosine = length > 0.0f ? across / length : 0.0f;
    float sine = length > 0.0f ? down / length : 0.0f;
    float scale = sqrtf(fabsf(view.x_x * view.y_y - view.x_y * view.y_x));

    float own[BOUNDS];
    bool any = false;
    for (int i = thread; i < count; i += THREADS) {
        float u = raw[3 * i], v = raw[3 * i + 1];
        float x = view.x_x * u + view.x_y * v + view.x_0;
        float y = view.y_x * u + view.y_y * v + view.y_0;
        points[i] = x;
        points[count + i] = y;
        points[2 * count + i] = scale * raw[3 * i + 2];
        float places[4] = {x, y, x * cosine + y * sine, y * cosine - x * sine};
        for (int k = 0; k < BOUNDS; k++) {
            // left, top, right, bottom of the frame's axes, then of the face's
            float place = places[(k >= 4 ? 2 : 0) + (k & 1)];
            own[k] = any ? worst(own[k], place, (k & 2) != 0) : place;
        }
        any = true;
    }
    for (int k = 0; k < BOUNDS; k++)
        bounds[k][thread] = own[k];
    __syncthreads();
    for (int step = THREADS / 2; step > 0; step /= 2) {
        if (thread < step)
            for (int k = 0; k < BOUNDS; k++)
                bounds[k][thread] =
                    worst(bounds[k][thread], bounds[k][thread + step], (k & 2) != 0);
        __syncthreads();
    }
    if (thread < BOUNDS)
        measures[face * (BOUNDS + 2) + thread] = bounds[thread][0];
    if (thread == 0) {
        measures[face * (BOUNDS + 2) + BOUNDS] = across;
        measures[face * (BOUNDS + 2) + BOUNDS + 1] = down;
    }
}
