// Types, qualifiers and arithmetic that every operation starts from, for a device and for the host.
//
// NVRTC compiles for a device; any C++17 compiler for the host, where a kernel is a plain function
// and drivers.cuh walks the picture. SAMPLE_BITS: see bgsoft/ops/__init__.py.
#pragma once

#ifndef SAMPLE_BITS
#define SAMPLE_BITS 8
#endif

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#if SAMPLE_BITS == 8
typedef u8 sample_t;
#else
typedef u16 sample_t;
#endif

#ifdef __CUDACC_RTC__
#define ON_DEVICE 1
#define OP __device__ __forceinline__
#define OUTLINED OP
#define INLINED
#define KERNEL(name) extern "C" __global__ void name
#define DEVICE_KERNEL(name) KERNEL(name)  // the host has none
#define BLOCK_KERNEL(name) extern "C" __global__ void __launch_bounds__(1024) name  // of one block
#define BY_VALUE(type) const __grid_constant__ type  // of an argument; by its address on the host
#else
#define ON_DEVICE 0
#define OP inline __attribute__((always_inline))
#define OUTLINED inline __attribute__((noinline))  // compiled once, for work that outweighs a call
#define INLINED __attribute__((always_inline))  // of a lambda
#define WITH_BITS_(name, bits) name##_##bits
#define WITH_BITS(name, bits) WITH_BITS_(name, bits)
#define KERNEL(name) static void WITH_BITS(name, SAMPLE_BITS)  // see calls.hpp
#define BLOCK_KERNEL(name) KERNEL(name)
#define BY_VALUE(type) const type&
#define rintf __builtin_rintf
#define floor __builtin_floor
#define floorf __builtin_floorf
#define fminf __builtin_fminf
#define fmaxf __builtin_fmaxf
#define fabsf __builtin_fabsf
#define sqrtf __builtin_sqrtf
#define exp __builtin_exp

typedef __SIZE_TYPE__ size_t;

struct float4 {
    float x, y, z, w;
};

OP float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}

template <class T>
OP T min(T a, T b)
{
    return a < b ? a : b;
}

template <class T>
OP T max(T a, T b)
{
    return a > b ? a : b;
}
#endif

OP int clamp_int(int value, int low, int high)
{
    return value < low ? low : (value > high ? high : value);
}

// To the nearest whole number, halves to even.
OP int nearest(float value)
{
    return (int)rintf(value);
}

// To whole code values, halves to even.
OP sample_t to_sample(float value)
{
#if SAMPLE_BITS == 8
    return (sample_t)clamp_int(nearest(value), 0, 255);
#else
    return (sample_t)(clamp_int(nearest(value / 64.0f), 0, 1023) << 6);
#endif
}
