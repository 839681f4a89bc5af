"""Operations on pictures by name, on the host or on a CUDA device: the same calls on either side.

A class that gives order and state to operations takes a :class:`Side`, makes its arrays with
:attr:`Side.xp` and launches with what :meth:`Side.operation` returns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from bgsoft.frame import Array
from bgsoft.ops.loader import BLOCK, kernel

Operation = Callable[..., None]
"""Called with (rows, columns) or (rows, columns, planes) of the runs of samples that do not depend
on each other, then the kernel's arguments: C-contiguous arrays of the side, None for a null
pointer, int and float; what is passed by value is an array of the host, of one element."""
Block = tuple[int, int, int]


class Side:
    """Where arrays are and operations run: the host, or the current CUDA device."""

    def __init__(self, xp: Any) -> None:
        self.xp = xp
        """NumPy or CuPy."""
        self.on_device: bool = xp is not np

    def operation(
        self,
        file: str,
        name: str,
        *,
        sample_bits: int = 8,
        block: Block = BLOCK,
        shared_bytes: int = 0,
    ) -> Operation:
        """A kernel of a ``.cu`` file of this package.

        Args:
            file: The file's stem.
            name: The kernel.
            sample_bits: 8 for NV12 frames, 16 for P010.
            block: Threads of a device that work together.
            shared_bytes: What each block of them shares.

        Raises:
            BackendUnavailableError: The host's library does not load.
        """
        from bgsoft.ops.native import device_operation, host_operation

        if not self.on_device:
            return host_operation(f"{name}_{sample_bits}")
        return device_operation(kernel(file, name, sample_bits=sample_bits), block, shared_bytes)

    def array(self, values: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> Array:
        """A copy of values on this side, C-contiguous."""
        return self.xp.asarray(np.array(values, dtype, order="C"))

    def scratch(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> Array | None:
        """What the host's rows of a kernel work in, zero at first; None on a device."""
        return None if self.on_device else np.zeros(shape, dtype)

    def copy(self, source: Array, target: Array) -> None:
        """Copy a C-contiguous array into another of its shape and dtype."""
        if self.on_device:
            stream = self.xp.cuda.get_current_stream()
            target.data.copy_from_device_async(source.data, source.nbytes, stream)
        else:
            target[...] = source


def address(array: Array) -> int:
    """Of an array's samples, on its side."""
    if isinstance(array, np.ndarray):
        return int(array.__array_interface__["data"][0])  # by no calls of Python's
    return int(array.data.ptr)


HOST = Side(np)


@cache
def device() -> Side:
    """The current CUDA device."""
    import cupy

    return Side(cupy)
