// What a cut-out's colour planes hold where nothing is opaque.
//
// Counterpart on the CPU: bgsoft/composite/plate.py (CutoutBackground). Rounds to code values,
// halves to even.
#include "background.cuh"

// The matte of the room: (rows, columns), 255 minus the people's.
extern "C" __global__ void cutout_room(const u8 *matte, u8 *room, int rows, int columns)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (y < rows && x < columns)
        room[y * columns + x] = 255 - matte[y * columns + x];
}

// One sample of the fill, counted against black by weight, 0-255.
OP sample_t faded(u32 fill, u32 black, u32 weight)
{
    const u32 value = (fill * weight + 127) / 255 + (black * (255 - weight) + 127) / 255;
#if SAMPLE_BITS == 8
    return (sample_t)min((u32)rintf((float)value / 256.0f), 255u);
#else
    return (sample_t)((min(value, 65503u) + 32) & 0xFFC0);
#endif
}

// The fill, fading to black away from chroma samples with any alpha: what is seen.
//
// alpha: (height, width). cells: (3, rows, columns) 16-bit full scale, of `factor` chroma samples
// each way. What is seen is widened by `reach` samples, then averaged over as many to each side.
// luma, chroma: planes of the frame's size. black, neutral: full scale. One thread a chroma sample.
// Shared memory: a byte for each chroma sample of the block and 2 * reach around it, then one for
// each of the block and reach around it.
extern "C" __global__ void cutout_fade(
    const u8 *alpha, const u16 *cells, int height, int width, int rows, int columns, int factor,
    int reach, u32 black, u32 neutral, sample_t *luma, sample_t *chroma)
{
    extern __shared__ u8 seen[];
    const int half_rows = (height + 1) / 2, half_columns = (width + 1) / 2;
    const int side = 2 * reach + 1;
    const int seen_rows = blockDim.y + 4 * reach, seen_columns = blockDim.x + 4 * reach;
    const int wide_rows = blockDim.y + 2 * reach, wide_columns = blockDim.x + 2 * reach;
    u8 *wide = seen + seen_rows * seen_columns;
    const int top = blockIdx.y * blockDim.y, left = blockIdx.x * blockDim.x;
    const int thread = threadIdx.y * blockDim.x + threadIdx.x, threads = blockDim.x * blockDim.y;
    int any = 0;
    for (int cell = thread; cell < seen_rows * seen_columns; cell += threads) {
        const int row = top - 2 * reach + cell / seen_columns;
        const int column = left - 2 * reach + cell % seen_columns;
        u32 largest = 0;
        if (row >= 0 && row < half_rows && column >= 0 && column < half_columns)
            for (int y = 2 * row; y < min(2 * row + 2, height); ++y)
                for (int x = 2 * column; x < min(2 * column + 2, width); ++x)
                    largest = max(largest, (u32)alpha[(size_t)y * width + x]);
        seen[cell] = largest > 0;
        any |= largest > 0;
    }
    any = __syncthreads_or(any);
    if (any)
        for (int cell = thread; cell < wide_rows * wide_columns; cell += threads) {
            // Beyond the frame its edge goes on.
            const int y = clamp_int(top - reach + cell / wide_columns, 0, half_rows - 1);
            const int x = clamp_int(left - reach + cell % wide_columns, 0, half_columns - 1);
            const u8 *corner = seen + (y - top + reach) * seen_columns + x - left + reach;
            u8 largest = 0;
            for (int dy = 0; dy < side; ++dy)
                for (int dx = 0; dx < side; ++dx)
                    largest |= corner[dy * seen_columns + dx];
            wide[cell] = largest;
        }
    __syncthreads();
    const int x = left + threadIdx.x, y = top + threadIdx.y;
    if (y >= half_rows || x >= half_columns)
        return;
    u32 count = 0;
    if (any)
        for (int dy = 0; dy < side; ++dy)
            for (int dx = 0; dx < side; ++dx)
                count += wide[(threadIdx.y + dy) * wide_columns + threadIdx.x + dx];
    const u32 area = side * side;  // odd, so that there are no halves to be rounded
    const u32 weight = (255 * count + area / 2) / area;
    u32 fill[3] = {0, 0, 0};
    if (weight > 0)
        for (int plane = 0; plane < 3; ++plane)
            fill[plane] = enlarged(
                cells + plane * rows * columns, rows, columns, 1.0f / (float)factor, y, x);
    const sample_t light = faded(fill[0], black, weight);
    for (int row = 2 * y; row < min(2 * y + 2, height); ++row)
        for (int column = 2 * x; column < min(2 * x + 2, width); ++column)
            luma[(size_t)row * width + column] = light;
    sample_t *pair = chroma + 2 * ((size_t)y * half_columns + x);
    pair[0] = faded(fill[1], neutral, weight);
    pair[1] = faded(fill[2], neutral, weight);
}
