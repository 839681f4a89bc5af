"""Probing: a video file's description, from its header and its first frames."""

from __future__ import annotations

import itertools
import math
import operator
import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from pathlib import Path

import av
from av.codec.context import ThreadType
from av.container import InputContainer
from av.packet import Packet
from av.video.codeccontext import VideoCodecContext
from av.video.format import VideoFormat
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from bgsoft.errors import OpenError, UnsupportedFormatError
from bgsoft.frame import (
    KNOWN_MATRICES,
    UNSPECIFIED,
    ColorInfo,
    ContentLight,
    FrameFormat,
    MasteringDisplay,
    PixelLayout,
)
from bgsoft.media.declared import CENTRE, Declared, read_declared
from bgsoft.media.info import UNTIMED, Crop, Orientation, VideoInfo
from bgsoft.media.inventory import STEREO, colors_are_lost, named_kinds
from bgsoft.media.messages import MESSAGE_CODECS
from bgsoft.media.pipe import PipeInput
from bgsoft.media.pyav import PYAV_ERRORS, exact
from bgsoft.media.side_data import integers, read_side_data
from bgsoft.media.source import MAX_PIXELS, open_input, select_video_stream

_PROBED_FRAMES = 3
"""The first frame may be progressive where the rest is not."""
_MAX_SECONDS = 1e7
"""A header that says more, a hundred days, does not know."""
_TOLERANCE_DEGREES = 1.0
"""How far a rotation may lie off a quarter turn without a notice."""
_PARITIES = {2: "tff", 3: "bff", 4: "tff", 5: "bff"}
"""FFmpeg's AVFieldOrder to bwdif's parity, as FFmpeg's decoder of raw video takes it."""
_LIMITED_RANGE, _FULL_RANGE = 1, 2  # AVCOL_RANGE_MPEG, AVCOL_RANGE_JPEG

# Codecs whose specification says limited range where nothing is signalled. For grey pictures of
# others (FFV1, raw video) FFmpeg takes full range.
_LIMITED_BY_DEFAULT = frozenset(
    {"h264", "hevc", "vvc", "av1", "vp8", "vp9", "mpeg1video", "mpeg2video", "mpeg4"}
)
_SAMPLINGS = {
    (32, 32): "4:2:0",
    (32, 64): "4:2:2",
    (64, 64): "4:4:4",
    (64, 32): "4:4:0",
    (16, 64): "4:1:1",
    (16, 16): "4:1:0",
}
"""Sampling by the number of chroma samples in 64 columns and in 64 rows."""


ALPHA_DROPPED = "alpha channel dropped"
"""Notice of an alpha channel that the decoder does not read."""
_ALPHA_MESSAGE = re.compile(rb"\x4e[\x01\x09]\xa5")
"""Beginning of the message that a layer of HEVC is alpha (ITU-T H.265, SEI payload 165)."""
DEINTERLACED = "interlaced picture deinterlaced"


def is_gray(pixel_format: VideoFormat) -> bool:
    """Return whether a format has luma only, perhaps with alpha."""
    colored = [c for c in pixel_format.components if not c.is_alpha]
    return len(colored) == 1 and not pixel_format.has_palette


def has_alpha(pixel_format: VideoFormat) -> bool:
    """Return whether a format holds an alpha channel, other than that of a palette."""
    alpha = any(component.is_alpha for component in pixel_format.components)
    return alpha and not pixel_format.has_palette


def is_rgb(pixel_format: VideoFormat) -> bool:
    """Return whether a format holds RGB (or a palette, Bayer or XYZ samples) rather than YCbCr."""
    return (
        pixel_format.is_rgb
        or pixel_format.has_palette
        or pixel_format.is_bayer
        or pixel_format.name.startswith(("xyz", "mono"))
    )


class TimedDecoder:
    """Decodes packets; the frames of a container without presentation times get the packets' own.

    AVI numbers its packets in decoding order and has no other clock, so the n-th picture shown has
    the time of the n-th packet. FFmpeg's decoders show reordered pictures late, by as many packets
    as they hold back, while the sound that belongs to them has no such delay; and the times that
    its demuxer makes up for H.264 run in the wrong order.
    """

    def __init__(self, codec: VideoCodecContext, container: str) -> None:
        self._codec = codec
        self.untimed = container == UNTIMED
        """The packets' presentation times are made up."""
        self._times = array("q")
        self._place = -1
        """Index of the packet whose time the last frame has."""

    def decode(self, packet: Packet[VideoStream] | None) -> list[VideoFrame]:
        """Return the frames decoded from a packet; None flushes the decoder."""
        if self.untimed and packet is not None and packet.dts is not None:
            self._times.append(packet.dts)
        frames = self._codec.decode(packet)
        for frame in frames if self.untimed else ():
            self._place += 1
            if frame.dts is not None:  # that of the packet that drove it out
                driver = bisect_right(self._times, frame.dts) - 1
                self._place = max(self._place, driver - self._codec.reorder_depth)
            if self._place < len(self._times):
                frame.pts = self._times[self._place]
        return frames


