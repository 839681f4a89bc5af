"""The material of scenes: clips, people cut out of them, and rooms without anybody."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import av
import cv2
import numpy as np
from numpy.typing import NDArray
from quality.truth import room

from hidden.drawn import Drawn, Patch, Picture
from hidden.truth import CenterFace, Face

SURE, DOUBT = 0.45, 0.2
"""Scores of the independent detector: of a face that must be hidden, and that may be."""
PERSON_SCORE, PERSON_PX, MAX_PEOPLE = 0.6, 60, 18
MIN_FACE_PX = 12
CLIP_FRAMES = 24
LARGEST_PATCH_FACE_PX = 180
ROOM_SIZE = (1280, 720)
SPREAD, MAX_SPREAD = 40, 0.6
"""Levels by which clips differ where people are; share of such pixels in one fixed room."""
FILL_SHRINK = 4
BESIDE, ABOVE, BELOW, RIM = 0.95, 1.0, 1.15, 0.25
"""A patch's extent from the face's centre, and its blurred edge, in heights of the face."""


@dataclass
class Clip:
    """A clip or a photograph."""

    name: str
    frames: list[Drawn]
    """The first. Faces are numbered from left to right; a doubtful one has no number's pixels."""
    rest: list[Drawn]
    """The others of a clip; none with ``--quick``."""


