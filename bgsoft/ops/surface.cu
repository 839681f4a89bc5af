// Between the surfaces of the video engines and the frames of the pipeline.
//
// A surface holds luma (H rows), then interleaved chroma (ceil(H/2) rows), all rows `pitch` bytes
// apart. NVDEC's ten-bit surfaces (P016) hold the sample in the high bits, as P010 does, so samples
// are moved, never changed. The counterparts on the CPU are bgsoft/decode/convert.py
// (take_surface), and bgsoft/encode/pictures.py (matte_luma).

#include "drivers.cuh"

// Where the sample at (x, y) of an upright plane lies in the stored one of width w and height h.
// The stored picture is mirrored first, then turned clockwise by `quarters` right angles.
OP void stored_position(
    int x, int y, int w, int h, int quarters, int mirror, int* sx, int* sy)
{
    int px = x, py = y;
    if (quarters == 1) {
        px = y;
        py = h - 1 - x;
    } else if (quarters == 2) {
        px = w - 1 - x;
        py = h - 1 - y;
    } else if (quarters == 3) {
        px = w - 1 - y;
        py = x;
    }
    *sx = mirror ? w - 1 - px : px;
    *sy = py;
}

// One thread per chroma sample of the upright frame: it moves that sample and up to four of luma.
//
// surface: stored picture, `pitch` bytes per row, stored_w x stored_h luma samples.
// luma, chroma: the upright frame's planes, contiguous. A rotation by one or three quarters swaps
// the sides. Exact.
DEVICE_KERNEL(take_surface)(
    const u8* __restrict__ surface, int pitch, int stored_w, int stored_h, int quarters, int mirror,
    sample_t* __restrict__ luma, sample_t* __restrict__ chroma)
{
    const int turned = quarters & 1;
    const int width = turned ? stored_h : stored_w;
    const int height = turned ? stored_w : stored_h;
    const int chroma_w = (width + 1) / 2, chroma_h = (height + 1) / 2;
    const u8* chroma_rows = surface + (size_t)pitch * stored_h;
    for_samples(chroma_h, chroma_w, [=](int cy, int cx) {
        int sx, sy;
        stored_position(cx, cy, (stored_w + 1) / 2, (stored_h + 1) / 2, quarters, mirror, &sx, &sy);
        const sample_t* pair = (const sample_t*)(chroma_rows + (size_t)pitch * sy) + 2 * sx;
        sample_t* target = chroma + 2 * ((size_t)cy * chroma_w + cx);
        target[0] = pair[0];
        target[1] = pair[1];
        for (int y = 2 * cy; y < min(2 * cy + 2, height); ++y)
            for (int x = 2 * cx; x < min(2 * cx + 2, width); ++x) {
                stored_position(x, y, stored_w, stored_h, quarters, mirror, &sx, &sy);
                luma[(size_t)y * width + x] = ((const sample_t*)(surface + (size_t)pitch * sy))[sx];
            }
    });
}

// The matte as a grey picture of eight bits: black + alpha (white - black) / 255, to nearest.
// There are no ties, as 255 is odd.
DEVICE_KERNEL(matte_luma)(
    const u8* __restrict__ alpha, u8* __restrict__ luma, int count, int black, int white)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        luma[i] = (u8)(black + (2 * alpha[i] * (white - black) + 255) / 510);
}
