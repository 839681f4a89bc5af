"""Measure how good and how steady mattes are, for any choice of settings.

::

    python scripts/eval_matte.py --images DIR/images --masks DIR/masks --clips a.mkv b.mkv \
        --choice fast="--matte fast" --choice best="--matte best"

Every choice is a name and flags of ``bgsoft render``; its mattes are what the command line writes.
Each figure has a 95 % bootstrap interval over photographs or clips, and a second table has the
differences from the first choice, photograph by photograph. ``--others NAME=DIR`` measures masks
of the photographs that another program has written, under the same stems. ``--refiner FILE`` takes
another refiner than the embedded one, with the same inputs and outputs. Three kinds of input:

* Photographs with masks of the same stem (255 = person; a mask of another size is resized), each
  as a clip of three equal frames, the last of which counts. *IoU* (mean and 10th percentile) and
  *boundary F* at half opacity: one-pixel edges, the picture's rim included, may lie 0.5 % of the
  diagonal apart, rounded up to whole pixels. *error*: mean absolute error of alpha.
* The same people cut out, moving before a drawn room (``scripts/quality/truth.py``), so that alpha
  is known. Of the whole frame, as Rhemann et al. define them (CVPR 2009): *SAD* in thousands,
  *MSE* in thousandths, *gradient* (sigma 1.4) and *connectivity* (steps of 0.1) in thousands.
  *edge color*: over green (``--effect color``), mean distance of R'G'B' from the true composite
  where true alpha is 0.05 to 0.95, in code values. *unsteady*: what alpha changes from frame to
  frame beyond what the truth does, summed and divided by the length of the contour, so in pixels.
* Clips from a fixed camera, whose mattes nobody knows. *flicker*: what opacity differs from the
  mean of the frames before and after, where the picture does not move much, and *jitter*: what it
  changes from frame to frame where the picture stands still; both summed and divided by the length
  of the contour there, so in pixels that the edge wanders. *lag* in frames: where the picture
  moves, the share of the last frame's unsmoothed matte (``--temporal 0``) that is left in this one.
  *CPU ms*: time of all cores a frame, for the whole render without its start.
"""

from __future__ import annotations

import argparse
import os
import shlex
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import av
import cv2
import numpy as np
from quality.loader import Image, read_clip, read_pairs
from quality.truth import blend, can_move, moving, write_clip, write_moving

from bgsoft.cli.main import main as bgsoft
from bgsoft.models import cache
from bgsoft.models.catalog import catalog
from bgsoft.models.families import REFINER

EDGE_TOLERANCE = 0.005
"""Boundary F: share of the image's diagonal."""
STILL_STEPS, MOVING_STEPS = 1.6, 5.0
"""Mean change of luma, over 9×9 pixels, below which a place stands still and above which it
moves."""
BAND = (0.05, 0.95)
GREEN = (64, 177, 0)
"""BGR of ``#00b140``."""
RESAMPLES = 2000
os.environ["BGSOFT_CONFIG"] = ""  # flags alone choose
LOSSLESS = ["--codec", "ffv1", "--overwrite", "--quiet"]

Statistic = Callable[[Image], Image]
"""(…, n) to (…)."""


def mean(values: Image) -> Image:
    return np.asarray(values.mean(axis=-1))


def tenth(values: Image) -> Image:
    return np.asarray(np.percentile(values, 10, axis=-1))


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of a table."""

    name: str
    statistic: Statistic = mean
    title: str = ""
    digits: int = 3


PORTRAITS = (
    Column("iou", mean, "IoU"),
    Column("iou", tenth, "IoU p10"),
    Column("boundary F"),
    Column("error", digits=4),
)
TRUTHS = (
    Column("SAD", digits=2),
    Column("MSE", digits=2),
    Column("gradient", digits=2),
    Column("connectivity", digits=2),
    Column("edge color", digits=1),
    Column("unsteady"),
)
CLIPS = (
    Column("flicker"),
    Column("jitter"),
    Column("lag", digits=4),
    Column("CPU ms", digits=1),
)


@dataclass
class Table:
    """The figures of one kind of input: choice → figure → a value for each item."""

    title: str
    columns: Sequence[Column]
    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, choice: str, figures: dict[str, float]) -> None:
        for name, value in figures.items():
            self.values.setdefault(choice, {}).setdefault(name, []).append(value)

    def print(self) -> None:
        if not self.values:
            return
        first, *others = self.values
        count = len(self.values[first][self.columns[0].name])
        print(f"\n{count} {self.title}; 95 % intervals in brackets")
        titles = (column.title or column.name for column in self.columns)
        print(f"{'':<24}" + "".join(f"{title:>26}" for title in titles))
        for choice in self.values:
            self._print_row(choice, choice, None)
        for choice in others:
            self._print_row(f"{choice} - {first}", choice, first)

    def _print_row(self, label: str, choice: str, other: str | None) -> None:
        cells = (self._cell(column, choice, other) for column in self.columns)
        print(f"{label:<24}" + "".join(f"{cell:>26}" for cell in cells))

    def _cell(self, column: Column, choice: str, other: str | None) -> str:
        """A figure of a choice, or its difference from another's."""
        values = np.array(self.values[choice][column.name])
        picks = np.random.default_rng(1).integers(0, values.size, (RESAMPLES, values.size))
        figure, drawn = column.statistic(values), column.statistic(values[picks])
        form = f".{column.digits}f"
        if other is not None:
            values = np.array(self.values[other][column.name])
            figure = figure - column.statistic(values)
            drawn = drawn - column.statistic(values[picks])
            form = "+" + form
        if np.isnan(values).any():
            return "-"
        low, high = np.percentile(drawn, (2.5, 97.5))
        return f"{figure:{form}} [{low:{form}} {high:{form}}]"


