"""Operations on pictures by name, with the same calls on the host and on a CUDA device.

A class with the order and state of operations takes a :class:`Placement`. It allocates arrays with
:attr:`Placement.xp`, and launches what :meth:`Placement.operation` returns.
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
"""Function of (rows, columns) or (rows, columns, planes) of independent runs of samples, then the
kernel's arguments: C-contiguous arrays of the device or host, None for a null pointer, int and
float. A struct is passed by value as a host array of one element."""
Block = tuple[int, int, int]


class Placement:
    """Place of arrays and operations: the host, or the current CUDA device."""

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
        """Return a kernel of a ``.cu`` file of this package.

        Args:
            file: The file's stem.
            name: The kernel.
            sample_bits: 8 for NV12 frames, 16 for P010.
            block: Threads of a device in a block.
            shared_bytes: Shared memory of each block.

        Raises:
            BackendUnavailableError: The host's library cannot be loaded.
        """
        from bgsoft.ops.native import device_operation, host_operation

        if not self.on_device:
            return host_operation(f"{name}_{sample_bits}")
        return device_operation(kernel(file, name, sample_bits=sample_bits), block, shared_bytes)

    def array(self, values: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> Array:
        """Copy values to a C-contiguous array on this device or host."""
        return self.xp.asarray(np.array(values, dtype, order="C"))

    def scratch(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> Array | None:
        """Return a zeroed work array for the host's rows; None on a device."""
        return None if self.on_device else np.zeros(shape, dtype)

    def copy(self, source: Array, target: Array) -> None:
        """Copy a C-contiguous array into another of its shape and dtype."""
        if self.on_device:
            stream = self.xp.cuda.get_current_stream()
            target.data.copy_from_device_async(source.data, source.nbytes, stream)
        else:
            target[...] = source


def address(array: Array) -> int:
    """Return the address of an array's samples, on its device or host."""
    if isinstance(array, np.ndarray):
        return int(array.__array_interface__["data"][0])  # without calls of Python functions
    return int(array.data.ptr)


HOST = Placement(np)


@cache
def current_device() -> Placement:
    """Return the current CUDA device."""
    import cupy

    return Placement(cupy)
