"""Segmentation by several inference passes: two models over the whole frame, one over the people.

A small model sees a person better who fills its picture. So the general and the landscape model
find people in the whole frame, and the general model runs again on that part. The part is cut from
the frame's own planes and stretched to the model's square. The mask is the mean of the two whole
passes, averaged with the close one inside that part.

A video is divided into turns of :data:`TURN` frames. The first frame of a turn, or of a scene, has
the whole passes. They decide where people are, together with the last mask before it was refined,
which shows people whom they miss. If nobody is seen, close passes over parts of the frame search it
for small figures. Until the next turn the box stays, and every frame has a close pass there. What
the whole passes have found still counts where the picture stands still; where it moves, the close
pass counts alone.

``best`` adds three steps. Faces are detected at the first frame of a turn, so that nobody with a
visible face is missed. Closer passes see each head and shoulders, and each of several people.
Finally the part of the frame around each person, or around people who touch, is refined.

Turns are counted by the frames' places in the video, so the masks are the same for any number of
frames at a time, and in a chunk that is rendered alone. On a device, decisions wait for the whole
passes. So these are begun as soon as there are frames, before it is known whether a scene ends
among them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from bgsoft.frame import AnalysisFrame, Array, Frame
from bgsoft.records import dataclass
from bgsoft.segment.base import FaceBoxes, Segmenter
from bgsoft.segment.boxes import Box, Cells, Places, find_places, tiles
from bgsoft.segment.network import NetworkSegmenter
from bgsoft.segment.planes import GENERAL, LANDSCAPE, ONLY_CLOSE, Blend, ZoomPlanes

TURN = 4
"""Frames of a turn."""
_SURE = 0.8
"""Mask value that counts as a person in a pass over a part of the frame where nobody may be;
elsewhere it is 0.5."""


@dataclass(slots=True, eq=False)
class _Turn:
    """State that holds until the next turn."""

    index: int
    """Index of its first frame in the current batch."""
    slot: int
    """Slot that keeps its whole passes."""
    faces: Sequence[Box]
    places: Places
    shares: tuple[float, float] = (1.0, 1.0)
    """How much each whole pass counts."""


@dataclass(slots=True, eq=False)
class _Begun:
    """Readbacks that were sent for before the frames are segmented."""

    frames: list[Frame]
    turns: list[_Turn]
    cells: Callable[[], list[Cells]]
    """Returns the cells of each turn's pass of either model, and of the last frame's mask where a
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
        self._whole = (general, landscape)
        self._close = close
        self._planes = planes
        self._refiner, self._faces = refiner, faces
        every = general, landscape, close, refiner, faces
        self._networks = {each: None for each in every if each is not None}
        self._next_slot = 0
        self._begun: _Begun | None = None
        self._turn: _Turn
        self._last: int | None = None
        """Place in the video of the frame before; None: a scene begins."""
        self._last_mask: Array

    def start(self) -> None:
        for network in self._networks:
            network.start()

    def begin(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> None:
        planes = self._planes
        planes.watch(reduced)
        turns = self._turns(frames)
        kept: list[Array] = []
        first, seen = [frames[turn.index] for turn in turns], [reduced[t.index] for t in turns]
        for turn in turns:
            planes.keep_luma(turn.slot, turn.index)
        for network in (GENERAL, LANDSCAPE) if turns else ():
            with planes.around(network):
                model = self._whole[network]
                masks = model.run(first, model.shown(first, seen))
                for turn, mask in zip(turns, masks, strict=True):
                    kept.append(planes.keep(network, turn.slot, mask))
        if turns and turns[0].index == 0 and self._last is not None:
            kept.append(self._last_mask)
        cells = planes.read(kept)
        if self._faces is not None and turns:
            for turn, found in zip(turns, self._faces.find(first, seen), strict=True):
                turn.faces = [planes.on_grid(box) for box in found]
        self._begun = _Begun(list(frames), turns, cells)

    def _turns(self, frames: Sequence[Frame]) -> list[_Turn]:
        """The turns that begin in some frames."""
        turns: list[_Turn] = []
        last = self._last
        for index, frame in enumerate(frames):
            if last is None or last // TURN != frame.index // TURN:
                turns.append(_Turn(index, self._next_slot, (), Places()))
                self._next_slot = (self._next_slot + 1) % self._planes.slots
            last = frame.index
        return turns

    def masks(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> list[Array]:
        if self._begun is None or self._begun.frames != list(frames):
            self.begin(frames, reduced)
        begun: Any = self._begun
        self._begun = None
        cells, turns = begun.cells(), begun.turns
        first_of_turn = {turn.index: at for at, turn in enumerate(turns)}
        masks: list[Array] = []
        places: list[Places] = []
        for start, stop in pairwise(sorted({0, *first_of_turn, len(frames)})):
            at = first_of_turn.get(start)
            if at is not None:
                known = [cells[at], cells[at + len(turns)]]
                before = cells[2 * len(turns) :]
                if start:
                    before = self._planes.read(masks[-1:], later=True)()
                self._turn = turns[at]
                self._find(known, before, frames, reduced)
            masks += self._blend(frames, reduced, start, stop)
            places += [self._turn.places] * (stop - start)
        self._last, self._last_mask = frames[-1].index, masks[-1]
        if self._refiner is not None:
            # The next turn is decided by the mask as it is now, whether or not its frames are here.
            self._last_mask = masks[-1].copy()
            self._add([each.closer for each in places], frames, reduced)
            self._add([each.people for each in places], frames, reduced, self._refiner)
        return masks

    def _find(
        self,
        whole: Sequence[Cells],
        before: Sequence[Cells],
        frames: Sequence[Frame],
        reduced: Sequence[AnalysisFrame],
    ) -> None:
        """Find the people of a turn, by its whole passes and the mask before."""
        turn, grid = self._turn, self._planes.grid
        mean: Cells = (whole[GENERAL] + whole[LANDSCAPE]) / np.float32(2)
        mean = np.maximum.reduce([mean, *before])
        either = np.maximum.reduce([*whole, *before])
        turn.places = find_places(mean, either, turn.faces, grid)
        if turn.places.around is None:
            found = self._search(frames, reduced) * np.float32(0.5 / _SURE)
            mean, either = np.maximum(mean, found), np.maximum(either, found)
            turn.places = find_places(mean, either, turn.faces, grid)
        if turn.places.around == Box(0, 0, grid[1], grid[0]):
            # The close pass is a fresh whole one of the same model.
            turn.shares = (0.0, 1.0)

    def _search(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> Cells:
        """Cells of what close passes over all parts of a turn's first frame show."""
        planes, at, slot = self._planes, self._turn.index, self._turn.slot
        boxes = tiles(planes.grid)
        # Masks of frames that come later are free.
        free = len(frames) - at
        found: list[Cells] = []
        for first in range(0, len(boxes), free):
            part = boxes[first : first + free]
            shown = [frames[at]] * len(part)
            close = self._close.run(shown, planes.crops(shown, [reduced[at]] * len(part), part))
            blends = [Blend(at, slot, ONLY_CLOSE, box) for box in part]
            masks = planes.blend(at, blends, close)
            found += [cells.copy() for cells in planes.read(masks, later=True)()]
        return np.asarray(np.max(found, axis=0))

    def _blend(
        self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame], start: int, stop: int
    ) -> list[Array]:
        """The masks of some frames of a turn."""
        turn, planes = self._turn, self._planes
        box, part = turn.places.around, slice(start, stop)
        close: Sequence[Array | None] = [None] * (stop - start)
        if box is not None:
            crops = planes.crops(frames[part], reduced[part], [box] * (stop - start))
            close = self._close.run(frames[part], crops)
        blends = [Blend(index, turn.slot, turn.shares, box) for index in range(start, stop)]
        return planes.blend(start, blends, close)

    def _add(
        self,
        boxes: Sequence[Sequence[Box]],
        frames: Sequence[Frame],
        reduced: Sequence[AnalysisFrame],
        refiner: NetworkSegmenter | None = None,
    ) -> None:
        """Add a closer pass of each box of each frame to its mask, or refine it there."""
        planes = self._planes
        places = [(index, box) for index, of_frame in enumerate(boxes) for box in of_frame]
        for first in range(0, len(places), planes.batch):
            part = places[first : first + planes.batch]
            shown = [frames[index] for index, _ in part]
            seen = [reduced[index] for index, _ in part]
            crops = planes.crops(shown, seen, [box for _, box in part])
            change: Callable[[int, Box, Array], None] = planes.average
            if refiner is None:
                found = self._close.run(shown, crops)
            else:
                coarse = [planes.sharpened(index, box) for index, box in part]
                found, change = refiner.run(shown, crops, coarse), planes.refine
            for (index, box), other in zip(part, found, strict=True):
                change(index, box, other)

    def reset(self) -> None:
        self._begun = self._last = None

    def refresh(self) -> None:
        self.reset()

    def close(self) -> None:
        for network in self._networks:
            network.close()
