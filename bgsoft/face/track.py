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
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bgsoft.face.base import Box, Face
from bgsoft.face.detect import Detections
from bgsoft.face.geometry import Roi, overlap
from bgsoft.face.landmarks import Mesh, OneEuro, moved, reshaping, roi_from_box, steadied

MIN_SCORE = 0.5
"""Of the detection that a track begins with."""
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
MAX_MISSES = 2
"""Frames that a face is held over without being seen. With 0, 4 frames of 1,115 more are empty."""
MAX_UNSEEN = 2
"""Detector runs in a row in which nothing is seen of a track that is young, or whose presence is
not sure, after which it ends."""

MIN_CUTOFF_HZ, BETA, OWN_BETA, REST_SPEED = 0.5, 80.0, 20.0, 0.1
"""Of the One-Euro filter, per face size a second; chosen with scripts/measure_faces.py. Without
a speed of rest a still face jitters by 0.47 % of its width, not 0.18; without a gain of its own a
point lags by 0.653 %, not 0.646."""
SLOW = 0.3
"""Face sizes a second: a hundredth of the face a frame, of which a mask shows nothing."""
_FULL_SIZE = 128.0
"""Frame pixels from which a face fills its part of the landmark model's input (192 over the 1.5 of
its square). A smaller one is enlarged, and its noise with it: it is smoothed the more at rest.
Else it jitters by 0.24 %, not 0.18."""
_DEFAULT_DT_SECONDS = 1 / 30
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
    velocity: tuple[float, float] = (0.0, 0.0)
    """Of the smoothed landmarks' box, frame pixels a second."""
    rested: int = 0
    """Frames in a row in which it was only carried on,"""
    rested_seconds: float = 0.0
    """and how long they took."""
    dead: bool = False
    smoother: OneEuro = field(
        default_factory=lambda: OneEuro(MIN_CUTOFF_HZ, BETA, OWN_BETA, REST_SPEED)
    )

    @property
    def box(self) -> Box:
        """Left, top, right, bottom: where the face was last."""
        if self.landmarks.size:
            return self.bounds
        half = self.roi.side / 3
        x, y = self.roi.x, self.roi.y
        return x - half, y - half, x + half, y + half

    def agreement(self, box: NDArray[np.float64]) -> float:
        """Intersection over union of a box, (4,), with the face's: the last, or moved as it was."""
        x, y = self.step
        boxes = np.array([self.box, np.add(self.box, (x, y, x, y))])
        return float(overlap(boxes, box).max())

    @property
    def is_young(self) -> bool:
        """Whether one detection is all there was so far."""
        return self.sightings < 2

    @property
    def may_rest(self) -> bool:
        """Whether it is a face for sure, and where it will be in a frame is known well enough."""
        left, top, right, bottom = self.bounds
        return (
            not self.contested
            and not self.is_young
            and self.misses == 0
            and self.presence >= SURE_PRESENCE
            and math.hypot(*self.velocity) < SLOW * max(right - left, bottom - top)
        )

    def squares(self, count: int) -> list[Roi]:
        """Where the landmark model looks next, and in the frames after that if all goes on so."""
        rois = [self.roi]
        seen = None if self.mesh is None else self.mesh.roi
        for _ in range(1, count):
            if seen is not None:
                seen = moved(seen, *self.step)
            rois.append(rois[-1] if seen is None else steadied(rois[-1], seen))
        return rois

    def renew(self, roi: Roi, score: float) -> None:
        """Follow the face from a detection on, as if it had just been found there."""
        self.roi = roi
        self.detection_score = score
        self.smoother = OneEuro(MIN_CUTOFF_HZ, BETA, OWN_BETA, REST_SPEED)
        self.mesh, self.step, self.velocity = None, (0.0, 0.0), (0.0, 0.0)
        self.misses = 0
        self.rested, self.rested_seconds = 0, 0.0

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
        frames, dt = 1 + self.rested, dt + self.rested_seconds
        self.landmarks = self.smoother.update(mesh.points, dt, size, min(1.0, size / _FULL_SIZE))
        before, self.bounds = self.bounds, _bounds(self.landmarks)
        if self.mesh is not None:
            last = self.mesh.roi
            self.step = (mesh.roi.x - last.x) / frames, (mesh.roi.y - last.y) / frames
            x, y = (
                (
                    (self.bounds[i] + self.bounds[i + 2] - before[i] - before[i + 2]) / 2
                    + speed * self.rested_seconds
                )
                / dt
                for i, speed in enumerate(self.velocity)
            )
            self.velocity = (self.velocity[0] + x) / 2, (self.velocity[1] + y) / 2
        self.rested, self.rested_seconds = 0, 0.0
        self.mesh = mesh
        self.presence = mesh.presence
        self.misses = 0
        self.roi = steadied(self.roi, mesh.roi)

    def rest(self, dt: float) -> None:
        """Carry the face on for a frame, as it moves."""
        x, y = (speed * dt for speed in self.velocity)
        self.landmarks[:2] += ((x,), (y,))
        left, top, right, bottom = self.bounds
        self.bounds = left + x, top + y, right + x, bottom + y
        self.roi = moved(self.roi, x, y)
        self.rested += 1
        self.rested_seconds += dt

    def miss(self) -> None:
        """Hold the face over, or end it."""
        self.misses += 1
        doubtful = self.is_young or self.presence < MIN_FIRST_PRESENCE
        self.dead = self.misses > MAX_MISSES or doubtful

    @property
    def lacks_support(self) -> bool:
        """Whether the detector has not seen it for too long."""
        doubtful = self.is_young or self.presence < SURE_PRESENCE
        return doubtful and self.unseen >= MAX_UNSEEN


