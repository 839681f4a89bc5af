"""A video and a cut-out's colour as backgrounds on a CUDA device.

The twin of :mod:`bgsoft.composite.plate`, and of :mod:`bgsoft.composite.clip`.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import cupy
import numpy as np

from bgsoft.composite.background import Background
from bgsoft.composite.clip import ClipPlayer
from bgsoft.composite.fill import BackgroundFill
from bgsoft.composite.plan import CutoutPlan
from bgsoft.cuda.device import CopyMeter, pinned_array
from bgsoft.frame import AnalysisFrame, Frame, FrameFormat, Matte
from bgsoft.ops.loader import BLOCK, blocks, kernel
from bgsoft.ops.sides import device

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


class CudaCutout(Background):
    """The foreground's colour running out into black; all at the resolution of chroma.

    The twin of :class:`bgsoft.composite.plate.CutoutBackground`.
    """

    def __init__(self, format: FrameFormat) -> None:
        plan = CutoutPlan.of(format)
        self._fill = fill = BackgroundFill(device(), format, last_resort=plan.black)
        grid = fill.plan.grid
        self._room = cupy.empty(grid, np.uint8)
        self._grid_blocks = blocks(*grid[::-1])
        self._grid_size = tuple(np.int32(side) for side in grid)
        luma = cupy.empty(format.luma_shape, format.dtype)
        chroma = cupy.empty(format.chroma_shape, format.dtype)
        super().__init__("blend_cutout", luma, chroma)
        sizes = (*format.luma_shape, *fill.plan.shape, fill.plan.factor // 2, plan.reach)
        self._arguments = (
            fill.buffer,
            *(np.int32(size) for size in sizes),
            *(np.uint32(sample) for sample in plan.black[:2]),
            luma,
            chroma,
        )
        self._blocks = blocks(format.chroma_shape[1], format.chroma_shape[0])
        # What is seen, and what is seen widened; see cutout.cu.
        self._shared_bytes = sum(
            (BLOCK[0] + margin) * (BLOCK[1] + margin) for margin in (4 * plan.reach, 2 * plan.reach)
        )
        bits = 8 * format.bytes_per_sample
        self._invert = kernel("cutout", "cutout_room", sample_bits=bits)
        self._fade = kernel("cutout", "cutout_fade", sample_bits=bits)

    def prepare(self, frame: Frame, matte: Matte, reduced: AnalysisFrame) -> None:
        # What is filled in is the room, from the people.
        self._invert(self._grid_blocks, BLOCK, (matte.reduced, self._room, *self._grid_size))
        self._fill.update(self._room, reduced)
        arguments = (matte.alpha, *self._arguments)
        self._fade(self._blocks, BLOCK, arguments, shared_mem=self._shared_bytes)
