"""Base class of matte stages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from bgsoft.analysis.base import analysis_shape
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat, Matte
from bgsoft.ops.placement import Placement
from bgsoft.threads import LanePool


class MatteStage(ABC):
    """Turns raw masks into mattes for frames of one format; keeps the state between frames.

    Args:
        placement: Device of the frames, or the host.
        format: Geometry of all frames.
        pool: Threads, one lane per frame; one lane on a device.
        batch: Frames at a time.
    """

    def __init__(
        self, placement: Placement, format: FrameFormat, pool: LanePool, batch: int
    ) -> None:
        self._placement, self._pool = placement, pool
        grid = analysis_shape(format.width, format.height)
        self._made = [[placement.xp.empty(grid, np.uint8) for _ in range(batch)] for _ in range(2)]
        self._has_mask = False

    def refine(
        self,
        masks: Sequence[Array | None],
        frames: Sequence[Frame],
        reduced: Sequence[AnalysisFrame],
    ) -> list[Matte]:
        """Make the mattes of consecutive frames of one scene.

        Args:
            masks: For each frame (h, w) float32 in [0, 1], the model's raw mask, always of the same
                size; None where it was not segmented and the last mask holds.
            frames: The frames; their alpha planes are written.
            reduced: Their analysis frames.

        Returns:
            The mattes. Their planes may be changed: the next call continues from copies. They are
            overwritten when the slot is reused, or by the next call but one.

        Raises:
            ValueError: A mask is None on the first frame after construction or reset.
        """
        if masks[0] is None and not self._has_mask:
            raise ValueError("cannot hold the last mask: the first frame must be segmented")
        self._made.reverse()
        mattes = [
            Matte(alpha=frame.planes.alpha, reduced=made, held=mask is None)
            for mask, frame, made in zip(masks, frames, self._made[0], strict=False)
        ]
        self._refine(masks, frames, reduced, mattes)
        self._has_mask = True
        return mattes

    @abstractmethod
    def _refine(
        self,
        masks: Sequence[Array | None],
        frames: Sequence[Frame],
        reduced: Sequence[AnalysisFrame],
        mattes: Sequence[Matte],
    ) -> None:
        """Fill the mattes; there is a mask for the first frame, or an earlier one."""

    def reset(self) -> None:
        """Forget earlier frames (scene cut)."""
        self._has_mask = False
