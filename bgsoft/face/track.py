"""Follows faces from frame to frame: which is which, how long each lives, and smooth landmarks.

A track is born of a detection. Each frame it proposes a square for the landmark model, from its
last landmarks or from a detection, and the model's presence score says whether a face is there.
The detector has to confirm a young track, and to see an older one again now and then unless the
landmark model is very sure of it, so that nothing that merely resembles a face is followed for
long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from bgsoft.face.base import Face
from bgsoft.face.detect import Detections, Sighting
from bgsoft.face.geometry import Roi, overlap
from bgsoft.face.landmarks import Meshes, roi_from_box
from bgsoft.face.one_euro import OneEuro

__all__ = ["Proposal", "Track", "Tracker"]

MIN_PRESENCE = 0.5
"""Below it the landmark model sees no face."""
MIN_FIRST_PRESENCE = 0.99
"""Of a face that nothing else is known of than one detection; and of one that is held over when
it is not seen."""
SURE_PRESENCE = 0.9999
"""From here on an older track lives without the detector, which does not know faces from the
side. Faces have more than this, seen from the front; a blurred patch where one was has 0.98 to
0.9997."""
MIN_MATCH = 0.15
"""Intersection over union of a detection with its track's box, at least; a detector's box ends at
the eyebrows, the landmarks' box at the hair."""
MAX_SAME = 0.5
"""Two tracks whose boxes share more than this follow the same face."""
MAX_MISSES = 2
"""Frames that a face is held over without being seen."""
TRIAL_FRAMES = 2
"""Frames after its first in which a track needs a second detection."""
MAX_UNSEEN = 2
"""Detector runs in a row in which nothing is seen of a track, and its presence is not sure, after
which it ends."""

MIN_CUTOFF_HZ, BETA, OWN_BETA, REST_SPEED = 0.5, 80.0, 20.0, 0.1
"""Of the One-Euro filter, per face size a second; chosen with scripts/measure_faces.py."""
PLACE_PLAY = 0.02
ROI_PLAY = 0.08
"""A square follows the landmarks once they have left its centre, or its side or angle (radians), by
more, in parts of the side: landmarks change a little with the square, which otherwise never rests.
Where the centre lags behind a face that moves on and on, the landmark model is drawn off the face
bit by bit: with 0.08 for all, a tenth of moving faces were lost in the end."""
SLOW = 0.3
"""Face sizes a second: a hundredth of the face a frame, of which a mask shows nothing."""
_FULL_SIZE = 128.0
"""Frame pixels from which a face fills its part of the landmark model's input (192 over the 1.5 of
its square). A smaller one is enlarged, and its noise with it: it is smoothed the more at rest."""
_DEFAULT_DT_SECONDS = 1 / 30
_MAX_DT_SECONDS = 0.5


@dataclass(slots=True, eq=False)
class Track:
    """One face through time."""

    roi: Roi
    detection_score: float
    detected_at: Roi | None = None
    """By its detection in the last frame, where there was one."""
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
    presence: float = 0.0
    landmarks: NDArray[np.float64] = field(default_factory=lambda: np.zeros((3, 0)))
    """(3, 468) smoothed, frame pixels; empty until the first are there."""
    bounds: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    """Left, top, right, bottom of these."""
    measured: NDArray[np.floating] = field(default_factory=lambda: np.zeros((3, 0)))
    """The same as the model last gave them."""
    velocity: tuple[float, float] = (0.0, 0.0)
    """Of the landmarks' box, frame pixels a second."""
    rested: int = 0
    """Frames in a row in which it was only carried on,"""
    rested_seconds: float = 0.0
    """and how long they took."""
    dead: bool = False
    smoother: OneEuro = field(
        default_factory=lambda: OneEuro(MIN_CUTOFF_HZ, BETA, OWN_BETA, REST_SPEED)
    )

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right, bottom: where the face was last."""
        if self.landmarks.size:
            return self.bounds
        half = self.roi.side / 3
        x, y = self.roi.x, self.roi.y
        return x - half, y - half, x + half, y + half

    @property
    def is_slow(self) -> bool:
        """Whether it moves so little that where it will be in a frame is known well enough."""
        left, top, right, bottom = self.bounds
        return math.hypot(*self.velocity) < SLOW * max(right - left, bottom - top)

    def place(self, after_seconds: float) -> tuple[float, float, float, float]:
        """The box that the face has some time later if it moves on as it did, at most by its
        own size."""
        left, top, right, bottom = self.box
        size = max(right - left, bottom - top)
        dx, dy = (min(max(v * after_seconds, -size), size) for v in self.velocity)
        return left + dx, top + dy, right + dx, bottom + dy


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """Where one track's face is to be looked for in one frame."""

    track: Track
    roi: Roi
    detected: bool
    """A detection of this frame belongs to it."""
    young: bool
    """One detection is all there was so far."""
    unseen: int
    """Detector runs in a row that did not see it."""


