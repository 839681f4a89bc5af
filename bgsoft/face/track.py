"""Follows faces from frame to frame by what the detector sees: which is which, and where each is
in frames that the detector was not shown.

A detection is never doubted because of a track: one that fits no track begins another. So what a
track knows beyond its detections is an id, a velocity, and for how long nothing was seen of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from bgsoft.face.base import Box, Face
from bgsoft.face.detect import Detection
from bgsoft.face.geometry import Roi, box_iou
from bgsoft.face.landmarks import square_of, steadied
from bgsoft.records import dataclass

MIN_AGREEMENT = 0.4
"""Intersection over union of a detection with where a face was expected that had been seen three
times: below it the face is somebody else, or has jumped, and has another id."""
_SETTLED, _SOON_SECONDS = 3, 0.14
"""Sightings from which a face's place is expected that well, and for how long after one."""
_MAX_GROWTH = 1.6
"""Between two sightings a face's size changes less than by this factor."""
_NEAR, _NEAR_YOUNG = 0.8, 3.0
"""How far a detection may lie from where its face was expected, in face sizes, without and with
only one sighting so far, when nobody knows how fast the face is."""
_FAINT, _FAINT_OVERLAP = 0.3, 0.3
"""A detection with a lower score continues a track only where it shares so much with it."""
_SHOWN_LOOKS = 2
"""Looks of the detector in a row without a face, from which it is not reported any more."""
KEPT_SECONDS = 1.0
"""For so long a face that is out of sight has its id if it comes back in that place."""
_CARRIED_SECONDS = 0.2
"""And for so long it is expected to move on as it did."""
_MAX_DRIFT = 0.25
"""How far a face may have moved since it was seen, in face sizes, before it is looked for."""


@dataclass(slots=True, eq=False)
class Track:
    """One face through time."""

    box: Box
    """Where it was seen last."""
    angle: float
    score: float
    seen_at: float
    """When, seconds."""
    square: Roi
    """Where the landmark model looks."""
    x: float = 0.0
    y: float = 0.0
    """By which it is expected to have moved since."""
    velocity: tuple[float, float] = (0.0, 0.0)
    """Frame pixels a second."""
    id: int = -1
    """Given when the face is first reported."""
    frames: int = 0
    """In which it was reported."""
    sightings: int = 1
    unseen: int = 0
    """Looks in a row that did not see it."""
    detected: bool = True
    """In this frame."""
    contested: bool = False
    """It is where another face was expected."""

    @property
    def size(self) -> float:
        """Frame pixels: geometric mean of the box's sides."""
        return face_size(self.box)

    @property
    def expected(self) -> Box:
        """Where it is expected in this frame."""
        left, top, right, bottom = self.box
        return left + self.x, top + self.y, right + self.x, bottom + self.y

    @property
    def is_restless(self) -> bool:
        """Whether the next frame has to be looked at to know where it is."""
        if self.unseen:
            return self.is_missing
        return self.sightings < 2 or math.hypot(self.x, self.y) > _MAX_DRIFT * self.size

    @property
    def is_missing(self) -> bool:
        """Whether it was seen just before, and is not."""
        return 0 < self.unseen <= _SHOWN_LOOKS

    def advance(self, seconds: float) -> None:
        """Expect the face in the frame of that time."""
        self.detected = self.contested = False
        passed = min(max(0.0, seconds - self.seen_at), _CARRIED_SECONDS)
        self.x, self.y = self.velocity[0] * passed, self.velocity[1] * passed

    def see(self, found: Detection, seconds: float) -> None:
        """Take a detection of the face."""
        passed = seconds - self.seen_at
        if passed > 0:
            (x, y), (last_x, last_y) = _middle(found.box), _middle(self.box)
            now = (x - last_x) / passed, (y - last_y) / passed
            if self.sightings > 1:
                now = (now[0] + self.velocity[0]) / 2, (now[1] + self.velocity[1]) / 2
            self.velocity = now
        self.box, self.angle, self.score = found.box, found.angle, found.score
        self.seen_at = seconds
        self.square = steadied(self.square, square_of(found.box, found.angle))
        self.x = self.y = 0.0
        self.sightings += 1
        self.unseen, self.detected = 0, True

    def distance(self, found: Detection) -> float | None:
        """How far a detection is from where the face is expected, in face sizes; None: too far, or
        of another size."""
        size, other = self.size, face_size(found.box)
        if max(size, other) > _MAX_GROWTH * min(size, other):
            return None
        expected = self.expected
        if found.score < _FAINT and box_iou(found.box, expected) < _FAINT_OVERLAP:
            return None
        (x, y), (own_x, own_y) = _middle(found.box), _middle(expected)
        far = math.hypot(x - own_x, y - own_y) / max(size, 1.0)
        return far if far < (_NEAR_YOUNG if self.sightings < 2 else _NEAR) else None


