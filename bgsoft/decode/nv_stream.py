"""NVDEC by packets: supported streams, and pictures on device surfaces."""

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
"""Failed packets in a row after which decoding ends."""
_MARK_OF_ZERO = 1 << 40
"""Mark of pts 0, until the clock steps back."""
_STEP_MARKS = 1 << 24
"""Gap in the marks where the clock steps back, for pictures shown before their key frame."""
_MAX_REMEMBERED = 512
"""Limit of packets that wait for their picture: damaged packets give none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NvCodec:
    """A codec's names and its preparation for NVDEC."""

    name: str
    """Name in PyNvVideoCodec's ``cudaVideoCodec``."""
    label: str
    filters: str
    """FFmpeg bitstream filters for the parser's input: Annex B with parameter sets before each key
        frame, so that decoding can start at any of them."""
    header: tuple[int, int] | None = None
    """Mask and value of the first byte of a sequence parameter set; None: its pictures have no such
    header."""


_CODECS = {
    "h264": NvCodec(
        name="H264",
        label="H.264",
        filters="h264_mp4toannexb,dump_extra=freq=k",
        header=(0x1F, 7),  # ITU-T H.264, 7.3.1
    ),
    "hevc": NvCodec(
        name="HEVC",
        label="HEVC",
        filters="hevc_mp4toannexb,dump_extra=freq=k",
        header=(0x7E, 33 << 1),  # ITU-T H.265, 7.3.1.2
    ),
    "vp9": NvCodec(name="VP9", label="VP9", filters="null"),
    "av1": NvCodec(name="AV1", label="AV1", filters="null"),
}
_DEPTHS = {"yuv420p": 8, "yuvj420p": 8, "yuv420p10le": 10}
"""Pixel formats with the pipeline's own samples → bits per sample."""


def nv_codec(info: VideoInfo) -> NvCodec:
    """Return the codec of a stream that NVDEC may decode.

    Raises:
        BackendUnavailableError: Only the CPU decodes this stream, whatever the GPU.
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
        # PyNvVideoCodec copies as many chroma bytes per row as luma, which loses the last Cr.
        reason = f"an odd width ({info.coded_width}) is decoded on the CPU"
    elif info.container in RAW_STREAMS or info.is_untimed:
        reason = f"{info.container} lacks timestamps, which only the CPU decoder makes"
    else:
        return codec
    raise BackendUnavailableError(f"NVDEC: {reason}", stage="decode", path=info.path)


def caps_reason(caps: Mapping[str, int] | None, info: VideoInfo) -> str | None:
    """Return why a GPU cannot decode a stream; None where it can, or only a test shows."""
    if caps is None:
        return None
    label = _CODECS[info.codec].label
    depth = _DEPTHS[info.pixel_format]
    if not caps.get("supported", 1):
        return f"this GPU does not decode {label} at {depth} bits"
    width, height = info.coded_width, info.coded_height
    size = f"{width}x{height}"
    largest, smallest = (
        f"{caps[f'width_{end}']}x{caps[f'height_{end}']}" for end in ("max", "min")
    )
    if width > caps["width_max"] or height > caps["height_max"]:
        return f"{size} is more than {largest}, its maximum for {label}"
    if width < caps["width_min"] or height < caps["height_min"]:
        return f"{size} is less than {smallest}, its minimum for {label}"
    if -(-width // 16) * -(-height // 16) > caps["mb_num_max"]:
        return f"{size} has more than {caps['mb_num_max']} macroblocks, its maximum for {label}"
    return None


@dataclass(slots=True)
class NvPicture:
    """A decoded picture on the device.

    The next packet overwrites it, in the order of the reader's stream. Work on it must be launched
    on that stream before the next picture is requested.
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
    """Always False: PyNvVideoCodec does not report NVDEC's decode status."""


class _Times(NamedTuple):
    pts: int | None = None
    dts: int | None = None
    duration: int = 0
    key_frame: bool = False
    opaque: Any = None
    discard: bool = False


