"""Interface of segmenters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bgsoft.frame import AnalysisFrame, Array, Frame

FaceBox = tuple[float, float, float, float]
"""(left, top, right, bottom) of a face in frame pixels; may reach over the frame's edge."""


class FaceBoxes(Protocol):
    """Finds the faces of frames; see :class:`bgsoft.face.networks.FaceGlance`."""

    def start(self) -> None: ...
    def find(
        self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]
    ) -> list[list[FaceBox]]: ...
    def close(self) -> None: ...


class Segmenter(Protocol):
    """Makes the raw person mask of frames of one format."""

    name: str
    """Catalogue name of the model."""

    def start(self) -> None:
        """Run once, in the thread that will call :meth:`masks`, before the first frame."""
        ...

    def begin(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> None:
        """Start on frames that will be segmented next, if no scene ends among them.

        If one ends, the work is wasted, but harmless. Arguments and errors are those of
        :meth:`masks`.
        """
        return

    def masks(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> Sequence[Array]:
        """Segment some frames of one scene, in order.

        Args:
            frames: The frames, on this segmenter's device.
            reduced: Their analysis frames.

        Returns:
            For each (h, w) float32 in [0, 1], 1 = person, at the model's own size, stretched over
            the whole frame; overwritten by the next call.

        Raises:
            InferenceError: The model failed; carries a frame's pts.
        """
        ...

    def reset(self) -> None:
        """Forget earlier frames (scene cut); nothing, where every frame stands alone."""
        return

    def refresh(self) -> None:
        """Decide again what would otherwise be kept; the change is not visible."""
        return

    def close(self) -> None:
        """Free the model; safe to call twice."""
        ...
