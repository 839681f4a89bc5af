"""NVDEC's part of decoding without NVDEC: packets, times and order of pictures.

``contract/test_decode.py`` checks that its frames are the CPU decoder's.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from av.video.stream import VideoStream

from bgsoft.cuda import video_codec
from bgsoft.decode.cpu import CpuDecoder
from bgsoft.decode.nv_stream import PacketTimes, caps_reason, nv_codec
from bgsoft.errors import BackendUnavailableError, DecodeError
from bgsoft.media.inventory import Kind
from bgsoft.media.probe import probe
from tests.assets import CLIPS
from tests.carried import caption, write_captioned
from tests.fakes import host_frames
from tests.nvdec_stand_in import StandIn, StandInDecoder, StandInError, UnsupportedError, install
from tests.synthetic import VideoSpec, damage, regular_times, write_video

X264 = {"preset": "veryfast", "threads": "1", "bf": "2", "g": "12"}


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return install(monkeypatch)


def times_of(decoder: StandInDecoder | CpuDecoder) -> list[tuple[int, int]]:
    """(pts, duration) of each frame."""
    return [(frame.pts, frame.duration) for frame in host_frames(decoder)]


@pytest.mark.parametrize("name", ["bframes.mkv", "vfr.mp4", "bluray.ts"])
def test_durations_are_those_of_the_cpu_decoder(
    clip_folder: Path, name: str, library: StandIn
) -> None:
    path = CLIPS[name].build(clip_folder)
    both = zip(times_of(StandInDecoder(path)), times_of(CpuDecoder(path)), strict=True)
    assert all(got == want for (_, got), (_, want) in both if got)


def test_messages_come_with_their_pictures(tmp_path: Path, library: StandIn) -> None:
    path = write_captioned(tmp_path / "a.mp4", "libx264")
    both = ([f.messages for f in host_frames(d)] for d in (StandInDecoder(path), CpuDecoder(path)))
    device, host = both
    assert device == host
    # ATSC A/53-4, 6.2.3: one pair of bytes, in use, between a head and an end.
    head, end = b"\xb5\x00\x31GA94\x03\x41\x00", b"\xff"
    assert host == [((Kind.CAPTIONS, head + caption(index) + end),) for index in range(12)]


def test_damaged_packets_are_counted_and_passed_over(tmp_path: Path, library: StandIn) -> None:
    path = tmp_path / "damaged.mkv"
    write_video(path, VideoSpec(times=regular_times(36), options=X264))
    damage(path, [17, 18], whole=True)
    decoded = StandInDecoder(path)
    frames = [pts for pts, _ in times_of(decoded)]
    assert decoded.stats.corrupt_packets > 0
    assert len(frames) >= 24
    assert frames == sorted(set(frames))


def test_a_change_of_parameters_is_reported(tmp_path: Path, library: StandIn) -> None:
    def part(name: str, matrix: int) -> bytes:
        def tag(stream: VideoStream) -> None:
            stream.codec_context.colorspace = matrix

        spec = VideoSpec(times=regular_times(24), options=X264, setup=tag)
        return write_video(tmp_path / name, spec).read_bytes()

    same, other = tmp_path / "same.ts", tmp_path / "other.ts"
    same.write_bytes(part("a.ts", 6) * 2)
    other.write_bytes(part("a.ts", 6) + part("b.ts", 1))
    notices = []
    for path in (same, other):
        decoded = StandInDecoder(path)
        assert len([*host_frames(decoded)]) == 48
        notices.append([event.message for event in decoded.events if event.kind == "notice"])
    text = "the stream's parameters change: if its colours do, --decode cpu converts them"
    assert notices == [[], [text]]


def _clip(folder: Path) -> Path:
    return CLIPS["bframes.mp4"].build(folder)


def test_a_decoder_that_fails_for_good_is_an_error_with_its_time(
    clip_folder: Path, library: StandIn
) -> None:
    decoded = StandInDecoder(_clip(clip_folder))
    text = "HandlePictureDecode : \nError code : 700\nError Type : launch failed\nat x.cpp:1\n"
    library.decoders[0].faults = iter([None] * 10 + [StandInError(text)] * 100)
    with pytest.raises(DecodeError, match="NVDEC: launch failed") as caught:
        times_of(decoded)
    assert caught.value.pts is not None
    assert decoded.stats.corrupt_packets == 8


def test_single_faults_are_passed_over(clip_folder: Path, library: StandIn) -> None:
    decoded = StandInDecoder(_clip(clip_folder))
    library.decoders[0].faults = iter([None] * 12 + [StandInError("hiccup")] + [None] * 100)
    frames = times_of(decoded)
    assert decoded.stats.corrupt_packets == 1
    assert len(frames) >= len(CLIPS["bframes.mp4"].spec.times) - 8


def test_what_the_gpu_cannot_take_midway_is_an_error_at_once(
    clip_folder: Path, library: StandIn
) -> None:
    decoded = StandInDecoder(_clip(clip_folder))
    library.decoders[0].faults = iter([None] * 5 + [UnsupportedError("bit depth changes")])
    with pytest.raises(DecodeError, match="bit depth changes"):
        times_of(decoded)


def _packet(pts: int | None, *, discard: bool = False, key: bool = False) -> Any:
    return SimpleNamespace(
        pts=pts, dts=pts, duration=None, is_keyframe=key, opaque=None, is_discard=discard
    )


def test_times_come_back_in_presentation_order() -> None:
    times = PacketTimes()
    # B-frames: decoding order on the way in, rising marks on the way out.
    marks = [times.enter(_packet(pts)) for pts in (-5, 20, 0, 10, 30)]
    assert min(marks) > 0
    back = [times.leave(mark) for mark in sorted(marks)]
    assert [entry.pts for entry in back if entry is not None] == [-5, 0, 10, 20, 30]
    again = times.leave(marks[0])
    assert again is not None
    assert again.pts is None, "a second picture of one packet has no time of its own"


def test_doubled_and_missing_times_come_back_in_the_packets_order() -> None:
    times = PacketTimes()
    marks = [times.enter(_packet(pts)) for pts in (4, None, 4)]
    back = [times.leave(mark) for mark in sorted(marks)]
    assert [entry.pts for entry in back if entry is not None] == [4, None, 4]


def test_what_an_edit_list_cuts_off_is_not_shown() -> None:
    times = PacketTimes()
    assert times.leave(times.enter(_packet(7, discard=True))) is None


def test_a_second_edit_does_not_mix_with_the_first() -> None:
    times = PacketTimes()
    first = [times.enter(_packet(pts, key=pts == 0)) for pts in (0, 60, 20, 40)]
    # Hidden from 30 on, shown from 80 on; all in a group of pictures of its own.
    second = [
        times.enter(_packet(pts, key=pts == 30, discard=pts < 80)) for pts in (30, 90, 50, 80)
    ]
    assert max(first) < min(second)
    back = [times.leave(mark) for mark in sorted(first + second)]
    assert [entry.pts for entry in back if entry is not None] == [0, 20, 40, 60, 80, 90]


def test_packets_without_pictures_are_forgotten() -> None:
    times = PacketTimes()
    first = times.enter(_packet(1))
    for pts in range(1000):
        last = times.enter(_packet(pts))
    forgotten, kept = times.leave(first), times.leave(last)
    assert forgotten is not None
    assert forgotten.pts is None
    assert kept is not None
    assert kept.pts == 999


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("interlaced.mp4", "interlaced"),
        ("prores.mov", "prores is decoded on the CPU"),
        ("mjpeg.avi", "mjpeg is decoded on the CPU"),
        ("vp9-odd.webm", "odd width"),
        ("ten.mkv", "ffv1"),
    ],
)
def test_the_cpu_keeps_what_nvdec_cannot_do(clip_folder: Path, name: str, reason: str) -> None:
    info = probe(CLIPS[name].build(clip_folder))
    with pytest.raises(BackendUnavailableError, match=reason):
        nv_codec(info)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"pixel_format": "yuv422p"}, "yuv422p is converted on the CPU"),
        ({"container": "h264"}, "timestamps"),
        ({"container": "avi"}, "timestamps"),
    ],
)
def test_reasons(clip_folder: Path, changes: dict[str, Any], reason: str) -> None:
    info = probe(_clip(clip_folder))
    assert nv_codec(info).label == "H.264"
    with pytest.raises(BackendUnavailableError, match=reason):
        nv_codec(replace(info, **changes))


CAPS = {
    "supported": 1,
    "width_min": 48,
    "height_min": 16,
    "width_max": 4096,
    "height_max": 4096,
    "mb_num_max": 65_536,
}


@pytest.mark.parametrize(
    ("caps", "size", "reason"),
    [
        ({}, (1920, 1080), None),
        ({}, (4096, 4096), None),
        ({"supported": 0}, (1920, 1080), "does not decode H.264 at 8 bits"),
        ({}, (4098, 100), "its maximum"),
        ({}, (100, 4098), "its maximum"),
        ({}, (46, 100), "its minimum"),
        ({"mb_num_max": 8159}, (1920, 1080), "macroblocks"),
        ({"mb_num_max": 8160}, (1920, 1080), None),
    ],
)
def test_capabilities(
    clip_folder: Path, caps: dict[str, int], size: tuple[int, int], reason: str | None
) -> None:
    info = replace(probe(_clip(clip_folder)), coded_width=size[0], coded_height=size[1])
    answer = caps_reason(CAPS | caps, info)
    if reason is None:
        assert answer is None
    else:
        assert answer is not None
        assert reason in answer


def test_a_missing_library_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise BackendUnavailableError("PyNvVideoCodec is missing: pip install '.[gpu]'")

    monkeypatch.setattr(video_codec, "video_codec", missing)
    with pytest.raises(BackendUnavailableError, match="pip install"):
        video_codec.decoder_caps(0, "H264", 8)
