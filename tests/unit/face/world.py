"""A scripted world of faces: networks that return its faces, and record their calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from bgsoft.face.base import Face
from bgsoft.face.detect import Canvas, Canvases, Detection
from bgsoft.face.finder import FaceFinder, FinderSettings
from bgsoft.face.geometry import Affine, Box, Roi, box_iou
from bgsoft.face.networks import FramePair, Landmarks
from bgsoft.face.warp import FrameView
from bgsoft.frame import AnalysisFrame, Frame, FrameFormat
from tests.pictures import make_frame
from tests.unit.face import shapes

FORMAT = FrameFormat(width=1920, height=1080)
SCALE = 0.5
FRAME_MS = 40
FACE = 100.0
"""The side of a box, which is what shapes have unless told otherwise."""
ALWAYS = range(10_000)

Place = tuple[float, float]


@dataclass(frozen=True)
class Thing:
    """A visible thing: a face, or something else; its scores depend on how it is shown."""

    where: Callable[[int], Place | None]
    """Its centre in a frame; None: it is not there."""
    whole: float = 0.9
    half: float = 0.85
    turned: float = 0.3
    close: float = 0.95
    smoothed: float = 0.0
    """In the smoothed closer view."""
    fine: float | None = None
    """None: as ``whole``."""
    check: float = -1.3
    """By the other detector."""
    is_face: bool = True
    """Whether the landmark model sees a face."""
    size: float = FACE
    """Side of its box."""


def still(x: float, y: float, frames: range = ALWAYS, **kind: Any) -> Thing:
    return Thing(lambda number: (x, y) if number in frames else None, **kind)


@dataclass(frozen=True)
class Look:
    frame: int
    shown: str
    """whole, half, fine or turned."""
    quarters: int


@dataclass
class World:
    """Implements :class:`bgsoft.face.networks.FaceNetworks`; earlier things hide later ones."""

    things: Sequence[Thing]
    canvases: Canvases
    views_per_run: int = 1
    looks: list[Look] = field(default_factory=list)
    runs: int = 0
    """Calls of the detector for whole frames."""
    close_looks: list[int] = field(default_factory=list)
    """The frame of each closer view,"""
    smoothed_looks: list[int] = field(default_factory=list)
    """and of each smoothed one."""
    squares: list[int] = field(default_factory=list)
    """The frame of each square that the landmark model was shown."""
    closed: bool = False

    def seen(self, number: int) -> list[tuple[Thing, Place]]:
        shown: list[tuple[Thing, Place]] = []
        for thing in self.things:
            place = thing.where(number)
            if place is not None and all(
                box_iou(box_around(place), box_around(other)) < 0.3 for _, other in shown
            ):
                shown.append((thing, place))
        return shown

    def detect(
        self, canvas: Canvas, asked: Sequence[FrameView], min_score: float
    ) -> list[list[Detection]]:
        answers = []
        self.runs += 1
        for frame, grid, view in asked:
            quarters = quarters_of(view)
            shown = "turned"
            if not quarters:
                shown = self.canvases._fields[self.canvases.index(canvas)]
            number = number_of(frame, grid)
            self.looks.append(Look(number, shown, quarters))
            scores = [
                (thing.whole if score is None else score, thing, at)
                for thing, at in self.seen(number)
                for score in [getattr(thing, shown)]
            ]
            answers.append(detections(scores, min_score))
        return answers

    def detect_close(
        self,
        asked: Sequence[tuple[FramePair, Detection]],
        min_score: float,
        *,
        smoothed: bool = False,
    ) -> list[list[Detection]]:
        answers = []
        looks = self.smoothed_looks if smoothed else self.close_looks
        for (frame, grid), detection in asked:
            number = number_of(frame, grid)
            looks.append(number)
            near = [
                (thing.smoothed if smoothed else thing.close, thing, place)
                for thing, place in self.seen(number)
                if box_iou(detection.box, box_around(place)) > 0
            ]
            answers.append(detections(near, min_score))
        return answers

    def check(self, asked: Sequence[tuple[FramePair, Detection]]) -> list[float]:
        return [
            max(
                (
                    thing.check
                    for thing, place in self.seen(number_of(*pair))
                    if box_iou(detection.box, box_around(place)) > 0
                ),
                default=-2.0,
            )
            for pair, detection in asked
        ]

    def landmarks(self, asked: Sequence[tuple[FramePair, Roi]]) -> list[Landmarks | None]:
        points, presence = [], []
        for (frame, grid), roi in asked:
            number = number_of(frame, grid)
            self.squares.append(number)
            faces = [
                place
                for thing, place in self.seen(number)
                if thing.is_face and np.hypot(place[0] - roi.x, place[1] - roi.y) < roi.side / 4
            ]
            points.append(shapes.mesh(*(faces[0] if faces else (roi.x, roi.y))))
            presence.append(bool(faces))
        return shapes.meshes(points, presence)

    def start(self) -> None:
        """Nothing to run."""

    def close(self) -> None:
        self.closed = True


def detections(seen: Sequence[tuple[float, Thing, Place]], min_score: float) -> list[Detection]:
    """Detections with at least a score, best first."""
    found = [
        shapes.seen(place, size=thing.size, score=score)[0]
        for score, thing, place in seen
        if score >= min_score
    ]
    return sorted((each._replace(is_sure=False) for each in found), key=lambda each: -each.score)


def quarters_of(view: Affine) -> int:
    return [(1, 0), (0, 1), (-1, 0), (0, -1)].index(
        (round(view.xx / view.scale), round(view.yx / view.scale))
    )


def number_of(frame: Frame, grid: AnalysisFrame) -> int:
    number = frame.pts // FRAME_MS
    assert grid.luma[0, 0] == number  # the frame's own
    return number


def box_around(place: Place, side: float = FACE) -> Box:
    x, y = place
    return x - side / 2, y - side / 2, x + side / 2, y + side / 2


class Watch:
    def __init__(
        self,
        *things: Thing,
        first: int = 0,
        every: int | None = None,
        seconds: float = 0.13,
        most_frames: int = 300,
        **settings: Any,
    ) -> None:
        if every is not None:
            seconds, most_frames = math.inf, every
        chosen = FinderSettings(scale=SCALE, seconds=seconds, most_frames=most_frames, **settings)
        self.world = World(things, chosen.canvases(FORMAT))
        self.finder = FaceFinder(FORMAT, self.world, chosen)
        self.next = first
        self.planes = [np.zeros(s, np.uint8) for s in (FORMAT.luma_shape, FORMAT.chroma_shape)]

    def frames(self, count: int) -> tuple[list[Frame], list[AnalysisFrame]]:
        numbers = range(self.next, self.next + count)
        self.next += count
        return [make_frame(FORMAT, *self.planes, FRAME_MS * n) for n in numbers], [
            AnalysisFrame(4, np.full((1, 1), n), np.zeros((1, 1, 2))) for n in numbers
        ]

    def batch(self, size: int) -> list[list[Face]]:
        """The faces of the next frames, found at once; a run takes as many views."""
        self.world.views_per_run = max(1, size)
        found = self.finder.find(*self.frames(size))
        assert len(found) == len(self.finder.doubts) == size
        for faces in found:
            check(faces)
        return found

    def run(self, count: int, size: int = 1) -> list[list[Face]]:
        found = []
        for first in range(0, count, size):
            found += self.batch(min(size, count - first))
        return found

    def looked_at(self, shown: str = "whole") -> list[int]:
        """Return the frames that the detector was given in a view, each once."""
        return sorted({look.frame for look in self.world.looks if look.shown == shown})


def check(faces: Sequence[Face]) -> None:
    """Assert that no id and no detected face occurs twice."""
    assert len({face.id for face in faces}) == len(faces)
    for a, b in combinations((face for face in faces if face.detected), 2):
        assert box_iou(a.box_xyxy, b.box_xyxy) <= 0.5


def centre(face: Face) -> Place:
    left, top, right, bottom = face.box_xyxy
    return (left + right) / 2, (top + bottom) / 2


def off(face: Face, place: Place | None) -> float:
    """Distance of a face from a place, in parts of its size."""
    assert place is not None
    return float(np.hypot(*np.subtract(centre(face), place))) / FACE
