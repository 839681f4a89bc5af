"""Segmentation by several inference passes: two models over the whole frame, one over the people.

A small model sees a person better who fills its picture. So what the general and the landscape
model find in the whole frame says where people are, and the general model runs again on that part,
cut from the frame's own planes and stretched to its square. The mask is the mean of the two whole
passes, averaged with the close one where that reaches.

In a video the whole passes can take turns: what they found is still true where the picture stands
still, and where it moves the close pass, which every frame has, counts alone. What remembers
(:mod:`bgsoft.segment.schedule`) decides frame after frame; all passes that are known beforehand are
run side by side, so the masks are the same for any number of frames at a time. What the masks
themselves show, which tells better than the whole passes where people are, is fed back once in a
while only: until then, close passes need not wait for each other. As often, where nobody is to be
seen for sure, close passes over parts of the frame search it for small figures.

On a device, what is decided waits for what the whole passes have shown. So those that are due in
any case are begun as soon as there are frames, before it is known whether a scene ends among them;
and the models are run on as many pictures as there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import numpy as np

from bgsoft.analysis.base import analysis_shape
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat
from bgsoft.segment.base import Segmenter
from bgsoft.segment.network import NetworkSegmenter
from bgsoft.segment.schedule import (
    GENERAL,
    LANDSCAPE,
    BlendWeights,
    Box,
    Cells,
    PassScheduler,
    cell_shape,
    tiles,
)


class ZoomPlanes(ABC):
    """Arithmetic on planes, on the side that the frames are on.

    Args:
        format: Format of the frames.
        model: (rows, columns) of the general model's input.
        batch: Frames at a time.
        half: The mean of all passes that becomes 0.5.
    """

    def __init__(
        self, format: FrameFormat, model: tuple[int, int], batch: int, half: float = 0.5
    ) -> None:
        self.grid = analysis_shape(format.width, format.height)
        self.slots = 2 * batch + 1
        """Masks of each model that can be kept, in turn: what is still used when a batch comes is
        not overwritten by its passes, be they begun a second time."""
        self._format = format
        self._model = model
        self._cell_shape = cell_shape(self.grid)
        self._lift = 0.5 / half
        # P010 holds its code values in the high bits, so 8-bit code is the sample over 256.
        self._luma_scale = np.float32(1.0 if format.bit_depth == 8 else 1.0 / 256.0)

    @abstractmethod
    def watch(self, reduced: Sequence[AnalysisFrame]) -> None:
        """Take the cells of the luma of the frames at hand, in 8-bit codes."""

    def apart(self) -> AbstractContextManager[None]:
        """Around the general model's whole passes: other work may run beside them until
        :meth:`read`."""
        return nullcontext()

    @abstractmethod
    def keep(self, network: int, slot: int, index: int, mask: Array) -> Array:
        """Keep a model's whole pass over the frame of an index among those at hand.

        Returns:
            Its (h, w) float32 mask as (gh, gw), until the slot is used again.
        """

    @abstractmethod
    def read(self, masks: Sequence[Array], lumas: int = 0) -> Callable[[], list[Cells]]:
        """Send for the cells of (gh, gw) masks, and of the luma of so many frames at hand.

        Returns:
            Waits for them, on the host: the frames', then the masks'; overwritten by later calls.
        """

    def crops(self, frames: Sequence[Frame], boxes: Sequence[Box]) -> list[AnalysisFrame]:
        """Parts of frames, for the general model; overwritten by the next call."""
        return [self._crop(*each) for each in zip(range(len(frames)), frames, boxes, strict=True)]

    def _crop(self, index: int, frame: Frame, box: Box) -> AnalysisFrame:
        left, top, right, bottom = box.in_pixels(self._format)
        halved = slice(top // 2, -(-bottom // 2)), slice(left // 2, -(-right // 2))
        luma, chroma = frame.luma[top:bottom, left:right], frame.chroma[halved]
        # Luma is averaged over 2×2 samples where the model takes no more: bilinear sampling reaches
        # as far as it goes without, and averaging from there on takes OpenCV ten times as long.
        if luma.shape[0] < 2 * self._model[0] or luma.shape[1] < 2 * self._model[1]:
            return AnalysisFrame(1, luma, chroma)
        return AnalysisFrame(2, self._halved(index, frame, luma, halved), chroma)

    @abstractmethod
    def _halved(self, index: int, frame: Frame, luma: Array, place: tuple[slice, slice]) -> Array:
        """The luma of a crop, averaged over 2×2 samples, or what the edges leave of them.

        Args:
            index: Of the crop; each has a buffer.
            frame: What it is cut from.
            luma: Its samples.
            place: Its rows and columns in the halved frame.
        """

    @abstractmethod
    def blend(
        self, first: int, blends: Sequence[BlendWeights], close: Sequence[Array | None]
    ) -> list[Array]:
        """The masks of the frames at hand from ``first`` on, given (h, w) ones of close passes.

        Returns:
            (gh, gw) float32, each stretched over its whole frame; overwritten by the next call for
            the same index.
        """


class _Begun(NamedTuple):
    """What has been sent for before the frames are segmented."""

    frames: list[Frame]
    due: list[tuple[int, ...]]
    passes: list[tuple[int, int, int]]
    """Index of the frame, model, slot."""
    cells: Callable[[], list[Cells]]
    """Of the frames, of the passes, and of the last frame's mask where that is wanted."""


