"""How closely the GPU's picture stages agree with the CPU's, which are their references."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.base import grid_shape
from bgsoft.analysis.cpu import CpuReducer
from bgsoft.composite.base import Compositor
from bgsoft.composite.cpu import CpuCompositor
from bgsoft.config import EffectConfig, EffectKind, MatteConfig, Precision
from bgsoft.frame import Array, Frame, FrameFormat, Matte, PixelLayout, Planes, Reduced
from bgsoft.matte.base import MatteStage
from bgsoft.matte.cpu import create_matte_stage
from bgsoft.models.catalog import ModelSpec
from bgsoft.segment.preprocess import CpuPreprocessor
from bgsoft.selftest.clips import draw_frame
from bgsoft.selftest.stages import to_device, to_host

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice

__all__ = [
    "EFFECTS",
    "CudaSide",
    "HostSide",
    "Parity",
    "Side",
    "mask_tolerance",
    "measure_parity",
]

EFFECTS = (
    EffectConfig(kind=EffectKind.BLUR),
    EffectConfig(kind=EffectKind.BOKEH),
    EffectConfig(kind=EffectKind.PIXELATE),
    EffectConfig(kind=EffectKind.DIM),
    EffectConfig(kind=EffectKind.COLOR, background="#0a8f3c"),
    EffectConfig(kind=EffectKind.ALPHA),
)
"""Effects that need no file of their own."""

# What the tests of the kernels allow.
_TENSOR_CODES = 2.5
"""8-bit codes: a tie in a float sum may round the other way before the colour matrix."""
_MATTE_CODES = 2
_MATTE_SHARE = 0.001
"""Part of the matte that may differ by more: the guided filter sums in another order."""
_COMPOSITE_CODES = {8: 1, 10: 4}
_MASK = 5e-3
_MASK_FP16 = 0.1
_MASK_TENSORRT = 0.15
"""TensorRT rounds the inputs of convolutions to TF32's ten bits, and ONNX Runtime has no switch
for it; only an environment variable that changes the whole process has. A mask of an embedded model
moves by up to 0.11 then, where an edge is steep, and by 0.0001 on average."""


def mask_tolerance(backend: str, precision: Precision) -> float:
    """Largest difference of a mask from the CPU's in fp32.

    Args:
        backend: ``tensorrt``, ``cuda`` or ``cpu``.
        precision: Of the backend.
    """
    if backend == "tensorrt":
        return _MASK_TENSORRT
    return _MASK_FP16 if precision is Precision.FP16 else _MASK


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """One comparison."""

    name: str
    """e.g. ``composite blur, 8 bits``."""
    max_difference: float
    """In code values of the samples compared."""
    mean_difference: float
    tolerance: str
    """In words."""
    ok: bool


class Side(Protocol):
    """The picture stages in one place. Frames given to them are copied there first."""

    def place(self, frame: Frame) -> Frame:
        """A copy of a host frame that the stages may write to."""
        ...

    def place_array(self, array: NDArray[Any]) -> Array: ...

    def reducer(self, format: FrameFormat) -> Any:
        """Has ``reduce(frame) -> Reduced``."""
        ...

    def write_tensor(self, spec: ModelSpec, format: FrameFormat, reduced: Reduced) -> Array:
        """The model's input, (3, H, W) or (H, W, 3) float32."""
        ...

    def matte_stage(self, config: MatteConfig, format: FrameFormat) -> MatteStage: ...

    def compositor(self, config: EffectConfig, format: FrameFormat) -> Compositor: ...


class HostSide:
    """The references."""

    def place(self, frame: Frame) -> Frame:
        planes = frame.planes
        copy = Planes(
            slot=planes.slot,
            luma=planes.luma.copy(),
            chroma=planes.chroma.copy(),
            alpha=planes.alpha.copy(),
        )
        return Frame(
            planes=copy,
            format=frame.format,
            index=frame.index,
            pts=frame.pts,
            time_base=frame.time_base,
        )

    def place_array(self, array: NDArray[Any]) -> Array:
        return array.copy()

    def reducer(self, format: FrameFormat) -> Any:
        return CpuReducer(format)

    def write_tensor(self, spec: ModelSpec, format: FrameFormat, reduced: Reduced) -> Array:
        size = (spec.height, spec.width)
        tensor = np.empty((3, *size) if spec.layout == "NCHW" else (*size, 3), np.float32)
        CpuPreprocessor(spec, format).write(reduced, tensor)
        return tensor

    def matte_stage(self, config: MatteConfig, format: FrameFormat) -> MatteStage:
        return create_matte_stage(config, format)

    def compositor(self, config: EffectConfig, format: FrameFormat) -> Compositor:
        return CpuCompositor(config, format)


class CudaSide:
    """Their twins.

    Args:
        device: It must be the current device.
    """

    def __init__(self, device: CudaDevice) -> None:
        self._device = device

    def place(self, frame: Frame) -> Frame:
        return to_device(frame)

    def place_array(self, array: NDArray[Any]) -> Array:
        import cupy

        return cupy.asarray(array)

    def reducer(self, format: FrameFormat) -> Any:
        from bgsoft.analysis.cuda import CudaReducer

        return CudaReducer(format)

    def write_tensor(self, spec: ModelSpec, format: FrameFormat, reduced: Reduced) -> Array:
        import cupy

        from bgsoft.segment.cuda import CudaPreprocessor

        preprocessor = CudaPreprocessor(spec, format)
        tensor = cupy.empty(preprocessor.shape, np.float32)
        preprocessor.write(reduced, tensor)
        return tensor[0]

    def matte_stage(self, config: MatteConfig, format: FrameFormat) -> MatteStage:
        from bgsoft.matte.cuda import create_cuda_matte_stage

        return create_cuda_matte_stage(config, format, self._device)

    def compositor(self, config: EffectConfig, format: FrameFormat) -> Compositor:
        from bgsoft.composite.cuda import CudaCompositor

        return CudaCompositor(config, format, self._device)


