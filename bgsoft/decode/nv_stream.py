"""NVDEC by packets: which streams it can decode; packets in, pictures on device surfaces out."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import av
from av.bitstream import BitStreamFilterContext
from av.packet import Packet

from bgsoft.cuda.video_codec import codec_errors, vendor_text, video_codec
from bgsoft.decode.base import DecodeSettings
from bgsoft.decode.stream import StreamDecoder
from bgsoft.errors import BackendUnavailableError, DecodeError
from bgsoft.media.info import Crop, VideoInfo
from bgsoft.media.source import RAW_STREAMS
from bgsoft.records import NamedTuple, dataclass

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice


_MAX_FAULTS = 8
"""Packets in a row that make the decoder fail, after which the stream is given up."""
_MARK_OF_ZERO = 1 << 40
"""Mark of pts 0, as long as the clock does not step back."""
_STEP_MARKS = 1 << 24
"""Marks left free where it does: key frames are followed by pictures that are shown before them."""
_MAX_REMEMBERED = 512
"""Packets whose times are kept while no picture has come of them; damaged ones never give one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NvCodec:
    """How a codec is fed to NVDEC."""

    name: str
    """In PyNvVideoCodec's ``cudaVideoCodec``."""
    label: str
    filters: str
    """FFmpeg bitstream filters that make what the parser takes: Annex B with parameter sets before
    each key frame, so that decoding can start at any of them."""


_CODECS = {
    "h264": NvCodec(name="H264", label="H.264", filters="h264_mp4toannexb,dump_extra=freq=k"),
    "hevc": NvCodec(name="HEVC", label="HEVC", filters="hevc_mp4toannexb,dump_extra=freq=k"),
    "vp9": NvCodec(name="VP9", label="VP9", filters="null"),
    "av1": NvCodec(name="AV1", label="AV1", filters="null"),
}
_DEPTHS = {"yuv420p": 8, "yuvj420p": 8, "yuv420p10le": 10}
"""Pixel formats whose samples arrive as the pipeline has them."""


def nv_codec(info: VideoInfo) -> NvCodec:
    """How the stream's codec is fed.

    Raises:
        BackendUnavailableError: The stream is left to the CPU, whatever the GPU.
    """
    codec = _CODECS.get(info.codec)
    if codec is None:
        reason = f"{info.codec} is decoded on the CPU"
    elif info.pixel_format not in _DEPTHS:
        reason = f"{info.pixel_format} is converted on the CPU"
    elif info.interlaced:
        reason = "interlaced pictures are deinterlaced on the CPU"
    elif info.crop != Crop():
        reason = "pictures are cropped on the CPU"
    elif info.coded_width % 2:
        # PyNvVideoCodec copies as many chroma bytes per row as luma: the last Cr would be missing.
        reason = f"an odd width ({info.coded_width}) is decoded on the CPU"
    elif info.container in RAW_STREAMS or info.is_untimed:
        reason = f"timestamps that {info.container} lacks are made by the CPU decoder"
    else:
        return codec
    raise BackendUnavailableError(f"NVDEC: {reason}", stage="decode", path=info.path)


