"""Families of models: what their inputs and outputs have in common.

A new family is a line here. :mod:`bgsoft.segment.families` has the code of those that need their
own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bgsoft.models.boxes import BOXES
from bgsoft.records import NamedTuple

REFINER = "refiner"
"""Family of the model that refines masks, and its name in the catalogue."""

_ROBUST_VIDEO_MATTING: Mapping[str, Any] = {
    "input": {"name": "src"},
    "outputs": [{"name": "pha", "channel": 0}],
    "state": {"inputs": ["r1i", "r2i", "r3i", "r4i"], "outputs": ["r1o", "r2o", "r3o", "r4o"]},
    "downsample_ratio": {"name": "downsample_ratio"},
}


class Family(NamedTuple):
    """Properties of all models of a family."""

    makes_masks: bool = False
    """Models of the family segment people, so ``--model`` takes them."""
    takes_frame: bool = False
    """The input has the size of the frame; sizes of other inputs are in the models' tables."""
    makes_alpha: bool = False
    """Masks are mattes of the frame's size, which need no refining."""
    channels: int = 3
    """Channels of their input; where it is not R'G'B', :mod:`bgsoft.segment.families` has the code
    that writes it."""
    in_order: bool = False
    """Frames run one after another: the model remembers earlier ones."""
    defaults: Mapping[str, Any] = {}
    """Defaults of a model's table."""


FAMILIES: Mapping[str, Family] = {
    "single-shot": Family(makes_masks=True),
    "recurrent": Family(
        makes_masks=True,
        takes_frame=True,
        makes_alpha=True,
        in_order=True,
        defaults=_ROBUST_VIDEO_MATTING,
    ),
    BOXES: Family(),
    REFINER: Family(),
    "face-detector": Family(),
    "face-check": Family(),
    "face-landmarks": Family(),
}
"""Families by the ``family`` of a model's table."""

SEGMENTATION_FAMILIES = tuple(name for name, family in FAMILIES.items() if family.makes_masks)
