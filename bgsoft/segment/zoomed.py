"""Segmentation by several looks at a frame: two models at all of it, then one at the people.

A small model sees a person better who fills its picture. So what the general and the landscape
model find in the whole frame says where people are, and the general model looks again at that part,
cut from the frame's own planes and stretched to its square. The mask is the mean of the two whole
looks, averaged with the close one where that reaches.

In a video the whole looks can take turns: what they saw is still true where the picture stands
still, and where it moves the close look, which every frame has, counts alone. What remembers
(:mod:`bgsoft.segment.rotation`) decides frame after frame; all looks that are known beforehand are
taken side by side, so the masks are the same for any number of frames at a time. What the masks
themselves show, which tells better than the whole looks where people are, is fed back once in a
while only: until then, close looks need not wait for each other. As often, where nobody is to be
seen for sure, close looks at parts of the frame search it for small figures.

On a device, what is decided waits for what the whole looks have shown. So those that are due in any
case are begun as soon as there are frames, before it is known whether a scene ends among them; and
the models are run on as many pictures as there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from bgsoft.frame import AnalysisFrame, Array, Frame
from bgsoft.segment.base import Segmenter
from bgsoft.segment.rotation import GENERAL, LANDSCAPE, Box, Cells, Recipe, Rotation, tiles


class Looker(Protocol):
    """A model that looks at one picture at a time: a single-shot segmenter of either side."""

    name: str

    def start(self) -> None: ...

    def masks(
        self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame], *, mirrored: bool = False
    ) -> Sequence[Array]:
        """As :meth:`bgsoft.segment.base.Segmenter.masks`, of whatever the reduced show.

        Args:
            frames: For messages.
            reduced: The pictures.
            mirrored: Show them to the model from left to right; masks are as without.
        """
        ...

    def close(self) -> None: ...


class ZoomSide(Protocol):
    """What is done to planes, on the side that the frames are on."""

    slots: int
    """Masks of each model that can be kept: in turn, so that what is still used when some frames
    come is not overwritten by as many looks at them; twice as many and one."""

    def watch(self, reduced: Sequence[AnalysisFrame]) -> None:
        """Take the cells of the luma of the frames at hand, in 8-bit codes."""
        ...

    def apart(self) -> AbstractContextManager[None]:
        """Around whole looks of the general model: other work may go on beside them until
        :meth:`read`."""
        ...

    def keep(self, network: int, slot: int, index: int, mask: Array) -> Array:
        """Keep what a whole look leaves.

        Args:
            network: Whose look.
            slot: Where.
            index: Of the frame among those at hand.
            mask: (h, w) float32.

        Returns:
            The mask, (gh, gw) float32, until the slot is used again.
        """
        ...

    def read(self, masks: Sequence[Array], lumas: int = 0) -> Callable[[], list[Cells]]:
        """Send for what decisions are made from, on the host.

        Args:
            masks: (gh, gw) float32, for their cells.
            lumas: Frames at hand whose luma is wanted, too.

        Returns:
            Waits for them: the frames' cells, then the masks'; overwritten by later calls.
        """
        ...

    def crops(self, frames: Sequence[Frame], boxes: Sequence[Box]) -> list[AnalysisFrame]:
        """Parts of frames, for the general model; overwritten by the next call."""
        ...

    def blend(
        self, first: int, recipes: Sequence[Recipe], close: Sequence[Array | None]
    ) -> list[Array]:
        """The masks of some frames.

        Args:
            first: Index of the first among those at hand.
            recipes: What they are made of.
            close: (h, w) float32, the close looks' masks.

        Returns:
            (gh, gw) float32, each stretched over its whole frame; overwritten by the next call for
            the same index.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class _Begun:
    """What has been sent for before the frames are segmented."""

    frames: list[Frame]
    slots: list[int]
    """Where masks were to be kept before."""
    due: list[tuple[int, ...]]
    looks: list[tuple[int, int, int]]
    """Index of the frame, model, slot."""
    cells: Callable[[], list[Cells]]
    """Of the frames, of the looks, and of the last frame's mask where that is wanted."""
    has_last: bool


