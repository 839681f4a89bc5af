"""The planes of PyAV's pictures as arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from av.video.plane import VideoPlane

Plane = npt.NDArray[Any]
"""(H, W) samples."""


def plane_views(planes: Iterable[VideoPlane], dtype: npt.DTypeLike) -> list[Plane]:
    """Planes without their rows' padding, as (H, W) samples; not copies.

    The views are only good as long as the frame is.
    """
    views: list[Plane] = []
    for plane in planes:
        rows = np.frombuffer(memoryview(plane), dtype).reshape(plane.height, -1)
        # A negative line size means that rows are stored from the bottom up.
        step = -1 if plane.line_size < 0 else 1
        views.append(rows[::step, : plane.width])
    return views
