"""Arithmetic on the planes of the zoomed segmenter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache, partial
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
from bgsoft.segment.boxes import CELL, Box, Cells, cell_shape
from bgsoft.threads import LanePool

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice


GENERAL, LANDSCAPE = 0, 1
"""The two models' places in all sequences that have something of each."""
STILL, MOVED = 1.0, 3.5
"""Change of a cell's luma, in 8-bit codes, up to which whole passes still count in full, and from
which they do not count; like the temporal filter's."""
_MIN_WEIGHT = 0.01
"""Least weight of whole passes: they count only where nothing else does."""
_CLOSER_WEIGHT = 0.5
"""Weight of a closer pass; all passes before it have 1 together."""
_SHARPENED = 2.0
"""Gain of a mask that the refiner is shown."""
_MAX_LOSS = 0.25
"""Most opacity that refining takes away. The refiner follows edges, but it may take a second person
for background."""
_NOTHING = (None, 0, *NO_TABLES, *(0,) * 4, *(0.0,) * 5)
"""Arguments of the kernel in place of a missing close pass."""
_FADING = _MIN_WEIGHT, MOVED, MOVED - STILL
"""Least weight of whole passes, and the change of luma over which they fade in."""
_Part = tuple[slice, slice]
_KEPT_BOXES = 16


class Blend(NamedTuple):
    """Parts that a mask is blended from."""

    frame: int
    """Index of the frame in the current batch."""
    slot: int
    """Slot that keeps the whole passes."""
    shares: tuple[float, float]
    """How much each model's whole pass counts where the picture stands still."""
    box: Box | None
    """Box of the close pass; None: there is none."""


ONLY_CLOSE = (0.0, _MIN_WEIGHT)
"""Shares with which hardly anything but the close pass counts."""


