"""What a compositor is to the rest of bgsoft."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bgsoft.frame import Frame, Matte, Reduced

__all__ = ["Compositor"]


class Compositor(Protocol):
    """Replaces the background of frames of one format, in place."""

    def apply(
        self, frames: Sequence[Frame], mattes: Sequence[Matte], grids: Sequence[Reduced]
    ) -> None:
        """Blend the effect's background into frames where their mattes are below opaque.

        Where alpha is 255, a frame's samples stay bit for bit as they were. Where the background is
        replaced, partly transparent samples get the foreground's colour first; with
        :attr:`bgsoft.config.EffectKind.ALPHA` that is all they get.

        Args:
            frames: In presentation order; luma and chroma are overwritten.
            mattes: Their mattes.
            grids: The frames on the analysis grid, from before compositing.

        Raises:
            ValueError: A frame or its matte is not of the compositor's format.
        """
        ...

    def close(self) -> None:
        """Free background images and videos; safe to call twice."""
        ...
