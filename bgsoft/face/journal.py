"""What a render knows of its faces, for the report and its notices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bgsoft.face.base import Box, Face
from bgsoft.face.detect import Detection
from bgsoft.face.finder import LIKELY_SCORE
from bgsoft.face.guard import MISSED_SHARE
from bgsoft.face.track import KEPT_SECONDS, face_size
from bgsoft.frame import Frame, FrameFormat

MAX_LISTED = 1000
"""Entries of each list; all are counted."""
_EDGE_PART = 0.5
"""Face sizes from the frame's edge within which a face may have left."""


class _Listed:
    """Entries that are counted, the first of which are kept."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.count = 0

    @property
    def first(self) -> float:
        """Time of the first one, seconds."""
        seconds: float = self.entries[0]["time_s"]
        return seconds

    def add(self, entry: dict[str, Any]) -> None:
        self.count += 1
        if len(self.entries) < MAX_LISTED:
            self.entries.append(entry)


class FaceJournal:
    """Counts tracks and frames, and lists what needs a look.

    Args:
        format: Of the frames.
        measures: Mattes are measured.
        hides: Faces are hidden.
    """

    def __init__(self, format: FrameFormat, *, measures: bool, hides: bool) -> None:
        self._size = format.width, format.height
        self._measures, self._hides = measures, hides
        self._tracks: set[int] = set()
        self._recent: dict[int, tuple[Face, float]] = {}
        """Faces that may go on under their ids, and when they were reported last."""
        self._before: Sequence[Face] = ()
        self._frames_with_faces = 0
        self._most = 0
        self._missed_frames = 0
        self._missed: list[dict[str, Any]] = []
        self._contested_frames = 0
        self._contested: list[dict[str, Any]] = []
        self._seen: dict[int, tuple[Face, float, dict[str, Any]]] = {}
        """Each face where it was seen last, when, and the frame's entry."""
        self._vanished = _Listed()
        self._doubtful = _Listed()
        self._main_changes = _Listed()
        self.shared_frames = 0
        """Those in which people could not be separated by the mask alone."""

    def add(
        self,
        frame: Frame,
        faces: Sequence[Face],
        doubts: Sequence[Detection] = (),
        *,
        cut: bool = False,
        is_kept: bool = True,
    ) -> list[int]:
        """Count a frame's faces, if it is one of those that are kept.

        Args:
            frame: The next one.
            faces: Its faces.
            doubts: What resembled a face, and was not taken for one.
            cut: It begins a scene.
            is_kept: It is not part of a pre-roll.

        Returns:
            Ids of faces that were not where, or who, they were followed as.
        """
        contested = []
        for face in faces:
            if face.contested:
                contested.append(face.id)
            if is_kept:
                self._tracks.add(face.id)
        seconds = frame.time_seconds
        if cut:
            self._recent.clear()
        self._recent.update((face.id, (face, seconds)) for face in faces)
        for id in [id for id, (_, at) in self._recent.items() if seconds - at > KEPT_SECONDS]:
            del self._recent[id]
        if not is_kept:
            self._before = [face for face, _ in self._recent.values()]
            return contested
        if faces:
            self._frames_with_faces += 1
            if len(faces) > self._most:
                self._most = len(faces)
        if self._hides:
            self._add_hidden(frame, faces, doubts, cut)
        if contested:
            self._contested_frames += 1
            if len(self._contested) < MAX_LISTED:
                entry = _entry(frame.index, frame.pts, frame.time_seconds)
                self._contested.append({**entry, "ids": contested})
        return contested

    def _add_hidden(
        self, frame: Frame, faces: Sequence[Face], doubts: Sequence[Detection], cut: bool
    ) -> None:
        """List who has gone away from the frame's edges, and what may be a face after all."""
        if cut:
            self._seen.clear()
        entry, seconds = _entry(frame.index, frame.pts, frame.time_seconds), frame.time_seconds
        for face in faces:
            if face.detected:
                self._seen[face.id] = face, seconds, entry
        for id in [id for id, (_, at, _) in self._seen.items() if seconds - at > KEPT_SECONDS]:
            face, _, last = self._seen.pop(id)
            if not self._is_at_edge(face):
                self._vanished.add({**last, "id": id, "box": _box(face.box_xyxy)})
        likely = [each for each in doubts if each.score >= LIKELY_SCORE]
        if likely:
            self._doubtful.add({**entry, "boxes": [_box(each.box) for each in likely]})

    def _is_at_edge(self, face: Face) -> bool:
        left, top, right, bottom = face.box_xyxy
        width, height = self._size
        near = _EDGE_PART * face_size(face.box_xyxy)
        return left < near or top < near or right > width - near or bottom > height - near

    def add_main(self, frame: Frame, ids: Sequence[int]) -> None:
        """List that other people are main from this frame on."""
        entry = _entry(frame.index, frame.pts, frame.time_seconds)
        self._main_changes.add({**entry, "ids": list(ids)})

    def notices(self) -> list[str]:
        """See :meth:`bgsoft.face.step.FaceStep.notices`."""
        if not self._hides:
            return []
        if not self._tracks:
            return ["no face was found, so none is hidden: check the result"]
        listed = (
            (self._vanished, "a face vanished away from the frame's edges {} times"),
            (self._doubtful, "{} frames show what may be a face and is not hidden"),
            (self._main_changes, "other people became main {} times"),
        )
        return [
            f"{text.format(each.count)}, first at {each.first:.2f} s; --report lists them"
            for each, text in listed
            if each.count
        ]

    def add_coverage(
        self, index: int, pts: int, seconds: float, ids: Sequence[int], shares: Sequence[float]
    ) -> None:
        """Take down how much (0–1) of each face the mask had covered before it was filled in."""
        missed = {
            str(id): round(100 * (1 - share), 1)
            for id, share in zip(ids, shares, strict=True)
            if 1 - share > MISSED_SHARE
        }
        if not missed:
            return
        self._missed_frames += 1
        if len(self._missed) < MAX_LISTED:
            entry = _entry(index, pts, seconds)
            self._missed.append({**entry, "missed_pct": missed})

    def boundary(self) -> dict[str, Any]:
        """See :meth:`FaceStep.boundary`: the ids that were counted, and ids and boxes of the faces
        that may have gone on before the first frame and after the last."""
        return {
            "ids": sorted(self._tracks),
            "before": [[face.id, *map(float, face.box_xyxy)] for face in self._before],
            "last": [[face.id, *map(float, face.box_xyxy)] for face, _ in self._recent.values()],
        }

    def summary(self) -> dict[str, Any]:
        """Plain JSON types for the report.

        ``missed_frames`` and ``missed`` are None where nothing was measured (the mode changes no
        matte). ``contested`` are frames in which the detector and a track disagreed, with the ids
        of the faces in doubt, mostly new ones. Where faces are hidden, ``vanished`` are those that
        were seen last away from the frame's edges, ``doubtful`` frames show what may be a face, and
        from ``main_changes`` on other people are main. Lists end after a thousand entries.
        """
        return {
            "tracks": len(self._tracks),
            "frames_with_faces": self._frames_with_faces,
            "most_faces": self._most,
            "missed_frames": self._missed_frames if self._measures else None,
            "missed": list(self._missed) if self._measures else None,
            "shared_frames": self.shared_frames,
            "contested_frames": self._contested_frames,
            "contested": list(self._contested),
            "vanished": self._vanished.entries if self._hides else None,
            "doubtful": self._doubtful.entries if self._hides else None,
            "main_changes": self._main_changes.entries,
        }


def _entry(index: int, pts: int, seconds: float) -> dict[str, Any]:
    """A frame, as the report lists it."""
    return {"frame": index, "pts": pts, "time_s": round(seconds, 6)}


def _box(box: Box) -> list[float]:
    return [round(float(value), 1) for value in box]
