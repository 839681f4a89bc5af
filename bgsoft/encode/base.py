"""The protocol of encoders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from bgsoft.frame import Frame

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.stream import VideoStream

    from bgsoft.media.info import VideoInfo


class PictureKind(StrEnum):
    """Planes to encode: the colour, the matte as its alpha channel, or the matte alone as grey."""

    COLOR = "color"
    COLOR_ALPHA = "color+alpha"
    MATTE = "matte"


class PacketTaker(Protocol):
    """Owner of an output's video stream, such as :class:`bgsoft.media.mux.Muxer`."""

    info: VideoInfo
    """The video to encode."""
    messages: Counter[str]
    """Number of messages written with frames, by kind."""

    def add_encoder(self, encoder: str, **settings: Any) -> VideoStream:
        """Add the stream of an FFmpeg encoder, which is not open yet."""
        ...

    def timestamp(self, pts: int) -> int:
        """Convert a frame's timestamp to the output's, both in ``info.time_base``.

        The first call must be for the first frame.
        """
        ...

    def write_video(self, packets: Iterable[Packet[Any]]) -> None:
        """Write packets, in decoding order; raises OutputError if that fails."""
        ...


class Encoder(Protocol):
    """Encodes frames of one format and passes the packets to its muxer."""

    name: str
    """Name of the encoder in the codec library, e.g. ``libx264``."""
    pixel_format: str
    """FFmpeg's name of the coded samples, e.g. ``yuv422p10le``; empty: no video is encoded."""
    frames: int
    """Number of frames taken so far."""

    def encode(self, frame: Frame) -> None:
        """Encode one frame; its slot may be reused as soon as this returns.

        Raises:
            EncodeError: The encoder failed; carries the frame's pts.
            OutputError: The packet could not be written.
        """
        ...

    def finish(self) -> None:
        """Drain the encoder; no frame may follow."""
        ...

    def close(self) -> None:
        """Free the encoder without draining; safe to call twice."""
        ...


class FrameTaker(Encoder, Protocol):
    """Receiver of finished frames in an encoder's place."""

    on_host_only: bool
    """Whether frames are copied to the host for it."""

    @property
    def kind(self) -> PictureKind:
        """The planes that it reads."""
        ...

    @property
    def waits(self) -> int:
        """A number that grows while it waits for another party; for the pipeline's stall watch."""
        ...

    def open(self, info: VideoInfo) -> None:
        """Prepare for the frames of a video."""
        ...
