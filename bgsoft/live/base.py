"""What a live stream hands to whoever shows, sends, records or shares it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bgsoft.face.base import Face
from bgsoft.frame import Frame, Planes
from bgsoft.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LiveFrame:
    """A finished frame; its buffers are used again once all sinks have returned."""

    frame: Frame
    """Composited, on the host; ``frame.planes.alpha`` is its matte, ``frame.pts`` counts in
    ``frame.time_base`` from the stream's first frame."""
    captured_ns: int
    """When it arrived, :func:`time.monotonic_ns`."""
    source: Planes | None = None
    """The picture as it arrived, where a sink has asked for it."""
    faces: Sequence[Face] = ()
    """Faces in it, where they are looked for; in the frame's pixels."""
    stale: bool = False
    """Whether the source has stopped, and this is its last frame, dimmed."""


class Sink(Protocol):
    """Takes the frames of one stream, one at a time, in order.

    What is slow (a network, a disk, a browser) goes on a thread of the sink's own, which drops what
    it cannot keep up with, and counts it.
    """

    name: str
    """As the user named it, for messages and statistics."""
    wants_source: bool
    """Whether it uses :attr:`LiveFrame.source`."""
    dropped: int
    """Frames it was given and has not passed on."""

    def publish(self, frame: LiveFrame) -> None:
        """Take one frame, within a millisecond or two; its format may differ from the last one's.

        Raises:
            OutputError: It cannot go on; it is closed, and the other sinks go on.
        """
        ...

    def close(self) -> None:
        """Finish what was begun (a recording's index, a stream's end); safe to call twice."""
        ...
