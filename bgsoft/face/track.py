"""Follows faces from frame to frame: which is which, how long each lives, and smooth landmarks.

A track is born of a detection. Each frame it proposes a square for the landmark model, from its
last landmarks or from a detection, and the model's presence score says whether a face is there.
The detector has to confirm a young track, and to see an older one again now and then unless the
landmark model is very sure of it, so that nothing that merely resembles a face is followed for
long.

The landmark model is no witness for its own track: shown a part of another face, it is as sure as
ever, beside it. So where the detector shows a face whose box agrees too little with the track's,
the landmark model looks from both, and unless it lands on one place the track ends and another
begins, from the detection. And landmarks that change their shape from one frame to the next as no
face does are another face's. A face that is not shown to be the same has another id.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from bgsoft.face.base import NO_LANDMARKS, Box, Face
from bgsoft.face.detect import Detection
from bgsoft.face.geometry import Roi, box_iou
from bgsoft.face.landmarks import (
    ROI_SCALE,
    Mesh,
    OneEuro,
    expected_box,
    reshaping,
    roi_from_box,
    steadied,
)
from bgsoft.records import dataclass

MIN_SCORE = 0.5
"""Of the detection that a track begins with."""
SURE_SCORE = 0.75
"""Of a detection that begins a track, where faces are followed without landmarks, without asking
the landmark model whether it is a face: hands and collars have up to 0.65."""
MIN_PRESENCE = 0.5
"""Below it the landmark model sees no face."""
MIN_FIRST_PRESENCE = 0.99
"""Of a face that nothing else is known of than one detection; and of one that is held over when
it is not seen. With 0.5 tracks rise from 27 to 34 (in six clips and eleven made hard, as below)."""
SURE_PRESENCE = 0.9999
"""From here on an older track lives without the detector, which does not know faces from the
side. Faces have more than this, seen from the front; a blurred patch where one was has 0.98 to
0.9997. With 0 recall falls from 0.911 to 0.908."""
MIN_MATCH = 0.15
"""Intersection over union of a detection with its track's box, at least; a detector's box ends at
the eyebrows, the landmarks' box at the hair."""
MIN_AGREEMENT = 0.65
"""The same, for the detection to confirm the track. From near, the detector's box of a face that
is followed rightly shares 0.65 and more in 98 of 100 frames (six clips, also rolled and zoomed, and
40 portraits; 0.57 where they are dim and blurred); beside another face after a cut, half share
less than 0.43. With 0.5, 3 of 1,000 faces after cuts are hidden by less than 95 %."""
MAX_RESHAPING = 0.03
"""By which landmarks change their shape in a frame at most: what remains when they are moved,
turned and scaled, root mean square, in face sizes. Of one face it is 0.02 at most in those clips,
at cuts to another person mostly 0.036 and more."""
CHECK_EVERY = 3
"""Frames from one look of the detector at what is followed to the next, at most."""
CARRIED_FRAMES, MAX_DRIFT = 4, 0.06
"""Where faces are followed without landmarks: frames from one detection to the next, at most; and
how far a face may have moved by then, in face sizes."""
MAX_MISSES = 2
"""Frames that a face is held over without being seen. With 0, 4 frames of 1,115 more are empty."""
MAX_UNSEEN = 2
"""Detector runs in a row in which nothing is seen of a track that is young, or whose presence is
not sure, after which it ends."""

_FULL_SIZE = 128.0
"""Frame pixels from which a face fills its part of the landmark model's input (192 over the 1.5 of
its square). A smaller one is enlarged, and its noise with it: it is smoothed the more at rest.
Else it jitters by 0.24 %, not 0.18."""
DEFAULT_DT_SECONDS = 1 / 30
_MAX_DT_SECONDS = 0.5


