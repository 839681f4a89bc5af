"""Comparison of the GPU's picture stages with the CPU's, their references.

It defines all tolerances, including those of the GPU tests.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.base import analysis_shape
from bgsoft.diagnose.clips import draw_frame
from bgsoft.diagnose.stages import to_device, to_host
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat, Matte, PixelLayout
from bgsoft.models.catalog import ModelSpec
from bgsoft.ops.placement import HOST, Placement, current_device
from bgsoft.records import NamedTuple, dataclass
from bgsoft.rendering.host import HostStages
from bgsoft.resources import Resources
from bgsoft.segment.preprocess import Preprocessor
from bgsoft.settings.config import EffectConfig, EffectKind, MatteConfig, Precision

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice
    from bgsoft.rendering.device import DeviceStages

_WITHOUT_FILE = sorted(set(EffectKind) - {EffectKind.IMAGE, EffectKind.VIDEO, EffectKind.MATTE})
EFFECTS = tuple(EffectConfig(kind=kind) for kind in _WITHOUT_FILE)
"""Effects that need no file."""


class Tolerance(NamedTuple):
    """Allowed differences of the GPU's results from the CPU's."""

    maximum: float = math.inf
    """Largest difference."""
    usual: float = 0.0
    """Difference that at most :attr:`rare` of the samples exceed."""
    rare: float = 1.0
    mean: float = math.inf

    def allows(self, differences: NDArray[Any]) -> bool:
        """Return whether absolute differences are within the tolerance."""
        return bool(
            differences.max() <= self.maximum
            and (differences > self.usual).mean() <= self.rare
            and differences.mean() <= self.mean
        )


# In 8-bit codes.
TENSOR = Tolerance(maximum=2.5, usual=0.2, rare=0.01)
"""A model's input: a tie in a float sum may be rounded differently before the colour matrix."""
MATTE = Tolerance(usual=2, rare=0.001, mean=0.1)
"""The guided filter adds in another order."""
_COMPOSITE_CODES = {8: 1, 10: 4}
"""Tolerance by bit depth, in codes of that depth."""

# Of masks and mattes in [0, 1].
_MASK = 5e-3
_MASK_FP16 = 0.1
_MASK_TENSORRT = 0.15
"""TensorRT rounds inputs of convolutions to TF32's ten bits. ONNX Runtime has no switch for it;
only an environment variable for the whole process. The mask of an embedded model then changes by
up to 0.11 at steep edges, and by 0.0001 on average."""
CELLS = 1e-5
"""Means over cells, and other values that are only rounded."""

# Least PSNR of whole pictures, in dB.
MIN_MATTE_DB = {"cuda": 45.0, "tensorrt": 35.0}
"""Every matte of a render; TensorRT computes with ten bits of the fraction."""
MIN_SCHEDULED_MATTE_DB = 35.0
"""Every matte of several passes."""
MIN_ENCODED_DB = 34.0
"""Luma of an encoder at its default quality."""
MIN_COMBINATION_DB = 40.0
"""Luma of any combination of backends, after encoding."""

_STALE = 77
"""Value of alpha before a matte is written; none may remain."""


def mask_tolerance(backend: str, precision: Precision) -> float:
    """Return the largest allowed difference of a backend's mask from the CPU's in fp32."""
    if backend == "tensorrt":
        return _MASK_TENSORRT
    return _MASK_FP16 if precision is Precision.FP16 else _MASK


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """Result of one comparison."""

    name: str
    """Name, e.g. ``composite blur, 8 bits``."""
    max_difference: float
    """Largest difference, in code values of the compared samples."""
    mean_difference: float
    tolerance: str
    """Tolerance as text."""
    ok: bool


class HostUnderTest:
    """The picture stages on the host, which are the references."""

    @property
    def placement(self) -> Placement:
        return HOST

    def place(self, frame: Frame) -> Frame:
        """Return a copy of a host frame for the stages to change."""
        planes = frame.planes
        luma, chroma, alpha = (plane.copy() for plane in (planes.luma, planes.chroma, planes.alpha))
        return replace(frame, planes=replace(planes, luma=luma, chroma=chroma, alpha=alpha))

    def place_array(self, array: NDArray[Any]) -> Array:
        return self.placement.array(array)

    def stages(self, batch: int = 1) -> HostStages | DeviceStages:
        """Return the maker of the stages, as in a render."""
        return HostStages(Resources(), batch)

    def write_tensor(self, spec: ModelSpec, format: FrameFormat, reduced: AnalysisFrame) -> Array:
        """Return the model's input, (3, H, W) or (H, W, 3) float32."""
        preprocessor = Preprocessor(spec, format, self.placement)
        tensor = self.placement.xp.empty((1, *preprocessor.shape), np.float32)
        preprocessor.write(reduced, tensor)
        return tensor[0]