class Renderer:
    """Renders clips as the command line does.

    Args:
        folder: For what it writes.
    """

    def __init__(self, folder: Path) -> None:
        self._output = folder / "out.mkv"

    def run(self, clip: Path, flags: Sequence[str]) -> Path | None:
        """A lossless render; None where the program refuses the flags or fails."""
        code = bgsoft(["render", str(clip), str(self._output), *flags, *LOSSLESS])
        return None if code else self._output

    def mattes(self, clip: Path, flags: Sequence[str]) -> list[Image] | None:
        """(H, W) float32 in 0–1 of every frame; None where the flags don't go together."""
        path = self.run(clip, [*flags, "--effect", "matte"])
        if path is None:
            return None
        with av.open(str(path)) as container:
            return [_alpha_of(frame) for frame in container.decode(video=0)]


def _alpha_of(frame: av.VideoFrame) -> Image:
    plane = frame.planes[0]
    codes = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[:, : frame.width]
    return ((codes.astype(np.float32) - 16) / 219).clip(0, 1)


def edge_of(person: Image, border: int = 1) -> Image:
    """One-pixel inner edge of a 0/1 plane, beyond whose rim everything is ``border``."""
    kernel = np.ones((3, 3), np.uint8)
    outside = {"borderType": cv2.BORDER_CONSTANT, "borderValue": border}
    inside = cv2.erode(person, kernel, **outside)
    return np.asarray(person > inside, np.uint8)


def boundary_f(found: Image, truth: Image) -> float:
    """F measure of two 0/1 planes' edges."""
    edges = edge_of(found, 0), edge_of(truth, 0)
    if not (edges[0].any() and edges[1].any()):
        return float(edges[0].any() == edges[1].any())
    tolerance = np.ceil(EDGE_TOLERANCE * float(np.hypot(*truth.shape)))
    near = [cv2.distanceTransform(1 - edge, cv2.DIST_L2, 5) <= tolerance for edge in edges]
    precision = float(near[1][edges[0] > 0].mean())
    recall = float(near[0][edges[1] > 0].mean())
    total = precision + recall
    return 2 * precision * recall / total if total else 0.0


def overlap(found: Image, truth: Image) -> float:
    """Intersection over union of two 0/1 planes."""
    union = np.count_nonzero(found | truth)
    return np.count_nonzero(found & truth) / union if union else 1.0


def binary(alpha: Image) -> Image:
    return (alpha > 0.5).astype(np.uint8)


def measure_portraits(
    renderer: Renderer,
    choices: dict[str, list[str]],
    pairs: dict[str, tuple[Image, Image]],
    others: dict[str, dict[str, tuple[Image, Image]]],
) -> Table:
    table = Table("photographs", PORTRAITS)
    for other, made in others.items():
        for name, (_, person) in pairs.items():
            if name not in made:
                raise SystemExit(f"cannot measure {other}: it has no mask of {name}")
            found = made[name][1]
            figures = {
                "iou": overlap(found, person),
                "boundary F": boundary_f(found, person),
                "error": float("nan"),  # they are read as masks, not as mattes
            }
            table.add(other, figures)
    with tempfile.TemporaryDirectory() as folder:
        clip = Path(folder) / "clip.mkv"
        for image, person in pairs.values():
            write_clip(clip, [image] * 3)
            for choice, flags in choices.items():
                mattes = renderer.mattes(clip, flags)
                if mattes is None:
                    raise SystemExit(f"{choice}: cannot be rendered")
                found = binary(mattes[-1])
                figures = {
                    "iou": overlap(found, person),
                    "boundary F": boundary_f(found, person),
                    "error": float(np.abs(mattes[-1] - person).mean()),
                }
                table.add(choice, figures)
    return table


