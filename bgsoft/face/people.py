"""Main people where others are hidden: chosen over whole shots, or by the first frames of a stream.

Nobody is recognised. A track is one person while its face changes size steadily. A new track is a
person who was lost there a moment ago, unless it may be anybody else. In doubt it is a new person,
so somebody who takes the place of a main person is hidden.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import field
from operator import attrgetter

from bgsoft.face.base import LOOKAHEAD_FRAMES, Face, hiding_ellipse
from bgsoft.face.geometry import box_iou, face_size, shared_area
from bgsoft.face.track import MIN_AGREEMENT
from bgsoft.frame import FrameFormat
from bgsoft.media.info import VideoInfo
from bgsoft.records import NamedTuple, dataclass
from bgsoft.settings.main import MainPlace, parse_main

PATIENCE_SECONDS = 4.0
"""A person whose face is out of sight (turned away) keeps the place for this long."""
_STEADY_SECONDS = 0.5
"""Time of a lost person's last places: a face that is covered seems to move with the cover."""
_WITNESS_SECONDS = 1.0
"""Time before the loss of a face in which another person may have come to stand there."""
_MAX_CHANGE = 1.25
"""Factor of a face's size that shows another person, from one sighting to the next."""
_WALKED = 0.25
"""Face widths that somebody who walks moves in the time of the last places."""
_BRIEF_SECONDS = 0.5
"""A face that was seen for less time, perhaps a hand, is nobody who moved elsewhere."""
_NEARLY = 0.8
"""Part of a main person's prominence from which somebody else may be main in a short shot. With 1,
two people in one framing are both hidden for a fifth of the time where cuts are false alarms."""
_TICK_SECONDS = 1e-6
"""Times of frames are rounded."""
_MIN_SECONDS, _SOON_SECONDS = 1e-3, 0.2
"""Time that a frame counts for: the shortest, as of the first in a shot, and the longest. That is
also the longest time between two sightings of a face in sight."""


def prominence(face: Face, format: FrameFormat) -> float:
    """Height of the face as a part of the frame's, up to halved with distance from the middle.

    Standing still in the corner, a face has to be twice as tall as one in the middle.
    """
    x0, y0, x1, y1 = face.box_xyxy
    dx = ((x0 + x1) / format.width - 1) / 2
    dy = ((y0 + y1) / format.height - 1) / 2
    central = max(0.0, 1 - 2 * math.hypot(dx, dy * 0.5))
    return (y1 - y0) / format.height * (0.5 + 0.5 * central)


@dataclass(slots=True, eq=False)
class _Person:
    begin: float
    """Seconds of the first sighting."""
    place: int
    """Where it was seen: the first track there. Others may have been there before and after."""
    sightings: deque[tuple[float, Face]] = field(default_factory=deque)
    """Seconds and faces of those of the last half second, at least one."""
    standing: float = 0.0
    """Prominence times seconds."""

    @property
    def face(self) -> Face:
        """The last sighting."""
        return self.sightings[-1][1]

    @property
    def seen_at(self) -> float:
        """Seconds of the last sighting."""
        return self.sightings[-1][0]

    def see(self, face: Face, seconds: float) -> None:
        """Take another sighting."""
        self.sightings.append((seconds, face))
        while seconds - self.sightings[0][0] > _STEADY_SECONDS:
            self.sightings.popleft()

    def changed_size(self, face: Face, seconds: float) -> bool:
        """Return whether a face is of another size than this one was just before."""
        return seconds - self.seen_at <= _SOON_SECONDS and not _is_as_large(self.face, face)

    def may_be(self, face: Face, seconds: float) -> bool:
        """Return whether a person who was somewhere else may have become this face."""
        touches = shared_area(self.face.box_xyxy, face.box_xyxy) > 0
        is_near = touches and _is_as_large(self.face, face)
        is_brief = self.seen_at - self.begin < _BRIEF_SECONDS
        return not is_brief and (is_near or seconds - self.seen_at > _SOON_SECONDS)

    def was_there(self, face: Face, seconds: float) -> bool:
        """Return whether a person who was lost a moment ago was where a face is now."""
        return seconds - self.seen_at <= PATIENCE_SECONDS and any(
            _are_alike(each, face) for _, each in self.sightings
        )


def _is_as_large(one: Face, other: Face) -> bool:
    a, b = face_size(one.box_xyxy), face_size(other.box_xyxy)
    return max(a, b) <= _MAX_CHANGE * min(a, b)


def _are_alike(one: Face, other: Face) -> bool:
    """Return whether two faces have the same place and size."""
    return box_iou(one.box_xyxy, other.box_xyxy) >= MIN_AGREEMENT and _is_as_large(one, other)