class Tracker:
    """All tracks of one video; call :meth:`propose` and :meth:`update` in turn.

    Args:
        max_faces: Tracks at a time; the best detections win.
        rest_every: Frames between looks at a face that hardly moves.
    """

    def __init__(self, max_faces: int, rest_every: int = 1) -> None:
        self._max_faces = max_faces
        self._rest_every = rest_every
        self.tracks: list[Track] = []
        """Those alive."""
        self._next_id = 0
        self._unchecked = 0
        """Frames since the detector ran."""
        self._time: float | None = None
        self._frames = 0
        """Since a reset or a refresh."""

    @property
    def wants_detection(self) -> bool:
        """Whether the detector should run on the next frame, whatever its interval."""
        # A face that was just found is looked for in the next frame, too: so are known ones.
        return (
            self._frames == 1
            or not self.tracks
            or any(
                track.misses or track.unseen or track.is_young or track.presence < SURE_PRESENCE
                for track in self.tracks
            )
        )

    @property
    def wants_check(self) -> bool:
        """Whether the detector should look at what is followed in the next frame."""
        return bool(self.tracks) and self._unchecked + 1 >= CHECK_EVERY

    def reset(self) -> None:
        """End all tracks; their ids are not used again."""
        self.tracks = []
        self._time = None
        self._frames = 0

    def refresh(self) -> None:
        """Follow the faces that the next frame's detections show from there on anew.

        So where a face is said to be depends on little before that frame.
        """
        self._frames = 0

    @property
    def is_fresh(self) -> bool:
        """Whether the next frame is the first since a reset or a refresh."""
        return self._frames == 0

    def match(self, found: Detections) -> tuple[dict[int, int], list[Box]]:
        """Which detection belongs to which track: largest overlap first.

        Returns:
            Track position by detection; and the boxes of tracks that no detection belongs to.
        """
        matches: dict[int, int] = {}
        if self.tracks and len(found):
            table = np.stack([overlap(found.boxes, np.array(track.box)) for track in self.tracks])
            while table.max() > MIN_MATCH:
                position, index = np.unravel_index(int(table.argmax()), table.shape)
                matches[int(index)] = int(position)
                table[position, :] = table[:, index] = 0.0
        seen = set(matches.values())
        return matches, [track.box for at, track in enumerate(self.tracks) if at not in seen]

    def propose(self, found: Detections | None) -> list[Track]:
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
        # A face that is first found now is looked at in the next frame, too: so are known ones.
        looks = self._frames < 2 or self._frames % self._rest_every == 0
        self._frames += 1
        return [track for track in self.tracks if looks or not track.may_rest]

    def _take(self, found: Detections) -> None:
        """Give detections to the tracks they belong to, and begin new tracks with others."""
        matches, _ = self.match(found)
        rows = {position: row for row, position in matches.items()}
        for position, track in enumerate(self.tracks):
            row = rows.get(position)
            if row is None:
                track.unseen += 1
                continue
            score = float(found.scores[row])
            roi = roi_from_box(found.boxes[row], found.keypoints[row])
            if track.agreement(found.boxes[row]) < MIN_AGREEMENT:
                track.contested = True
                track.unseen += 1
                track.rival = Track(roi, score, sightings=1, detected=True, contested=True)
                continue
            track.sightings += 1
            track.unseen = 0
            track.detected = True
            track.detection_score = score
            if self.is_fresh:
                track.renew(roi, score)
            elif track.misses:
                track.roi = roi
        self.tracks += [track.rival for track in self.tracks if track.rival is not None]
        for row, (box, score) in enumerate(zip(found.boxes, found.scores.tolist(), strict=True)):
            if row in matches or score < MIN_SCORE or len(self.tracks) >= self._max_faces:
                continue
            # One of these detections may have begun a track on the same face.
            if not any(overlap(box[None], np.array(t.box))[0] > MIN_MATCH for t in self.tracks):
                roi = roi_from_box(box, found.keypoints[row])
                self.tracks.append(Track(roi, score, sightings=1, detected=True))

    def update(
        self, tracks: Sequence[Track], meshes: Sequence[Mesh], time_seconds: float
    ) -> list[Face]:
        """The faces of a frame, largest first.

        Args:
            tracks: From :meth:`propose`; the others rest.
            meshes: What the landmark model said of their squares.
            time_seconds: When the frame is shown.
        """
        dt = _DEFAULT_DT_SECONDS if self._time is None else time_seconds - self._time
        if not 0 < dt <= _MAX_DT_SECONDS:
            dt = _DEFAULT_DT_SECONDS
        self._time = time_seconds
        for track in self.tracks:
            if track not in tracks:
                track.rest(dt)
        for track, mesh in zip(tracks, meshes, strict=True):
            least = MIN_FIRST_PRESENCE if track.is_young else MIN_PRESENCE
            if mesh.presence >= least and all(map(math.isfinite, mesh.box)):
                if track.mesh is not None and reshaping(track.mesh, mesh) > MAX_RESHAPING:
                    track.begin_anew()
                track.see(mesh, dt)
            else:
                track.miss()
            track.dead = track.dead or track.lacks_support
        for track in self.tracks:
            self._settle(track)
        self.tracks = [track for track in self.tracks if not track.dead]
        faces = [self._face(track) for track in self.tracks]
        return sorted(faces, key=lambda face: -_area(face.box_xyxy))

    @staticmethod
    def _settle(track: Track) -> None:
        """Say which of a track and its rival goes on."""
        rival, track.rival = track.rival, None
        if rival is None or rival.dead:
            return
        is_same = overlap(np.array([track.bounds]), np.array(rival.bounds))[0] >= MIN_AGREEMENT
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
        face = Face(
            id=track.id,
            score=track.presence * track.detection_score * 0.5 ** (track.misses + doubts),
            box_xyxy=track.bounds,
            landmarks=np.ascontiguousarray(track.landmarks.T, np.float32),
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
