"""What a matte stage is to the rest of bgsoft."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from bgsoft.frame import AnalysisFrame, Array, Frame, Matte


class MatteStage(ABC):
    """Turns raw masks into mattes for frames of one format; holds the state between frames."""

    _has_mask = False

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
            The mattes, whose planes may be changed: the next call goes on from others. Overwritten
            when the slot is reused or by the next call.

        Raises:
            ValueError: A mask is None on the first frame after construction or reset.
        """
        if masks[0] is None and not self._has_mask:
            raise ValueError("no mask to hold: the first frame must be segmented")
        mattes = self._refine(masks, frames, reduced)
        self._has_mask = True
        return mattes

    @abstractmethod
    def _refine(
        self,
        masks: Sequence[Array | None],
        frames: Sequence[Frame],
        reduced: Sequence[AnalysisFrame],
    ) -> list[Matte]:
        """The same, once there is a mask for the first frame or one from before."""

    def reset(self) -> None:
        """Forget earlier frames (scene cut)."""
        self._has_mask = False
