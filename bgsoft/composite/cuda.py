"""The compositor on a CUDA device; the twin of :mod:`bgsoft.composite.cpu`.

The host waits for nothing.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from bgsoft.composite.background import Background, CellsBackground, Hold
from bgsoft.composite.clip import ClipBackground, ClipPlayer
from bgsoft.composite.compositor import PictureCompositor
from bgsoft.composite.filters import BlurFilter, DeviceBokehFilter, PixelateBackground
from bgsoft.composite.foreground import REPLACING, ForegroundColor
from bgsoft.composite.plan import BlurPlan, BokehPlan, PixelatePlan
from bgsoft.composite.plate import (
    CutoutBackground,
    color_background,
    dim_background,
    image_background,
)
from bgsoft.cuda.device import CudaDevice
from bgsoft.frame import FrameFormat
from bgsoft.ops.sides import Side
from bgsoft.ops.sides import device as device_side
from bgsoft.settings.config import EffectConfig, EffectKind
from bgsoft.workers import Workers


def create_cuda_compositor(
    effect: EffectConfig,
    format: FrameFormat,
    device: CudaDevice,
    began: Fraction | None = None,
) -> PictureCompositor:
    """Make the compositor of a device, which must be the current one.

    Args:
        effect: What the background becomes.
        format: Format of every frame.
        device: Where the frames are.
        began: When a background video starts, seconds of the frames' time; None: with the first
            frame.

    Raises:
        ConfigError: The effect's colour, image or video cannot be used.
    """
    side = device_side()
    background = _make_background(side, effect, format, device, began)
    foregrounds = [ForegroundColor(side, format)] if effect.kind in REPLACING else []
    # Frames are launched one after another, so one background serves them all.
    return PictureCompositor(side, format, background, foregrounds, Workers())


def _make_background(
    side: Side,
    effect: EffectConfig,
    format: FrameFormat,
    device: CudaDevice,
    began: Fraction | None,
) -> list[Background]:
    """The effect's background; none where the frame's colour stays as it is."""
    length_px = effect.strength_px(format.height)
    path = Path(effect.background or "")
    match effect.kind:
        case EffectKind.BLUR if length_px:
            blur = BlurPlan.of(format, length_px)
            hold = Hold(side, blur.cells)
            return [
                CellsBackground(side, blur.cells, hold, lambda cells: BlurFilter(side, blur, cells))
            ]
        case EffectKind.BOKEH if length_px:
            bokeh = BokehPlan.of(format, length_px, effect.highlights)
            hold = Hold(side, bokeh.cells)
            return [
                CellsBackground(
                    side, bokeh.cells, hold, lambda cells: DeviceBokehFilter(side, bokeh, cells)
                )
            ]
        case EffectKind.PIXELATE if length_px:
            return [PixelateBackground(side, PixelatePlan.of(format, length_px))]
        case EffectKind.DIM if effect.effective_strength:
            return [dim_background(side, format, effect.effective_strength)]
        case EffectKind.COLOR:
            return [color_background(effect.background, format)]
        case EffectKind.IMAGE:
            return [image_background(side, path, format)]
        case EffectKind.VIDEO:
            player = ClipPlayer(path, format, began)
            return [ClipBackground(side, player, device.copies)]
        case EffectKind.ALPHA:
            return [CutoutBackground(side, format)]
    return []  # with matte, the encoder writes the matte itself, and no colour