class Stock:
    """Everything that scenes are drawn from."""

    def __init__(self, paths: list[Path], detector: CenterFace, *, quick: bool) -> None:
        self.quick = quick
        self.clips: list[Clip] = []
        self.photographs: list[Clip] = []
        self.people: list[list[Patch]] = []
        """By person: the head over time."""
        photographed: list[list[Patch]] = []
        for path in expanded(paths):
            pictures = read(path, CLIP_FRAMES if quick else None)
            seen = [detector.faces(picture, DOUBT) for picture in pictures]
            frames = [
                with_truth(picture, faces, detector.doubtful(picture))
                for picture, faces in zip(pictures, seen, strict=True)
            ]
            first, rest = frames[:CLIP_FRAMES], frames[CLIP_FRAMES:]
            moves = len(pictures) > 1
            (self.clips if moves else self.photographs).append(Clip(path.stem, first, rest))
            head = person(pictures[:CLIP_FRAMES], seen[:CLIP_FRAMES])
            if head:
                (self.people if moves else photographed).append(head)
        if not self.clips or not self.people:
            raise SystemExit("cannot build scenes: no clip shows a face; name clips of people")
        rng = self.rng("people")
        rng.shuffle(order := np.arange(len(photographed)))
        self.people += [photographed[at] for at in order[: MAX_PEOPLE - len(self.people)]]
        rooms = [np.asarray(room(), np.uint8), self.plate(), *(texture(rng) for _ in range(2))]
        self.rooms = [
            np.asarray(cv2.resize(each, ROOM_SIZE, interpolation=cv2.INTER_CUBIC), np.uint8)
            for each in rooms
            if each is not None and not detector.faces(each, DOUBT)
        ]
        """(720, 1280, 3), nobody in them."""

    def rng(self, name: str) -> np.random.Generator:
        return np.random.default_rng(zlib.crc32(name.encode()))

    def count(self, full: int) -> int:
        """So many scenes, or a third with ``--quick``."""
        return max(1, full // 3) if self.quick else full

    def plate(self) -> Picture | None:
        """Return the clips' room, where they share one: median, what people cover filled in."""
        size = self.clips[0].frames[0].size
        shown = [f.picture for c in self.clips for f in c.frames[::6] if f.size == size]
        spread = np.ptp(np.stack(shown), axis=0).max(axis=-1) > SPREAD
        if spread.mean() > MAX_SPREAD:
            return None
        median = np.median(np.stack(shown), axis=0).astype(np.uint8)
        covered = cv2.dilate(spread.astype(np.uint8), np.ones((15, 15), np.uint8))
        small = size[0] // FILL_SHRINK, size[1] // FILL_SHRINK
        hole = cv2.resize(covered, small, interpolation=cv2.INTER_NEAREST)
        filled = cv2.inpaint(cv2.resize(median, small), hole, 3, cv2.INPAINT_TELEA)
        median[covered > 0] = cv2.resize(filled, size, interpolation=cv2.INTER_CUBIC)[covered > 0]
        return median

    def background(self, rng: np.random.Generator, size: tuple[int, int]) -> Picture:
        """Return a random part of a random room."""
        whole = self.rooms[int(rng.integers(len(self.rooms)))]
        if rng.random() < 0.5:
            whole = whole[:, ::-1]
        share = max(size[0] / whole.shape[1], size[1] / whole.shape[0])
        scale = max(share, rng.uniform(0.6, 1.0))
        enlarged = cv2.resize(whole, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
        left, top = (
            int(rng.integers(max(0, have - want) + 1))
            for have, want in zip(enlarged.shape[1::-1], size, strict=True)
        )
        part = enlarged[top : top + size[1], left : left + size[0]]
        return np.asarray(cv2.resize(part, size), np.uint8)


def expanded(paths: list[Path]) -> list[Path]:
    """Files, and those in folders."""
    return [
        file for path in paths for file in (sorted(path.iterdir()) if path.is_dir() else [path])
    ]


def read(path: Path, most: int | None) -> list[Picture]:
    """Return a picture, or at most ``most`` frames of a clip; None: all. Sides are made even."""
    still = cv2.imread(str(path))
    if still is not None:
        pictures = [still]
    else:
        try:
            with av.open(str(path)) as source:
                decoded = islice(source.decode(video=0), most)
                pictures = [frame.to_ndarray(format="bgr24") for frame in decoded]
        except av.FFmpegError as exc:
            raise SystemExit(f"cannot read {path}: {exc}; name clips and pictures only") from exc
    return [np.ascontiguousarray(p[: len(p) // 2 * 2, : p.shape[1] // 2 * 2]) for p in pictures]


def with_truth(picture: Picture, faces: list[Face], doubtful: list[Face]) -> Drawn:
    """Number what the detector sees; in doubt, a face is there for false alarms only."""
    made = Drawn(picture)
    sure = [f for f in faces if f.score >= SURE and 2 * f.oval.along >= MIN_FACE_PX]
    for number, face in enumerate(sorted(sure, key=lambda face: face.oval.x), 1):
        made.add(face.oval, number)
    unsure = [face for face in faces if face not in sure]
    made.ovals[0] = [face.oval for face in (*unsure, *doubtful)]
    return made


def person(pictures: list[Picture], seen: list[list[Face]]) -> list[Patch]:
    """Cut a head out of pictures that show one large, sure face; else return nothing."""
    if any(len(faces) != 1 or faces[0].score < PERSON_SCORE for faces in seen):
        return []
    first = seen[0][0].oval
    if 2 * first.along < PERSON_PX:
        return []
    unit = 2 * first.along
    high, wide = pictures[0].shape[:2]
    left, right = max(0, first.x - BESIDE * unit), min(wide, first.x + BESIDE * unit)
    top, bottom = max(0, first.y - ABOVE * unit), min(high, first.y + BELOW * unit)
    if min(first.x - left, right - first.x, first.y - top, bottom - first.y) < 0.7 * unit:
        return []
    scale = min(1.0, LARGEST_PATCH_FACE_PX / unit)
    corner, size = (round(left), round(top)), (round(right - left), round(bottom - top))
    matrix = np.array([[scale, 0, -scale * corner[0]], [0, scale, -scale * corner[1]]])
    shrunk = [round(side * scale) for side in size]
    alpha = soft_edge(shrunk[0], shrunk[1], RIM * unit * scale)
    patches = []
    for picture, faces in zip(pictures, seen, strict=True):
        part = picture[corner[1] : corner[1] + size[1], corner[0] : corner[0] + size[0]]
        part = np.asarray(cv2.resize(part, shrunk, interpolation=cv2.INTER_AREA), np.uint8)
        patches.append(Patch(part, alpha, faces[0].oval.moved(matrix)))
    return patches


def soft_edge(width: int, height: int, rim: float) -> NDArray[np.float32]:
    """Opacity that rises from 0 at the border to 1, over this number of pixels."""
    x, y = (np.minimum(np.arange(n) + 0.5, n - np.arange(n) - 0.5) / rim for n in (width, height))
    near = np.clip(np.minimum(x[None], 1) * np.minimum(y[:, None], 1), 0, 1)
    return np.asarray(near * near * (3 - 2 * near), np.float32)


def texture(rng: np.random.Generator) -> Picture:
    """Return soft shapes and grain at several scales."""
    width, height = ROOM_SIZE
    total = np.full((height, width, 3), rng.uniform(70, 150, 3))
    for cells, strength in ((4, 60), (16, 25), (64, 12), (320, 6)):
        grid = rng.normal(0, strength, (cells * 9 // 16, cells, 1)) + rng.normal(
            0, strength / 3, (cells * 9 // 16, cells, 3)
        )
        total += cv2.resize(grid, ROOM_SIZE, interpolation=cv2.INTER_CUBIC)
    return np.clip(total, 0, 255).astype(np.uint8)
