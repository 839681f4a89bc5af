"""Measure whether faces stay hidden across hard cuts that nobody announces.

::

    python scripts/measure_hidden.py clip.mkv other.mp4 photo.jpg ... [--cuts none] [--draw DIR]

Clips, and slow pans over photographs, are shown in several ways (as they are, mirrored, from near,
small in a corner, darker), brought to one size and joined: every ordered pair of them, then
successions of short ones, some of them without a face. A face box that ``--face anonymize
--subjects 0`` finds in a piece alone has to be hidden in the join of the pieces, in the pixels that
the anonymiser really changes. Per kind of join: face boxes, those of which less than 95 % is hidden
(the figure to reach is one in a thousand), those of two frames in a row with less than 70 % (none),
and frames of detected cuts. ``--cuts none`` switches cut detection off, so that the tracks stand
alone. ``--mode guard`` says of each piece's faces whether the face data has them (boxes overlap by
a quarter or more), and how many faces it has that are not there, but claims to see.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.reduce import Reducer
from bgsoft.analysis.scenes import LumaProbe
from bgsoft.face.base import Face
from bgsoft.face.create import finder_settings
from bgsoft.face.editor import MatteEditor
from bgsoft.face.finder import FaceFinder
from bgsoft.face.geometry import box_iou
from bgsoft.face.networks import FaceNetworks
from bgsoft.face.step import FaceStep
from bgsoft.frame import ColorInfo, Frame, FrameFormat, Planes
from bgsoft.hide.hider import Hider
from bgsoft.hide.plan import HidePlan, Place
from bgsoft.settings.config import FaceConfig, FaceMode
from bgsoft.workers import Workers

WIDTH, HEIGHT, RATE, BATCH = 640, 480, 30, 8
FORMAT = FrameFormat(width=WIDTH, height=HEIGHT, color=ColorInfo(full_range=True, matrix=6))
HIDDEN, BARE = 0.95, 0.70
MATCH = 0.25
LENGTHS, SHORT, MANY = (8, 12, 16, 21), (5, 10), 16
"""Frames of a piece in a pair, some of them whole batches; and in a succession, of so many."""

Picture = NDArray[np.uint8]


class Mask(Hider):
    """What would change, by changing it."""

    def __init__(self) -> None:
        super().__init__(HidePlan(format=FORMAT))
        self.of: dict[int, NDArray[np.bool_]] = {}
        """By frame index: (HEIGHT, WIDTH), the pixels that are hidden."""

    def apply(self, frame: Frame, places: Sequence[Place]) -> None:
        board = np.indices((HEIGHT, WIDTH)).sum(axis=0) % 2 * 140 + 60
        seen = make_frame(board.astype(np.uint8), frame.chroma.copy(), frame.index)
        super().apply(seen, places)
        self.of[frame.index] = np.abs(seen.luma.astype(int) - board) > 30


def make_frame(luma: Picture, chroma: Picture, index: int) -> Frame:
    planes = Planes(slot=0, luma=luma, chroma=chroma, alpha=np.zeros((1, 1), np.uint8))
    return Frame(planes=planes, format=FORMAT, index=index, pts=index, time_base=Fraction(1, RATE))


def to_planes(picture: Picture) -> tuple[Picture, Picture]:
    """From (HEIGHT, WIDTH, 3) BGR."""
    ycrcb = cv2.cvtColor(picture, cv2.COLOR_BGR2YCrCb)
    half = (WIDTH // 2, HEIGHT // 2)
    chroma = cv2.resize(ycrcb[..., :0:-1], half, interpolation=cv2.INTER_AREA)
    return np.ascontiguousarray(ycrcb[..., 0]), np.asarray(chroma, np.uint8)


def fitted(picture: Picture) -> Picture:
    """The middle of a picture, in the common size."""
    scale = max(WIDTH / picture.shape[1], HEIGHT / picture.shape[0])
    size = [
        max(a, round(b * scale)) for a, b in zip((WIDTH, HEIGHT), picture.shape[1::-1], strict=True)
    ]
    picture = cv2.resize(picture, size, interpolation=cv2.INTER_AREA if scale < 1 else 1)
    x, y = (size[0] - WIDTH) // 2, (size[1] - HEIGHT) // 3
    return picture[y : y + HEIGHT, x : x + WIDTH]


def zoomed(scale: float, x: float, y: float) -> Callable[[Picture], Picture]:
    """Enlarge by a factor about a point, parts of the sides; smaller ones get a grey frame."""
    matrix = np.array([[scale, 0, x * WIDTH * (1 - scale)], [0, scale, y * HEIGHT * (1 - scale)]])
    return lambda picture: cv2.warpAffine(
        picture, matrix, (WIDTH, HEIGHT), flags=cv2.INTER_AREA, borderValue=(90, 90, 90)
    )


WAYS: dict[str, Callable[[Picture], Picture]] = {
    "plain": lambda picture: picture,
    "mirrored": lambda picture: picture[:, ::-1],
    "near": zoomed(1.5, 0.35, 0.3),
    "right": zoomed(1.3, 0.8, 0.4),
    "small": zoomed(0.6, 0.1, 0.9),
    "dark": lambda picture: (picture * 0.75).astype(np.uint8),
    "shifted": zoomed(1.1, 0.0, 0.0),
    "nobody": lambda picture: cv2.GaussianBlur(picture, (0, 0), 60),
    "two": lambda p: np.hstack([fitted(p)[:, 160:480], fitted(p)[:, 160:480][:, ::-1]]),
}


def pictures(path: Path, count: int) -> Iterator[Picture]:
    """The first frames of a clip, or a slow pan over a photograph, in the common size."""
    still = cv2.imread(str(path))
    if still is not None:
        for at in range(count):
            yield zoomed(1.05 + 0.004 * at, 0.5 + 0.01 * at, 0.4)(fitted(still))
        return
    with av.open(str(path)) as source:
        for at, frame in enumerate(source.decode(video=0)):
            if at == count:
                return
            yield fitted(frame.to_ndarray(format="bgr24"))


Piece = tuple[str, list[tuple[Picture, Picture]]]


def pieces(paths: Sequence[Path], ways: Sequence[str], count: int) -> list[Piece]:
    """Every clip in every way: its name and its planes."""
    made = []
    for path in paths:
        shown = list(pictures(path, count))
        for way in ways:
            planes = [to_planes(np.ascontiguousarray(WAYS[way](picture))) for picture in shown]
            made.append((f"{path.stem} {way}", planes))
    return made


class Result:
    """What one run gave."""

    def __init__(self, frames: Sequence[tuple[Picture, Picture]], mode: FaceMode, cuts: bool):
        config = FaceConfig(mode=mode, subjects=0 if mode is FaceMode.ANONYMIZE else 1)
        self.mask = Mask()
        self.cuts = 0
        self.events: list[Any] = []
        settings = finder_settings(config, writes_data=False)
        step = FaceStep(
            config,
            FORMAT,
            finder=FaceFinder(FORMAT, FaceNetworks(FORMAT), settings),
            editor=MatteEditor(FORMAT),
            hider=self.mask,
            on_event=self.events.append,
        )
        self.faces: list[list[Face]] = []
        reducer, scenes = Reducer(FORMAT, Workers(BATCH)), LumaProbe(FORMAT, batch=BATCH)
        step.start()
        for first in range(0, len(frames), BATCH):
            batch = [make_frame(*p, first + i) for i, p in enumerate(frames[first : first + BATCH])]
            reduced = reducer.reduce(batch)
            seen = scenes.cuts(reduced) if cuts else [False] * len(batch)
            self.cuts += sum(seen)
            starts = [0, *(at for at in range(1, len(batch)) if seen[at]), len(batch)]
            for start, stop in pairwise(starts):
                if seen[start]:
                    step.reset()
                found = step.find(batch[start:stop], reduced[start:stop])
                self.faces += [each.faces for each in found]
                step.finish(batch[start:stop], found)
        step.flush()
        step.close()
        self.summary = step.summary()


def hidden_part(mask: NDArray[np.bool_] | None, face: Face) -> float:
    """The part of a face's box, inside the frame, that is hidden; 1 where none of it is inside."""
    left, top, right, bottom = (max(0, round(value)) for value in face.box_xyxy)
    inside = (slice(top, min(bottom, HEIGHT)), slice(left, min(right, WIDTH)))
    if mask is None:
        mask = np.zeros((HEIGHT, WIDTH), np.bool_)
    return float(mask[inside].mean()) if mask[inside].size else 1.0


