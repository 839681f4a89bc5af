"""Matte stages as tests make them."""

from __future__ import annotations

from typing import Any

from bgsoft.frame import FrameFormat
from bgsoft.matte.base import MatteSetup, MatteStage
from bgsoft.matte.stage import create_matte_stage
from bgsoft.settings.config import MatteConfig
from bgsoft.threads import LanePool


def matte_stage(
    config: MatteConfig, format: FrameFormat, pool: LanePool | None = None, **options: Any
) -> MatteStage:
    """Return a matte stage, with one lane unless ``pool`` is given."""
    return create_matte_stage(MatteSetup(config, format, pool or LanePool(), **options))
