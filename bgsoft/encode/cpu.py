"""Encoding on the CPU, through FFmpeg's encoders."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from av.codec.context import ThreadType
from av.packet import Packet
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame

from bgsoft.encode.base import PacketTaker, PictureKind
from bgsoft.encode.codecs import EncoderChoice, choose_encoder
from bgsoft.encode.hdr import hdr_notices
from bgsoft.encode.messages import MessageWriter
from bgsoft.encode.pictures import CopiedPictures, coded_color, shared_picture
from bgsoft.errors import EncodeError, UnsupportedFormatError
from bgsoft.frame import ColorInfo, Frame, FrameFormat, PixelLayout
from bgsoft.media.containers import ANIMATED
from bgsoft.media.info import VideoInfo
from bgsoft.media.mux import Muxer
from bgsoft.media.pyav import pyav_errors_as
from bgsoft.media.stillfiles import StillFiles
from bgsoft.media.writer import Writer
from bgsoft.resources import Resources
from bgsoft.settings.config import Codec, EncodeConfig

if TYPE_CHECKING:
    from bgsoft.encode.stills import StillEncoder

# These two run their slices on FFmpeg's own threads. With its frame threads they would reference
# pictures after encode() has returned. All others thread inside and copy each picture at once.
_SLICE_THREADED = frozenset({"prores_ks", "ffv1"})
_LEFT = 1  # AVCHROMA_LOC_LEFT
_X265_REORDER = 2
"""Frames that x265 needs to know how far decoding precedes display. In videos of no more frames it
reads that from uninitialised memory; they have nothing to reorder either."""

_MAX_DIMENSIONS = {"libx264": 16384, "libsvtav1": 16384, "libvpx-vp9": 65535}
"""Largest width and height in pixels. SVT-AV1 misreads a side beyond 16 bits, and does not
return."""
_SVT_BLOCK, _SVT_MIN = 64, 25
"""SVT-AV1 4.1 hangs on pictures longer than a superblock and thinner than the second number."""


class CpuEncoder:
    """Encoder of frames on the host; see :class:`bgsoft.encode.base.Encoder`.

    Args:
        muxer: Receives the packets; its video stream is added here.
        choice: Encoder and settings.

    Raises:
        UnsupportedFormatError: The container cannot hold the codec, or the encoder the picture.
        EncodeError: The encoder rejects its settings; FFmpeg's reason is in the message.
    """

    def __init__(self, muxer: PacketTaker, choice: EncoderChoice) -> None:
        info, format = muxer.info, muxer.info.format
        self.name, self.pixel_format = choice.encoder, choice.coded_format
        self.frames = 0
        size = f"{format.width}x{format.height}"
        max_px = _MAX_DIMENSIONS.get(choice.encoder)
        if max_px is not None and max(format.width, format.height) > max_px:
            text = f"cannot encode {size}: {choice.encoder} is limited to {max_px} pixels a side"
            raise UnsupportedFormatError(f"{text}; write FFV1 in .mkv", stage="encode")
        sides = sorted((format.width, format.height))
        if choice.encoder == "libsvtav1" and sides[0] < _SVT_MIN and sides[1] > _SVT_BLOCK:
            text = f"cannot encode {size}: it is too thin for {choice.encoder}, which needs"
            text += f" {_SVT_MIN} pixels a side; use --codec h264, hevc, vp9 or ffv1"
            raise UnsupportedFormatError(text, stage="encode")
        self._muxer = muxer
        self._durations: dict[int, int] = {}
        """Durations of the frames inside the encoder, by output timestamp."""
        self._newest: int | None = None
        """Output timestamp of the last frame."""
        self._packets: deque[Packet[Any]] = deque()
        """Packets from the newest frame on: its duration is only known once the next one comes."""
        self._waits = not choice.at_once
        self._frame_ticks = info.nominal_ticks
        is_matte = choice.kind is PictureKind.MATTE
        codec = Codec.RAW if is_matte else choice.codec
        self._messages = MessageWriter(codec, muxer.messages)
        # A matte is a mask, not light: no transfer or matrix applies to its values.
        self._color = format.color if choice.kind is not PictureKind.MATTE else ColorInfo()
        # FFmpeg's AVColorRange: 0 unspecified, 1 limited, 2 full.
        coded = coded_color(choice, format.color)
        self._range = 1 + coded.full_range if coded.range_specified else 0
        self._picture = _picture_maker(choice, format)
        self._stream = muxer.add_encoder(
            choice.encoder,
            width=format.width,
            height=format.height,
            pix_fmt=choice.pixel_format,
            options=choice.options,
        )
        context = self._stream.codec_context
        context.sample_aspect_ratio = info.sample_aspect_ratio
        self._describe(context)
        location = self._color.chroma_location
        if choice.codec is Codec.RAW and not location:
            location = (
                _LEFT  # the meaning of "unspecified" in coded video; in YUV4MPEG it is the middle
            )
        context.options["chroma_sample_location"] = str(location)
        # For x264, FFmpeg's slice threading would mean several slices a frame: larger files.
        slices = choice.encoder in _SLICE_THREADED or choice.at_once
        context.thread_type = ThreadType.SLICE if slices else ThreadType.FRAME
        failed = f"cannot open {choice.encoder} for {size} {choice.pixel_format}"
        with pyav_errors_as(
            EncodeError, failed, stage="encode", reason=partial(_opening_reason, choice, info)
        ):
            context.open()

    def encode(self, frame: Frame) -> None:
        pts = self._muxer.timestamp(frame.pts)
        picture = self._picture(frame)
        self._describe(picture)  # ProRes and FFV1 take it from here, not from the stream
        picture.pts = pts
        # A live frame has the nominal duration, which the next one may end.
        if self._newest in self._durations:
            self._durations[self._newest] = min(self._durations[self._newest], pts - self._newest)
        self._newest = pts
        self._messages.enter(pts, frame.messages)
        self._durations[pts] = picture.duration = frame.duration or self._frame_ticks
        try:
            packets = self._stream.encode(picture)
        except Exception:
            failed = f"cannot encode frame {frame.index} with {self.name}"
            with pyav_errors_as(EncodeError, failed, stage="encode", pts=frame.pts):
                raise
        self.frames += 1
        self._packets.extend(packets)
        self._write()

    def _describe(self, target: VideoCodecContext | VideoFrame) -> None:
        """Set the colour description."""
        target.color_primaries = self._color.primaries
        target.color_trc = self._color.transfer
        target.colorspace = self._color.matrix
        target.color_range = self._range

    def finish(self) -> None:
        with pyav_errors_as(EncodeError, f"cannot finish {self.name}", stage="encode"):
            packets = self._stream.encode(None)
        if self.frames <= _X265_REORDER and self.name == "libx265":
            for packet in packets:
                packet.dts = packet.pts
        self._packets.extend(packets)
        self._newest = None
        self._write()

    def _write(self) -> None:
        """Write the packets of all frames but the newest."""
        packets = []
        while self._packets and (not self._waits or self._packets[0].pts != self._newest):
            packet = self._packets.popleft()
            if packet.pts is not None:
                # Not all encoders pass durations on, and the last frame's is stored nowhere else.
                packet.duration = self._durations.pop(packet.pts, self._frame_ticks)
            packets.append(self._messages.with_messages(packet))
        self._muxer.write_video(packets)

    def close(self) -> None:
        """Do nothing: the muxer owns the stream, and no slot is referenced."""


def _opening_reason(choice: EncoderChoice, info: VideoInfo, exc: Exception) -> object:
    """Return why an encoder does not open: FFmpeg logs the reason, and raises a general error."""
    from bgsoft.encode.options import open_briefly

    problem, _ = open_briefly(choice, info)
    return problem or getattr(exc, "strerror", None) or exc


def _picture_maker(choice: EncoderChoice, format: FrameFormat) -> Callable[[Frame], VideoFrame]:
    """Return the cheapest conversion from a frame layout to an encoder's pixel format.

    A picture is valid until the next one is made, and while the frame's slot is.
    """
    if choice.codec in ANIMATED:
        from bgsoft.encode.animated import AnimatedPictures

        return AnimatedPictures(choice, format).picture
    own = choice.pixel_format == "nv12" and format.layout is PixelLayout.NV12
    if own and choice.kind is PictureKind.COLOR:
        return shared_picture
    return CopiedPictures(choice, format).picture


def open_encoder(
    writer: Writer, config: EncodeConfig, info: VideoInfo, kind: PictureKind, resources: Resources
) -> CpuEncoder | StillEncoder:
    """Open the encoder that a render's settings ask for."""
    if isinstance(writer, StillFiles):
        from bgsoft.encode.stills import StillEncoder, choose_still

        aspect = info.sample_aspect_ratio
        still = choose_still(config, writer.container, info.format, kind, aspect)
        lost = hdr_notices(writer.container.name, info, kind)
        resources.notice("encode", *still.notices, *lost)
        return StillEncoder(writer, still, info.format)
    assert isinstance(writer, Muxer)
    choice = choose_encoder(config, writer.container, info, kind, resources.threads)
    if config.encoder_option:
        from bgsoft.encode.options import with_options

        choice = with_options(choice, config, info)
    resources.notice("encode", *choice.notices)
    return CpuEncoder(writer, choice)
