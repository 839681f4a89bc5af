"""Main people that the user names: by the id of a track, or by a place and a time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fractions import Fraction

from bgsoft.face.base import Face, hiding_ellipse
from bgsoft.media.info import VideoInfo
from bgsoft.records import NamedTuple
from bgsoft.settings.main import MainPerson, parse_main


class _Point(NamedTuple):
    """Where somebody is main."""

    text: str
    x: float
    y: float
    """Frame pixels."""
    seconds: float
    """In the frames' time."""


class ChosenPicker:
    """Gives the main people that were named, in place of a :class:`SubjectPicker`.

    A place names whoever's face is there at its time, or comes there first after it.

    Args:
        names: As ``--main`` takes them.
        ids: More, by the ids of their tracks.
        info: The video.
    """

    is_decided = True

    def __init__(self, names: Sequence[str], ids: Collection[int], info: VideoInfo) -> None:
        named = [parse_main(name) for name in names]
        self._ids = {*ids, *(each.id for each in named if each.id is not None)}
        self._open = [_place(each, info) for each in named if each.id is None]
        self._faces: dict[int, Face] = {}

    @property
    def main(self) -> Collection[int]:
        """Ids of the main faces so far."""
        return self._faces.keys()

    def update(self, faces: Sequence[Face], seconds: float) -> dict[int, Face]:
        """Return the main ones by id, where they were last seen, given the next frame's faces."""
        for point in [each for each in self._open if seconds >= each.seconds]:
            there = [face for face in faces if _is_at(face, point)]
            if there:
                self._ids.add(min(there, key=lambda face: _distance(face, point)).id)
                self._open.remove(point)
        self._faces |= {face.id: face for face in faces if face.id in self._ids}
        return dict(self._faces)

    def notices(self) -> list[str]:
        """Report, after the last frame, places where nobody was."""
        return [f"--main {point.text}: no face was found there" for point in self._open]

    def reset(self) -> None:
        """A new scene begins: who was seen before is nowhere yet."""
        self._faces = {}

    def cut(self) -> None:
        """A new scene may begin."""


def _place(named: MainPerson, info: VideoInfo) -> _Point:
    assert named.x is not None
    assert named.y is not None
    seconds = (named.seconds or Fraction(0)) + (info.start_pts or 0) * info.time_base
    x, y = named.x.pixels(info.format.width), named.y.pixels(info.format.height)
    return _Point(named.text, float(x), float(y), float(seconds) - 1e-6)


def _is_at(face: Face, point: _Point) -> bool:
    shape = hiding_ellipse(face)
    return abs(point.x - shape.x) <= shape.across and abs(point.y - shape.y) <= shape.along


def _distance(face: Face, point: _Point) -> float:
    shape = hiding_ellipse(face)
    return (point.x - shape.x) ** 2 + (point.y - shape.y) ** 2