@dataclass(slots=True, eq=False)
class Span:
    """The time in which a track is of one person."""

    id: int
    person: _Person
    begin: float
    """Seconds of its first frame, and"""
    end: float = math.inf
    """of its last one; inf: as long as there is the track."""


class MainOfShot(NamedTuple):
    """The main people of a shot."""

    begin: float
    """Seconds of its first frame."""
    spans: list[Span]


class People:
    """The people of one shot, frame by frame.

    Args:
        format: Format of the frames.
        splits: Every cut that may be one begins another shot.
    """

    def __init__(self, format: FrameFormat, *, splits: bool = False) -> None:
        self._format, self._splits = format, splits
        self._people: list[_Person] = []
        self._spans: list[Span] = []
        self._now: dict[int, Span] = {}
        """The last span of each track."""
        self.detected: list[Face] = []
        """Faces of the last frame with detected ones."""
        self._begin = self._time = math.inf
        """Seconds of the first frame, and of the last one."""
        self.is_cut = False
        """The next frame may begin another shot."""

    def are_over(self, faces: Sequence[Face]) -> bool:
        """Return whether the next frame's faces begin another shot, by the first ones after a cut.

        In a flash everybody of before is still there, or all of these were there before: in the
        same places, and of the same sizes.
        """
        before, now = self.detected, _detected(faces)
        if not (self.is_cut and now):
            return False
        self.is_cut = False
        return self._splits or not (_have_twins(now, before) or _have_twins(before, now))

    def update(self, faces: Sequence[Face], seconds: float) -> None:
        """Take the faces of the next frame, which is shown at a time in seconds."""
        passed = min(max(_MIN_SECONDS, seconds - self._time), _SOON_SECONDS)
        self._begin, self._time = min(self._begin, seconds), seconds
        self.detected = _detected(faces) or self.detected
        new = []
        for face in filter(attrgetter("detected"), faces):
            span = self._now.get(face.id)
            if span is not None and self._goes_on(span.person, face, seconds):
                span.person.see(face, seconds)
                continue
            new.append(face)
            if span is not None:  # the track goes on with another person
                span.end = span.person.seen_at
                del self._now[face.id]
        for face in new:
            in_sight = {self._now[each.id].person for each in faces if each.id in self._now}
            person = self._person(face, in_sight, seconds)
            person.see(face, seconds)
            self._now[face.id] = Span(face.id, person, seconds)
            self._spans.append(self._now[face.id])
        for face in faces:
            if face.id in self._now:
                self._now[face.id].person.standing += passed * prominence(face, self._format)

    def _goes_on(self, person: _Person, face: Face, seconds: float) -> bool:
        """Return whether a track still shows the person of before."""
        return not (person.changed_size(face, seconds) or self._has_left(person, seconds))

    def _person(self, face: Face, in_sight: Collection[_Person], seconds: float) -> _Person:
        """Return whose face a new track shows; in doubt, a new person's."""
        lost = [each for each in self._people if each not in in_sight]
        there = [each for each in lost if each.was_there(face, seconds)]
        for person in there:
            if self._has_left(person, seconds):
                continue
            since = person.seen_at - _WITNESS_SECONDS
            others = [each for each in lost if each is not person and each.seen_at >= since]
            if not any(other.may_be(face, seconds) for other in others):
                return person
        self._people.append(_Person(seconds, there[-1].place if there else face.id))
        return self._people[-1]

    def _has_left(self, person: _Person, seconds: float) -> bool:
        """Return whether a person was lost while walking out at the left or right edge."""
        before, (left, _, right, _) = person.sightings[0][1].box_xyxy, person.face.box_xyxy
        least = _WALKED * (right - left)
        leftwards = left < 0 and before[0] - left > least
        rightwards = right > self._format.width and right - before[2] > least
        return (leftwards or rightwards) and seconds - person.seen_at > _SOON_SECONDS

    def best(self, count: int) -> list[_Person]:
        """Return the most prominent people so far: large, near the centre, in sight for long.

        All people of a place count together, as they may be one, but only one of them is main.
        Otherwise somebody else would be main where a main person was lost a few times. Where every
        cut splits shots, those who are nearly as prominent as the last one are among them.
        """
        places: dict[int, list[_Person]] = {}
        for person in self._people:
            places.setdefault(person.place, []).append(person)
        best = sorted(places.values(), key=_total, reverse=True)
        if self._splits:
            least = _NEARLY * min(map(_total, best[:count]), default=0.0)
            count = sum(_total(people) >= least for people in best)
        return [max(people, key=lambda each: each.standing) for people in best[:count]]

    def of_track(self, id: int) -> list[_Person]:
        """Return the person whom a track shows; nobody: it was only expected so far."""
        return [self._now[id].person] if id in self._now else []

    def tracks(self, people: Collection[_Person]) -> dict[int, Face]:
        """Return the last faces of the tracks that show some of the people, by id."""
        return {id: span.person.face for id, span in self._now.items() if span.person in people}

    def forget(self, kept: Collection[_Person]) -> None:
        """Forget all others who were not seen for so long that nobody can be taken for them."""
        oldest = self._time - PATIENCE_SECONDS - _WITNESS_SECONDS
        self._people = [p for p in self._people if p in kept or p.seen_at >= oldest]
        known = {*self._people}
        self._now = {id: span for id, span in self._now.items() if span.person in known}
        self._spans = [*self._now.values()]

    def main(self, count: int) -> MainOfShot:
        """Return the main people of the shot, which ends with the last frame."""
        best = self.best(count)
        spans = [span for span in self._spans if span.person in best]
        for span in spans:
            span.end = min(span.end, self._time)
        return MainOfShot(self._begin, spans)


