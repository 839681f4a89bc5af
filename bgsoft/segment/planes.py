"""Arithmetic on the planes of the zoomed segmenter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from bgsoft.analysis.base import analysis_shape
from bgsoft.analysis.reduce import AreaReducer
from bgsoft.cuda.readback import Readback
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat
from bgsoft.ops.placement import HOST, Placement
from bgsoft.ops.resize import NO_TABLES, Resized
from bgsoft.records import NamedTuple
from bgsoft.segment.base import FaceBox
from bgsoft.segment.boxes import CELL, TILES, Box, Cells, cell_shape
from bgsoft.threads import LanePool

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice


STILL, MOVED = 1.0, 3.5
"""Change of a cell's luma, in 8-bit codes, up to which whole passes still count in full, and from
which they do not count; like the temporal filter's."""
MIN_WEIGHT = 0.01
"""Least weight of whole passes: they count only where nothing else does."""
CLOSER, REFINED = (0.5, 1.0), (1.0, 0.25)
"""Weight of a closer pass, and of the refined mask, where all passes before it have 1 together; and
the most opacity that each takes away. The refiner follows edges, but it may take a second person
for background."""
_SHARPENED = 2.0
"""Gain of a mask that the refiner is shown. It would take for a person what passes see faintly."""
_NOTHING = (None, 0, *NO_TABLES, *(0,) * 4, *(0.0,) * 5)
"""Arguments of the kernel in place of a missing close pass."""
_FADING = MIN_WEIGHT, MOVED, MOVED - STILL
"""Least weight of whole passes, and the change of luma over which they fade out."""
_KEPT_BOXES = 16


class Whole(NamedTuple):
    """Whole passes of a frame."""

    mask: Array
    """(gh, gw) float32: the sum of their masks times their weights."""
    weight: float
    """Sum of their weights, where the picture stands still."""
    luma: Array
    """Cells of the luma that they saw."""


