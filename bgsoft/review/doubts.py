"""Doubtful frames: found in the evidence, merged, and ranked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from bgsoft.face.geometry import Box, box_overlap
from bgsoft.records import dataclass
from bgsoft.review.evidence import Evidence
from bgsoft.review.videos import ReviewVideo
from bgsoft.settings.regions import RegionAction

MAX_SHOWN = 40
"""Doubts on a page: with two pictures of 45 kB each they fill less than 5 MB."""
_MERGED_SECONDS = 1.0
"""Doubts of one kind and place that follow within this are one."""
_SAME_PLACE = 0.3
_AFTER_SECONDS = 0.8
"""A face that was lost stays hidden for 0.7 s: it may be bare from then on."""
_MENDED_SECONDS = 3.0
"""The proposed region of a lost face lasts so long: it may have come back by then."""
_CUT_FRAMES = 2
"""Frames around a cut whose changes of area say nothing."""
_MIN_JUMP_PCT = 1.5
"""Percent of the frame by which an area changes from frame to frame, or leaves the mean of both
neighbours, before it is doubtful; and"""
_OUTLIER = 8.0
"""how many times the median change it must be."""
_LOW_SCORE = 0.6
"""Score below which a face of the face data is doubtful. Detections are faces from 0.65 on,
whatever else is seen."""
_EDGE_PX = 2


@dataclass(slots=True)
class Doubt:
    """Frames that a person should see."""

    kind: str
    """Title, in words."""
    weight: float
    """Greater ones are shown first: kinds by hundreds, and in a kind by its size."""
    frame: int
    """The frame to show."""
    box: Box | None
    """Place in frame pixels; None: it is searched for in the frame."""
    action: RegionAction
    """Action of the region that would mend it."""
    first: int = -1
    """First of the frames that mending concerns; by default :attr:`frame`."""
    last: int = -1
    """Last of them; by default :attr:`frame`."""
    by_change: bool = False
    """The place is where the area has changed since the frame before."""

    def __post_init__(self) -> None:
        self.first = self.frame if self.first < 0 else self.first
        self.last = self.frame if self.last < 0 else self.last


def find_doubts(evidence: Evidence, video: ReviewVideo) -> list[Doubt]:
    """Find, merge and rank the doubts of a video, the gravest first."""
    found = [*_faces(evidence, video), *_scores(evidence), *_edges(evidence, video)]
    found += _areas(evidence)
    return sorted(_merged(found, video), key=lambda doubt: (-doubt.weight, doubt.frame))


def _faces(evidence: Evidence, video: ReviewVideo) -> Iterator[Doubt]:
    """Doubts that the report lists of faces."""
    listed, last = evidence.lists, len(video.pts) - 1
    mends = RegionAction.HIDE if evidence.hides else RegionAction.KEEP
    rate = max(1.0, last / max(video.seconds(last) - video.seconds(0), 1e-6))
    for entry in listed.get("vanished", ()):
        frame, box = entry["frame"], _sides(entry.get("box"))
        scene_end = min((cut - 1 for cut in evidence.cuts if cut > frame), default=last)
        shown = min(frame + round(_AFTER_SECONDS * rate), scene_end)
        ends = min(frame + round(_MENDED_SECONDS * rate), scene_end)
        yield Doubt("A face vanished", 600, shown, box, mends, first=frame, last=ends)
    for entry in listed.get("doubtful", ()):
        for box in map(_sides, entry.get("boxes", ())):
            yield Doubt("May be a face, not taken for one", 300, entry["frame"], box, mends)
    for entry in listed.get("missed", ()):
        for id, share in entry.get("missed_pct", {}).items():
            box = _face_box(evidence, entry["frame"], [int(id)])
            kind, weight = "The mask missed a part of a face", 400 + min(float(share), 99)
            yield Doubt(kind, weight, entry["frame"], box, RegionAction.KEEP)
    for entry in listed.get("main_changes", ()):
        box = _face_box(evidence, entry["frame"], entry.get("ids", ()))
        yield Doubt("The main people changed", 500, entry["frame"], box, mends)
    for entry in listed.get("shared", ()):
        kind = "People touch, separated by nearness"
        yield Doubt(kind, 200, entry["frame"], None, RegionAction.KEEP)


def _scores(evidence: Evidence) -> Iterator[Doubt]:
    """Faces that were found with a low score."""
    mends = RegionAction.HIDE if evidence.hides else RegionAction.KEEP
    for frame, faces in evidence.seen.items():
        for face in faces:
            if face.detected and face.score < _LOW_SCORE:
                weight = 200 + 99 * (1 - face.score)
                yield Doubt("A face with a low score", weight, frame, face.box, mends)


def _edges(evidence: Evidence, video: ReviewVideo) -> Iterator[Doubt]:
    """Hidden faces that come or go where the frame ends."""
    format, last = video.info.format, len(video.pts) - 1
    starts = {0, *evidence.cuts}
    for run in evidence.hidden:
        if run["source"] not in ("network", "hand"):
            continue
        for frame, *sides in (run["boxes"][0], run["boxes"][-1]):
            left, top, right, bottom = sides
            near = min(left, top, format.width - right, format.height - bottom) <= _EDGE_PX
            if near and not {frame, frame + 1} & starts and frame != last:
                kind = f"A hidden {run['region'] or 'face'} comes or goes at the edge"
                yield Doubt(kind, 100, frame, _sides(sides), RegionAction.HIDE)


def _areas(evidence: Evidence) -> Iterator[Doubt]:
    """Frames whose area is another than before; a flicker counts once."""
    change = np.diff(evidence.area, append=evidence.area[-1:]).tolist()
    min_jump = max(_MIN_JUMP_PCT, _OUTLIER * float(np.median(np.abs(change))))
    near_cut = {cut + by for cut in evidence.cuts for by in range(-_CUT_FRAMES, _CUT_FRAMES + 1)}
    flickered = -1
    for frame, (by, following) in enumerate(pairwise(change), 1):
        if abs(by) < min_jump or frame in near_cut or frame == flickered + 1:
            continue
        returns = by * following < 0 and abs(following) >= abs(by) / 2
        if returns:
            flickered = frame
        moves = "grows" if by > 0 else "shrinks"
        kind = f"Flicker: the area {moves} for a frame" if returns else f"The area {moves} suddenly"
        action = RegionAction.KEEP if (by < 0) is evidence.person_shrinks else RegionAction.DROP
        yield Doubt(kind, 350 + min(abs(by), 49), frame, None, action, by_change=True)


def flicker_of(evidence: Evidence) -> Any:
    """Return by how many percent of the frame each area leaves the mean of its neighbours."""
    area = np.asarray(evidence.area, np.float64)
    flicker = np.zeros(len(area))
    if len(area) > 2:
        flicker[1:-1] = np.abs(area[1:-1] - (area[:-2] + area[2:]) / 2)
        for cut in evidence.cuts:
            flicker[max(cut - 1, 0) : cut + 1] = 0
    return flicker


def _sides(box: Any) -> Box | None:
    return None if box is None else (*map(float, box),)  # type: ignore[return-value]


def _face_box(evidence: Evidence, frame: int, ids: Iterable[int]) -> Box | None:
    """The box of a face in the face data; None: it is not there."""
    wanted = set(ids)
    return next((face.box for face in evidence.seen.get(frame, ()) if face.id in wanted), None)


def _merged(doubts: Iterable[Doubt], video: ReviewVideo) -> list[Doubt]:
    """Join doubts of one kind, in one place, that follow each other closely."""
    merged: list[Doubt] = []
    alive: dict[str, list[Doubt]] = {}
    for doubt in sorted(doubts, key=lambda each: each.first):
        now = video.seconds(doubt.first)
        near = [
            each
            for each in alive.get(doubt.kind, ())
            if now - video.seconds(each.last) <= _MERGED_SECONDS
        ]
        same = next((each for each in near if _is_same(each, doubt)), None)
        alive[doubt.kind] = near
        if same is None:
            merged.append(doubt)
            near.append(doubt)
            continue
        if doubt.weight > same.weight:
            same.frame, same.weight = doubt.frame, doubt.weight
        same.last = max(same.last, doubt.last)
        if same.box is not None and doubt.box is not None:
            corners = zip(same.box, doubt.box, strict=True)
            left, top, right, bottom = corners
            same.box = min(left), min(top), max(right), max(bottom)
    return merged


def _is_same(one: Doubt, other: Doubt) -> bool:
    if one.box is None or other.box is None:
        return one.box is other.box
    return box_overlap(one.box, other.box) >= _SAME_PLACE


def mending_line(doubt: Doubt, box: Box, video: ReviewVideo) -> str:
    """Return the entry of a regions file that would mend a doubt.

    Args:
        doubt: The doubt.
        box: Its place.
        video: The source.
    """
    format, last = video.info.format, len(video.pts) - 1
    left, top = max(0, int(box[0])), max(0, int(box[1]))
    width = max(2, min(format.width, round(box[2])) - left)
    height = max(2, min(format.height, round(box[3])) - top)
    lines = [
        "[[region]]",
        f'action = "{doubt.action.value}"',
        f'box = "{left},{top},{width},{height}"',
        f"from = {video.stamp(doubt.first):.3f}",
    ]
    if doubt.last < last:
        lines.append(f"to = {video.stamp(doubt.last + 1):.3f}")
    return "\n".join(lines)
