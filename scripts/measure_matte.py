"""Measure how good, how steady and how fast the CPU matte is.

Two kinds of input, each optional::

    python scripts/measure_matte.py --model selfie_general.onnx \
        --images DIR/images --masks DIR/masks --clips a.mkv b.mkv --temporal 0.7

* Photographs with binary masks of the same stem (255 = person; a mask of another size is resized):
  IoU, boundary F and mean absolute error, of the model's mask enlarged as it is ("raw") and of the
  matte. Boundary F compares one-pixel edges and allows them to be 0.5 % of the diagonal apart.
* Clips from a fixed camera: *jitter*, the change of opacity from frame to frame where the picture
  stands still, summed and divided by the length of the contour there, which is how many pixels the
  edge wanders per frame; and *lag* in frames where the picture moves: the share of the last
  frame's unsmoothed matte that is left in this one. Then the time of one core per frame.

The model is run with ONNX Runtime: one NCHW RGB input in 0–1, one output of one channel.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from bgsoft.analysis.cpu import CpuReducer
from bgsoft.config import MatteConfig, MatteStyle, Refine
from bgsoft.frame import ColorInfo, Frame, FrameFormat, Planes
from bgsoft.matte.base import MatteStage
from bgsoft.matte.cpu import create_matte_stage

Image = npt.NDArray[Any]
"""uint8, (H, W, 3) BGR or (H, W)."""
Mask = npt.NDArray[Any]
"""float32, (H, W)."""

EDGE_TOLERANCE = 0.005
"""Boundary F: share of the image's diagonal."""
STILL_STEPS, MOVING_STEPS = 1.6, 5.0
"""Mean change of luma, over 9×9 pixels, below which a place stands still and above which it
moves."""
_FULL_RANGE_BT601 = ColorInfo(matrix=6, full_range=True, range_specified=True)


class Model:
    """A segmentation model on one CPU thread."""

    def __init__(self, path: Path) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        inputs = self._session.get_inputs()[0]
        self._name = inputs.name
        self._size = (inputs.shape[3], inputs.shape[2])

    def mask(self, image: Image) -> Mask:
        """Person mask in 0–1 at the model's size, of a BGR image."""
        small = cv2.resize(image, self._size, interpolation=cv2.INTER_AREA)
        planes = np.ascontiguousarray(small[:, :, ::-1].transpose(2, 0, 1)[None], np.float32)
        result: Mask = self._session.run(None, {self._name: planes / np.float32(255)})[0][0, 0]
        return result


class Bench:
    """Runs one matte setting over images of one size."""

    def __init__(self, config: MatteConfig, shape: tuple[int, ...]) -> None:
        height, width = shape[:2]
        self._format = FrameFormat(width=width, height=height, color=_FULL_RANGE_BT601)
        self._reducer = CpuReducer(self._format)
        self._stage: MatteStage = create_matte_stage(config, self._format)
        self._count = 0
        self.seconds: list[float] = []
        """Time of this thread in the matte stage, one entry a frame."""

    def matte(self, image: Image, mask: Mask) -> Image:
        """The matte of a BGR image."""
        ycrcb = cv2.cvtColor(image, cv2.COLOR_BGR2YCrCb)
        rows, columns, _ = self._format.chroma_shape
        chroma = cv2.resize(
            ycrcb[:, :, 2:0:-1].copy(), (columns, rows), interpolation=cv2.INTER_AREA
        )
        planes = Planes(
            slot=0,
            luma=ycrcb[:, :, 0].copy(),
            chroma=chroma,
            alpha=np.empty(image.shape[:2], np.uint8),
        )
        frame = Frame(
            planes=planes,
            format=self._format,
            index=self._count,
            pts=self._count,
            time_base=Fraction(1, 30),
        )
        self._count += 1
        reduced = self._reducer.reduce([frame])[0]
        start = time.thread_time()
        alpha: Image = self._stage.refine([mask], [frame], [reduced])[0].alpha
        self.seconds.append(time.thread_time() - start)
        return alpha


def edge_of(person: Image) -> Image:
    """One-pixel inner edge of a 0/1 plane."""
    inside = cv2.erode(person, np.ones((3, 3), np.uint8), borderType=cv2.BORDER_REPLICATE)
    return np.asarray(person > inside, np.uint8)


def boundary_f(found: Image, truth: Image) -> float:
    """F measure of two 0/1 planes' edges."""
    edges = edge_of(found), edge_of(truth)
    if not (edges[0].any() and edges[1].any()):
        return float(edges[0].any() == edges[1].any())
    tolerance = EDGE_TOLERANCE * float(np.hypot(*truth.shape))
    near = [cv2.distanceTransform(1 - edge, cv2.DIST_L2, 5) <= tolerance for edge in edges]
    precision = float(near[1][edges[0] > 0].mean())
    recall = float(near[0][edges[1] > 0].mean())
    total = precision + recall
    return 2 * precision * recall / total if total else 0.0


def overlap(found: Image, truth: Image) -> float:
    """Intersection over union of two 0/1 planes."""
    union = np.count_nonzero(found | truth)
    return np.count_nonzero(found & truth) / union if union else 1.0