@dataclass(slots=True, eq=False)
class Track:
    """One face through time."""

    roi: Roi
    """Where the landmark model is to look next."""
    detection_score: float
    """Of the last detection that agreed with it."""
    id: int = -1
    """Given when the face is first reported."""
    frames: int = 0
    """Since it was first reported."""
    misses: int = 0
    """Frames in a row without the face."""
    sightings: int = 0
    """Detections so far."""
    unseen: int = 0
    """Detector runs in a row that did not see it."""
    detected: bool = False
    """A detection of this frame agrees with it."""
    contested: bool = False
    """What the detector shows in this frame was not where the face was followed to."""
    rival: Track | None = None
    """Begun from that; one of the two goes on."""
    presence: float = 0.0
    landmarks: NDArray[np.float64] = field(default_factory=lambda: np.zeros((3, 0)))
    """(3, 468) smoothed, frame pixels; empty until the first are there."""
    bounds: Box = (0.0, 0.0, 0.0, 0.0)
    """Of these."""
    mesh: Mesh | None = None
    """What the model last saw."""
    step: tuple[float, float] = (0.0, 0.0)
    """By which the middle of that moved in a frame."""
    in_doubt: bool = False
    """Without landmarks: the landmark model has to say whether it is a face."""
    spotted: Roi | None = None
    """Without landmarks: where the detector last saw it,"""
    since: float = 0.0
    """how many seconds ago,"""
    velocity: tuple[float, float] = (0.0, 0.0)
    """and how it moved then, frame pixels a second."""
    alone: bool = False
    """The detector is sure of it, and the landmark model not: it is followed by detections. Where
    these disagree, or landmarks are there again, nothing shows that it is still the same."""
    dead: bool = False
    smoother: OneEuro = field(default_factory=OneEuro)

    @property
    def box(self) -> Box:
        """Left, top, right, bottom: where the face was last."""
        if self.landmarks.size:
            return self.bounds
        half = self.roi.side / 3
        x, y = self.roi.x, self.roi.y
        return x - half, y - half, x + half, y + half

    def agrees(self, box: Box) -> bool:
        """Whether a box is about the face's: the last, or moved as it was."""
        (left, top, right, bottom), (x, y) = self.box, self.step
        return (
            box_iou((left, top, right, bottom), box) >= MIN_AGREEMENT
            or box_iou((left + x, top + y, right + x, bottom + y), box) >= MIN_AGREEMENT
        )

    @property
    def is_young(self) -> bool:
        """Whether one detection is all there was so far."""
        return self.sightings < 2

    def squares(self, count: int) -> list[Roi]:
        """Where the landmark model looks next, and in the frames after that if all goes on so."""
        if self.mesh is None:
            return [self.roi] * count
        rois, (x, y, side, angle) = [self.roi], self.mesh.roi
        for _ in range(1, count):
            x, y = x + self.step[0], y + self.step[1]
            rois.append(steadied(rois[-1], Roi(x, y, side, angle)))
        return rois

    def renew(self, roi: Roi, score: float) -> None:
        """Follow the face from a detection on, as if it had just been found there."""
        self.roi = roi
        self.detection_score = score
        self.smoother = OneEuro()
        self.mesh, self.step = None, (0.0, 0.0)
        self.misses = 0

    def begin_anew(self) -> None:
        """Be another face, first seen in this frame."""
        self.renew(self.roi, self.detection_score)
        self.id, self.frames, self.unseen = -1, 0, 0
        self.sightings = int(self.detected)
        self.contested = True

    def see(self, mesh: Mesh, dt: float) -> None:
        """Take what the landmark model shows of the face, ``dt`` seconds after the last frame."""
        left, top, right, bottom = mesh.box
        size = max(right - left, bottom - top, 1.0)
        self.landmarks = self.smoother.update(mesh.points, dt, size, min(1.0, size / _FULL_SIZE))
        self.bounds = _bounds(self.landmarks)
        if self.mesh is not None:
            last = self.mesh.roi
            self.step = mesh.roi.x - last.x, mesh.roi.y - last.y
        self.mesh, self.in_doubt, self.alone = mesh, False, False
        self.presence = mesh.presence
        self.misses = 0
        self.roi = steadied(self.roi, mesh.roi)

    def carry(self, dt: float) -> None:
        """Go on without landmarks, ``dt`` seconds on: to its detection, or as it moved."""
        self.since += dt
        (x, y), roi = self.velocity, self.roi
        if not self.detected:
            self.roi = Roi(roi.x + x * dt, roi.y + y * dt, roi.side, roi.angle)
            return
        if self.mesh is not None:
            self.renew(roi, self.detection_score)
            self.landmarks, self.spotted = np.zeros((3, 0)), None
        if self.spotted is not None:
            way_x, way_y = roi.x - self.spotted.x, roi.y - self.spotted.y
            self.velocity = (x + way_x / self.since) / 2, (y + way_y / self.since) / 2
        self.spotted, self.since, self.presence = roi, 0.0, 1.0

    def miss(self) -> None:
        """Hold the face over, or end it."""
        self.misses += 1
        doubtful = self.is_young or self.presence < MIN_FIRST_PRESENCE
        self.dead = self.misses > MAX_MISSES or doubtful


