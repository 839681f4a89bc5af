"""Base class of matte stages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bgsoft.analysis.base import analysis_shape
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat, Matte
from bgsoft.ops.placement import HOST, Placement, current_device
from bgsoft.records import NamedTuple
from bgsoft.settings.config import MatteConfig
from bgsoft.threads import LanePool

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice


class MatteSetup(NamedTuple):
    """Settings and surroundings of a matte stage."""

    config: MatteConfig
    format: FrameFormat
    """Geometry and sample format of all frames."""
    pool: LanePool
    """Threads, one lane per frame; one lane on a device."""
    batch: int = 1
    """Frames at a time; no fewer than lanes."""
    device: CudaDevice | None = None
    """Device of the frames, on whose current stream the stage works; None: on the host."""
    from_alpha: bool = False
    """The model's masks are mattes of the frame's size."""
    given: bool = False
    """Masks are mattes of the frame's size, uint8, from a file."""
    fine: bool = False
    """Style soft fits the edge on the frame, not on the grid: for another background."""

    @property
    def placement(self) -> Placement:
        """Place of the frames."""
        return HOST if self.device is None else current_device()


class MatteBatch(NamedTuple):
    """Consecutive frames of one scene, and their mattes, which are to be filled."""

    masks: Sequence[Array | None]
    frames: Sequence[Frame]
    reduced: Sequence[AnalysisFrame]
    mattes: Sequence[Matte]

    def part(self, part: slice) -> MatteBatch:
        """Return a range of the batch."""
        return MatteBatch(
            self.masks[part], self.frames[part], self.reduced[part], self.mattes[part]
        )


class MatteStage(ABC):
    """Turns raw masks into mattes for frames of one format; keeps the state between frames."""

    def __init__(self, setup: MatteSetup) -> None:
        self._placement, self._pool = setup.placement, setup.pool
        grid = analysis_shape(setup.format.width, setup.format.height)
        count, empty = max(setup.batch, setup.pool.lanes), self._placement.xp.empty
        self._made = [[empty(grid, np.uint8) for _ in range(count)] for _ in range(2)]
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
        self._refine(MatteBatch(masks, frames, reduced, mattes))
        self._has_mask = True
        return mattes

    @abstractmethod
    def _refine(self, batch: MatteBatch) -> None:
        """Fill the mattes; there is a mask for the first frame, or an earlier one."""

    def reset(self) -> None:
        """Forget earlier frames (scene cut)."""
        self._has_mask = False
