"""Segmentation by several inference passes: two models over the whole frame, one over the people.

A small model sees a person better who fills its picture. So the general and the landscape model
find people in the whole frame, and the general model runs again on that part. The part is cut from
the frame's own planes and stretched to the model's square.

A video is divided into turns of :data:`TURN` frames. The first frame of a turn, or of a scene,
decides where people are until the next turn. Each pass, and the figures of ``best`` without it:

==============================  =======================================  =====  =====  =====
pass                            why it is there                            IoU    p10      F
==============================  =======================================  =====  =====  =====
(all)                                                                    0.918  0.871  0.819
whole frame, landscape model    both models miss different people        0.909  0.836  0.805
round all people, every frame   the mask; people fill the picture            -      -      -
whole frame, earlier in a turn  steadiness, where the picture is still       -      -      -
mask of the last frame          keeps people whom whole passes miss          -      -      -
six tiles, if nobody is found   finds small figures                          -      -      -
``best``: faces                 people whom the mask misses              0.916  0.868  0.815
``best``: head and shoulders    hair, necks, people seen faintly         0.916  0.868  0.815
``best``: each of several       each as large as a single person         0.917  0.852  0.817
``best``: refiner, each person  edges, arms and legs                     0.913  0.834  0.802
==============================  =======================================  =====  =====  =====

IoU, its 10th percentile and boundary F are those of 81 photographs, which say nothing of the rows
without figures: they show one person, at rest. ``docs/models.md`` has more, also of moving people.

The mask is the weighted mean of these passes (:mod:`bgsoft.segment.planes`). Whole passes count
where the picture has not changed since. Next, ``best`` averages it with closer passes, and with the
refined mask. Where people are is decided by the mask before that (:mod:`bgsoft.segment.boxes`).

Turns are counted by the frames' places in the video, so the masks are the same for any number of
frames at a time, and in a chunk that is rendered alone. On a device, decisions wait for the whole
passes. So these are begun as soon as there are frames, before it is known whether a scene ends
among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np

from bgsoft.frame import AnalysisFrame, Array, Frame
from bgsoft.records import dataclass
from bgsoft.segment.base import FaceBoxes, Segmenter
from bgsoft.segment.boxes import Box, Cells, Places, find_places, tiles
from bgsoft.segment.network import NetworkSegmenter
from bgsoft.segment.planes import CLOSER, MIN_WEIGHT, REFINED, Whole, ZoomPlanes

TURN = 4
"""Frames of a turn."""
_SURE = 0.8
"""Mask value that counts as a person in a pass over a part of the frame where nobody may be;
elsewhere it is 0.5."""


@dataclass(slots=True, eq=False)
class _Turn:
    """The first frame of a turn."""

    index: int
    """Its index in the current batch."""
    masks: Sequence[Array] = ()
    """(gh, gw) of the general and of the landscape model."""
    faces: Sequence[Box] = ()


@dataclass(slots=True, eq=False)
class _Begun:
    """Readbacks that were sent for before the frames are segmented."""

    frames: list[Frame]
    turns: list[_Turn]
    cells: Callable[[], list[Cells]]
    """Returns the cells of both models' passes of each turn, and of the last frame's mask where a
    turn ends there."""


class ZoomedSegmenter(Segmenter):
    """Masks from whole and close passes, on the host or on a device.

    Args:
        general, landscape: Run on whole frames.
        close: Runs on people: the general model, too.
        planes: Planes on the frames' host or device.
        refiner: Refines the masks; None: they stay unchanged.
        faces: Detects faces; None: none are detected.
    """

    def __init__(
        self,
        general: NetworkSegmenter,
        landscape: NetworkSegmenter,
        close: NetworkSegmenter,
        planes: ZoomPlanes,
        refiner: NetworkSegmenter | None = None,
        faces: FaceBoxes | None = None,
    ) -> None:
        self.name = close.name
        self._general, self._landscape, self._close = general, landscape, close
        self._refiner, self._faces = refiner, faces
        every = general, landscape, close, refiner, faces
        self._networks = {each: None for each in every if each is not None}
        self._planes = planes
        self._begun: _Begun | None = None
        self._whole: Whole
        """Whole passes of this turn,"""
        self._places: Places
        """and where it has people."""
        self._last: int | None = None
        """Place in the video of the frame before; None: a scene begins."""
        self._last_mask: Array

    def start(self) -> None:
        for network in self._networks:
            network.start()

    def begin(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> None:
        planes, last = self._planes, self._last
        planes.watch(reduced)
        turns: list[_Turn] = []
        for index, frame in enumerate(frames):
            if last is None or last // TURN != frame.index // TURN:
                turns.append(_Turn(index))
            last = frame.index
        masks: list[Array] = []
        if turns:
            first, seen = [frames[turn.index] for turn in turns], [reduced[t.index] for t in turns]
            with planes.aside():
                general = self._whole_passes(self._general, first, seen)
            landscape = self._whole_passes(self._landscape, first, seen)
            for turn, *both in zip(turns, general, landscape, strict=True):
                turn.masks = both
                masks += both
            if turns[0].index == 0 and self._last is not None:
                masks.append(self._last_mask)
        cells = planes.read(masks)
        if self._faces is not None and turns:
            for turn, found in zip(turns, self._faces.find(first, seen), strict=True):
                turn.faces = [planes.box_of(face) for face in found]
        self._begun = _Begun(list(frames), turns, cells)

    def _whole_passes(
        self, model: NetworkSegmenter, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]
    ) -> list[Array]:
        masks = model.run(frames, model.shown(frames, reduced))
        return [self._planes.on_grid(mask) for mask in masks]

    def masks(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> list[Array]:
        if self._begun is None or self._begun.frames != list(frames):
            self.begin(frames, reduced)
        begun: Any = self._begun
        self._begun = None
        cells = begun.cells()
        masks = self._planes.masks[: len(frames)]
        closer: list[tuple[int, Box]] = []
        people: list[tuple[int, Box]] = []
        starts = {turn.index: at for at, turn in enumerate(begun.turns)}
        for start, stop in pairwise(sorted({0, *starts, len(frames)})):
            at = starts.get(start)
            if at is not None:
                before = cells[2 * len(starts) :]
                if start:
                    before = self._planes.read(masks[start - 1 : start], later=True)()
                known = cells[2 * at : 2 * at + 2]
                self._begin_turn(begun.turns[at], known, before, frames, reduced)
            indices, box = range(start, stop), self._places.around
            close: Sequence[Array | None] = [None] * len(indices)
            if box is not None:
                passes = self._passes(self._close, [*product(indices, [box])], frames, reduced)
                close = [mask for _, mask in passes]
            self._planes.blend(masks[start:stop], indices, self._whole, box, close)
            closer += product(indices, self._places.closer)
            people += product(indices, self._places.people)
        self._last, self._last_mask = frames[-1].index, masks[-1]
        if self._refiner is not None:
            # The next turn is decided by the present mask, whether or not its frames are here.
            self._last_mask = masks[-1].copy()
            for (index, box), other in self._passes(self._close, closer, frames, reduced):
                self._planes.average(masks[index], box, other, *CLOSER)
            for (index, box), other in self._passes(self._refiner, people, frames, reduced):
                self._planes.average(masks[index], box, other, *REFINED)
        return masks

    def _begin_turn(
        self,
        turn: _Turn,
        whole: Sequence[Cells],
        before: Sequence[Cells],
        frames: Sequence[Frame],
        reduced: Sequence[AnalysisFrame],
    ) -> None:
        """Find the people of a turn, by its whole passes and the mask before."""
        grid = self._planes.grid
        mean: Cells = (whole[0] + whole[1]) / np.float32(2)
        mean = np.maximum.reduce([mean, *before])
        either = np.maximum.reduce([*whole, *before])
        places = find_places(mean, either, turn.faces, grid)
        if places.around is None:
            found = self._search(turn, frames, reduced) * np.float32(0.5 / _SURE)
            mean, either = np.maximum(mean, found), np.maximum(either, found)
            places = find_places(mean, either, turn.faces, grid)
        # A close pass of the whole frame is a fresh whole one of the general model.
        is_whole = places.around == Box(0, 0, grid[1], grid[0])
        self._places = places
        self._whole = self._planes.whole(turn.index, turn.masks[is_whole:])

    def _search(
        self, turn: _Turn, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]
    ) -> Cells:
        """Return the cells of close passes over all parts of a turn's first frame."""
        planes, (_, landscape) = self._planes, turn.masks
        places = [(turn.index, box) for box in tiles(planes.grid)]
        masks = [landscape.copy() for _ in places]
        passes = self._passes(self._close, places, frames, reduced)
        for mask, ((_, box), close) in zip(masks, passes, strict=True):
            planes.average(mask, box, close, box.weight(planes.grid) / MIN_WEIGHT)
        return np.asarray(np.max(planes.read(masks, later=True)(), axis=0))

    def _passes(
        self,
        network: NetworkSegmenter,
        places: Sequence[tuple[int, Box]],
        frames: Sequence[Frame],
        reduced: Sequence[AnalysisFrame],
    ) -> Iterator[tuple[tuple[int, Box], Array]]:
        """Run a network on parts of frames, each by a frame's index and a box.

        Yields:
            Each part with its mask; overwritten after a batch of parts.
        """
        planes = self._planes
        for first in range(0, len(places), planes.batch):
            part = places[first : first + planes.batch]
            shown = [frames[index] for index, _ in part]
            seen = [reduced[index] for index, _ in part]
            crops = planes.crops(shown, seen, [box for _, box in part])
            coarse = None
            if network is self._refiner:
                coarse = [planes.sharpened(planes.masks[index], box) for index, box in part]
            yield from zip(part, network.run(shown, crops, coarse), strict=True)

    def reset(self) -> None:
        self._begun = self._last = None

    refresh = reset

    def close(self) -> None:
        for network in self._networks:
            network.close()
