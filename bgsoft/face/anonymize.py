"""Hidden places of each frame.

A frame is judged together with those that follow it. A face is hidden:

- where it is seen;
- between two sightings, on the way from one to the other, also across cuts;
- after the last sighting, where it was going, for a moment;
- before the first one, where it came from, back to the cut.

In doubt a place is hidden.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set

from bgsoft.face.base import LOOKAHEAD_FRAMES
from bgsoft.face.geometry import Box, box_area, shared_area
from bgsoft.hide.plan import Ellipse
from bgsoft.records import NamedTuple, dataclass

_HOLD_SECONDS = 0.7
"""A face that is out of sight stays hidden for this long,"""
_CARRIED_SECONDS = 0.3
"""and moves on for so long."""
_GROWTH, _MAX_GROWTH = 0.6, 1.3
"""Growth of a place each second, as nobody knows where the face is, and the largest."""
_SAME_FACE = 0.6
"""A face in sight that covers this much of an expected place is the one that is expected. One that
has less of the area that it has a moment before or after may be another. In crossfades from one
face to a larger or smaller one, 440 of 480 are hidden without that, and 473 with it."""


def _between(one: Ellipse, two: Ellipse, share: float) -> Ellipse:
    """Return the place that has gone this share (0–1) of the way from one to the other."""
    # Turned by half a circle an ellipse is the same.
    turn = math.remainder(two.angle - one.angle, math.pi)
    two = two._replace(angle=one.angle + turn)
    return Ellipse(*(start + share * (end - start) for start, end in zip(one, two, strict=True)))


def _box(place: Ellipse) -> Box:
    half_x, half_y = place.half_size()
    return place.x - half_x, place.y - half_y, place.x + half_x, place.y + half_y


def _area(place: Ellipse) -> float:
    return place.across * place.along


def _is_covered(place: Ellipse, others: Iterable[Ellipse]) -> bool:
    """Return whether one of other places takes most of one."""
    box = _box(place)
    return any(shared_area(box, _box(other)) >= _SAME_FACE * box_area(box) for other in others)


@dataclass(slots=True, eq=False)
class FrameFaces:
    """The faces that are seen in one frame."""

    places: dict[int, Ellipse]
    """Places of the faces by id."""
    proven: Set[int]
    """Ids of faces that were seen often enough."""
    shown: Set[int]
    """Ids that are not to be hidden."""
    seconds: float
    scene: int = 0
    """Cuts so far."""
    is_decided: bool = True
    """Later frames of the scene do not change who is shown."""
    before: Sequence[FrameFaces] = ()
    """Earlier frames that are not rendered."""

    def hidden(self) -> dict[int, Ellipse]:
        """Return the place of each face that is to be hidden, by id."""
        return {id: place for id, place in self.places.items() if id not in self.shown}


class _Sighting(NamedTuple):
    """A face in the frame where it was seen last, or will be seen first."""

    id: int
    frame: FrameFaces
    other: FrameFaces
    """The frame with it before, or after; the velocity follows from it."""

    @property
    def place(self) -> Ellipse:
        return self.frame.places[self.id]

    def carried(self, seconds: float) -> Ellipse:
        """Return the expected place at a time before or after."""
        passed = seconds - self.frame.seconds
        growth = min(1 + _GROWTH * abs(passed), _MAX_GROWTH)
        place, other = self.place, self.other.places[self.id]
        apart = self.frame.seconds - self.other.seconds
        share = min(passed, _CARRIED_SECONDS) / apart if apart else 0.0
        return place.moved(share * (place.x - other.x), share * (place.y - other.y), growth)


class HiddenFaces:
    """Remembers where faces that are hidden were seen last."""

    def __init__(self) -> None:
        self._last: dict[int, _Sighting] = {}
        self._recent: deque[FrameFaces] = deque()
        """The frames of the last :data:`_HOLD_SECONDS`."""

    def update(self, now: FrameFaces, coming: Sequence[FrameFaces]) -> list[Ellipse]:
        """Return the ellipses to hide in the next frame, by its faces and those after it."""
        for at, frame in enumerate(now.before, 1):
            self.update(frame, [*now.before[at:], now, *coming][:LOOKAHEAD_FRAMES])
        last = self._last
        proven = {*now.proven, *last}.union(*(frame.proven for frame in coming))
        if coming:  # else nothing speaks against a single view
            now.places = {id: place for id, place in now.places.items() if id in proven}
        for id in now.shown & last.keys():
            del last[id]
        hidden = now.hidden()
        for id in hidden:
            last[id] = _Sighting(id, now, last[id].frame if id in last else now)
        places = [*hidden.values()]
        for id in last.keys() - hidden.keys():
            after = self._after(id, now, coming)
            places += after
            if not after:
                del last[id]
        places += self._larger(hidden, now, coming)
        return [*places, *self._before(now, coming, proven)]

    def _larger(
        self, hidden: Mapping[int, Ellipse], now: FrameFaces, coming: Sequence[FrameFaces]
    ) -> Iterator[Ellipse]:
        """Return larger places of the faces, a moment ago or soon: another face may be there."""
        recent = self._recent
        while recent and now.seconds - recent[0].seconds > _HOLD_SECONDS:
            recent.popleft()
        near = [frame for frame in (*recent, *coming) if frame.scene == now.scene]
        recent.append(now)
        for id, place in hidden.items():
            others = (frame.places[id] for frame in near if id in frame.places)
            largest = max(others, key=_area, default=place)
            if _area(place) < _SAME_FACE * _area(largest):
                yield largest

    def _after(self, id: int, now: FrameFaces, coming: Sequence[FrameFaces]) -> list[Ellipse]:
        """Return where a face may be that was seen before; nowhere: it is gone.

        A shown face in its place ends nothing: in doubt it is hidden for a moment, too.
        """
        last = self._last[id]
        for end in coming:
            if id in end.places:
                span = max(end.seconds - last.frame.seconds, 1e-9)
                share = (now.seconds - last.frame.seconds) / span
                return [_between(last.place, end.places[id], min(max(share, 0.0), 1.0))]
        onwards = last.carried(now.seconds)
        is_held = now.seconds - last.frame.seconds <= _HOLD_SECONDS
        goes_on = is_held and last.frame.scene == now.scene
        return [onwards] if goes_on and not _is_covered(onwards, now.hidden().values()) else []

    def _before(
        self, now: FrameFaces, coming: Sequence[FrameFaces], proven: Collection[int]
    ) -> Iterator[Ellipse]:
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
                other = next((each for each in coming[at + 1 :] if id in each.places), frame)
                first = _Sighting(id, frame, other)
                if id not in frame.shown and not any(
                    _is_covered(
                        first.carried(each.seconds),
                        (place for other, place in each.places.items() if other in proven),
                    )
                    for each in (now, *coming[:at])
                ):
                    yield first.carried(now.seconds)
