"""Report of a render about its faces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from bgsoft.face.base import Face
from bgsoft.face.detect import Detection
from bgsoft.face.finder import LIKELY_SCORE
from bgsoft.face.geometry import Box, face_size
from bgsoft.face.guard import MISSED_SHARE
from bgsoft.face.track import KEPT_SECONDS
from bgsoft.frame import Frame, FrameFormat

MAX_LISTED = 1000
"""Entries of each list, of about 100 bytes; all are counted. An hour could have 100,000."""
_EDGE_PART = 0.5
"""Face sizes from the frame's edge within which a face may have left."""
_LISTS = {
    "missed": "",
    "shared": "people touch in {} frames and are separated by nearness",
    "vanished": "a face vanished away from the frame's edges {} times",
    "doubtful": "{} frames may show a face that is not hidden",
    "main_changes": "the main people changed {} times",
}
"""Lists of a report, and the warning of each: none where it is empty."""


class FaceJournal:
    """Counts tracks and frames, and lists what needs a look in mattes or hidden faces."""

    def __init__(self, format: FrameFormat, *, measures: bool, hides: bool) -> None:
        self._size = format.width, format.height
        self._hides = hides
        self._tracks: set[int] = set()
        self._recent: dict[int, tuple[Face, float, dict[str, Any]]] = {}
        """Each face where it was seen last, when, and the frame's entry."""
        self._proven: set[int] = set()
        """Faces that were seen often enough to be hidden."""
        self._seconds = 0.0
        """Time of the last frame."""
        self._is_taken = False
        """The list of doubtful frames is that of another pass."""
        self._before: list[list[float]] = []
        off = ("vanished", "doubtful") * (not hides) + ("missed",) * (not measures)
        self._summary: dict[str, Any] = {
            **dict.fromkeys(("tracks", "frames_with_faces", "most_faces"), 0),
            **{f"{name}_frames": None if name in off else 0 for name in _LISTS},
            **{name: None if name in off else [] for name in _LISTS},
        }

    def note(self, name: str, entry: dict[str, Any], **more: Any) -> None:
        """Add a frame's :func:`entry_of` to a list of the report, with more values."""
        listed = self._summary[name]
        if listed is not None:
            self._summary[f"{name}_frames"] += 1
            if len(listed) < MAX_LISTED:
                listed.append({**entry, **more})

    def take_doubtful(self, summary: Mapping[str, Any]) -> None:
        """Take the doubtful frames from the summary of a pass that found the faces."""
        self._is_taken = True
        self._summary |= {key: summary[key] for key in ("doubtful", "doubtful_frames")}

    def cut(self) -> None:
        """The next frame begins a scene, in which nobody vanishes who was there before."""
        self._recent = {id: each for id, each in self._recent.items() if id not in self._proven}

    def _note_unproven(self, face: Face, entry: dict[str, Any]) -> None:
        """List a face that was not seen often enough to be hidden."""
        if self._hides and not self._is_taken:
            self.note("doubtful", entry, boxes=[_rounded(face.box_xyxy)])
            self._summary["doubtful"].sort(key=itemgetter("pts"))

    def add(
        self,
        frame: Frame,
        faces: Sequence[Face],
        doubts: Sequence[Detection] = (),
        *,
        is_kept: bool = True,
    ) -> None:
        """Count the next frame's faces, and detections that were not taken for faces.

        Args:
            frame, faces, doubts: Of the frame.
            is_kept: It is not part of a pre-roll.
        """
        entry, seconds = entry_of(frame), frame.time_seconds
        self._seconds = seconds
        self._proven.update(face.id for face in faces if face.is_proven)
        self._recent.update((face.id, (face, seconds, entry)) for face in faces if face.detected)
        for id in [id for id, (_, at, _) in self._recent.items() if seconds - at > KEPT_SECONDS]:
            face, _, last = self._recent.pop(id)
            if is_kept and id not in self._proven:
                self._note_unproven(face, last)
            elif is_kept and not self._is_at_edge(face.box_xyxy):
                self.note("vanished", last, id=id, box=_rounded(face.box_xyxy))
        if not is_kept:
            self._before = self._places()
            return
        self._tracks.update(face.id for face in faces)
        self._summary["frames_with_faces"] += bool(faces)
        self._summary["most_faces"] = max(self._summary["most_faces"], len(faces))
        likely = [_rounded(each.box) for each in doubts if each.score >= LIKELY_SCORE]
        if likely:
            self.note("doubtful", entry, boxes=likely)

    def _is_at_edge(self, box: Box) -> bool:
        left, top, right, bottom = box
        width, height = self._size
        near = _EDGE_PART * face_size(box)
        return left < near or top < near or right > width - near or bottom > height - near

    def _places(self) -> list[list[float]]:
        return [[id, *map(float, face.box_xyxy)] for id, (face, *_) in self._recent.items()]

    def add_coverage(
        self, entry: dict[str, Any], ids: Sequence[int], shares: Sequence[float]
    ) -> None:
        """Note how much (0–1) of each face the mask had covered before it was filled in."""
        pairs = zip(ids, shares, strict=True)
        missed = {str(id): round(100 * (1 - s), 1) for id, s in pairs if 1 - s > MISSED_SHARE}
        if missed:
            self.note("missed", entry, missed_pct=missed)

    def warnings(self, *, is_hiding: bool) -> list[str]:
        """Return what a user should know, after the last frame.

        Args:
            is_hiding: A face was hidden; perhaps one that no counted frame shows.
        """
        for id, (face, seconds, entry) in self._recent.items():
            if id not in self._proven and seconds < self._seconds:
                self._note_unproven(face, entry)
        if self._hides and not self._tracks and not is_hiding:
            return ["no face was found, so none is hidden"]
        return [
            f"{text.format(self._summary[f'{name}_frames'])}, first at {listed[0]['time_s']:.2f} s;"
            " a render's --report lists them"
            for name, text in _LISTS.items()
            if text and (listed := self._summary[name])
        ]

    def boundary(self) -> dict[str, Any]:
        """Return what joins the faces of a chunk with those before it; plain JSON types.

        These are the ids that were counted, and ids and boxes of the faces that may have gone on
        before the first frame and after the last. They are complete once the step is closed.
        """
        return {"ids": sorted(self._tracks), "before": self._before, "last": self._places()}

    def summary(self) -> dict[str, Any]:
        """Return plain JSON types for the report.

        Each list has its count next to it. Both are None where nothing is measured or hidden.
        ``missed``: the mask lacked a part of a face; ``shared``: it could not separate people;
        ``vanished``: a face was seen last here, away from the edges; ``doubtful``: something may be
        a face; ``main_changes``: other people are main from here on, or nobody.
        """
        return {**self._summary, "tracks": len(self._tracks)}


def joined_summary(
    summaries: Sequence[Mapping[str, Any]], tables: Sequence[Mapping[int, int]]
) -> dict[str, Any]:
    """Return the summaries of a video's parts, in which nobody is main or hidden, as one.

    The tables have the ids of the whole video.
    """
    joined = dict(summaries[0])
    if joined["missed"] is not None:
        joined["missed"] = [
            entry
            | {"missed_pct": {str(ids[int(id)]): pct for id, pct in entry["missed_pct"].items()}}
            for summary, ids in zip(summaries, tables, strict=True)
            for entry in summary["missed"]
        ][:MAX_LISTED]
        joined["missed_frames"] = sum(summary["missed_frames"] for summary in summaries)
    joined["frames_with_faces"] = sum(summary["frames_with_faces"] for summary in summaries)
    joined["most_faces"] = max(summary["most_faces"] for summary in summaries)
    joined["tracks"] = len({number for numbers in tables for number in numbers.values()})
    return joined


def entry_of(frame: Frame) -> dict[str, Any]:
    """Return a frame as the report lists it."""
    return {"frame": frame.index, "pts": frame.pts, "time_s": round(frame.time_seconds, 6)}


def _rounded(box: Box) -> list[float]:
    return [round(float(value), 1) for value in box]
