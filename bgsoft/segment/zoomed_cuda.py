"""Planes of the zoomed segmenter on a CUDA device; reference: :mod:`bgsoft.segment.zoomed_cpu`.

What is decided from them is decided on the host (:mod:`bgsoft.segment.rotation`), so that both
sides decide alike: it reads 30 to 60 kB a frame, and waits for them once a batch; once more where
the mask is fed back midway, and for each frame in which somebody may have come in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np

from bgsoft.analysis.base import grid_shape
from bgsoft.analysis.cuda import CudaGrids
from bgsoft.analysis.cuda_resize import resampling
from bgsoft.cuda.device import CudaDevice, pinned_array
from bgsoft.frame import Array, Frame, FrameFormat, Proxy
from bgsoft.kernels.loader import BLOCK, blocks, kernel
from bgsoft.segment.rotation import CELL, Box, Cells, Recipe, cell_shape, fade_widths
from bgsoft.segment.zoomed import ZoomSide
from bgsoft.segment.zoomed_cpu import close_weight, is_halved

_CELL = 4
"""``CELL`` in ``zoom.cu``."""
_MOST_TABLES = 256
"""Pairs of sizes that tables are kept for: boxes may have any."""
_NOTHING = np.uint64(0)
"""A null pointer."""


class CudaZoomSide(ZoomSide):
    """Works on the current stream.

    Args:
        format: Format of the frames.
        model: (rows, columns) of the general model's input.
        device: Where the frames are.
        batch: Frames at a time.
    """

    def __init__(
        self, format: FrameFormat, model: tuple[int, int], device: CudaDevice, batch: int
    ) -> None:
        if CELL != _CELL:
            raise ValueError(f"the kernel's cells are {_CELL} wide, not {CELL}")
        self._format = format
        self._model = model
        self._device = device
        self.slots = 2 * batch + 1
        self._shape = shape = grid_shape(format.width, format.height)
        cells = cell_shape(shape)
        self._grid, self._cell_grid = blocks(shape[1], shape[0]), blocks(cells[1], cells[0])
        self._sizes = tuple(map(np.int32, shape))
        self._cell_sizes = tuple(map(np.int32, cells))
        self._scale = np.float32(1.0 if format.bit_depth == 8 else 1.0 / 256.0)
        self._halves = CudaGrids(format, 2, batch)
        self._kept = cupy.zeros((2, self.slots, *shape), np.float32)
        self._masks = cupy.empty((batch, *shape), np.float32)
        # A frame's luma and two looks each, and a mask that is fed back.
        self._cells = cupy.empty((3 * batch + 1, *cells), np.float32)
        self._cells_host = pinned_array(self._cells.shape, np.float32)
        self._weights = cupy.empty((batch, 2, *cells), np.float32)
        self._weights_host = pinned_array(self._weights.shape, np.float32)
        self._tables: dict[tuple[int, ...], tuple[Any, ...]] = {}
        bits = 8 * format.bytes_per_sample
        self._luma_cells, self._mask_cells, self._resize, self._blend = (
            kernel("zoom", name, sample_bits=bits)
            for name in ("luma_cells", "mask_cells", "resize_mask", "blend_looks")
        )

    def keep(self, network: int, slot: int, mask: Array) -> Array:
        kept = self._kept[network, slot]
        tables = self._tables_for(mask.shape, self._shape)
        args = (mask, np.int32(mask.shape[1]), *tables, kept, *self._sizes)
        self._resize(self._grid, BLOCK, args)
        return kept

    def watch(
        self, grids: Sequence[Proxy], masks: Sequence[Array]
    ) -> tuple[list[Cells], list[Cells]]:
        """See :meth:`bgsoft.segment.zoomed.ZoomSide.watch`; waits for the stream."""
        for index, grid in enumerate(grids):
            args = (grid.luma, *self._sizes, self._scale, self._cells[index], *self._cell_sizes)
            self._luma_cells(self._cell_grid, BLOCK, args)
        for index, mask in enumerate(masks, len(grids)):
            args = (mask, *self._sizes, self._cells[index], *self._cell_sizes)
            self._mask_cells(self._cell_grid, BLOCK, args)
        count = len(grids) + len(masks)
        stream = cupy.cuda.get_current_stream()
        host = self._cells_host[:count]
        self._cells[:count].get(out=host, stream=stream, blocking=False)
        self._device.copies.add_d2h(host.nbytes)
        stream.synchronize()
        seen = list(host.copy())
        return seen[: len(grids)], seen[len(grids) :]

    def crops(self, frames: Sequence[Frame], boxes: Sequence[Box]) -> list[Proxy]:
        each = zip(frames, boxes, strict=True)
        return [self._crop(index, frame, box) for index, (frame, box) in enumerate(each)]

    def _crop(self, index: int, frame: Frame, box: Box) -> Proxy:
        left, top, right, bottom = box.in_pixels(self._format)
        halved = slice(top // 2, -(-bottom // 2)), slice(left // 2, -(-right // 2))
        chroma = frame.chroma[halved]
        if is_halved((bottom - top, right - left), self._model):
            return Proxy(2, self._halves.reduce(frame, index).luma[halved], chroma)
        return Proxy(1, frame.luma[top:bottom, left:right], chroma)

    def blend(
        self, first: int, recipes: Sequence[Recipe], close: Sequence[Array | None]
    ) -> list[Array]:
        """See :meth:`bgsoft.segment.zoomed.ZoomSide.blend`; :meth:`watch` was called before."""
        at = slice(first, first + len(recipes))
        host = self._weights_host[at]
        for weights, recipe in zip(host, recipes, strict=True):
            weights[...] = recipe.weights
        self._weights[at].set(host, stream=cupy.cuda.get_current_stream())
        self._device.copies.add_h2d(host.nbytes)
        for index, (recipe, mask) in enumerate(zip(recipes, close, strict=True), first):
            general, landscape = (
                self._kept[network, slot] for network, slot in enumerate(recipe.slots)
            )
            args = (
                *(general, landscape, self._weights[index], *self._cell_sizes),
                *self._close_args(recipe.box, mask),
                *(self._masks[index], *self._sizes),
            )
            self._blend(self._grid, BLOCK, args)
        return list(self._masks[at])

    def _close_args(self, box: Box | None, mask: Array | None) -> tuple[Any, ...]:
        zero, none = np.int32(0), np.float32(0)
        if box is None or mask is None:
            tables = (_NOTHING, zero, _NOTHING, zero, zero)
            return (_NOTHING, zero, *tables, *(zero,) * 4, *(none,) * 5)
        return (
            *(mask, np.int32(mask.shape[1]), *self._tables_for(mask.shape, box.shape)),
            *map(np.int32, (box.left, box.top, box.right, box.bottom)),
            *map(np.float32, fade_widths(box, self._shape)),
            np.float32(close_weight(box, self._shape)),
        )

    def _tables_for(self, source: tuple[int, int], target: tuple[int, int]) -> tuple[Any, ...]:
        """The arguments that say how masks are resized; see ``resize_mask`` of the reference."""
        found = self._tables.get((*source, *target))
        if found is None:
            if len(self._tables) >= _MOST_TABLES:
                self._tables.clear()
            smaller = all(s >= t for s, t in zip(source, target, strict=True))
            found = resampling(source, target, area=smaller, fixed_point=False).args
            self._tables[*source, *target] = found
        return found
