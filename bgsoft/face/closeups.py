"""Landmarks of faces that are followed without: for the frames in which something needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bgsoft.face.base import Face
from bgsoft.face.geometry import Roi
from bgsoft.face.landmarks import Mesh
from bgsoft.face.networks import FaceNetworks
from bgsoft.face.track import DEFAULT_DT_SECONDS, MIN_PRESENCE, Track
from bgsoft.frame import AnalysisFrame, Frame
from bgsoft.records import dataclass

_STILL = 0.02
"""How far a face that hardly moves goes between two runs, in parts of its square's side."""
_KEPT_FRAMES = 3
"""Frames from one run of the landmark model to the next on a face that hardly moves, and frames
without any run after which a face is looked at as for the first time."""
_MAX_APART = 0.35
"""By how much of its side the square that landmarks are followed in may lie off that of the face
itself."""


@dataclass(slots=True, eq=False)
class _CloseUp:
    """A face that landmarks were made of."""

    track: Track
    square: Roi
    """Where the face was in the frame that landmarks were last made in,"""
    frame: int
    """whose index this is,"""
    seconds: float
    """and its time."""
    looks: int = 0
    """Runs of the landmark model so far."""

    def serves(self, face: Face) -> bool:
        """Whether landmarks go on from here."""
        roi, square = self.track.roi, face.square
        return max(abs(roi.x - square.x), abs(roi.y - square.y)) <= _MAX_APART * square.side

    def rests(self, face: Face, frame: Frame) -> bool:
        """Whether the last landmarks, moved with the face, are as good as new ones."""
        ways = *self._way(face), *self.track.step
        is_still = max(map(abs, ways)) <= _STILL * self.square.side and self.looks > 1
        return is_still and frame.index - self.frame < _KEPT_FRAMES and not self.track.misses

    def _way(self, face: Face) -> tuple[float, float]:
        return face.square.x - self.square.x, face.square.y - self.square.y

    def see(self, mesh: Mesh, face: Face, frame: Frame) -> None:
        dt = frame.time_seconds - self.seconds
        if mesh.presence >= MIN_PRESENCE and all(map(np.isfinite, mesh.box)):
            self.track.see(mesh, dt if dt > 0 else DEFAULT_DT_SECONDS)
        else:
            self.track.miss()
        self.looks += 1
        self.square, self.frame, self.seconds = face.square, frame.index, frame.time_seconds

    def shown(self, face: Face) -> Face:
        x, y = self._way(face)
        landmarks = (self.track.landmarks + np.array([[x], [y], [0.0]])).T
        return replace(face, landmarks=np.ascontiguousarray(landmarks, np.float32))


class CloseUps:
    """Makes landmarks of faces where they are asked for, in frames one after the other.

    What is asked for in frames in a row is smoothed over time as landmarks of tracks are.
    """

    def __init__(self, networks: FaceNetworks) -> None:
        self._networks = networks
        self._known: dict[int, _CloseUp] = {}

    def reset(self) -> None:
        """A new scene begins."""
        self._known.clear()

    def look(self, frame: Frame, reduced: AnalysisFrame, faces: Sequence[Face]) -> list[Face]:
        """The faces with landmarks; see :meth:`bgsoft.face.finder.FaceFinder.close_up`."""
        known = self._known = {
            id: each for id, each in self._known.items() if frame.index - each.frame <= _KEPT_FRAMES
        }
        new = [f for f in faces if f.id not in known or not known[f.id].serves(f)]
        asked = {face.id for face in new}
        squares = [face.square for face in new]
        seen: list[tuple[Face, Mesh]] = []
        # By the first square, a detection's, the model only says whether it is a face, and where.
        for _ in range(2):
            meshes = self._networks.landmarks([(frame, reduced, square) for square in squares])
            pairs = zip(new, meshes, strict=True)
            seen = [(face, mesh) for face, mesh in pairs if mesh.presence >= MIN_PRESENCE]
            new, squares = [face for face, _ in seen], [mesh.roi for _, mesh in seen]
        for id in asked:
            known.pop(id, None)
        for face in new:
            track = Track(face.square, face.score, sightings=2)
            known[face.id] = _CloseUp(track, face.square, frame.index, frame.time_seconds)
        old = [f for f in faces if f.id not in asked and not known[f.id].rests(f, frame)]
        meshes = self._networks.landmarks([(frame, reduced, known[f.id].track.roi) for f in old])
        for face, mesh in [*seen, *zip(old, meshes, strict=True)]:
            known[face.id].see(mesh, face, frame)
            if known[face.id].track.dead:
                del known[face.id]
        return [known[face.id].shown(face) for face in faces if face.id in known]
