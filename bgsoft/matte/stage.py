"""Creates the matte stage for the settings, on the host or on a CUDA device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bgsoft.frame import FrameFormat
from bgsoft.matte.base import MatteStage
from bgsoft.matte.soft import SoftMatte
from bgsoft.ops.placement import HOST, current_device
from bgsoft.settings.config import MatteConfig, MatteStyle
from bgsoft.threads import LanePool

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice


def create_matte_stage(
    config: MatteConfig,
    format: FrameFormat,
    pool: LanePool | None = None,
    *,
    device: CudaDevice | None = None,
    batch: int = 1,
    from_alpha: bool = False,
    given: bool = False,
    fine: bool = False,
) -> MatteStage:
    """Make a matte stage; on a device it works on the current stream.

    Args:
        config: The matte settings.
        format: Geometry and sample format of all frames.
        pool: Threads on the host. None: one lane.
        device: Device of the frames; None: on the host.
        batch: Frames at a time; no fewer than lanes.
        from_alpha: The model's masks are mattes of the frame's size.
        given: Masks are mattes of the frame's size, uint8, from a file.
        fine: Style soft fits the edge on the frame, not on the grid: for another background.
    """
    placement = HOST if device is None else current_device()
    pool = pool or LanePool()
    batch = max(batch, pool.lanes)
    if config.style is MatteStyle.OBS and not given:
        from bgsoft.matte.obs import ObsMatte

        return ObsMatte(placement, config, format, pool, batch, device)
    if from_alpha or given:
        from bgsoft.matte.direct import DirectMatte

        return DirectMatte(placement, config, format, pool, batch)
    return SoftMatte(placement, config, format, pool, batch, fine=fine)
