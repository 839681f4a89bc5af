"""What is remembered of a render's faces, for its report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bgsoft.face.base import Face
from bgsoft.face.guard import MISSED_SHARE

__all__ = ["FaceJournal"]

_MAX_LISTED = 1000
"""Missed frames that are listed; all are counted."""


class FaceJournal:
    """Counts tracks and frames, and lists where the mask had missed a face."""

    def __init__(self, *, measures: bool) -> None:
        self._measures = measures
        self._tracks: set[int] = set()
        self._frames_with_faces = 0
        self._most = 0
        self._missed_frames = 0
        self._missed: list[dict[str, Any]] = []
        self._shared_frames = 0

    def add(self, faces: Sequence[Face]) -> None:
        """Count a frame's faces."""
        if faces:
            self._frames_with_faces += 1
            self._most = max(self._most, len(faces))
            self._tracks.update(face.id for face in faces)

    def add_shared(self) -> None:
        """Count a frame in which people could not be parted by the mask alone."""
        self._shared_frames += 1

    def add_coverage(
        self, index: int, pts: int, seconds: float, ids: Sequence[int], shares: Sequence[float]
    ) -> None:
        """Take down how much of each face the mask had covered before it was filled in.

        Args:
            index: Index of the frame.
            pts: Its pts.
            seconds: Its time.
            ids: Ids of the faces.
            shares: What the mask covered of each, 0–1.
        """
        missed = {
            id: round(100 * (1 - share), 1)
            for id, share in zip(ids, shares, strict=True)
            if 1 - share > MISSED_SHARE
        }
        if not missed:
            return
        self._missed_frames += 1
        if len(self._missed) < _MAX_LISTED:
            entry = {"frame": index, "pts": pts, "time_s": round(seconds, 6)}
            self._missed.append({**entry, "missed_pct": {str(id): v for id, v in missed.items()}})

    def summary(self) -> dict[str, Any]:
        """Plain JSON types for the report.

        ``missed_frames`` and ``missed`` are None where nothing was measured (the mode changes no
        matte); the list ends after a thousand frames, the count does not.
        """
        return {
            "tracks": len(self._tracks),
            "frames_with_faces": self._frames_with_faces,
            "most_faces": self._most,
            "missed_frames": self._missed_frames if self._measures else None,
            "missed": list(self._missed) if self._measures else None,
            "shared_frames": self._shared_frames,
        }
