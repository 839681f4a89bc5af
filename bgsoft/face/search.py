"""Where in a frame faces are looked for, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bgsoft.face.geometry import Affine, frame_from_tile, letterbox, tiles
from bgsoft.face.warp import View
from bgsoft.frame import FrameFormat

__all__ = ["PATIENCE", "SURE_SCORE", "FinderSettings", "Searches"]

SURE_SCORE = 0.8
"""From here on the detector is believed of a place where it was wrong before,"""
PATIENCE = 4
"""or after so many searches: something on a shirt may look like a face for minutes."""

_HALF_SHAPE = 1.2
"""Frames longer than this are shown as squares of their short side, too: a face of a tenth of it,
108 pixels at 1080p, is 13 pixels high in the detector's input."""
_SMALL_TILES = (0.72, 0.27)
"""Tile sides as parts of the frame's short side: faces of 10 % and 3.7 % of it, 108 and 40 pixels
at 1080p, are 18 pixels high in the detector's input."""
_SHARED = 0.2
_NEAR = 3.0
"""Side of what the detector is shown of one face, over the face's: in a small face the eyes are off
by half their distance, and much that is no face looks like one from afar."""
_HALVES_EVERY = 2
"""Searches from one with the squares to the next."""
_CLEAR_PART = 0.3
"""A face of this part of the detector's input needs no look from near."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinderSettings:
    """How faces are looked for."""

    detect_every: int = 8
    """Frames between runs of the detector while all faces are followed safely."""
    small_faces: bool = False
    """Look for small faces, too, by showing the detector parts of the frame."""
    small_every: int = 32
    """Frames between searches for small faces; the first after a reset always is one."""
    rest_every: int = 1
    """Frames between runs of the landmark model on a face that hardly moves; it is carried on in
    those between."""
    max_faces: int = 32
    """Followed at a time."""
    min_score: float = 0.5
    """Of a new face's detection, at the second look."""
    min_first_score: float = 0.3
    """Of a detection in a whole view that is worth a second look, or, frame by frame, confirms a
    face that is followed."""

    def __post_init__(self) -> None:
        if min(self.detect_every, self.small_every, self.rest_every, self.max_faces) < 1:
            raise ValueError("detect_every, small_every, rest_every, max_faces must be 1 or more")
        if not 0 < self.min_first_score <= self.min_score < 1:
            raise ValueError("scores must be in (0, 1), the first look's at most the other")


class Searches:
    """What the detector is shown of each frame.

    Args:
        format: Format of the frames.
        settings: How to look.
        size: Side of the detector's input, pixels.
    """

    def __init__(self, format: FrameFormat, settings: FinderSettings, size: int) -> None:
        self._settings = settings
        self._size = size
        width, height = format.width, format.height
        self._whole = View(letterbox(width, height, size).inverse(), False)
        short = min(width, height)
        halves = [1.0] if max(width, height) > _HALF_SHAPE * short else []
        small = _SMALL_TILES if settings.small_faces else ()
        # Views, and the frames from one time that they are due to the next.
        self._parts = [
            (self._tiles(format, halves), _HALVES_EVERY * settings.detect_every),
            (self._tiles(format, small), settings.small_every),
        ]
        self.clear_side = _CLEAR_PART * size * self._whole.frame_from_input.scale
        """Longer side in frame pixels from which a face needs no look from near."""
        self.reset()

    def _tiles(self, format: FrameFormat, parts: Sequence[float]) -> list[View]:
        """Views of squares, whose sides are parts of the frame's short side."""
        width, height = format.width, format.height
        return [
            View(frame_from_tile(tile, self._size), False)
            for part in parts
            if part * min(width, height) >= self._size / 2  # enlarging further shows nothing new
            for tile in tiles(width, height, part * min(width, height), _SHARED)
        ]

    def reset(self) -> None:
        """Everything is due."""
        self._since = self._settings.detect_every
        self._waited = [every for _, every in self._parts]
        """Frames since the parts were last shown."""

    def take(self, wanted: bool) -> list[View]:
        """The views of the next frame; none where no search is due.

        Args:
            wanted: Look at the whole frame, due or not.
        """
        self._since += 1
        self._waited = [waited + 1 for waited in self._waited]
        due = [
            bool(views) and waited > every
            for (views, every), waited in zip(self._parts, self._waited, strict=True)
        ]
        if not wanted and not any(due) and self._since < self._settings.detect_every:
            return []
        self._since = 0
        shown = [self._whole]
        for index, is_due in enumerate(due):
            if is_due:
                shown += self._parts[index][0]
                self._waited[index] = 1
        return shown

    def near(self, box: Sequence[float]) -> View:
        """One face and its surroundings.

        Args:
            box: (4,) left, top, right, bottom, frame pixels.
        """
        left, top, right, bottom = box
        side = max(right - left, bottom - top) * _NEAR
        x, y, scale = (left + right - side) / 2, (top + bottom - side) / 2, side / self._size
        return View(Affine.scaling(scale, scale, x, y), False)
