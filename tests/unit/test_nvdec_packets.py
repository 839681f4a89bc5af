"""NVDEC's side of decoding without NVDEC: packets in, times and order of the pictures out.

A stand-in for PyNvVideoCodec takes the same packets, by address, and decodes them with FFmpeg; it
passes a number through from packet to picture as NVDEC does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import av
import numpy as np
import pytest
from av.packet import Packet

from bgsoft.decode import nv_caps, nv_session
from bgsoft.decode.base import DecodeSettings
from bgsoft.decode.cpu import CpuDecoder
from bgsoft.decode.nv_caps import caps_reason, nv_codec, stream_reason
from bgsoft.decode.nv_reader import NvReader
from bgsoft.decode.nv_session import NvPicture, NvSession, PacketTimes
from bgsoft.decode.presentation import Presentation
from bgsoft.errors import BackendUnavailableError, ConfigError, DecodeError
from bgsoft.media.probe import probe
from bgsoft.pipeline.ring import FrameRing
from bgsoft.report import Event
from tests.assets import CLIPS
from tests.fakes import host_planes
from tests.synthetic import VideoSpec, damage, read_index, regular_times, write_video

TAKEN = [
    "cfr.mp4",
    "bframes.mp4",
    "bframes.mkv",
    "ntsc.mkv",
    "vfr.mp4",
    "vfr.mkv",
    "late.mp4",
    "editlist.mp4",
    "trimmed.mov",
    "opengop.mkv",
    "bluray.ts",
    "wrap.ts",
    "av1.mp4",
    "hdr10.mp4",
    "hlg.mkv",
    "full.mp4",
    "upright-90.mp4",
    "mirrored-270.mp4",
]
"""Clips that NVDEC can decode."""
X264 = {"preset": "veryfast", "threads": "1", "bf": "2", "g": "12"}


class StandInError(Exception):
    """As PyNvVideoCodec's own errors, which have no base but Exception."""


class UnsupportedError(Exception):
    """The other one."""


class _Surface:
    def __init__(self, frame: av.VideoFrame) -> None:
        self._frame = frame
        self.format = "P016" if frame.format.name.endswith("10le") else "NV12"

    def getPTS(self) -> int:  # noqa: N802  (the library's name)
        return self._frame.pts or 0

    def GetPtrToPlane(self, plane: int) -> int:  # noqa: N802
        return int(self._frame.planes[plane].buffer_ptr)


class _Decoder:
    def __init__(self, codec: str) -> None:
        self._codec = codec
        self._context: Any = None
        self._size = (0, 0)
        self.faults: Iterator[Exception | None] = iter(())

    def Decode(self, packet: Any) -> list[_Surface]:  # noqa: N802
        fault = next(self.faults, None)
        if fault is not None:
            raise fault
        if self._context is None:
            self._context = av.CodecContext.create(self._codec, "r")
            self._context.thread_count = 1
        fed = None
        if packet.bsl:
            fed = Packet(ctypes.string_at(packet.bsl_data, packet.bsl))
            fed.pts = packet.pts
        try:
            frames = self._context.decode(fed)
        except av.FFmpegError as exc:
            raise StandInError(f"Decode : \nError code : 999\nError Type : {exc}\n") from exc
        if fed is None:
            self._context = None
        if frames:
            self._size = (frames[0].width, frames[0].height)
        return [_Surface(frame) for frame in frames]

    def GetWidth(self) -> int:  # noqa: N802
        return self._size[0]

    def GetHeight(self) -> int:  # noqa: N802
        return self._size[1]


class StandIn:
    """As much of the PyNvVideoCodec module as decoding needs."""

    cudaVideoCodec = SimpleNamespace(  # noqa: N815
        H264="h264", HEVC="hevc", AV1="libdav1d", VP9="vp9"
    )
    Pixel_Format = SimpleNamespace(P016="P016", NV12="NV12")
    PyNvVCException = StandInError
    PyNvVCExceptionUnsupported = UnsupportedError

    def __init__(self) -> None:
        self.decoders: list[_Decoder] = []

    def CreateDecoder(self, **settings: Any) -> _Decoder:  # noqa: N802
        assert settings["usedevicememory"]
        assert settings["cudastream"] == 1234
        self.decoders.append(_Decoder(settings["codec"]))
        return self.decoders[-1]

    @staticmethod
    def PacketData() -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(bsl_data=0, bsl=0, pts=0)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn()
    monkeypatch.setattr(nv_session, "video_codec", lambda: stand_in)
    errors = (StandInError, UnsupportedError, RuntimeError, ValueError)
    monkeypatch.setattr(nv_session, "codec_errors", lambda: errors)
    return stand_in


class Decoded:
    """What an NVDEC decoder would hand out, without the copies."""

    def __init__(self, path: Path, settings: DecodeSettings | None = None) -> None:
        self.info = probe(path)
        self.events: list[Event] = []
        stream: Any = SimpleNamespace(ptr=1234, synchronize=lambda: None)
        device: Any = SimpleNamespace(number=0, context=1)
        self.session = NvSession(nv_codec(self.info), device, stream)
        self.reader = NvReader(self.info, self.session)
        self._presentation = Presentation[NvPicture](
            self.info, settings or DecodeSettings(), lambda picture: picture, self.events
        )

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """(pts, duration, frame number shown) of each frame."""
        pictures = self.reader.frames(self._presentation.start_pts)
        for shown in self._presentation.wanted(pictures, lambda: self.reader.read_error):
            picture = shown.item
            wide = self.info.format.bit_depth > 8
            # The stand-in's rows are padded; its first ones tell enough.
            yield shown.pts, picture.duration, -1 if wide else self._number(picture)

    def _number(self, picture: NvPicture) -> int:
        pitch = (picture.width + 63) // 64 * 64
        memory = (ctypes.c_uint8 * (pitch * picture.height)).from_address(picture.pointer)
        luma = np.frombuffer(memory, np.uint8).reshape(picture.height, pitch)
        try:
            return read_index(luma[:, : picture.width])
        except AssertionError:
            return -1