def _total(people: Iterable[_Person]) -> float:
    return sum(person.standing for person in people)


def _detected(faces: Sequence[Face]) -> list[Face]:
    return [face for face in faces if face.detected]


def _have_twins(faces: Sequence[Face], others: Sequence[Face]) -> bool:
    """Return whether each of some faces has the place and size of one of others."""
    return all(any(_are_alike(face, other) for other in others) for face in faces)


class Picker:
    """Picks the main faces of each frame, in order; this one picks none."""

    is_decided = True
    """Later frames change nothing of who is main."""
    is_named = False
    """Main people are named: nobody else is kept, also where no main one is in sight."""
    main: Collection[int] = ()
    """Ids of the main faces so far."""

    def update(
        self, faces: Sequence[Face], seconds: float, until: float = -math.inf
    ) -> dict[int, Face]:
        """Return the main faces of the next frame by id, as last seen.

        Args:
            faces: All faces of the frame.
            seconds: Its time.
            until: Time of the frame after it; -inf: unknown.
        """
        return {}

    def reset(self) -> None:
        """A new scene begins."""

    def cut(self) -> None:
        """A new scene begins, if the next frame with faces shows others."""

    def follow(self, earlier: Picker) -> None:
        """Choose nobody before the next cut, if an earlier picker of the scene has chosen.

        Its places are not these, so nobody is known to be the same person.
        """

    def warnings(self) -> list[str]:
        """Return what a user should know, after the last frame."""
        return []


class ChosenPicker(Picker):
    """The selected main people, instead of those that a :class:`SubjectPicker` finds.

    A place selects the face that is there at its time, or the first that comes there later. Both
    end with the scene: somebody else may be there after a cut.

    Args:
        names: Values of ``--main``.
        ids: Ids of further tracks.
        info: The video.
    """

    def __init__(self, names: Sequence[str], ids: Collection[int], info: VideoInfo) -> None:
        named = [*map(parse_main, names)]
        self._info, self.is_named = info, True
        self._unseen = {each for each in named if isinstance(each, int)}
        """Ids that were named and have not been seen."""
        self._named = frozenset({*ids, *self._unseen})
        self._open = [each for each in named if isinstance(each, MainPlace)]
        self._missed: list[MainPlace] = []
        """Places where nobody was before a scene ended."""
        self._until = -math.inf
        """End of the last frame."""
        self.reset()

    def update(
        self, faces: Sequence[Face], seconds: float, until: float = -math.inf
    ) -> dict[int, Face]:
        # A place at the frame's own time counts; rounded, it may be a little later.
        self._until = max(seconds + _TICK_SECONDS, until)
        self._people.update(faces, seconds)
        for place in [*filter(self._is_due, self._open)]:
            distances = [(self._distance(place, face), face.id) for face in faces]
            if distances and min(distances)[0] <= 1:
                id = min(distances)[1]
                self._ids.add(id)
                self._chosen += self._people.of_track(id)
                self._open.remove(place)
        self._people.forget(self._chosen)
        followed = self._people.tracks(self._chosen).keys() | self._ids
        self._unseen -= {face.id for face in faces}
        self._faces |= {face.id: face for face in faces if face.id in followed}
        self.main = self._faces.keys() & self._ids
        return {id: face for id, face in self._faces.items() if id in followed}

    def _is_due(self, place: MainPlace) -> bool:
        """Return whether a place has a time before the end of the last frame."""
        return float(self._info.start_seconds + place.seconds) < self._until

    def _distance(self, place: MainPlace, face: Face) -> float:
        """Return how far a place is from a face's middle; 1 at the edge of its hidden place."""
        shape, format = hiding_ellipse(face), self._info.format
        x, y = float(place.x.pixels(format.width)), float(place.y.pixels(format.height))
        return max(abs(x - shape.x) / shape.across, abs(y - shape.y) / shape.along)

    def warnings(self) -> list[str]:
        missed = [*self._missed, *self._open]
        places = [f"--main {place.text}: no face was found there" for place in missed]
        tracks = [f"--main {id}: no frame shows that track" for id in sorted(self._unseen)]
        return places + tracks

    def reset(self) -> None:
        due = [*filter(self._is_due, self._open)]
        self._missed += due
        self._open = [place for place in self._open if place not in due]
        self._ids, self._faces = {*self._named}, dict[int, Face]()
        self._people, self._chosen = People(self._info.format), list[_Person]()

    def cut(self) -> None:
        self.reset()

    def follow(self, earlier: Picker) -> None:
        if isinstance(earlier, ChosenPicker):
            self._until = earlier._until
            self._named = frozenset()  # tracks have other ids
            self.reset()


