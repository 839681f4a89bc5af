"""What a matte stage is to the rest of bgsoft."""

from __future__ import annotations

from typing import Protocol

from bgsoft.frame import Array, Frame, Matte, Reduced

__all__ = ["Matter"]


class Matter(Protocol):
    """Turns raw masks into mattes for frames of one format; holds the state between frames."""

    def refine(self, mask: Array | None, frame: Frame, reduced: Reduced) -> Matte:
        """Make the matte of one frame, in presentation order.

        Args:
            mask: (h, w) float32 in [0, 1], the model's raw mask of this frame; None where the
                frame was not segmented and the last mask holds.
            frame: The frame; its alpha plane is written.
            reduced: The same frame on the analysis grid.

        Returns:
            The matte; its arrays are overwritten when the slot is reused or by the next call.

        Raises:
            ValueError: ``mask`` is None on the first frame after construction or reset.
        """
        ...

    def reset(self) -> None:
        """Forget earlier frames (scene cut)."""
        ...
