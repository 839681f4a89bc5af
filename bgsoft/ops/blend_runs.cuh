// Runs of samples, as blending reads and writes them: COLUMNS × 2 luma samples and their chroma pairs.
//
// On a device those of whole runs are read and written at once.
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
// What is read and written at once.
template <class T>
struct alignas(COLUMNS * sizeof(T)) Packed {
    T values[COLUMNS];
};
#endif

// Whether all runs of a plane of frames of a width are whole ones, and aligned.
OP bool is_whole(const void *plane, int width)
{
    return ON_DEVICE && width % COLUMNS == 0 && (size_t)plane % 16 == 0;
}

// Samples of a row, of which `count` exist; the values of others are left as they are.
template <class T>
OP void read_run(const T *row, int count, bool whole, lane_t values[COLUMNS])
{
#if ON_DEVICE
    if (whole) {
        const Packed<T> packed = *reinterpret_cast<const Packed<T> *>(row);
        UNROLL
        for (int index = 0; index < COLUMNS; ++index)
            values[index] = packed.values[index];
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
        Packed<sample_t> packed;
        UNROLL
        for (int index = 0; index < COLUMNS; ++index)
            packed.values[index] = (sample_t)values[index];
        *reinterpret_cast<Packed<sample_t> *>(row) = packed;
        return;
    }
#endif
    UNROLL
    for (int index = 0; index < COLUMNS; ++index)
        if (index < count)
            row[index] = (sample_t)values[index];
}
