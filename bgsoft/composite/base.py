"""What a compositor is to the rest of bgsoft."""

from __future__ import annotations

from typing import Protocol

from bgsoft.frame import Frame, Matte, Reduced

__all__ = ["Compositor"]


class Compositor(Protocol):
    """Replaces the background of frames of one format, in place."""

    def apply(self, frame: Frame, matte: Matte, reduced: Reduced) -> None:
        """Blend the effect's background into the frame where the matte is below opaque.

        Where alpha is 255, the frame's samples stay bit for bit as they were; with
        :attr:`bgsoft.config.EffectKind.ALPHA` wherever it is not 0.

        Args:
            frame: Luma and chroma are overwritten.
            matte: The frame's matte.
            reduced: The frame on the analysis grid, from before compositing.
        """
        ...

    def close(self) -> None:
        """Free background images and videos; safe to call twice."""
        ...
