"""Hidden places of each frame.

A frame is judged together with those that follow it. A face is hidden:

- where it is seen;
- between two sightings, on the way from one to the other, also across cuts;
- after the last sighting, where it was going, for a moment;
- before the first one, where it came from, back to the cut.

In doubt a place is hidden.

The figures of the rules are shares of faces of which a tenth or more is visible. They were measured
in clips of moving people, with a finder that is blind for 9 of 27 frames. With all rules it is
5.6 %, without lookahead 18.8 %, without interpolation 7.7 %.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from bgsoft.face.base import Face, hiding_ellipse
from bgsoft.face.geometry import Box, box_area, shared_area
from bgsoft.hide.plan import Ellipse
from bgsoft.records import NamedTuple

_HOLD_SECONDS = 0.7
"""A face that is out of sight stays hidden for this long. Without: 15.5 %,"""
_CARRIED_SECONDS = 0.3
"""and moves on for so long. With 0: 10.8 %."""
_GROWTH, _MAX_GROWTH = 0.6, 1.3
"""A place grows by this factor each second, as nobody knows where the face is. Without: 8.7 %."""
_SAME_FACE = 0.5
"""A face in sight that covers this much of an expected place is the one that is expected. Without,
a fifth more of the frame is hidden in gaps."""


_UNIFORM = 0.8
"""Between two sightings, a face that has not gone evenly may be where it was going after the first,
or where it came from before the second. Both are hidden, where less than this part of them is."""


class _Place(NamedTuple):
    """A place where a face is, or may be."""

    ellipse: Ellipse
    box: Box

    def moved(self, dx: float, dy: float, growth: float) -> _Place:
        left, top, right, bottom = self.box
        box = left + dx, top + dy, right + dx, bottom + dy
        return _Place(self.ellipse.moved(dx, dy, growth), box)

    def towards(self, other: _Place, share: float) -> _Place:
        """Return the place that has gone this share (0–1) of the way to another."""

        def between(a: float, b: float) -> float:
            return a + (b - a) * share

        one, two = self.ellipse, other.ellipse
        angle = math.atan2(one.sin, one.cos)
        # Turned by half a circle an ellipse is the same.
        angle += share * math.remainder(math.atan2(two.sin, two.cos) - angle, math.pi)
        names = ("x", "y", "across", "along")
        sizes = {name: between(getattr(one, name), getattr(two, name)) for name in names}
        ellipse = Ellipse(cos=math.cos(angle), sin=math.sin(angle), **sizes)
        left, top, right, bottom = map(between, self.box, other.box)
        return _Place(ellipse, (left, top, right, bottom))

    def is_covered(self, others: Collection[_Place], part: float = _SAME_FACE) -> bool:
        """Return whether one of other places takes such a part of it."""
        min_area = part * box_area(self.box)
        return any(shared_area(self.box, other.box) >= min_area for other in others)


class FrameFaces:
    """The faces that are seen in one frame."""

    def __init__(
        self,
        faces: Sequence[Face],
        shown: Collection[int],
        seconds: float,
        scene: int = 0,
        is_decided: bool = True,
    ) -> None:
        self.places = {
            face.id: _Place(hiding_ellipse(face), face.box_xyxy) for face in faces if face.detected
        }
        self.proven = frozenset(face.id for face in faces if face.is_proven)
        """Ids of faces that one closer view alone does not vouch for."""
        self.shown = frozenset(shown)
        """Ids that are not to be hidden."""
        self.seconds = seconds
        self.scene = scene
        """Cuts so far."""
        self.is_decided = is_decided
        """Later frames of the scene do not change who is shown."""

    def hidden(self) -> Iterator[tuple[int, _Place]]:
        """Return id and place of each face that is to be hidden."""
        return ((id, place) for id, place in self.places.items() if id not in self.shown)


class _Sighting(NamedTuple):
    """A face in the frame where it was seen last, or will be seen first."""

    place: _Place
    frame: FrameFaces
    velocity: tuple[float, float] = (0.0, 0.0)
    """Frame pixels a second."""

    @classmethod
    def of(cls, id: int, frame: FrameFaces, other: _Sighting | None) -> _Sighting:
        """Return the sighting in a frame; another one gives the velocity."""
        place = frame.places[id]
        if other is None or other.frame.seconds == frame.seconds:
            return cls(place, frame)
        passed = frame.seconds - other.frame.seconds
        one, two = other.place.ellipse, place.ellipse
        return cls(place, frame, ((two.x - one.x) / passed, (two.y - one.y) / passed))

    def carried(self, seconds: float) -> _Place:
        """Return the expected place at a time before or after."""
        passed = seconds - self.frame.seconds
        growth = min(1 + _GROWTH * abs(passed), _MAX_GROWTH)
        passed = min(passed, _CARRIED_SECONDS)
        return self.place.moved(passed * self.velocity[0], passed * self.velocity[1], growth)


class HiddenFaces:
    """Remembers where faces that are hidden were seen last."""

    def __init__(self) -> None:
        self._last: dict[int, _Sighting] = {}

    def update(self, now: FrameFaces, coming: Sequence[FrameFaces]) -> list[Ellipse]:
        """Return the ellipses to hide in the next frame, by its faces and those after it."""
        last = self._last
        proven = now.proven.union(last, *(frame.proven for frame in coming))
        if coming:  # else nothing speaks against a single view
            now.places = {id: place for id, place in now.places.items() if id in proven}
        for id in now.shown & last.keys():
            del last[id]
        hidden = dict(now.hidden())
        for id in hidden:
            last[id] = _Sighting.of(id, now, last.get(id))
        places = [*hidden.values()]
        for id in last.keys() - hidden.keys():
            after = self._after(id, now, coming)
            places += after
            if not after:
                del last[id]
        places += self._before(now, coming, proven)
        return [place.ellipse for place in places]

    def _after(self, id: int, now: FrameFaces, coming: Sequence[FrameFaces]) -> list[_Place]:
        """Return where a face may be that was seen before; nowhere: it is gone.

        A shown face in its place ends nothing: in doubt it is hidden for a moment, too.
        """
        last = self._last[id]
        onwards = last.carried(now.seconds)
        for at, end in enumerate(coming):
            if id in end.places:
                span = max(end.seconds - last.frame.seconds, 1e-9)
                share = (now.seconds - last.frame.seconds) / span
                place = last.place.towards(end.places[id], min(max(share, 0.0), 1.0))
                others = onwards, _first(id, at, coming, last.velocity).carried(now.seconds)
                return [place, *(o for o in others if not o.is_covered([place], _UNIFORM))]
        is_over = now.seconds - last.frame.seconds > _HOLD_SECONDS
        is_over = is_over or last.frame.scene != now.scene
        is_over = is_over or onwards.is_covered([each for _, each in now.hidden()])
        return [] if is_over else [onwards]

    def _before(
        self, now: FrameFaces, coming: Sequence[FrameFaces], proven: Collection[int]
    ) -> Iterator[_Place]:
        """Return where faces may be that will be seen for the first time.

        Where the way back meets a face in sight, it is that face under another id, or was behind
        it. Who is shown from the start is left out.
        """
        known = {*now.places, *self._last}
        for at, frame in enumerate(coming):
            if frame.scene != now.scene:
                return
            for id in (frame.places.keys() & proven) - known:
                known.add(id)
                first = _first(id, at, coming)
                if id not in frame.shown and not any(
                    first.carried(each.seconds).is_covered(each.places.values())
                    for each in (now, *coming[:at])
                ):
                    yield first.carried(now.seconds)


def _first(
    id: int,
    at: int,
    coming: Sequence[FrameFaces],
    velocity: tuple[float, float] = (0.0, 0.0),
) -> _Sighting:
    """Return the sighting in a frame; the next one gives another velocity."""
    for later in coming[at + 1 :]:
        if id in later.places:
            return _Sighting.of(id, coming[at], _Sighting(later.places[id], later))
    return _Sighting(coming[at].places[id], coming[at], velocity)
