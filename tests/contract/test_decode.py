"""Decoded frames of each clip by each decoder; damage and other formats on the CPU only."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from bgsoft.decode.base import Decoder, DecodeSettings
from bgsoft.decode.cpu import CpuDecoder
from bgsoft.errors import ConfigError, OpenError
from bgsoft.frame import FrameFormat, PixelLayout, Planes
from bgsoft.media.probe import TimedDecoder
from bgsoft.ring import FrameRing, RingClosedError
from tests.assets import CLIPS
from tests.fakes import host_planes
from tests.marks import slow
from tests.nvdec_stand_in import NVDEC_CLIPS, StandInDecoder, install
from tests.outside import ffmpeg
from tests.synthetic import (
    Plane,
    VideoSpec,
    chroma_pictures,
    damage,
    luma_picture,
    read_index,
    regular_times,
    truncate,
    write_fields,
    write_video,
)

X264 = {"preset": "veryfast", "crf": "8", "threads": "1"}
LONG_GOP = X264 | {"bf": "2", "g": "12"}


@dataclass(frozen=True, kw_only=True)
class Seen:
    index: int
    pts: int
    duration: int
    concealed: bool
    luma: Plane
    chroma: Plane
    number: int
    """The frame number that the picture shows; −1 where it shows none."""


def ring_for(format: FrameFormat, slots: int = 2) -> FrameRing:
    def allocate(slot: int) -> Planes:
        planes = host_planes(format, slot)
        planes.luma.fill(77)  # so that a plane that is not written shows
        planes.chroma.fill(77)
        return planes

    return FrameRing(slots, allocate)


def decode_all(decoder: Decoder) -> list[Seen]:
    """All frames of a decoder, which is left open; checks their ends, and that slots came back."""
    ring = ring_for(decoder.info.format)
    shift = 8 if decoder.info.format.layout is PixelLayout.P010 else 0
    seen: list[Seen] = []
    until: int | None = None
    for frame in decoder.frames(ring):
        assert until in (None, frame.pts)
        until = frame.shown_until
        assert until is not None
        assert until > frame.pts
        assert frame.format == decoder.info.format
        assert frame.time_base == decoder.info.time_base
        try:
            number = read_index(frame.luma, shift)
        except AssertionError:
            number = -1
        seen.append(
            Seen(
                index=frame.index,
                pts=frame.pts,
                duration=frame.duration,
                concealed=frame.concealed,
                luma=frame.luma.copy(),
                chroma=frame.chroma.copy(),
                number=number,
            )
        )
        ring.release(frame)
    assert ring.in_use == 0
    return seen


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clips")


def by_cpu(path: Path, **settings: float | None) -> Decoder:
    return CpuDecoder(path, DecodeSettings(**{"threads": 2} | settings))  # type: ignore[arg-type]


def by_nvdec(path: Path, **settings: float | None) -> Decoder:
    return StandInDecoder(path, DecodeSettings(**settings))  # type: ignore[arg-type]


DECODERS: dict[str, Callable[..., Decoder]] = {"cpu": by_cpu, "nvdec": by_nvdec}
"""NVDEC's with a stand-in for the device; ``gpu/test_nvdec.py`` has the real one."""


@pytest.fixture(params=DECODERS)
def make_decoder(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Decoder]:
    install(monkeypatch)
    return DECODERS[request.param]


def every_decoder(names: Iterable[str]) -> pytest.MarkDecorator:
    """Each clip by each decoder that takes it."""
    cases = [
        pytest.param(decoder, name, id=f"{decoder}-{name}")
        for name in names
        for decoder in DECODERS
        if decoder != "nvdec" or name in NVDEC_CLIPS
    ]
    return pytest.mark.parametrize(("make_decoder", "name"), cases, indirect=["make_decoder"])


