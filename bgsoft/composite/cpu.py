"""The compositor on the host, with NumPy and OpenCV; the reference for all others."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

from bgsoft.analysis.cpu import halve
from bgsoft.composite.base import check_planes
from bgsoft.composite.blend import Background, Blender
from bgsoft.composite.clip import ClipBackground, ClipPlayer
from bgsoft.composite.filters import BlurBackground, BokehBackground, PixelateBackground
from bgsoft.composite.foreground import REPLACING, ForegroundColor
from bgsoft.composite.plan import BlurPlan, BokehPlan, PixelatePlan
from bgsoft.composite.plate import CutoutBackground, DimBackground, color_plate, image_plate
from bgsoft.composite.upsample import HeldCells
from bgsoft.frame import AnalysisFrame, Frame, FrameFormat, Matte
from bgsoft.settings.config import EffectConfig, EffectKind
from bgsoft.workers import Workers


class CpuCompositor:
    """Replaces the background of frames of one format, on the host; those of a batch side by side.

    Args:
        effect: What the background becomes.
        format: Format of every frame.
        workers: What does it; a lane a frame.
        began: When a background video starts, seconds of the frames' time; None: with the first
            frame.

    Raises:
        ConfigError: The effect's colour, image or video cannot be used.
    """

    def __init__(
        self,
        effect: EffectConfig,
        format: FrameFormat,
        workers: Workers | None = None,
        began: Fraction | None = None,
    ) -> None:
        self._format = format
        self._workers = workers or Workers()
        self._backgrounds = _make_backgrounds(effect, format, self._workers.lanes, began)
        self._blenders = [
            Blender(format, keeps_partial=effect.kind is EffectKind.ALPHA)
            for _ in self._backgrounds
        ]
        self._chroma_alphas = [np.empty(format.chroma_shape[:2], np.uint8) for _ in self._blenders]
        self._foregrounds = [
            ForegroundColor(format) for _ in self._backgrounds if effect.kind in REPLACING
        ]

    def apply(
        self, frames: Sequence[Frame], mattes: Sequence[Matte], reduced: Sequence[AnalysisFrame]
    ) -> None:
        """See :meth:`bgsoft.composite.base.Compositor.apply`."""
        if not self._backgrounds:
            return
        self._workers.map(self._prepare, frames, mattes, reduced)
        for background, frame in zip(self._backgrounds, frames, strict=False):
            background.settle(frame)
        self._workers.map(self._blend, frames, mattes, reduced)

    def _prepare(self, lane: int, frame: Frame, matte: Matte, reduced: AnalysisFrame) -> None:
        check_planes(self._format, frame, matte, reduced)
        self._backgrounds[lane].prepare(frame, matte, reduced)

    def _blend(self, lane: int, frame: Frame, matte: Matte, reduced: AnalysisFrame) -> None:
        chroma_alpha = self._chroma_alphas[lane]
        halve(matte.alpha, chroma_alpha)
        if self._foregrounds:
            self._foregrounds[lane].restore(frame, matte, chroma_alpha, reduced)
        self._blenders[lane].blend(frame, matte.alpha, chroma_alpha, self._backgrounds[lane])

    def refresh(self) -> None:
        for background in self._backgrounds:
            background.refresh()

    def close(self) -> None:
        for background in self._backgrounds:
            background.close()


def _make_backgrounds(
    effect: EffectConfig, format: FrameFormat, lanes: int, began: Fraction | None
) -> Sequence[Background]:
    """The effect's background for each lane; none where the frame's colour stays as it is."""
    length_px = effect.strength_px(format.height)
    match effect.kind:
        case EffectKind.BLUR if length_px:
            blur = BlurPlan.of(format, length_px)
            held = HeldCells(blur.cells)
            return [BlurBackground(blur, held) for _ in range(lanes)]
        case EffectKind.BOKEH if length_px:
            bokeh = BokehPlan.of(format, length_px, effect.highlights)
            held = HeldCells(bokeh.cells)
            return [BokehBackground(bokeh, held) for _ in range(lanes)]
        case EffectKind.PIXELATE if length_px:
            mosaic = PixelatePlan.of(format, length_px)
            return [PixelateBackground(mosaic) for _ in range(lanes)]
        case EffectKind.DIM if effect.effective_strength:
            return [DimBackground(format, effect.effective_strength) for _ in range(lanes)]
        case EffectKind.COLOR:
            return [color_plate(effect.background, format)] * lanes
        case EffectKind.IMAGE:
            return [image_plate(Path(effect.background or ""), format)] * lanes
        case EffectKind.VIDEO:
            player = ClipPlayer(Path(effect.background or ""), format, began)
            return [ClipBackground(player) for _ in range(lanes)]
        case EffectKind.ALPHA:
            return [CutoutBackground(format) for _ in range(lanes)]
    return ()  # with matte, the encoder writes the matte itself, and no colour
