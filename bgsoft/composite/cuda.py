"""The compositor on a CUDA device; the twin of :mod:`bgsoft.composite.cpu`.

A frame takes two steps on the current stream: the background is prepared from the analysis grid
(:mod:`bgsoft.composite.cuda_blur` and others), then one kernel blends it into luma and chroma,
touching only what is not opaque. Where the background is replaced, the people's own colour at their
edges is estimated and put in place before (:mod:`bgsoft.composite.cuda_foreground`). Nothing is
allocated after construction, and the host waits for nothing; where :attr:`CudaCompositor.is_fixed`
is true, :meth:`CudaCompositor.prepare` can be recorded into a CUDA graph once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bgsoft.composite.cuda_background import DeviceBackground
from bgsoft.composite.cuda_blur import DeviceBlur
from bgsoft.composite.cuda_bokeh import DeviceBokeh
from bgsoft.composite.cuda_cutout import DeviceCutout
from bgsoft.composite.cuda_foreground import DeviceForeground
from bgsoft.composite.cuda_pixelate import DevicePixelate
from bgsoft.composite.cuda_plate import DeviceClip, DeviceColor, DeviceDim, DeviceImage
from bgsoft.composite.foreground import REPLACING
from bgsoft.config import EffectConfig, EffectKind
from bgsoft.cuda.device import CudaDevice
from bgsoft.frame import Array, Frame, FrameFormat, Matte, Reduced
from bgsoft.kernels.loader import blocks, kernel

__all__ = ["CudaCompositor"]

_THREAD_COLUMNS, _THREAD_ROWS = 8, 2
"""Luma samples of one thread of the blending kernels."""
_ALIGNMENT_BYTES = 16
_BLOCK = (32, 8, 1)


class CudaCompositor:
    """Replaces the background of frames of one format, on a device.

    Args:
        effect: What the background becomes.
        format: Format of every frame.
        device: Where the frames are; it must be the current device.

    Raises:
        ConfigError: The effect's colour, image or video cannot be used.
    """

    def __init__(self, effect: EffectConfig, format: FrameFormat, device: CudaDevice) -> None:
        self._format = format
        self._background = _make_background(effect, format, device)
        if self._background is not None:
            bits = 8 * format.bytes_per_sample
            self._blend = kernel("blend", self._background.blend_kernel, sample_bits=bits)
        self._foreground = DeviceForeground(format) if effect.kind in REPLACING else None
        width, height = format.width, format.height
        self._size = (np.int32(height), np.int32(width))
        self._blocks = blocks(-(-width // _THREAD_COLUMNS), -(-height // _THREAD_ROWS))
        self._whole_width = width % _THREAD_COLUMNS == 0

    @property
    def is_fixed(self) -> bool:
        """Whether :meth:`prepare` depends on nothing but the arrays of matte and grid.

        It then reads neither the frame nor the host, so a recording of it can be replayed.
        """
        return self._background is None or self._background.is_fixed

    def apply(
        self, frames: Sequence[Frame], mattes: Sequence[Matte], grids: Sequence[Reduced]
    ) -> None:
        """See :meth:`bgsoft.composite.base.Compositor.apply`.

        Raises:
            DecodeError: The background video can no longer be read.
        """
        for frame, matte, grid in zip(frames, mattes, grids, strict=True):
            self.prepare(frame, matte, grid)
            self.blend(frame, matte)

    def prepare(self, frame: Frame, matte: Matte, reduced: Reduced) -> None:
        """Make the background of this frame; the first half of :meth:`apply`."""
        if self._background is not None:
            self._background.prepare(frame, matte, reduced)
        if self._foreground is not None:
            self._foreground.estimate(matte, reduced)

    def blend(self, frame: Frame, matte: Matte) -> None:
        """Blend the background that was prepared last; the second half of :meth:`apply`."""
        background = self._background
        if background is None:
            return
        luma, chroma, alpha = frame.luma, frame.chroma, matte.alpha
        self._check(luma, chroma, alpha)
        if self._foreground is not None:
            self._foreground.restore(frame, matte)
        addresses = luma.data.ptr | chroma.data.ptr | alpha.data.ptr
        whole = self._whole_width and addresses % _ALIGNMENT_BYTES == 0
        arguments = (luma, chroma, alpha, *self._size, np.int32(whole))
        self._blend(self._blocks, _BLOCK, (*arguments, *background.blend_arguments))

    def _check(self, luma: Array, chroma: Array, alpha: Array) -> None:
        wanted = self._format
        shapes = (luma.shape, chroma.shape, alpha.shape)
        if shapes != (wanted.luma_shape, wanted.chroma_shape, wanted.luma_shape):
            raise ValueError(
                f"luma, chroma and alpha are {shapes} but frames are {wanted.width}x{wanted.height}"
            )
        dtypes = (luma.dtype, chroma.dtype, alpha.dtype)
        if dtypes != (wanted.dtype, wanted.dtype, "uint8"):
            names = ", ".join(str(dtype) for dtype in dtypes)
            raise ValueError(f"luma, chroma and alpha are {names} but frames are {wanted.layout}")

    def close(self) -> None:
        if self._background is not None:
            self._background.close()


def _make_background(
    effect: EffectConfig, format: FrameFormat, device: CudaDevice
) -> DeviceBackground | None:
    """The effect's background; None where the frame's colour stays as it is."""
    length_px = effect.strength_px(format.height)
    match effect.kind:
        case EffectKind.BLUR:
            return DeviceBlur(format, length_px) if length_px else None
        case EffectKind.BOKEH:
            return DeviceBokeh(format, length_px, effect.highlights) if length_px else None
        case EffectKind.PIXELATE:
            return DevicePixelate(format, length_px) if length_px else None
        case EffectKind.DIM:
            percent = effect.effective_strength
            return DeviceDim(format, percent) if percent else None
        case EffectKind.COLOR:
            return DeviceColor(effect.background, format)
        case EffectKind.IMAGE:
            return DeviceImage(Path(effect.background or ""), format)
        case EffectKind.VIDEO:
            return DeviceClip(Path(effect.background or ""), format, device.copies)
        case EffectKind.ALPHA:
            return DeviceCutout(format)
        case EffectKind.MATTE:
            return None  # the encoder writes the matte itself, and no colour