class Tracker:
    """All tracks of one video.

    Call :meth:`propose` and :meth:`update` in turn; or, for a batch, :meth:`begin` and
    :meth:`advance` for each face of each frame, then :meth:`update` for each frame.

    Args:
        max_faces: Tracks at a time; the best detections win.
    """

    def __init__(self, max_faces: int) -> None:
        self._max_faces = max_faces
        self._tracks: list[Track] = []
        self._next_id = 0
        self._time: float | None = None

    @property
    def wants_detection(self) -> bool:
        """Whether the detector should run on the next frame, whatever its interval."""
        return not self._tracks or any(
            track.misses
            or track.unseen
            or track.presence < SURE_PRESENCE
            or (track.sightings < 2 and track.frames <= TRIAL_FRAMES)
            for track in self._tracks
        )

    def reset(self) -> None:
        """End all tracks; their ids are not used again."""
        for track in self._tracks:
            track.dead = True
        self._tracks = []
        self._time = None

    @property
    def tracks(self) -> list[Track]:
        """Those alive."""
        return list(self._tracks)

    @property
    def time_seconds(self) -> float | None:
        """Of the last frame; None after a reset."""
        return self._time

    def propose(self, found: Detections | None, min_new_score: float) -> list[Proposal]:
        """Where to look in the next frame.

        Args:
            found: The frame's detections, best first, in frame pixels; None: the detector did not
                run.
            min_new_score: A new track begins with at least this; less will do for one that lives.
        """
        if found is None:
            return [_proposal(track, detected=False) for track in self._tracks]
        matches = self._match(found)
        taken = set(matches.values())
        for index in range(len(found)):
            if found.scores[index] < min_new_score:
                break
            if index not in taken and self.begin(found.at(index)) is not None:
                matches[len(self._tracks) - 1] = index
        return [
            self.advance(track, found.at(matches[position]) if position in matches else None)
            for position, track in enumerate(self._tracks)
        ]

    def begin(self, sighting: Sighting) -> Track | None:
        """A new track, or None where there are enough, or one follows this face already."""
        box = sighting.box
        if len(self._tracks) >= self._max_faces or any(
            overlap(box[None], np.array(track.box))[0] > MIN_MATCH for track in self._tracks
        ):
            return None
        track = Track(roi_from_box(box, sighting.keypoints), sighting.score)
        self._tracks.append(track)
        return track

    def advance(self, track: Track, sighting: Sighting | None, *, later: bool = False) -> Proposal:
        """Where to look for one face in the next frame, in which the detector was asked for it.

        Args:
            track: The face.
            sighting: What the detector saw; None: nothing.
            later: The frame is not the first of its batch: landmarks are old, so that their
                square is moved as the detections move.
        """
        if sighting is None:
            track.unseen += 1
            track.detected_at = None
            return _proposal(track, detected=False)
        track.sightings += 1
        track.unseen = 0
        track.detection_score = max(track.detection_score, sighting.score)
        roi = roi_from_box(sighting.box, sighting.keypoints)
        if track.misses:
            track.roi = roi
        elif later and track.detected_at is None:
            track.roi = replace(track.roi, x=roi.x, y=roi.y)
        elif later and track.detected_at is not None:
            # Landmarks are the better judges of size and angle.
            play = PLACE_PLAY * track.roi.side
            track.roi = replace(
                track.roi,
                x=track.roi.x + _beyond(roi.x - track.detected_at.x, play),
                y=track.roi.y + _beyond(roi.y - track.detected_at.y, play),
            )
            roi = _steadied(track.detected_at, roi)
        track.detected_at = roi
        return _proposal(track, detected=True)

    def parted(
        self, proposals: Sequence[Proposal], rest_every: int
    ) -> tuple[list[Proposal], list[Track]]:
        """Those that the landmark model has to look at, and the tracks that may do without.

        Args:
            proposals: Of one frame.
            rest_every: Frames between looks at a face that hardly moves.
        """
        asked, resting = [], []
        for proposal in proposals:
            track = proposal.track
            if (
                track.rested + 1 < rest_every
                and not proposal.detected
                and not proposal.young
                and track.misses == 0
                and track.presence >= SURE_PRESENCE
                and track.is_slow
            ):
                resting.append(track)
            else:
                asked.append(proposal)
        return asked, resting

    def unknown(self, found: Detections) -> list[int]:
        """Which detections belong to no track."""
        taken = self._match(found).values()
        return [index for index in range(len(found)) if index not in taken]

    def unseen(self, found: Detections) -> list[NDArray[np.float64]]:
        """Boxes, (4,) each, of the tracks that no detection belongs to."""
        taken = self._match(found)
        return [
            np.array(track.box) for index, track in enumerate(self._tracks) if index not in taken
        ]

    def _match(self, found: Detections) -> dict[int, int]:
        """Track position to detection, largest overlap first."""
        if not self._tracks or not len(found):
            return {}
        table = np.stack([overlap(found.boxes, np.array(track.box)) for track in self._tracks])
        matches: dict[int, int] = {}
        while table.max() > MIN_MATCH:
            position, index = np.unravel_index(int(table.argmax()), table.shape)
            matches[int(position)] = int(index)
            table[position, :] = table[:, index] = 0.0
        return matches

    def update(
        self,
        proposals: Sequence[Proposal],
        meshes: Meshes,
        time_seconds: float,
        resting: Sequence[Track] = (),
    ) -> list[Face]:
        """Take what the landmark model said of one frame's proposals.

        Args:
            proposals: From :meth:`propose` or :meth:`advance`.
            meshes: Of their squares, in the same order.
            time_seconds: When the frame is shown.
            resting: Tracks that are carried on without it.

        Returns:
            The faces of the frame, largest first.
        """
        dt = _DEFAULT_DT_SECONDS if self._time is None else time_seconds - self._time
        if not 0 < dt <= _MAX_DT_SECONDS:
            dt = _DEFAULT_DT_SECONDS
        self._time = time_seconds
        detected: dict[int, bool] = {}
        for track in resting:
            _rest(track, dt)
            detected[id(track)] = False
        for index, (proposal, sure) in enumerate(zip(proposals, meshes.presence, strict=True)):
            track = proposal.track
            if track.dead:
                continue
            least = MIN_FIRST_PRESENCE if proposal.young else MIN_PRESENCE
            if sure >= least and _is_plausible(meshes.boxes[index], proposal.roi):
                _see(track, meshes, index, dt)
            else:
                _miss(track, dt, proposal.young)
            _judge(proposal)
            detected[id(track)] = proposal.detected and not track.misses
        self._drop_doubles()
        self._tracks = [track for track in self._tracks if not track.dead]
        seen = [track for track in self._tracks if id(track) in detected]
        faces = [self._face(track, detected[id(track)]) for track in seen]
        return sorted(faces, key=lambda face: -_area(face.box_xyxy))

    def _drop_doubles(self) -> None:
        """Of two tracks on one face, the older lives."""
        alive = [track for track in self._tracks if not track.dead and track.landmarks.size]
        if len(alive) < 2:
            return
        alive.sort(key=lambda track: (track.misses > 0, -track.frames))
        for position, track in enumerate(alive):
            older = [other.box for other in alive[:position] if not other.dead]
            if older and overlap(np.array(older), np.array(track.box)).max() > MAX_SAME:
                track.dead = True

    def _face(self, track: Track, detected: bool) -> Face:
        if track.id < 0:
            track.id = self._next_id
            self._next_id += 1
        face = Face(
            id=track.id,
            score=track.presence * track.detection_score * 0.5**track.misses,
            box_xyxy=track.bounds,
            landmarks=np.ascontiguousarray(track.landmarks.T, np.float32),
            detected=detected,
            age_frames=track.frames,
        )
        track.frames += 1
        return face


