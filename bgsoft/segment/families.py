"""The families of segmentation models. A new one: a module that has it, a line here, and its name
in :data:`bgsoft.models.catalog.SEGMENTATION_FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Mapping

from bgsoft.segment.base import Family
from bgsoft.segment.recurrent import RECURRENT
from bgsoft.segment.single import SINGLE_SHOT

__all__ = ["FAMILIES"]

FAMILIES: Mapping[str, Family] = {"single-shot": SINGLE_SHOT, "recurrent": RECURRENT}
"""Family of a :class:`bgsoft.models.catalog.ModelSpec` → what drives it."""
