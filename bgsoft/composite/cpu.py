"""The compositor on the host; the reference for all others."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

from bgsoft.composite.background import Background, CellsBackground, Hold
from bgsoft.composite.clip import ClipBackground, ClipPlayer
from bgsoft.composite.compositor import PictureCompositor
from bgsoft.composite.filters import BlurFilter, HostBokehFilter, PixelateBackground
from bgsoft.composite.foreground import REPLACING, ForegroundColor
from bgsoft.composite.plan import BlurPlan, BokehPlan, PixelatePlan
from bgsoft.composite.plate import (
    CutoutBackground,
    color_background,
    dim_background,
    image_background,
)
from bgsoft.frame import FrameFormat
from bgsoft.ops.sides import HOST
from bgsoft.settings.config import EffectConfig, EffectKind
from bgsoft.workers import Workers


def create_compositor(
    effect: EffectConfig,
    format: FrameFormat,
    workers: Workers | None = None,
    began: Fraction | None = None,
) -> PictureCompositor:
    """Make the host's compositor.

    Args:
        effect: What the background becomes.
        format: Format of every frame.
        workers: What does it; a lane a frame.
        began: When a background video starts, seconds of the frames' time; None: with the first
            frame.

    Raises:
        ConfigError: The effect's colour, image or video cannot be used.
    """
    workers = workers or Workers()
    make = _background_maker(effect, format, began)
    backgrounds = [make() for _ in range(workers.lanes)] if make else []
    foregrounds = [ForegroundColor(HOST, format) for _ in backgrounds if effect.kind in REPLACING]
    return PictureCompositor(HOST, format, backgrounds, foregrounds, workers)


def _background_maker(
    effect: EffectConfig, format: FrameFormat, began: Fraction | None
) -> Callable[[], Background] | None:
    """What makes the effect's background for a lane; None where the frame's colour stays."""
    length_px = effect.strength_px(format.height)
    match effect.kind:
        case EffectKind.BLUR if length_px:
            blur = BlurPlan.of(format, length_px)
            hold = Hold(HOST, blur.cells)
            return lambda: CellsBackground(
                HOST, blur.cells, hold, lambda cells: BlurFilter(HOST, blur, cells)
            )
        case EffectKind.BOKEH if length_px:
            bokeh = BokehPlan.of(format, length_px, effect.highlights)
            hold = Hold(HOST, bokeh.cells)
            return lambda: CellsBackground(
                HOST, bokeh.cells, hold, lambda cells: HostBokehFilter(bokeh, cells)
            )
        case EffectKind.PIXELATE if length_px:
            mosaic = PixelatePlan.of(format, length_px)
            return lambda: PixelateBackground(HOST, mosaic)
        case EffectKind.DIM if effect.effective_strength:
            dim = dim_background(HOST, format, effect.effective_strength)
            return lambda: dim
        case EffectKind.COLOR:
            color = color_background(effect.background, format)
            return lambda: color
        case EffectKind.IMAGE:
            image = image_background(HOST, Path(effect.background or ""), format)
            return lambda: image
        case EffectKind.VIDEO:
            player = ClipPlayer(Path(effect.background or ""), format, began)
            return lambda: ClipBackground(HOST, player)
        case EffectKind.ALPHA:
            return lambda: CutoutBackground(HOST, format)
    return None  # with matte, the encoder writes the matte itself, and no colour
