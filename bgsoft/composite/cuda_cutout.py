"""A cut-out's colour under alpha 0 on a CUDA device; twin of :mod:`bgsoft.composite.cutout`."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from bgsoft.composite.cuda_fill import DeviceFill, check_grid
from bgsoft.composite.cutout import full_scale_black, reach_samples
from bgsoft.frame import Frame, FrameFormat, Matte, Reduced
from bgsoft.kernels.loader import BLOCK, blocks, kernel

__all__ = ["DeviceCutout"]


class DeviceCutout:
    """The foreground's colour running out into black; all at the resolution of chroma.

    Args:
        format: Format of every frame.
    """

    blend_kernel = "blend_cutout"
    is_fixed = True

    def __init__(self, format: FrameFormat) -> None:
        self._format = format
        black = full_scale_black(format)
        self._fill = fill = DeviceFill(format, last_resort=black)
        grid = fill.grid_shape
        self._room = cupy.empty(grid, np.uint8)
        self._grid_blocks = blocks(*grid[::-1])
        self._grid_size = tuple(np.int32(side) for side in grid)
        luma = cupy.empty(format.luma_shape, format.dtype)
        chroma = cupy.empty(format.chroma_shape, format.dtype)
        self.blend_arguments: tuple[Any, ...] = (luma, chroma)
        reach = reach_samples(format)
        sizes = (*format.luma_shape, *fill.shape, fill.factor // 2, reach)
        self._arguments = (
            fill.buffer,
            *(np.int32(size) for size in sizes),
            *(np.uint32(sample) for sample in black[:2]),
            luma,
            chroma,
        )
        self._blocks = blocks(format.chroma_shape[1], format.chroma_shape[0])
        # What is seen, and what is seen widened; see cutout.cu.
        self._shared_bytes = sum(
            (BLOCK[0] + margin) * (BLOCK[1] + margin) for margin in (4 * reach, 2 * reach)
        )
        bits = 8 * format.bytes_per_sample
        self._invert = kernel("cutout", "cutout_room", sample_bits=bits)
        self._fade = kernel("cutout", "cutout_fade", sample_bits=bits)

    def prepare(self, frame: Frame, matte: Matte, reduced: Reduced) -> None:
        """Make the colour around this frame's foreground; the frame is only read."""
        check_grid(self._format, matte, reduced)
        # What is filled in is the room, from the people.
        self._invert(self._grid_blocks, BLOCK, (matte.reduced, self._room, *self._grid_size))
        self._fill.update(Matte(alpha=matte.alpha, reduced=self._room), reduced)
        arguments = (matte.alpha, *self._arguments)
        self._fade(self._blocks, BLOCK, arguments, shared_mem=self._shared_bytes)

    def close(self) -> None:
        """Nothing to free on the host."""
