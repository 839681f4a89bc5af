"""What a segmenter is to the rest of bgsoft."""

from __future__ import annotations

from typing import Protocol

from bgsoft.frame import Array, Frame, Reduced

__all__ = ["Segmenter"]


class Segmenter(Protocol):
    """Makes the raw person mask of frames of one format."""

    name: str
    """Catalogue name of the model."""

    def start(self) -> None:
        """Run once, in the thread that will call :meth:`mask`, before the first frame."""
        ...

    def mask(self, frame: Frame, reduced: Reduced) -> Array:
        """Segment one frame.

        Args:
            frame: The frame, on this segmenter's device.
            reduced: The same frame on the analysis grid.

        Returns:
            (h, w) float32 in [0, 1], 1 = person, at the model's own size, stretched over the
            whole frame; overwritten by the next call.

        Raises:
            InferenceError: The model failed; carries the frame's pts.
        """
        ...

    def reset(self) -> None:
        """Forget earlier frames (scene cut)."""
        ...

    def close(self) -> None:
        """Free the model; safe to call twice."""
        ...
