"""Time the kernels before compositing on a GPU: grid, scene probe, model input, matte.

For each stage: µs a frame on the device with all launches of a ring of frames recorded into one
CUDA graph, the same with plain launches, and the host's time for those launches. The ring is larger
than the GPU's cache. Run it as ``python scripts/bench_kernels.py [--gpu N]`` with the package on
the path; compositing has a script of its own, ``bench_composite.py``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import cupy
import cv2
import numpy as np

from bgsoft.analysis.cuda import CudaReducer, CudaSceneProbe
from bgsoft.config import MatteConfig, MatteStyle, Refine
from bgsoft.cuda.device import CudaDevice, device_planes
from bgsoft.frame import Frame, FrameFormat, PixelLayout
from bgsoft.matte.cuda import create_cuda_matte_stage
from bgsoft.models.catalog import find_spec
from bgsoft.segment.cuda import CudaPreprocessor

SIZES = ((1920, 1080), (3840, 2160))
SLOTS = 32
ROUNDS = 10
MODEL = "selfie-general"
MATTES = {
    "matte soft": MatteConfig(),
    "matte fast": MatteConfig(refine=Refine.NONE),
    "matte privacy": MatteConfig(expand_pct=-0.2, min_area=0.02, temporal=0.3),
    "matte studio": MatteConfig(feather_pct=0.3, temporal=0.8),
    "matte wide rim": MatteConfig(feather_pct=5.0, expand_pct=3.0),
}
OBS = MatteConfig(style=MatteStyle.OBS, min_area=0.05, temporal=0.15)

Work = Callable[[], None]


def person_mask(shape: tuple[int, int], rng: np.random.Generator) -> Any:
    """Head and shoulders with noise at the edge: (h, w) float32 in [0, 1]."""
    rows, columns = shape
    mask: Any = np.zeros(shape, np.float32)
    cv2.circle(mask, (columns // 2, rows * 2 // 5), rows // 5, 1.0, -1)
    cv2.ellipse(mask, (columns // 2, rows), (columns * 2 // 5, rows * 2 // 5), 0, 0, 360, 1.0, -1)
    mask += rng.normal(0, 0.05, shape).astype(np.float32)
    return np.clip(cv2.GaussianBlur(mask, (0, 0), 1.5), 0, 1)


def make_ring(format: FrameFormat, rng: np.random.Generator) -> list[Frame]:
    """Frames of large shapes and grain."""
    top = (1 << format.bit_depth) - 1
    coarse = cv2.resize(rng.random((9, 16)).astype(np.float32), (format.width, format.height))
    frames = []
    for slot in range(SLOTS):
        planes = device_planes(format, slot)
        grain = rng.random(format.luma_shape, np.float32) * 0.05
        luma = ((coarse * 0.9 + grain) * top).astype(format.dtype) << format.shift
        chroma = rng.integers(top // 3, top // 2, format.chroma_shape).astype(format.dtype)
        planes.luma.set(luma)
        planes.chroma.set(chroma << format.shift)
        frames.append(
            Frame(planes=planes, format=format, index=slot, pts=slot, time_base=Fraction(1, 30))
        )
    return frames


def device_us(stream: Any, work: Work) -> float:
    """Device time of ``work``, µs per frame of the ring."""
    work()
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    begin.record(stream)
    for _ in range(ROUNDS):
        work()
    end.record(stream)
    end.synchronize()
    return float(cupy.cuda.get_elapsed_time(begin, end)) * 1000 / (ROUNDS * SLOTS)


def host_us(stream: Any, work: Work) -> float:
    """The least time that the host takes to launch ``work``, µs per frame of the ring."""
    best = float("inf")
    for _ in range(ROUNDS):
        stream.synchronize()
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    stream.synchronize()
    return best * 1e6 / SLOTS


def report(name: str, stream: Any, work: Work, *, can_record: bool = True) -> None:
    """Print one row of the table."""
    work()
    stream.synchronize()
    plain = device_us(stream, work)
    graph = float("nan")
    if can_record:
        stream.begin_capture()
        work()
        recorded = stream.end_capture()
        graph = device_us(stream, lambda: recorded.launch(stream))
    print(f"{name:16}{graph:12.1f}{plain:12.1f}{host_us(stream, work):12.1f}")


def bench_size(size: tuple[int, int], layout: PixelLayout, device: CudaDevice) -> None:
    """Print the table of one frame size."""
    rng = np.random.default_rng(1)
    format = FrameFormat(width=size[0], height=size[1], layout=layout)
    stream = device.new_stream()
    with device.use(stream):
        frames = make_ring(format, rng)
        reducer = CudaReducer(format)
        grids = [reducer.allocate() for _ in frames]
        probe = CudaSceneProbe(format, SLOTS)
        spec = find_spec(MODEL)
        preprocessor = CudaPreprocessor(spec, format, SLOTS)
        tensor = cupy.empty(preprocessor.shape, np.float32)
        masks = [cupy.asarray(person_mask((spec.height, spec.width), rng)) for _ in frames]
        stream.synchronize()
        print(f"\n{size[0]}x{size[1]} {layout}")
        print(f"{'µs a frame':16}{'graph':>12}{'launches':>12}{'host':>12}")

        def reduce() -> None:
            for frame, grid in zip(frames, grids, strict=True):
                reducer.reduce(frame, grid)

        def measure() -> None:
            for index, grid in enumerate(grids):
                probe.measure(grid, index)

        def preprocess() -> None:
            for index, grid in enumerate(grids):
                preprocessor.write(grid, tensor, index)

        report("reduce", stream, reduce)
        report("scene probe", stream, measure)
        report("preprocess", stream, preprocess)
        for name, config in {**MATTES, "matte obs": OBS}.items():
            matter = create_cuda_matte_stage(config, format, device)

            def matte(matter: Any = matter) -> None:
                for frame, grid, mask in zip(frames, grids, masks, strict=True):
                    matter.refine([mask], [frame], [grid])[0]

            # Style obs waits for the host within a frame.
            report(name, stream, matte, can_record=config.style is MatteStyle.SOFT)
            if config.style is MatteStyle.SOFT and config.refine is Refine.GUIDED:

                def hold(matter: Any = matter) -> None:
                    for frame, grid in zip(frames, grids, strict=True):
                        matter.refine([None], [frame], [grid])[0]

                report("  held mask", stream, hold)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", type=int, default=0, help="CUDA device number")
    device = CudaDevice(parser.parse_args().gpu)
    print(device.label)
    for size in SIZES:
        for layout in PixelLayout:
            bench_size(size, layout, device)


if __name__ == "__main__":
    main()
