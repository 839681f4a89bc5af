"""Conversion of a detector's raw output to the boxes in a frame."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bgsoft.errors import ModelError
from bgsoft.frame import FrameFormat
from bgsoft.models.boxes import BoxLayout
from bgsoft.models.catalog import ModelSpec
from bgsoft.records import NamedTuple

Boxes = NDArray[np.float64]
"""(N, 4): left, top, right and bottom."""

_MIN_SPREAD_PX = 8
"""Distance from the corner, input pixels. If all centres are nearer than this, they are shares of
the input or offsets in a grid. A YOLOX whose grid is decoded outside has offsets from -1.2 to 2.4.
"""
_ROUNDING = 0.01
"""Scores may be so far outside 0 to 1: half precision rounds."""
_MAX_BOXES = 1000
"""Largest number of boxes of a class in one frame. No scene shows as many plates or screens; noise
below the threshold of a detector does. Each is compared with those of the last half second. 1,000
resting boxes take 0.25 s a frame, and 1,000 that jump in every frame 1 s."""


class FoundBox(NamedTuple):
    """A thing that the detector sees."""

    name: str
    """Name of its class."""
    box: NDArray[np.float64]
    """(4,): left, top, right and bottom, frame pixels. It may reach over the frame's edge."""


class Letterbox(NamedTuple):
    """Place of a whole frame in a detector's input, between bars; input pixels."""

    left: int
    top: int
    width: int
    height: int
    x_scale: float
    """Frame pixels an input pixel."""
    y_scale: float

    @classmethod
    def of(cls, spec: ModelSpec, format: FrameFormat) -> Letterbox:
        """The place in the middle for frames of a format, enlarged or reduced."""
        scale = min(spec.width / format.width, spec.height / format.height)
        width = max(1, round(format.width * scale))
        height = max(1, round(format.height * scale))
        left, top = (spec.width - width) // 2, (spec.height - height) // 2
        return cls(left, top, width, height, format.width / width, format.height / height)

    def in_frame(self, boxes: Boxes) -> Boxes:
        """Return boxes of the input in frame pixels."""
        start = (self.left, self.top) * 2
        return (boxes - start) * ((self.x_scale, self.y_scale) * 2)


