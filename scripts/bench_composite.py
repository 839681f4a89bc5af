"""Time the compositing kernels on a GPU: µs a frame for each effect, and the blend's bandwidth.

Frames lie in a ring that is larger than the GPU's cache, and all launches are recorded into one
CUDA graph, so that neither Python nor the cache is measured. Run it as ``python
scripts/bench_composite.py [--gpu N]`` with the package on the path.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import cupy
import cv2
import numpy as np

from bgsoft.analysis.base import grid_factor, grid_shape
from bgsoft.analysis.cpu import CpuReducer
from bgsoft.composite.cuda import CudaCompositor
from bgsoft.config import EffectConfig, EffectKind
from bgsoft.cuda.device import CudaDevice, device_planes
from bgsoft.frame import Frame, FrameFormat, Matte, PixelLayout, Planes, Reduced

SIZES = ((1920, 1080), (3840, 2160))
SLOTS = 32
ROUNDS = 10
COPY_BANDWIDTH = 3.0e12
"""Bytes a second that a device-to-device copy moves on an H100, reads and writes together."""


def structured_planes(format: FrameFormat, rng: np.random.Generator) -> tuple[Any, Any]:
    """Luma and chroma with large shapes and grain."""
    planes: list[Any] = []
    for shape in (format.luma_shape, *(format.chroma_shape[:2],) * 2):
        coarse = rng.random((9, 16)).astype(np.float32)
        plane = cv2.resize(coarse, shape[::-1], interpolation=cv2.INTER_CUBIC)
        grain = rng.random(shape, np.float32) * 0.1
        top = (1 << format.bit_depth) - 1
        values = np.clip(plane * 0.9 + grain, 0, 1) * top
        planes.append(values.astype(format.dtype) << format.shift)
    return planes[0], np.ascontiguousarray(np.stack(planes[1:], axis=-1))


def person(format: FrameFormat) -> tuple[Any, Any]:
    """Alpha and the matte's grid: head and shoulders over about a quarter of the frame."""
    rows, columns = grid_shape(format.width, format.height)
    small: Any = np.zeros((rows, columns), np.uint8)
    cv2.circle(small, (columns // 2, rows * 2 // 5), rows // 5, 255, -1)
    shoulders = (columns // 2, rows), (columns // 5, rows * 2 // 5)
    cv2.ellipse(small, *shoulders, 0, 0, 360, 255, -1)
    small = cv2.GaussianBlur(small, (0, 0), 1.5)
    factor = grid_factor(format.width, format.height)
    large = cv2.resize(small, (columns * factor, rows * factor))
    return np.ascontiguousarray(large[: format.height, : format.width]), small


def blend_bytes(alpha: Any, format: FrameFormat, kind: EffectKind) -> int:
    """Bytes that blending has to move at least.

    Alpha is read everywhere, samples are written where background shows and read where the person
    does too; a darkened background is the frame's own, and an image is read where it shows.
    """
    mean = alpha.reshape(alpha.shape[0] // 2, 2, -1, 2).mean(axis=(1, 3))
    total = int(alpha.size)
    for samples, each in ((alpha, 1), (mean, 2)):
        shown = samples < 255
        read = shown if kind is EffectKind.DIM else shown & (samples > 0)
        plate = shown.sum() if kind is EffectKind.IMAGE else 0
        total += each * format.bytes_per_sample * int(shown.sum() + read.sum() + plate)
    return total


def measure_us(stream: Any, work: Callable[[], None], count: int) -> float:
    """Device time of ``work``, µs per one of the ``count`` frames that it does."""
    work()
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    begin.record(stream)
    for _ in range(ROUNDS):
        work()
    end.record(stream)
    end.synchronize()
    return float(cupy.cuda.get_elapsed_time(begin, end)) * 1000 / (ROUNDS * count)


def recorded(stream: Any, work: Callable[[], None]) -> Callable[[], None]:
    """``work`` as one graph."""
    stream.begin_capture()
    work()
    graph = stream.end_capture()
    return lambda: graph.launch(stream)


def bench_effect(
    effect: EffectConfig,
    frames: list[Frame],
    matte_grid: Any,
    grid: Reduced,
    device: CudaDevice,
    stream: Any,
) -> tuple[float, float, float]:
    """µs a frame of the whole effect and of its blend, on the device; and of the host."""
    compositor = CudaCompositor(effect, frames[0].format, device)
    mattes = [Matte(alpha=frame.planes.alpha, reduced=matte_grid) for frame in frames]

    def blend() -> None:
        for frame, matte in zip(frames, mattes, strict=True):
            compositor.blend(frame, matte)

    def apply() -> None:
        for frame, matte in zip(frames, mattes, strict=True):
            compositor.apply([frame], [matte], [grid])

    apply()
    stream.synchronize()
    started = time.perf_counter()
    apply()
    host_us = (time.perf_counter() - started) * 1e6 / len(frames)
    stream.synchronize()
    whole_us = measure_us(stream, recorded(stream, apply), len(frames))
    blend_us = measure_us(stream, recorded(stream, blend), len(frames))
    compositor.close()
    return whole_us, blend_us, host_us


def bench_size(size: tuple[int, int], layout: PixelLayout, image: Path, device: CudaDevice) -> None:
    format = FrameFormat(width=size[0], height=size[1], layout=layout)
    rng = np.random.default_rng(1)
    luma, chroma = structured_planes(format, rng)
    alpha, small = person(format)
    frames = []
    for slot in range(SLOTS):
        planes = device_planes(format, slot)
        planes.luma.set(luma)
        planes.chroma.set(chroma)
        planes.alpha.set(alpha)
        frames.append(
            Frame(planes=planes, format=format, index=slot, pts=slot, time_base=Fraction(1, 30))
        )
    host = Planes(slot=0, luma=luma, chroma=chroma, alpha=alpha)
    host_frame = Frame(planes=host, format=format, index=0, pts=0, time_base=Fraction(1, 30))
    reduced = CpuReducer(format).reduce([host_frame])[0]
    cells = (cupy.asarray(plane) for plane in (reduced.luma, reduced.chroma))
    grid = Reduced(factor=reduced.factor, luma=next(cells), chroma=next(cells))
    matte_grid = cupy.asarray(small)
    stream = device.new_stream()
    cupy.cuda.Device().synchronize()
    shown = float((alpha < 255).mean())
    print(f"\n{size[0]}x{size[1]} {layout}, {shown:.0%} of the frame shows some background")
    print(
        f"{'effect':24}{'µs/frame':>10}{'blend µs':>10}{'blend TB/s':>12}{'share':>8}{'host µs':>9}"
    )
    with device.use(stream):
        for kind, strength in (
            (EffectKind.BLUR, None),
            (EffectKind.BLUR, 0.6),
            (EffectKind.BLUR, 10.0),
            (EffectKind.BOKEH, None),
            (EffectKind.BOKEH, 6.0),
            (EffectKind.PIXELATE, None),
            (EffectKind.PIXELATE, 0.5),
            (EffectKind.DIM, None),
            (EffectKind.COLOR, None),
            (EffectKind.IMAGE, None),
        ):
            background = str(image) if kind is EffectKind.IMAGE else None
            effect = EffectConfig(kind=kind, strength=strength, background=background)
            whole_us, blend_us, host_us = bench_effect(
                effect, frames, matte_grid, grid, device, stream
            )
            rate = blend_bytes(alpha, format, kind) / (blend_us * 1e-6)
            name = f"{kind} {strength} %" if strength else str(kind)
            print(
                f"{name:24}{whole_us:12.1f}{blend_us:12.2f}{rate / 1e12:12.2f}"
                f"{rate / COPY_BANDWIDTH:12.0%}{host_us:12.1f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", type=int, default=0, help="CUDA device number")
    arguments = parser.parse_args()
    device = CudaDevice(arguments.gpu)
    print(device.label)
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder) / "plate.png"
        noise = np.random.default_rng(2).integers(0, 256, (270, 480, 3)).astype(np.uint8)
        if not cv2.imwrite(str(image), noise):
            raise SystemExit(f"{image} cannot be written")
        for size in SIZES:
            for layout in PixelLayout:
                bench_size(size, layout, image, device)


if __name__ == "__main__":
    main()