def measure_truths(
    renderer: Renderer,
    choices: dict[str, list[str]],
    pairs: Sequence[tuple[Image, Image]],
    most: int,
) -> Table:
    table = Table("moving people of known alpha", TRUTHS)
    whole = [pair for pair in pairs if can_move(pair[1])][:most]
    with tempfile.TemporaryDirectory() as folder:
        clip, green = Path(folder) / "clip.mp4", Path(folder) / "green.mkv"
        for image, person in whole:
            truths = list(moving(image, person))
            write_moving(clip, truths)
            write_clip(green, [blend(truth, np.float32(GREEN)) for truth in truths])
            shown = read_clip(green)
            for choice, flags in choices.items():
                mattes = renderer.mattes(clip, flags)
                keyed = renderer.run(clip, [*flags, "--effect", "color", "--background", "#00b140"])
                if mattes is None or keyed is None:
                    raise SystemExit(f"{choice}: cannot be rendered")
                alphas = [truth.alpha for truth in truths]
                figures = np.mean(
                    [alpha_errors(a, t) for a, t in zip(mattes, alphas, strict=True)], axis=0
                )
                names = (column.name for column in TRUTHS)
                colors = edge_color(read_clip(keyed), shown, alphas)
                figures = (*figures, colors, unsteadiness(mattes, alphas))
                table.add(choice, dict(zip(names, figures, strict=True)))
    return table


def alpha_errors(alpha: Image, truth: Image) -> tuple[float, float, float, float]:
    """SAD, MSE, gradient and connectivity error of one frame."""
    difference = np.abs(alpha - truth)
    gradients = np.abs(_gradient(alpha) - _gradient(truth))
    connected = np.abs(_connectivity(alpha, truth) - _connectivity(truth, alpha))
    return (
        float(difference.sum()) / 1e3,
        float((difference**2).mean()) * 1e3,
        float((gradients**2).sum()) / 1e3,
        float(connected.sum()) / 1e3,
    )


def _gradient(alpha: Image) -> Image:
    """Its size, by derivatives of a Gaussian of sigma 1.4."""
    at = np.arange(-5, 6, dtype=np.float64)
    bell = np.exp(-(at**2) / (2 * 1.4**2))
    slope = -at * bell
    bell, slope = bell / np.linalg.norm(bell), slope / np.linalg.norm(slope)
    along = [cv2.sepFilter2D(alpha, cv2.CV_32F, *pair) for pair in ((slope, bell), (bell, slope))]
    return np.hypot(*along)


def _connectivity(alpha: Image, other: Image) -> Image:
    """How far each pixel is joined to the parts that are opaque in both mattes."""
    level = np.ones_like(alpha)
    undecided = np.ones(alpha.shape, bool)
    for step in np.arange(0.1, 1.01, 0.1):
        both = ((alpha >= step) & (other >= step)).astype(np.uint8)
        _, labels, stats, _ = cv2.connectedComponentsWithStats(both, connectivity=4)
        largest = 1 + int(stats[1:, cv2.CC_STAT_AREA].argmax()) if len(stats) > 1 else -1
        lost = undecided & (labels != largest)
        level[lost] = step - 0.1
        undecided &= ~lost
    distance = alpha - level
    return 1.0 - distance * (distance >= 0.15)


def edge_color(found: Sequence[Image], wanted: Sequence[Image], alphas: Sequence[Image]) -> float:
    """Mean distance in the soft band of all frames, in code values."""
    errors = []
    for picture, truth, alpha in zip(found, wanted, alphas, strict=True):
        band = (alpha > BAND[0]) & (alpha < BAND[1])
        difference = picture[band].astype(np.float32) - truth[band]
        errors.append(np.linalg.norm(difference, axis=1))
    return float(np.concatenate(errors).mean())


def unsteadiness(alphas: Sequence[Image], truths: Sequence[Image]) -> float:
    """Change of the error from frame to frame, in pixels of contour."""
    errors = [alpha - truth for alpha, truth in zip(alphas, truths, strict=True)]
    change = sum(float(np.abs(now - before).sum()) for before, now in pairwise(errors))
    return change / sum(np.count_nonzero(edge_of(binary(truth))) for truth in truths[1:])


