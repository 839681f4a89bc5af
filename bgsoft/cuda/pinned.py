"""Host memory that the device copies from and to by itself."""

from __future__ import annotations

import math
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt

from bgsoft.cuda.device import PLANE_ALIGNMENT
from bgsoft.frame import FrameFormat, Planes

__all__ = ["pinned_array", "pinned_planes"]


def pinned_array(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """A page-locked array, not initialised; freed with the last view of it."""
    dtype = np.dtype(dtype)
    count = math.prod(shape)
    memory = cupy.cuda.alloc_pinned_memory(count * dtype.itemsize)  # may be larger than asked for
    return np.frombuffer(memory, dtype, count).reshape(shape)


def pinned_planes(format: FrameFormat, slot: int) -> Planes:
    """The buffers of one ring slot in page-locked host memory, laid out as the device's are.

    See :func:`bgsoft.cuda.device.device_planes`.
    """
    dtype = np.dtype(format.dtype)
    luma_bytes = math.prod(format.luma_shape) * dtype.itemsize
    chroma_bytes = math.prod(format.chroma_shape) * dtype.itemsize
    chroma_at = -(-luma_bytes // PLANE_ALIGNMENT) * PLANE_ALIGNMENT
    buffer = pinned_array((chroma_at + chroma_bytes,), np.uint8)
    alpha = pinned_array(format.luma_shape, np.uint8)
    alpha.fill(0)
    return Planes(
        slot=slot,
        luma=buffer[:luma_bytes].view(dtype).reshape(format.luma_shape),
        chroma=buffer[chroma_at:].view(dtype).reshape(format.chroma_shape),
        alpha=alpha,
    )
