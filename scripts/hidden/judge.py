"""Judges a render: which pixels of each true face really changed, and what else did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from numpy.typing import NDArray

from hidden.drawn import Drawn, Oval, Picture

HIDDEN = 0.7
"""Share of a face's visible pixels that must change."""
CHANGED = 4
"""Levels of luma or chroma above which a sample has changed. The output is lossless."""
HOLE_PX = 5
"""Unchanged spots up to this size amid changed ones are hidden, too: black on black."""
MIN_VISIBLE, MIN_VISIBLE_PX = 0.4, 40
"""Share of a face, and pixels, from which it counts."""
NEAR = 1.3
"""Of a true face's size: what is hidden and touches that hides the face."""
MIN_FALSE_PX = 16
SHEET_FRAMES, SHEET_WIDTH = 6, 1280

Mask = NDArray[np.bool_]
Shown = tuple[int, list[NDArray[np.uint8]]]
"""A frame's time stamp and planes: Y, U, V of 4:2:0."""


@dataclass
class Truth:
    """A frame's faces."""

    labels: NDArray[np.uint8]
    whole: dict[int, float]
    """By number: the area of the whole face, in pixels."""
    near: list[Oval]
    """All faces, also doubtful and covered ones."""

    @classmethod
    def of(cls, frame: Drawn) -> Truth:
        whole = {n: sum(o.area for o in ovals) for n, ovals in frame.ovals.items() if n}
        near = [oval for ovals in frame.ovals.values() for oval in ovals]
        return cls(frame.labels, whole, near)

    def visible(self) -> Iterator[tuple[int, Mask]]:
        """Return the number and the visible pixels of each face that counts."""
        for number, area in self.whole.items():
            mask = self.labels == number
            if np.count_nonzero(mask) >= max(MIN_VISIBLE_PX, MIN_VISIBLE * area):
                yield number, mask


@dataclass
class Verdict:
    """A frame of a render."""

    shares: dict[int, float]
    """By number of each face that counts: what is hidden of it."""
    false_px: int
    """Pixels that changed away from any face."""
    hidden_px: int = 0
    """Pixels that changed."""
    face_px: int = 0
    """Visible pixels of true faces."""

    @property
    def open(self) -> list[int]:
        return [number for number, share in self.shares.items() if share < HIDDEN]


def changed(source: Sequence[NDArray[np.uint8]], output: Sequence[NDArray[np.uint8]]) -> Mask:
    """Return which pixels differ, (H, W), of luma and both chroma planes of 4:2:0."""
    differs = np.zeros(source[0].shape, np.uint8)
    for before, after in zip(source, output, strict=True):
        plane = (cv2.absdiff(before, after) > CHANGED).astype(np.uint8)
        size = differs.shape[::-1]
        differs |= cv2.resize(plane, size, interpolation=cv2.INTER_NEAREST)
    closed = cv2.morphologyEx(differs, cv2.MORPH_CLOSE, np.ones((HOLE_PX, HOLE_PX), np.uint8))
    return np.asarray(closed, bool)


def judge(truth: Truth, mask: Mask) -> Verdict:
    """Return how much of each face ``mask``, (H, W), hides, and how much it hides elsewhere."""
    shares = {number: float(mask[face].mean()) for number, face in truth.visible()}
    faces = np.zeros(mask.shape, np.uint8)
    for oval in truth.near:
        oval.larger(NEAR).fill(faces, 1)
    count, parts, stats, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8))
    real = set(np.unique(parts[faces > 0]).tolist())
    areas = [int(stats[part, cv2.CC_STAT_AREA]) for part in range(1, count) if part not in real]
    false_px = sum(area for area in areas if area >= MIN_FALSE_PX)
    hidden_px, face_px = int(np.count_nonzero(mask)), int(np.count_nonzero(truth.labels))
    return Verdict(shares, false_px, hidden_px, face_px)


