"""The soft matte on the host: the reference for every other implementation.

Order: temporal smoothing of the raw mask, soft threshold, enlargement to the analysis grid, islands
and holes, fit of the edge to the picture, contour smoothing, expansion, feather, enlargement to
the frame. The mask is smoothed over time before it is thresholded, because there a change still
has its true size; after the threshold's steep step noise would look like movement. Islands go
before the edge is fitted, so that the fit has less to work on and no removed noise in its windows.
"""

from __future__ import annotations

import cv2
import numpy as np

from bgsoft.analysis.base import grid_factor, grid_shape
from bgsoft.config import MatteConfig, Refine
from bgsoft.frame import Array, Frame, FrameFormat, Matte, Reduced
from bgsoft.matte.contour import ContourSmoother, EdgeShift, Feather
from bgsoft.matte.geometry import FrameUpsampler, MaskResampler
from bgsoft.matte.islands import IslandFilter
from bgsoft.matte.refine import GuidedRefiner
from bgsoft.matte.temporal import TemporalFilter
from bgsoft.matte.threshold import SoftThreshold

__all__ = ["CpuMatter"]

_DEEP_TO_BYTE = 1.0 / 256.0
"""10 bits in the high bits of 16: the top byte is the 8-bit value."""
_STILL_VARIANCE = 6.5
"""Mean squared difference of 8-bit luma (40 dB) below which two pictures differ in noise only."""


class CpuMatter:
    """Style soft, with NumPy and OpenCV. All buffers are made before the second frame.

    Where the mask is held while the picture moves on, the edge is fitted anew to the new picture
    (if ``refine`` is guided): the steps before the fit are skipped. Where the picture stands still
    too, the last matte is given out unchanged.
    """

    def __init__(self, config: MatteConfig, format: FrameFormat) -> None:
        """Set up every step for one frame format.

        Args:
            config: What to do; steps that are off cost nothing.
            format: Geometry of all frames.
        """
        shape = grid_shape(format.width, format.height)
        cells_per_pct = format.height / grid_factor(format.width, format.height) / 100.0
        self._temporal = TemporalFilter(config.temporal)
        self._threshold = SoftThreshold(config.threshold, config.softness)
        self._to_grid = MaskResampler(format)
        self._islands = IslandFilter(shape, config.min_area) if config.min_area > 0 else None
        self._refiner = GuidedRefiner(shape) if config.refine is Refine.GUIDED else None
        self._smoother = ContourSmoother(shape, config.smooth) if config.smooth > 0 else None
        shift = config.expand_pct * cells_per_pct
        self._shift = EdgeShift(shape, shift) if shift else None
        rim = config.feather_pct * cells_per_pct
        self._feather = Feather(shape, rim) if rim > 0 else None
        self._to_frame = FrameUpsampler(format)

        self._is_deep = format.bit_depth > 8
        self._luma = np.empty(shape, np.uint8)
        self._chroma: Array = np.empty((0, 0, 2), np.uint8)
        self._opacity: Array = np.empty((0, 0), np.uint8)
        self._coarse = np.empty(shape, np.uint8)
        self._fitted_luma = np.empty(shape, np.uint8)
        self._reduced = np.empty(shape, np.uint8)
        self._has_mask = False

    def reset(self) -> None:
        """Forget earlier frames (scene cut)."""
        self._temporal.reset()
        if self._islands is not None:
            self._islands.reset()
        self._has_mask = False

    def refine(self, mask: Array | None, frame: Frame, reduced: Reduced) -> Matte:
        """Make the matte of one frame; see :meth:`bgsoft.matte.base.Matter.refine`."""
        luma = self._luma8(reduced)
        if mask is not None:
            self._make_coarse(mask, luma)
            self._make_fine(luma, reduced)
            self._has_mask = True
        elif not self._has_mask:
            raise ValueError("no mask to hold: the first frame must be segmented")
        elif self._refiner is not None and self._has_moved(luma):
            self._make_fine(luma, reduced)
        alpha = frame.planes.alpha
        self._to_frame.apply(self._reduced, alpha)
        return Matte(alpha=alpha, reduced=self._reduced, held=mask is None)

    def _make_coarse(self, mask: Array, luma: Array) -> None:
        """From the raw mask to clean opacity on the grid."""
        if self._opacity.shape != mask.shape:
            self._opacity = np.empty(mask.shape, np.uint8)
        self._threshold.apply(self._temporal.apply(mask, luma), self._opacity)
        self._to_grid.apply(self._opacity, self._coarse)
        if self._islands is not None:
            self._islands.apply(self._coarse)

    def _make_fine(self, luma: Array, reduced: Reduced) -> None:
        """From clean opacity to the matte on the grid."""
        alpha = self._reduced
        np.copyto(alpha, self._coarse)
        if self._refiner is not None:
            self._refiner.apply(alpha, luma, self._chroma8(reduced))
            np.copyto(self._fitted_luma, luma)
        if self._smoother is not None:
            self._smoother.apply(alpha)
        if self._shift is not None:
            self._shift.apply(alpha)
        if self._feather is not None:
            self._feather.apply(alpha)

    def _has_moved(self, luma: Array) -> bool:
        """Whether the picture differs by more than noise from the one last fitted."""
        squares = cv2.norm(luma, self._fitted_luma, cv2.NORM_L2SQR)
        return bool(squares > _STILL_VARIANCE * luma.size)

    def _luma8(self, reduced: Reduced) -> Array:
        """The grid's luma in 8 bits: (gh, gw) uint8."""
        if not self._is_deep:
            return reduced.luma
        cv2.convertScaleAbs(reduced.luma, dst=self._luma, alpha=_DEEP_TO_BYTE)
        return self._luma

    def _chroma8(self, reduced: Reduced) -> Array:
        """The grid's chroma in 8 bits: (ch, cw, 2) uint8."""
        if not self._is_deep:
            return reduced.chroma
        if self._chroma.shape != reduced.chroma.shape:
            self._chroma = np.empty(reduced.chroma.shape, np.uint8)
        cv2.convertScaleAbs(reduced.chroma, dst=self._chroma, alpha=_DEEP_TO_BYTE)
        return self._chroma
