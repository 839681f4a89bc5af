"""The families of segmentation models. A new one: a module that has it, a line here, and its name
in :data:`bgsoft.models.catalog.SEGMENTATION_FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Mapping

from bgsoft.models.catalog import ModelSpec
from bgsoft.segment.base import Family
from bgsoft.segment.recurrent import RECURRENT
from bgsoft.segment.single import SINGLE_SHOT
from bgsoft.settings.config import MatteQuality

FAMILIES: Mapping[str, Family] = {"single-shot": SINGLE_SHOT, "recurrent": RECURRENT}
"""Family of a :class:`bgsoft.models.catalog.ModelSpec` → what drives it."""

_COMPANIONS = {"selfie-general": "selfie-landscape"}


def companion(spec: ModelSpec, quality: MatteQuality) -> str | None:
    """The model that runs on whole frames beside this one (:mod:`bgsoft.segment.zoomed`).

    None where this one runs alone: it was asked to, or it is none of the embedded ones.
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