def _proposal(track: Track, *, detected: bool) -> Proposal:
    return Proposal(track, track.roi, detected, track.sightings < 2, track.unseen)


def _rest(track: Track, dt: float) -> None:
    """Carry a face on for a frame, as it moves."""
    _drift(track, dt)
    track.rested += 1
    track.rested_seconds += dt


def _drift(track: Track, seconds: float) -> None:
    x, y = (speed * seconds for speed in track.velocity)
    track.landmarks[:2] += ((x,), (y,))
    left, top, right, bottom = track.bounds
    track.bounds = left + x, top + y, right + x, bottom + y
    track.roi = replace(track.roi, x=track.roi.x + x, y=track.roi.y + y)


def _see(track: Track, meshes: Meshes, index: int, dt: float) -> None:
    points = meshes.points[index]
    left, top, right, bottom = meshes.boxes[index]
    size = max(right - left, bottom - top, 1.0)
    followed = track.landmarks.size > 0
    rested, dt = track.rested_seconds, dt + track.rested_seconds
    track.rested, track.rested_seconds = 0, 0.0
    track.landmarks = track.smoother.update(points, dt, size, min(1.0, size / _FULL_SIZE))
    before, track.bounds = track.bounds, _bounds(track.landmarks)
    if followed:
        x, y = (
            (
                (track.bounds[i] + track.bounds[i + 2] - before[i] - before[i + 2]) / 2
                + speed * rested
            )
            / dt
            for i, speed in enumerate(track.velocity)
        )
        track.velocity = (track.velocity[0] + x) / 2, (track.velocity[1] + y) / 2
    track.measured = points
    track.presence = meshes.presence[index]
    track.misses = 0
    track.roi = _steadied(track.roi, meshes.rois[index])