class DeviceUnderTest(HostUnderTest):
    """The picture stages on the current device."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device

    @property
    def placement(self) -> Placement:
        return current_device()

    def place(self, frame: Frame) -> Frame:
        return to_device(frame)

    def stages(self, batch: int = 1) -> HostStages | DeviceStages:
        from bgsoft.rendering.device import DeviceStages

        return DeviceStages(Resources(device=self._device), batch)


_REFERENCE = HostUnderTest()


def measure_parity(
    ours: HostUnderTest, spec: ModelSpec, *, size: tuple[int, int] = (1280, 720)
) -> Iterator[Parity]:
    """Compare each stage, sample depth and effect on a device with the CPU.

    ``spec`` is the model whose input is compared, ``size`` the frames' (width, height), even.
    """
    for layout in PixelLayout:
        frames = [draw_frame(index, *size, layout) for index in range(3)]
        yield _grid(ours, frames[0])
        yield _tensor(ours, frames[0], spec)
        masks = [_mask(index) for index in range(len(frames))]
        edge = MatteConfig(expand_pct=0.3, feather_pct=1.0)
        for fine in (False, True):
            yield compare_mattes(ours, edge, frames, masks, fine=fine)
        matte = _matte_of(masks[0], frames[0].format)
        for effect in EFFECTS:
            yield compare_composites(ours, effect, frames[0], matte)


def _codes(samples: Array, format: FrameFormat) -> NDArray[np.float64]:
    """Return the code values of stored samples."""
    return to_host(samples).astype(np.float64) / (1 << format.shift)


def _differences(format: FrameFormat, pairs: list[tuple[Array, Array]]) -> NDArray[np.float64]:
    """Return absolute differences of samples, in code values, of all pairs in one row."""
    parts = [np.abs(_codes(a, format) - _codes(b, format)).ravel() for a, b in pairs]
    return np.concatenate(parts)


def _result(name: str, found: NDArray[np.float64], tolerance: str, *, ok: bool) -> Parity:
    return Parity(
        name=name,
        max_difference=float(found.max()),
        mean_difference=float(found.mean()),
        tolerance=tolerance,
        ok=ok,
    )


def _reduced(each: HostUnderTest, frame: Frame) -> AnalysisFrame:
    return each.stages().reducer(frame.format).reduce([each.place(frame)])[0]


def _grid(ours: HostUnderTest, frame: Frame) -> Parity:
    got, want = (_reduced(each, frame) for each in (ours, _REFERENCE))
    found = _differences(frame.format, [(got.luma, want.luma), (got.chroma, want.chroma)])
    return _result(f"reduce, {frame.format.bit_depth} bits", found, "equal", ok=not found.any())


def _tensor(ours: HostUnderTest, frame: Frame, spec: ModelSpec) -> Parity:
    format = frame.format
    tensors = [
        to_host(each.write_tensor(spec, format, _reduced(each, frame)))
        for each in (ours, _REFERENCE)
    ]
    std = np.array(spec.std).reshape((3, 1, 1) if spec.layout == "NCHW" else 3)
    found = (np.abs(tensors[0].astype(np.float64) - tensors[1]) * std * 255).ravel()
    tolerance = f"max {TENSOR.maximum:g} of 255"
    ok = bool(found.max() <= TENSOR.maximum)
    return _result(f"preprocess, {format.bit_depth} bits", found, tolerance, ok=ok)


def _mask(index: int) -> NDArray[np.float32]:
    """Draw (256, 256): a soft head and shoulders, with an island and a hole for the filters."""
    mask = np.zeros((256, 256), np.float32)
    x = 128 + 4 * index
    cv2.circle(mask, (x, 110), 55, 1, -1)
    cv2.ellipse(mask, (x, 290), (110, 110), 0, 0, 360, 1, -1)
    cv2.circle(mask, (x, 220), 3, 0, -1)
    cv2.circle(mask, (20, 30), 3, 1, -1)
    cv2.GaussianBlur(mask, (0, 0), 2.0, dst=mask)
    return mask


def compare_mattes(
    ours: HostUnderTest,
    config: MatteConfig,
    frames: Sequence[Frame],
    masks: Sequence[NDArray[np.float32] | None],
    *,
    batch: int = 1,
    cuts: Sequence[int] = (),
    from_alpha: bool = False,
    fine: bool = False,
) -> Parity:
    """Compare mattes of two devices.

    Args:
        ours: The stages to check.
        config: The matte settings.
        frames: Host frames, all of one format.
        masks: The raw mask of each frame; None: the last one is held.
        batch: Frames at a time.
        cuts: Frames that begin a new scene, each the first of a batch.
        from_alpha: Whether masks are mattes of the frame's size.
        fine: Whether the edge is fitted on the frame.
    """
    format = frames[0].format
    tested = (ours, _REFERENCE)
    makers = [each.stages(batch) for each in tested]
    stages = [
        maker.matte_stage(config, format, from_alpha=from_alpha, fine=fine) for maker in makers
    ]
    reducers = [maker.reducer(format) for maker in makers]
    compare = partial(_compare_planes, config=config, from_alpha=from_alpha)
    differences: list[NDArray[np.float64]] = []
    ok = True
    for start in range(0, len(frames), batch):
        part = slice(start, start + batch)
        made: list[list[Matte]] = []
        for each, stage, reducer in zip(tested, stages, reducers, strict=True):
            if start in cuts:
                stage.reset()
            placed = [each.place(frame) for frame in frames[part]]
            for frame in placed:
                frame.planes.alpha[:] = _STALE
            given = [None if mask is None else each.place_array(mask) for mask in masks[part]]
            made.append(stage.refine(given, placed, reducer.reduce(placed)))
        for one, other in zip(*made, strict=True):
            ok = ok and one.held == other.held
            for got, want in ((one.alpha, other.alpha), (one.reduced, other.reduced)):
                found, good = compare(to_host(got), to_host(want))
                differences.append(found)
                ok = ok and good
    tolerance = f"max {MATTE.usual} of 255 but for {MATTE.rare:.1%}"
    if from_alpha:
        tolerance = f"max {_direct_codes(config)} of 255"
    name = f"{'fine ' if fine else ''}matte, {format.bit_depth} bits"
    return _result(name, np.concatenate(differences), tolerance, ok=ok)


def _compare_planes(
    got: NDArray[Any], want: NDArray[Any], *, config: MatteConfig, from_alpha: bool
) -> tuple[NDArray[np.float64], bool]:
    """Return the differences of two mattes, and whether they are allowed."""
    found = np.abs(got.astype(np.float64) - want)
    if from_alpha:
        return found.ravel(), bool(found.max() <= _direct_codes(config))
    ok = MATTE.allows(found)
    # Where the reference is flat, inside and outside must be exact.
    for end in (0, 255):
        core = cv2.erode((want == end).astype(np.uint8), np.ones((9, 9), np.uint8))
        ok = ok and bool((got[core.reshape(got.shape) > 0] == end).all())
    return found.ravel(), ok


def _direct_codes(config: MatteConfig) -> int:
    """Return the tolerance of mattes of the frame's size: one rounding for each step."""
    return 2 if config.feather_pct > 0 else int(config.expand_pct != 0)


