"""Faces are made unrecognisable: which places of a frame are hidden.

A frame is looked at together with the ones that follow it. A face that is found in one of those
was mostly there before, so its place is carried backwards; a gap in a track whose end is known is
bridged by interpolation; and a face that is lost for longer is carried on for a moment. In doubt a
place is hidden.

What a rule is worth: the share of faces of which a tenth or more is bare, in clips of moving people
where the finder is made blind for 9 of 27 frames. With all rules it is 5.6 %, without a look ahead
18.8 %, without interpolation 7.7 %.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from itertools import takewhile

from bgsoft.face.base import Box, Face, box_overlap, hiding_ellipse
from bgsoft.hide.plan import Ellipse
from bgsoft.records import dataclass

_HOLD_SECONDS = 0.7
"""A face that is out of sight stays hidden where it was going for this long. Without: 15.5 %."""
_HOLD_GROWTH = 0.02
"""And its ellipse grows by this each frame, as nobody knows where it is. Without: 8.7 %."""
_MAX_GROWTH = 1.3
_SAME_FACE = 0.5
"""A face in sight that overlaps a lost one's place by this much is the one that was lost. Without,
a fifth more of the frame is hidden in gaps."""
_DRIFT = 0.9
"""A lost face goes on at the speed it had, which falls by this factor each frame. With 0:
10.8 %."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a face is, or may be."""

    ellipse: Ellipse
    box: Box

    def carried(self, dx: float, dy: float) -> _Place:
        """The place one frame on, if the face goes by ``dx`` and ``dy`` pixels."""
        moved = self.ellipse.moved(dx, dy, 1 + _HOLD_GROWTH)
        if moved.across * moved.along > _MAX_GROWTH**2 * _area(self.box):
            moved = self.ellipse.moved(dx, dy)
        left, top, right, bottom = self.box
        return _Place(moved, (left + dx, top + dy, right + dx, bottom + dy))

    def towards(self, other: _Place, share: float) -> _Place:
        """The place that has gone this share (0–1) of the way to another."""

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


class FrameFaces:
    """What is known of the faces of one frame; ``shown`` holds those that are not to be hidden."""

    __slots__ = ("cut", "is_decided", "places", "seconds", "shown")

    def __init__(
        self,
        faces: Sequence[Face],
        shown: Collection[int],
        seconds: float,
        cut: bool = False,
        is_decided: bool = True,
    ) -> None:
        self.places = {
            face.id: _Place(hiding_ellipse(face), face.box_xyxy) for face in faces if face.detected
        }
        self.shown = frozenset(shown)
        self.seconds = seconds
        self.cut = cut
        """It begins a new scene."""
        self.is_decided = is_decided
        """Who is shown in this scene does not change any more by what comes."""

    def hidden(self) -> Iterator[tuple[int, _Place]]:
        """Id and place of each face that is to be hidden."""
        return ((id, place) for id, place in self.places.items() if id not in self.shown)


@dataclass(slots=True)
class _Track:
    """A face that was hidden in the last frame."""

    place: _Place
    at: float
    """Time of the place, seconds."""
    seen_at: float
    """When the face was last in sight."""
    dx: float = 0.0
    dy: float = 0.0
    ends_as: int | None = None
    """Out of sight: the id that the face has when it is found again, where that is known."""


