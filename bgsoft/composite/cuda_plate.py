"""Backgrounds on a CUDA device that need no filter: a colour, an image, a video, a darker frame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray

from bgsoft.composite.clip import ClipPlayer
from bgsoft.composite.dim import darken
from bgsoft.composite.plate import color_plate, image_plate
from bgsoft.cuda.device import CopyMeter
from bgsoft.frame import Array, Frame, FrameFormat, Matte, Reduced

__all__ = ["DeviceClip", "DeviceColor", "DeviceDim", "DeviceImage"]

_PINNED_BUFFERS = 3
"""Uploads that may be on their way before the host has to wait for one."""


class _Still:
    """A background that does not depend on the frame's time or the analysis grid."""

    is_fixed = True

    def prepare(self, frame: Frame, matte: Matte, reduced: Reduced) -> None:
        """Nothing to be made for each frame."""

    def close(self) -> None:
        """Nothing to free on the host."""


class DeviceColor(_Still):
    """One colour; see :func:`bgsoft.composite.plate.color_plate`."""

    blend_kernel = "blend_flat"

    def __init__(self, background: str | None, format: FrameFormat) -> None:
        luma, chroma = color_plate(background, format).planes()
        samples = (luma[0, 0], *chroma[0, 0])
        self.blend_arguments: tuple[Any, ...] = tuple(np.uint32(sample) for sample in samples)


class DeviceImage(_Still):
    """An image; see :func:`bgsoft.composite.plate.image_plate`."""

    blend_kernel = "blend_plate"

    def __init__(self, path: Path, format: FrameFormat) -> None:
        planes = image_plate(path, format).planes()
        self.blend_arguments: tuple[Any, ...] = tuple(cupy.asarray(plane) for plane in planes)


class DeviceDim(_Still):
    """The frame's own picture, darker; the CPU's results for all code values, in tables."""

    blend_kernel = "blend_mapped"

    def __init__(self, format: FrameFormat, percent: float) -> None:
        count = 1 << format.bit_depth
        ramp = (np.arange(count) << format.shift).astype(format.dtype)[None]
        tables = []
        for towards in (format.luma_range[0], format.chroma_neutral):
            table = np.empty_like(ramp)
            darken(ramp, towards, percent, table)
            tables.append(cupy.asarray(table[0]))
        self.blend_arguments: tuple[Any, ...] = tuple(tables)


class DeviceClip:
    """A video, decoded on the host; see :class:`bgsoft.composite.clip.ClipPlayer`.

    A picture of it crosses to the device once, by an asynchronous copy from pinned memory.

    Args:
        path: The clip.
        format: Format of every frame.
        copies: Where bytes that cross are counted.

    Raises:
        ConfigError: The clip is missing, unreadable or no video.
    """

    blend_kernel = "blend_plate"
    is_fixed = False

    def __init__(self, path: Path, format: FrameFormat, copies: CopyMeter) -> None:
        self._clip = ClipPlayer(path, format)
        self._copies = copies
        self._luma: Array = cupy.empty(format.luma_shape, format.dtype)
        self._chroma: Array = cupy.empty(format.chroma_shape, format.dtype)
        self.blend_arguments: tuple[Any, ...] = (self._luma, self._chroma)
        self._pinned = [
            tuple(_pinned(plane.shape, format.dtype) for plane in (self._luma, self._chroma))
            for _ in range(_PINNED_BUFFERS)
        ]
        self._uploaded = [
            cupy.cuda.Event(block=True, disable_timing=True) for _ in range(_PINNED_BUFFERS)
        ]
        self._uploads = 0

    def prepare(self, frame: Frame, matte: Matte, reduced: Reduced) -> None:
        """Go on to the clip's picture for the time of ``frame``.

        Raises:
            DecodeError: The clip can no longer be read.
        """
        self._clip.show(frame)
        if self._clip.version != self._uploads:
            self._upload()

    def _upload(self) -> None:
        turn = self._uploads % _PINNED_BUFFERS
        # Long done, unless the device is three pictures of the clip behind. An event that was
        # never recorded counts as done.
        self._uploaded[turn].synchronize()
        stream = cupy.cuda.get_current_stream()
        pictures = (self._clip.luma, self._clip.chroma)
        planes = (self._luma, self._chroma)
        for picture, pinned, plane in zip(pictures, self._pinned[turn], planes, strict=True):
            np.copyto(pinned, picture)
            cupy.cuda.runtime.memcpyAsync(
                plane.data.ptr,
                pinned.ctypes.data,
                pinned.nbytes,
                cupy.cuda.runtime.memcpyHostToDevice,
                stream.ptr,
            )
            self._copies.add_h2d(pinned.nbytes)
        self._uploaded[turn].record(stream)
        self._uploads = self._clip.version

    def close(self) -> None:
        self._clip.close()


def _pinned(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """An array in page-locked host memory."""
    count = int(np.prod(shape))
    memory = cupy.cuda.alloc_pinned_memory(count * np.dtype(dtype).itemsize)
    array: NDArray[Any] = np.frombuffer(memory, dtype, count).reshape(shape)
    return array