def face_size(box: Box) -> float:
    """Geometric mean of a box's sides."""
    return math.sqrt(max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1]))


def _middle(box: Box) -> tuple[float, float]:
    return (box[0] + box[2]) / 2, (box[1] + box[3]) / 2


class Tracker:
    """All tracks of one video; for each frame :meth:`advance`, then :meth:`update` where the
    detector looked, then :meth:`faces`."""

    def __init__(self) -> None:
        self._next_id = 0
        self.reset()

    def reset(self) -> None:
        """End all tracks; their ids are not used again."""
        self.tracks: list[Track] = []
        self._seconds = 0.0
        self.is_fresh = True
        """The next look decides alone who is there; see :meth:`refresh`."""

    def refresh(self) -> None:
        """Follow on only what the next look shows, from there on, under the same ids.

        So where a face is said to be depends on nothing before that frame.
        """
        self.is_fresh = True

    @property
    def is_restless(self) -> bool:
        """Whether the next frame has to be looked at."""
        return any(track.is_restless for track in self.tracks)

    def advance(self, seconds: float) -> None:
        """Go on to the frame of that time."""
        self._seconds = seconds
        for track in self.tracks:
            track.advance(seconds)

    def match(self, found: Sequence[Detection]) -> list[Track | None]:
        """The track that expects each detection, nearest first; None where there is none."""
        pairs = []
        for row, each in enumerate(found):
            for position, track in enumerate(self.tracks):
                far = track.distance(each)
                if far is not None:
                    pairs.append((far, row, position))
        matches: list[Track | None] = [None] * len(found)
        for _, row, position in sorted(pairs):
            track = self.tracks[position]
            if matches[row] is None and track not in matches:
                matches[row] = track
        return matches

    def update(self, found: Sequence[Detection], min_size: float = 0.0) -> None:
        """Take the faces that the detector has seen in this frame.

        Args:
            found: Those that no track expects begin a track each.
            min_size: Frame pixels of a face that this look would have seen.
        """
        now, is_fresh = self._seconds, self.is_fresh
        for each, track in zip(found, self.match(found), strict=True):
            if track is not None and not is_fresh and not self._is_another(track, each):
                track.see(each, now)
                continue
            square = square_of(each.box, each.angle)
            new = Track(each.box, each.angle, each.score, now, square)
            if track is not None:
                self.tracks.remove(track)
                if is_fresh:
                    new.id, new.frames = track.id, track.frames
                new.contested = not is_fresh
            self.tracks.append(new)
        for track in self.tracks:
            if not track.detected and track.size >= min_size:
                track.unseen += 1
        self.tracks = [track for track in self.tracks if track.detected or not self._is_lost(track)]
        self.is_fresh = False

    def _is_another(self, track: Track, found: Detection) -> bool:
        """Whether a detection shows somebody else where the track's face was expected."""
        is_settled = track.sightings >= _SETTLED and not track.unseen
        if not is_settled or self._seconds - track.seen_at > _SOON_SECONDS:
            return False
        return box_iou(track.expected, found.box) < MIN_AGREEMENT

    def _is_lost(self, track: Track) -> bool:
        return self.is_fresh or self._seconds - track.seen_at > KEPT_SECONDS

    def faces(self) -> list[Face]:
        """The faces of this frame, largest first."""
        shown = [track for track in self.tracks if track.unseen < _SHOWN_LOOKS]
        shown.sort(key=lambda track: -track.size)
        return [*map(self._face, shown)]

    def _face(self, track: Track) -> Face:
        if track.id < 0:
            track.id = self._next_id
            self._next_id += 1
        x, y, side, angle = track.square
        face = Face(
            id=track.id,
            score=track.score * 0.5**track.unseen,
            box_xyxy=track.expected,
            angle=track.angle,
            square=Roi(x + track.x, y + track.y, side, angle),
            detected=track.detected,
            age_frames=track.frames,
            contested=track.contested,
        )
        track.frames += 1
        return face
