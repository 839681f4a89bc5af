"""Defocus of the background on a CUDA device; the twin of :mod:`bgsoft.composite.bokeh`.

The CPU averages over the disc in the frequency domain; here the disc's cells are added up one by
one, from shared memory. With at most 16 cells of radius that is a few microseconds' work.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from bgsoft.analysis.base import grid_factor
from bgsoft.composite.bokeh import _HIGHLIGHT_GAIN, bokeh_factor, disc_kernel
from bgsoft.composite.cuda_background import DeviceCells, device_ints
from bgsoft.composite.cuda_picture import DevicePicture
from bgsoft.frame import Frame, FrameFormat, Matte, Reduced
from bgsoft.kernels.loader import kernel

__all__ = ["DeviceBokeh"]

_TILE_ROWS, _TILE_COLUMNS = 16, 32
_BLOCK = (32, 4, 1)


class _Disc:
    """A disc as the kernels read it.

    Args:
        radius: Radius in cells.
    """

    def __init__(self, radius: float) -> None:
        weights = disc_kernel(radius)
        self.reach: int = weights.shape[0] // 2
        middle_down = weights[self.reach :]
        # Of each column, how many weights next to the middle one there are.
        half_heights = np.maximum(np.count_nonzero(middle_down, axis=0) - 1, 0)
        self.arrays = (cupy.asarray(weights), cupy.asarray(half_heights.astype(np.int32)))

    def shared_bytes(self, bytes_per_cell: int) -> int:
        """Shared memory that a tile and what the disc reaches around it takes."""
        rows, columns = _TILE_ROWS + 2 * self.reach, _TILE_COLUMNS + 2 * self.reach
        return rows * columns * bytes_per_cell


class DeviceBokeh(DeviceCells):
    """The frame's own background, out of focus.

    Args:
        format: Format of every frame.
        radius_px: Radius of the disc that a point becomes (circle of confusion), frame pixels,
            above 0.
        highlights: How much highlights bloom, 0–1.
    """

    def __init__(self, format: FrameFormat, radius_px: float, highlights: float) -> None:
        factor = bokeh_factor(radius_px, grid_factor(format.width, format.height))
        chroma_factor = max(factor, 2)
        super().__init__(format, factor, chroma_factor)
        self._picture = DevicePicture(format, factor, chroma_factor)
        scale = 1 << (8 if format.bytes_per_sample == 1 else 0)
        black, white = (sample * scale for sample in format.luma_range)
        numbers = (black, white - black, highlights * _HIGHLIGHT_GAIN)
        self._highlights = tuple(np.float32(number) for number in numbers)
        disc = _Disc(radius_px / factor)
        sources, targets = self._picture.offsets, self.offsets
        luma_shape, chroma_shape, _ = self._picture.shapes
        if factor > 1:
            self._launches = [
                self._launch("bokeh_together", disc, 16, luma_shape, (*sources, *targets))
            ]
        else:
            plane = (sources[0], targets[0])
            planes = (*luma_shape, *sources, *targets[1:])
            chroma_disc = _Disc(radius_px / 2)
            self._launches = [
                self._launch("bokeh_luma", disc, 8, luma_shape, plane),
                self._launch("bokeh_chroma", chroma_disc, 16, chroma_shape, planes),
            ]

    def _launch(
        self,
        name: str,
        disc: _Disc,
        bytes_per_cell: int,
        shape: tuple[int, int],
        planes: tuple[int, ...],
    ) -> tuple[Any, tuple[int, int, int], tuple[Any, ...], int]:
        """Kernel, blocks, arguments and bytes of shared memory."""
        plan = device_ints(*shape, disc.reach, *planes)
        arguments = (plan, *disc.arrays, self._picture.buffer, self.cells, *self._highlights)
        grid = -(-shape[1] // _TILE_COLUMNS), -(-shape[0] // _TILE_ROWS), 1
        return kernel("bokeh", name), grid, arguments, disc.shared_bytes(bytes_per_cell)

    @property
    def is_fixed(self) -> bool:
        return not self._picture.reads_frame

    def prepare(self, frame: Frame, matte: Matte, reduced: Reduced) -> None:
        self._picture.update(frame, matte, reduced)
        for average, grid, arguments, shared_bytes in self._launches:
            average(grid, _BLOCK, arguments, shared_mem=shared_bytes)
        self.hold()

    def close(self) -> None:
        """Nothing to free on the host."""
