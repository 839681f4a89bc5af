"""What a segmenter is to the rest of bgsoft."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bgsoft.frame import Array, Frame, Reduced

__all__ = ["Segmenter"]


class Segmenter(Protocol):
    """Makes the raw person mask of frames of one format."""

    name: str
    """Catalogue name of the model."""

    def start(self) -> None:
        """Run once, in the thread that will call :meth:`masks`, before the first frame."""
        ...

    def masks(self, frames: Sequence[Frame], grids: Sequence[Reduced]) -> Sequence[Array]:
        """Segment some frames of one scene, in order.

        Args:
            frames: The frames, on this segmenter's device.
            grids: The same frames on the analysis grid.

        Returns:
            For each (h, w) float32 in [0, 1], 1 = person, at the model's own size, stretched over
            the whole frame; overwritten by the next call.

        Raises:
            InferenceError: The model failed; carries a frame's pts.
        """
        ...

    def reset(self) -> None:
        """Forget earlier frames (scene cut)."""
        ...

    def close(self) -> None:
        """Free the model; safe to call twice."""
        ...