@every_decoder(CLIPS)
def test_all_frames_with_exact_timestamps(
    name: str, folder: Path, make_decoder: Callable[..., Decoder]
) -> None:
    clip = CLIPS[name]
    with make_decoder(clip.build(folder)) as decoder:
        seen = decode_all(decoder)
    assert [frame.number for frame in seen] == clip.indices
    assert [frame.index for frame in seen] == list(range(len(clip.indices)))
    want = clip.expected_pts(decoder.info.time_base)
    got = [frame.pts for frame in seen]
    if clip.timestamps == "relative":
        want = [pts - want[0] for pts in want]
        got = [pts - got[0] for pts in got]
    assert got == want
    assert decoder.stats.frames == len(seen)
    assert decoder.stats.repaired_pts == clip.repaired_pts
    assert decoder.stats.corrupt_packets == 0
    assert decoder.stats.concealed_frames == 0


@every_decoder(CLIPS)
def test_pictures(name: str, folder: Path, make_decoder: Callable[..., Decoder]) -> None:
    clip = CLIPS[name]
    with make_decoder(clip.build(folder)) as decoder:
        seen = decode_all(decoder)
    format = decoder.info.format
    assert (format.width, format.height, format.layout) == (clip.width, clip.height, clip.layout)
    # A 10-bit sample lies in the high bits: 8-bit levels times 256.
    scale = 256 if clip.layout is PixelLayout.P010 else 1
    chroma_height, chroma_width, _ = format.chroma_shape
    cb, cr = (
        picture[::2, ::2][:chroma_height, :chroma_width]
        for picture in chroma_pictures(clip.width, clip.height)
    )
    if clip.gray:
        cb, cr = np.full_like(cb, 128), np.full_like(cr, 128)
    for frame, number in zip(seen, clip.indices, strict=True):
        wanted = (luma_picture(number, clip.width, clip.height), cb, cr)
        planes = (frame.luma, frame.chroma[..., 0], frame.chroma[..., 1])
        for plane, picture in zip(planes, wanted, strict=True):
            if clip.lossless:
                np.testing.assert_array_equal(plane, picture.astype(plane.dtype) * scale)
            else:
                error = np.abs(plane / scale - picture.astype(float)).mean()
                assert error <= clip.tolerance
        if clip.layout is PixelLayout.P010:
            assert not np.any(frame.luma & 0x3F)
            assert not np.any(frame.chroma & 0x3F)


SEEKABLE = [
    "bframes.mp4",
    "bframes.mkv",
    "opengop.mkv",
    "bluray.ts",
    "wrap.ts",
    "vfr.mp4",
    "editlist.mp4",
    "trimmed.mov",
    "late.mp4",
    "mpeg4.avi",
    "interlaced.mp4",
]


@every_decoder(SEEKABLE)
@pytest.mark.parametrize("share", [slow(0.1), 0.35, slow(0.6), slow(0.95)])
def test_a_stretch_is_the_same_as_in_the_whole(
    name: str, share: float, folder: Path, make_decoder: Callable[..., Decoder]
) -> None:
    path = CLIPS[name].build(folder)
    with make_decoder(path) as decoder:
        whole = decode_all(decoder)
        time_base = decoder.info.time_base
    start = round(float((whole[-1].pts - whole[0].pts) * time_base) * share, 3)
    begin = whole[0].pts + Fraction(str(start)) / time_base
    for duration in (None, 0.25):
        end = None if duration is None else begin + Fraction(str(duration)) / time_base
        want = [f for f in whole if f.pts >= begin and (end is None or f.pts < end)]
        with make_decoder(path, start_seconds=start, duration_seconds=duration) as decoder:
            got = decode_all(decoder)
        assert [f.pts for f in got] == [f.pts for f in want]
        assert [f.index for f in got] == list(range(len(got)))
        if name != "interlaced.mp4":  # whose first frame lacks the fields before it
            for a, b in zip(got, want, strict=True):
                np.testing.assert_array_equal(a.luma, b.luma)


def test_a_stretch_without_frames_is_an_error(
    folder: Path, make_decoder: Callable[..., Decoder]
) -> None:
    path = CLIPS["cfr.mp4"].build(folder)
    with (
        make_decoder(path, start_seconds=99.0) as decoder,
        pytest.raises(ConfigError, match="cannot start at 99 s"),
    ):
        decode_all(decoder)


