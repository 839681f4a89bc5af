"""Synthesises small test clips with PyAV, whose every frame tells its own number.

Each picture is a grid of flat blocks: the frame number in eight bits, and a row of markers that is
only right if the picture stands upright and unmirrored. Chroma differs between left and right (Cb)
and between top and bottom (Cr). Flat blocks survive lossy codecs, so a decoded frame can be told
from its neighbours, and be compared by value.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import wraps
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
from av.audio.stream import AudioStream
from av.container import InputContainer, OutputContainer
from av.stream import Disposition
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

Plane = npt.NDArray[Any]

BIT_LEVELS = (56, 184)
"""Luma of a 0 bit and of a 1 bit, at 8 bits."""
MARKERS = (216, 88, 152, 40)
"""Luma of the marker row, left to right, at 8 bits."""
CB_LEFT_RIGHT = (104, 152)
CR_TOP_BOTTOM = (160, 96)
_COLUMNS = 4
_ROWS = 3


def _edges(length: int, parts: int) -> list[int]:
    return [length * part // parts for part in range(parts + 1)]


def luma_picture(index: int, width: int, height: int) -> Plane:
    """(H, W) uint8: the picture of one frame number (0–255)."""
    bits = [(index >> bit) & 1 for bit in range(8)]
    rows = [
        [BIT_LEVELS[bit] for bit in bits[:4]],
        [BIT_LEVELS[bit] for bit in bits[4:]],
        list(MARKERS),
    ]
    luma = np.empty((height, width), np.uint8)
    ys, xs = _edges(height, _ROWS), _edges(width, _COLUMNS)
    for row, levels in enumerate(rows):
        for column, level in enumerate(levels):
            luma[ys[row] : ys[row + 1], xs[column] : xs[column + 1]] = level
    return luma


def chroma_pictures(width: int, height: int) -> tuple[Plane, Plane]:
    """(Cb, Cr), each (H, W) uint8: the colours that all frames share, at luma size."""
    cb = np.full((height, width), CB_LEFT_RIGHT[1], np.uint8)
    cb[:, : width // 2] = CB_LEFT_RIGHT[0]
    cr = np.full((height, width), CR_TOP_BOTTOM[1], np.uint8)
    cr[: height // 2] = CR_TOP_BOTTOM[0]
    return cb, cr


def read_index(luma: Plane, shift: int = 0) -> int:
    """The frame number that an upright luma plane shows.

    Args:
        luma: (H, W) samples.
        shift: Right shift that brings a sample to 8 bits (8 for P010).

    Raises:
        AssertionError: The markers are not where they belong: turned, mirrored or another picture.
    """
    height, width = luma.shape
    ys, xs = _edges(height, _ROWS), _edges(width, _COLUMNS)

    def block(row: int, column: int) -> float:
        top, bottom, left, right = ys[row], ys[row + 1], xs[column], xs[column + 1]
        dy, dx = (bottom - top) // 4, (right - left) // 4
        inner = luma[top + dy : bottom - dy, left + dx : right - dx]
        return float(np.mean(inner)) / (1 << shift)

    markers = [block(2, column) for column in range(_COLUMNS)]
    wrong = [abs(got - want) for got, want in zip(markers, MARKERS, strict=True)]
    assert max(wrong) < 24, f"marker row reads {markers}, should be {MARKERS}"
    middle = sum(BIT_LEVELS) / 2
    levels = [block(row, column) for row in (0, 1) for column in range(_COLUMNS)]
    return sum(1 << bit for bit, level in enumerate(levels) if level > middle)


def make_frame(index: int, width: int, height: int, pixel_format: str = "yuv420p") -> VideoFrame:
    """The picture of one frame number in any planar or RGB format that swscale can make.

    Planar YCbCr up to 16 bits is written directly (levels scaled by a power of two); the rest is
    converted from it.
    """
    frame = VideoFrame(width, height, pixel_format)
    fmt = frame.format
    if fmt.is_rgb or not fmt.is_planar:
        if fmt.name.startswith("gray"):
            _fill(frame, 0, luma_picture(index, width, height))
            return frame
        source = make_frame(index, width, height, "yuv444p")
        return source.reformat(
            format=pixel_format, src_colorspace="ITU709", src_color_range=1, dst_color_range=2
        )
    cb, cr = chroma_pictures(width, height)
    for plane, picture in enumerate((luma_picture(index, width, height), cb, cr)):
        _fill(frame, plane, picture)
    if len(frame.planes) == 4:
        _fill(frame, 3, np.full((height, width), 255, np.uint8))
    return frame


def _fill(frame: VideoFrame, plane: int, picture: Plane) -> None:
    """Write a luma-sized 8-bit picture into a plane by point sampling."""
    target = frame.planes[plane]
    bits = frame.format.components[plane].bits
    dtype = np.uint8 if bits <= 8 else np.uint16
    rows = np.frombuffer(memoryview(target), dtype).reshape(target.height, -1)
    ys = np.minimum(np.arange(target.height) * -(-frame.height // target.height), frame.height - 1)
    xs = np.minimum(np.arange(target.width) * -(-frame.width // target.width), frame.width - 1)
    rows[:, : target.width] = picture[np.ix_(ys, xs)].astype(dtype) << (bits - 8)


_made: dict[str, bytes] = {}
_MAX_KEPT_BYTES = 4 << 20


def made_once(write: Callable[..., Path]) -> Callable[..., Path]:
    """Make a function copy a file that it has written before with the same arguments.

    Its first argument is the path, of which only the suffix counts. Clips whose pictures a
    function draws or tags are written again each time.
    """

    @wraps(write)
    def written(path: Path, *given: Any, **named: Any) -> Path:
        specs = [each for each in (*given, *named.values()) if isinstance(each, VideoSpec)]
        if any(spec.turn or spec.setup or spec.touch for spec in specs):
            return write(path, *given, **named)
        key = repr((write.__qualname__, path.suffix, given, sorted(named.items())))
        if key in _made:
            path.write_bytes(_made[key])
        else:
            write(path, *given, **named)
            if path.stat().st_size <= _MAX_KEPT_BYTES:
                _made[key] = path.read_bytes()
        return path

    return written


@dataclass(frozen=True, kw_only=True)
class VideoSpec:
    codec: str = "libx264"
    pixel_format: str = "yuv420p"
    width: int = 96
    height: int = 72
    """Shown height, upright."""
    times: Sequence[Fraction]
    """Presentation time of each frame, seconds."""
    rate: Fraction = Fraction(25)
    """Nominal frame rate, and the length of the last frame."""
    time_base: Fraction = Fraction(1, 90_000)
    options: dict[str, str] = field(default_factory=dict)
    turn: Callable[[Plane], Plane] | None = None
    """Applied to the upright pictures before encoding."""
    setup: Callable[[VideoStream], None] | None = None
    """Called before the first frame is encoded, e.g. to set colour tags."""
    touch: Callable[[VideoFrame, int], None] | None = None
    """Called with each frame and its position before encoding."""


def regular_times(
    count: int, rate: Fraction | int = 25, start: Fraction | int = 0
) -> list[Fraction]:
    return [Fraction(start) + Fraction(i) / Fraction(rate) for i in range(count)]


def _turned(frame: VideoFrame, turn: Callable[[Plane], Plane]) -> VideoFrame:
    """A 4:2:0 frame with each plane turned."""
    planes = [
        np.frombuffer(memoryview(p), np.uint8).reshape(p.height, -1)[:, : p.width]
        for p in frame.planes
    ]
    turned = [turn(plane) for plane in planes]
    height, width = turned[0].shape
    result = VideoFrame(width, height, frame.format.name)
    for target, source in zip(result.planes, turned, strict=True):
        np.frombuffer(memoryview(target), np.uint8).reshape(target.height, -1)[
            :, : target.width
        ] = source
    return result


def _add_stream(output: OutputContainer, spec: VideoSpec) -> VideoStream:
    stream = output.add_stream(spec.codec, rate=spec.rate, options=dict(spec.options))
    assert isinstance(stream, VideoStream)
    example = make_frame(0, spec.width, spec.height)
    if spec.turn is not None:
        example = _turned(example, spec.turn)
    stream.width, stream.height = example.width, example.height
    stream.pix_fmt = spec.pixel_format
    stream.time_base = spec.time_base
    stream.codec_context.time_base = spec.time_base
    stream.codec_context.thread_count = 1
    if spec.setup is not None:
        spec.setup(stream)
    return stream


def _packets(stream: VideoStream, spec: VideoSpec) -> Iterable[av.Packet[VideoStream]]:
    for index, time in enumerate(spec.times):
        frame = make_frame(index, spec.width, spec.height, spec.pixel_format)
        if spec.turn is not None:
            frame = _turned(frame, spec.turn)
        frame.pts = round(time / spec.time_base)
        frame.time_base = spec.time_base
        following = spec.times[index + 1] if index + 1 < len(spec.times) else time + 1 / spec.rate
        frame.duration = round((following - time) / spec.time_base)
        if spec.touch is not None:
            spec.touch(frame, index)
        yield from stream.encode(frame)
    yield from stream.encode(None)


def write_frames(
    path: Path,
    pictures: Iterable[Plane],
    kind: str = "rgb24",
    *,
    pixels: str = "yuv420p",
    rate: int | Fraction = 25,
    codec: str = "ffv1",
    options: dict[str, str] | None = None,
    tags: tuple[int, int, int] | None = None,
) -> Path:
    """Write pictures of one size; planes of two axes are grey.

    Args:
        path: File to write; its suffix chooses the container.
        pictures: Arrays as PyAV takes them.
        kind: Their pixel format.
        pixels: Pixel format of the file.
        rate: Frames per second.
        codec: The encoder.
        options: Its options.
        tags: Primaries, transfer and matrix (ITU-T H.273).
    """
    with av.open(str(path), "w") as output:
        stream = output.add_stream(codec, rate=rate, options=options or {})
        assert isinstance(stream, VideoStream)
        stream.pix_fmt = pixels
        if tags is not None:
            context = stream.codec_context
            context.color_primaries, context.color_trc, context.colorspace = tags
        for picture in pictures:
            given = "gray" if picture.ndim == 2 and kind == "rgb24" else kind
            frame = VideoFrame.from_ndarray(np.ascontiguousarray(picture), format=given)
            if not stream.codec_context.is_open:
                stream.width, stream.height = frame.width, frame.height
            output.mux(stream.encode(frame.reformat(format=pixels)))
        output.mux(stream.encode(None))
    return path


@made_once
def write_video(path: Path, spec: VideoSpec, *, options: dict[str, str] | None = None) -> Path:
    """Write a clip with one video stream.

    Args:
        path: File to write; its suffix chooses the container.
        spec: What to encode.
        options: Muxer options.
    """
    with av.open(str(path), "w", container_options=options or {}) as output:
        stream = _add_stream(output, spec)
        for packet in _packets(stream, spec):
            output.mux(packet)
        if not spec.times:
            output.start_encoding()
    return path


def write_fields(path: Path, order: int) -> Path:
    """Write four interlaced frames as grey PNG, each field 15 brighter than the last, to MOV.

    Args:
        path: The file.
        order: FFmpeg's AVFieldOrder: 2 for the top field first, 3 for the bottom one.
    """

    def fields(stream: VideoStream) -> None:
        stream.codec_context.field_order = order

    def comb(frame: VideoFrame, index: int) -> None:
        plane = frame.planes[0]
        rows = np.frombuffer(memoryview(plane), np.uint8).reshape(plane.height, -1)
        first, second = 60 + 30 * index, 75 + 30 * index
        rows[0::2], rows[1::2] = (first, second) if order == 2 else (second, first)

    times = regular_times(4)
    spec = VideoSpec(codec="png", pixel_format="gray", times=times, setup=fields, touch=comb)
    return write_video(path, spec)


@dataclass(frozen=True, kw_only=True)
class SoundSpec:
    """One audio track: a sine tone, stereo, 48 kHz."""

    codec: str = "aac"
    pitch: float = 440.0
    """Hertz."""
    seconds: float = 1.0
    language: str | None = None
    bit_rate: int = 64_000


_SUBTITLES = "1\n00:00:00,100 --> 00:00:00,400\nfirst\n\n2\n00:00:00,500 --> 00:00:00,700\nsecond\n"
_SAMPLE_RATE = 48_000


@made_once
def write_movie(
    path: Path,
    video: VideoSpec | None,
    sounds: Sequence[SoundSpec] = (),
    *,
    subtitles: bool = False,
    chapters: Sequence[tuple[Fraction, Fraction, str]] = (),
    metadata: dict[str, str] | None = None,
    cover: bool = False,
    options: dict[str, str] | None = None,
) -> Path:
    """Write a file with several tracks.

    Args:
        path: File to write; its suffix chooses the container.
        video: The video track, first in the file; None: no video track.
        sounds: Audio tracks, in order.
        subtitles: Add a SubRip track with two lines.
        chapters: (start, end, title), seconds.
        metadata: Tags of the file.
        cover: Add a JPEG picture as cover art, before the video track (MP4).
        options: Muxer options.
    """
    with av.open(str(path), "w", container_options=options or {}) as output:
        if metadata:
            output.metadata.update(metadata)
        packets: list[av.Packet[Any]] = []
        if cover:
            packets += _cover_packets(output)
        if video is not None:
            stream = _add_stream(output, video)
            packets += _packets(stream, video)
        for sound in sounds:
            packets += _sound_packets(output, sound)
        if subtitles:
            packets += _subtitle_packets(output)
        if chapters:
            output.set_chapters(
                [
                    {
                        "id": number,
                        "start": round(start * 1000),
                        "end": round(end * 1000),
                        "time_base": Fraction(1, 1000),
                        "metadata": {"title": title},
                    }
                    for number, (start, end, title) in enumerate(chapters)
                ]
            )
        packets.sort(key=lambda p: float((p.dts or 0) * p.time_base))
        for packet in packets:
            output.mux(packet)
    return path


def _cover_packets(output: OutputContainer) -> list[av.Packet[Any]]:
    stream = output.add_stream("mjpeg", rate=25)
    assert isinstance(stream, VideoStream)
    stream.width, stream.height, stream.pix_fmt = 32, 32, "yuvj420p"
    stream.disposition = Disposition.attached_pic
    frame = make_frame(255, 32, 32, "yuvj420p")
    frame.pts, frame.time_base = 0, Fraction(1, 25)
    return [*stream.encode(frame), *stream.encode(None)]


def _sound_packets(output: OutputContainer, sound: SoundSpec) -> list[av.Packet[Any]]:
    stream = output.add_stream(sound.codec, rate=_SAMPLE_RATE, layout="stereo")
    assert isinstance(stream, AudioStream)
    if not sound.codec.startswith("pcm"):
        stream.bit_rate = sound.bit_rate
    if sound.language:
        stream.metadata["language"] = sound.language
    stream.codec_context.open(strict=False)
    packed = stream.format.name.removesuffix("p") == stream.format.name
    step = stream.codec_context.frame_size or 1024
    total = int(sound.seconds * _SAMPLE_RATE)
    packets: list[av.Packet[Any]] = []
    for begin in range(0, total, step):
        time = np.arange(begin, min(begin + step, total)) / _SAMPLE_RATE
        wave = np.sin(2 * np.pi * sound.pitch * time) * 0.25
        if stream.format.name.startswith("s16"):
            samples = (wave * 32767).astype(np.int16)
        elif stream.format.name.startswith("s32"):
            samples = (wave * 2147483647).astype(np.int32)
        else:
            samples = wave.astype(np.float32)
        both = np.repeat(samples, 2)[None] if packed else np.stack([samples, samples])
        frame = av.AudioFrame.from_ndarray(both, format=stream.format.name, layout="stereo")
        frame.sample_rate = _SAMPLE_RATE
        frame.time_base = Fraction(1, _SAMPLE_RATE)
        frame.pts = begin
        packets += stream.encode(frame)
    packets += stream.encode(None)
    return packets


def _subtitle_packets(output: OutputContainer) -> list[av.Packet[Any]]:
    with av.open(io.BytesIO(_SUBTITLES.encode()), format="srt") as source:
        assert isinstance(source, InputContainer)
        stream = output.add_stream_from_template(source.streams.subtitles[0])
        packets = [packet for packet in source.demux() if packet.size]
    for packet in packets:
        packet.stream = stream
    return packets


def truncate(path: Path, share: float) -> Path:
    """Cut a file off after a share (0–1) of its bytes, in place."""
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    return path


def damage(path: Path, positions: Sequence[int], *, whole: bool = False) -> Path:
    """Overwrite the payload of some video packets with noise, in place.

    Args:
        path: A Matroska file with one video stream.
        positions: Of the packets, in decoding order.
        whole: Overwrite all of each packet; otherwise only its second half, so that the decoder
            has something to patch.
    """
    with av.open(str(path)) as container:
        assert isinstance(container, InputContainer)
        packets = [packet for packet in container.demux(video=0) if packet.size]
        payloads = [bytes(packet) for packet in packets]
    data = bytearray(path.read_bytes())
    noise = np.random.default_rng(7)
    for position in positions:
        payload = payloads[position]
        begin = data.find(payload)
        assert begin >= 0, "the payload is not stored as it is"
        skip = 0 if whole else len(payload) // 2
        count = len(payload) - skip
        data[begin + skip : begin + len(payload)] = noise.integers(
            0, 256, count, np.uint8
        ).tobytes()
    path.write_bytes(bytes(data))
    return path