class PacketTimes:
    """Assigns each decoded picture the times of its packet.

    NVDEC's parser passes one mark per packet through, which it takes for the presentation
    timestamp: marks come out in rising order, one for each picture shown. The mark is the pts plus
    an offset that keeps it positive. Packets without a pts, or with equal ones, keep their order.
    A key frame that steps back (a second edit, a joined recording) raises the offset.
    """

    def __init__(self) -> None:
        self._by_mark: dict[int, deque[_Times]] = {}
        self._remembered = 0
        self._last = self._highest = self._zero = _MARK_OF_ZERO

    def enter(self, packet: Packet[Any]) -> int:
        """Remember a packet's times and return its mark."""
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
        """Return the times for a picture; None where an edit list hides it."""
        times = self._take(mark)
        if times is None:  # a second picture of one packet has no time of its own
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
        """Forget all packets, after a seek."""
        self._by_mark.clear()
        self._remembered = 0


class NvStreamDecoder(StreamDecoder[NvPicture]):
    """Decodes one stream of a file on the device, opened and positioned like the CPU decoder.

    A picture must be used before the next one is requested: see :class:`NvPicture`.

    Raises:
        Exception: PyNvVideoCodec fails; see :func:`bgsoft.cuda.video_codec.codec_errors`.
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
        self._codec = codec
        self._header = b""
        """Sequence parameter set of the last key frame."""
        self.stream = stream  # kept alive: the decoder has only its address
        self._decoder = module.CreateDecoder(
            gpuid=device.number,
            codec=getattr(module.cudaVideoCodec, codec.name),
            # With a stream, it needs the stream's context as well.
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
        # NVDEC shows leading pictures whose references are missing; FFmpeg does not.
        return itertools.dropwhile(lambda p: p.pts is not None and p.pts < start, pictures)

    def _decode_stored(self, position: int | None) -> Iterator[NvPicture]:
        """Decode all pictures that NVDEC shows.

        Raises:
            DecodeError: Packet after packet fails; carries the packet's pts.
        """
        source = self._open(position)
        if source is None:
            return
        if self._fed:  # drop pictures from before the seek
            with suppress(*self._errors):
                self._drained()
        self._times.forget()
        self._faults = 0
        filters = BitStreamFilterContext(self._codec.filters, source)
        for packet in self._packets(source):
            try:
                filtered = filters.filter(packet)
            except av.FFmpegError:
                self.stats.corrupt_packets += 1
                continue
            for item in filtered:
                self._check_header(item)
                yield from self._pictures(self._feed(item))
        try:
            yield from self._pictures(self._drained())
        except self._errors:
            self.stats.corrupt_packets += 1

    def _check_header(self, packet: Packet[Any]) -> None:
        """Report a sequence parameter set that differs from the last one: colours may change."""
        if self._codec.header is None or not packet.is_keyframe:
            return
        mask, value = self._codec.header
        units = bytes(packet).split(b"\0\0\1")
        headers = [unit.rstrip(b"\0") for unit in units if unit and unit[0] & mask == value]
        last, self._header = self._header, headers[-1] if headers else self._header
        if last not in (b"", self._header):
            text = "the stream's parameters change: if its colours do, --decode cpu converts them"
            self._report("notice", text, packet.pts)

    def _feed(self, packet: Packet[Any]) -> list[Any]:
        """Return the surfaces that a packet completes, in presentation order."""
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
                text = f"cannot decode with NVDEC: {vendor_text(exc)}; try --decode cpu"
                raise DecodeError(text, stage="decode", pts=packet.pts) from exc
            return []
        self._faults = 0
        return surfaces

    def _drained(self) -> list[Any]:
        """Return the surfaces that are left in the decoder."""
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
        """Free the decoder and its surfaces, once its stream has finished with them."""
        super().close()
        if self._decoder is not None:
            self.stream.synchronize()
            self._decoder = None