def probe(source: Path | PipeInput) -> VideoInfo:
    """Open a file, or a pipe, and decode its first frames.

    Raises:
        OpenError: The file cannot be opened, has no video, or none of its frames can be decoded.
        UnsupportedFormatError: It is no video, no decoder exists for it, or its pictures are too
            large.
    """
    pipe = source if isinstance(source, PipeInput) else None
    path = source.path if isinstance(source, PipeInput) else source
    with open_input(source) as container:
        stream = select_video_stream(container, path)
        # Frame threads would ask for a packet per thread before the first frame comes out.
        context = stream.codec_context
        context.thread_type = ThreadType.NONE
        declared = context.width, context.height  # a decoder that cannot be opened forgets it
        frames = list(itertools.islice(_decoded(container, stream), _PROBED_FRAMES))
        if not frames:
            width, height = max(declared, (context.width, context.height))
            if width * height > MAX_PIXELS:
                size = f"{width}x{height}"
                text = f"cannot read {path}: pictures of {size} exceed the limit of 80 megapixels"
                raise UnsupportedFormatError(text, path=path)
            raise OpenError(f"cannot read {path}: no video frame can be decoded", path=path)
        info = replace(describe(path, container, stream, frames), pipe=pipe)
    if (info.duration_seconds or 0.0) > _MAX_SECONDS:  # the AVI of a muxer that cannot go back
        info = replace(info, duration_seconds=None, num_frames_from_header=None)
    return info


def _decoded(container: InputContainer, stream: VideoStream) -> Iterator[VideoFrame]:
    """Frames up to the first read error; packets that cannot be decoded are left out."""
    decoder = TimedDecoder(stream.codec_context, container.format.name)
    with suppress(*PYAV_ERRORS):
        for packet in container.demux(stream):
            if packet.size:
                # PyAV 19 has a ValueError for a decoder that could not be opened before.
                with suppress(*PYAV_ERRORS):
                    yield from decoder.decode(packet)
    with suppress(*PYAV_ERRORS):
        yield from decoder.decode(None)


def describe(
    path: Path, container: InputContainer, stream: VideoStream, frames: list[VideoFrame]
) -> VideoInfo:
    """Describe an open stream by its header and its first frames, of which there is one."""
    frame = frames[0]
    codec = stream.codec_context.codec.canonical_name
    data = read_side_data(frame, codec)
    later = [read_side_data(each, codec) for each in frames[1:]]
    declared = read_declared(stream)
    crop = _crop(declared.crop, frame)
    orientation, turned = orientation_of(data)
    interlaced, parity = any(f.interlaced_frame for f in frames), None
    kind = stream.codec_context.codec
    if not interlaced and kind.lossless and not kind.lossy:
        # Of Ut Video, HuffYUV and PNG, only the container tells.
        parity = _PARITIES.get(stream.codec_context.field_order)
        interlaced = parity is not None
    notices = _conversion_notices(frame.format)
    matrix = first_specified(frame.colorspace, stream.codec_context.colorspace)
    if not is_rgb(frame.format) and matrix not in (*KNOWN_MATRICES, UNSPECIFIED):
        notices.append(f"colour matrix {matrix} (H.273) is taken for BT.601 or BT.709")
    header = stream.codec_context.extradata or b""
    hevc_alpha = codec == "hevc" and _ALPHA_MESSAGE.search(header) is not None
    # FFmpeg's own VP9 decoder does not read alpha, and up to FFmpeg 8 that of HEVC neither.
    if (stream.metadata.get("alpha_mode") == "1" or hevc_alpha) and not has_alpha(frame.format):
        notices.append(ALPHA_DROPPED)
    stereo = integers(data.get("STEREO3D", b""), 1)
    if stereo is not None and stereo[0] and "stereo_mode" not in stream.metadata:
        notices.append("stereo 3D: the output does not say how the two views lie")
    if interlaced:
        notices.append(DEINTERLACED)
    if turned:
        notices.append(turned)
    others = tuple(
        named_kinds(
            declared,
            reduce(operator.or_, reversed([data, *later])),
            (frame.width, frame.height),
            reads_packets=codec in MESSAGE_CODECS,
        )
    )
    notices += [f"{kind} left out" for kind in others]
    if stereo is not None and stereo[0]:
        others = (*others, STEREO)
    if colors_are_lost(declared):
        notices.append("Dolby Vision profile 5: without its metadata the colours are wrong")
    width, height = crop.size(frame.width, frame.height)
    if crop != Crop():
        size = f"{frame.width}x{frame.height}"
        notices.append(f"cropped from {size} to {width}x{height}, as the container declares")
    aspect = exact(stream.sample_aspect_ratio) or Fraction(1)
    if orientation.swaps_axes:
        width, height, aspect = height, width, 1 / aspect
    time_base = exact(stream.time_base)
    if not time_base:
        raise OpenError(f"cannot read {path}: its video has no time base", path=path)
    return VideoInfo(
        path=path,
        container=container.format.name,
        stream_index=stream.index,
        codec=codec,
        pixel_format=frame.format.name,
        sampling=_sampling(frame.format, swaps_axes=orientation.swaps_axes),
        coded_width=frame.width,
        coded_height=frame.height,
        crop=crop,
        format=FrameFormat(
            width=width,
            height=height,
            layout=PixelLayout.NV12 if _depth(frame.format) <= 8 else PixelLayout.P010,
            color=replace(
                _color(frame, stream, codec),
                chroma_location=_chroma_location(declared, frame, orientation),
            ),
        ),
        orientation=orientation,
        time_base=time_base,
        frame_rate=exact(stream.guessed_rate) or exact(stream.average_rate) or Fraction(0),
        # The header's start can lie before the first frame that comes out, e.g. where leading
        # frames need a reference that was cut away.
        start_pts=frame.pts if frame.pts is not None else stream.start_time,
        duration_seconds=_duration_seconds(container, stream),
        num_frames_from_header=stream.frames or None,
        sample_aspect_ratio=aspect,
        interlaced=interlaced,
        parity=parity,
        mastering_display=mastering_display_of(data),
        content_light=content_light_of(data),
        side_data=others,
        notices=tuple(notices),
    )