class ZoomPlanes:
    """Makes the inputs of passes over frames of one format, and blends their masks.

    Decisions from planes are made on the host (:mod:`bgsoft.segment.boxes`), also for a device. The
    copy of cells begins with a batch, so that they usually arrive with what else the host waits
    for. The host waits once more if a turn begins within a batch, or if the frame is searched.

    Args:
        format: Format of the frames.
        model: (rows, columns) of the largest input of a model that sees parts of frames.
        pool: Threads that blend on the host; one lane per frame.
        placement: Host or device of the frames.
        batch: Frames at a time on a device.
        device: Whose copies are counted; None: on the host.
        stream: Stream for :meth:`aside`; None: the current one.
    """

    def __init__(
        self,
        format: FrameFormat,
        model: tuple[int, int],
        pool: LanePool | None = None,
        *,
        placement: Placement = HOST,
        batch: int = 1,
        device: CudaDevice | None = None,
        stream: Any = None,
    ) -> None:
        self._pool = pool or LanePool()
        self.batch = batch = max(batch, self._pool.lanes)
        """Frames at a time, and parts of frames."""
        self.grid = grid = analysis_shape(format.width, format.height)
        self._placement, self._device, self._stream = placement, device, stream
        self._format, self._model = format, model
        self._cell_shape = cells = cell_shape(grid)
        # P010 holds its code values in the high bits, so 8-bit code is the sample over 256.
        self._luma_scale = 1.0 if format.bit_depth == 8 else 1.0 / 256.0
        # A box stays for many frames.
        self._fading = lru_cache(_KEPT_BOXES)(
            lambda box: (*box, *box.fade_widths(grid), box.weight(grid))
        )
        xp, bits = placement.xp, 8 * format.bytes_per_sample
        self.masks: list[Array] = list(xp.empty((batch, *grid), np.float32))
        """(gh, gw) float32 of each frame at hand, stretched over it."""
        self._lumas = list(xp.zeros((batch, *cells), np.float32))
        """Cells of the frames at hand."""
        # Two passes of each frame at hand, and a mask that is fed back; and what is read later.
        self._cells = Readback(placement, (2 * batch + 1 + TILES, *cells), np.float32)
        self._luma_cells, self._mask_cells, self._resize, self._blend_passes, self._average = (
            placement.operation("zoom", name, sample_bits=bits)
            for name in ("luma_cells", "mask_cells", "resize_mask", "blend_passes", "average_pass")
        )
        lanes = range(self._pool.lanes)
        self._resized = [Resized(placement, grid, np.float32) for _ in lanes]
        room = (2 * CELL + 1) * cells[1] + 2 + grid[1]
        self._lines = [placement.scratch(room, np.float32) for _ in lanes]
        if placement.on_device:
            self._halve = AreaReducer(format.luma_shape, 2, placement=placement, bits=bits)
            self._halves = list(xp.empty((batch, *format.chroma_shape[:2]), format.dtype))
            self._forked, self._joined = (xp.cuda.Event(disable_timing=True) for _ in range(2))

    def watch(self, reduced: Sequence[AnalysisFrame]) -> None:
        """Take the cells of the luma of the frames at hand, in 8-bit codes."""
        size = self._cell_shape
        for grid, cells in zip(reduced, self._lumas, strict=False):
            self._luma_cells(size, grid.luma, *self.grid, self._luma_scale, cells, *size)

    def whole(self, index: int, masks: Sequence[Array]) -> Whole:
        """Return the whole passes of the frame at hand of an index.

        Args:
            index: Index of the frame.
            masks: Their (gh, gw) float32 masks, each of weight 1.
        """
        return Whole(sum(masks[1:], masks[0]), float(len(masks)), self._lumas[index].copy())

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Return the context of work that may run in parallel, until :meth:`read`."""
        if self._stream is None:
            yield
            return
        self._forked.record()
        self._stream.wait_event(self._forked)
        with self._stream:
            yield
            self._joined.record()

    def on_grid(self, mask: Array) -> Array:
        """Return an (h, w) float32 mask as a new one of (gh, gw)."""
        made = self._placement.xp.empty(self.grid, np.float32)
        resized = self._resized[0].arguments(mask, self.grid, area=None)
        self._resize(self.grid, *resized, made, *self.grid)
        return made

    def read(self, masks: Sequence[Array], *, later: bool = False) -> Callable[[], list[Cells]]:
        """Send for the cells of (gh, gw) masks.

        Args:
            masks: The masks.
            later: Keep what was read before; up to six masks.

        Returns:
            Waits for them, on the host; overwritten by the next call of the same kind.
        """
        if not masks:
            return list
        if self._stream is not None:
            self._placement.xp.cuda.get_current_stream().wait_event(self._joined)
        first = len(self._cells.host) - len(masks) if later else 0
        size, part = self._cell_shape, slice(first, first + len(masks))
        for mask, cells in zip(masks, self._cells.array[part], strict=True):
            self._mask_cells(size, mask, *self.grid, cells, *size)
        sent = self._cells.send(part)
        if self._device is not None:
            self._device.copies.add_d2h(sent)

        def wait() -> list[Cells]:
            self._cells.wait()
            return list(self._cells.host[part])

        return wait

    def box_of(self, face: FaceBox) -> Box:
        """Return a box in frame pixels in samples of the analysis frame."""
        (rows, columns), format = self.grid, self._format
        scales = columns / format.width, rows / format.height
        left, top, right, bottom = (round(at * s) for at, s in zip(face, scales * 2, strict=True))
        return Box(left, top, right, bottom)

    def crops(
        self, frames: Sequence[Frame], reduced: Iterable[AnalysisFrame], boxes: Iterable[Box]
    ) -> list[AnalysisFrame]:
        """Return parts of frames, for networks; overwritten by the next call."""
        crops: list[AnalysisFrame] = []
        for frame, grid, box in zip(frames, reduced, boxes, strict=True):
            left, top, right, bottom = box.in_pixels(self._format)
            luma, chroma = frame.planes.luma, frame.planes.chroma
            halved = slice(top // 2, -(-bottom // 2)), slice(left // 2, -(-right // 2))
            # Luma is averaged where the model takes no more: bilinear sampling reaches as far as it
            # goes without, and averaging from there on takes OpenCV ten times as long.
            if bottom - top < 2 * self._model[0] or right - left < 2 * self._model[1]:
                crops.append(AnalysisFrame(1, luma[top:bottom, left:right], chroma[halved]))
                continue
            # Averaged over 2×2 samples, or what the edges leave of them.
            half = grid.luma if grid.factor == 2 else grid.halved
            if half is None:
                half = self._halves[len(crops)]
                self._halve.reduce(luma, half)
            crops.append(AnalysisFrame(2, half[halved], chroma[halved]))
        return crops

    def blend(
        self,
        masks: Sequence[Array],
        frames: Sequence[int],
        whole: Whole,
        box: Box | None,
        close: Sequence[Array | None],
    ) -> None:
        """Blend masks from the passes of frames.

        Args:
            masks: (gh, gw) float32, overwritten.
            frames: Index of each one's frame at hand.
            whole: Whole passes, of one of them or an earlier frame.
            box: Where their close passes were; None: there are none.
            close: The (h, w) float32 masks of these.
        """

        def blend(lane: int, mask: Array, index: int, close: Array | None) -> None:
            cells = self._lumas[index], whole.luma, *self._cell_shape
            added = _NOTHING
            if box is not None and close is not None:
                added = self._in_box(lane, box, close)
            passes = whole.mask, whole.weight, *cells, *_FADING, *added
            self._blend_passes(self.grid, *passes, mask, *self.grid, self._lines[lane])

        self._pool.map(blend, masks, frames, close)

    def _in_box(self, lane: int, box: Box, mask: Array) -> tuple[Any, ...]:
        return *self._resized[lane].arguments(mask, box.shape, area=None), *self._fading(box)

    def sharpened(self, mask: Array, box: Box) -> Array:
        """Return a part of a mask with more contrast."""
        part = mask[box.top : box.bottom, box.left : box.right]
        return self._placement.xp.clip((part - 0.5) * _SHARPENED + 0.5, 0.0, 1.0)

    def average(
        self, mask: Array, box: Box, other: Array, weight: float, max_loss: float = 1.0
    ) -> None:
        """Average a mask with another in a box, in place.

        Args:
            mask: (gh, gw) float32.
            box: Place of the other.
            other: (h, w) float32, stretched over the box.
            weight: Weight of the other; the mask has 1.
            max_loss: Most opacity that it takes away.
        """
        *added, _ = self._in_box(0, box, other)
        self._average(box.shape, *added, weight, max_loss, mask, self.grid[1])
