"""Make the masks of pictures that have no labels, and soften the edges of those that have.

::

    python scripts/train/teach.py packed/others0.zip --edges u2netp.onnx

For each archive that ``pack.py`` wrote another one, ``taught-others0.zip``, with two files for each
picture: the mask, 0 to 255, as WebP; and where nobody knows (255), which is left out of the losses,
as PNG. What is stopped continues where it was.

Three opinions are asked: passes of the embedded networks as bgsoft makes them, the refiner as it is
embedded, and U²-Net p (Qin et al., 2020; Apache-2.0) on the crop round the people. The mask is
their mean. Where they differ by more than an edge's width, nobody knows. Where there are labels,
these hold but for the edges, and for other people in the picture, who have no labels.
"""

from __future__ import annotations

import argparse
import math
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import onnxruntime
from numpy.typing import NDArray

_MODELS = Path(__file__).resolve().parents[2] / "bgsoft/models/data"
_MARGIN = 0.12
"""Of a crop, as a share of the people's extent."""
_HEAD = 0.5
"""Share of a person's height that a pass over head and shoulders sees."""
_LEAST = 0.002
"""Share of the picture that a person has at least."""
_THIN = 0.012
"""Share of the picture's height: where opinions differ by no more, it is the edge."""
_FAINT = 0.3
"""What one opinion shows of a person, where the others see none."""
_EDGE = 7
"""Pixels of a label's edge that the opinions soften."""
_QUALITY = 90
_MEAN, _SPREAD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of the pictures that U²-Net saw."""

Mask = NDArray[np.float32]
Box = tuple[int, int, int, int]
"""Left, top, right, bottom."""


_teacher: Teacher
"""Of this process."""


class Opinions(NamedTuple):
    """(H, W) masks of one picture."""

    passes: Mask
    refined: Mask
    edges: Mask


def _resized(picture: NDArray, columns: int, rows: int) -> NDArray:
    shrinks = picture.shape[0] > rows and picture.shape[1] > columns
    way = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    return cv2.resize(picture, (columns, rows), interpolation=way)


class Teacher:
    """Asks the networks.

    Args:
        edges: The ONNX file of U²-Net p.
    """

    def __init__(self, edges: Path) -> None:
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = 1
        names = ("selfie_general", "selfie_landscape", "refiner")
        paths = [*(_MODELS / f"{name}.onnx" for name in names), edges]
        self._general, self._landscape, self._refiner, self._edges = (
            onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
            for path in paths
        )

    def _run(self, network: onnxruntime.InferenceSession, *planes: NDArray) -> Mask:
        names = [each.name for each in network.get_inputs()]
        shown = [np.ascontiguousarray(each, np.float32)[None] for each in planes]
        mask: Mask = network.run(None, dict(zip(names, shown, strict=True)))[0][0, 0]
        return mask

    def _pass(self, picture: NDArray[np.uint8], columns: int = 256, rows: int = 256) -> Mask:
        network = self._general if columns == rows else self._landscape
        shown = _resized(picture, columns, rows).transpose(2, 0, 1) / np.float32(255)
        return _resized(self._run(network, shown), *picture.shape[1::-1])

    def _refine(self, picture: NDArray[np.uint8], mask: Mask) -> Mask:
        shown = _resized(picture, 256, 256).transpose(2, 0, 1) / np.float32(255)
        found = self._run(self._refiner, shown, _resized(mask, 256, 256)[None])
        return _resized(found, *picture.shape[1::-1])

    def _find_edges(self, picture: NDArray[np.uint8]) -> Mask:
        shown = _resized(picture, 320, 320).astype(np.float32)
        shown = (shown / max(shown.max(), 1) - _MEAN) / _SPREAD
        found = self._run(self._edges, shown.transpose(2, 0, 1))
        low, high = min(found.min(), 0.25), max(found.max(), 0.5)
        return _resized((found - low) / (high - low), *picture.shape[1::-1])

    def ask(self, picture: NDArray[np.uint8]) -> Opinions:
        """Look at an (H, W, 3) RGB picture."""
        mask = (self._pass(picture) + self._pass(picture, 256, 144)) / 2
        for left, top, right, bottom in _around(_boxes(mask)):
            part = np.s_[top:bottom, left:right]
            mask[part] = (mask[part] + 2 * self._pass(picture[part])) / 3
        for left, top, right, bottom in _boxes(mask):
            part = np.s_[top : top + max(16, round(_HEAD * (bottom - top))), left:right]
            mask[part] = (mask[part] + self._pass(picture[part])) / 2
        sharp = (2 * mask - 0.5).clip(0, 1)
        passes, refined, edges = sharp.copy(), np.zeros_like(mask), np.zeros_like(mask)
        people = _boxes(sharp)
        for left, top, right, bottom in people:
            part = np.s_[top:bottom, left:right]
            found = self._refine(picture[part], sharp[part])
            refined[part] = np.maximum(refined[part], found)
            passes[part] = (sharp[part] + self._pass(picture[part])) / 2
        for left, top, right, bottom in _around(people):
            part = np.s_[top:bottom, left:right]
            edges[part] = self._find_edges(picture[part])
        return Opinions(passes, refined, edges)


def _boxes(mask: Mask) -> list[Box]:
    """Round each person, with a margin."""
    height, width = mask.shape
    regions = cv2.connectedComponentsWithStats((mask > 0.5).astype(np.uint8))[2]
    boxes = []
    for left, top, columns, rows, area in regions[1:]:
        if area < _LEAST * mask.size:
            continue
        across, down = round(_MARGIN * columns) + 8, round(_MARGIN * rows) + 8
        right, bottom = min(width, left + columns + across), min(height, top + rows + down)
        boxes.append((max(0, left - across), max(0, top - down), right, bottom))
    return boxes


def _around(boxes: list[Box]) -> list[Box]:
    """The one box round all, if there are any."""
    if not boxes:
        return []
    left, top, right, bottom = zip(*boxes, strict=True)
    return [(min(left), min(top), max(right), max(bottom))]


def _thick(where: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """What is no thin line, and a little round it."""
    side = 2 * max(2, round(_THIN * where.shape[0] / 2)) + 1
    element = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (side, side))
    opened = cv2.morphologyEx(where.astype(np.uint8), cv2.MORPH_OPEN, element)
    return cv2.dilate(opened, element) > 0


def taught(opinions: Opinions, label: NDArray[np.uint8] | None) -> tuple[NDArray, NDArray]:
    """The mask, and where nobody knows: (H, W) uint8 both."""
    mean = np.mean(opinions, axis=0)
    seen = [opinion > 0.5 for opinion in opinions]
    if label is None:
        mask = mean
        faint = np.maximum.reduce(opinions) > _FAINT
        unsure = _thick(faint & ~np.logical_and.reduce(seen))
    else:
        true = (label > 127).astype(np.float32)
        edge = cv2.blur(true, (_EDGE, _EDGE))
        near = (edge > 0.02) & (edge < 0.98)
        mask = np.where(near, (cv2.blur(true, (3, 3)) + mean) / 2, true)
        person = seen[0] & seen[1] & (true == 0)
        unsure = _thick(person) & ~near
    return (255 * mask).round().astype(np.uint8), 255 * unsure.astype(np.uint8)


_Job = tuple[str, bytes, bytes | None]
"""Stem, picture and label."""
_AT_A_TIME = 64


def _jobs(path: Path) -> Iterator[_Job]:
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        for name in sorted(names):
            stem, _, kind = name.partition(".")
            label = f"{stem}.png"
            if kind == "webp":
                yield stem, archive.read(name), archive.read(label) if label in names else None


def _begin(edges: Path) -> None:
    global _teacher
    cv2.setNumThreads(1)
    _teacher = Teacher(edges)


def _teach(job: _Job) -> tuple[str, bytes, bytes]:
    stem, webp, png = job
    picture = cv2.imdecode(np.frombuffer(webp, np.uint8), cv2.IMREAD_COLOR)[..., ::-1]
    label = None if png is None else cv2.imdecode(np.frombuffer(png, np.uint8), 0)
    mask, unsure = taught(_teacher.ask(np.ascontiguousarray(picture)), label)
    bilevel = [cv2.IMWRITE_PNG_BILEVEL, 1]
    soft = cv2.imencode(".webp", mask, [cv2.IMWRITE_WEBP_QUALITY, _QUALITY])[1]
    files = soft, cv2.imencode(".png", unsure, bilevel)[1]
    return stem, files[0].tobytes(), files[1].tobytes()


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Make masks of training pictures.")
    parser.add_argument("archives", type=Path, nargs="+", help="that pack.py wrote")
    parser.add_argument("--edges", type=Path, required=True, help="U²-Net p as ONNX")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=math.inf, help="after which it stops")
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    with ProcessPoolExecutor(options.processes, None, _begin, (options.edges,)) as pool:
        for path in options.archives:
            with zipfile.ZipFile(path.with_name(f"taught-{path.name}"), "a") as target:
                known = {name.split(".")[0] for name in target.namelist()}
                jobs = [job for job in _jobs(path) if job[0] not in known]
                for first in range(0, len(jobs), _AT_A_TIME):
                    if time.monotonic() > end:
                        raise SystemExit(f"{path.name}: stopped before picture {first}")
                    part = jobs[first : first + _AT_A_TIME]
                    for stem, mask, unsure in pool.map(_teach, part):
                        target.writestr(f"{stem}.mask.webp", mask)
                        target.writestr(f"{stem}.unsure.png", unsure)
                print(f"{path.name}: {len(known)} + {len(jobs)} pictures", flush=True)


if __name__ == "__main__":
    main()
