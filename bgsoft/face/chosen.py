"""Main people that the user selects by the id of a track, or by a place and a time."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from fractions import Fraction

from bgsoft.face.base import Face, hiding_ellipse
from bgsoft.face.people import Picker
from bgsoft.media.info import VideoInfo
from bgsoft.records import NamedTuple
from bgsoft.settings.main import MainPerson, parse_main


class _Point(NamedTuple):
    """A place and time that selects a main person."""

    text: str
    x: float
    y: float
    """Frame pixels."""
    seconds: float
    """Presentation time of frames, which may not start at 0."""


class ChosenPicker(Picker):
    """The selected main people, instead of those that a :class:`SubjectPicker` finds.

    A place selects the face that is there at its time, or the first that comes there later.

    Args:
        names: Values of ``--main``.
        ids: Ids of further tracks.
        info: The video.
    """

    def __init__(self, names: Sequence[str], ids: Collection[int], info: VideoInfo) -> None:
        named = [parse_main(name) for name in names]
        self._unseen = {each.id for each in named if each.id is not None}
        """Ids that were named and have not been seen."""
        self._ids = {*ids, *self._unseen}
        self._open = [_place(each, info) for each in named if each.id is None]
        self._faces: dict[int, Face] = {}

    def update(self, faces: Sequence[Face], seconds: float) -> dict[int, Face]:
        for point in [each for each in self._open if seconds >= each.seconds]:
            distances = [(_distance(face, point), face.id) for face in faces]
            distance, id = min(distances, default=(math.inf, 0))
            if distance <= 1:
                self._ids.add(id)
                self._open.remove(point)
        self._unseen -= {face.id for face in faces}
        self._faces |= {face.id: face for face in faces if face.id in self._ids}
        self.main = self._faces.keys()
        return dict(self._faces)

    def notices(self) -> list[str]:
        places = [f"--main {point.text}: no face was found there" for point in self._open]
        tracks = [f"--main {id}: no frame shows that track" for id in sorted(self._unseen)]
        return places + tracks

    def reset(self) -> None:
        self._faces = {}
        self.main = ()


def _place(named: MainPerson, info: VideoInfo) -> _Point:
    assert named.x is not None
    assert named.y is not None
    seconds = (named.seconds or Fraction(0)) + (info.start_pts or 0) * info.time_base
    x, y = named.x.pixels(info.format.width), named.y.pixels(info.format.height)
    return _Point(named.text, float(x), float(y), float(seconds) - 1e-6)


def _distance(face: Face, point: _Point) -> float:
    """Return how far a place is from a face's middle; 1 at the edge of its hidden place."""
    shape = hiding_ellipse(face)
    return max(abs(point.x - shape.x) / shape.across, abs(point.y - shape.y) / shape.along)
