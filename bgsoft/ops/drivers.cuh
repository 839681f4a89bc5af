// How an operation gets over a picture: a thread a run of samples on a device, rows on the host.
#pragma once

#include "samples.cuh"

// Before a loop whose rounds don't depend on each other, which the host's compiler cannot see: lines
// of a buffer that lie a pitch apart, strides of two. The loop's body has no arrays of its own but such
// as are indexed by constants once inner loops are unrolled: rounds would share them.
#if ON_DEVICE
#define INDEPENDENT
#define UNROLLED _Pragma("unroll")
#define SHARED __shared__
#define TOGETHER(threads) threads
#else
#define SHARED
#define TOGETHER(threads) 1
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#define UNROLLED _Pragma("clang loop unroll(full)")
#endif

// Calls body(y, x, count) for runs of `rows` x `columns` samples: y and x are those of the run's
// first, count is how many of its columns exist.
//
// On a device the launch covers the picture, a thread a run; runs that begin outside are left out.
template <bool APART = true, class Body>
OP void for_runs(int height, int width, int rows, int columns, const Body &body)
{
#if ON_DEVICE
    const int x = columns * (int)(blockIdx.x * blockDim.x + threadIdx.x);
    const int y = rows * (int)(blockIdx.y * blockDim.y + threadIdx.y);
    if (x < width && y < height)
        body(y, x, min(columns, width - x));
#else
    // Whole runs by a constant, so that their loops are vectorised. Without APART the body sees to that.
    const int whole = APART ? width / columns * columns : 0;
    for (int y = 0; y < height; y += rows) {
        for (int x = 0; x < whole; x += columns)
            body(y, x, columns);
        if (APART && whole < width)
            body(y, whole, width - whole);
        for (int x = 0; !APART && x < width; x += columns)
            body(y, x, min(columns, width - x));
    }
#endif
}

template <class Body>
OP void for_samples(int height, int width, const Body &body)
{
    for_runs(height, width, 1, 1, [&](int y, int x, int) INLINED { body(y, x); });
}

// Calls body(plane) for each of some planes, launched as the picture's depth.
template <class Body>
OP void for_planes(int count, const Body &body)
{
#if ON_DEVICE
    body((int)blockIdx.z);
#else
    for (int plane = 0; plane < count; plane++)
        body(plane);
#endif
}

// Like for_samples() for independent rounds, which the host's compiler may reorder.
template <class Body>
OP void for_apart(int height, int width, const Body &body)
{
#if ON_DEVICE
    for_samples(height, width, body);
#else
    for (int y = 0; y < height; y++) {
        INDEPENDENT
        for (int x = 0; x < width; x++)
            body(y, x);
    }
#endif
}

// The same of a small picture, by one block of threads, which all go on once it is done.
template <class Body>
OP void for_samples_together(int height, int width, const Body &body)
{
#if ON_DEVICE
    for (int at = threadIdx.x; at < height * width; at += blockDim.x)
        body(at / width, at % width);
    __syncthreads();
#else
    for_samples(height, width, body);
#endif
}

// Calls body(item, thread) for each of some items, small ones, that a block of threads works on together;
// on the host one thread does. TOGETHER and SHARED: their number, and what they share.
template <class Body>
OP void for_blocks(int items, const Body &body)
{
#if ON_DEVICE
    body((int)blockIdx.x, (int)threadIdx.x);
#else
    for (int item = 0; item < items; item++)
        body(item, 0);
#endif
}

// Sum over the threads of a block, all of which call this; total: SHARED, for this sum alone.
template <class T>
OP T sum_together(T own, T *total)
{
#if ON_DEVICE
    if (threadIdx.x == 0)
        *total = 0;
    __syncthreads();
    if (own)
        atomicAdd(total, own);
    __syncthreads();
    return *total;
#else
    return own;
#endif
}