def _part(format: FrameFormat, model: tuple[int, int], box: Box) -> tuple[_Part | None, _Part]:
    """Return the parts that the model is shown: of luma, and of planes of half the size.

    None stands for luma averaged over 2×2 samples.
    """
    left, top, right, bottom = box.in_pixels(format)
    halved = slice(top // 2, -(-bottom // 2)), slice(left // 2, -(-right // 2))
    # Luma is averaged where the model takes no more: bilinear sampling reaches as far as it
    # goes without, and averaging from there on takes OpenCV ten times as long.
    if bottom - top < 2 * model[0] or right - left < 2 * model[1]:
        return (slice(top, bottom), slice(left, right)), halved
    return None, halved


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
        stream: That the general model runs over whole frames on; None: the current one.
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
        self.slots = 2 * batch + 1
        """Turns whose whole passes can be kept: what is still used when a batch comes is not
        overwritten by its passes, be they begun a second time."""
        self._placement, self._device, self._stream = placement, device, stream
        self._here: AbstractContextManager[None] = nullcontext()
        self._format = format
        self._cell_shape = cells = cell_shape(grid)
        # P010 holds its code values in the high bits, so 8-bit code is the sample over 256.
        self._luma_scale = 1.0 if format.bit_depth == 8 else 1.0 / 256.0
        # A box stays for many frames.
        self._parts = lru_cache(_KEPT_BOXES)(partial(_part, format, model))
        self._fading = lru_cache(_KEPT_BOXES)(
            lambda box: (box.shape, (*box, *box.fade_widths(grid), box.weight(grid)))
        )
        xp, bits = placement.xp, 8 * format.bytes_per_sample
        self._kept = [list(xp.zeros((self.slots, *grid), np.float32)) for _ in range(2)]
        self._masks: list[Array] = list(xp.empty((batch, *grid), np.float32))
        self._lumas = list(xp.zeros((batch, *cells), np.float32))
        """Cells of the frames at hand,"""
        self._kept_lumas = list(xp.zeros((self.slots, *cells), np.float32))
        """and of those of whole passes."""
        # Two passes for each frame at hand, and a mask that is fed back; and a mask for each frame
        # at hand for what is read later.
        self._cells = Readback(placement, (3 * batch + 1, *cells), np.float32)
        self._made: list[Array] = list(self._cells.array)
        self._seen: list[Cells] = list(self._cells.host)
        self._luma_cells, self._mask_cells, self._resize, self._launch = (
            placement.operation("zoom", name, sample_bits=bits)
            for name in ("luma_cells", "mask_cells", "resize_mask", "blend_passes")
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

    def around(self, network: int) -> AbstractContextManager[None]:
        """Return what is around a model's whole passes.

        In addition to the general model's, other work may run until :meth:`read`.
        """
        return self._here if self._stream is None or network != GENERAL else self._on_other_stream()

    @contextmanager
    def _on_other_stream(self) -> Iterator[None]:
        self._forked.record()
        self._stream.wait_event(self._forked)
        with self._stream:
            yield
            self._joined.record()

    def keep_luma(self, slot: int, index: int) -> None:
        """Keep the luma of the frame at hand of an index, as what its whole passes have seen."""
        self._placement.copy(self._lumas[index], self._kept_lumas[slot])

    def keep(self, network: int, slot: int, mask: Array) -> Array:
        """Keep the mask of a model's whole pass.

        Returns:
            The (h, w) float32 mask as (gh, gw), until the slot is used again.
        """
        kept = self._kept[network][slot]
        resized = self._resized[0].arguments(mask, self.grid, area=None)
        self._resize(self.grid, *resized, kept, *self.grid)
        return kept

    def read(self, masks: Sequence[Array], *, later: bool = False) -> Callable[[], list[Cells]]:
        """Send for the cells of (gh, gw) masks.

        Args:
            masks: The masks.
            later: Keep what was read before.

        Returns:
            Waits for them, on the host; overwritten by the next call of the same kind.
        """
        if not masks:
            return list
        if self._stream is not None:
            self._placement.xp.cuda.get_current_stream().wait_event(self._joined)
        first = len(self._made) - len(masks) if later else 0
        size = self._cell_shape
        for index, mask in enumerate(masks, first):
            self._mask_cells(size, mask, *self.grid, self._made[index], *size)
        part = slice(first, first + len(masks))
        sent = self._cells.send(part)
        if self._device is not None:
            self._device.copies.add_d2h(sent)

        def wait() -> list[Cells]:
            self._cells.wait()
            return self._seen[part]

        return wait

    def on_grid(self, box: FaceBox) -> Box:
        """A box in frame pixels in samples of the analysis frame."""
        (rows, columns), format = self.grid, self._format
        scales = columns / format.width, rows / format.height
        left, top, right, bottom = (round(at * s) for at, s in zip(box, scales * 2, strict=True))
        return Box(left, top, right, bottom)

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

    def blend(
        self, first: int, blends: Sequence[Blend], close: Sequence[Array | None]
    ) -> list[Array]:
        """The masks of the places from ``first`` on, given (h, w) ones of close passes.

        Returns:
            (gh, gw) float32, each stretched over its whole frame; overwritten by the next call for
            the same place.
        """
        indices = range(first, first + len(blends))
        self._pool.map(self._blend, indices, blends, close)
        return self._masks[first : first + len(blends)]

    def sharpened(self, index: int, box: Box) -> Array:
        """Return a part of a frame's mask with more contrast.

        The refiner would take for a person what passes see only faintly.
        """
        part = self._masks[index][box.top : box.bottom, box.left : box.right]
        return self._placement.xp.clip((part - 0.5) * _SHARPENED + 0.5, 0.0, 1.0)

    def average(self, index: int, box: Box, other: Array, weight: float = _CLOSER_WEIGHT) -> None:
        """Average the mask of the frame at hand of this index with another in a box, in place.

        Args:
            index: Index of the frame.
            box: Place of the other.
            other: (h, w) float32, stretched over the box.
            weight: Weight of the other; the mask has 1.
        """
        mask, luma = self._masks[index], self._lumas[index]
        # As the blend of two equal whole passes of a still picture, half a weight each.
        whole = mask, mask, luma, luma, *self._cell_shape, 0.5, 0.5, *_FADING
        resized = self._resized[0].arguments(other, box.shape, area=None)
        added = *resized, *box, *box.fade_widths(self.grid), weight
        self._launch(self.grid, *whole, *added, mask, *self.grid, self._lines[0])

    def refine(self, index: int, box: Box, refined: Array) -> None:
        """Average a mask with the refined one in a box, in place, but limit what it loses."""
        part = self._masks[index][box.top : box.bottom, box.left : box.right]
        least = part - _MAX_LOSS
        self.average(index, box, refined, 1.0)
        self._placement.xp.maximum(part, least, out=part)

    def _blend(self, lane: int, place: int, blend: Blend, close: Array | None) -> None:
        general, landscape = (kept[blend.slot] for kept in self._kept)
        lumas = self._lumas[blend.frame], self._kept_lumas[blend.slot]
        whole = general, landscape, *lumas, *self._cell_shape, *blend.shares, *_FADING
        added = _NOTHING
        if blend.box is not None and close is not None:
            shape, fading = self._fading(blend.box)
            added = *self._resized[lane].arguments(close, shape, area=None), *fading
        mask = self._masks[place]
        self._launch(self.grid, *whole, *added, mask, *self.grid, self._lines[lane])
