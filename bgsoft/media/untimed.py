"""Presentation times of frames from containers that store none.

AVI numbers its packets in decoding order and has no other clock. Where pictures are reordered, the
numbers that FFmpeg's demuxer makes up for H.264 run in the wrong order; the number of the packet
that drove a frame out of the decoder rises steadily, and is what players go by.
"""

from __future__ import annotations

from collections.abc import Iterator

from av.video.frame import VideoFrame

__all__ = ["is_untimed", "with_decoding_times"]


def is_untimed(container: str) -> bool:
    """Whether a container stores no presentation times.

    Args:
        container: FFmpeg's demuxer name.
    """
    return container == "avi"


def with_decoding_times(frames: Iterator[VideoFrame]) -> Iterator[VideoFrame]:
    """Set each frame's pts to its dts; the last ones, which have none, go on in the same step.

    Args:
        frames: Decoded frames in presentation order.
    """
    last: int | None = None
    step = 0  # a frame's duration is one tick, whatever the rate
    for frame in frames:
        if frame.dts is not None:
            frame.pts = frame.dts
            if last is not None:
                step = frame.dts - last
        elif last is not None:
            frame.pts = last + max(1, step or frame.duration)
        last = frame.pts
        yield frame
