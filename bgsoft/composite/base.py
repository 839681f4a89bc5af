"""What a compositor is to the rest of bgsoft, on the host or a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bgsoft.analysis.base import analysis_shape
from bgsoft.frame import AnalysisFrame, Frame, FrameFormat, Matte


class Compositor(Protocol):
    """Replaces the background of frames of one format, in place."""

    def apply(
        self, frames: Sequence[Frame], mattes: Sequence[Matte], reduced: Sequence[AnalysisFrame]
    ) -> None:
        """Blend the effect's background into frames where their mattes are below opaque.

        Where alpha is 255, a frame's samples stay bit for bit as they were. Where the background is
        replaced, partly transparent samples get the foreground's colour first; with
        :attr:`bgsoft.settings.config.EffectKind.ALPHA` that is all they get.

        Args:
            frames: In presentation order; luma and chroma are overwritten.
            mattes: Their mattes.
            reduced: The frames on the analysis frame, from before compositing.

        Raises:
            ValueError: A frame or its matte is not of the compositor's format.
        """
        ...

    def refresh(self) -> None:
        """Show the background as the next frame has it, also where it has hardly changed."""
        ...

    def close(self) -> None:
        """Free background images and videos; safe to call twice."""
        ...


def check_planes(format: FrameFormat, frame: Frame, matte: Matte, reduced: AnalysisFrame) -> None:
    """Raise ValueError where a plane's shape or dtype is not the format's."""
    luma, chroma, alpha = frame.luma, frame.chroma, matte.alpha
    shapes = luma.shape, chroma.shape, alpha.shape
    if shapes != (format.luma_shape, format.chroma_shape, format.luma_shape):
        raise ValueError(
            f"luma, chroma and alpha are {shapes} but frames are {format.width}x{format.height}"
        )
    dtypes = luma.dtype, chroma.dtype, alpha.dtype
    if dtypes != (format.dtype, format.dtype, "uint8"):
        names = ", ".join(map(str, dtypes))
        raise ValueError(f"luma, chroma and alpha are {names} but frames are {format.layout}")
    grid = analysis_shape(format.width, format.height)
    found = matte.reduced.shape, reduced.luma.shape
    if found != (grid, grid):
        raise ValueError(f"matte and picture are {found[0]} and {found[1]} on a grid of {grid}")
