"""Host frames and their grids, copied to the device."""

from __future__ import annotations

from bgsoft.frame import Frame, Reduced


def frame_on_device(frame: Frame) -> Frame:
    """A copy of the frame in a device slot; its alpha holds what no matte may leave."""
    from bgsoft.cuda.device import device_planes

    planes = device_planes(frame.format, 0)
    planes.luma.set(frame.luma)
    planes.chroma.set(frame.chroma)
    planes.alpha.fill(77)
    return Frame(
        planes=planes,
        format=frame.format,
        index=frame.index,
        pts=frame.pts,
        time_base=frame.time_base,
    )


def grid_on_device(reduced: Reduced) -> Reduced:
    """A copy of the frame's analysis grid."""
    import cupy

    return Reduced(
        factor=reduced.factor,
        luma=cupy.asarray(reduced.luma),
        chroma=cupy.asarray(reduced.chroma),
        detail=None if reduced.detail is None else grid_on_device(reduced.detail),
    )
