"""Shared code of the tests of the video engines and crossings."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from bgsoft.frame import Frame, FrameFormat, Planes
from tests.synthetic import Plane


def to_host(array: Any) -> Plane:
    """A copy of a device array; waits for everything launched before."""
    import cupy

    cupy.cuda.Device().synchronize()
    return np.asarray(array.get())


def random_planes(planes: Planes, format: FrameFormat, seed: int) -> None:
    """Fill host planes with any samples that the format can hold."""
    rng = np.random.default_rng(seed)
    for plane in (planes.luma, planes.chroma):
        values = rng.integers(0, 1 << format.bit_depth, plane.shape, format.dtype)
        plane[:] = values << format.shift
    planes.alpha[:] = rng.integers(0, 256, planes.alpha.shape, np.uint8)


def device_frame(planes: Planes, format: FrameFormat, index: int, ready: Any = None) -> Frame:
    return Frame(
        planes=planes,
        format=format,
        index=index,
        pts=3600 * index,
        time_base=Fraction(1, 90_000),
        duration=3600,
        ready=ready,
    )
