"""Backgrounds on a CUDA device: what they share, and those that need no filter.

The twin of :mod:`bgsoft.composite.plate`, and of :mod:`bgsoft.composite.clip`.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from bgsoft.composite.clip import ClipPlayer
from bgsoft.composite.cuda_fill import CudaFill
from bgsoft.composite.plan import CutoutPlan
from bgsoft.composite.plate import color_plate, darken, image_plate
from bgsoft.cuda.device import CopyMeter, pinned_array
from bgsoft.frame import AnalysisFrame, Frame, FrameFormat, Matte
from bgsoft.kernels.loader import BLOCK, blocks, kernel

_PINNED_BUFFERS = 3
"""Uploads that may be on their way before the host has to wait for one."""


class CudaBackground:
    """The background of one frame at a time, which one of the kernels of ``blend.cu`` reads.

    Args:
        blend_kernel: The kernel's name.
        blend_arguments: Its arguments after those that describe the frame, the same for each.
    """

    def __init__(self, blend_kernel: str, *blend_arguments: Any) -> None:
        self.blend_kernel = blend_kernel
        self.blend_arguments = blend_arguments

    def prepare(self, frame: Frame, matte: Matte, reduced: AnalysisFrame) -> None:
        """Make the background of this frame, on the current stream; the frame is only read.

        Raises:
            DecodeError: A background video can no longer be read.
        """

    def refresh(self) -> None:
        """See :meth:`bgsoft.composite.base.Compositor.refresh`."""

    def close(self) -> None:
        """Free what it holds on the host; safe to call twice."""


def cuda_color(background: str | None, format: FrameFormat) -> CudaBackground:
    """One colour; see :func:`bgsoft.composite.plate.color_plate`."""
    luma, chroma = color_plate(background, format).planes()
    samples = (luma[0, 0], *chroma[0, 0])
    return CudaBackground("blend_flat", *(np.uint32(sample) for sample in samples))


def cuda_image(path: Path, format: FrameFormat) -> CudaBackground:
    """An image; see :func:`bgsoft.composite.plate.image_plate`."""
    planes = image_plate(path, format).planes()
    return CudaBackground("blend_plate", *(cupy.asarray(plane) for plane in planes))


def cuda_dim(format: FrameFormat, percent: float) -> CudaBackground:
    """The frame's own picture, darker; the CPU's results for all code values, in tables."""
    ramp = (np.arange(1 << format.bit_depth) << format.shift).astype(format.dtype)[None]
    tables = []
    for towards in (format.luma_range[0], format.chroma_neutral):
        table = np.empty_like(ramp)
        darken(ramp, towards, percent, table)
        tables.append(cupy.asarray(table[0]))
    return CudaBackground("blend_mapped", *tables)


class CudaClip(CudaBackground):
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


class CudaCutout(CudaBackground):
    """The foreground's colour running out into black; all at the resolution of chroma.

    The twin of :class:`bgsoft.composite.plate.CutoutBackground`.
    """

    def __init__(self, format: FrameFormat) -> None:
        plan = CutoutPlan.of(format)
        self._fill = fill = CudaFill(format, last_resort=plan.black)
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