def _duration_seconds(container: InputContainer, stream: VideoStream) -> float | None:
    start = float((stream.start_time or 0) * (stream.time_base or 0))
    # Matroska gives the end of each track as a tag, on its own clock: HH:MM:SS.fraction. FFmpeg may
    # give a short track the length of the file.
    # Other containers may have it from an earlier one.
    tag = stream.metadata.get("DURATION", "") if "matroska" in container.format.name else ""
    with suppress(ValueError):
        hours, minutes, seconds = tag.split(":")
        return max(0.0, int(hours) * 3600 + int(minutes) * 60 + float(seconds) - start)
    if stream.duration and stream.time_base:
        return float(stream.duration * stream.time_base)
    if not container.duration:
        return None
    end = container.duration / av.time_base
    return end - start if container.format.name == "nut" else end  # NUT's is the end of its clock


def _depth(pixel_format: VideoFormat) -> int:
    """Bits of the deepest component."""
    return max(component.bits for component in pixel_format.components)


def first_specified(*values: int) -> int:
    """The first that is specified, and not 0 (reserved, or RGB)."""
    return next((value for value in values if value not in (0, UNSPECIFIED)), UNSPECIFIED)


def _color(frame: VideoFrame, stream: VideoStream, codec: str) -> ColorInfo:
    """Colour description of the frames after conversion to YCbCr."""
    context = stream.codec_context
    primaries = first_specified(frame.color_primaries, context.color_primaries)
    transfer = first_specified(frame.color_trc, context.color_trc)
    if is_rgb(frame.format):
        # Converted by us, so we name what we made: limited range, and the matrix that belongs to
        # the primaries.
        return ColorInfo(
            primaries=primaries,
            transfer=transfer,
            matrix=9 if primaries == 9 else 1,
            full_range=False,
            range_specified=True,
        )
    tagged = frame.color_range or context.color_range
    full_range = tagged == _FULL_RANGE
    if frame.format.name.startswith("yuvj"):
        tagged, full_range = _FULL_RANGE, True
    elif tagged not in (_FULL_RANGE, _LIMITED_RANGE) and is_gray(frame.format):
        full_range = codec not in _LIMITED_BY_DEFAULT
    return ColorInfo(
        primaries=primaries,
        transfer=transfer,
        matrix=first_specified(frame.colorspace, context.colorspace),
        full_range=full_range,
        # In 4:2:0 nobody would guess what a grey picture's range was.
        range_specified=full_range or tagged == _LIMITED_RANGE,
    )


