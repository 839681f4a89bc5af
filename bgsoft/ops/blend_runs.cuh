// Runs of samples, as blending reads and writes them: COLUMNS × 2 luma samples and their chroma pairs.
//
// On a device `whole` says that the width is a multiple of COLUMNS and that planes are aligned to 16
// bytes, so that samples are read and written at once.
#pragma once

#include "drivers.cuh"

#if ON_DEVICE
#define COLUMNS 8
#else
#define COLUMNS 128
#endif
#define PAIRS (COLUMNS / 2)

// A sample, or a product of two at 8 bit: the narrower, the more of them the host does at once.
#if ON_DEVICE || SAMPLE_BITS != 8
typedef u32 lane_t;
#else
typedef u16 lane_t;
#endif

#if ON_DEVICE
OP void unpack(uint2 packed, lane_t values[COLUMNS])
{
    UNROLL
    for (int index = 0; index < 4; ++index) {
        values[index] = (packed.x >> (8 * index)) & 0xFF;
        values[4 + index] = (packed.y >> (8 * index)) & 0xFF;
    }
}

OP void unpack(uint4 packed, lane_t values[COLUMNS])
{
    const u32 words[4] = {packed.x, packed.y, packed.z, packed.w};
    UNROLL
    for (int index = 0; index < 4; ++index) {
        values[2 * index] = words[index] & 0xFFFF;
        values[2 * index + 1] = words[index] >> 16;
    }
}

OP void pack(const lane_t values[COLUMNS], uint2 *packed)
{
    uint2 result;
    result.x = values[0] | values[1] << 8 | values[2] << 16 | values[3] << 24;
    result.y = values[4] | values[5] << 8 | values[6] << 16 | values[7] << 24;
    *packed = result;
}

OP void pack(const lane_t values[COLUMNS], uint4 *packed)
{
    uint4 result;
    result.x = values[0] | values[1] << 16;
    result.y = values[2] | values[3] << 16;
    result.z = values[4] | values[5] << 16;
    result.w = values[6] | values[7] << 16;
    *packed = result;
}

// Eight values of T in a register.
template <class T>
struct Packed {
    typedef uint2 type;
};

template <>
struct Packed<u16> {
    typedef uint4 type;
};
#endif

// Samples of a row, of which `count` exist; the values of others are left as they are.
template <class T>
OP void read_run(const T *row, int count, bool whole, lane_t values[COLUMNS])
{
#if ON_DEVICE
    if (whole) {
        unpack(*reinterpret_cast<const typename Packed<T>::type *>(row), values);
        return;
    }
#endif
    UNROLL
    for (int index = 0; index < COLUMNS; ++index)
        if (index < count)
            values[index] = row[index];
}

OP void write_run(sample_t *row, int count, bool whole, const lane_t values[COLUMNS])
{
#if ON_DEVICE
    if (whole) {
        pack(values, reinterpret_cast<Packed<sample_t>::type *>(row));
        return;
    }
#endif
    UNROLL
    for (int index = 0; index < COLUMNS; ++index)
        if (index < count)
            row[index] = (sample_t)values[index];
}