def caps_reason(caps: Mapping[str, int] | None, info: VideoInfo) -> str | None:
    """Why a GPU cannot decode a stream; None where it can, or will have to show that it can."""
    if caps is None:
        return None
    label = _CODECS[info.codec].label
    depth = _DEPTHS[info.pixel_format]
    if not caps.get("supported", 1):
        return f"this GPU does not decode {label} at {depth} bits"
    width, height = info.coded_width, info.coded_height
    size = f"{width}x{height}"
    most, least = (f"{caps[f'width_{end}']}x{caps[f'height_{end}']}" for end in ("max", "min"))
    if width > caps["width_max"] or height > caps["height_max"]:
        return f"{size} is more than {most}, its most for {label}"
    if width < caps["width_min"] or height < caps["height_min"]:
        return f"{size} is less than {least}, its least for {label}"
    if -(-width // 16) * -(-height // 16) > caps["mb_num_max"]:
        return f"{size} has more than {caps['mb_num_max']} macroblocks, its most for {label}"
    return None


@dataclass(slots=True)
class NvPicture:
    """A decoded picture on the device.

    It is overwritten by the next packet, in the order of the reader's stream: work on it has to be
    launched on that stream before the reader is asked for more.
    """

    pointer: int
    """Device address of luma; rows are ``pitch`` bytes apart, interleaved chroma follows."""
    pitch: int
    """Bytes per row, of both planes."""
    width: int
    height: int
    pts: int | None
    dts: int | None
    duration: int
    key_frame: bool
    opaque: Any = None
    is_corrupt: bool = False
    """Always False: PyNvVideoCodec keeps NVDEC's decode status to itself."""


class _Times(NamedTuple):
    pts: int | None = None
    dts: int | None = None
    duration: int = 0
    key_frame: bool = False
    opaque: Any = None
    discard: bool = False


class PacketTimes:
    """Marks packets on their way in, and gives each picture the times of its packet.

    NVDEC's parser passes one mark through, which it takes for the presentation timestamp: it hands
    the marks out in rising order, one a picture shown. So the mark is the pts, moved up until none
    is negative; where there is none, or one twice, its packets' order counts. A key frame that
    steps back (a second edit, a joined recording) moves the marks further up.
    """

    def __init__(self) -> None:
        self._by_mark: dict[int, deque[_Times]] = {}
        self._remembered = 0
        self._last = self._highest = self._zero = _MARK_OF_ZERO

    def enter(self, packet: Packet[Any]) -> int:
        """Remember a packet's times; returns its mark."""
        if packet.pts is not None:
            if packet.is_keyframe and packet.pts + self._zero < self._highest:
                self._zero = self._highest + _STEP_MARKS - packet.pts
            self._last = packet.pts + self._zero
        mark = self._last
        self._highest = max(self._highest, mark)
        duration, key_frame = packet.duration or 0, packet.is_keyframe
        times = _Times(
            packet.pts, packet.dts, duration, key_frame, packet.opaque, packet.is_discard
        )
        self._by_mark.setdefault(mark, deque()).append(times)
        self._remembered += 1
        if self._remembered > _MAX_REMEMBERED:
            self._take(next(iter(self._by_mark)))
        return mark

    def leave(self, mark: int) -> _Times | None:
        """The times for a picture; None where it is not to be shown (cut off by an edit list)."""
        times = self._take(mark)
        if times is None:  # a second picture of the same packet has no time of its own
            return _Times()
        return None if times.discard else times

    def _take(self, mark: int) -> _Times | None:
        waiting = self._by_mark.get(mark)
        if waiting is None:
            return None
        times = waiting.popleft()
        self._remembered -= 1
        if not waiting:
            del self._by_mark[mark]
        return times

    def forget(self) -> None:
        """Forget the packets of a part that was left."""
        self._by_mark.clear()
        self._remembered = 0


class NvStreamDecoder(StreamDecoder[NvPicture]):
    """Decodes one stream of a file on the device; opening and seeking are the CPU decoder's.

    A picture has to be used before the next one is asked for: see :class:`NvPicture`.

    Raises:
        Exception: What PyNvVideoCodec raises; see :func:`bgsoft.cuda.video_codec.codec_errors`.
    """

    def __init__(
        self,
        info: VideoInfo,
        settings: DecodeSettings | None,
        codec: NvCodec,
        device: CudaDevice,
        stream: Any,
    ) -> None:
        super().__init__(info, settings)
        self._module = module = video_codec()
        self._filters = codec.filters
        self.stream = stream  # the decoder has only its address
        self._decoder = module.CreateDecoder(
            gpuid=device.number,
            codec=getattr(module.cudaVideoCodec, codec.name),
            # Given a stream, it wants the context that the stream belongs to as well.
            cudacontext=device.context,
            cudastream=stream.ptr,
            usedevicememory=True,
        )
        self._errors = codec_errors()
        self._packet = module.PacketData()
        self._times = PacketTimes()
        self._fed = False
        self._faults = 0

    def _decode(self, position: int | None, *, threaded: bool) -> Iterator[NvPicture]:
        pictures = self._decode_stored(position)
        start = self.info.start_pts
        if position is not None or start is None:
            return pictures
        # NVDEC shows leading pictures whose references were cut away; FFmpeg does not.
        return itertools.dropwhile(lambda p: p.pts is not None and p.pts < start, pictures)

    def _decode_stored(self, position: int | None) -> Iterator[NvPicture]:
        """Decode all that NVDEC shows.

        Raises:
            DecodeError: The decoder fails packet after packet; carries the packet's pts.
        """
        source = self._open(position)
        if source is None:
            return
        if self._fed:  # pictures of the part that was left are dropped
            with suppress(*self._errors):
                self._drained()
        self._times.forget()
        self._faults = 0
        filters = BitStreamFilterContext(self._filters, source)
        for packet in self._packets(source):
            try:
                filtered = filters.filter(packet)
            except av.FFmpegError:
                self.stats.corrupt_packets += 1
                continue
            for item in filtered:
                yield from self._pictures(self._feed(item))
        try:
            yield from self._pictures(self._drained())
        except self._errors:
            self.stats.corrupt_packets += 1

    def _feed(self, packet: Packet[Any]) -> list[Any]:
        """The surfaces that a packet completes, in presentation order."""
        data = self._packet
        data.bsl_data, data.bsl = packet.buffer_ptr, packet.buffer_size
        data.pts = self._times.enter(packet)
        self._fed = True
        try:
            surfaces: list[Any] = self._decoder.Decode(data)
        except self._errors as exc:
            self.stats.corrupt_packets += 1
            self._faults += 1
            unsupported = isinstance(exc, self._module.PyNvVCExceptionUnsupported)
            if unsupported or self._faults >= _MAX_FAULTS:
                text = f"NVDEC: {vendor_text(exc)}"
                raise DecodeError(text, stage="decode", pts=packet.pts) from exc
            return []
        self._faults = 0
        return surfaces

    def _drained(self) -> list[Any]:
        """The surfaces that are left inside."""
        self._fed = False
        surfaces: list[Any] = self._decoder.Decode(self._module.PacketData())
        return surfaces

    def _pictures(self, surfaces: list[Any]) -> Iterator[NvPicture]:
        if not surfaces:
            return
        width, height = self._decoder.GetWidth(), self._decoder.GetHeight()
        for surface in surfaces:
            times = self._times.leave(surface.getPTS())
            if times is None:
                continue
            pitch = width * (2 if surface.format == self._module.Pixel_Format.P016 else 1)
            at = times.pts, times.dts, times.duration, times.key_frame, times.opaque
            yield NvPicture(surface.GetPtrToPlane(0), pitch, width, height, *at)

    def close(self) -> None:
        """Free the decoder and its surfaces, once its stream has done with them."""
        super().close()
        if self._decoder is not None:
            self.stream.synchronize()
            self._decoder = None
