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
    """Which planes of a frame are encoded: the matte as alpha channel, or alone as grey."""

    COLOR = "color"
    COLOR_ALPHA = "color+alpha"
    MATTE = "matte"


class PacketTaker(Protocol):
    """Owns the video stream of what is written: :class:`bgsoft.media.mux.Muxer`, for one."""

    info: VideoInfo
    """The video that is encoded."""
    messages: Counter[str]
    """Messages of frames that were written, by kind."""

    def add_encoder(self, encoder: str, **settings: Any) -> VideoStream:
        """Add the stream of an encoder of FFmpeg's, which is not open yet."""
        ...

    def timestamp(self, pts: int) -> int:
        """The output timestamp of a frame's, both in ``info.time_base``; the first frame first."""
        ...

    def write_video(self, packets: Iterable[Packet[Any]]) -> None:
        """Write packets, in decoding order; raises OutputError where that fails."""
        ...


class Encoder(Protocol):
    """Encodes frames of one format and passes the packets to its muxer."""

    name: str
    """Encoder as the codec library calls it, e.g. ``libx264``."""
    pixel_format: str
    """FFmpeg's name of the samples that are encoded, e.g. ``yuv422p10le``; empty: no video is."""
    frames: int
    """Frames taken so far."""

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


class Taker(Encoder, Protocol):
    """Takes finished frames in an encoder's place, and encodes none."""

    on_host_only: bool
    """Frames are brought to it; otherwise it takes them where they live."""

    @property
    def kind(self) -> PictureKind:
        """The planes that are read."""
        ...

    @property
    def waits(self) -> int:
        """Grows while it waits for somebody else, for :class:`bgsoft.pipeline.runner.Pipeline`."""
        ...

    def open(self, info: VideoInfo) -> None:
        """Set up for the frames of a video."""
        ...