def _miss(track: Track, dt: float, young: bool) -> None:
    """Let the face drift on as it moved."""
    track.misses += 1
    doubtful = young or track.presence < MIN_FIRST_PRESENCE
    if track.misses > MAX_MISSES or doubtful or not track.landmarks.size:
        track.dead = True
        return
    _drift(track, dt * 0.5**track.misses)


def _judge(proposal: Proposal) -> None:
    """End a track that the detector does not support."""
    track = proposal.track
    doubtful = track.presence < SURE_PRESENCE
    if (proposal.young and proposal.unseen >= TRIAL_FRAMES) or (
        doubtful and proposal.unseen >= MAX_UNSEEN
    ):
        track.dead = True


def _bounds(landmarks: NDArray[np.float64]) -> tuple[float, float, float, float]:
    left, top = landmarks[:2].min(axis=1).tolist()
    right, bottom = landmarks[:2].max(axis=1).tolist()
    return left, top, right, bottom


def _is_plausible(box: tuple[float, float, float, float], roi: Roi) -> bool:
    """Whether landmarks are numbers, and about as large as what the model looked at."""
    if not all(map(math.isfinite, box)):
        return False
    left, top, right, bottom = box
    return roi.side / 5 < max(right - left, bottom - top) < roi.side * 1.5


def _steadied(last: Roi, roi: Roi) -> Roi:
    """The last square, dragged along by the new one once that is beyond the play."""
    near, limit = PLACE_PLAY * last.side, ROI_PLAY * last.side
    x, y, side = roi.x - last.x, roi.y - last.y, roi.side - last.side
    angle = math.remainder(roi.angle - last.angle, math.tau)
    if abs(x) <= near and abs(y) <= near and abs(side) <= limit and abs(angle) <= ROI_PLAY:
        return last
    return Roi(
        last.x + _beyond(x, near),
        last.y + _beyond(y, near),
        last.side + _beyond(side, limit),
        last.angle + _beyond(angle, ROI_PLAY),
    )


def _beyond(change: float, limit: float) -> float:
    return math.copysign(max(0.0, abs(change) - limit), change)


def _area(box: tuple[float, float, float, float]) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])
