"""What the face stage gives to the rest of bgsoft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bgsoft.frame import Frame, Reduced

__all__ = ["Face", "FaceFinder"]


@dataclass(slots=True, eq=False, kw_only=True)
class Face:
    """One face of one frame, in upright frame pixels; on the host whatever the frame's device."""

    id: int
    """The same through a track, never used again after it; from 0."""
    score: float
    """How sure the models are, 0–1."""
    box_xyxy: tuple[float, float, float, float]
    """Left, top, right, bottom, half-open; may reach over the frame's edge."""
    landmarks: NDArray[np.float32]
    """(468, 3): x and y in frame pixels, z in the same scale, smaller is nearer."""
    detected: bool
    """True where the detector saw it in this frame, False where it was followed or interpolated."""
    age_frames: int
    """Frames since the track began, 0 in its first."""


class FaceFinder(Protocol):
    """Finds the faces of frames of one format, in presentation order; holds the tracks."""

    def start(self) -> None:
        """Run the models once, in the thread that will call :meth:`find`."""
        ...

    def find(self, frames: Sequence[Frame], grids: Sequence[Reduced]) -> list[list[Face]]:
        """The faces of consecutive frames of one scene, a list a frame, most prominent first.

        Args:
            frames: Where the models read them, any number.
            grids: The same frames on the analysis grid.

        Raises:
            InferenceError: A model failed; carries a frame's pts.
        """
        ...

    def reset(self) -> None:
        """End all tracks (scene cut)."""
        ...

    def close(self) -> None:
        """Free the models; safe to call twice."""
        ...