def test_damaged_packets_are_patched_and_marked(tmp_path: Path) -> None:
    spec = VideoSpec(times=regular_times(30), options=LONG_GOP)
    path = damage(write_video(tmp_path / "damaged.mkv", spec), [10, 11])
    with by_cpu(path) as decoder:
        seen = decode_all(decoder)
    assert [frame.pts for frame in seen] == [40 * i for i in range(30)]
    concealed = [frame.index for frame in seen if frame.concealed]
    assert concealed
    assert decoder.stats.concealed_frames == len(concealed)
    wrong = [frame.index for frame in seen if frame.number != frame.index]
    assert set(wrong) <= set(range(min(concealed), 12))


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("codec", ["libx264", "ffv1"])
@pytest.mark.parametrize("lost", [[28, 29], [5, 6]])
def test_lost_packets_leave_a_gap(
    codec: str, threads: int, lost: list[int], tmp_path: Path
) -> None:
    # No reordering, so that packets and frames correspond; every frame a key frame.
    options = X264 | {"bf": "0", "g": "1"} if codec == "libx264" else {"g": "1"}
    spec = VideoSpec(codec=codec, times=regular_times(30), options=options)
    path = damage(write_video(tmp_path / "lost.mkv", spec), lost, whole=True)
    with by_cpu(path, threads=threads) as decoder:
        seen = decode_all(decoder)
    shown = [i for i in range(30) if i not in lost]
    assert [frame.number for frame in seen] == shown
    assert [frame.pts for frame in seen] == [40 * i for i in shown]
    assert decoder.stats.corrupt_packets >= 1


@pytest.mark.parametrize("threads", [1, 4])
def test_the_last_frames_survive_a_damaged_last_packet(threads: int, tmp_path: Path) -> None:
    spec = VideoSpec(times=regular_times(30), options=X264 | {"bf": "0", "g": "12"})
    path = damage(write_video(tmp_path / "last.mkv", spec), [29], whole=True)
    with by_cpu(path, threads=threads) as decoder:
        seen = decode_all(decoder)
    assert [frame.number for frame in seen] == list(range(29))


@pytest.mark.parametrize("suffix", ["mkv", "ts", "flv"])
def test_a_truncated_file_ends_at_its_last_frame(suffix: str, tmp_path: Path) -> None:
    spec = VideoSpec(times=regular_times(50), options=X264 | {"bf": "0", "g": "10"})
    path = truncate(write_video(tmp_path / f"cut.{suffix}", spec), 0.6)
    with by_cpu(path) as decoder:
        seen = decode_all(decoder)
    intact = [frame.number for frame in seen if not frame.concealed]
    assert 15 <= len(intact) < 50
    assert intact == list(range(len(intact)))


def test_a_video_shorter_than_its_header_says_is_reported(tmp_path: Path) -> None:
    spec = VideoSpec(times=regular_times(100), options=X264)
    path = truncate(write_video(tmp_path / "cut.mkv", spec), 0.5)
    with CpuDecoder(path) as decoder:
        decode_all(decoder)
    assert [event.kind for event in decoder.events] == ["warning"]
    assert "header says 4.00 s" in decoder.events[0].message


@pytest.mark.parametrize("b_frames", ["0", "2", "5"])
@pytest.mark.parametrize("count", [10, 11])
def test_the_last_frame_of_an_mp4_has_its_own_length(
    b_frames: str, count: int, tmp_path: Path
) -> None:
    """MP4 stores decoding times: with B-frames another packet has the long last frame's length."""
    options = {"bf": b_frames, "b_strategy": "0", "g": "50"}
    times = [each + (3 if i > 4 else 0) for i, each in enumerate(regular_times(count))]
    spec = VideoSpec(times=times, rate=Fraction(1, 3), options=options)
    with CpuDecoder(write_video(tmp_path / "long.mp4", spec)) as decoder:
        seen = decode_all(decoder)
    assert not decoder.events
    lengths = [*(b - a for a, b in itertools.pairwise(times)), Fraction(3)]
    assert [frame.duration * decoder.info.time_base for frame in seen] == lengths