class ZoomedSegmenter(Segmenter):
    """Masks from whole and close passes, on the host or on a device.

    Args:
        general, landscape: Run on whole frames.
        close: Runs on people: the general model, too.
        planes: Of the side that the frames are on.
        turns: The whole passes take turns.
        mirrors: Every pass is run a second time, mirrored, and counts as the mean of both.
    """

    def __init__(
        self,
        general: NetworkSegmenter,
        landscape: NetworkSegmenter,
        close: NetworkSegmenter,
        planes: ZoomPlanes,
        *,
        turns: bool,
        mirrors: bool,
    ) -> None:
        self.name = close.name
        self._whole = (general, landscape)
        self._close = close
        self._planes = planes
        self._scheduler = PassScheduler(planes.grid, turns=turns)
        self._mirrors = mirrors
        self._next_slot = [0, 0]
        self._begun: _Begun | None = None
        self._last: Array | None = None

    def start(self) -> None:
        for network in dict.fromkeys((*self._whole, self._close)):
            network.start()

    def begin(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> None:
        """See :meth:`bgsoft.segment.base.Segmenter.begin`."""
        self._begun = self._begin(frames, reduced)

    def _begin(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> _Begun:
        planes, scheduler = self._planes, self._scheduler
        due = scheduler.due([frame.index for frame in frames])
        passes: list[tuple[int, int, int]] = []
        kept: list[Array] = []
        planes.watch(reduced)
        for network in (GENERAL, LANDSCAPE):
            indices = [index for index, networks in enumerate(due) if network in networks]
            for index, slot, mask in self._run_whole(network, indices, frames, reduced):
                passes.append((index, network, slot))
                kept.append(mask)
        last = [self._last] if scheduler.wants_mask(frames[0].index) else []
        cells = planes.read(kept + last, lumas=len(frames))
        return _Begun(list(frames), due, passes, cells)

    def masks(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> list[Array]:
        """See :meth:`bgsoft.segment.base.Segmenter.masks`."""
        begun = self._begun
        if begun is None or begun.frames != list(frames):
            begun = self._begin(frames, reduced)
        self._begun = None
        scheduler = self._scheduler
        cells = begun.cells()
        lumas, people = cells[: len(frames)], cells[len(frames) :]
        if len(people) > len(begun.passes):
            scheduler.add_mask(people.pop())
        masks: list[Array] = []
        for start, stop in scheduler.groups([frame.index for frame in frames]):
            if start:
                (cells_of_last,) = self._planes.read(masks[-1:])()
                scheduler.add_mask(cells_of_last)
            blends: list[BlendWeights] = []
            for index in range(start, stop):
                luma = lumas[index]
                for (at, network, slot), person in zip(begun.passes, people, strict=True):
                    if at == index:
                        scheduler.add_pass(network, slot, luma, person)
                if not begun.due[index] and scheduler.wants_pass(luma):
                    self._run_again(index, frames, reduced, luma)
                if scheduler.wants_scan(frames[index].index, luma):
                    scheduler.add_scan(self._scan(index, start, frames, luma))
                blends.append(scheduler.next(frames[index].index, luma))
            close = self._run_close(frames[start:stop], blends)
            masks += self._planes.blend(start, blends, close)
        self._last = masks[-1]
        return masks

    def _run_whole(
        self,
        network: int,
        indices: Sequence[int],
        frames: Sequence[Frame],
        reduced: Sequence[AnalysisFrame],
    ) -> list[tuple[int, int, Array]]:
        """Index of the frame, slot and mask of each pass that is kept."""
        kept: list[tuple[int, int, Array]] = []
        if not indices:
            return kept
        with self._planes.apart() if network == GENERAL else nullcontext():
            model, some = self._whole[network], [frames[i] for i in indices]
            shown = model.shown(some, [reduced[i] for i in indices])
            masks = self._run(model, some, shown)
            for index, mask in zip(indices, masks, strict=True):
                slot = self._next_slot[network]
                self._next_slot[network] = (slot + 1) % self._planes.slots
                kept.append((index, slot, self._planes.keep(network, slot, index, mask)))
        return kept

    def _run_again(
        self, index: int, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame], luma: Cells
    ) -> None:
        ((_, slot, mask),) = self._run_whole(GENERAL, [index], frames, reduced)
        (person,) = self._planes.read([mask])()
        self._scheduler.add_pass(GENERAL, slot, luma, person)

    def _scan(self, index: int, start: int, frames: Sequence[Frame], luma: Cells) -> Cells:
        """Cells of what close passes over all parts of a frame show, where ``start`` is free."""
        planes, scheduler = self._planes, self._scheduler
        boxes, most = tiles(planes.grid), len(frames) - start
        found: list[Cells] = []
        for first in range(0, len(boxes), most):
            part = boxes[first : first + most]
            shown = [frames[index]] * len(part)
            close = self._run(self._close, shown, planes.crops(shown, part))
            blends = [scheduler.close_only(box, luma) for box in part]
            found += [cells.copy() for cells in planes.read(planes.blend(start, blends, close))()]
        people: Cells = np.max(found, axis=0)
        return people

    def _run_close(
        self, frames: Sequence[Frame], blends: Sequence[BlendWeights]
    ) -> list[Array | None]:
        boxes = [(index, blend.box) for index, blend in enumerate(blends) if blend.box]
        shown = [frames[index] for index, _ in boxes]
        crops = self._planes.crops(shown, [box for _, box in boxes])
        close: list[Array | None] = [None] * len(frames)
        for (index, _), mask in zip(boxes, self._run(self._close, shown, crops), strict=True):
            close[index] = mask
        return close

    def _run(
        self,
        network: NetworkSegmenter,
        frames: Sequence[Frame],
        shown: Sequence[AnalysisFrame],
    ) -> Sequence[Array]:
        if not frames:
            return []
        if not self._mirrors:
            return network.run(frames, shown)
        masks = [mask.copy() for mask in network.run(frames, shown)]
        for mask, other in zip(masks, network.run(frames, shown, mirrored=True), strict=True):
            mask += other
            mask *= 0.5
        return masks

    def reset(self) -> None:
        self._begun = None
        self._scheduler.reset()

    def refresh(self) -> None:
        self.reset()

    def close(self) -> None:
        for network in (*self._whole, self._close):
            network.close()
