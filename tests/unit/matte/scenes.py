"""Drawn people, and the frames and reduced pictures that belong to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bgsoft.analysis.reduce import Reducer
from bgsoft.frame import AnalysisFrame, Frame, FrameFormat, PixelLayout
from tests.pictures import make_frame

Plane = npt.NDArray[Any]


def discs(shape: tuple[int, int], *circles: tuple[float, float, float], ramp: float = 6.0) -> Plane:
    """A mask of soft discs.

    Args:
        shape: (h, w).
        circles: Centre x, centre y and radius, in fractions of the width, height and height.
        ramp: Width of the edge in samples.

    Returns:
        (h, w) float32 in [0, 1].
    """
    height, width = shape
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    mask = np.zeros(shape, np.float32)
    for cx, cy, radius in circles:
        dx = (x + 0.5) / width - cx
        dy = (y + 0.5) / height - cy
        distance = np.hypot(dx * width, dy * height) - radius * height
        mask = np.maximum(mask, np.clip(0.5 - distance / ramp, 0.0, 1.0))
    return mask


def blank_frame(
    width: int, height: int, luma: Plane | None = None, layout: PixelLayout = PixelLayout.NV12
) -> Frame:
    """A grey frame, or one with the given luma (8-bit code values)."""
    fmt = FrameFormat(width=width, height=height, layout=layout)
    scale = 1 if layout is PixelLayout.NV12 else 256
    values = np.full((height, width), 120) if luma is None else luma
    chroma = np.full(fmt.chroma_shape, fmt.chroma_neutral, fmt.dtype)
    frame = make_frame(fmt, (values.astype(np.uint32) * scale).astype(fmt.dtype), chroma)
    frame.planes.alpha[:] = 77  # whatever was in the slot before must not matter
    return frame


def reduce(frame: Frame) -> AnalysisFrame:
    return Reducer(frame.format).reduce([frame])[0]
