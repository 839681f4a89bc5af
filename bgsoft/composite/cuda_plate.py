"""A video as the background on a CUDA device; the twin of :mod:`bgsoft.composite.clip`."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import cupy
import numpy as np

from bgsoft.composite.background import Background
from bgsoft.composite.clip import ClipPlayer
from bgsoft.cuda.device import CopyMeter, pinned_array
from bgsoft.frame import AnalysisFrame, Frame, FrameFormat, Matte

_PINNED_BUFFERS = 3
"""Uploads that may be on their way before the host has to wait for one."""


class CudaClip(Background):
    """A video, decoded on the host; see :class:`bgsoft.composite.clip.ClipPlayer`.

    A picture of it crosses to the device once, by an asynchronous copy from pinned memory.

    Args:
        path: The clip.
        format: Format of every frame.
        copies: Where bytes that cross are counted.
        began: As there.

    Raises:
        ConfigError: The clip is missing, unreadable or no video.
    """

    def __init__(
        self, path: Path, format: FrameFormat, copies: CopyMeter, began: Fraction | None
    ) -> None:
        self._clip = ClipPlayer(path, format, began)
        self._copies = copies
        shapes = (format.luma_shape, format.chroma_shape)
        self._luma, self._chroma = (cupy.empty(shape, format.dtype) for shape in shapes)
        super().__init__("blend_plate", self._luma, self._chroma)
        self._pinned = [
            tuple(pinned_array(shape, format.dtype) for shape in shapes)
            for _ in range(_PINNED_BUFFERS)
        ]
        self._uploaded = [
            cupy.cuda.Event(block=True, disable_timing=True) for _ in range(_PINNED_BUFFERS)
        ]
        self._uploads = 0

    def prepare(self, frame: Frame, matte: Matte, reduced: AnalysisFrame) -> None:
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
