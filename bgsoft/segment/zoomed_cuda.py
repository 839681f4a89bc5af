"""Planes of the zoomed segmenter on a CUDA device; reference: :mod:`bgsoft.segment.zoomed_cpu`.

What is decided from them is decided on the host (:mod:`bgsoft.segment.rotation`), so that both
sides decide alike: it reads 30 to 60 kB a frame. They are sent for when a batch begins, so that as
a rule they have come with what else the host waits for; it waits once more where the mask is fed
back midway or the frame is searched, and for each frame in which somebody may have come in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import cupy
import numpy as np

from bgsoft.analysis.base import analysis_shape
from bgsoft.analysis.cuda import CudaGrids
from bgsoft.analysis.cuda_resize import resampling
from bgsoft.cuda.device import CudaDevice, pinned_array
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat
from bgsoft.ops.loader import BLOCK, blocks, kernel
from bgsoft.segment.rotation import (
    CELL,
    MOVED,
    STILL,
    Box,
    Cells,
    Recipe,
    cell_shape,
    fade_widths,
)
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
        half: See the reference.
        stream: That the general model looks at whole frames on; None: the current one.
    """

    def __init__(
        self,
        format: FrameFormat,
        model: tuple[int, int],
        device: CudaDevice,
        batch: int,
        half: float = 0.5,
        stream: Any = None,
    ) -> None:
        if CELL != _CELL:
            raise ValueError(f"the kernel's cells are {_CELL} wide, not {CELL}")
        self._format = format
        self._model = model
        self._device = device
        self.slots = 2 * batch + 1
        self._shape = shape = analysis_shape(format.width, format.height)
        cells = cell_shape(shape)
        self._grid, self._cell_grid = blocks(shape[1], shape[0]), blocks(cells[1], cells[0])
        self._sizes = tuple(map(np.int32, shape))
        self._cell_sizes = tuple(map(np.int32, cells))
        self._lift = np.float32(0.5 / half)
        self._scale = np.float32(1.0 if format.bit_depth == 8 else 1.0 / 256.0)
        self._halves = CudaGrids(format, 2, batch)
        self._kept = cupy.zeros((2, self.slots, *shape), np.float32)
        self._masks = cupy.empty((batch, *shape), np.float32)
        # The luma of the frames at hand; two looks each, and a mask that is fed back; and a mask
        # each for what is read later.
        self._cells = cupy.empty((4 * batch + 1, *cells), np.float32)
        self._cells_host = pinned_array(self._cells.shape, np.float32)
        self._kept_lumas = cupy.zeros((2, self.slots, *cells), np.float32)
        self._stream = stream
        self._forked, self._joined, self._sent = (
            cupy.cuda.Event(disable_timing=True) for _ in range(3)
        )
        self._tables: dict[tuple[int, ...], tuple[Any, ...]] = {}
        bits = 8 * format.bytes_per_sample
        self._luma_cells, self._mask_cells, self._resize, self._blend = (
            kernel("zoom", name, sample_bits=bits)
            for name in ("luma_cells", "mask_cells", "resize_mask", "blend_looks")
        )

    def watch(self, reduced: Sequence[AnalysisFrame]) -> None:
        for index, grid in enumerate(reduced):
            args = (grid.luma, *self._sizes, self._scale, self._cells[index], *self._cell_sizes)
            self._luma_cells(self._cell_grid, BLOCK, args)

    @contextmanager
    def apart(self) -> Iterator[None]:
        if self._stream is None:
            yield
            return
        self._forked.record()
        self._stream.wait_event(self._forked)
        with self._stream:
            yield
            self._joined.record()

    def keep(self, network: int, slot: int, index: int, mask: Array) -> Array:
        kept = self._kept[network, slot]
        tables = self._tables_for(mask.shape, self._shape)
        args = (mask, np.int32(mask.shape[1]), *tables, kept, *self._sizes)
        self._resize(self._grid, BLOCK, args)
        luma, seen = self._cells[index], self._kept_lumas[network, slot]
        seen.data.copy_from_device_async(luma.data, luma.nbytes, cupy.cuda.get_current_stream())
        return kept

    def read(self, masks: Sequence[Array], lumas: int = 0) -> Callable[[], list[Cells]]:
        stream = cupy.cuda.get_current_stream()
        stream.wait_event(self._joined)
        # What is read later does not touch the luma of the frames at hand.
        first = 0 if lumas else len(self._cells) - len(masks)
        count = lumas + len(masks)
        for index, mask in enumerate(masks, first + lumas):
            args = (mask, *self._sizes, self._cells[index], *self._cell_sizes)
            self._mask_cells(self._cell_grid, BLOCK, args)
        part = slice(first, first + count)
        host = self._cells_host[part]
        self._cells[part].get(out=host, stream=stream, blocking=False)
        self._device.copies.add_d2h(host.nbytes)
        self._sent.record(stream)

        def wait() -> list[Cells]:
            self._sent.synchronize()
            return list(host)

        return wait

    def crops(self, frames: Sequence[Frame], boxes: Sequence[Box]) -> list[AnalysisFrame]:
        each = zip(frames, boxes, strict=True)
        return [self._crop(index, frame, box) for index, (frame, box) in enumerate(each)]

    def _crop(self, index: int, frame: Frame, box: Box) -> AnalysisFrame:
        left, top, right, bottom = box.in_pixels(self._format)
        halved = slice(top // 2, -(-bottom // 2)), slice(left // 2, -(-right // 2))
        chroma = frame.chroma[halved]
        if is_halved((bottom - top, right - left), self._model):
            return AnalysisFrame(2, self._halves.reduce(frame, index).luma[halved], chroma)
        return AnalysisFrame(1, frame.luma[top:bottom, left:right], chroma)

    def blend(
        self, first: int, recipes: Sequence[Recipe], close: Sequence[Array | None]
    ) -> list[Array]:
        for index, (recipe, mask) in enumerate(zip(recipes, close, strict=True), first):
            slots = [(network, look.slot) for network, look in enumerate(recipe.looks)]
            args = (
                *(self._kept[slot] for slot in slots),
                self._cells[index],
                *(self._kept_lumas[slot] for slot in slots),
                *self._cell_sizes,
                *(np.float32(limit) for limits in recipe.limits for limit in limits),
                *(np.float32(MOVED), np.float32(MOVED - STILL)),
                *self._close_args(recipe.box, mask),
                *(self._lift, self._masks[index], *self._sizes),
            )
            self._blend(self._grid, BLOCK, args)
        return list(self._masks[first : first + len(recipes)])

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