class Tally:
    """Counts over joins."""

    def __init__(self, options: argparse.Namespace, alone: dict[str, list[list[Face]]]) -> None:
        self.options = options
        self.counts: Counter[str] = Counter()
        self.alone = alone
        self.worst: list[tuple[float, str, int]] = []

    def add(self, join: Sequence[Piece]) -> None:
        mode = FaceMode(self.options.mode)
        expected: list[list[Face]] = []
        for name, planes in join:
            expected += self.alone[name][: len(planes)]
        result = Result(
            [p for _, planes in join for p in planes], mode, self.options.cuts == "seen"
        )
        self.counts["cuts"] += len(join) - 1
        self.counts["detected cuts"] += result.cuts
        self.counts["frames"] += len(expected)
        name = " | ".join(name for name, _ in join)
        before = False
        for at, faces in enumerate(expected):
            if mode is FaceMode.ANONYMIZE:
                parts = [hidden_part(result.mask.of.get(at), face) for face in faces]
            else:
                parts = [self._follows(face, result.faces[at], at) for face in faces]
                for face in result.faces[at]:
                    real = [self._follows(face, faces, at)]
                    self.counts["false"] += face.detected and max(real) == 0
            self.counts["faces"] += len(parts)
            self.counts["open"] += sum(part < HIDDEN for part in parts)
            bare = any(part < BARE for part in parts)
            self.counts["bare twice"] += bare and before
            before = bare
            if parts and min(parts) < HIDDEN:
                self.worst.append((min(parts), name, at))
                self._draw(name, at, join, result, faces, min(parts))

    def _follows(self, face: Face, found: Sequence[Face], at: int) -> float:
        return float(any(box_iou(other.box_xyxy, face.box_xyxy) >= MATCH for other in found))

    def _draw(
        self, name: str, at: int, join: Any, result: Result, faces: Sequence[Face], part: float
    ) -> None:
        if self.options.draw is None:
            return
        luma = [planes for _, each in join for planes in each][at][0].copy()
        picture = cv2.cvtColor(luma, cv2.COLOR_GRAY2BGR)
        mask = result.mask.of.get(at)
        if mask is not None:
            picture[mask] = picture[mask] // 2 + np.array([0, 90, 0], np.uint8)
        for color, drawn in (((0, 0, 255), faces), ((255, 0, 0), result.faces[at])):
            for face in drawn:
                corners = np.rint(face.box_xyxy).astype(int)
                cv2.rectangle(picture, tuple(corners[:2]), tuple(corners[2:]), color, 1)
                text = f"{face.id} {face.score:.2f} {'D' if face.detected else ''}"
                cv2.putText(picture, text, tuple(corners[:2]), 0, 0.5, color, 1)
        stem = name.replace(" ", "").replace("|", "_")[:80]
        cv2.imwrite(str(self.options.draw / f"{100 * part:03.0f}-{stem}-{at:04d}.png"), picture)

    def line(self, kind: str) -> str:
        c = self.counts
        share = 100 * c["open"] / max(1, c["faces"])
        return (
            f"{kind:12} {c['frames']:7} {c['faces']:7} {c['open']:6} {share:7.3f}"
            f" {c['bare twice']:6} {c['false']:6} {c['detected cuts']:5}/{c['cuts']}"
        )