class HiddenFaces:
    """Remembers the faces that are to be hidden, and bridges gaps in their tracks."""

    def __init__(self) -> None:
        self._tracks: dict[int, _Track] = {}

    def update(self, now: FrameFaces, coming: Sequence[FrameFaces]) -> list[Ellipse]:
        """The ellipses to hide in the next frame, by its faces and those of frames after it."""
        if now.cut:
            self._tracks.clear()
        coming = list(takewhile(lambda frame: not frame.cut, coming))
        for id in [id for id in self._tracks if id in now.shown]:
            del self._tracks[id]
        for id in [id for id in self._tracks if id not in now.places]:
            self._bridge(id, now, coming)
        for id, place in now.hidden():
            last = self._tracks.get(id)
            dx, dy = (0.0, 0.0) if last is None else _way(last.place, place)
            self._tracks[id] = _Track(place, now.seconds, now.seconds, dx, dy)
        ellipses = [track.place.ellipse for track in self._tracks.values()]
        return ellipses + self._before_they_are_found(now, coming)

    def _bridge(self, id: int, now: FrameFaces, coming: Sequence[FrameFaces]) -> None:
        """Say where a face is that is out of sight, or forget it.

        Of the faces in sight only hidden ones can be it. A main face at the same place ends
        nothing: in doubt it is hidden for a moment, too.
        """
        track = self._tracks[id]
        if track.ends_as is None:
            again = any(_covers(place, track.place, _SAME_FACE) for _, place in now.hidden())
            if again or now.seconds - track.seen_at > _HOLD_SECONDS:
                del self._tracks[id]
                return
            track.ends_as = self._end_of_gap(id, now, coming)
        elif track.ends_as in now.places:
            del self._tracks[id]
            return
        last = track.place
        end = next((frame for frame in coming if track.ends_as in frame.places), None)
        if end is None or track.ends_as is None:
            track.place = last.carried(track.dx * _DRIFT, track.dy * _DRIFT)
        else:
            share = (now.seconds - track.at) / max(end.seconds - track.at, 1e-9)
            track.place = last.towards(end.places[track.ends_as], min(max(share, 0.0), 1.0))
        track.dx, track.dy = _way(last, track.place)
        track.at = now.seconds

    def _end_of_gap(self, id: int, now: FrameFaces, coming: Sequence[FrameFaces]) -> int | None:
        """The id that a lost face has when it is found again; None: not found in what is known."""
        track = self._tracks[id]
        dx, dy = track.dx * _DRIFT, track.dy * _DRIFT
        place = track.place.carried(dx, dy)
        for frame in coming:
            if id in frame.places:
                return id
            dx, dy = dx * _DRIFT, dy * _DRIFT
            place = place.carried(dx, dy)
            for other, seen in frame.hidden():
                is_new = other not in now.places and other not in self._tracks
                if is_new and _is_same(seen, place):
                    return other
        return None

    def _before_they_are_found(
        self, now: FrameFaces, coming: Sequence[FrameFaces]
    ) -> list[Ellipse]:
        """Where faces may be now that will be found for the first time."""
        known = {*now.places, *self._tracks}
        known.update(track.ends_as for track in self._tracks.values() if track.ends_as is not None)
        ellipses = []
        for index, frame in enumerate(coming):
            for id in [id for id in frame.places if id not in known]:
                known.add(id)
                # Who is main at once is somebody to be shown.
                place = None if id in frame.shown else self._carried_back(id, index, now, coming)
                if place is not None:
                    ellipses.append(place.ellipse)
        return ellipses

    def _carried_back(
        self, id: int, index: int, now: FrameFaces, coming: Sequence[FrameFaces]
    ) -> _Place | None:
        """Where a face may be now that is first found in ``coming[index]``.

        None where the way back meets a face in sight: that is the same face under another id, or
        one in front of it, which is hidden for itself, or shown because it is main.
        """
        place = coming[index].places[id]
        dx, dy = 0.0, 0.0
        for passed, frame in enumerate(coming[index + 1 :], 1):
            if id in frame.places:
                way_x, way_y = _way(frame.places[id], place)
                dx, dy = way_x / passed, way_y / passed
                break
        for frame in (*coming[:index][::-1], now):
            place = place.carried(dx, dy)
            if any(
                _is_same(seen, place) if other in frame.shown else _covers(seen, place, _SAME_FACE)
                for other, seen in frame.places.items()
            ):
                return None
        return place


def _way(start: _Place, end: _Place) -> tuple[float, float]:
    return end.ellipse.x - start.ellipse.x, end.ellipse.y - start.ellipse.y


def _is_same(one: _Place, other: _Place) -> bool:
    return box_overlap(one.box, other.box) >= _SAME_FACE


def _covers(one: _Place, other: _Place, part: float) -> bool:
    """Whether a box takes this part of another: not as above, of the smaller of the two, so that of
    a large face and a small one in it both stay hidden."""
    left, top, right, bottom = other.box
    width = min(one.box[2], right) - max(one.box[0], left)
    height = min(one.box[3], bottom) - max(one.box[1], top)
    return max(width, 0.0) * max(height, 0.0) >= part * (right - left) * (bottom - top)


def _area(box: Box) -> float:
    """Product of the half axes that a box's face would be hidden by, about."""
    return 1.8 * (box[2] - box[0]) * (box[3] - box[1]) / 4
