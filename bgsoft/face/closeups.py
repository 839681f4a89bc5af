"""Landmarks of faces that are followed without: for the frames in which something needs them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bgsoft.face.base import Face
from bgsoft.face.landmarks import Mesh
from bgsoft.face.networks import FaceNetworks
from bgsoft.face.track import DEFAULT_DT_SECONDS, MIN_PRESENCE, Track
from bgsoft.frame import AnalysisFrame, Frame
from bgsoft.records import dataclass

_KEPT_FRAMES = 3
"""Frames without any run after which a face is looked at as for the first time."""
_MAX_APART = 0.35
"""By how much of its side the square that landmarks are followed in may lie off that of the face
itself."""


@dataclass(slots=True, eq=False)
class _CloseUp:
    """A face that landmarks are made of."""

    track: Track
    frame: int
    """Index of the one in which that was done last,"""
    seconds: float
    """and its time."""

    def serves(self, face: Face, frame: Frame) -> bool:
        """Whether landmarks go on from here."""
        roi, (x, y, side, _) = self.track.roi, face.square
        is_near = max(abs(roi.x - x), abs(roi.y - y)) <= _MAX_APART * side
        return is_near and frame.index - self.frame <= _KEPT_FRAMES

    def see(self, mesh: Mesh, frame: Frame) -> None:
        dt = frame.time_seconds - self.seconds
        if mesh.presence >= MIN_PRESENCE and all(map(math.isfinite, mesh.box)):
            self.track.see(mesh, dt if dt > 0 else DEFAULT_DT_SECONDS)
        else:
            self.track.miss()
        self.frame, self.seconds = frame.index, frame.time_seconds


class CloseUps:
    """Makes landmarks of faces where they are asked for, in frames one after the other.

    What is asked for in frames in a row is smoothed over time as landmarks of tracks are.
    """

    def __init__(self, networks: FaceNetworks) -> None:
        self._networks = networks
        self.reset()

    def reset(self) -> None:
        """A new scene begins."""
        self._known: dict[int, _CloseUp] = {}

    def look(self, frame: Frame, reduced: AnalysisFrame, faces: Sequence[Face]) -> list[Face]:
        """The faces with landmarks; see :meth:`bgsoft.face.finder.FaceFinder.close_up`."""
        last, landmarks = self._known, self._networks.landmarks
        known = {f.id: last[f.id] for f in faces if f.id in last and last[f.id].serves(f, frame)}
        new = [face for face in faces if face.id not in known]
        # By the first square, a detection's, the model only says whether it is a face, and where.
        first = landmarks([(frame, reduced, face.square) for face in new])
        for face, mesh in zip(new, first, strict=True):
            if mesh.presence >= MIN_PRESENCE:
                track = Track(mesh.roi, face.score, sightings=2)
                known[face.id] = _CloseUp(track, frame.index, frame.time_seconds)
        meshes = landmarks([(frame, reduced, each.track.roi) for each in known.values()])
        for each, mesh in zip(known.values(), meshes, strict=True):
            each.see(mesh, frame)
        self._known = {id: each for id, each in known.items() if not each.track.dead}
        shown = [(face, self._known[face.id].track) for face in faces if face.id in self._known]
        return [
            replace(face, landmarks=np.ascontiguousarray(track.landmarks.T, np.float32))
            for face, track in shown
        ]