class BoxReader:
    """Reads the output of a detector, on the host.

    Args:
        spec: Contract of the detector.
        shape: Shape of its output.
        pictures: Pictures of a run.
        place: Place of the frame in its input.
        on_notice: Called once, if boxes are left out.

    Raises:
        ModelError: The output is not what the contract says.
    """

    def __init__(
        self,
        spec: ModelSpec,
        shape: tuple[int, ...],
        pictures: int,
        place: Letterbox,
        on_notice: Callable[[str], None] = lambda _text: None,
    ) -> None:
        assert spec.boxes is not None
        self._name, self._contract, self._place = spec.name, spec.boxes, place
        self._on_notice, self._leaves_out = on_notice, False
        self._check_shape(shape, pictures)
        classes = self._contract.classes
        self._hidden = [classes.index(name) for name in self._contract.hide]

    def _check_shape(self, shape: tuple[int, ...], pictures: int) -> None:
        layout, count = self._contract.layout, len(self._contract.classes)
        axes = {BoxLayout.YOLOV8: (1, "4 + classes, N"), BoxLayout.YOLOV5: (2, "N, 5 + classes")}
        text = f"cannot use detector {self._name}: its output has the shape {shape}"
        axis, form = axes[layout]
        if len(shape) != 3 or 0 in shape or shape[0] < pictures:
            raise ModelError(f"{text}, and layout {layout} is ({pictures}, {form})")
        if shape[axis] == layout.values(count):
            return
        fitting = [other for other, (at, _) in axes.items() if shape[at] == other.values(count)]
        advice = f"; layout = {fitting[0].value!r} fits" if fitting else "; correct [boxes] classes"
        raise ModelError(
            f"{text}, and layout {layout} with {count} classes has {layout.values(count)} numbers a"
            f" box, not {shape[axis]}{advice}"
        )

    def read(self, raw: NDArray[np.floating]) -> list[FoundBox]:
        """Return the boxes of the classes that are hidden, class by class.

        Boxes of negative width or height are left out.

        Args:
            raw: Output of one picture.

        Raises:
            ModelError: Scores are no probabilities, boxes are not in pixels, or there are too many.
        """
        contract = self._contract
        planes = raw if contract.layout is BoxLayout.YOLOV8 else raw.T
        low, high = planes[4:].min(), planes[4:].max()
        if not (low >= -_ROUNDING and high <= 1 + _ROUNDING):
            raise ModelError(
                f"cannot use detector {self._name}: its scores reach from {low:g} to {high:g}, and"
                " must be probabilities from 0 to 1; export it with its last sigmoid, and check"
                " [boxes] layout"
            )
        scores = planes[4:] if contract.layout is BoxLayout.YOLOV8 else planes[4] * planes[5:]
        scores = scores[self._hidden]
        best, top = scores.argmax(axis=0), scores.max(axis=0)
        found: list[FoundBox] = []
        for index, name in enumerate(contract.hide):
            at = np.flatnonzero((best == index) & (top >= contract.threshold))
            if at.size:
                at = at[top[at].argsort()[::-1]]
                x, y, width, height = planes[:4, at].astype(np.float64)
                boxes = np.stack(
                    [x - width / 2, y - height / 2, x + width / 2, y + height / 2], axis=1
                )
                if not np.isfinite(boxes).all():
                    text = "found a box without a finite place; nothing is hidden by guess"
                    raise ModelError(f"cannot use detector {self._name}: it {text}")
                joined = join_boxes(self._of_some_size(boxes), contract.nms)
                if len(joined) > _MAX_BOXES:
                    raise ModelError(
                        f"cannot use detector {self._name}: it finds {len(joined)} boxes of class"
                        f" {name!r} in one frame, and at most {_MAX_BOXES} are tracked; raise"
                        " [boxes] threshold"
                    )
                found += [FoundBox(name, box) for box in self._place.in_frame(joined)]
        if found and np.abs(planes[:2]).max() < _MIN_SPREAD_PX:
            raise ModelError(
                f"cannot use detector {self._name}: all its boxes lie within {_MIN_SPREAD_PX}"
                " pixels of a corner; export it with boxes in pixels of the input"
            )
        return found

    def _of_some_size(self, boxes: Boxes) -> Boxes:
        """Return the boxes without those of negative size."""
        is_box = (boxes[:, :2] <= boxes[:, 2:]).all(axis=1)
        if not (self._leaves_out or is_box.all()):
            self._leaves_out = True
            self._on_notice(
                f"detector {self._name} finds boxes of negative width or height, which are left"
                " out; check its export"
            )
        return boxes[is_box]


def join_boxes(boxes: Boxes, limit: float) -> Boxes:
    """Join boxes that overlap a better one: in doubt, all that any of them covers is hidden.

    Args:
        boxes: Best first.
        limit: Intersection over union beyond which two boxes are one.
    """
    size = boxes[:, 2:] - boxes[:, :2]
    # A box is compared only with those that begin near it: they are at most 1 / limit as long.
    low, high = boxes[:, :2] - size / limit, boxes[:, 2:]
    ways = []
    for axis in range(2):
        order = boxes[:, axis].argsort()
        begins = boxes[order, axis]
        first = begins.searchsorted(low[:, axis])
        ways.append((order, first, begins.searchsorted(high[:, axis], side="right")))
    order, first, end = min(ways, key=lambda way: (way[2] - way[1]).sum())
    free = np.ones(len(boxes), np.bool_)
    joined = []
    for at, box in enumerate(boxes):
        if free[at]:
            near = order[first[at] : end[at]]
            near = near[free[near]]
            same = np.append(near[overlaps(box, boxes[near]) > limit], at)
            free[same] = False
            joined.append(around(boxes[same]))
    return np.reshape(joined, (-1, 4))


def around(boxes: Boxes) -> NDArray[np.float64]:
    """Return the box around some boxes, (4,)."""
    return np.concatenate([boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)])


def overlaps(box: NDArray[np.float64], boxes: Boxes) -> NDArray[np.float64]:
    """Return a box's intersection over union with each of some boxes, (N,)."""
    low, high = np.maximum(box[:2], boxes[:, :2]), np.minimum(box[2:], boxes[:, 2:])
    both = (high - low).clip(0).prod(axis=1)
    either = (box[2:] - box[:2]).prod() + (boxes[:, 2:] - boxes[:, :2]).prod(axis=1) - both
    shares = np.zeros(len(boxes))
    np.divide(both, either, out=shares, where=either > 0)
    return shares