def test_a_header_that_counts_far_more_frames_is_reported(tmp_path: Path) -> None:
    """The last packets are intact, so only the number of frames shows the damage."""
    spec = VideoSpec(times=regular_times(100), options=X264 | {"bf": "0", "g": "1"})
    path = write_video(tmp_path / "holes.mp4", spec)
    with CpuDecoder(path) as decoder:
        decode_all(decoder)
    assert not decoder.events
    data = bytearray(path.read_bytes())
    begin = data.index(b"mdat") + 4
    length = int.from_bytes(data[begin - 8 : begin - 4], "big") - 8
    first, last = begin + length // 3, begin + length * 95 // 100
    data[first:last] = bytes(last - first)
    path.write_bytes(data)
    with CpuDecoder(path) as decoder:
        seen = decode_all(decoder)
    assert len(seen) < 90
    told = f"the header says 100 frames, but only {len(seen)} could be decoded"
    assert told in [event.message for event in decoder.events]


def test_a_count_that_nothing_in_the_file_supports_is_reported(tmp_path: Path) -> None:
    """The duration is right and no packet is lost, so only the count in the header is wrong."""
    spec = VideoSpec(times=regular_times(100), options=X264 | {"bf": "0"})
    path = write_video(tmp_path / "count.mp4", spec)
    data = bytearray(path.read_bytes())
    at = data.index(b"stts") + 12  # of its only entry: frames, ticks each
    assert int.from_bytes(data[at : at + 4], "big") == 100
    data[at : at + 4] = (4000).to_bytes(4, "big")
    path.write_bytes(data)
    with CpuDecoder(path) as decoder:
        assert len(decode_all(decoder)) == 100
    assert [event.message for event in decoder.events] == [
        "the header says 4000 frames, but only 100 could be decoded"
    ]


def test_most_of_a_very_short_video_missing_is_reported(tmp_path: Path) -> None:
    spec = VideoSpec(times=regular_times(20), options=X264 | {"bf": "0", "g": "1"})
    path = write_video(tmp_path / "short.mkv", spec)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 3])
    with CpuDecoder(path) as decoder:
        assert len(decode_all(decoder)) < 10
    assert "may have been cut off" in decoder.events[-1].message


def test_a_long_gap_is_reported(tmp_path: Path) -> None:
    times = [*regular_times(3), *regular_times(3, start=30)]
    path = write_video(tmp_path / "gap.mkv", VideoSpec(times=times, options=X264 | {"bf": "0"}))
    with CpuDecoder(path) as decoder:
        seen = decode_all(decoder)
    assert [frame.pts for frame in seen] == [0, 40, 80, 30_000, 30_040, 30_080]
    assert [(event.kind, event.message) for event in decoder.events] == [
        ("notice", "no picture for 30 s")
    ]