def joins(
    all_of: Sequence[Piece], options: argparse.Namespace
) -> Iterator[tuple[str, list[Piece]]]:
    """Kind and pieces of every join."""
    rng = np.random.default_rng(0)

    def part(piece: Piece, count: int) -> Piece:
        return piece[0], piece[1][:count]

    pairs = list(permutations(all_of, 2))
    rng.shuffle(order := np.arange(len(pairs)))
    for at in order[: options.pairs]:
        yield "pairs", [part(piece, int(rng.choice(LENGTHS))) for piece in pairs[at]]
    for _ in range(options.successions):
        some = [all_of[at] for at in rng.permutation(len(all_of))[:MANY]]
        yield "successions", [part(piece, int(rng.integers(*SHORT))) for piece in some]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("clips", nargs="+", type=Path)
    parser.add_argument("--cuts", choices=("seen", "none"), default="seen")
    parser.add_argument("--mode", choices=("anonymize", "guard", "main"), default="anonymize")
    parser.add_argument("--ways", default=",".join(WAYS), help="of showing a clip: %(default)s")
    parser.add_argument("--pairs", type=int, default=200, help="most pairs, drawn at random")
    parser.add_argument("--successions", type=int, default=20)
    parser.add_argument("--draw", type=Path, help="folder for frames of which too little is hidden")
    options = parser.parse_args()
    cv2.setNumThreads(1)
    if options.draw:
        options.draw.mkdir(parents=True, exist_ok=True)
    all_of = pieces(options.clips, options.ways.split(","), max(LENGTHS))
    alone = {name: Result(planes, FaceMode(options.mode), False).faces for name, planes in all_of}
    tallies: dict[str, Tally] = {}
    for kind, join in joins(all_of, options):
        tallies.setdefault(kind, Tally(options, alone)).add(join)
    print("joins         frames   faces   open  open %  twice  false  cuts seen")
    for kind, tally in tallies.items():
        print(tally.line(kind))
        for part, name, at in sorted(tally.worst)[:10]:
            print(f"    {part:5.2f} frame {at:4} of {name[:120]}")


if __name__ == "__main__":
    main()
