"""Chooses the main people of a scene, and separates them in the matte from others, on the host.

Connected regions of the matte belong to the faces in them. Where main and other people share a
region it is cut between them; a region without a face keeps the person it had.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Sequence
from itertools import compress
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.base import analysis_factor, analysis_shape
from bgsoft.face.base import Face, square_of
from bgsoft.face.geometry import box_iou
from bgsoft.face.guard import EXPECTED_SAMPLES, Plane8
from bgsoft.face.people import PATIENCE_SECONDS, Picker, prominence
from bgsoft.face.track import MIN_AGREEMENT
from bgsoft.frame import FrameFormat
from bgsoft.records import dataclass

_STANDING_SECONDS = 1.0
"""Time constant of a face's standing: who stays longest gets most, a passer-by little."""
_CHALLENGE_RATIO, _CHALLENGE_SECONDS = 1.5, 1.0
"""A challenger has to lead by this factor, for this long."""


@dataclass(slots=True, eq=False)
class _Standing:
    face: Face
    """Where it was last seen, and"""
    seen_at: float
    """when."""
    value: float = 0.0


class SubjectPicker(Picker):
    """Picks the most prominent faces: large, near the centre, there for long."""

    def __init__(self, count: int, format: FrameFormat) -> None:
        self._count, self._format = count, format
        self.reset()

    def reset(self) -> None:
        self._standings: dict[int, _Standing] = {}
        self._main: list[_Standing] = []
        self.main = ()
        self._led_since: float | None = None
        self._time: float | None = None

    def update(
        self, faces: Sequence[Face], seconds: float, until: float = -math.inf
    ) -> dict[int, Face]:
        elapsed = math.inf if self._time is None else max(0.0, seconds - self._time)
        self._time = seconds
        weight = 1 - math.exp(-elapsed / _STANDING_SECONDS)
        self._inherit(faces)
        for face in faces:
            standing = self._standings.setdefault(face.id, _Standing(face, seconds))
            standing.face, standing.seen_at = face, seconds
        for standing in self._standings.values():
            is_seen = standing.seen_at == seconds
            now = prominence(standing.face, self._format) if is_seen else 0.0
            standing.value += weight * (now - standing.value)
        self._standings = {
            id: each
            for id, each in self._standings.items()
            if seconds - each.seen_at <= PATIENCE_SECONDS
        }
        self._main = [each for each in self._main if each.face.id in self._standings]
        others = [each for face in faces if (each := self._standings[face.id]) not in self._main]
        others.sort(key=lambda each: -each.value)
        free = max(0, self._count - len(self._main))
        self._main += others[:free]
        self._challenge(others[free:], seconds)
        main = {each.face.id: each.face for each in self._main}
        self.main = main.keys()
        return main

    def _inherit(self, faces: Sequence[Face]) -> None:
        """Give the place of a lost main person to a new track in that spot."""
        in_sight = {face.id for face in faces}
        new = [face for face in faces if face.id not in self._standings]
        for lost in [each for each in self._main if each.face.id not in in_sight]:
            shared = [box_iou(face.box_xyxy, lost.face.box_xyxy) for face in new]
            if shared and max(shared) >= MIN_AGREEMENT:
                again = new.pop(shared.index(max(shared)))
                self._standings[again.id] = self._standings.pop(lost.face.id)

    def _challenge(self, others: Sequence[_Standing], seconds: float) -> None:
        """Replace the weakest main person once somebody has clearly led for long enough."""
        weakest = min(self._main, key=lambda each: each.value, default=None)
        if weakest is None or not others or others[0].value < _CHALLENGE_RATIO * weakest.value:
            self._led_since = None
        elif self._led_since is None:
            self._led_since = seconds
        elif seconds - self._led_since >= _CHALLENGE_SECONDS:
            self._main[self._main.index(weakest)] = others[0]
            self._led_since = None


_SKIRT = 4.0 / 135.0
"""Reach of soft alpha from a region's contour, in parts of half the grid's short side."""
_FALL = 64
"""Steps of 255 a frame by which somebody who is no longer kept fades."""
_STAYS = 0.5
"""A region without a face is kept if this part of it was kept in the last frame."""
_BODY = 1.0
"""A region without a face is part of a main person's body within this many face widths of it."""


