"""Frames of a live stream, and the protocol of their sinks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bgsoft.face.base import Face
from bgsoft.frame import Frame, Planes
from bgsoft.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LiveFrame:
    """A finished frame; its buffers are reused once all sinks have returned."""

    frame: Frame
    """Composited, on the host. ``frame.planes.alpha`` is its matte; ``frame.pts`` counts in
    ``frame.time_base`` from the stream's first frame."""
    captured_ns: int
    """Time of its arrival, :func:`time.monotonic_ns`."""
    source: Planes | None = None
    """The picture as it arrived, if a sink uses it."""
    faces: Sequence[Face] = ()
    """Detected faces, in the frame's pixels; empty without face detection."""
    stale: bool = False
    """Whether the source has stopped; this is its last frame, dimmed."""


class Sink(Protocol):
    """Receives the frames of one stream, one at a time, in order.

    Slow work (a network, a disk, a browser) runs on a thread of the sink's own, which drops and
    counts frames that come too fast.
    """

    name: str
    """Name for messages and statistics, as the user gave it."""
    wants_source: bool
    """Whether it uses :attr:`LiveFrame.source`."""
    dropped: int
    """Number of frames that were received and not passed on."""

    def publish(self, frame: LiveFrame) -> None:
        """Receive one frame, within a millisecond or two; its format may change.

        Raises:
            OutputError: It has failed, and is closed; the other sinks continue.
        """
        ...

    def close(self) -> None:
        """Finish (a recording's index, a stream's end); safe to call twice."""
        ...
