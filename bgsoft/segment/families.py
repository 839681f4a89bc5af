"""Code round the networks of a family: what they are given, and how their output is read.

:data:`bgsoft.models.families.FAMILIES` has the properties of all families.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from bgsoft.errors import ModelError
from bgsoft.frame import Array, FrameFormat
from bgsoft.infer.base import Wiring
from bgsoft.models.catalog import ModelSpec, ResolvedModel, resolve
from bgsoft.models.families import REFINER
from bgsoft.ops.placement import Placement
from bgsoft.records import NamedTuple
from bgsoft.segment.masks import to_masks
from bgsoft.segment.preprocess import Preprocessor
from bgsoft.settings.config import MatteQuality

_INNER_SIDE = 512
"""Longest side, in pixels, of the picture that a recurrent model works on inside: the advice of
Robust Video Matting's authors."""
COARSE_INPUT = "coarse"
"""The refiner's input for the mask that it refines: (N, 1, H, W)."""


def _wire(spec: ModelSpec, batch: int) -> Wiring:
    return Wiring(inputs={spec.input: spec.input_shape(batch)}, outputs=(spec.output,))


def _wire_recurrent(spec: ModelSpec, batch: int) -> Wiring:
    if spec.layout != "NCHW":
        raise ModelError(
            f"cannot use model {spec.name}: the input of a recurrent model must be NCHW"
        )
    ratio = downsample_ratio(spec.width, spec.height)
    return replace(
        _wire(spec, batch),
        # The foreground's colours stay where the network runs.
        constants={spec.ratio_input: ratio} if spec.ratio_input else {},
        loops=dict(spec.loops),
    )


def _wire_refiner(spec: ModelSpec, batch: int) -> Wiring:
    image = spec.input_shape(batch)
    coarse = (image[0], 1, *image[2:])
    return Wiring(inputs={spec.input: image, COARSE_INPUT: coarse}, outputs=(spec.output,))


class Processing(NamedTuple):
    """Code round the networks of a family. A family's spec has the size of the input."""

    wire: Callable[[ModelSpec, int], Wiring] = _wire
    """Return the inputs and outputs for a batch of frames."""
    preprocessor: Callable[[ModelSpec, FrameFormat, Placement], Preprocessor] = Preprocessor
    """Return what writes frames, or parts of them, into the input."""
    to_masks: Callable[[Placement, Array, ModelSpec, Array], None] = to_masks
    """Turn (n, C, h, w) output into (n, h, w) float32 masks in [0, 1]."""


PROCESSING: Mapping[str, Processing] = {
    "recurrent": Processing(wire=_wire_recurrent),
    REFINER: Processing(wire=_wire_refiner),
}
"""Families that need code of their own."""


def with_size(spec: ModelSpec, format: FrameFormat) -> ModelSpec:
    """Return a model's spec with the size of its input for frames of one format.

    Raises:
        ModelError: The model takes frames of another size only.
    """
    if not spec.of_family.takes_frame:
        return spec
    size = format.width, format.height
    if any(fixed not in (0, axis) for fixed, axis in zip(spec.frame_size, size, strict=True)):
        fixed, given = (
            "x".join(str(axis or "?") for axis in each) for each in (spec.frame_size, size)
        )
        raise ModelError(
            f"cannot use model {spec.name}: it takes only frames of {fixed}, not {given}"
        )
    return replace(spec, width=format.width, height=format.height)


def wiring(spec: ModelSpec, format: FrameFormat, batch: int) -> Wiring:
    """Return the use of a model's inputs and outputs for a batch of frames of one format.

    Raises:
        ModelError: The model does not take such frames.
    """
    return PROCESSING.get(spec.family, Processing()).wire(with_size(spec, format), batch)


def runs_singly(spec: ModelSpec) -> bool:
    """Return whether one frame takes all threads of the CPU, instead of one thread each."""
    return spec.of_family.in_order or spec.large


def downsample_ratio(width: int, height: int) -> float:
    """Return the factor by which a recurrent model reduces frames of this size; at most 1."""
    return min(1.0, _INNER_SIDE / max(width, height))


def companion(spec: ModelSpec, quality: MatteQuality) -> str | None:
    """Return the model that runs in addition to this one; None: it runs alone.

    The embedded model has another one for whole frames (:mod:`bgsoft.segment.zoomed`). The mattes
    of a matting model are averaged with the embedded model's masks
    (:mod:`bgsoft.segment.averaged`).
    """
    if spec.of_family.makes_alpha:
        return "selfie-general" if quality is MatteQuality.BEST else None
    is_main = spec.embedded and spec.name == "selfie-general"
    return "selfie-landscape" if is_main and quality is not MatteQuality.FAST else None


def companion_models(model: ResolvedModel, quality: MatteQuality) -> list[ResolvedModel]:
    """Return the models that run with one.

    Raises:
        ModelError: A file is damaged.
    """
    name = companion(model.spec, quality)
    if name is None:
        return []
    other = resolve(name)
    if model.spec.of_family.makes_alpha:
        return [other, *companion_models(other, quality)]
    refines = quality is MatteQuality.BEST
    return [other, resolve(REFINER, (REFINER,))] if refines else [other]
