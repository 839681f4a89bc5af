"""The families of models on whole frames: how each is loaded, and what it is given and makes.

A new one: a line here, and its name in :data:`bgsoft.models.catalog.SEGMENTATION_FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bgsoft.errors import ModelError
from bgsoft.frame import FrameFormat
from bgsoft.infer.base import Wiring
from bgsoft.models.boxes import BOXES
from bgsoft.models.catalog import REFINER, ModelSpec, ResolvedModel, resolve
from bgsoft.records import NamedTuple
from bgsoft.settings.config import MatteQuality

_INNER_SIDE = 512
"""Longest side, in pixels, of the picture that a recurrent model works on inside: the advice of
Robust Video Matting's authors."""
_COMPANIONS = {"selfie-general": "selfie-landscape"}
COARSE_INPUT = "coarse"
"""The refiner's input for the mask that it refines: (N, 1, H, W)."""


class Family(NamedTuple):
    """Models that are driven alike."""

    wiring: Callable[[ModelSpec, FrameFormat, int], Wiring]
    """How to load a model for frames of one format, so many a run; 1 where they go in order."""
    in_order: bool = False
    """Frames have to be run one after another: the model remembers earlier ones."""
    makes_alpha: bool = False
    """It takes the whole frame, and its masks are mattes of that size, which need no refining."""


def downsample_ratio(width: int, height: int) -> float:
    """The factor by which a recurrent model reduces frames of this size; 1 for small ones."""
    return min(1.0, _INNER_SIDE / max(width, height))


def _single_shot(spec: ModelSpec, format: FrameFormat, batch: int) -> Wiring:
    return Wiring(inputs={spec.input: spec.input_shape(batch)}, outputs=(spec.output,))


def _recurrent(spec: ModelSpec, format: FrameFormat, batch: int) -> Wiring:
    if spec.layout != "NCHW":
        raise ModelError(f"model {spec.name}: recurrent models take NCHW")
    size = format.width, format.height
    if any(fixed not in (0, axis) for fixed, axis in zip(spec.frame_size, size, strict=True)):
        fixed, given = (
            "x".join(str(axis or "?") for axis in each) for each in (spec.frame_size, size)
        )
        raise ModelError(f"model {spec.name} takes frames of {fixed} only, not {given}")
    ratio = downsample_ratio(format.width, format.height)
    return Wiring(
        inputs={spec.input: (batch, 3, format.height, format.width)},
        # The foreground's colours stay where the network runs, until somebody wants them.
        outputs=(spec.output,),
        constants={spec.ratio_input: ratio} if spec.ratio_input else {},
        loops=dict(spec.loops),
    )


def _refiner(spec: ModelSpec, format: FrameFormat, batch: int) -> Wiring:
    image = spec.input_shape(batch)
    coarse = (image[0], 1, *image[2:])
    return Wiring(inputs={spec.input: image, COARSE_INPUT: coarse}, outputs=(spec.output,))


FAMILIES: Mapping[str, Family] = {
    "single-shot": Family(wiring=_single_shot),
    "recurrent": Family(wiring=_recurrent, in_order=True, makes_alpha=True),
    REFINER: Family(wiring=_refiner),
    BOXES: Family(wiring=_single_shot),
}
"""Family of a :class:`bgsoft.models.catalog.ModelSpec` → what drives it."""


def companion(spec: ModelSpec, quality: MatteQuality) -> str | None:
    """The model that runs on whole frames beside this one (:mod:`bgsoft.segment.zoomed`).

    None where this one runs alone: that was asked for, or it is none of the embedded ones.
    """
    if quality is MatteQuality.FAST or not spec.embedded:
        return None
    return _COMPANIONS.get(spec.name)


def averaged_with(spec: ModelSpec, quality: MatteQuality) -> str | None:
    """The model whose masks a matting model's mattes are averaged with.

    See :mod:`bgsoft.segment.averaged`. None where it makes no mattes, or stands alone.
    """
    family = FAMILIES.get(spec.family)
    makes_alpha = family is not None and family.makes_alpha
    return "selfie-general" if makes_alpha and quality is MatteQuality.BEST else None


def models_beside(model: ResolvedModel, quality: MatteQuality) -> list[ResolvedModel]:
    """Return the models that run with one.

    Raises:
        ModelError: A file is damaged.
    """
    masker, other = averaged_with(model.spec, quality), companion(model.spec, quality)
    if masker is not None:
        beside = resolve(masker)
        return [beside, *models_beside(beside, quality)]
    if other is None:
        return []
    refiners = [resolve(REFINER, (REFINER,))] if quality is MatteQuality.BEST else []
    return [resolve(other), *refiners]
