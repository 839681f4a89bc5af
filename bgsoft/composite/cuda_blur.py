"""Gaussian blur of the background on a CUDA device; the twin of :mod:`bgsoft.composite.blur`."""

from __future__ import annotations

import math

import cupy
import cv2
import numpy as np

from bgsoft.analysis.base import grid_factor
from bgsoft.composite.blur import _MIN_CHROMA_SIGMA_CELLS, _sigma_cells, blur_factor
from bgsoft.composite.cuda_background import DeviceCells, device_ints
from bgsoft.composite.cuda_picture import DevicePicture
from bgsoft.frame import Frame, FrameFormat, Matte, Reduced
from bgsoft.kernels.loader import kernel

__all__ = ["DeviceBlur"]

_TILE = 32
_MAX_REACH = 15
"""Cells to each side that ``blur.cu`` has room for."""


class DeviceBlur(DeviceCells):
    """The frame's own background, blurred.

    Args:
        format: Format of every frame.
        sigma_px: Standard deviation, frame pixels, above 0.
    """

    def __init__(self, format: FrameFormat, sigma_px: float) -> None:
        grid = grid_factor(format.width, format.height)
        factor = blur_factor(sigma_px, grid)
        chroma_factor = max(2, factor)
        if factor <= grid and sigma_px >= _MIN_CHROMA_SIGMA_CELLS * 2 * factor:
            chroma_factor = 2 * factor
        super().__init__(format, factor, chroma_factor)
        self._picture = picture = DevicePicture(format, factor, chroma_factor)
        chroma_sigma = _sigma_cells(sigma_px, chroma_factor, native=2)
        sigmas = (_sigma_cells(sigma_px, factor, native=1), chroma_sigma, chroma_sigma)
        plan: list[int] = []
        taps: list[float] = []
        for shape, sigma, source, target in zip(
            picture.shapes, sigmas, picture.offsets, self.offsets, strict=True
        ):
            reach = math.ceil(3 * sigma)
            assert reach <= _MAX_REACH, f"blur_factor() gave {sigma} cells"
            plan += [*shape, reach, len(taps), source, target]
            taps += cv2.getGaussianKernel(2 * reach + 1, sigma, cv2.CV_32F).ravel().tolist()
        rows, columns = (max(sides) for sides in zip(*picture.shapes, strict=True))
        self._blocks = -(-columns // _TILE), -(-rows // _TILE), 3
        weights = cupy.asarray(np.array(taps, np.float32))
        self._arguments = (device_ints(*plan), weights, picture.buffer, self.cells)
        self._blur = kernel("blur", "blur_planes")

    @property
    def is_fixed(self) -> bool:
        return not self._picture.reads_frame

    def prepare(self, frame: Frame, matte: Matte, reduced: Reduced) -> None:
        self._picture.update(frame, matte, reduced)
        self._blur(self._blocks, (_TILE, 8, 1), self._arguments)
        self.hold()

    def close(self) -> None:
        """Nothing to free on the host."""
