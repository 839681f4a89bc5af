"""Hides what a detector finds: boxes are found before compositing, and hidden after it.

Every frame is searched. A box is hidden a little larger than it was found. Where it is not found
again, its place stays hidden for :data:`HOLD_SECONDS`: where it was found last, and all the way to
where it would have moved. A scene cut ends that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bgsoft.detect.boxes import FoundBox, around, overlaps
from bgsoft.detect.detector import Detector
from bgsoft.frame import Frame
from bgsoft.hide.hider import Hider
from bgsoft.hide.plan import HidePlan, Rectangle, whole_samples
from bgsoft.hide.record import HiddenPlace, HiddenRecord
from bgsoft.models.catalog import ResolvedModel
from bgsoft.ops.placement import HOST, Placement
from bgsoft.records import dataclass
from bgsoft.threads import LanePool

HOLD_SECONDS = 0.5
"""How long a box is hidden after it was found last. A video of 25 frames a second shows 12 in it.
"""
_GROWTH = 0.1
"""By how much a box grows at least, as a part of its size: detectors' boxes are a little off."""
_LEAST_GROWTH_PX = 2.0
"""The same in frame pixels each way, for small boxes."""
_LEAST_SECONDS = 1e-3
"""Frames closer than this do not tell how fast a box is."""
_SAME = 0.1
"""Intersection over union from which a box is one that was there before."""


@dataclass(slots=True, eq=False)
class _Held:
    """A box that was found not long ago."""

    name: str
    box: NDArray[np.float64]
    """Where it was found last, frame pixels."""
    seconds: float
    """When that was."""
    speed: NDArray[np.float64] | None = None
    """Of each of its sides, pixels a second: half of it is the last movement. None: found once."""

    def moved(self, seconds: float) -> NDArray[np.float64]:
        """Return where it would be at a time."""
        return self.box if self.speed is None else self.box + self.speed * (seconds - self.seconds)


class BoxHolder:
    """Adds boxes that were missed to those that were found, for frames in order."""

    def __init__(self) -> None:
        self._held: list[_Held] = []

    def update(self, found: Sequence[FoundBox], seconds: float) -> list[FoundBox]:
        """Return the boxes that are not found in the frame of this time, and still hidden."""
        before = [each for each in self._held if seconds - each.seconds <= HOLD_SECONDS]
        now = []
        for name, box in found:
            same = [each for each in before if each.name == name]
            shares = overlaps(box, np.reshape([each.moved(seconds) for each in same], (-1, 4)))
            one = _Held(name, box, seconds)
            if len(same) and shares.max() >= _SAME:
                last = same[int(shares.argmax())]
                before.remove(last)
                speed = (box - last.box) / max(seconds - last.seconds, _LEAST_SECONDS)
                one.speed = speed if last.speed is None else (last.speed + speed) / 2
            now.append(one)
        self._held = now + before
        return [
            FoundBox(each.name, around(np.stack([each.box, each.moved(seconds)])))
            for each in before
        ]

    def reset(self) -> None:
        """Forget all boxes."""
        self._held = []


class DetectorStep:
    """Hides what a detector finds in the frames of a render.

    Args:
        detector: Closed with this.
        model: What it runs.
        plan: How places are hidden.
        placement: Where frames are.
        pool: Threads that hide places; one lane per frame.
    """

    def __init__(
        self,
        detector: Detector,
        model: ResolvedModel,
        plan: HidePlan,
        pool: LanePool,
        placement: Placement = HOST,
    ) -> None:
        self._detector, self._model = detector, model
        self._plan, self._pool = plan, pool
        self._hider, self._holder = Hider(plan, placement), BoxHolder()
        self.record = HiddenRecord("detector")
        self._boxes, self._held, self._frames = Counter[str](), Counter[str](), Counter[str]()
        self._hidden_frames = 0
        self.start, self.find, self.close = detector.start, detector.find, detector.close

    def hide(self, frames: Sequence[Frame], found: Sequence[Sequence[FoundBox]]) -> None:
        """Hide boxes of the next composited frames of a scene, in place."""
        places = [*map(self._places, frames, found)]
        self._pool.map(self._hide, frames, places)

    def _hide(self, _lane: int, frame: Frame, places: Sequence[HiddenPlace]) -> None:
        self._hider.apply(frame, [place.box for place in places])

    def reset(self) -> None:
        """The next frame begins a new scene."""
        self._holder.reset()

    def _places(self, frame: Frame, found: Sequence[FoundBox]) -> list[HiddenPlace]:
        held = self._holder.update(found, frame.time_seconds)
        self._boxes.update(name for name, _ in found)
        self._held.update(name for name, _ in held)
        self._frames.update({name for name, _ in (*found, *held)})
        self._hidden_frames += bool(found or held)
        places = [
            HiddenPlace(place, name)
            for name, box in (*found, *held)
            if (place := self._place(box)) is not None
        ]
        self.record.add(frame, places)
        return places

    def _place(self, box: NDArray[np.float64]) -> Rectangle | None:
        """The enlarged box, to whole samples of chroma; None: outside the frame."""
        low, high = box[:2], box[2:]
        size = high - low
        growth = np.maximum(_GROWTH * size / 2, _LEAST_GROWTH_PX) + self._plan.margin * size / 2
        edge = self._plan.format.width, self._plan.format.height
        low, high = (low - growth).clip(0, edge), (high + growth).clip(0, edge)
        if (low >= high).any():
            return None
        return whole_samples(*low.tolist(), *high.tolist())

    def notices(self) -> list[str]:
        """Return messages about what was missed; call it after the last frame."""
        if self._boxes:
            return []
        return [f"detector {self._model.spec.name} found nothing to hide: check the result"]

    def summary(self) -> dict[str, Any]:
        """Plain JSON types for the report.

        ``frames`` have something hidden. Of each class, ``boxes`` were found, ``held`` were hidden
        where they were found before, and ``frames`` show any of these.
        """
        contract = self._model.spec.boxes
        assert contract is not None
        return {
            "model": self._model.spec.name,
            "sha256": self._model.sha256,
            "licence": self._model.spec.licence,
            "frames": self._hidden_frames,
            "classes": {
                name: {
                    "boxes": self._boxes[name],
                    "held": self._held[name],
                    "frames": self._frames[name],
                }
                for name in contract.hide
            },
        }