def _chroma_location(declared: Declared, frame: VideoFrame, orientation: Orientation) -> int:
    """Return where the chroma of an upright picture lies, as :attr:`ColorInfo.chroma_location`.

    0 stands for the left, which an unspecified location means, and for formats other than 4:2:0."""
    location = declared.chroma_location
    known = orientation.is_identity or location == CENTRE
    return location if known and _sampling(frame.format, swaps_axes=False) == "4:2:0" else 0


def _crop(declared: Crop, frame: VideoFrame) -> Crop:
    """Edges to leave out of a picture as stored; none where nothing of it would be left.

    Offsets and sizes are rounded down to whole chroma samples, as FFmpeg's ``crop`` filter does.
    """
    width, height = declared.size(frame.width, frame.height)
    if declared == Crop() or width < 1 or height < 1:
        return Crop()
    across = max(1, round(64 / max(1, frame.format.chroma_width(64))))
    down = max(1, round(64 / max(1, frame.format.chroma_height(64))))
    left, top = declared.left // across * across, declared.top // down * down
    width, height = max(1, width // across * across), max(1, height // down * down)
    return Crop(left, top, frame.width - left - width, frame.height - top - height)


def _sampling(pixel_format: VideoFormat, *, swaps_axes: bool) -> str:
    """Return :attr:`bgsoft.media.info.VideoInfo.sampling` of a picture, perhaps turned."""
    if is_rgb(pixel_format):
        return "4:4:4"
    if is_gray(pixel_format):
        return "4:2:0"
    sampling = pixel_format.chroma_width(64), pixel_format.chroma_height(64)
    return _SAMPLINGS.get(sampling[::-1] if swaps_axes else sampling, "other chroma")


def _conversion_notices(pixel_format: VideoFormat) -> list[str]:
    """Notices of the properties of a format that the pipeline's own layouts lack."""
    notices = []
    if is_rgb(pixel_format):
        notices.append("RGB converted to YCbCr, limited range")
    elif is_gray(pixel_format):
        notices.append("grey picture given neutral colour")
    if has_alpha(pixel_format):
        notices.append(ALPHA_DROPPED)
    if _depth(pixel_format) > 10:
        notices.append(f"{_depth(pixel_format)}-bit samples reduced to 10 bits")
    return notices


def orientation_of(data: Mapping[str, bytes]) -> tuple[Orientation, str | None]:
    """Return the turn that makes a frame of such side data upright, and a notice if inexact.

    FFmpeg multiplies row vectors, ``(x, y) @ [[a, b], [c, d]]``, with y pointing down; a and b are
    elements 0 and 1 of the display matrix, c and d elements 3 and 4. A picture that is first
    mirrored left to right and then turned clockwise by t has ``(c, d) = (−sin t, cos t)`` in either
    case, and a negative determinant only if mirrored. The scale does not matter here.
    """
    matrix = integers(data.get("DISPLAYMATRIX", b""), 9)
    if matrix is None:
        return Orientation(), None
    a, b, _, c, d, *_ = matrix
    determinant = a * d - b * c
    if determinant == 0:
        return Orientation(), None
    degrees = math.degrees(math.atan2(-c, d))
    quarters = round(degrees / 90)
    orientation = Orientation(mirror=determinant < 0, rotation=quarters % 4 * 90)
    rest = degrees - quarters * 90
    if abs(rest) <= _TOLERANCE_DEGREES:
        return orientation, None
    return orientation, (
        f"rotation of {orientation.rotation + rest:.0f}° rounded to {orientation.rotation}°"
    )


def mastering_display_of(data: Mapping[str, bytes]) -> MasteringDisplay | None:
    """HDR10 mastering display in a frame's side data; None where absent or incomplete."""
    # Ten rationals (red, green, blue, white: x and y; minimum, maximum), two flags.
    numbers = integers(data.get("MASTERING_DISPLAY_METADATA", b""), 22)
    if numbers is None or 0 in numbers[20:] or 0 in numbers[1:20:2]:
        return None
    values = [Fraction(numbers[i], numbers[i + 1]) for i in range(0, 20, 2)]
    return MasteringDisplay(
        red=(values[0], values[1]),
        green=(values[2], values[3]),
        blue=(values[4], values[5]),
        white=(values[6], values[7]),
        min_luminance=values[8],
        max_luminance=values[9],
    )


def content_light_of(data: Mapping[str, bytes]) -> ContentLight | None:
    """HDR10 content light level in a frame's side data; None where absent or all zero."""
    levels = integers(data.get("CONTENT_LIGHT_LEVEL", b""), 2)
    if levels is None or levels == (0, 0):
        return None
    return ContentLight(max_content=levels[0], max_frame_average=levels[1])
