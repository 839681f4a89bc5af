"""Host frames and their reduced, copied to the device."""

from __future__ import annotations

from bgsoft.diagnose.stages import to_device
from bgsoft.frame import AnalysisFrame, Frame


def frame_on_device(frame: Frame) -> Frame:
    """A copy of the frame in a device slot; its alpha holds what no matte may leave."""
    placed = to_device(frame)
    placed.planes.alpha.fill(77)
    return placed


def grid_on_device(reduced: AnalysisFrame) -> AnalysisFrame:
    """A copy of the frame's analysis frame."""
    import cupy

    return AnalysisFrame(
        factor=reduced.factor,
        luma=cupy.asarray(reduced.luma),
        chroma=cupy.asarray(reduced.chroma),
        detail=None if reduced.detail is None else grid_on_device(reduced.detail),
    )
