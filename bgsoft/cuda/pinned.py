"""Host memory that the device copies from and to by itself."""

from __future__ import annotations

import math
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt

__all__ = ["pinned_array"]


def pinned_array(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """A page-locked array, not initialised; freed with the last view of it."""
    dtype = np.dtype(dtype)
    count = math.prod(shape)
    memory = cupy.cuda.alloc_pinned_memory(count * dtype.itemsize)  # may be larger than asked for
    return np.frombuffer(memory, dtype, count).reshape(shape)