def measure_parity(
    ours: Side,
    spec: ModelSpec,
    *,
    reference: Side | None = None,
    size: tuple[int, int] = (1280, 720),
    effects: tuple[EffectConfig, ...] = EFFECTS,
) -> Iterator[Parity]:
    """Run the same frames through both sides.

    Args:
        ours: What is checked.
        spec: Model whose input is compared.
        reference: What it is compared with; None: the CPU.
        size: (width, height) of the frames, even.
        effects: Effects to compare.

    Yields:
        One result for each stage, sample depth and effect.
    """
    reference = reference or HostSide()
    for layout in PixelLayout:
        frames = [draw_frame(index, *size, layout) for index in range(3)]
        bits = frames[0].format.bit_depth
        yield _grid(ours, reference, frames[0], bits)
        yield _tensor(ours, reference, frames[0], spec, bits)
        yield _matte(ours, reference, frames, bits)
        for effect in effects:
            yield _composite(ours, reference, frames[0], effect, bits)


def _differences(format: FrameFormat, pairs: list[tuple[Array, Array]]) -> NDArray[np.float64]:
    """Absolute differences of samples, in code values, of all pairs in one row."""
    parts = [
        np.abs(to_host(a).astype(np.float64) - to_host(b)).ravel() / (1 << format.shift)
        for a, b in pairs
    ]
    return np.concatenate(parts)


def _result(name: str, found: NDArray[np.float64], tolerance: str, ok: bool) -> Parity:
    return Parity(
        name=name,
        max_difference=float(found.max()),
        mean_difference=float(found.mean()),
        tolerance=tolerance,
        ok=ok,
    )


def _grid(ours: Side, reference: Side, frame: Frame, bits: int) -> Parity:
    format = frame.format
    got, want = (side.reducer(format).reduce([side.place(frame)])[0] for side in (ours, reference))
    found = _differences(format, [(got.luma, want.luma), (got.chroma, want.chroma)])
    return _result(f"reduce, {bits} bits", found, "equal", not found.any())


def _tensor(ours: Side, reference: Side, frame: Frame, spec: ModelSpec, bits: int) -> Parity:
    format = frame.format
    tensors = []
    for side in (ours, reference):
        reduced = side.reducer(format).reduce([side.place(frame)])[0]
        tensors.append(to_host(side.write_tensor(spec, format, reduced)))
    std = np.array(spec.std).reshape((3, 1, 1) if spec.layout == "NCHW" else 3)
    found = (np.abs(tensors[0].astype(np.float64) - tensors[1]) * std * 255).ravel()
    tolerance = f"max {_TENSOR_CODES:g} of 255"
    return _result(f"preprocess, {bits} bits", found, tolerance, found.max() <= _TENSOR_CODES)


def _mask(index: int) -> NDArray[np.float32]:
    """(256, 256): a soft head and shoulders, with an island and a hole for the filters to find."""
    mask = np.zeros((256, 256), np.float32)
    x = 128 + 4 * index
    cv2.circle(mask, (x, 110), 55, 1, -1)
    cv2.ellipse(mask, (x, 290), (110, 110), 0, 0, 360, 1, -1)
    cv2.circle(mask, (x, 220), 3, 0, -1)
    cv2.circle(mask, (20, 30), 3, 1, -1)
    cv2.GaussianBlur(mask, (0, 0), 2.0, dst=mask)
    return mask


def _matte(ours: Side, reference: Side, frames: list[Frame], bits: int) -> Parity:
    format = frames[0].format
    config = MatteConfig(expand_pct=0.3, feather_pct=1.0)
    alphas = []
    for side in (ours, reference):
        matter, reducer = side.matte_stage(config, format), side.reducer(format)
        for index, frame in enumerate(frames):
            placed = side.place(frame)
            mask = side.place_array(_mask(index))
            matte = matter.refine([mask], [placed], [reducer.reduce([placed])[0]])[0]
        alphas.append(to_host(matte.alpha))
    found = np.abs(alphas[0].astype(np.float64) - alphas[1]).ravel()
    over = float((found > _MATTE_CODES).mean())
    tolerance = f"max {_MATTE_CODES} of 255 but for {_MATTE_SHARE:.1%}"
    return _result(f"matte, {bits} bits", found, tolerance, over <= _MATTE_SHARE)


def _composite(
    ours: Side, reference: Side, frame: Frame, effect: EffectConfig, bits: int
) -> Parity:
    format = frame.format
    mask = cv2.resize(_mask(0), (format.width, format.height))
    alpha = np.rint(mask * 255).astype(np.uint8)
    grid = cv2.resize(alpha, grid_shape(format.width, format.height)[::-1])
    results = []
    for side in (ours, reference):
        placed = side.place(frame)
        placed.planes.alpha[:] = side.place_array(alpha)
        matte = Matte(alpha=placed.planes.alpha, reduced=side.place_array(grid))
        compositor = side.compositor(effect, format)
        compositor.apply([placed], [matte], [side.reducer(format).reduce([placed])[0]])
        results.append((to_host(placed.luma), to_host(placed.chroma)))
        compositor.close()
    found = _differences(format, list(zip(*results, strict=True)))
    allowed = _COMPOSITE_CODES[bits]
    name = f"composite {effect.kind}, {bits} bits"
    return _result(name, found, f"max {allowed}", found.max() <= allowed)
