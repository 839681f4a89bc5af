"""Differences of two planes: mean squared error, PSNR and SSIM, whole or inside a region.

The definitions are those of FFmpeg's ``psnr`` and ``ssim`` filters, so figures are comparable to
published ones. They are computed here because that allows regions, and needs no ffmpeg.
"""

from __future__ import annotations

import math
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Plane = NDArray[Any]
Region = NDArray[np.bool_]

_BLOCK = 4
"""Samples each way of a block; a window is 2 × 2 blocks, and windows overlap by one block."""
_WINDOW_SAMPLES = 64


def mean_squared_error(a: Plane, b: Plane, region: Region | None = None) -> float | None:
    """Return the mean of the squared sample differences.

    Args:
        a: (H, W) uint8 or uint16, code values.
        b: The same shape and dtype.
        region: (H, W); only samples where it is True are used. None: all.

    Returns:
        Squared code values; None where the region is empty.
    """
    difference = cv2.absdiff(a, b)
    if region is not None:
        difference = difference[region]
        if not difference.size:
            return None
    samples = difference.ravel()
    return float(np.einsum("i,i->", samples, samples, dtype=np.float64) / samples.size)


def psnr(error: float, bit_depth: int) -> float:
    """Return the PSNR in dB from squared code values; infinite for equal planes."""
    peak = (1 << bit_depth) - 1
    return 10 * math.log10(peak * peak / error) if error > 0 else math.inf


def structural_similarity(
    a: Plane, b: Plane, bit_depth: int, region: Region | None = None
) -> float | None:
    """Return SSIM over 8 × 8 windows, four samples apart.

    The method is that of Wang et al., «Image quality assessment: from error visibility to
    structural similarity», 2004. The flat windows and the integer constants are those of FFmpeg's
    ``ssim`` filter (libavfilter, vf_ssim.c): c1 = (0.01 peak)² · 64, c2 = (0.03 peak)² · 64 · 63,
    for sums instead of means.

    Args:
        a: (H, W) uint8 or uint16, code values of ``bit_depth`` bits.
        b: The same shape and dtype.
        bit_depth: 8 or 10.
        region: (H, W); only windows that lie entirely where it is True are used. None: all.

    Returns:
        SSIM, at most 1; None where no window fits.
    """
    rows, columns = a.shape[0] // _BLOCK, a.shape[1] // _BLOCK
    if rows < 2 or columns < 2:
        return None
    first = a[: rows * _BLOCK, : columns * _BLOCK].astype(np.float32)
    second = b[: rows * _BLOCK, : columns * _BLOCK].astype(np.float32)
    sum_a, sum_b = _window_sums(first), _window_sums(second)
    squares = _window_sums(first * first) + _window_sums(second * second)
    products = _window_sums(first * second)

    peak = (1 << bit_depth) - 1
    c1 = math.floor(0.01 * 0.01 * peak * peak * _WINDOW_SAMPLES + 0.5)
    c2 = math.floor(0.03 * 0.03 * peak * peak * _WINDOW_SAMPLES * (_WINDOW_SAMPLES - 1) + 0.5)
    variances = squares * _WINDOW_SAMPLES - sum_a * sum_a - sum_b * sum_b
    covariance = products * _WINDOW_SAMPLES - sum_a * sum_b
    values = (2 * sum_a * sum_b + c1) * (2 * covariance + c2)
    values /= (sum_a * sum_a + sum_b * sum_b + c1) * (variances + c2)
    if region is None:
        return float(values.mean())
    inside = region[: rows * _BLOCK, : columns * _BLOCK].astype(np.float32)
    whole = _window_sums(inside) == _WINDOW_SAMPLES
    return float(values[whole].mean()) if whole.any() else None


def _window_sums(samples: NDArray[np.float32]) -> NDArray[np.float64]:
    """Sums over 8 × 8 windows; exact: 16 products of 10-bit values fit float32's 24 bits."""
    height, width = samples.shape
    size = (width // _BLOCK, height // _BLOCK)
    means = cv2.resize(samples, size, interpolation=cv2.INTER_AREA)
    blocks = means.reshape(size[1], size[0]).astype(np.float64) * (_BLOCK * _BLOCK)
    sums: NDArray[np.float64] = (
        blocks[:-1, :-1] + blocks[:-1, 1:] + blocks[1:, :-1] + blocks[1:, 1:]
    )
    return sums
