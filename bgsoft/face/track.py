"""Follow faces from frame to frame by their detections.

A track adds an id and a velocity to detections, and the time since the last one. It never vetoes a
detection: one that continues no track begins another.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from bgsoft.face.base import Face, square_of
from bgsoft.face.detect import Detection
from bgsoft.face.geometry import Box, Roi, box_iou, face_size, middle
from bgsoft.records import dataclass

MIN_AGREEMENT = 0.4
"""Intersection over union of a detection with the expected place of an established face. Below it,
the detection is somebody else: without this rule, 184 of 11,407 face-frames are open, not 171. A
detection that is not sure needs as much to continue any track."""
_MIN_SIGHTINGS, _SOON_SECONDS = 3, 0.14
"""Sightings from which a face is established, and for how long after the last one."""
_MAX_GROWTH = 1.6
"""Factor by which a face's size may change between two sightings. Without a limit, 5 of 144 frames
of ordinary clips hide something else, not 0."""
_NEAR, _NEAR_YOUNG = 0.8, 3.0
"""Largest distance of a detection from the expected place, in face sizes: of faces with a known
velocity, and of those with one sighting. With 0.8 for both, 176 face-frames are open, not 171, and
of fast small faces 19 times the area is hidden, not 2.4 times."""
_SHOWN_PASSES = 2
"""Detector passes in a row without a face after which it is no longer reported."""
KEPT_SECONDS = 1.0
"""A face that comes back there within this time keeps its id. Without it, 135 of 9,638 face-frames
are open, not 120."""
_CARRIED_SECONDS = 0.2
"""A face that is out of sight is expected to move on for this time. Without it, 131 of 9,638
face-frames are open, not 120, and of fast small faces 6.3 times the area is hidden, not 2.3."""
_MAX_DRIFT = 0.25
"""Expected motion since the last sighting, in face sizes, after which the detector runs again. With
0.5, 114 of 120 faces of 20 to 28 pixels in 1080p are hidden, and 111 without it, not 116."""
LARGE_SIGHTINGS = 3
"""Sightings from which a large thing counts that only closer views show, or a clear one that they
do not show; at most one pass without it may come between. Closer views make large things smaller,
and prints on shirts look like faces there. With two sightings, 41 of 900 frames of ordinary clips
hide something else, not 0. With four, twice as many face-frames are open."""
_EXPECTED_SCORE = 0.4
"""Score that a face counts as having where it is expected and not seen. With 0, 93 % of faces of 12
to 20 pixels in 1080p are hidden, not 97."""

_PLAY = 0.07
"""A square stays until its centre, angle or side has changed by more than this (parts of the side;
radians; part of the side), as landmarks change a little with the square."""


def steadied(last: Roi, roi: Roi) -> Roi:
    """Return the last square, or the new one where that differs by more than the play."""
    changes = (
        (roi.x - last.x) / last.side,
        (roi.y - last.y) / last.side,
        roi.side / last.side - 1,
        math.remainder(roi.angle - last.angle, math.tau),
    )
    return last if max(map(abs, changes)) <= _PLAY else roi


@dataclass(slots=True, eq=False)
class FaceTrack:
    """One face through time."""

    box: Box
    """Box of the last sighting."""
    angle: float
    score: float
    seen_at: float
    """Seconds."""
    square: Roi
    """For the landmark model."""
    x: float = 0.0
    y: float = 0.0
    """Expected motion since then."""
    velocity: tuple[float, float] = (0.0, 0.0)
    """Frame pixels a second."""
    id: int = -1
    """Given when the face is first reported."""
    frames: int = 0
    """Number of frames in which it was reported."""
    sightings: int = 1
    unseen: int = 0
    """Detector passes in a row without it."""
    detected: bool = True
    """The face was detected in this frame."""
    is_sure: bool = True
    """The last detection was."""
    needed: int = 1
    """Sightings from which it counts where faces are hidden; 1: it does."""
    doubtful_size: float = 0.0
    """See :attr:`Face.doubtful_size`."""

    @property
    def expected(self) -> Box:
        """Its box in this frame."""
        left, top, right, bottom = self.box
        return left + self.x, top + self.y, right + self.x, bottom + self.y

    @property
    def is_proven(self) -> bool:
        """Return whether it was seen often enough, or for sure."""
        return self.needed == 1

    @property
    def is_established(self) -> bool:
        """Return whether its velocity is known."""
        return self.sightings >= _MIN_SIGHTINGS

    @property
    def is_vague(self) -> bool:
        """Return whether it is large, and has to be seen again soon to count as a face."""
        return self.needed >= LARGE_SIGHTINGS

    @property
    def is_missing(self) -> bool:
        """Return whether it was surely seen just before, and often enough."""
        return self.is_sure and self.is_proven and 0 < self.unseen <= _SHOWN_PASSES

    @property
    def is_restless(self) -> bool:
        """Return whether only a detection can say where it is in the next frame."""
        if self.is_vague:
            return True
        if self.unseen:
            return self.is_missing
        return self.sightings < 2 or math.hypot(self.x, self.y) > _MAX_DRIFT * face_size(self.box)

    def advance(self, seconds: float) -> None:
        """Expect the face in the frame of that time."""
        self.detected = False
        passed = min(max(0.0, seconds - self.seen_at), _CARRIED_SECONDS)
        self.x, self.y = self.velocity[0] * passed, self.velocity[1] * passed

    def see(self, found: Detection, seconds: float) -> None:
        """Take a detection of the face."""
        passed = seconds - self.seen_at
        (x, y), (last_x, last_y) = middle(found.box), middle(self.box)
        if passed > 0:
            now = (x - last_x) / passed, (y - last_y) / passed
            if self.sightings > 1:
                now = (now[0] + self.velocity[0]) / 2, (now[1] + self.velocity[1]) / 2
            self.velocity = now
        if found.is_sure:
            self.box, self.angle = found.box, found.angle
            needed = min(self.needed, found.needed)
            self.needed = 1 if self.sightings + 1 >= needed else needed
        else:  # it shows where the face is; how large, only for hiding
            self.x, self.y = x - last_x, y - last_y
            self.box = self.expected
        self.doubtful_size = 0.0 if found.is_sure else face_size(found.box)
        self.score = found.score
        self.is_sure, self.seen_at = found.is_sure, seconds
        self.square = steadied(self.square, square_of(found.box, found.angle))
        self.x = self.y = 0.0
        self.sightings += 1
        self.unseen, self.detected = 0, True


class FaceTracker:
    """All tracks of a video.

    For each frame: :meth:`advance`; :meth:`match` and :meth:`update` if the detector ran;
    :meth:`faces`.
    """

    def __init__(self) -> None:
        self._next_id, self._seconds = 0, 0.0
        self.tracks: list[FaceTrack] = []
        """May be cleared; the ids are not used again."""
        self.is_cut = False
        """The next detections may be of other people in the same places. A face that was missing
        just before keeps its id: in a flash nobody is seen."""
        self.is_fresh = True
        """Only the next detections decide who is followed, under the same ids. It may be set: then
        the places of faces depend on nothing before that frame."""

    @property
    def is_restless(self) -> bool:
        """Return whether the detector has to run on the next frame."""
        return any(track.is_restless for track in self.tracks)

    def advance(self, seconds: float) -> None:
        """Go on to the frame of that time."""
        self._seconds = seconds
        for track in self.tracks:
            track.advance(seconds)

    def match(self, found: Sequence[Detection]) -> list[FaceTrack | None]:
        """Return the track that each detection continues, nearest pairs first."""
        matches: list[FaceTrack | None] = [None] * len(found)
        known = [(middle(each.expected), face_size(each.box), each) for each in self.tracks]
        pairs: list[tuple[float, int, int]] = []
        for row, each in enumerate(found):
            place, size = middle(each.box), face_size(each.box)
            for column, (expected, last_size, track) in enumerate(known):
                apart = math.dist(place, expected) / max(size, last_size, 1.0)
                near = _NEAR_YOUNG if track.sightings < 2 else _NEAR
                if apart < near and size / _MAX_GROWTH <= last_size <= size * _MAX_GROWTH:
                    pairs.append((apart, row, column))
        taken: set[int] = set()
        for _, row, column in sorted(pairs):
            track, each = self.tracks[column], found[row]
            is_free = matches[row] is None and column not in taken
            if is_free and (each.is_sure or box_iou(track.expected, each.box) >= MIN_AGREEMENT):
                matches[row] = track
                taken.add(column)
        return matches

    def missing(self, found: Sequence[Detection]) -> list[Detection]:
        """Return where faces are expected, but none is found: a closer view may show them.

        Vague ones are left out: the same view of the same thing proves nothing new.
        Without it, 94.7 % of fast faces of 20 to 40 pixels in 1080p are hidden, not 99.1.
        """
        if self.is_fresh:
            return []
        return [
            Detection(track.expected, track.angle, _EXPECTED_SCORE)
            for track in self.tracks
            if not track.is_vague
            and all(box_iou(track.expected, each.box) < MIN_AGREEMENT for each in found)
        ]

    def update(self, found: Iterable[tuple[Detection, FaceTrack | None]]) -> None:
        """Take the faces of this frame, each with its :meth:`match`."""
        for each, track in found:
            if track is not None and not self.is_fresh and not self._is_another(track, each):
                if self.is_cut and not track.unseen:
                    track.id, track.frames = -1, 0
                track.see(each, self._seconds)
                continue
            square = square_of(each.box, each.angle)
            place = each.box, each.angle, each.score, self._seconds, square
            new = FaceTrack(*place, needed=each.needed)
            if track is not None:
                self.tracks.remove(track)
                if self.is_fresh and (track.unseen or not self.is_cut):
                    new.id, new.frames = track.id, track.frames
            self.tracks.append(new)
        for track in self.tracks:
            track.unseen += not track.detected
        self.tracks = [track for track in self.tracks if track.detected or not self._is_lost(track)]
        self.is_fresh = self.is_cut = False

    def _is_another(self, track: FaceTrack, found: Detection) -> bool:
        """Return whether a detection shows somebody else where the track's face was expected."""
        is_known = track.is_established and not track.unseen
        is_soon = self._seconds - track.seen_at <= _SOON_SECONDS
        return is_known and is_soon and box_iou(track.expected, found.box) < MIN_AGREEMENT

    def _is_lost(self, track: FaceTrack) -> bool:
        is_refuted = track.is_vague and track.unseen >= _SHOWN_PASSES
        return is_refuted or self.is_fresh or self._seconds - track.seen_at > KEPT_SECONDS

    def faces(self) -> list[Face]:
        """Return the faces of this frame, largest first."""
        shown = [track for track in self.tracks if track.unseen < _SHOWN_PASSES]
        return [*map(self._face, sorted(shown, key=lambda track: -face_size(track.box)))]

    def _face(self, track: FaceTrack) -> Face:
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
            is_proven=track.is_proven,
            doubtful_size=track.doubtful_size,
        )
        track.frames += 1
        return face
