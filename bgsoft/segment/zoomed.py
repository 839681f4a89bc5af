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
while only: until then, close looks need not wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bgsoft.frame import Array, Frame, Proxy
from bgsoft.segment.base import Segmenter
from bgsoft.segment.rotation import GENERAL, LANDSCAPE, Box, Cells, Recipe, Rotation


class Looker(Protocol):
    """A model that looks at one picture at a time: a single-shot segmenter of either side."""

    name: str

    def start(self) -> None: ...

    def masks(
        self, frames: Sequence[Frame], grids: Sequence[Proxy], *, mirrored: bool = False
    ) -> Sequence[Array]:
        """As :meth:`bgsoft.segment.base.Segmenter.masks`, of whatever the grids show.

        Args:
            frames: For messages.
            grids: The pictures.
            mirrored: Show them to the model from left to right; masks are as without.
        """
        ...

    def close(self) -> None: ...


class ZoomSide(Protocol):
    """What is done to planes, on the side that the frames are on."""

    slots: int
    """Masks of each model that can be kept: in turn, so that what is still used when some frames
    come is not overwritten by as many looks at them; twice as many and one."""

    def keep(self, network: int, slot: int, mask: Array) -> Array:
        """Keep a whole look's mask, (h, w) float32; as what it returns, (gh, gw)."""
        ...

    def watch(
        self, grids: Sequence[Proxy], masks: Sequence[Array]
    ) -> tuple[list[Cells], list[Cells]]:
        """What decisions are made from, on the host; new arrays.

        Args:
            grids: Frames, for the cells of their luma in 8-bit codes.
            masks: (gh, gw) float32, for their cells.
        """
        ...

    def crops(self, frames: Sequence[Frame], boxes: Sequence[Box]) -> list[Proxy]:
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


class ZoomedSegmenter(Segmenter):
    """Masks from whole and close looks, on the host or on a device.

    Args:
        general: Looks at whole frames and at people.
        landscape: Looks at whole frames.
        side: Where the frames are.
        rotation: Decides which looks a frame has.
        mirrors: Every look is taken a second time, mirrored, and counts as the mean of both.
    """

    def __init__(
        self,
        general: Looker,
        landscape: Looker,
        side: ZoomSide,
        rotation: Rotation,
        *,
        mirrors: bool,
    ) -> None:
        self.name = general.name
        self._networks = (general, landscape)
        self._side = side
        self._rotation = rotation
        self._mirrors = mirrors
        self._next_slot = [0, 0]
        self._last: Array | None = None

    def start(self) -> None:
        for network in self._networks:
            network.start()

    def masks(self, frames: Sequence[Frame], grids: Sequence[Proxy]) -> list[Array]:
        """See :meth:`bgsoft.segment.base.Segmenter.masks`."""
        rotation = self._rotation
        due = rotation.due(len(frames))
        # Index of the frame, model, slot; and the masks.
        looks: list[tuple[int, int, int]] = []
        kept: list[Array] = []
        for network in (GENERAL, LANDSCAPE):
            indices = [index for index, networks in enumerate(due) if network in networks]
            taken = self._look_whole(
                network, [frames[i] for i in indices], [grids[i] for i in indices]
            )
            for index, (slot, mask) in zip(indices, taken, strict=True):
                looks.append((index, network, slot))
                kept.append(mask)
        last = [] if self._last is None or not rotation.wants_mask else [self._last]
        lumas, people = self._side.watch(grids, kept + last)
        if last:
            rotation.saw(people.pop())
        masks: list[Array] = []
        for start, stop in rotation.groups(len(frames)):
            if start:
                _, (cells_of_last,) = self._side.watch([], masks[-1:])
                rotation.saw(cells_of_last)
            recipes: list[Recipe] = []
            for index in range(start, stop):
                luma = lumas[index]
                for (at, network, slot), person in zip(looks, people, strict=True):
                    if at == index:
                        rotation.looked(network, slot, luma, person)
                if not due[index] and rotation.wants_look(luma):
                    self._look_again(frames[index], grids[index], luma)
                recipes.append(rotation.next(luma))
            close = self._look_closely(frames[start:stop], recipes)
            masks += self._side.blend(start, recipes, close)
        self._last = masks[-1]
        return masks

    def _look_whole(
        self, network: int, frames: Sequence[Frame], grids: Sequence[Proxy]
    ) -> list[tuple[int, Array]]:
        """The slots that the masks are kept in, and the masks."""
        taken = []
        for mask in self._look(network, frames, grids):
            slot = self._next_slot[network]
            self._next_slot[network] = (slot + 1) % self._side.slots
            taken.append((slot, self._side.keep(network, slot, mask)))
        return taken

    def _look_again(self, frame: Frame, grid: Proxy, luma: Cells) -> None:
        ((slot, mask),) = self._look_whole(GENERAL, [frame], [grid])
        _, (person,) = self._side.watch([], [mask])
        self._rotation.looked(GENERAL, slot, luma, person)

    def _look_closely(
        self, frames: Sequence[Frame], recipes: Sequence[Recipe]
    ) -> list[Array | None]:
        boxes = [(index, recipe.box) for index, recipe in enumerate(recipes) if recipe.box]
        shown = [frames[index] for index, _ in boxes]
        crops = self._side.crops(shown, [box for _, box in boxes])
        close: list[Array | None] = [None] * len(frames)
        masks = self._look(GENERAL, shown, crops)
        for (index, _), mask in zip(boxes, masks, strict=True):
            close[index] = mask
        return close

    def _look(
        self, network: int, frames: Sequence[Frame], grids: Sequence[Proxy]
    ) -> Sequence[Array]:
        if not frames:
            return []
        run = self._networks[network].masks
        if not self._mirrors:
            return run(frames, grids)
        masks = [mask.copy() for mask in run(frames, grids)]
        for mask, other in zip(masks, run(frames, grids, mirrored=True), strict=True):
            mask += other
            mask *= 0.5
        return masks

    def reset(self) -> None:
        self._rotation.reset()

    def renew(self) -> None:
        self._rotation.reset()

    def close(self) -> None:
        for network in self._networks:
            network.close()
