"""Which matte stage serves which style."""

from __future__ import annotations

from bgsoft.config import MatteConfig, MatteStyle
from bgsoft.frame import FrameFormat
from bgsoft.matte.base import Matter
from bgsoft.matte.cpu import CpuMatter
from bgsoft.matte.obs import ObsMatter

__all__ = ["create_matter"]


def create_matter(config: MatteConfig, format: FrameFormat) -> Matter:
    """Make the host's matte stage for the style that the settings ask for.

    Args:
        config: The matte settings.
        format: Geometry and sample format of all frames.
    """
    if config.style is MatteStyle.OBS:
        return ObsMatter(config, format)
    return CpuMatter(config, format)
