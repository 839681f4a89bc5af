"""Planes of the zoomed segmenter on a CUDA device; reference: :mod:`bgsoft.segment.zoomed_cpu`.

What is decided from them is decided on the host (:mod:`bgsoft.segment.schedule`), so that both
sides decide alike: it reads 30 to 60 kB a frame. They are sent for when a batch begins, so that as
a rule they have come with what else the host waits for; it waits once more where the mask is fed
back midway or the frame is searched, and for each frame in which somebody may have come in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import cupy
import numpy as np

from bgsoft.analysis.cuda import CudaGrids
from bgsoft.analysis.cuda_resize import resampling
from bgsoft.cuda.device import CudaDevice, pinned_array
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat
from bgsoft.kernels.loader import BLOCK, blocks, kernel
from bgsoft.segment.schedule import MOVED, STILL, BlendWeights, Box, Cells
from bgsoft.segment.zoomed import ZoomPlanes

_MOST_TABLES = 256
"""Pairs of sizes that tables are kept for: boxes may have any."""
_NOTHING = np.uint64(0)
"""A null pointer."""


class CudaZoomPlanes(ZoomPlanes):
    """Works on the current stream.

    Args:
        format, model, batch, half: See :class:`bgsoft.segment.zoomed.ZoomPlanes`.
        device: Where the frames are.
        stream: That the general model runs over whole frames on; None: the current one.
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
        super().__init__(format, model, batch, half)
        self._device = device
        shape, cells = self.grid, self._cell_shape
        self._blocks, self._cell_blocks = blocks(shape[1], shape[0]), blocks(cells[1], cells[0])
        self._sizes = tuple(map(np.int32, shape))
        self._cell_sizes = tuple(map(np.int32, cells))
        self._halves = CudaGrids(format, 2, batch)
        self._kept = cupy.zeros((2, self.slots, *shape), np.float32)
        self._masks = cupy.empty((batch, *shape), np.float32)
        # The luma of the frames at hand; two passes each, and a mask that is fed back; and a mask
        # each for what is read later.
        self._cells = cupy.empty((4 * batch + 1, *cells), np.float32)
        self._cells_host = pinned_array(self._cells.shape, np.float32)
        self._kept_lumas = cupy.zeros((2, self.slots, *cells), np.float32)
        self._stream = stream
        self._forked, self._joined, self._sent = (
            cupy.cuda.Event(disable_timing=True) for _ in range(3)
        )
        bits = 8 * format.bytes_per_sample
        self._luma_cells, self._mask_cells, self._resize, self._blend = (
            kernel("zoom", name, sample_bits=bits)
            for name in ("luma_cells", "mask_cells", "resize_mask", "blend_passes")
        )

        @lru_cache(_MOST_TABLES)
        def tables(source: tuple[int, int], target: tuple[int, int]) -> tuple[Any, ...]:
            # Masks are averaged where they become smaller both ways, as in the reference.
            smaller = all(s >= t for s, t in zip(source, target, strict=True))
            return resampling(source, target, area=smaller, fixed_point=False).args

        self._tables = tables

    def watch(self, reduced: Sequence[AnalysisFrame]) -> None:
        scale = self._luma_scale
        for index, grid in enumerate(reduced):
            args = (grid.luma, *self._sizes, scale, self._cells[index], *self._cell_sizes)
            self._luma_cells(self._cell_blocks, BLOCK, args)

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
        tables = self._tables(mask.shape, self.grid)
        args = (mask, np.int32(mask.shape[1]), *tables, kept, *self._sizes)
        self._resize(self._blocks, BLOCK, args)
        luma, seen = self._cells[index], self._kept_lumas[network, slot]
        seen.data.copy_from_device_async(luma.data, luma.nbytes, cupy.cuda.get_current_stream())
        return kept

    def read(self, masks: Sequence[Array], lumas: int = 0) -> Callable[[], list[Cells]]:
        stream = cupy.cuda.get_current_stream()
        stream.wait_event(self._joined)
        # What is read later does not touch the luma of the frames at hand.
        first = 0 if lumas else len(self._cells) - len(masks)
        for index, mask in enumerate(masks, first + lumas):
            args = (mask, *self._sizes, self._cells[index], *self._cell_sizes)
            self._mask_cells(self._cell_blocks, BLOCK, args)
        part = slice(first, first + lumas + len(masks))
        host = self._cells_host[part]
        self._cells[part].get(out=host, stream=stream, blocking=False)
        self._device.copies.add_d2h(host.nbytes)
        self._sent.record(stream)

        def wait() -> list[Cells]:
            self._sent.synchronize()
            return list(host)

        return wait

    def _halved(self, index: int, frame: Frame, luma: Array, place: tuple[slice, slice]) -> Array:
        return self._halves.reduce(frame, index).luma[place]

    def blend(
        self, first: int, blends: Sequence[BlendWeights], close: Sequence[Array | None]
    ) -> list[Array]:
        for index, (blend, mask) in enumerate(zip(blends, close, strict=True), first):
            slots = [(network, each.slot) for network, each in enumerate(blend.passes)]
            args = (
                *(self._kept[slot] for slot in slots),
                self._cells[index],
                *(self._kept_lumas[slot] for slot in slots),
                *self._cell_sizes,
                *(np.float32(limit) for limits in blend.limits for limit in limits),
                *(np.float32(MOVED), np.float32(MOVED - STILL)),
                *self._close_args(blend.box, mask),
                *(np.float32(self._lift), self._masks[index], *self._sizes),
            )
            self._blend(self._blocks, BLOCK, args)
        return list(self._masks[first : first + len(blends)])

    def _close_args(self, box: Box | None, mask: Array | None) -> tuple[Any, ...]:
        zero, none = np.int32(0), np.float32(0)
        if box is None or mask is None:
            tables = (_NOTHING, zero, _NOTHING, zero, zero)
            return (_NOTHING, zero, *tables, *(zero,) * 4, *(none,) * 5)
        return (
            *(mask, np.int32(mask.shape[1]), *self._tables(mask.shape, box.shape)),
            *map(np.int32, (box.left, box.top, box.right, box.bottom)),
            *map(np.float32, box.fade_widths(self.grid)),
            np.float32(box.weight(self.grid)),
        )