class ZoomedSegmenter(Segmenter):
    """Masks from whole and close looks, on the host or on a device.

    Args:
        general: Looks at whole frames.
        landscape: Looks at whole frames.
        close: Looks at people: the general model, too.
        side: Where the frames are.
        rotation: Decides which looks a frame has.
        mirrors: Every look is taken a second time, mirrored, and counts as the mean of both.
    """

    def __init__(
        self,
        general: Looker,
        landscape: Looker,
        close: Looker,
        side: ZoomSide,
        rotation: Rotation,
        *,
        mirrors: bool,
    ) -> None:
        self.name = close.name
        self._whole = (general, landscape)
        self._close = close
        self._side = side
        self._rotation = rotation
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
        self._drop_begun()
        side, rotation = self._side, self._rotation
        due = rotation.due([frame.index for frame in frames])
        slots = self._next_slot.copy()
        looks: list[tuple[int, int, int]] = []
        kept: list[Array] = []
        side.watch(reduced)
        for network in (GENERAL, LANDSCAPE):
            indices = [index for index, networks in enumerate(due) if network in networks]
            for index, slot, mask in self._look_whole(network, indices, frames, reduced):
                looks.append((index, network, slot))
                kept.append(mask)
        last = [self._last] if rotation.wants_mask(frames[0].index) else []
        cells = side.read(kept + last, lumas=len(frames))
        return _Begun(list(frames), slots, due, looks, cells, bool(last))

    def _drop_begun(self) -> None:
        if self._begun is not None:
            self._next_slot = self._begun.slots
            self._begun = None

    def masks(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> list[Array]:
        """See :meth:`bgsoft.segment.base.Segmenter.masks`."""
        begun = self._begun
        if begun is None or begun.frames != list(frames):
            begun = self._begin(frames, reduced)
        self._begun = None
        rotation = self._rotation
        cells = begun.cells()
        lumas, people = cells[: len(frames)], cells[len(frames) :]
        if begun.has_last:
            rotation.saw(people.pop())
        masks: list[Array] = []
        for start, stop in rotation.groups([frame.index for frame in frames]):
            if start:
                (cells_of_last,) = self._side.read(masks[-1:])()
                rotation.saw(cells_of_last)
            recipes: list[Recipe] = []
            for index in range(start, stop):
                luma = lumas[index]
                for (at, network, slot), person in zip(begun.looks, people, strict=True):
                    if at == index:
                        rotation.looked(network, slot, luma, person)
                if not begun.due[index] and rotation.wants_look(luma):
                    self._look_again(index, frames, reduced, luma)
                if rotation.wants_scan(frames[index].index, luma):
                    rotation.scanned(self._scan(index, start, frames, luma))
                recipes.append(rotation.next(frames[index].index, luma))
            close = self._look_closely(frames[start:stop], recipes)
            masks += self._side.blend(start, recipes, close)
        self._last = masks[-1]
        return masks

    def _look_whole(
        self,
        network: int,
        indices: Sequence[int],
        frames: Sequence[Frame],
        reduced: Sequence[AnalysisFrame],
    ) -> list[tuple[int, int, Array]]:
        """Index of the frame, slot and mask of each look that is kept."""
        taken: list[tuple[int, int, Array]] = []
        if not indices:
            return taken
        with self._side.apart() if network == GENERAL else nullcontext():
            masks = self._look(
                self._whole[network], [frames[i] for i in indices], [reduced[i] for i in indices]
            )
            for index, mask in zip(indices, masks, strict=True):
                slot = self._next_slot[network]
                self._next_slot[network] = (slot + 1) % self._side.slots
                taken.append((index, slot, self._side.keep(network, slot, index, mask)))
        return taken

    def _look_again(
        self, index: int, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame], luma: Cells
    ) -> None:
        ((_, slot, mask),) = self._look_whole(GENERAL, [index], frames, reduced)
        (person,) = self._side.read([mask])()
        self._rotation.looked(GENERAL, slot, luma, person)

    def _scan(self, index: int, start: int, frames: Sequence[Frame], luma: Cells) -> Cells:
        """What close looks at all parts of a frame show; masks from ``start`` on come later."""
        side, rotation = self._side, self._rotation
        boxes, most = tiles(rotation.grid), len(frames) - start
        found: list[Cells] = []
        for first in range(0, len(boxes), most):
            part = boxes[first : first + most]
            shown = [frames[index]] * len(part)
            close = self._look(self._close, shown, side.crops(shown, part))
            recipes = [rotation.look_at(box, luma) for box in part]
            found += [cells.copy() for cells in side.read(side.blend(start, recipes, close))()]
        people: Cells = np.max(found, axis=0)
        return people

    def _look_closely(
        self, frames: Sequence[Frame], recipes: Sequence[Recipe]
    ) -> list[Array | None]:
        boxes = [(index, recipe.box) for index, recipe in enumerate(recipes) if recipe.box]
        shown = [frames[index] for index, _ in boxes]
        crops = self._side.crops(shown, [box for _, box in boxes])
        close: list[Array | None] = [None] * len(frames)
        masks = self._look(self._close, shown, crops)
        for (index, _), mask in zip(boxes, masks, strict=True):
            close[index] = mask
        return close

    def _look(
        self, network: Looker, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]
    ) -> Sequence[Array]:
        if not frames:
            return []
        if not self._mirrors:
            return network.masks(frames, reduced)
        masks = [mask.copy() for mask in network.masks(frames, reduced)]
        for mask, other in zip(masks, network.masks(frames, reduced, mirrored=True), strict=True):
            mask += other
            mask *= 0.5
        return masks

    def reset(self) -> None:
        self._drop_begun()
        self._rotation.reset()

    def refresh(self) -> None:
        self.reset()

    def close(self) -> None:
        for network in (*self._whole, self._close):
            network.close()