def shown(path: Path) -> Iterator[Shown]:
    """Return the frames of a video."""
    with av.open(str(path)) as source:
        for frame in source.decode(video=0):
            whole = frame.to_ndarray(format="yuv420p")
            high, wide = frame.height, frame.width
            chroma = whole[high:].reshape(2, high // 2, wide // 2)
            yield int(frame.pts or 0), [whole[:high], chroma[0], chroma[1]]


def verdicts(
    source: Sequence[Shown], output: Sequence[Shown], truths: Sequence[Truth]
) -> list[Verdict]:
    """Return a verdict for each frame.

    Raises:
        ValueError: The output has other frames than the source.
    """
    judged = []
    for (pts, before), (shown_pts, after), truth in zip(source, output, truths, strict=True):
        if abs(pts - shown_pts) > 1 or before[0].shape != after[0].shape:
            raise ValueError(f"frame at {pts} differs from the source's")
        judged.append(judge(truth, changed(before, after)))
    return judged


@dataclass
class Tally:
    """Counts of a kind."""

    scenes: int = 0
    frames: int = 0
    faces: int = 0
    """Face-frames: each face in each frame."""
    hidden: int = 0
    longest_open: int = 0
    """Most frames in a row in which the same face is open."""
    false_frames: int = 0
    hidden_px: int = 0
    face_px: int = 0
    failed: list[str] = field(default_factory=list)
    """Names of scenes with an open face, or with something hidden away from any."""

    def add(self, name: str, judged: Sequence[Verdict], shown: int, *, false: bool) -> None:
        """Add a scene, of which the ``shown`` people who are open most may be."""
        opened: dict[int, int] = {}
        for number in (number for verdict in judged for number in verdict.open):
            opened[number] = opened.get(number, 0) + 1
        exempt = set(sorted(opened, key=lambda number: -opened[number])[:shown])
        runs: dict[int, int] = {}
        for verdict in judged:
            counted = [number for number in verdict.shares if number not in exempt]
            bare = [number for number in verdict.open if number not in exempt]
            self.faces += len(counted)
            self.hidden += len(counted) - len(bare)
            runs = {number: runs.get(number, 0) + 1 for number in bare}
            self.longest_open = max(self.longest_open, *runs.values(), 0)
            self.false_frames += verdict.false_px > 0
            self.hidden_px += verdict.hidden_px
            self.face_px += verdict.face_px
        self.scenes += 1
        self.frames += len(judged)
        if set(opened) - exempt or (false and any(verdict.false_px for verdict in judged)):
            self.failed.append(name)

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "hidden_pct": self.hidden_pct, "area_ratio": self.area_ratio}

    @property
    def hidden_pct(self) -> float | None:
        return 100 * self.hidden / self.faces if self.faces else None

    @property
    def area_ratio(self) -> float | None:
        """The hidden area over the area of the true faces."""
        return self.hidden_px / self.face_px if self.face_px else None


def sheet(
    source: Sequence[Shown],
    output: Sequence[Shown],
    truths: Sequence[Truth],
    judged: Sequence[Verdict],
) -> Picture:
    """Return the worst frames: the source with true faces outlined, above the output."""

    def badness(at: int) -> float:
        bare = sum(1 - share for share in judged[at].shares.values() if share < HIDDEN)
        return bare + (judged[at].false_px > 0)

    worst = sorted(sorted(range(len(judged)), key=badness)[-SHEET_FRAMES:])
    pairs = []
    for at in worst:
        above, below = picture(source[at][1]), picture(output[at][1])
        for number, mask in truths[at].visible():
            outline = cv2.findContours(mask.astype(np.uint8), cv2.RETR_LIST, 1)[0]
            color = (0, 0, 255) if number in judged[at].open else (0, 255, 0)
            cv2.drawContours(above, outline, -1, color, 1)
        cv2.putText(above, str(at), (4, 16), 0, 0.5, (255, 255, 255), 1)
        pair = np.vstack([above, below])
        scale = min(1.0, SHEET_WIDTH / pair.shape[1])
        pairs.append(cv2.resize(pair, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA))
    return np.asarray(np.hstack(pairs), np.uint8)


def picture(planes: Sequence[NDArray[np.uint8]]) -> Picture:
    """Return Y, U, V of 4:2:0 as BGR."""
    wide = planes[0].shape[1]
    whole = np.concatenate([plane.ravel() for plane in planes]).reshape(-1, wide)
    return np.asarray(cv2.cvtColor(whole, cv2.COLOR_YUV2BGR_I420), np.uint8)