def by_cpu(path: Path, settings: DecodeSettings | None = None) -> list[tuple[int, int]]:
    decoder = CpuDecoder(path, settings)
    format = decoder.info.format
    ring = FrameRing(1, lambda slot: host_planes(format, slot))
    seen = []
    for frame in decoder.frames(ring):
        seen.append((frame.pts, frame.duration))
        ring.release(frame)
    return seen


@pytest.mark.parametrize("name", TAKEN)
def test_times_are_those_of_the_cpu_decoder(clip_folder: Path, name: str, library: StandIn) -> None:
    path = CLIPS[name].build(clip_folder)
    decoded = Decoded(path)
    frames = list(decoded)
    expected = by_cpu(path)
    assert [pts for pts, _, _ in frames] == [pts for pts, _ in expected]
    known = [(got, want) for (_, got, _), (_, want) in zip(frames, expected, strict=True) if got]
    assert all(got == want for got, want in known)
    assert decoded.reader.corrupt_packets == 0
    # Anew, from the beginning: pictures of the first pass must not come out again.
    assert [pts for pts, _, _ in decoded] == [pts for pts, _ in expected]


@pytest.mark.parametrize(
    "name", ["bframes.mp4", "vfr.mkv", "opengop.mkv", "bluray.ts", "trimmed.mov"]
)
@pytest.mark.parametrize(("start", "duration"), [(0.3, None), (0.0, 0.5), (0.4, 0.2), (0.41, 0.01)])
def test_parts_are_those_of_the_cpu_decoder(
    clip_folder: Path, name: str, start: float, duration: float | None, library: StandIn
) -> None:
    path = CLIPS[name].build(clip_folder)
    settings = DecodeSettings(start_seconds=start, duration_seconds=duration)
    try:
        expected = [pts for pts, _ in by_cpu(path, settings)]
    except ConfigError:
        with pytest.raises(ConfigError):
            list(Decoded(path, settings))
        return
    assert [pts for pts, _, _ in Decoded(path, settings)] == expected


@pytest.mark.parametrize(
    "name", ["bframes.mp4", "vfr.mp4", "opengop.mkv", "editlist.mp4", "trimmed.mov"]
)
def test_each_picture_has_its_own_time(clip_folder: Path, name: str, library: StandIn) -> None:
    clip = CLIPS[name]
    numbers = [number for _, _, number in Decoded(clip.build(clip_folder))]
    assert numbers == list(range(clip.first_shown, len(clip.spec.times)))


def test_damaged_packets_are_counted_and_passed_over(tmp_path: Path, library: StandIn) -> None:
    path = tmp_path / "damaged.mkv"
    write_video(path, VideoSpec(times=regular_times(36), options=X264))
    damage(path, [17, 18], whole=True)
    decoded = Decoded(path)
    frames = [pts for pts, _, _ in decoded]
    assert decoded.reader.corrupt_packets > 0
    assert len(frames) >= 24
    assert frames == sorted(set(frames))


def _clip(folder: Path) -> Path:
    return CLIPS["bframes.mp4"].build(folder)


def test_a_decoder_that_fails_for_good_is_an_error_with_its_time(
    clip_folder: Path, library: StandIn
) -> None:
    decoded = Decoded(_clip(clip_folder))
    text = "HandlePictureDecode : \nError code : 700\nError Type : launch failed\nat x.cpp:1\n"
    library.decoders[0].faults = iter([None] * 10 + [StandInError(text)] * 100)
    with pytest.raises(DecodeError, match="NVDEC: launch failed") as caught:
        list(decoded)
    assert caught.value.pts is not None
    assert decoded.session.corrupt_packets == 8


def test_single_faults_are_passed_over(clip_folder: Path, library: StandIn) -> None:
    decoded = Decoded(_clip(clip_folder))
    library.decoders[0].faults = iter([None] * 12 + [StandInError("hiccup")] + [None] * 100)
    frames = list(decoded)
    assert decoded.reader.corrupt_packets == 1
    assert len(frames) >= len(CLIPS["bframes.mp4"].spec.times) - 8


def test_what_the_gpu_cannot_take_midway_is_an_error_at_once(
    clip_folder: Path, library: StandIn
) -> None:
    decoded = Decoded(_clip(clip_folder))
    library.decoders[0].faults = iter([None] * 5 + [UnsupportedError("bit depth changes")])
    with pytest.raises(DecodeError, match="bit depth changes"):
        list(decoded)


def _packet(pts: int | None, *, discard: bool = False, key: bool = False) -> Any:
    return SimpleNamespace(pts=pts, dts=pts, duration=None, is_keyframe=key, is_discard=discard)


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
    assert stream_reason(info) is None
    assert reason in (stream_reason(replace(info, **changes)) or "")


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
        ({}, (4098, 100), "its most"),
        ({}, (100, 4098), "its most"),
        ({}, (46, 100), "its least"),
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

    monkeypatch.setattr(nv_caps, "video_codec", missing)
    with pytest.raises(BackendUnavailableError, match="pip install"):
        nv_caps.decoder_caps(0, "H264", 8)
