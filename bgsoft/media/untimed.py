"""Presentation times of frames from containers that store none.

AVI numbers its packets in decoding order and has no other clock, so the n-th picture shown has the
time of the n-th packet. FFmpeg's decoders show reordered pictures late, by as many packets as they
hold back, while the sound that belongs to them has no such delay; and the times that its demuxer
makes up for H.264 run in the wrong order.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

from av.packet import Packet
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from bgsoft.media.info import UNTIMED


class TimedDecoder:
    """Decodes packets, and gives the frames of a container without times the packets' own."""

    def __init__(self, codec: VideoCodecContext, container: str) -> None:
        self._codec = codec
        self.untimed = container == UNTIMED
        """Whether the times that packets come with are made up."""
        self._times = array("q")
        self._place = -1
        """Of the packet whose time the last frame has."""

    def decode(self, packet: Packet[VideoStream] | None) -> list[VideoFrame]:
        """The frames that a packet drives out; None ends the stream.

        Raises:
            av.FFmpegError: As decoding does.
        """
        if self.untimed and packet is not None and packet.dts is not None:
            self._times.append(packet.dts)
        frames = self._codec.decode(packet)
        if self.untimed:
            for frame in frames:
                self._stamp(frame)
        return frames

    def _stamp(self, frame: VideoFrame) -> None:
        self._place += 1
        if frame.dts is not None:  # that of the packet that drove it out
            driver = bisect_right(self._times, frame.dts) - 1
            self._place = max(self._place, driver - self._codec.reorder_depth)
        if self._place < len(self._times):
            frame.pts = self._times[self._place]
