"""One CUDA device, set up once for a render.

CuPy uses the device's primary context; PyNvVideoCodec and ONNX Runtime are given the same one.
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
"""Bytes that the start of each plane is a multiple of: what any vector load needs."""
_POOL_SHARE = 0.5
"""Part of the memory that is free at the start which CuPy's pool may grow by."""

cuda_errors_as = partial(errors_as, (cupy.cuda.runtime.CUDARuntimeError,))


class CopyMeter:
    """Bytes of frame data that crossed PCIe; counted from any thread."""

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
    """A CUDA device by its number, and what all GPU stages of a render share.

    Raises:
        BackendUnavailableError: There is no such device, or it does not start.
    """

    def __init__(self, number: int = 0) -> None:
        failed = f"CUDA device {shown_number(number)} does not start"
        with cuda_errors_as(BackendUnavailableError, failed):
            count = cupy.cuda.runtime.getDeviceCount()
            if number >= count:
                raise BackendUnavailableError(f"--gpu {number}: this machine has {count} GPUs")
            self._device = cupy.cuda.Device(number)
            self._device.use()
            properties = cupy.cuda.runtime.getDeviceProperties(number)
            cupy.cuda.runtime.free(0)  # makes the primary context
        self.number = number
        self.name = properties["name"].decode()
        self.context = int(cupy.cuda.driver.ctxGetCurrent())
        """Handle of the primary context."""
        # The rest is for the codecs, ONNX Runtime and other programs.
        pool = cupy.get_default_memory_pool()
        pool.set_limit(size=pool.total_bytes() + int(_POOL_SHARE * self.free_bytes()))
        self.copies = CopyMeter()

    @property
    def label(self) -> str:
        """e.g. ``cuda:0 (NVIDIA H100 80GB HBM3)``."""
        return f"cuda:{shown_number(self.number)} ({self.name})"

    @property
    def compute_capability(self) -> str:
        """e.g. ``90``."""
        return str(self._device.compute_capability)

    @property
    def bus_id(self) -> str:
        """PCI address, e.g. ``0000:3b:00.0``."""
        return str(cupy.cuda.runtime.deviceGetPCIBusId(self.number))

    def free_bytes(self) -> int:
        """Device memory that is free."""
        free, _total = self._device.mem_info
        return int(free)

    def used_bytes(self) -> int:
        """Device memory in use now, by all processes together."""
        free, total = self._device.mem_info
        return int(total - free)

    def synchronize(self) -> None:
        """Wait for everything on the device."""
        self._device.use()
        self._device.synchronize()

    def new_stream(self) -> Any:
        """A stream that does not wait for the default stream."""
        return cupy.cuda.Stream(non_blocking=True)

    def make_current(self) -> None:
        """Make the device current for the calling thread, as it is not in a new one."""
        self._device.use()

    @contextmanager
    def use(self, stream: Any) -> Iterator[None]:
        """Make device and stream current for the calling thread."""
        self._device.use()
        with stream:
            yield


def free_unused() -> None:
    """Give back the memory of arrays that are gone: CuPy keeps it for streams that end as well."""
    with suppress(cupy.cuda.runtime.CUDARuntimeError):  # a context that has failed keeps it
        cupy.get_default_memory_pool().free_all_blocks()
        cupy.get_default_pinned_memory_pool().free_all_blocks()


def pinned_array(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """A page-locked host array, not initialised; freed with the last view of it."""
    dtype = np.dtype(dtype)
    count = math.prod(shape)
    memory = cupy.cuda.alloc_pinned_memory(count * dtype.itemsize)  # may be larger than asked for
    return np.frombuffer(memory, dtype, count).reshape(shape)


def device_planes(format: FrameFormat, slot: int) -> Planes:
    """The buffers of one ring slot on the current device.

    Luma and chroma lie in one allocation, chroma after luma at the next multiple of
    :data:`PLANE_ALIGNMENT`. For most sizes (a product of width and height that is a multiple of
    256, as in 1280x720 and 1920x1080) that is the layout of NVDEC's and NVENC's surfaces, so that
    a frame is one copy.
    """
    alpha = cupy.zeros(format.luma_shape, np.uint8)
    # Other streams write it next, and do not wait for this one.
    cupy.cuda.get_current_stream().synchronize()
    return _planes(format, slot, cupy.empty, alpha)


def pinned_planes(format: FrameFormat, slot: int) -> Planes:
    """The same in page-locked host memory."""
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
