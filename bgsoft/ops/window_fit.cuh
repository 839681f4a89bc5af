// Alpha in a window as a function of luma, Cb and Cr: its sums, and the fit.
//
// Window sums are whole numbers, of samples less 128, so that next to nothing is lost to cancellation
// (nothing up to a radius of 2 at a spacing of 1); the rest is float32.
#pragma once

#include "matte.cuh"

// Sums over a window: alpha, luma, Cb, Cr; alpha by these three; their products by the upper
// triangle, row by row.
#define MOMENTS 13

OP void add_moments(u32 cell, int sums[MOMENTS])
{
    const int a = (int)(cell & 0xFF) - 128, y = (int)(cell >> 8 & 0xFF) - 128;
    const int cb = (int)(cell >> 16 & 0xFF) - 128, cr = (int)(cell >> 24) - 128;
    sums[0] += a;
    sums[1] += y;
    sums[2] += cb;
    sums[3] += cr;
    sums[4] += a * y;
    sums[5] += a * cb;
    sums[6] += a * cr;
    sums[7] += y * y;
    sums[8] += y * cb;
    sums[9] += y * cr;
    sums[10] += cb * cb;
    sums[11] += cb * cr;
    sums[12] += cr * cr;
}

// Moments of a cell; what the edges cut off is repeated. upper, lower: rows of `packed`.
template <int SPACING>
OP void add_cell(const u32 *upper, const u32 *lower, int x, bool has_right, int sums[MOMENTS])
{
    if (SPACING == 1) {
        add_moments(upper[x], sums);
        return;
    }
    const int right = has_right ? 2 * x + 1 : 2 * x;
    add_moments(upper[2 * x], sums);
    add_moments(upper[right], sums);
    add_moments(lower[2 * x], sums);
    add_moments(lower[right], sums);
}

// Of two quantities, from their sums over `count` samples and that of their products, scaled to 0-1.
OP float covariance(float count, int products, int first, int second, float unit)
{
    return (count * (float)products - (float)first * (float)second) * unit;
}

// The function of least squares of a window: factors of luma (x), Cb (y) and Cr (z), constant (w).
// The symmetric 3 x 3 system is solved by L*D*L^T factorisation, forward and back substitution.
OP float4 fit_window(const int m[MOMENTS], int samples, float epsilon)
{
    const float n = (float)samples, unit = 1.0f / (n * n * 65025.0f);
    float d0 = covariance(n, m[7], m[1], m[1], unit) + epsilon;
    float c01 = covariance(n, m[8], m[1], m[2], unit);
    float c02 = covariance(n, m[9], m[1], m[3], unit);
    float d1 = covariance(n, m[10], m[2], m[2], unit) + epsilon;
    float c12 = covariance(n, m[11], m[2], m[3], unit);
    float d2 = covariance(n, m[12], m[3], m[3], unit) + epsilon;
    float y0 = covariance(n, m[4], m[0], m[1], unit);
    float y1 = covariance(n, m[5], m[0], m[2], unit);
    float y2 = covariance(n, m[6], m[0], m[3], unit);
    const float l10 = c01 / d0, l20 = c02 / d0;
    d1 -= l10 * c01;
    c12 -= l10 * c02;
    const float l21 = c12 / d1;
    d2 -= l20 * c02;
    d2 -= l21 * c12;
    y1 -= l10 * y0;
    y2 -= l20 * y0;
    y2 -= l21 * y1;
    y2 /= d2;
    y1 = y1 / d1 - l21 * y2;
    y0 = y0 / d0 - l10 * y1 - l20 * y2;
    const float mean = 1.0f / (n * 255.0f);
    const int middle = 128 * samples;
    float rest = (float)(m[0] + middle) * mean;
    rest -= y0 * ((float)(m[1] + middle) * mean);
    rest -= y1 * ((float)(m[2] + middle) * mean);
    rest -= y2 * ((float)(m[3] + middle) * mean);
    return make_float4(y0, y1, y2, rest);
}
