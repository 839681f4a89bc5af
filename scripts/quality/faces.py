"""Compares the faces that a finder has with those that a reference sees.

For scripts/measure_faces.py, which says what the numbers mean.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bgsoft.face.base import Face
from bgsoft.face.geometry import box_iou
from bgsoft.frame import FrameFormat

MIN_MATCH, TIGHT_MATCH = 0.25, 0.5
"""Intersection over union from which a face is found, and from which its landmarks are on it."""
LARGE = 0.08
"""Part of the frame's short side from which a face is large."""
FALSE_SPAN, FALSE_OVERLAP = 3, 0.1


class Seen(NamedTuple):
    """Faces that a reference sees in a frame."""

    boxes: NDArray[np.float64]
    """(n, 4): left, top, right, bottom."""
    keypoints: NDArray[np.float64]
    """(n, 6, 2): x, y of right eye, left eye, nose, mouth, right ear, left ear."""
    scores: NDArray[np.float64]
    """(n,) in [0, 1]."""


SCORE, LARGE_SCORE, LOW_SCORE = 0.8, 0.7, 0.5
"""Of a visible face; where it is large; and below which there is no face at all."""


def visible_of(seen: Seen, format: FrameFormat) -> NDArray[np.bool_]:
    """Which detections are visible frontal faces, (n,)."""
    large = heights(seen, format) >= LARGE
    sure: NDArray[np.bool_] = seen.scores >= np.where(large, LARGE_SCORE, SCORE)
    return sure & is_frontal(seen)


def read_reference(path: Path, format: FrameFormat) -> list[Seen]:
    """Detections of another detector in each frame, from scripts/reference_faces.py."""
    if not path.exists():
        raise SystemExit(f"{path} is missing: write it with scripts/reference_faces.py")
    read = json.loads(path.read_text())
    if (read["width"], read["height"]) != (format.width, format.height):
        raise SystemExit(f"{path} is of a clip of another size")
    return [
        Seen(
            np.array([face["box"] for face in frame["faces"]], float).reshape(-1, 4),
            np.array([face["points"] for face in frame["faces"]], float).reshape(-1, 6, 2),
            np.array([face["score"] for face in frame["faces"]], float),
        )
        for frame in read["frames"]
    ]


def heights(seen: Seen, format: FrameFormat) -> NDArray[Any]:
    """Parts of the frame's short side, (n,)."""
    sizes: NDArray[Any] = seen.boxes[:, 3] - seen.boxes[:, 1]
    return sizes / min(format.width, format.height)


def is_frontal(seen: Seen) -> NDArray[np.bool_]:
    """Whether the nose lies between the eyes, along their line, (n,).

    In MediaPipe's canonical face model (mediapipe/modules/face_geometry/data) the nose's tip is
    4.0 in front of the middle of the eyes' corners, and those are 3.15 to either side: it passes
    an eye when the head is turned by 38°.
    """
    right, left, nose = (seen.keypoints[:, index] for index in range(3))
    along = ((nose - right) * (left - right)).sum(axis=1)
    inside: NDArray[np.bool_] = (along >= 0) & (along <= ((left - right) ** 2).sum(axis=1))
    return inside


def matches(faces: list[Face], seen: Seen) -> NDArray[Any]:
    """How much the best of the finder's boxes overlaps each detection, (n,) in [0, 1]."""
    boxes = [face.box_xyxy for face in faces]
    return np.array([max_iou(boxes, box) for box in seen.boxes.tolist()])


def max_iou(boxes: Iterable[Sequence[float]], box: Sequence[float]) -> float:
    """How much the best of some boxes overlaps one, in [0, 1]."""
    return max((box_iou(each, box) for each in boxes), default=0.0)


@dataclass
class Comparison:
    """One clip's faces, frame by frame."""

    format: FrameFormat
    faces: list[list[Face]] = field(default_factory=list)
    """The finder's."""
    seen: list[Seen] = field(default_factory=list)
    """The reference's."""
    visible: list[NDArray[np.bool_]] = field(default_factory=list)
    """Which of these are visible frontal faces."""

    def add(self, faces: list[Face], seen: Seen) -> None:
        """Take the next frame."""
        self.faces.append(faces)
        self.seen.append(seen)
        self.visible.append(visible_of(seen, self.format))

    def recall(self, least: float = 0.0, match: float = MIN_MATCH) -> tuple[int, int]:
        """(found, visible) of the faces that are at least so high, as a part of the short side."""
        found = total = 0
        for faces, seen, visible in zip(self.faces, self.seen, self.visible, strict=True):
            asked = visible & (heights(seen, self.format) >= least)
            total += int(asked.sum())
            found += int((asked & (matches(faces, seen) >= match)).sum())
        return found, total

    def missed(self, index: int) -> list[int]:
        """Rows of one frame's visible faces that the finder does not have."""
        found = matches(self.faces[index], self.seen[index])
        return [int(row) for row in np.flatnonzero(self.visible[index] & (found < MIN_MATCH))]

    def misses(self) -> Iterator[str]:
        """Where each miss is."""
        for index, seen in enumerate(self.seen):
            for row in self.missed(index):
                box = ", ".join(f"{value:.0f}" for value in seen.boxes[row])
                yield (
                    f"missed in {index}: ({box}), {heights(seen, self.format)[row]:.1%} high, "
                    f"score {seen.scores[row]:.2f}, "
                    f"best overlap {matches(self.faces[index], seen)[row]:.2f}"
                )

    def false_life(self) -> int:
        """Longest run of frames in which a track follows what the reference does not see."""
        longest = 0
        lives: Counter[int] = Counter()
        for index, faces in enumerate(self.faces):
            near = self.seen[max(0, index - FALSE_SPAN) : index + FALSE_SPAN + 1]
            parts = [seen.boxes[seen.scores >= LOW_SCORE] for seen in near]
            boxes = np.concatenate(parts).tolist()
            for face in faces:
                if max_iou(boxes, face.box_xyxy) > FALSE_OVERLAP:
                    lives[face.id] = 0
                else:
                    lives[face.id] += 1
                    longest = max(longest, lives[face.id])
        return longest
