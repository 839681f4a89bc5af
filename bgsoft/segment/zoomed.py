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

The refiner, where there is one, sees the part of the frame round each person, or round people who
touch, and the mask that all passes made of it (:mod:`bgsoft.segment.refiner`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from operator import attrgetter
from typing import Any

import numpy as np

from bgsoft.frame import AnalysisFrame, Array, Frame
from bgsoft.records import dataclass
from bgsoft.segment.base import Segmenter
from bgsoft.segment.network import NetworkSegmenter
from bgsoft.segment.planes import ZoomPlanes
from bgsoft.segment.refiner import MaskRefiner
from bgsoft.segment.schedule import (
    GENERAL,
    LANDSCAPE,
    BlendWeights,
    Cells,
    PassScheduler,
    tiles,
)

_BOX, _INDEX = attrgetter("box"), attrgetter("index")


@dataclass(slots=True, eq=False)
class _Begun:
    """What has been sent for before the frames are segmented."""

    frames: list[Frame]
    places: list[int]
    """Of the frames in the video."""
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
        planes: Where the frames are.
        refiner: Refines the masks; None: they stay.
    """

    def __init__(
        self,
        general: NetworkSegmenter,
        landscape: NetworkSegmenter,
        close: NetworkSegmenter,
        planes: ZoomPlanes,
        refiner: MaskRefiner | None = None,
    ) -> None:
        self.name = close.name
        self._whole = (general, landscape)
        self._close = close
        self._planes = planes
        self._scheduler = PassScheduler(planes.grid)
        self._refiner = refiner
        self._next_slot = [0, 0]
        self._begun: _Begun | None = None
        self._last: Array
        """The mask of the frame before."""

    def start(self) -> None:
        for network in dict.fromkeys((*self._whole, self._close)):
            network.start()
        if self._refiner is not None:
            self._refiner.start()

    def begin(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> None:
        planes, scheduler = self._planes, self._scheduler
        places = [*map(_INDEX, frames)]
        due = scheduler.due(places)
        passes: list[tuple[int, int, int]] = []
        kept: list[Array] = []
        planes.watch(reduced)
        for network in (GENERAL, LANDSCAPE):
            indices = [index for index, networks in enumerate(due) if network in networks]
            if indices:
                for index, slot, mask in self._run_whole(network, indices, frames, reduced):
                    passes.append((index, network, slot))
                    kept.append(mask)
        if scheduler.wants_mask(places[0]):
            kept.append(self._last)
        cells = planes.read(kept, lumas=len(frames))
        self._begun = _Begun(list(frames), places, due, passes, cells)

    def masks(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> list[Array]:
        if self._begun is None or self._begun.frames != list(frames):
            self.begin(frames, reduced)
        begun: Any = self._begun
        self._begun = None
        scheduler, places, count = self._scheduler, begun.places, len(frames)
        cells = begun.cells()
        lumas, people = cells[:count], cells[count:]
        if len(people) > len(begun.passes):
            scheduler.add_mask(people.pop())
        masks: list[Array] = []
        for start, stop in scheduler.groups(places):
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
                if scheduler.wants_scan(places[index], luma):
                    most = count - start
                    scheduler.add_scan(self._scan(frames[index], reduced[index], start, most, luma))
                blends.append(scheduler.next(places[index], luma))
            masks += self._blend(start, frames[start:stop], reduced[start:stop], blends)
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
        with self._planes.around(network):
            model, some = self._whole[network], [frames[i] for i in indices]
            shown = model.shown(some, [reduced[i] for i in indices])
            masks = model.run(some, shown)
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

    def _scan(
        self, frame: Frame, reduced: AnalysisFrame, start: int, most: int, luma: Cells
    ) -> Cells:
        """Cells of what close passes over all parts of a frame show.

        The places of ``most`` frames at hand, from ``start`` on, are free.
        """
        planes, scheduler = self._planes, self._scheduler
        boxes = tiles(planes.grid)
        found: list[Cells] = []
        for first in range(0, len(boxes), most):
            part = boxes[first : first + most]
            shown = [frame] * len(part)
            crops = planes.crops(shown, [reduced] * len(part), part)
            close = self._close.run(shown, crops)
            blends = [scheduler.close_only(box, luma) for box in part]
            found += [cells.copy() for cells in planes.read(planes.blend(start, blends, close))()]
        people: Cells = np.max(found, axis=0)
        return people

    def _blend(
        self,
        start: int,
        frames: Sequence[Frame],
        reduced: Sequence[AnalysisFrame],
        blends: Sequence[BlendWeights],
    ) -> list[Array]:
        """The masks of frames of which the first is the one at hand of index ``start``."""
        boxes = [*map(_BOX, blends)]
        shown = list(compress(frames, boxes))
        crops = self._planes.crops(shown, compress(reduced, boxes), filter(None, boxes))
        found = iter(self._close.run(shown, crops) if crops else ())
        close = [next(found) if box else None for box in boxes]
        masks = self._planes.blend(start, blends, close)
        if self._refiner is not None:
            self._refine(self._refiner, start, frames, reduced, blends, masks)
        return masks

    def _refine(
        self,
        refiner: MaskRefiner,
        start: int,
        frames: Sequence[Frame],
        reduced: Sequence[AnalysisFrame],
        blends: Sequence[BlendWeights],
        masks: Sequence[Array],
    ) -> None:
        """Refine the masks in place, round each person."""
        planes = self._planes
        for mask in masks:
            planes.sharpen(mask)
        places = [(at, box) for at, blend in enumerate(blends) for box in blend.people]
        for first in range(0, len(places), planes.batch):
            part = places[first : first + planes.batch]
            boxes = [box for _, box in part]
            shown = [frames[at] for at, _ in part]
            crops = planes.crops(shown, [reduced[at] for at, _ in part], boxes)
            coarse = [masks[at][box.top : box.bottom, box.left : box.right] for at, box in part]
            refined = refiner.run(shown, crops, coarse)
            for found in (self._close.run(shown, crops), refined):
                for (at, box), mask in zip(part, found, strict=True):
                    planes.average(start + at, box, mask)

    def reset(self) -> None:
        self._begun = None
        self._scheduler.reset()

    def refresh(self) -> None:
        self.reset()

    def close(self) -> None:
        for network in (*self._whole, self._close):
            network.close()
        if self._refiner is not None:
            self._refiner.close()
