"""Landmarks of faces, smoothed over time, where they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bgsoft.face.base import Face
from bgsoft.face.landmarks import Mesh, OneEuro
from bgsoft.face.networks import FaceNetworks, FramePair

MIN_PRESENCE = 0.5
"""Below it the landmark model sees no face."""
_KEPT_SECONDS = 0.12
"""Without landmarks for longer, smoothing begins again."""
_FULL_SIZE = 128.0
"""Frame pixels below which a face is smoothed the more at rest: it is enlarged with its noise."""
_DEFAULT_DT_SECONDS = 1 / 30


class MeshMaker:
    """Makes landmarks of faces; what is asked for of a face in frames in a row is smoothed."""

    def __init__(self, networks: FaceNetworks) -> None:
        self._networks = networks
        self.reset()

    def reset(self) -> None:
        """A new scene begins."""
        self._known: dict[int, tuple[float, OneEuro]] = {}
        """For each face, the time of its last landmarks, and their filter."""

    def make(self, pairs: Sequence[FramePair], faces: Sequence[Sequence[Face]]) -> list[list[Face]]:
        """The faces of consecutive frames with their landmarks; without, where the model sees none.

        Raises:
            InferenceError: The model failed.
        """
        asked = [
            (pair, face.square) for pair, own in zip(pairs, faces, strict=True) for face in own
        ]
        meshes = iter(self._networks.landmarks(asked))
        made = []
        for (frame, _), own in zip(pairs, faces, strict=True):
            seconds = frame.time_seconds
            self._known = {
                id: (last, smoothing)
                for id, (last, smoothing) in self._known.items()
                if 0 <= seconds - last <= _KEPT_SECONDS
            }
            made.append([self._with(face, next(meshes), seconds) for face in own])
        return made

    def _with(self, face: Face, mesh: Mesh, seconds: float) -> Face:
        if mesh.presence < MIN_PRESENCE or not np.isfinite(mesh.points).all():
            return face
        last, smoothing = self._known.get(face.id, (seconds, OneEuro()))
        self._known[face.id] = seconds, smoothing
        size = max(1.0, float(np.ptp(mesh.points[:2], axis=1).max()))
        rest = min(1.0, size / _FULL_SIZE)
        passed = seconds - last or _DEFAULT_DT_SECONDS
        points = smoothing.update(mesh.points, passed, size, rest)
        return replace(face, landmarks=np.ascontiguousarray(points.T, np.float32))
