"""What a matte stage is to the rest of bgsoft."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bgsoft.frame import Array, Frame, Matte, Reduced

__all__ = ["Matter"]


class Matter(Protocol):
    """Turns raw masks into mattes for frames of one format; holds the state between frames."""

    def refine(
        self, masks: Sequence[Array | None], frames: Sequence[Frame], grids: Sequence[Reduced]
    ) -> list[Matte]:
        """Make the mattes of consecutive frames of one scene.

        Args:
            masks: For each frame (h, w) float32 in [0, 1], the model's raw mask; None where it
                was not segmented and the last mask holds.
            frames: The frames; their alpha planes are written.
            grids: The same frames on the analysis grid.

        Returns:
            The mattes, whose planes may be changed: the next call goes on from others. Overwritten
            when the slot is reused or by the next call.

        Raises:
            ValueError: A mask is None on the first frame after construction or reset.
        """
        ...

    def reset(self) -> None:
        """Forget earlier frames (scene cut)."""
        ...
