"""Packets of the output file, from coded pictures without timestamps."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Sequence

import av
from av.bitstream import BitStreamFilterContext
from av.packet import Packet
from av.stream import Stream

from bgsoft.encode.messages import MessageWriter
from bgsoft.errors import EncodeError, errors_as
from bgsoft.media.mux import Muxer
from bgsoft.media.pyav import PYAV_ERRORS, pyav_errors_as
from bgsoft.settings.config import Codec

_RAW_FORMATS = {"h264": "h264", "hevc": "hevc", "av1": "obu"}
"""FFmpeg's demuxers of streams without a container, by codec."""


class CodedPackets:
    """Writes an encoder's pictures, which come in decoding order, through a muxer.

    The first picture must be a key frame with its parameter sets (H.26x: Annex B): the file's
    description of the stream, with its colour, is read from it. Decoding times are the
    presentation times in rising order, delayed by the number of frames that the encoder reorders.

    Args:
        muxer: Receives the packets; its video stream is added here.
        codec: ``h264``, ``hevc`` or ``av1``.
        delay: Number of frames that the encoder reorders: its B frames in a row.
        tag_filter: FFmpeg bitstream filter for key frames; ``null``: none.

    Raises:
        UnsupportedFormatError: The container cannot hold the codec.
    """

    def __init__(self, muxer: Muxer, codec: str, *, delay: int, tag_filter: str) -> None:
        self._muxer = muxer
        self._codec = codec
        self._delay = delay
        self._frame_ticks = muxer.info.nominal_ticks
        self._filter = BitStreamFilterContext(tag_filter, codec)
        self._messages = MessageWriter(Codec(codec), muxer.messages)
        self._stream: Stream = muxer.add_packets(codec)
        self._described = False
        self._times: dict[int, tuple[int, int]] = {}
        """(pts, duration) of the frames inside the encoder, by number."""
        self._entered = 0
        self._decoding: deque[int] = deque()
        """Decoding times of the next packets."""

    def enter(self, pts: int, duration: int, messages: Sequence[tuple[str, bytes]] = ()) -> int:
        """Number a frame that goes into the encoder, in presentation order from 0."""
        number = self._entered
        self._entered += 1
        if number == 0:
            early = range(self._delay, 0, -1)
            self._decoding.extend(pts - step * self._frame_ticks for step in early)
        self._decoding.append(pts)
        self._messages.enter(pts, messages)
        if number - 1 in self._times:  # as in CpuEncoder
            before, lasts = self._times[number - 1]
            self._times[number - 1] = before, min(lasts, pts - before)
        self._times[number] = (pts, duration or self._frame_ticks)
        return number

    def write(self, data: bytes, number: int, *, key_frame: bool) -> None:
        """Write one coded picture.

        Raises:
            EncodeError: The picture belongs to no frame, or the encoder reorders more frames than
                it said.
            OutputError: It could not be written.
        """
        if number not in self._times:
            raise EncodeError(
                f"cannot write picture {number}: no frame has that number", stage="encode"
            )
        pts, duration = self._times.pop(number)
        dts = self._decoding.popleft()
        if dts > pts:
            raise EncodeError(
                f"cannot write the video: the encoder reorders more than {self._delay} frames",
                stage="encode",
                pts=pts,
            )
        data = self._messages.written(self._tagged(data) if key_frame else data, pts)
        packet: Packet[Stream] = Packet(data)
        if not self._described:
            self._describe(bytes(packet))
        packet.pts, packet.dts, packet.duration = pts, dts, duration
        packet.time_base = self._muxer.info.time_base
        packet.is_keyframe = key_frame
        packet.stream = self._stream
        self._muxer.write_video([packet])

    def finish(self) -> None:
        """Raise EncodeError unless all frames have come out."""
        if self._times:
            lost = len(self._times)
            pts, _ = min(self._times.values())
            raise EncodeError(
                f"cannot finish the video: {lost} frames are missing", stage="encode", pts=pts
            )

    def _tagged(self, data: bytes) -> bytes:
        """Write the colour description into the parameter sets of a key frame."""
        problem = f"cannot read the encoder's {self._codec} headers"
        with pyav_errors_as(EncodeError, problem, stage="encode", reason=str):
            filtered = self._filter.filter(Packet(data))
        return b"".join(bytes(packet) for packet in filtered)

    def _describe(self, data: bytes) -> None:
        """Copy the stream's parameters, which FFmpeg reads from its first picture."""
        self._described = True
        problem = f"cannot read the encoder's first {self._codec} picture"
        theirs = (*PYAV_ERRORS, IndexError)
        with (
            errors_as(theirs, EncodeError, problem, stage="encode", reason=str),
            av.open(io.BytesIO(data), mode="r", format=_RAW_FORMATS[self._codec]) as raw,
        ):
            self._muxer.describe(raw.streams.video[0])