def test_noise_in_the_middle_does_not_end_the_video(tmp_path: Path) -> None:
    spec = VideoSpec(times=regular_times(60), options=X264 | {"bf": "0", "g": "5"})
    path = write_video(tmp_path / "noise.ts", spec)
    data = bytearray(path.read_bytes())
    noise = np.random.default_rng(3)
    for position in range(len(data) // 3, len(data) // 2, 97):
        data[position] = int(noise.integers(256))
    path.write_bytes(bytes(data))
    with by_cpu(path) as decoder:
        seen = decode_all(decoder)
    assert seen[0].number == 0
    assert seen[-1].number == 59
    assert seen[-1].pts - seen[0].pts == 59 * 3600
    pts = [frame.pts for frame in seen]
    assert all(a < b for a, b in itertools.pairwise(pts))


@pytest.mark.parametrize(
    ("size", "aspect", "inside"),
    [
        # Into 96x72: bars above and below, bars at the sides, none.
        ((160, 96), 1, (slice(6, 64), slice(0, 96))),
        ((60, 90), 1, (slice(0, 72), slice(24, 72))),
        ((192, 144), 1, (slice(0, 72), slice(0, 96))),
        # Shown 128x96, though stored 64x96.
        ((64, 96), 2, (slice(0, 72), slice(0, 96))),
    ],
)
def test_a_change_of_size_and_depth_is_fitted_in(
    size: tuple[int, int], aspect: int, inside: tuple[slice, slice], tmp_path: Path
) -> None:
    def pixels(stream: VideoStream) -> None:
        stream.codec_context.sample_aspect_ratio = Fraction(aspect)

    first = write_video(tmp_path / "a.h264", VideoSpec(times=regular_times(5), options=X264))
    then = write_video(
        tmp_path / "b.h264",
        VideoSpec(
            times=regular_times(5),
            width=size[0],
            height=size[1],
            pixel_format="yuv422p10le",
            options=X264,
            setup=pixels,
        ),
    )
    path = tmp_path / "joined.h264"
    path.write_bytes(first.read_bytes() + then.read_bytes() + first.read_bytes())
    with by_cpu(path) as decoder:
        seen = decode_all(decoder)
    assert {frame.luma.shape for frame in seen} == {(72, 96)}
    numbers = [frame.number for frame in seen]
    fitted = seen[5:10]
    assert numbers[:5] == numbers[10:] == [0, 1, 2, 3, 4]
    assert [read_index(frame.luma[inside]) for frame in fitted] == [0, 1, 2, 3, 4]
    for frame in fitted:
        bars = np.ones_like(frame.luma, bool)
        bars[inside] = False
        assert np.all(frame.luma[bars] == 16)
        assert np.all(frame.chroma[bars[::2, ::2]] == 128)
    words = [event.message for event in decoder.events if event.kind == "notice"]
    assert words == [
        f"picture size changes to {size[0]}x{size[1]}: fitted into 96x72",
        "pixel format changes to yuv422p10le: converted",
        "picture size changes to 96x72",
        "pixel format changes to yuv420p",
    ]
    pts = [frame.pts for frame in seen]
    assert all(a < b for a, b in itertools.pairwise(pts))


def test_a_change_of_rotation_gets_a_notice(tmp_path: Path) -> None:
    first, then = tmp_path / "first.h264", tmp_path / "then.h264"
    clip = write_video(tmp_path / "clip.mp4", VideoSpec(times=regular_times(5), options=X264))
    ffmpeg("-i", clip, "-c", "copy", "-bsf:v", "h264_mp4toannexb", first)
    says = "h264_mp4toannexb,h264_metadata=display_orientation=insert:rotate=90"  # anticlockwise
    ffmpeg("-i", clip, "-c", "copy", "-bsf:v", says, then)
    path = tmp_path / "joined.h264"
    told = "rotation changes to 270°: frames are turned as the first"
    for parts, expected in (((first, then), [told]), ((then, then), [])):
        path.write_bytes(b"".join(part.read_bytes() for part in parts))
        with by_cpu(path) as decoder:
            decode_all(decoder)
        words = [event.message for event in decoder.events if event.kind == "notice"]
        assert [text for text in words if "rotat" in text] == expected


@pytest.mark.parametrize("size", [(96, 72), (160, 120)])
@pytest.mark.parametrize("full", [False, True])
def test_a_change_of_matrix_and_range_is_converted(
    full: bool, size: tuple[int, int], tmp_path: Path
) -> None:
    red, green, blue = 30, 160, 70

    def code(kr: float, kb: float, *, full: bool) -> tuple[float, float, float]:
        """ITU-T H.273, equations 38 to 49, of 8 bits."""
        luma = kr * red + (1 - kr - kb) * green + kb * blue
        cb, cr = (blue - luma) / (2 * (1 - kb)), (red - luma) / (2 * (1 - kr))
        if full:
            return luma, 128 + cb, 128 + cr
        return 16 + luma * 219 / 255, 128 + cb * 224 / 255, 128 + cr * 224 / 255

    def part(name: str, size: tuple[int, int], matrix: int, *, full: bool) -> bytes:
        kr_kb = {1: (0.2126, 0.0722), 6: (0.299, 0.114)}[matrix]

        def paint(frame: VideoFrame, index: int) -> None:
            for plane, value in zip(frame.planes, code(*kr_kb, full=full), strict=True):
                np.frombuffer(memoryview(plane), np.uint8)[:] = round(value)

        def tag(stream: VideoStream) -> None:
            stream.codec_context.colorspace = matrix
            stream.codec_context.color_range = 2 if full else 1

        spec = VideoSpec(
            times=regular_times(3),
            width=size[0],
            height=size[1],
            options=X264 | {"qp": "0"},
            setup=tag,
            touch=paint,
        )
        return write_video(tmp_path / name, spec).read_bytes()

    path = tmp_path / "joined.h264"
    first = part("a.h264", (96, 72), 6, full=False)
    path.write_bytes(first + part("b.h264", size, 1, full=full) + first)
    with by_cpu(path) as decoder:
        seen = decode_all(decoder)
    got = [(frame.luma[36, 48], *frame.chroma[18, 24]) for frame in seen]
    assert len(got) == 9
    wanted = code(0.299, 0.114, full=False)
    assert all(each == pytest.approx(wanted, abs=1.6) for each in got), got
    words = [event.message for event in decoder.events if event.kind == "notice"]
    assert [text for text in words if "size" not in text] == [
        "range or matrix of the colours changes: converted",
        "range or matrix of the colours changes",
    ]


@pytest.mark.parametrize("order", [2, 3])
def test_fields_that_only_the_container_tells_of_are_deinterlaced(
    order: int, tmp_path: Path
) -> None:
    with by_cpu(write_fields(tmp_path / "fields.mov", order)) as decoder:
        seen = decode_all(decoder)
    assert decoder.info.interlaced
    assert len(seen) == 4
    # The first field of each frame stays, and the other one is made from it.
    assert [frame.luma[20 + order % 2, 20] for frame in seen] == [60, 90, 120, 150]
    for frame in seen[1:-1]:
        assert np.abs(np.diff(frame.luma[8:-8].astype(int), axis=0)).max() <= 4


def test_a_clock_that_restarts_continues(tmp_path: Path) -> None:
    twice = tmp_path / "twice.ts"
    part = write_video(tmp_path / "part.ts", VideoSpec(times=regular_times(60), options=X264))
    twice.write_bytes(part.read_bytes() * 2)
    with by_cpu(twice) as decoder:
        seen = decode_all(decoder)
    assert len(seen) == 120
    pts = [frame.pts for frame in seen]
    steps = {b - a for a, b in itertools.pairwise(pts)}
    assert steps == {3600}


@pytest.mark.parametrize("start", [3, 6])
def test_a_part_of_joined_recordings_is_that_of_the_whole(
    start: int, tmp_path: Path, make_decoder: Callable[..., Decoder]
) -> None:
    joined = tmp_path / "joined.ts"
    options = X264 | {"g": "5", "bf": "0"}
    part = write_video(tmp_path / "part.ts", VideoSpec(times=regular_times(125), options=options))
    joined.write_bytes(part.read_bytes() * 2)
    with make_decoder(joined) as decoder:
        whole = decode_all(decoder)
    with make_decoder(joined, start_seconds=start) as decoder:
        seen = decode_all(decoder)
    assert [(frame.pts, frame.number) for frame in seen] == [
        (frame.pts, frame.number) for frame in whole[25 * start :]
    ]


def test_joined_recordings_with_a_damaged_end_have_no_frame_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longer one comes first, so it has times after the last one of the other."""
    options, parts = X264 | {"bf": "0", "g": "5"}, []
    for count in (125, 60):
        spec = VideoSpec(times=regular_times(count), options=options)
        parts.append(write_video(tmp_path / f"{count}.ts", spec).read_bytes())
    joined = tmp_path / "joined.ts"
    joined.write_bytes(b"".join(parts))
    decode = TimedDecoder.decode

    def fail_at_the_end(decoder: TimedDecoder, packet: Any) -> list[VideoFrame]:
        if packet is None:
            raise av.error.InvalidDataError(0, "damaged")
        return decode(decoder, packet)

    with by_cpu(joined) as decoder:
        monkeypatch.setattr(TimedDecoder, "decode", fail_at_the_end)
        numbers = [frame.number for frame in decode_all(decoder)]
    assert numbers == [*range(125), *range(60)][: len(numbers)]
    (fault,) = [event.message for event in decoder.events if event.kind == "fault"]
    assert fault == f"cannot decode {185 - len(numbers)} pictures at the end"


@pytest.mark.parametrize("level", [0, 128, 255])
def test_rgb_becomes_bt709_limited_range(level: int, tmp_path: Path) -> None:
    red, green, blue = level, 255 - level // 2, 64

    def paint(frame: VideoFrame, index: int) -> None:
        for plane, value in zip(frame.planes, (green, blue, red), strict=True):
            np.frombuffer(memoryview(plane), np.uint8)[:] = value

    spec = VideoSpec(
        codec="utvideo",
        pixel_format="gbrp",
        times=regular_times(2),
        time_base=Fraction(1, 25),
        touch=paint,
    )
    with by_cpu(write_video(tmp_path / "rgb.avi", spec)) as decoder:
        seen = decode_all(decoder)
    kr, kb = 0.2126, 0.0722  # ITU-R BT.709
    luma = kr * red + (1 - kr - kb) * green + kb * blue
    want = (
        16 + luma * 219 / 255,
        128 + (blue - luma) / (2 * (1 - kb)) * 224 / 255,
        128 + (red - luma) / (2 * (1 - kr)) * 224 / 255,
    )
    got = (seen[0].luma[5, 5], seen[0].chroma[5, 5, 0], seen[0].chroma[5, 5, 1])
    assert got == pytest.approx(want, abs=1.01)


def test_full_range_samples_are_not_rescaled(tmp_path: Path) -> None:
    spec = VideoSpec(
        codec="mjpeg",
        pixel_format="yuvj444p",
        times=regular_times(2),
        time_base=Fraction(1, 25),
        options={"qmin": "1", "qmax": "1"},
    )
    with by_cpu(write_video(tmp_path / "full.avi", spec)) as decoder:
        seen = decode_all(decoder)
    assert decoder.info.format.color.full_range
    error = np.abs(seen[0].luma.astype(int) - luma_picture(0, 96, 72))
    assert error.mean() < 0.5


class TestRing:
    def test_a_second_pass_starts_again(
        self, folder: Path, make_decoder: Callable[..., Decoder]
    ) -> None:
        with make_decoder(CLIPS["bframes.mkv"].build(folder)) as decoder:
            first = [frame.number for frame in decode_all(decoder)]
            assert [frame.number for frame in decode_all(decoder)] == first

    def test_stopping_early_keeps_only_what_was_handed_out(
        self, folder: Path, make_decoder: Callable[..., Decoder]
    ) -> None:
        with make_decoder(CLIPS["bframes.mkv"].build(folder)) as decoder:
            ring = ring_for(decoder.info.format, slots=4)
            frames = decoder.frames(ring)
            kept = [next(frames), next(frames)]  # type: ignore[call-overload]
            frames.close()  # type: ignore[attr-defined]
            assert ring.in_use == 2
            for frame in kept:
                ring.release(frame)
            assert ring.in_use == 0

    def test_a_slot_of_the_wrong_shape_is_given_back(
        self, folder: Path, make_decoder: Callable[..., Decoder]
    ) -> None:
        ring = ring_for(FrameFormat(width=10, height=10))
        with make_decoder(CLIPS["cfr.mp4"].build(folder)) as decoder:
            with pytest.raises(ValueError):
                next(iter(decoder.frames(ring)))
            assert ring.in_use == 0

    def test_a_closed_ring_ends_decoding(
        self, folder: Path, make_decoder: Callable[..., Decoder]
    ) -> None:
        with make_decoder(CLIPS["bframes.mkv"].build(folder)) as decoder:
            ring = ring_for(decoder.info.format, slots=1)
            ended = threading.Event()

            def run() -> None:
                with pytest.raises(RingClosedError):
                    list(decoder.frames(ring))
                ended.set()

            thread = threading.Thread(target=run)
            thread.start()
            ring.close()
            thread.join(20)
            assert ended.is_set()

    def test_close_twice(self, folder: Path, make_decoder: Callable[..., Decoder]) -> None:
        decoder = make_decoder(CLIPS["cfr.mp4"].build(folder))
        decoder.close()
        decoder.close()


def test_no_frames_is_an_open_error(tmp_path: Path) -> None:
    spec = VideoSpec(codec="mpeg4", times=[], time_base=Fraction(1, 25))
    path = write_video(tmp_path / "none.avi", spec)
    with pytest.raises(OpenError, match="no video frame"):
        CpuDecoder(path)
