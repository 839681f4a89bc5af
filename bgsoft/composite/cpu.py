"""The compositor on the host, with NumPy and OpenCV; the reference for all others."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from bgsoft.composite.blend import Background, Blender
from bgsoft.composite.blur import BlurBackground
from bgsoft.composite.bokeh import BokehBackground
from bgsoft.composite.clip import ClipBackground
from bgsoft.composite.cutout import CutoutBackground
from bgsoft.composite.dim import DimBackground
from bgsoft.composite.pixelate import PixelateBackground
from bgsoft.composite.plate import color_plate, image_plate
from bgsoft.config import EffectConfig, EffectKind
from bgsoft.frame import Frame, FrameFormat, Matte, Reduced

__all__ = ["CpuCompositor"]


class _FrameBackground(Background, Protocol):
    """A background that is made for each frame."""

    def prepare(self, frame: Frame, matte: Matte, reduced: Reduced) -> None:
        """Make the background of this frame; the frame itself is only read."""
        ...

    def close(self) -> None:
        """Free what it holds; safe to call twice."""
        ...


class CpuCompositor:
    """Replaces the background of frames of one format, on the host.

    Args:
        effect: What the background becomes.
        format: Format of every frame.

    Raises:
        ConfigError: The effect's colour, image or video cannot be used.
    """

    def __init__(self, effect: EffectConfig, format: FrameFormat) -> None:
        self._background = _make_background(effect, format)
        self._blender = Blender(format, keeps_partial=effect.kind is EffectKind.ALPHA)

    def apply(self, frame: Frame, matte: Matte, reduced: Reduced) -> None:
        """Blend the effect's background into the frame where the matte is below opaque.

        Raises:
            ValueError: The frame or its matte is not of the compositor's format.
        """
        background = self._background
        if background is None:
            return
        background.prepare(frame, matte, reduced)
        self._blender.blend(frame, matte.alpha, background)

    def close(self) -> None:
        if self._background is not None:
            self._background.close()


def _make_background(effect: EffectConfig, format: FrameFormat) -> _FrameBackground | None:
    """The effect's background; None where the frame's colour stays as it is."""
    length_px = effect.strength_px(format.height)
    match effect.kind:
        case EffectKind.BLUR:
            return BlurBackground(format, length_px) if length_px else None
        case EffectKind.BOKEH:
            if not length_px:
                return None
            return BokehBackground(format, length_px, effect.highlights)
        case EffectKind.PIXELATE:
            return PixelateBackground(format, length_px) if length_px else None
        case EffectKind.DIM:
            percent = effect.effective_strength
            return DimBackground(format, percent) if percent else None
        case EffectKind.COLOR:
            return color_plate(effect.background, format)
        case EffectKind.IMAGE:
            return image_plate(Path(effect.background or ""), format)
        case EffectKind.VIDEO:
            return ClipBackground(Path(effect.background or ""), format)
        case EffectKind.ALPHA:
            return CutoutBackground(format)
        case EffectKind.MATTE:
            return None  # the encoder writes the matte itself, and no colour
