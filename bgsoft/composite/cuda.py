"""The compositor on a CUDA device; the twin of :mod:`bgsoft.composite.cpu`.

A frame takes two steps on the current stream: the background is prepared from the analysis frame
(:mod:`bgsoft.composite.cuda_filters`), then one kernel blends it into luma and chroma, touching
only what is not opaque. Where the background is replaced, the people's own colour at their edges is
put in place before (:mod:`bgsoft.composite.cuda_foreground`). Nothing is allocated after
construction, and the host waits for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

from bgsoft.composite.base import check_planes
from bgsoft.composite.cuda_filters import CudaBlur, CudaBokeh, CudaPixelate
from bgsoft.composite.cuda_foreground import CudaForeground
from bgsoft.composite.cuda_plate import (
    CudaBackground,
    CudaClip,
    CudaCutout,
    cuda_color,
    cuda_dim,
    cuda_image,
)
from bgsoft.composite.foreground import REPLACING
from bgsoft.composite.plan import BlurPlan, BokehPlan, PixelatePlan
from bgsoft.cuda.device import CudaDevice
from bgsoft.frame import AnalysisFrame, Frame, FrameFormat, Matte
from bgsoft.kernels.loader import BLOCK, blocks, kernel
from bgsoft.settings.config import EffectConfig, EffectKind

_THREAD_COLUMNS, _THREAD_ROWS = 8, 2
"""Luma samples of one thread of the blending kernels."""
_ALIGNMENT_BYTES = 16


class CudaCompositor:
    """Replaces the background of frames of one format, on a device.

    Args:
        effect: What the background becomes.
        format: Format of every frame.
        device: Where the frames are; it must be the current device.
        began: When a background video starts, seconds of the frames' time; None: with the first
            frame.

    Raises:
        ConfigError: The effect's colour, image or video cannot be used.
    """

    def __init__(
        self,
        effect: EffectConfig,
        format: FrameFormat,
        device: CudaDevice,
        began: Fraction | None = None,
    ) -> None:
        self._format = format
        self._background = _make_background(effect, format, device, began)
        if self._background is not None:
            bits = 8 * format.bytes_per_sample
            self._kernel = kernel("blend", self._background.blend_kernel, sample_bits=bits)
        self._foreground = CudaForeground(format) if effect.kind in REPLACING else None
        width, height = format.width, format.height
        self._size = (np.int32(height), np.int32(width))
        self._blocks = blocks(-(-width // _THREAD_COLUMNS), -(-height // _THREAD_ROWS))
        self._whole_width = width % _THREAD_COLUMNS == 0

    def apply(
        self, frames: Sequence[Frame], mattes: Sequence[Matte], grids: Sequence[AnalysisFrame]
    ) -> None:
        """See :meth:`bgsoft.composite.base.Compositor.apply`.

        Raises:
            DecodeError: The background video can no longer be read.
        """
        if self._background is None:
            return
        for frame, matte, reduced in zip(frames, mattes, grids, strict=True):
            check_planes(self._format, frame, matte, reduced)
            self._background.prepare(frame, matte, reduced)
            if self._foreground is not None:
                self._foreground.estimate(matte, reduced)
            self._blend(self._background, frame, matte)

    def _blend(self, background: CudaBackground, frame: Frame, matte: Matte) -> None:
        luma, chroma, alpha = frame.luma, frame.chroma, matte.alpha
        if self._foreground is not None:
            self._foreground.restore(frame, matte)
        addresses = luma.data.ptr | chroma.data.ptr | alpha.data.ptr
        whole = self._whole_width and addresses % _ALIGNMENT_BYTES == 0
        arguments = (luma, chroma, alpha, *self._size, np.int32(whole))
        self._kernel(self._blocks, BLOCK, (*arguments, *background.blend_arguments))

    def refresh(self) -> None:
        if self._background is not None:
            self._background.refresh()

    def close(self) -> None:
        if self._background is not None:
            self._background.close()


def _make_background(
    effect: EffectConfig, format: FrameFormat, device: CudaDevice, began: Fraction | None
) -> CudaBackground | None:
    """The effect's background; None where the frame's colour stays as it is."""
    length_px = effect.strength_px(format.height)
    match effect.kind:
        case EffectKind.BLUR if length_px:
            return CudaBlur(BlurPlan.of(format, length_px))
        case EffectKind.BOKEH if length_px:
            return CudaBokeh(BokehPlan.of(format, length_px, effect.highlights))
        case EffectKind.PIXELATE if length_px:
            return CudaPixelate(PixelatePlan.of(format, length_px))
        case EffectKind.DIM if effect.effective_strength:
            return cuda_dim(format, effect.effective_strength)
        case EffectKind.COLOR:
            return cuda_color(effect.background, format)
        case EffectKind.IMAGE:
            return cuda_image(Path(effect.background or ""), format)
        case EffectKind.VIDEO:
            return CudaClip(Path(effect.background or ""), format, device.copies, began)
        case EffectKind.ALPHA:
            return CudaCutout(format)
    return None  # with matte, the encoder writes the matte itself, and no colour