class AgreedPicker(Picker):
    """Main are those whom all of some pickers pick: in doubt, nobody is."""

    def __init__(self, pickers: Sequence[Picker]) -> None:
        self._pickers = pickers

    def update(
        self, faces: Sequence[Face], seconds: float, until: float = -math.inf
    ) -> dict[int, Face]:
        picked, *others = [each.update(faces, seconds, until) for each in self._pickers]
        self.is_decided = all(each.is_decided for each in self._pickers)
        self.main = frozenset.intersection(*(frozenset(each.main) for each in self._pickers))
        return {id: face for id, face in picked.items() if all(id in other for other in others)}

    def reset(self) -> None:
        for each in self._pickers:
            each.reset()

    def cut(self) -> None:
        for each in self._pickers:
            each.cut()

    def follow(self, earlier: Picker) -> None:
        if isinstance(earlier, AgreedPicker):
            for each, before in zip(self._pickers, earlier._pickers, strict=True):
                each.follow(before)


class FirstFramesPicker(Picker):
    """Main people by the first frames of each scene; nobody else becomes main in it.

    Args:
        count: Number of main people.
        format: Format of the frames.
        splits: See :class:`People`.
    """

    def __init__(self, count: int, format: FrameFormat, *, splits: bool = False) -> None:
        self._count, self._format, self._splits = count, format, splits
        self.reset()

    def reset(self) -> None:
        self._people = People(self._format, splits=self._splits)
        self._chosen: list[_Person] = []
        self.is_decided = False
        self.main = ()
        self._frames = 0
        """Number of frames with faces so far."""

    def cut(self) -> None:
        self._people.is_cut = True
        if not self._people.detected:  # there is nobody to compare the next faces with
            self.reset()

    def follow(self, earlier: Picker) -> None:
        if earlier.is_decided:
            self.is_decided, self._frames = True, LOOKAHEAD_FRAMES + 1

    def update(
        self, faces: Sequence[Face], seconds: float, until: float = -math.inf
    ) -> dict[int, Face]:
        if self._people.are_over(faces):
            self.reset()
        self._people.update(faces, seconds)
        self._frames += bool(faces)
        self.is_decided = self._frames > LOOKAHEAD_FRAMES
        if not self.is_decided:
            self._chosen = self._people.best(self._count)
        self._people.forget(self._chosen)
        tracks = self._people.tracks(self._chosen)
        self.main = tracks.keys()
        return tracks


class ShotPicker(Picker):
    """Main people that were chosen over whole shots, in order, before the render."""

    def __init__(self, shots: Sequence[MainOfShot]) -> None:
        self._shots = shots

    def update(
        self, faces: Sequence[Face], seconds: float, until: float = -math.inf
    ) -> dict[int, Face]:
        at = bisect_right(self._shots, seconds, key=attrgetter("begin"))
        spans = self._shots[max(0, at - 1)].spans
        self.main = {span.id for span in spans}
        shown = {span.id for span in spans if span.begin <= seconds <= span.end}
        return {face.id: face for face in faces if face.id in shown}


def choose_main(
    frames: Iterable[tuple[int, float, Sequence[Face]]],
    cuts: Collection[int],
    count: int,
    format: FrameFormat,
    *,
    splits: bool = False,
) -> list[MainOfShot]:
    """Return the most prominent people of each shot.

    Args:
        frames: pts, seconds and faces of the frames in order, of all with faces at least.
        cuts: pts of frames that may begin a shot.
        count: Number of main people in a shot.
        format: Format of the frames.
        splits: See :class:`People`.
    """
    shots, people = [], People(format, splits=splits)
    coming = sorted(cuts, reverse=True)
    for pts, seconds, faces in frames:
        while coming and coming[-1] <= pts:
            coming.pop()
            people.is_cut = True
        if people.are_over(faces):
            shots.append(people.main(count))
            people = People(format, splits=splits)
        people.update(faces, seconds)
    return [*shots, people.main(count)]