class MatteSeparator:
    """Divides the mattes of one scene; holds what was kept last."""

    def __init__(self, format: FrameFormat) -> None:
        rows, columns = analysis_shape(format.width, format.height)
        half = (-(-rows // 2), -(-columns // 2))
        self._shape = (rows, columns)
        self._scale = 1.0 / (2 * analysis_factor(format.width, format.height))
        self._labels: NDArray[Any] = np.zeros(half, np.int32)
        self._kept = np.zeros(half, np.uint8)
        side = 2 * max(1, round(_SKIRT * min(half))) + 1
        self._skirt = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (side, side))
        self._x = np.arange(half[1], dtype=np.float32)[np.newaxis] + np.float32(0.5)
        self._y = np.arange(half[0], dtype=np.float32)[:, np.newaxis] + np.float32(0.5)
        self.is_fresh = True
        """Nothing of this scene is known: without a main face all of it is to be kept."""
        self._limit: Plane8 = np.zeros((2 * half[0], 2 * half[1]), np.uint8)

    def separate(
        self, matte: Plane8, main: Sequence[Face], others: Sequence[Face]
    ) -> tuple[Plane8, bool]:
        """Divide the next frame's matte.

        Args:
            matte: (gh, gw) uint8.
            main: The faces to keep, where they are or were last seen.
            others: The other faces of the frame.

        Returns:
            (gh, gw) uint8, what the matte must not exceed; and whether main and other people are in
            one region, which was cut between them by nearness.
        """
        small = cv2.resize(matte, self._kept.shape[::-1], interpolation=cv2.INTER_AREA)
        _, binary = cv2.threshold(small, 127, 255, cv2.THRESH_BINARY)
        count, self._labels = cv2.connectedComponents(binary, connectivity=8)
        is_shared = self._choose(count, main, others)
        # Soft alpha around what is kept stays, too.
        gone = cv2.subtract(binary, self._kept)
        near = cv2.blur(cv2.subtract(cv2.dilate(self._kept, self._skirt), gone), (3, 3))
        size = self._limit.shape[::-1]
        enlarged = cv2.resize(near, size, interpolation=cv2.INTER_LINEAR)
        faded = cv2.subtract(self._limit, np.full(1, _FALL, np.uint8))
        self._limit = np.maximum(faded, enlarged)
        self.is_fresh = False
        return self._limit[: self._shape[0], : self._shape[1]], is_shared

    def _choose(self, count: int, main: Sequence[Face], others: Sequence[Face]) -> bool:
        """Choose which cells are kept; return whether a region is shared."""
        in_main, in_other = self._regions_of(main, count), self._regions_of(others, count)
        has_main, has_other = in_main.any(axis=0), in_other.any(axis=0)
        stay: NDArray[Any] = np.array(has_main)
        faceless = np.flatnonzero(~has_main & ~has_other)[1:].tolist()  # but the background
        if faceless:
            own, foreign = self._distance(main), self._distance(others)
        for region in faceless:
            inside = self._labels == region
            kept_before = not self.is_fresh and self._kept[inside].mean() >= 255 * _STAYS
            distance = float(np.median(own[inside]))
            is_body = distance <= min(_BODY, float(np.median(foreign[inside])))
            stay[region] = kept_before or is_body
        self._kept = np.where(stay, np.uint8(255), np.uint8(0))[self._labels]
        shared = np.flatnonzero(has_main & has_other).tolist()
        for region in shared:
            rivals = [*compress(main, in_main[:, region])]
            strangers = [*compress(others, in_other[:, region])]
            farther = self._distance(rivals) > self._distance(strangers)
            self._kept[(self._labels == region) & farther] = 0
        return bool(shared)

    def _regions_of(self, faces: Sequence[Face], count: int) -> NDArray[np.bool_]:
        """The regions that faces lie in: (faces, count), at least a tenth of a face in each."""
        found: NDArray[Any] = np.zeros((len(faces), count), np.bool_)
        across, down = EXPECTED_SAMPLES
        height, width = self._labels.shape
        for at, face in enumerate(faces):
            x, y, side, angle = square_of(face.box_xyxy, face.angle)
            places = complex(x, y) + cmath.rect(side, angle) * (across + 1j * down)
            columns, rows = self._scale * places.real, self._scale * places.imag
            inside = (columns >= 0) & (columns < width) & (rows >= 0) & (rows < height)
            cells = self._labels[rows[inside].astype(int), columns[inside].astype(int)]
            found[at] = 10 * np.bincount(cells, minlength=count) >= max(1, len(cells))
        found[:, 0] = False  # the background
        return found

    def _distance(self, faces: Sequence[Face]) -> NDArray[np.float32]:
        """From each cell to the nearest body axis, in face widths: (h, w) float32.

        Below the face distances shrink to half, as shoulders are wider than heads.
        """
        nearest = np.full(self._kept.shape, np.inf, np.float32)
        for face in faces:
            x0, y0, x1, y1 = (value * self._scale for value in face.box_xyxy)
            width, middle = max(1.0, x1 - x0), (x0 + x1) / 2
            above = np.maximum(0.0, (y0 + y1) / 2 - self._y)
            below = np.clip((self._y - y1) / width, 0.0, 1.0)
            # All but the sum depends on the row or on the column alone.
            squared = np.square(self._x - middle) + np.square(above)
            squared *= np.square(1.0 / (width * (1.0 + below)))
            np.minimum(nearest, squared, out=nearest)
        return np.sqrt(nearest, out=nearest)
