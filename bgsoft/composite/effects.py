"""Effects: creates the compositor of each, on the host or on a CUDA device."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bgsoft.analysis.base import analysis_factor
from bgsoft.composite.background import Background, CellFilter, CellsBackground, Hold
from bgsoft.composite.compositor import PictureCompositor
from bgsoft.composite.filters import BlurFilter, BokehFilter, CutoutFilter, PixelateBackground
from bgsoft.composite.foreground import ForegroundColor
from bgsoft.composite.plan import BlurPlan, BokehPlan, CellsPlan, PixelatePlan
from bgsoft.composite.plate import color_background, dim_background, image_background
from bgsoft.frame import Array, FrameFormat
from bgsoft.ops.placement import HOST, Placement
from bgsoft.settings.config import REPLACING, EffectConfig, EffectKind
from bgsoft.threads import LanePool

if TYPE_CHECKING:
    from bgsoft.cuda.device import CopyMeter


def create_compositor(
    effect: EffectConfig,
    format: FrameFormat,
    *,
    placement: Placement = HOST,
    pool: LanePool | None = None,
    copies: CopyMeter | None = None,
    began: Fraction | None = None,
    aspect: Fraction = Fraction(1),
) -> PictureCompositor:
    """Create the compositor of an effect.

    Args:
        effect: The effect and its strength.
        format: Format of every frame.
        placement: Device of the frames, or the host.
        pool: Threads, one lane per frame; a device gets its frames one after another.
        copies: Counts the bytes copied to a device; None on the host.
        began: Start of a background video, seconds of the frames' time; None: the first frame.
        aspect: Width of the frame's pixels over their height.

    Raises:
        ConfigError: The effect's colour, image or video cannot be used.
    """
    pool = pool or LanePool()
    make = _background_maker(effect, format, placement, copies, began, aspect)
    backgrounds = [make() for _ in range(pool.lanes)] if make else []
    replaced = backgrounds if effect.kind in REPLACING else []
    foregrounds = [ForegroundColor(placement, format) for _ in replaced]
    return PictureCompositor(placement, format, backgrounds, foregrounds, pool)


def _background_maker(
    effect: EffectConfig,
    format: FrameFormat,
    placement: Placement,
    copies: CopyMeter | None,
    began: Fraction | None,
    aspect: Fraction,
) -> Callable[[], Background] | None:
    """Return a function that makes the effect's background for a lane; None: no background."""
    length_px = effect.strength_px(format.height)
    path = Path(effect.background or "")
    match effect.kind:
        case EffectKind.BLUR if length_px:
            blur = BlurPlan.of(format, length_px)
            return _on_cells(placement, blur.cells, partial(BlurFilter, placement, blur))
        case EffectKind.BOKEH if length_px:
            bokeh = BokehPlan.of(format, length_px, effect.highlights)
            return _on_cells(placement, bokeh.cells, partial(BokehFilter, placement, bokeh))
        case EffectKind.PIXELATE if length_px:
            mosaic = PixelatePlan.of(format, length_px)
            return lambda: PixelateBackground(placement, mosaic)
        case EffectKind.DIM if effect.effective_strength:
            dim = dim_background(placement, format, effect.effective_strength)
            return lambda: dim
        case EffectKind.COLOR:
            color = color_background(placement, effect.background, format)
            return lambda: color
        case EffectKind.IMAGE:
            image = image_background(placement, path, format, aspect)
            return lambda: image
        case EffectKind.VIDEO:
            from bgsoft.composite.clip import ClipBackground, ClipPlayer

            player = ClipPlayer(path, format, began, aspect)
            return lambda: ClipBackground(placement, player, copies)
        case EffectKind.ALPHA:
            factor = 2 * analysis_factor(format.width, format.height)
            cutout = CellsPlan(format, factor, factor)
            make = partial(CutoutFilter, placement, cutout)
            return lambda: CellsBackground(placement, cutout, None, make, "blend_cutout")
    return None  # for matte, the encoder writes the matte, and no colour


def _on_cells(
    placement: Placement, plan: CellsPlan, make_filter: Callable[[Array], CellFilter]
) -> Callable[[], Background]:
    hold = Hold(placement, plan)
    return lambda: CellsBackground(placement, plan, hold, make_filter)