def measure_images(model: Model, config: MatteConfig, images: Path, masks: Path) -> None:
    """Print the figures of a folder of photographs."""
    names = ("raw", "matte")
    scores: dict[str, list[tuple[float, float, float]]] = {name: [] for name in names}
    truths = {path.stem: path for path in masks.iterdir()}
    for path in sorted(images.iterdir()):
        image = cv2.imread(str(path))
        if image is None or path.stem not in truths:
            continue
        size = image.shape[1], image.shape[0]
        drawn = cv2.imread(str(truths[path.stem]), cv2.IMREAD_GRAYSCALE)
        if drawn is None:
            continue
        truth = (cv2.resize(drawn, size) > 127).astype(np.uint8)
        mask = model.mask(image)
        alphas = (
            cv2.resize(mask, size),
            Bench(config, image.shape).matte(image, mask).astype(np.float32) / 255,
        )
        for name, alpha in zip(names, alphas, strict=True):
            found = (alpha > 0.5).astype(np.uint8)
            error = float(np.abs(alpha - truth).mean())
            scores[name].append((overlap(found, truth), boundary_f(found, truth), error))
    print(f"{len(scores['raw'])} photographs   IoU mean  median     p10  boundary F   error")
    for name in names:
        iou, edges, error = np.array(scores[name]).T
        print(
            f"  {name:<16}{iou.mean():>10.4f}{np.median(iou):>8.4f}{np.percentile(iou, 10):>8.4f}"
            f"{edges.mean():>12.4f}{error.mean():>8.4f}"
        )


def read_clip(path: Path) -> Iterator[Image]:
    """The BGR frames of a clip."""
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            yield frame.to_ndarray(format="bgr24")


def measure_clip(model: Model, config: MatteConfig, path: Path) -> tuple[float, float, float]:
    """Jitter, lag and milliseconds per frame of one clip.

    Lag is the factor of the least-squares fit of ``matte − now`` by ``before − now``, where *now*
    and *before* are this frame's and the last frame's mattes without temporal smoothing.
    """
    settings = {name: getattr(config, name) for name in MatteConfig.__dataclass_fields__}
    unsmoothed = MatteConfig(**{**settings, "temporal": 0.0})
    benches: list[Bench] = []
    last: list[Mask] = []
    last_luma: npt.NDArray[Any] = np.empty(0)
    change = length = product = square = 0.0
    for image in read_clip(path):
        if not benches:
            benches = [Bench(config, image.shape), Bench(unsmoothed, image.shape)]
        mask = model.mask(image)
        mattes = [bench.matte(image, mask).astype(np.float32) / 255 for bench in benches]
        luma = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
        if last:
            moved = cv2.blur(cv2.absdiff(luma, last_luma).astype(np.float32), (9, 9))
            still = cv2.erode((moved < STILL_STEPS).astype(np.uint8), np.ones((9, 9))) > 0
            change += float(np.abs(mattes[0] - last[0])[still].sum())
            length += np.count_nonzero(edge_of((mattes[0] > 0.5).astype(np.uint8))[still])
            moving = moved > MOVING_STEPS
            towards_last = (last[1] - mattes[1])[moving]
            product += float(towards_last @ (mattes[0] - mattes[1])[moving])
            square += float(towards_last @ towards_last)
        last, last_luma = mattes, luma
    milliseconds = 1000 * float(np.median(benches[0].seconds))
    return change / max(length, 1), product / max(square, 1e-9), milliseconds


def measure_clips(model: Model, config: MatteConfig, paths: Sequence[Path]) -> None:
    """Print the figures of every clip."""
    print("clip                jitter px  lag frames  ms/frame (median, matte stage)")
    rows = [(path.stem, *measure_clip(model, config, path)) for path in paths]
    for name, *figures in rows:
        print("{:<20}{:>9.4f}{:>12.4f}{:>10.3f}".format(name[:20], *figures))
    means = np.array([row[1:] for row in rows], np.float64).mean(axis=0)
    print("{:<20}{:>9.4f}{:>12.4f}{:>10.3f}".format("mean", *means))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    default = MatteConfig()
    parser = argparse.ArgumentParser(description="Measure the CPU matte.")
    parser.add_argument("--model", type=Path, required=True, help="ONNX file")
    parser.add_argument("--images", type=Path, help="folder of photographs")
    parser.add_argument("--masks", type=Path, help="folder of their masks, same stems")
    parser.add_argument("--clips", type=Path, nargs="*", default=[], help="video files")
    parser.add_argument("--style", type=MatteStyle, default=default.style)
    parser.add_argument("--refine", type=Refine, default=default.refine)
    for name in ("threshold", "softness", "min_area", "smooth", "temporal"):
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=float, default=getattr(default, name))
    for name in ("expand", "feather"):
        parser.add_argument(f"--{name}", dest=f"{name}_pct", type=float, default=0.0)
    options = vars(parser.parse_args(arguments))
    model = Model(options.pop("model"))
    images, masks, clips = (options.pop(name) for name in ("images", "masks", "clips"))
    config = MatteConfig(**options)
    cv2.setNumThreads(1)
    if images is not None:
        if masks is None:
            parser.error("--images needs --masks")
        measure_images(model, config, images, masks)
    if clips:
        measure_clips(model, config, clips)


if __name__ == "__main__":
    main()
