"""Host frames and their grids, copied to the device."""

from __future__ import annotations

from bgsoft.diagnose.stages import to_device
from bgsoft.frame import Frame, Proxy


def frame_on_device(frame: Frame) -> Frame:
    """A copy of the frame in a device slot; its alpha holds what no matte may leave."""
    placed = to_device(frame)
    placed.planes.alpha.fill(77)
    return placed


def grid_on_device(reduced: Proxy) -> Proxy:
    """A copy of the frame's analysis grid."""
    import cupy

    return Proxy(
        factor=reduced.factor,
        luma=cupy.asarray(reduced.luma),
        chroma=cupy.asarray(reduced.chroma),
        detail=None if reduced.detail is None else grid_on_device(reduced.detail),
    )
