"""Hides what a detector finds: boxes are found before compositing, and hidden after it.

Every frame is searched. A box is hidden a little larger than it was found. Where it is not found
again, its place stays hidden for :data:`HOLD_SECONDS`: where it was found last, and all the way to
where it would have moved. A scene cut ends that.

The speed of a box follows from all frames in which it was found. No frame may depend on the distant
past, so :meth:`DetectorStep.refresh` begins a second memory. It takes over once it knows all finds
of the last :data:`HOLD_SECONDS`.
"""

from __future__ import annotations

import math
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
"""Least growth of a box, as a part of its size: detectors' boxes are a little off."""
_MIN_GROWTH_PX = 2.0
"""Least growth in frame pixels each way, for small boxes."""
_MIN_SECONDS = 1e-3
"""Frames closer than this do not tell how fast a box is."""
_SAME = 0.1
"""Intersection over union from which a box is one that was there before."""


@dataclass(slots=True, eq=False)
class _Held:
    """A box that was found not long ago."""

    name: str
    box: NDArray[np.float64]
    """Place of the last detection, frame pixels."""
    seconds: float
    """When that was."""
    speed: NDArray[np.float64] | None = None
    """Speed of each of its sides, pixels a second: half of it is the last movement. None: it was
    found once."""
    is_found: bool = False
    """It was found again, in a later frame."""

    def moved(self, seconds: float) -> NDArray[np.float64]:
        """Return where it would be at a time."""
        return self.box if self.speed is None else self.box + self.speed * (seconds - self.seconds)


class _Memory:
    """Boxes that were found not long ago, from one frame on."""

    def __init__(self, seconds: float) -> None:
        self.began = seconds
        """Time of that frame."""
        self._held: list[_Held] = []

    def update(self, found: Sequence[FoundBox], seconds: float) -> list[FoundBox]:
        """Return the boxes that are not found in the frame of this time, and still hidden."""
        before = [each for each in self._held if seconds - each.seconds <= HOLD_SECONDS]
        moved = np.reshape([each.moved(seconds) for each in before], (-1, 4))
        named = {name: np.array([each.name == name for each in before]) for name, _ in found}
        now = []
        for name, box in found:
            one = _Held(name, box, seconds)
            shares = overlaps(box, moved) * named[name] if before else np.zeros(1)
            if shares.max() >= _SAME:
                at = int(shares.argmax())
                last, named[name][at] = before[at], False
                speed = (box - last.box) / max(seconds - last.seconds, _MIN_SECONDS)
                one.speed = speed if last.speed is None else (last.speed + speed) / 2
                last.is_found = True
            now.append(one)
        missed = [each for each in before if not each.is_found]
        self._held = now + missed
        return [
            FoundBox(each.name, around(np.stack([each.box, each.moved(seconds)])))
            for each in missed
        ]


class BoxHolder:
    """Adds boxes that were missed to those that were found, for frames in order."""

    def __init__(self) -> None:
        self._memories: list[_Memory] = []
        self._begins = True

    def update(self, found: Sequence[FoundBox], seconds: float) -> list[FoundBox]:
        """Return the boxes that are not found in the frame of this time, and still hidden."""
        if self._begins:
            self._memories.append(_Memory(seconds))
            self._begins = False
        while len(self._memories) > 1 and seconds - self._memories[1].began >= HOLD_SECONDS:
            del self._memories[0]
        held, *_ = [memory.update(found, seconds) for memory in self._memories]
        return held

    def refresh(self) -> None:
        """Begin to forget all but what is found from the next frame on."""
        self._begins = True

    def reset(self) -> None:
        """Forget all boxes."""
        self._memories, self._begins = [], True


class DetectorStep:
    """Hides what a detector finds in the frames of a render.

    Args:
        detector: Closed with this.
        model: Model of the detector.
        plan: How places are hidden.
        placement: Host or device of the frames.
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
        self.trim_start = -math.inf
        """Pts before which frames are not hidden and not counted."""
        self.refresh, self.reset = self._holder.refresh, self._holder.reset
        self.start, self.find, self.close = detector.start, detector.find, detector.close

    def hide(self, frames: Sequence[Frame], found: Sequence[Sequence[FoundBox]]) -> None:
        """Hide boxes of the next composited frames of a scene, in place."""
        kept = [*filter(None, map(self._places, frames, found))]
        self._pool.map(self._hide, kept)

    def _hide(self, _lane: int, kept: tuple[Frame, Sequence[HiddenPlace]]) -> None:
        frame, places = kept
        self._hider.apply(frame, [place.box for place in places])

    def _places(
        self, frame: Frame, found: Sequence[FoundBox]
    ) -> tuple[Frame, list[HiddenPlace]] | None:
        """Return a frame with what is hidden in it; None before :attr:`trim_start`."""
        held = self._holder.update(found, frame.time_seconds)
        if frame.pts < self.trim_start:
            return None
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
        return frame, places

    def _place(self, box: NDArray[np.float64]) -> Rectangle | None:
        """The enlarged box, to whole samples of chroma; None: outside the frame."""
        low, high = box[:2], box[2:]
        size = high - low
        growth = np.maximum(_GROWTH * size / 2, _MIN_GROWTH_PX) + self._plan.margin * size / 2
        edge = self._plan.format.width, self._plan.format.height
        low, high = (low - growth).clip(0, edge), (high + growth).clip(0, edge)
        if (low >= high).any():
            return None
        return whole_samples(*low.tolist(), *high.tolist())

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


def joined_summary(summaries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the summaries of consecutive parts of a video as one."""
    classes = {
        name: {key: sum(each["classes"][name][key] for each in summaries) for key in counts}
        for name, counts in summaries[0]["classes"].items()
    }
    frames = sum(each["frames"] for each in summaries)
    return {**summaries[0], "frames": frames, "classes": classes}


def warnings(summary: dict[str, Any]) -> list[str]:
    """Return messages about what was missed in a whole video."""
    if any(counts["boxes"] for counts in summary["classes"].values()):
        return []
    return [f"detector {summary['model']} found nothing to hide"]