class Tracker:
    """All tracks of one video; call :meth:`propose` and :meth:`update` in turn.

    Args:
        max_faces: Tracks at a time; the best detections win.
        by_landmarks: Faces are followed by their landmarks; else by detections, and by landmarks
            only where the detector does not see them any more.
        trusts_detector: Faces that it is sure of are followed by detections where the landmark
            model does not confirm them.
    """

    def __init__(
        self, max_faces: int, *, by_landmarks: bool = True, trusts_detector: bool = False
    ) -> None:
        self._max_faces = max_faces
        self._by_landmarks = by_landmarks
        self._trusts_detector = trusts_detector
        self._next_id = 0
        self._unchecked = 0
        """Frames since the detector ran."""
        self._dt = DEFAULT_DT_SECONDS
        self.reset()

    @property
    def wants_detection(self) -> bool:
        """Whether the detector should run on the next frame, whatever its interval."""
        # A face that was just found is looked for in the next frame, too: so are known ones.
        if self.frames == 1 or not self.tracks:
            return True
        for track in self.tracks:
            if track.misses or track.unseen or track.sightings < 2:
                return True
            if track.presence < SURE_PRESENCE:
                return True
        return False

    @property
    def wants_check(self) -> bool:
        """Whether the detector should look at what is followed in the next frame."""
        most = CHECK_EVERY if self._by_landmarks else CARRIED_FRAMES
        if self._unchecked + 1 >= most:
            return bool(self.tracks)
        if not self._by_landmarks:
            for track in self.tracks:
                drift = math.hypot(*track.velocity) * self._dt * ROI_SCALE / track.roi.side
                if drift * (self._unchecked + 2) > MAX_DRIFT:
                    return True
        return False

    def reset(self) -> None:
        """End all tracks; their ids are not used again."""
        self.tracks: list[Track] = []
        """Those alive."""
        self._time: float | None = None
        self.frames = 0
        """Since this or a refresh."""

    def refresh(self) -> None:
        """Follow the faces that the next frame's detections show from there on anew.

        So where a face is said to be depends on little before that frame.
        """
        self.frames = 0

    def match(self, found: Sequence[Detection]) -> dict[int, int]:
        """The detection of each track, largest overlap first; their positions."""
        shared = []
        for position, track in enumerate(self.tracks):
            box = track.box
            for row, each in enumerate(found):
                part = box_iou(each.box, box)
                if part > MIN_MATCH:
                    shared.append((-part, position, row))
        matches: dict[int, int] = {}
        for _, position, row in sorted(shared):
            if position not in matches and row not in matches.values():
                matches[position] = row
        return matches

    def propose(self, found: Sequence[Detection] | None) -> list[Track]:
        """The tracks whose squares the landmark model is to look at in the next frame.

        Args:
            found: The frame's detections, best first, in frame pixels; None: the detector did not
                run.
        """
        for track in self.tracks:
            track.detected = track.contested = False
        self._unchecked += 1
        if found is not None:
            self._unchecked = 0
            self._take(found)
        self.frames += 1
        if self._by_landmarks:
            return list(self.tracks)
        return [track for track in self.tracks if track.unseen or track.misses or track.in_doubt]

    def _take(self, found: Sequence[Detection]) -> None:
        """Give detections to the tracks they belong to, and begin new tracks with others."""
        matches = self.match(found)
        for position, track in enumerate(self.tracks):
            row = matches.get(position)
            if row is None:
                track.unseen += 1
                continue
            box, keypoints, score = found[row]
            roi = roi_from_box(box, keypoints)
            if self._by_landmarks and not track.agrees(box):
                if track.alone:
                    track.roi, track.detection_score, track.detected = roi, score, True
                    track.begin_anew()
                    continue
                track.contested = True
                track.unseen += 1
                track.rival = Track(roi, score, sightings=1, detected=True, contested=True)
                continue
            track.sightings += 1
            track.unseen = 0
            track.detected = True
            track.detection_score = score
            track.in_doubt = track.in_doubt or score < MIN_SCORE
            if self.frames == 0:
                track.renew(roi, score)
                track.spotted, track.velocity = None, (0.0, 0.0)
            elif track.misses or track.alone or not self._by_landmarks:
                track.roi = roi
        self.tracks += [track.rival for track in self.tracks if track.rival is not None]
        taken = matches.values()
        for row, (box, keypoints, score) in enumerate(found):
            if row in taken or score < MIN_SCORE or len(self.tracks) >= self._max_faces:
                continue
            # One of these detections may have begun a track on the same face.
            if all(box_iou(box, track.box) <= MIN_MATCH for track in self.tracks):
                roi, in_doubt = roi_from_box(box, keypoints), score < SURE_SCORE
                self.tracks.append(Track(roi, score, sightings=1, detected=True, in_doubt=in_doubt))

    def update(
        self, tracks: Sequence[Track], meshes: Sequence[Mesh], time_seconds: float
    ) -> list[Face]:
        """The faces of a frame, largest first.

        Args:
            tracks: From :meth:`propose`; the others are carried on.
            meshes: What the landmark model said of their squares.
            time_seconds: When the frame is shown.
        """
        dt = DEFAULT_DT_SECONDS if self._time is None else time_seconds - self._time
        if not 0 < dt <= _MAX_DT_SECONDS:
            dt = DEFAULT_DT_SECONDS
        self._time, self._dt = time_seconds, dt
        for track in self.tracks:
            if track not in tracks:
                track.carry(dt)
        if tracks:
            self._judge(tracks, meshes, dt)
        faces = [*map(self._face, self.tracks)]
        if len(faces) > 1:
            faces.sort(key=lambda face: -_area(face.box_xyxy))
        return faces

    def _judge(self, tracks: Sequence[Track], meshes: Sequence[Mesh], dt: float) -> None:
        """Go on with those tracks in whose squares there is their face."""
        for track, mesh in zip(tracks, meshes, strict=True):
            least = MIN_FIRST_PRESENCE if track.is_young else MIN_PRESENCE
            if mesh.presence >= least and all(map(math.isfinite, mesh.box)):
                last = track.mesh
                if track.alone or (last is not None and reshaping(last, mesh) > MAX_RESHAPING):
                    track.begin_anew()
                track.see(mesh, dt)
            elif track.alone and not track.unseen:
                track.misses = 0
                track.carry(dt)
            else:
                track.miss()
                self._leave_alone(track, dt)
            doubtful = track.is_young or track.presence < SURE_PRESENCE
            track.dead = track.dead or (doubtful and track.unseen >= MAX_UNSEEN)
        for track in tracks:
            if track.rival is not None:
                self._settle(track, track.rival)
        self.tracks = [track for track in self.tracks if not track.dead]

    def _leave_alone(self, track: Track, dt: float) -> None:
        """Have a track go on that would end, if the detector is sure of its face."""
        is_sure = track.detected and track.detection_score >= SURE_SCORE
        if self._trusts_detector and track.dead and is_sure and not track.contested:
            track.alone, track.dead, track.misses = True, False, 0
            track.carry(dt)

    @staticmethod
    def _settle(track: Track, rival: Track) -> None:
        """Say which of a track and its rival goes on."""
        track.rival = None
        if rival.dead:
            return
        is_same = box_iou(track.bounds, rival.bounds) >= MIN_AGREEMENT
        if is_same and track.id >= 0 and not track.misses and not track.dead:
            # Landmarks from both lie on one face, and have not changed their shape.
            rival.dead = True
            track.sightings += 1
            track.unseen = 0
            track.detected = True
            track.detection_score = rival.detection_score
        else:
            track.dead = True

    def _face(self, track: Track) -> Face:
        if track.id < 0:
            track.id = self._next_id
            self._next_id += 1
        doubts = int(track.contested and not track.detected)
        has_landmarks = track.landmarks.size
        face = Face(
            id=track.id,
            score=track.presence * track.detection_score * 0.5 ** (track.misses + doubts),
            box_xyxy=track.bounds if has_landmarks else expected_box(track.roi),
            landmarks=(
                np.ascontiguousarray(track.landmarks.T, np.float32)
                if has_landmarks
                else NO_LANDMARKS
            ),
            square=track.roi,
            detected=track.detected and not track.misses,
            age_frames=track.frames,
            contested=track.contested,
        )
        track.frames += 1
        return face


def _bounds(landmarks: NDArray[np.float64]) -> Box:
    left, top = landmarks[:2].min(axis=1).tolist()
    right, bottom = landmarks[:2].max(axis=1).tolist()
    return left, top, right, bottom


def _area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])
