"""Arithmetic on the planes of the zoomed segmenter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from bgsoft.analysis.base import analysis_shape
from bgsoft.analysis.reduce import AreaReducer
from bgsoft.cuda.readback import Readback
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat
from bgsoft.ops.resize import NO_TABLES, Resized
from bgsoft.ops.sides import HOST, Side
from bgsoft.segment.schedule import (
    CELL,
    GENERAL,
    MOVED,
    STILL,
    BlendWeights,
    Box,
    Cells,
    cell_shape,
)
from bgsoft.workers import Workers

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice


SHARPENED = 2.0
"""Gain of a mask before it is refined."""
_NOTHING = (None, 0, *NO_TABLES, *(0,) * 4, *(0.0,) * 5)
"""What is blended of a close pass where there is none."""
_Part = tuple[slice, slice]
_KEPT_BOXES = 16


class ZoomPlanes:
    """What the passes over frames of one format are made of, and what becomes of them.

    What is decided from planes is decided on the host (:mod:`bgsoft.segment.schedule`), so that
    both sides decide alike: of a device it reads 30 to 60 kB a frame. They are sent for when a
    batch begins, so that as a rule they have come with what else the host waits for; it waits once
    more where the mask is fed back midway or the frame is searched, and for each frame in which
    somebody may have come in.

    Args:
        format: Format of the frames.
        model: (rows, columns) of the largest input of a model that sees parts of frames.
        workers: What blends, side by side on the host; a lane a frame.
        side: Where the frames are.
        batch: Frames at a time on a device.
        device: Whose copies are counted; None: on the host.
        stream: That the general model runs over whole frames on; None: the current one.
    """

    def __init__(
        self,
        format: FrameFormat,
        model: tuple[int, int],
        workers: Workers | None = None,
        *,
        side: Side = HOST,
        batch: int = 1,
        device: CudaDevice | None = None,
        stream: Any = None,
    ) -> None:
        self._workers = workers or Workers()
        self.batch = batch = max(batch, self._workers.lanes)
        """Frames at a time, and parts of frames."""
        self.grid = grid = analysis_shape(format.width, format.height)
        self.slots = 2 * batch + 1
        """Masks of each model that can be kept, in turn: what is still used when a batch comes is
        not overwritten by its passes, be they begun a second time."""
        self._side, self._device, self._stream = side, device, stream
        self._here: AbstractContextManager[None] = nullcontext()
        self._format, self._model = format, model
        self._cell_shape = cells = cell_shape(grid)
        # P010 holds its code values in the high bits, so 8-bit code is the sample over 256.
        self._luma_scale = 1.0 if format.bit_depth == 8 else 1.0 / 256.0
        # A box stays for many frames.
        self._parts = lru_cache(_KEPT_BOXES)(self._part)
        self._fading = lru_cache(_KEPT_BOXES)(
            lambda box: (box.shape, (*box, *box.fade_widths(grid), box.weight(grid)))
        )
        xp, bits = side.xp, 8 * format.bytes_per_sample
        self._kept = [list(xp.zeros((self.slots, *grid), np.float32)) for _ in range(2)]
        self._masks: list[Array] = list(xp.empty((batch, *grid), np.float32))
        # The luma of the frames at hand; two passes each, and a mask that is fed back; and a mask
        # each for what is read later.
        self._cells = Readback(side, (4 * batch + 1, *cells), np.float32)
        self._made: list[Array] = list(self._cells.array)
        self._seen: list[Cells] = list(self._cells.host)
        self._luma_cells, self._mask_cells, self._resize, self._launch = (
            side.operation("zoom", name, sample_bits=bits)
            for name in ("luma_cells", "mask_cells", "resize_mask", "blend_passes")
        )
        lanes = range(self._workers.lanes)
        self._resized = [Resized(side, grid, np.float32) for _ in lanes]
        room = (4 * CELL + 1) * cells[1] + 2 + grid[1]
        self._lines = [side.scratch(room, np.float32) for _ in lanes]
        if side.on_device:
            self._kept_lumas = [list(xp.zeros((self.slots, *cells), np.float32)) for _ in range(2)]
            self._halve = AreaReducer(format.luma_shape, 2, side=side, bits=bits)
            self._halves = list(xp.empty((batch, *format.chroma_shape[:2]), format.dtype))
            self._forked, self._joined = (xp.cuda.Event(disable_timing=True) for _ in range(2))

    def watch(self, reduced: Sequence[AnalysisFrame]) -> None:
        """Take the cells of the luma of the frames at hand, in 8-bit codes."""
        size = self._cell_shape
        for grid, cells in zip(reduced, self._made, strict=False):
            self._luma_cells(size, grid.luma, *self.grid, self._luma_scale, cells, *size)

    def around(self, network: int) -> AbstractContextManager[None]:
        """Around a model's whole passes: beside the general one's, other work may run until
        :meth:`read`."""
        return self._here if self._stream is None or network != GENERAL else self._apart()

    @contextmanager
    def _apart(self) -> Iterator[None]:
        self._forked.record()
        self._stream.wait_event(self._forked)
        with self._stream:
            yield
            self._joined.record()

    def keep(self, network: int, slot: int, index: int, mask: Array) -> Array:
        """Keep a model's whole pass over the frame of an index among those at hand.

        Returns:
            Its (h, w) float32 mask as (gh, gw), until the slot is used again.
        """
        kept = self._kept[network][slot]
        resized = self._resized[0].arguments(mask, self.grid, area=None)
        self._resize(self.grid, *resized, kept, *self.grid)
        if self._side.on_device:
            self._side.copy(self._made[index], self._kept_lumas[network][slot])
        return kept

    def read(self, masks: Sequence[Array], lumas: int = 0) -> Callable[[], list[Cells]]:
        """Send for the cells of (gh, gw) masks, and of the luma of so many frames at hand.

        Returns:
            Waits for them, on the host: the frames', then the masks'; overwritten by later calls.
        """
        if self._stream is not None:
            self._side.xp.cuda.get_current_stream().wait_event(self._joined)
        # What is read later does not touch the luma of the frames at hand.
        first = 0 if lumas else len(self._made) - len(masks)
        size = self._cell_shape
        for index, mask in enumerate(masks, first + lumas):
            self._mask_cells(size, mask, *self.grid, self._made[index], *size)
        part = slice(first, first + lumas + len(masks))
        sent = self._cells.send(part)
        if self._device is not None:
            self._device.copies.add_d2h(sent)

        def wait() -> list[Cells]:
            self._cells.wait()
            return self._seen[part]

        return wait

    def crops(
        self, frames: Sequence[Frame], reduced: Iterable[AnalysisFrame], boxes: Iterable[Box]
    ) -> list[AnalysisFrame]:
        """Parts of frames, for the general model; overwritten by the next call."""
        crops: list[AnalysisFrame] = []
        for frame, grid, box in zip(frames, reduced, boxes, strict=False):
            whole, halved = self._parts(box)
            luma, chroma = frame.planes.luma, frame.planes.chroma
            if whole is None:
                # Averaged over 2×2 samples, or what the edges leave of them.
                half = grid.luma if grid.factor == 2 else grid.halved
                if half is None:
                    half = self._halves[len(crops)]
                    self._halve.reduce(luma, half)
                crops.append(AnalysisFrame(2, half[halved], chroma[halved]))
            else:
                crops.append(AnalysisFrame(1, luma[whole], chroma[halved]))
        return crops

    def _part(self, box: Box) -> tuple[_Part | None, _Part]:
        """The part of luma that the model is shown, None: of luma averaged over 2×2 samples; and
        that of planes of half the size."""
        left, top, right, bottom = box.in_pixels(self._format)
        halved = slice(top // 2, -(-bottom // 2)), slice(left // 2, -(-right // 2))
        # Luma is averaged where the model takes no more: bilinear sampling reaches as far as it
        # goes without, and averaging from there on takes OpenCV ten times as long.
        if bottom - top < 2 * self._model[0] or right - left < 2 * self._model[1]:
            return (slice(top, bottom), slice(left, right)), halved
        return None, halved

    def blend(
        self, first: int, blends: Sequence[BlendWeights], close: Sequence[Array | None]
    ) -> list[Array]:
        """The masks of the frames at hand from ``first`` on, given (h, w) ones of close passes.

        Returns:
            (gh, gw) float32, each stretched over its whole frame; overwritten by the next call for
            the same index.
        """
        indices = range(first, first + len(blends))
        self._workers.map(self._blend, indices, blends, close)
        return self._masks[first : first + len(blends)]

    def sharpen(self, mask: Array) -> None:
        """Raise the contrast of a mask, in place: what few passes see faintly is left out."""
        mask -= 0.5 - 0.5 / SHARPENED
        mask *= SHARPENED
        self._side.xp.clip(mask, 0.0, 1.0, out=mask)

    def average(self, index: int, box: Box, other: Array) -> None:
        """Average the mask of the frame at hand of this index with another in a box, in place.

        Args:
            index: Of the frame.
            box: Where the other is.
            other: (h, w) float32, stretched over the box.
        """
        mask, luma = self._masks[index], self._made[index]
        # As the blend of two equal whole passes of a still picture, half a weight each.
        whole = mask, mask, luma, luma, luma, *self._cell_shape, *(0.5,) * 4, MOVED, MOVED - STILL
        resized = self._resized[0].arguments(other, box.shape, area=None)
        added = *resized, *box, *box.fade_widths(self.grid), 1.0, 1.0
        self._launch(self.grid, *whole, *added, mask, *self.grid, self._lines[0])

    def _blend(self, lane: int, index: int, blend: BlendWeights, close: Array | None) -> None:
        general, landscape = blend.passes
        first, second = self._kept
        lumas = blend.luma, general.luma, landscape.luma
        if self._side.on_device:
            one, other = self._kept_lumas
            lumas = self._made[index], one[general.slot], other[landscape.slot]
        added = _NOTHING
        if blend.box is not None and close is not None:
            shape, fading = self._fading(blend.box)
            added = *self._resized[lane].arguments(close, shape, area=None), *fading
        self._launch(
            self.grid,
            *(first[general.slot], second[landscape.slot], *lumas, *self._cell_shape),
            *(*blend.limits[0], *blend.limits[1], MOVED, MOVED - STILL, *added, 1.0),
            *(self._masks[index], *self.grid, self._lines[lane]),
        )
