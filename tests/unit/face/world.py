"""A scripted world of faces: networks that show what it holds, and count what they are asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations
from typing import Any

import numpy as np

from bgsoft.face.base import Face
from bgsoft.face.detect import Detection
from bgsoft.face.finder import FaceFinder, FinderSettings
from bgsoft.face.geometry import box_iou
from bgsoft.face.landmarks import Mesh
from bgsoft.face.networks import resolve_detector
from bgsoft.face.warp import FrameRoi, FrameView
from bgsoft.frame import AnalysisFrame, Frame, FrameFormat
from tests.pictures import make_frame
from tests.unit.face import shapes

FORMAT = FrameFormat(width=1920, height=1080)
INPUT = resolve_detector().spec.width
CORNERS = np.array([[0, 0], [INPUT, INPUT]])
FRAME_MS = 40
FACE = 100.0
"""The side of a box, which is what shapes have unless told otherwise."""
ALWAYS = range(10_000)

Place = tuple[float, float]


@dataclass(frozen=True)
class Thing:
    """What there is to see: a face, or something else."""

    where: Callable[[int], Place | None]
    """Its centre in a frame; None: it is not there."""
    far: float = 0.9
    """Score in a view of the whole frame, or of a large part."""
    near: float = 0.95
    """Score in a view of its surroundings."""
    is_face: bool = True
    """By the landmark model."""


def still(x: float, y: float, frames: range = ALWAYS, **kind: Any) -> Thing:
    return Thing(lambda number: (x, y) if number in frames else None, **kind)


@dataclass
class World:
    """Implements :class:`bgsoft.face.networks.FaceNetworks`.

    What comes first hides the others. The detector sees what is cut by a quarter at most.
    """

    things: Sequence[Thing]
    looks_per_run: int = 1
    views: list[list[tuple[int, bool]]] = field(default_factory=list)
    """Of each call of the detector: each view's frame, and whether it is one from near."""
    squares: list[list[int]] = field(default_factory=list)
    """Of each call of the landmark model: each square's frame."""
    closed: bool = False

    def seen(self, number: int) -> list[tuple[Thing, Place]]:
        """What can be seen in a frame."""
        shown: list[tuple[Thing, Place]] = []
        for thing in self.things:
            place = thing.where(number)
            if place is not None and all(
                box_iou(box_around(place), box_around(other)) < 0.3 for _, other in shown
            ):
                shown.append((thing, place))
        return shown

    def detect(self, asked: Sequence[FrameView], min_score: float) -> list[list[Detection]]:
        call, answers = [], []
        for frame, grid, view in asked:
            left, top, right, bottom = shapes.in_frame(view, CORNERS).ravel()
            near = right - left < FORMAT.height / 2
            found = []
            for thing, place in self.seen(number_of(frame, grid)):
                box = box_around(place, FACE / 2)
                score = thing.near if near else thing.far
                inside = (box[:2] >= (left, top)).all() and (box[2:] <= (right, bottom)).all()
                if inside and score >= min_score:
                    found.append((score, place))
            found.sort(key=lambda each: -each[0])
            answers.append([*chain(*(shapes.seen(at, score=score) for score, at in found))])
            call.append((number_of(frame, grid), near))
        self.views.append(call)
        return answers

    def landmarks(self, asked: Sequence[FrameRoi]) -> list[Mesh]:
        points, presence = [], []
        for frame, grid, roi in asked:
            faces = [
                place
                for thing, place in self.seen(number_of(frame, grid))
                if thing.is_face and np.hypot(place[0] - roi.x, place[1] - roi.y) < roi.side / 4
            ]
            faces.sort(key=lambda place: np.hypot(place[0] - roi.x, place[1] - roi.y))
            points.append(shapes.mesh(*(faces[0] if faces else (roi.x, roi.y))))
            presence.append(1.0 if faces else 0.0)
        self.squares.append([number_of(frame, grid) for frame, grid, _ in asked])
        return shapes.meshes(points, presence)

    def start(self) -> None:
        """Nothing to run."""

    def close(self) -> None:
        self.closed = True


def number_of(frame: Frame, grid: AnalysisFrame) -> int:
    number = frame.pts // FRAME_MS
    assert grid.luma[0, 0] == number  # the frame's own
    return number


def box_around(place: Place, side: float = FACE) -> np.ndarray:
    return np.array([c + sign * side / 2 for sign in (-1, 1) for c in place])


class Watch:
    """A finder in a world, from the first frame on."""

    def __init__(self, *things: Thing, **settings: int) -> None:
        self.world = World(things)
        self.finder = FaceFinder(FORMAT, self.world, FinderSettings(**settings))
        self.next = 0
        self.planes = [np.zeros(s, np.uint8) for s in (FORMAT.luma_shape, FORMAT.chroma_shape)]

    def frames(self, count: int) -> tuple[list[Frame], list[AnalysisFrame]]:
        """The next ones."""
        numbers = range(self.next, self.next + count)
        self.next += count
        return [make_frame(FORMAT, *self.planes, FRAME_MS * n) for n in numbers], [
            AnalysisFrame(4, np.full((1, 1), n), np.zeros((1, 1, 2))) for n in numbers
        ]

    def batch(self, size: int) -> list[list[Face]]:
        """The faces of the next frames, found at once; a run takes as many looks."""
        self.world.looks_per_run = max(1, size)
        found = self.finder.find(*self.frames(size))
        assert len(found) == size
        for faces in found:
            check(faces)
        return found

    def run(self, count: int, size: int) -> list[list[Face]]:
        """The faces of so many frames, in batches; the last may be smaller."""
        found = []
        for first in range(0, count, size):
            found += self.batch(min(size, count - first))
        return found


def check(faces: Sequence[Face]) -> None:
    """No id twice, and no face twice."""
    assert len({face.id for face in faces}) == len(faces)
    for a, b in combinations(faces, 2):
        assert box_iou(a.box_xyxy, b.box_xyxy) <= 0.5


def centre(face: Face) -> Place:
    left, top, right, bottom = face.box_xyxy
    return (left + right) / 2, (top + bottom) / 2


def off(face: Face, place: Place | None) -> float:
    """Distance of a face from a place, in parts of its size."""
    assert place is not None
    return float(np.hypot(*np.subtract(centre(face), place))) / FACE
