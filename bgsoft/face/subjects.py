"""Chooses the main people of a scene, and sticks with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bgsoft.face.base import Face, box_overlap
from bgsoft.frame import FrameFormat

__all__ = ["SubjectPicker"]

_SETTLE_SECONDS = 1.0
"""Time constant of a face's standing: who stays longest gets most, a passer-by little."""
_CHALLENGE_SECONDS = 1.0
"""A challenger has to lead for this long."""
_CHALLENGE_RATIO = 1.5
"""And by this much."""
_PATIENCE_SECONDS = 4.0
"""A main person whose face is out of sight (turned away) keeps the place for this long."""
_SAME_PLACE = 0.3
"""A new track over the place where a main person was last seen is that person again."""
_SAME_SIZE = 1.6
"""If the two differ in height by no more than this factor."""
_TRIAL_FRAMES = 3
"""A track that begins in the middle of a scene counts from this age on."""


@dataclass(slots=True)
class _Standing:
    face: Face
    seen_at: float
    value: float


class SubjectPicker:
    """Picks the most prominent faces: large, near the centre, there for long.

    Args:
        count: How many are main, 0 or more.
        format: Format of every frame.
    """

    def __init__(self, count: int, format: FrameFormat) -> None:
        self._count = count
        self._width, self._height = format.width, format.height
        self._standings: dict[int, _Standing] = {}
        self._main: list[int] = []
        self._led_since: float | None = None
        self._time: float | None = None

    def reset(self) -> None:
        """A new scene begins."""
        self._standings.clear()
        self._main.clear()
        self._led_since = None
        self._time = None

    @property
    def main(self) -> list[Face]:
        """The main faces where they were last seen, whether or not they are in sight now."""
        return [self._standings[id].face for id in self._main]

    def update(self, faces: Sequence[Face], seconds: float) -> set[int]:
        """Look at the next frame's faces; returns the ids of the main ones.

        Args:
            faces: The faces of the frame.
            seconds: Its time; never less than the last one's.
        """
        fresh = self._time is None
        elapsed = 0.0 if self._time is None else max(0.0, seconds - self._time)
        self._time = seconds
        weight = 1.0 if fresh else 1 - math.exp(-elapsed / _SETTLE_SECONDS)
        in_sight = {face.id: face for face in faces}
        self._inherit(in_sight, seconds)
        for id, face in in_sight.items():
            standing = self._standings.setdefault(id, _Standing(face, seconds, 0.0))
            standing.face = face
            standing.seen_at = seconds
        for id, standing in self._standings.items():
            now = self._prominence(standing.face) if id in in_sight else 0.0
            standing.value += weight * (now - standing.value)
        self._forget(seconds)
        self._fill(fresh, in_sight)
        self._challenge(in_sight, seconds)
        return set(self._main)

    def _prominence(self, face: Face) -> float:
        """Height of the face as a part of the frame's, up to halved with distance from the middle.

        Standing still in the corner, a face has to be twice as tall as one in the middle.
        """
        x0, y0, x1, y1 = face.box_xyxy
        dx = ((x0 + x1) / self._width - 1) / 2
        dy = ((y0 + y1) / self._height - 1) / 2
        central = max(0.0, 1 - 2 * math.hypot(dx, dy * 0.5))
        return (y1 - y0) / self._height * (0.5 + 0.5 * central)

    def _inherit(self, in_sight: dict[int, Face], seconds: float) -> None:
        """Give the place of a lost main person to a new track in that spot."""
        for at, id in enumerate(self._main):
            if id in in_sight:
                continue
            standing = self._standings[id]
            place = standing.face.box_xyxy
            new = [
                face
                for face in in_sight.values()
                if face.id not in self._standings and _alike(face.box_xyxy, place)
            ]
            best = max(new, key=lambda face: box_overlap(face.box_xyxy, place), default=None)
            if best is not None and box_overlap(best.box_xyxy, place) >= _SAME_PLACE:
                del self._standings[id]
                self._standings[best.id] = _Standing(best, seconds, standing.value)
                self._main[at] = best.id

    def _forget(self, seconds: float) -> None:
        for id, standing in list(self._standings.items()):
            if seconds - standing.seen_at > _PATIENCE_SECONDS:
                del self._standings[id]
                if id in self._main:
                    self._main.remove(id)

    def _fill(self, fresh: bool, in_sight: dict[int, Face]) -> None:
        """Give free places to the best who are in sight."""
        while len(self._main) < self._count:
            free = [
                id
                for id, face in in_sight.items()
                if id not in self._main and (fresh or face.age_frames >= _TRIAL_FRAMES)
            ]
            if not free:
                return
            self._main.append(max(free, key=lambda id: self._standings[id].value))

    def _challenge(self, in_sight: dict[int, Face], seconds: float) -> None:
        """Replace the weakest main person once somebody has clearly led for long enough."""
        others = [id for id in in_sight if id not in self._main]
        if not self._main or not others:
            self._led_since = None
            return
        best = max(others, key=lambda id: self._standings[id].value)
        weakest = min(self._main, key=lambda id: self._standings[id].value)
        if self._standings[best].value < _CHALLENGE_RATIO * self._standings[weakest].value:
            self._led_since = None
        elif self._led_since is None:
            self._led_since = seconds
        elif seconds - self._led_since >= _CHALLENGE_SECONDS:
            self._main[self._main.index(weakest)] = best
            self._led_since = None


def _alike(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    """Whether two boxes are about as high."""
    one, other = a[3] - a[1], b[3] - b[1]
    return one <= other * _SAME_SIZE and other <= one * _SAME_SIZE
