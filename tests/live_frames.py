"""Frames as a live stream hands them to its sinks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from bgsoft.face.base import Face
from bgsoft.frame import Frame, FrameFormat, Planes
from bgsoft.live.base import LiveFrame

SMALL = FrameFormat(width=64, height=48)


def live_frame(
    value: int = 0,
    format: FrameFormat = SMALL,
    *,
    faces: Sequence[Face] = (),
    source: Planes | None = None,
) -> LiveFrame:
    """One in which every sample, the index and the matte are ``value``, and pts is twice that."""
    planes = flat_planes(format, value)
    frame = Frame(planes, format, value, 2 * value, Fraction(1, 50))
    now = time.monotonic_ns()
    return LiveFrame(frame=frame, captured_ns=now, source=source, faces=faces)


def flat_planes(format: FrameFormat, value: int) -> Planes:
    """``value`` everywhere, as 8 bits have it."""
    level = value << 8 * (format.bytes_per_sample - 1)
    shapes = (format.luma_shape, format.chroma_shape)
    luma, chroma = (np.full(shape, level, format.dtype) for shape in shapes)
    return Planes(0, luma, chroma, np.full(format.luma_shape, value, np.uint8))


def some_face(number: int, score: float = 0.5, *, landmarks: bool = True) -> Face:
    points = np.arange(468 * 3, dtype=np.float32).reshape(468, 3) + number
    return Face(
        id=number,
        score=score,
        box_xyxy=(1.5, 2.5, 3.5, 4.5 + number),
        landmarks=points if landmarks else np.zeros((0, 3), np.float32),
        detected=True,
        age_frames=0,
    )
