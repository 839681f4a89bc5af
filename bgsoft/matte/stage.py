"""Creates the matte stage for the settings, on the host or on a CUDA device."""

from __future__ import annotations

from bgsoft.matte.base import MatteSetup, MatteStage
from bgsoft.matte.soft import SoftMatte
from bgsoft.settings.config import MatteStyle


def create_matte_stage(setup: MatteSetup) -> MatteStage:
    """Return the matte stage for the settings."""
    if setup.config.style is MatteStyle.OBS and not setup.given:
        from bgsoft.matte.obs import ObsMatte

        return ObsMatte(setup)
    if setup.from_alpha or setup.given:
        from bgsoft.matte.direct import DirectMatte

        return DirectMatte(setup)
    return SoftMatte(setup)
