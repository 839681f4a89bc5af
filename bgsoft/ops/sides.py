"""Operations on pictures by name, on the host or on a CUDA device: the same calls on either side.

A class that gives order and state to operations takes a :class:`Side`, makes its arrays with
:attr:`Side.xp` and launches with what :meth:`Side.operation` returns.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_char, c_float, c_int, c_void_p
from functools import cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bgsoft.frame import Array

Operation = Callable[..., None]
"""Called with (rows, columns) or (rows, columns, planes) of the runs of samples that do not depend
on each other, then the kernel's arguments: C-contiguous arrays of the side, None for a null
pointer, int and float. For a device, ``block`` names another shape of thread blocks, and
``shared_bytes`` the shared memory that each is given."""


class Side(Protocol):
    """Where arrays are and operations run."""

    on_device: bool
    xp: Any
    """NumPy or CuPy."""

    def operation(self, file: str, name: str, *, sample_bits: int = 8) -> Operation:
        """A kernel of a ``.cu`` file of this package.

        Args:
            file: The file's stem.
            name: The kernel.
            sample_bits: 8 for NV12 frames, 16 for P010.

        Raises:
            BackendUnavailableError: The host's library does not load.
        """
        ...

    def array(self, values: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> Array:
        """A copy of values on this side, C-contiguous."""
        ...

    def scratch(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> Array | None:
        """What the host's rows of a kernel work in, zero at first; None on a device."""
        ...

    def copy(self, source: Array, target: Array) -> None:
        """Copy a C-contiguous array into another of its shape and dtype."""
        ...


_samples_of: Callable[[Any], Any] = (c_char * 0).from_buffer
"""What lies at an array's address; of no length, as arrays may be empty."""


def _c_type(argument: Any) -> Any:
    if isinstance(argument, float):
        return c_float
    return c_int if isinstance(argument, int) else c_void_p


class _Host:
    on_device = False
    xp: Any = np

    def operation(self, file: str, name: str, *, sample_bits: int = 8) -> Operation:
        from bgsoft.ops.native import library

        function = getattr(library(), f"{name}_{sample_bits}")
        function.restype = None

        def launch(
            size: tuple[int, ...],
            *arguments: Any,
            block: tuple[int, int, int] = (1, 1, 1),
            shared_bytes: int = 0,
        ) -> None:
            if function.argtypes is None:
                function.argtypes = [_c_type(each) for each in arguments]
            # For some hundred arrays a frame: NumPy's own ways to an address take four times as
            # long, and don't refuse what is not C-contiguous.
            function(
                *[_samples_of(each) if type(each) is np.ndarray else each for each in arguments]
            )

        return launch

    def array(self, values: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> Array:
        return np.array(values, dtype, order="C")

    def scratch(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> Array | None:
        return np.zeros(shape, dtype)

    def copy(self, source: Array, target: Array) -> None:
        np.copyto(target, source)


class _Device:
    on_device = True

    def __init__(self) -> None:
        import cupy

        self.xp: Any = cupy

    def operation(self, file: str, name: str, *, sample_bits: int = 8) -> Operation:
        from bgsoft.ops.loader import BLOCK, kernel

        run = kernel(file, name, sample_bits=sample_bits)

        def launch(
            size: tuple[int, ...],
            *arguments: Any,
            block: tuple[int, int, int] = BLOCK,
            shared_bytes: int = 0,
        ) -> None:
            rows, columns, *planes = size
            blocks = -(-columns // block[0]), -(-rows // block[1]), *(planes or (1,))
            run(blocks, block, tuple(map(_device_argument, arguments)), shared_mem=shared_bytes)

        return launch

    def array(self, values: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> Array:
        return self.xp.asarray(np.array(values, dtype, order="C"))

    def scratch(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> Array | None:
        return None

    def copy(self, source: Array, target: Array) -> None:
        stream = self.xp.cuda.get_current_stream()
        target.data.copy_from_device_async(source.data, source.nbytes, stream)


def _device_argument(value: Any) -> Any:
    if value is None:
        return np.uint64(0)
    if isinstance(value, int):
        return np.int32(value)
    return np.float32(value) if isinstance(value, float) else value


def address(array: Array) -> int:
    """Of an array's samples, on its side."""
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)


HOST: Side = _Host()


@cache
def device() -> Side:
    """The current CUDA device."""
    return _Device()