def measure_clips(
    renderer: Renderer, choices: dict[str, list[str]], paths: Sequence[Path]
) -> Table:
    table = Table("clips", CLIPS)
    for path in paths:
        lumas = [cv2.cvtColor(image, cv2.COLOR_BGR2GRAY) for image in read_clip(path)]
        for choice, flags in choices.items():
            start = time.process_time()
            renderer.run(path, [*flags, "--effect", "matte", "--duration", "0.01"])
            begun = time.process_time()
            mattes = renderer.mattes(path, flags)
            seconds = (time.process_time() - begun) - (begun - start)
            if mattes is None:
                raise SystemExit(f"{choice}: cannot be rendered")
            unsmoothed = renderer.mattes(path, [*flags, "--temporal", "0"])
            figures = {
                "flicker": flicker(mattes, lumas),
                "jitter": jitter(mattes, lumas),
                "lag": float("nan") if unsmoothed is None else lag(mattes, unsmoothed, lumas),
                "CPU ms": 1000 * seconds / (len(mattes) - 1),
            }
            table.add(choice, figures)
    return table


def _movement(before: Image, now: Image) -> Image:
    return cv2.blur(cv2.absdiff(now, before).astype(np.float32), (9, 9))


def flicker(mattes: Sequence[Image], lumas: Sequence[Image]) -> float:
    change, length = 0.0, 0
    moved = [_movement(*pair) for pair in pairwise(lumas)]
    for index, now in enumerate(mattes[1:-1], 1):
        before, after = mattes[index - 1], mattes[index + 1]
        calm = np.maximum(moved[index - 1], moved[index]) < MOVING_STEPS
        change += float(np.abs(now - (before + after) / 2)[calm].sum())
        length += np.count_nonzero(edge_of(binary(now))[calm])
    return change / max(1, length)


def jitter(mattes: Sequence[Image], lumas: Sequence[Image]) -> float:
    change, length = 0.0, 0
    for (before, now), pictures in zip(pairwise(mattes), pairwise(lumas), strict=True):
        still = (_movement(*pictures) < STILL_STEPS).astype(np.uint8)
        still = cv2.erode(still, np.ones((9, 9))) > 0
        change += float(np.abs(now - before)[still].sum())
        length += np.count_nonzero(edge_of(binary(now))[still])
    return change / max(1, length)


def lag(mattes: Sequence[Image], unsmoothed: Sequence[Image], lumas: Sequence[Image]) -> float:
    """The factor of the least-squares fit of ``matte − now`` by ``before − now``."""
    product, square = 0.0, 0.0
    steps = zip(pairwise(unsmoothed), mattes[1:], pairwise(lumas), strict=True)
    for (before, now), matte, pictures in steps:
        moving_places = _movement(*pictures) > MOVING_STEPS
        towards_last = (before - now)[moving_places]
        product += float(towards_last @ (matte - now)[moving_places])
        square += float(towards_last @ towards_last)
    return product / max(square, 1e-9)


def use_refiner(path: Path) -> None:
    """Take another file for the refiner in all renders of this process."""
    models, path = catalog(), path.resolve()
    assert isinstance(models, dict)
    checksum = cache.Checksum(cache.hash_files([path]))
    models[REFINER] = replace(
        models[REFINER], file=str(path), bytes=path.stat().st_size, checksum=checksum
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Measure mattes.")
    parser.add_argument("--images", type=Path, help="folder of photographs")
    parser.add_argument("--masks", type=Path, help="folder of their masks, same stems")
    parser.add_argument("--clips", type=Path, nargs="*", default=[], help="videos, fixed camera")
    parser.add_argument(
        "--moving", type=int, default=12, metavar="N", help="people that are set moving, at most"
    )
    parser.add_argument(
        "--choice", action="append", metavar='NAME="FLAGS"', help="flags of bgsoft render"
    )
    parser.add_argument(
        "--others", action="append", metavar="NAME=DIR", help="folder of another program's masks"
    )
    parser.add_argument("--refiner", type=Path, help="ONNX file in place of the embedded refiner")
    options = parser.parse_args(arguments)
    if options.refiner is not None:
        use_refiner(options.refiner)
    named = (text.partition("=") for text in options.choice or ["default="])
    choices = {name: shlex.split(flags) for name, _, flags in named}
    if (options.images is None) != (options.masks is None):
        parser.error("--images and --masks go together")
    pairs = read_pairs(options.images, options.masks) if options.images else {}
    others = {
        name: read_pairs(options.images, Path(masks))
        for name, _, masks in (text.partition("=") for text in options.others or ())
    }
    with tempfile.TemporaryDirectory() as folder:
        renderer = Renderer(Path(folder))
        measure_portraits(renderer, choices, pairs, others).print()
        measure_truths(renderer, choices, list(pairs.values()), options.moving).print()
        measure_clips(renderer, choices, options.clips).print()


if __name__ == "__main__":
    main()
