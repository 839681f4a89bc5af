"""A CUDA device, initialised once for a render.

CuPy uses the device's primary context; PyNvVideoCodec and ONNX Runtime use the same one.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt

from bgsoft.cuda.driver import shown_number
from bgsoft.errors import BackendUnavailableError, errors_as
from bgsoft.frame import Array, FrameFormat, Planes

PLANE_ALIGNMENT = 256
"""Alignment of each plane in bytes, enough for any vector load."""
_POOL_SHARE = 0.5
"""Limit of CuPy's pool, as a share of the memory that is free at the start."""

cuda_errors_as = partial(errors_as, (cupy.cuda.runtime.CUDARuntimeError,))


class CopyMeter:
    """Counts bytes of frame data that cross PCIe; usable from any thread."""

    def __init__(self) -> None:
        self.h2d_bytes = self.d2h_bytes = 0
        self._lock = threading.Lock()

    def add_h2d(self, size: int) -> None:
        with self._lock:
            self.h2d_bytes += size

    def add_d2h(self, size: int) -> None:
        with self._lock:
            self.d2h_bytes += size


class CudaDevice:
    """A CUDA device by its number, with the resources that all GPU stages of a render share.

    Raises:
        BackendUnavailableError: There is no such device, or it cannot be initialised.
    """

    def __init__(self, number: int = 0) -> None:
        failed = f"cannot initialise CUDA device {shown_number(number)}"
        with cuda_errors_as(BackendUnavailableError, failed):
            count = cupy.cuda.runtime.getDeviceCount()
            if number >= count:
                raise BackendUnavailableError(
                    f"cannot use --gpu {number}: this machine has {count} GPUs"
                )
            self._device = cupy.cuda.Device(number)
            self._device.use()
            properties = cupy.cuda.runtime.getDeviceProperties(number)
            cupy.cuda.runtime.free(0)  # creates the primary context
        self.number = number
        self.name = properties["name"].decode()
        self.context = int(cupy.cuda.driver.ctxGetCurrent())
        """Handle of the primary context."""
        # The rest is for codecs, ONNX Runtime and other programs.
        pool = cupy.get_default_memory_pool()
        pool.set_limit(size=pool.total_bytes() + int(_POOL_SHARE * self.free_bytes()))
        self.copies = CopyMeter()

    @property
    def label(self) -> str:
        """Name and number, e.g. ``cuda:0 (NVIDIA H100 80GB HBM3)``."""
        return f"cuda:{shown_number(self.number)} ({self.name})"

    @property
    def compute_capability(self) -> str:
        """Compute capability, e.g. ``90``."""
        return str(self._device.compute_capability)

    @property
    def bus_id(self) -> str:
        """PCI address, e.g. ``0000:3b:00.0``."""
        return str(cupy.cuda.runtime.deviceGetPCIBusId(self.number))

    def free_bytes(self) -> int:
        """Return the free device memory in bytes."""
        free, _total = self._device.mem_info
        return int(free)

    def used_bytes(self) -> int:
        """Return the used device memory of all processes in bytes."""
        free, total = self._device.mem_info
        return int(total - free)

    def synchronize(self) -> None:
        """Wait for everything on the device."""
        self._device.use()
        self._device.synchronize()

    def new_stream(self) -> Any:
        """Return a stream that does not wait for the default stream."""
        return cupy.cuda.Stream(non_blocking=True)

    def make_current(self) -> None:
        """Make the device current for the calling thread; a new thread has none."""
        self._device.use()

    @contextmanager
    def use(self, stream: Any) -> Iterator[None]:
        """Make device and stream current for the calling thread."""
        self._device.use()
        with stream:
            yield


def free_unused() -> None:
    """Free the memory of deleted arrays: CuPy keeps it even for streams that have ended."""
    with suppress(cupy.cuda.runtime.CUDARuntimeError):  # a failed context keeps it
        cupy.get_default_memory_pool().free_all_blocks()
        cupy.get_default_pinned_memory_pool().free_all_blocks()


def pinned_array(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Allocate a page-locked, uninitialised host array; freed with its last view."""
    dtype = np.dtype(dtype)
    count = math.prod(shape)
    memory = cupy.cuda.alloc_pinned_memory(count * dtype.itemsize)  # may be larger
    return np.frombuffer(memory, dtype, count).reshape(shape)


def device_planes(format: FrameFormat, slot: int) -> Planes:
    """Allocate the buffers of one ring slot on the current device.

    Luma and chroma share one allocation: chroma follows luma at the next multiple of
    :data:`PLANE_ALIGNMENT`. If width times height is a multiple of 256, as for
    1280x720 and 1920x1080, this is the layout of NVDEC's and NVENC's surfaces, so that a frame is
    one copy.
    """
    alpha = cupy.zeros(format.luma_shape, np.uint8)
    # Other streams write it next, and do not wait for this one.
    cupy.cuda.get_current_stream().synchronize()
    return _planes(format, slot, cupy.empty, alpha)


def pinned_planes(format: FrameFormat, slot: int) -> Planes:
    """Allocate the buffers of one ring slot in page-locked host memory."""
    alpha = pinned_array(format.luma_shape, np.uint8)
    alpha.fill(0)
    return _planes(format, slot, pinned_array, alpha)


def _planes(format: FrameFormat, slot: int, empty: Callable[..., Array], alpha: Array) -> Planes:
    dtype = np.dtype(format.dtype)
    luma_samples = math.prod(format.luma_shape)
    step = PLANE_ALIGNMENT // dtype.itemsize
    chroma_at = -(-luma_samples // step) * step
    buffer = empty((chroma_at + math.prod(format.chroma_shape),), dtype)
    return Planes(
        slot=slot,
        luma=buffer[:luma_samples].reshape(format.luma_shape),
        chroma=buffer[chroma_at:].reshape(format.chroma_shape),
        alpha=alpha,
    )