def compare_composites(
    ours: HostUnderTest, effect: EffectConfig, frame: Frame, matte: Matte, *, min_db: float = 0.0
) -> Parity:
    """Compare composites of a host frame; a PSNR of ``min_db`` is required too."""
    format = frame.format
    bits = format.bit_depth
    results = []
    for each in (ours, _REFERENCE):
        placed = each.place(frame)
        placed.planes.alpha[:] = each.place_array(matte.alpha)
        given = Matte(alpha=placed.planes.alpha, reduced=each.place_array(matte.reduced))
        stages = each.stages()
        compositor = stages.compositor(effect, format)
        compositor.apply([placed], [given], stages.reducer(format).reduce([placed]))
        results.append((to_host(placed.luma), to_host(placed.chroma)))
        compositor.close()
    found = _differences(format, list(zip(*results, strict=True)))
    # It only computes the blend, which is equal in 8 bits.
    same = bits == 8 and effect.kind is EffectKind.DIM
    allowed = 0 if same else _COMPOSITE_CODES[bits]
    ok = found.max() <= allowed
    people = (matte.alpha == 255, _chroma_people(matte.alpha))
    for got, want, source, person in zip(*results, (frame.luma, frame.chroma), people, strict=True):
        ok = ok and np.array_equal(got[person], source[person])
        ok = ok and not (got & ((1 << format.shift) - 1)).any()
        error = np.mean((_codes(got, format) - _codes(want, format)) ** 2)
        ok = ok and error <= (2**bits - 1) ** 2 / 10 ** (min_db / 10)
    name = f"composite {effect.kind}, {bits} bits"
    return _result(name, found, "equal" if same else f"max {allowed}", ok=bool(ok))


def _chroma_people(alpha: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return the chroma samples of people alone: all 2×2 samples of alpha are 255."""
    height, width = alpha.shape
    padded = np.pad(alpha, ((0, height % 2), (0, width % 2)), mode="edge") == 255
    quads: NDArray[np.bool_] = padded.reshape(-(-height // 2), 2, -(-width // 2), 2).all((1, 3))
    return quads


def _matte_of(mask: NDArray[np.float32], format: FrameFormat) -> Matte:
    """Return a mask as a matte, without refinement."""
    alpha = np.rint(cv2.resize(mask, (format.width, format.height)) * 255).astype(np.uint8)
    size = analysis_shape(format.width, format.height)[::-1]
    return Matte(alpha=alpha, reduced=cv2.resize(alpha, size))
