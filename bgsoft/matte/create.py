"""Which matte stage serves which style and which models."""

from __future__ import annotations

from bgsoft.config import MatteConfig, MatteStyle
from bgsoft.frame import FrameFormat
from bgsoft.matte.base import Matter
from bgsoft.matte.cpu import CpuMatter
from bgsoft.matte.direct import DirectMatter
from bgsoft.matte.obs import ObsMatter
from bgsoft.workers import Workers

__all__ = ["create_matter"]


def create_matter(
    config: MatteConfig,
    format: FrameFormat,
    workers: Workers | None = None,
    *,
    from_alpha: bool = False,
) -> Matter:
    """Make the host's matte stage for the style that the settings ask for.

    Args:
        config: The matte settings.
        format: Geometry and sample format of all frames.
        workers: What does it; a lane a frame.
        from_alpha: The model's masks are mattes of the frame's size.
    """
    if config.style is MatteStyle.OBS:
        return ObsMatter(config, format, workers)
    if from_alpha:
        return DirectMatter(config, format, workers)
    return CpuMatter(config, format, workers)
