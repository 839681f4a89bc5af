// Sample type of the frames that a file is compiled for; see bgsoft/kernels/__init__.py.
#pragma once

#ifndef SAMPLE_BITS
#define SAMPLE_BITS 8
#endif

#if SAMPLE_BITS == 8
typedef unsigned char sample_t;
#else
typedef unsigned short sample_t;
#endif

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;

__device__ __forceinline__ int clamp_int(int value, int low, int high)
{
    return value < low ? low : (value > high ? high : value);
}
