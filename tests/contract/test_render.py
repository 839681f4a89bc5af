"""Whole renders of every kind of clip: frames, times, sound and colour survive."""

from __future__ import annotations

import dataclasses
import gc
import json
import re
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pytest
from av.container import InputContainer

import bgsoft
from bgsoft.decode.base import DecodeSettings
from bgsoft.decode.cpu import CpuDecoder
from bgsoft.errors import ConfigError, OpenError, OutputError, RenderCancelledError
from bgsoft.report import Event, Progress
from bgsoft.ring import FrameRing
from tests.assets import CLIPS, VFR_TIMES, Clip
from tests.face_clips import SAMPLE, write_small
from tests.fakes import host_planes
from tests.marks import crossed, slow
from tests.outside import described_by_ffmpeg
from tests.rendering import read_back
from tests.synthetic import (
    SoundSpec,
    VideoSpec,
    damage,
    read_index,
    regular_times,
    truncate,
    write_movie,
    write_video,
)

QUICK = {"face": "off", "matte": "fast", "mask_every": 25}
UNCHANGED = {"effect": "dim", "strength": 0.0, "preset": None, **QUICK}
"""Settings that render every pixel as it was, so that frames can be told by their content."""
REPORT_FIELDS = {
    *("bgsoft_version", "input", "output", "frames_decoded", "frames_encoded", "duration_s"),
    *("wall_s", "fps", "settings", "model", "stages", "events", "audio", "peak_rss_bytes"),
    *("peak_vram_bytes", "versions"),
}


def times_and_numbers(path: Path) -> tuple[list[Fraction], list[int]]:
    """Presentation times (seconds) and the frame numbers that the pictures show."""
    times, numbers = [], []
    with CpuDecoder(path, DecodeSettings()) as decoder:
        ring = FrameRing(2, lambda slot: host_planes(decoder.info.format, slot))
        shift = 8 if decoder.info.format.bit_depth == 10 else 0
        for frame in decoder.frames(ring):
            times.append(frame.pts * frame.time_base)
            numbers.append(read_index(frame.luma, shift))
            ring.release(frame)
    return times, numbers


def audio_bytes(path: Path) -> list[bytes]:
    with av.open(str(path), "r") as source:
        assert isinstance(source, InputContainer)
        data = {stream.index: b"" for stream in source.streams.audio}
        for packet in source.demux(*source.streams.audio):
            data[packet.stream.index] += bytes(packet)
    return list(data.values())


def by_their_pictures_alone(clip: Clip) -> bool:
    """Return whether a clip differs from others in its pictures only, which decoder tests cover."""
    turned = clip.name.startswith(("upright", "mirrored")) and clip.name != "upright-90.mp4"
    return turned or (clip.spec.codec == "ffv1" and clip.name not in ("odd.mkv", "ten.mkv"))


@pytest.mark.parametrize(
    "clip",
    [slow(clip) if by_their_pictures_alone(clip) else clip for clip in CLIPS.values()],
    ids=lambda clip: clip.name,
)
def test_every_clip_keeps_its_frames_and_times(
    clip: Clip, clip_folder: Path, tmp_path: Path
) -> None:
    source = clip.build(clip_folder)
    target = tmp_path / "out.mkv"
    report = bgsoft.render(source, target, speed="ultrafast", quality=12, **UNCHANGED)
    assert report.frames_decoded == report.frames_encoded == len(clip.indices)
    times, numbers = times_and_numbers(target)
    assert numbers == clip.indices
    with CpuDecoder(source) as decoder:
        ring = FrameRing(2, lambda slot: host_planes(decoder.info.format, slot))
        expected = []
        for frame in decoder.frames(ring):
            expected.append(frame.pts * frame.time_base)
            ring.release(frame)
    # Matroska counts milliseconds, and moves everything where a track begins before zero.
    offset = times[0] - expected[0]
    for time, due in zip(times, expected, strict=True):
        assert abs(time - due - offset) <= Fraction(1, 1000)
    if expected[0] >= 0 and source.suffix != ".ts":
        assert abs(offset) <= Fraction(1, 1000)


@crossed(suffix=[".mp4", ".mov"], name=["vfr.mp4", "bframes.mp4", "ntsc.mkv", "editlist.mp4"])
def test_mp4_times_are_exact(name: str, suffix: str, clip_folder: Path, tmp_path: Path) -> None:
    source = CLIPS[name].build(clip_folder)
    target = tmp_path / f"out{suffix}"
    bgsoft.render(source, target, speed="ultrafast", **UNCHANGED)
    assert times_and_numbers(target)[0] == times_and_numbers(source)[0]


@pytest.mark.parametrize("suffix", [".mkv", *map(slow, (".mov", ".webm"))])
def test_alpha_output_carries_the_matte(suffix: str, tmp_path: Path) -> None:
    target = tmp_path / f"cut{suffix}"
    matte = tmp_path / "matte.mkv"
    report = bgsoft.render(SAMPLE, target, preset="cutout", duration=0.2, matte_out=matte)
    assert report.frames_encoded == 6
    with av.open(str(target), "r") as source:
        assert isinstance(source, InputContainer)
        stream = source.streams.video[0]
        if suffix == ".webm":  # FFmpeg's own VP9 decoder ignores the alpha channel
            context = av.CodecContext.create("libvpx-vp9", "r")
            context.extradata = stream.codec_context.extradata
            frames = [
                f for p in source.demux(stream) for f in context.decode(p if p.size else None)
            ]
        else:
            frames = list(source.decode(stream))
        alphas = [frame.reformat(format="gbrap").to_ndarray() for frame in frames]
    assert len(alphas) == 6
    # Channel order of to_ndarray("gbrap") is RGBA.
    alpha = alphas[3][..., 3]
    assert alpha[-40:, 600:680].min() > 245, "the person at the bottom centre is opaque"
    assert alpha[:60, :200].max() < 10, "the wall at the top left is transparent"


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".mov"])
def test_all_sound_is_copied_bit_for_bit(suffix: str, tmp_path: Path) -> None:
    source = write_movie(
        tmp_path / f"in{suffix}",
        VideoSpec(times=regular_times(12), options={"preset": "ultrafast"}),
        [SoundSpec(language="eng"), SoundSpec(pitch=660, language="deu")],
    )
    target = tmp_path / f"out{suffix}"
    report = bgsoft.render(source, target, speed="ultrafast", **QUICK)
    assert [(a.track, a.codec, a.action) for a in report.audio] == [
        (0, "aac", "copied"),
        (1, "aac", "copied"),
    ]
    assert audio_bytes(target) == audio_bytes(source)


def test_a_part_starts_at_zero_with_its_sound(tmp_path: Path) -> None:
    source = write_movie(
        tmp_path / "in.mp4",
        VideoSpec(times=regular_times(50), options={"preset": "ultrafast", "g": "12"}),
        [SoundSpec(seconds=2.0)],
    )
    target = tmp_path / "out.mp4"
    report = bgsoft.render(source, target, start=0.52, duration=0.4, **UNCHANGED)
    times, numbers = times_and_numbers(target)
    assert numbers == list(range(13, 23))
    assert times[0] == 0
    assert report.duration_s == pytest.approx(0.4)
    with av.open(str(target), "r") as opened:
        audio = opened.streams.audio[0]
        assert float(audio.duration * audio.time_base) == pytest.approx(0.4, abs=0.05)
        assert abs(float(audio.start_time * audio.time_base)) <= 0.025


def test_damaged_packets_are_reported_and_the_rest_continues(tmp_path: Path) -> None:
    source = write_movie(
        tmp_path / "in.mp4",
        VideoSpec(times=regular_times(50), options={"preset": "ultrafast", "g": "10", "bf": "0"}),
        [SoundSpec(seconds=2.0)],
    )
    damage(source, [14, 15])
    target = tmp_path / "out.mp4"
    report = bgsoft.render(source, target, speed="ultrafast", **QUICK)
    assert report.frames_decoded == report.frames_encoded >= 48
    assert any("damaged" in e.message and e.kind == "repair" for e in report.events)
    assert audio_bytes(target) == audio_bytes(source)
    times = []
    with CpuDecoder(target) as decoder:
        ring = FrameRing(1, lambda slot: host_planes(decoder.info.format, slot))
        for frame in decoder.frames(ring):
            times.append(frame.pts * frame.time_base)
            ring.release(frame)
    assert times[-1] == Fraction(49, 25), "what follows the damage keeps its time"


@pytest.mark.parametrize("codec", ["h264", *map(slow, ("hevc", "av1", "vp9"))])
def test_a_render_sets_no_environment_variable(
    codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Setting one while ONNX Runtime's threads read the environment can crash the process."""

    def refuse(*_: object) -> None:
        raise AssertionError("set while a render has threads")

    suffix = {"vp9": "webm"}.get(codec, "mp4")
    with monkeypatch.context() as patch:
        patch.setattr("os.putenv", refuse)
        patch.setattr("os.unsetenv", refuse)
        bgsoft.render(SAMPLE, tmp_path / f"out.{suffix}", codec=codec, duration=0.1)


def test_a_truncated_file_renders_as_far_as_it_goes(tmp_path: Path) -> None:
    source = truncate(write_video(tmp_path / "in.mkv", VideoSpec(times=regular_times(60))), 0.6)
    report = bgsoft.render(source, tmp_path / "out.mkv", speed="ultrafast", **QUICK)
    assert 5 < report.frames_encoded < 60


def test_report_and_trace_are_written(tmp_path: Path) -> None:
    path, trace = tmp_path / "made" / "report.json", tmp_path / "trace.json"
    made = bgsoft.render(
        SAMPLE, tmp_path / "out.mp4", duration=0.2, speed="ultrafast", report=path, trace=trace
    )
    plain = json.loads(path.read_text())
    assert plain == json.loads(json.dumps(made.to_dict(), default=str))
    assert plain.keys() >= REPORT_FIELDS
    assert set(plain["stages"]) == {"decode", "segment", "face", "matte", "composite", "encode"}
    for stage in plain["stages"].values():
        assert set(stage) == {"backend", "device", "ms_per_frame", "fallback_reason"}
    assert plain["model"]["name"] == "selfie-general"
    assert plain["frames_decoded"] == 6
    assert plain["peak_rss_bytes"] > 50_000_000
    assert f"created folder {path.parent}" in [event["message"] for event in plain["events"]]
    assert json.loads(trace.read_text())["traceEvents"]


@pytest.mark.parametrize("name", ["report", "trace"])
def test_a_report_or_trace_that_appears_meanwhile_is_kept(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, target = tmp_path / "a.json", tmp_path / "out.mp4"
    monkeypatch.setattr("bgsoft.rendering.session.check_pts", lambda *_: path.write_text("mine"))
    with pytest.raises(OutputError, match=f"the {name} .* exists; use overwrite=True"):
        bgsoft.render(SAMPLE, target, duration=0.1, **QUICK, **{name: path})
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("a.json", "mine")]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has this device")
def test_an_output_whose_report_cannot_be_written_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "out.mp4"
    with pytest.raises(OutputError, match="cannot write the report full: disk full") as caught:
        bgsoft.render(SAMPLE, target, duration=0.2, report="/dev/full", **QUICK)
    assert caught.value.__notes__ == [f"{target} is complete"]
    assert len(list(read_back(target))) == 6


def test_progress_and_events_reach_the_caller(tmp_path: Path) -> None:
    progress: list[Progress] = []
    events: list[Event] = []
    source = write_video(tmp_path / "in.mkv", VideoSpec(times=VFR_TIMES))
    report = bgsoft.render(
        source, tmp_path / "out.mp4", on_progress=progress.append, on_event=events.append
    )
    assert progress[-1].frames == progress[-1].total == len(VFR_TIMES)
    assert events == report.events


def test_scene_cuts_are_found_and_reported(tmp_path: Path) -> None:
    def picture(number: int) -> VideoSpec:
        def touch(frame: av.VideoFrame, index: int) -> None:
            luma = np.frombuffer(frame.planes[0], np.uint8)  # type: ignore[call-overload]
            luma = luma.reshape(frame.planes[0].height, -1)
            bright = (index < 10) == (number == 0)
            luma[:, : luma.shape[1] // 2] = 200 if bright else 40
            luma[:, luma.shape[1] // 2 :] = 60 if bright else 220

        return VideoSpec(times=regular_times(20), touch=touch)

    source = write_video(tmp_path / "in.mkv", picture(0))
    report = bgsoft.render(source, tmp_path / "out.mkv", speed="ultrafast", **QUICK)
    assert [e.frame for e in report.events if e.kind == "scene-cut"] == [10]


@pytest.mark.parametrize("change", ["grows", "stays", "is moved away"])
def test_an_input_that_changes_meanwhile_is_reported(tmp_path: Path, change: str) -> None:
    source = write_video(tmp_path / "in.mkv", VideoSpec(times=regular_times(60)))
    whole = source.read_bytes()
    source.write_bytes(whole[: len(whole) // 2])
    events: list[Event] = []
    with bgsoft.frames(source, on_event=events.append, **QUICK) as frames:
        next(frames)
        if change == "grows":
            source.write_bytes(whole)
        elif change != "stays":
            source.rename(tmp_path / "done.mkv")
        assert list(frames)
    told = "the input changed while it was rendered" in [event.message for event in events]
    assert told == (change == "grows")


@pytest.mark.parametrize("name", ["input", "output", "background", "report", "matte_out"])
def test_no_name_has_a_zero_byte(tmp_path: Path, name: str) -> None:
    names: dict[str, Any] = {"input": SAMPLE, "output": tmp_path / "out.mp4"}
    with pytest.raises(ConfigError, match=f"{name}.* must not contain a zero byte"):
        bgsoft.render(**names | {name: "a\0.png"})


def test_cancelling_while_a_render_starts_makes_no_frame(tmp_path: Path) -> None:
    cancel, threads = threading.Event(), threading.active_count()
    seen: list[Progress] = []
    cancel.set()
    with pytest.raises(RenderCancelledError):
        bgsoft.render(SAMPLE, tmp_path / "out.mp4", on_progress=seen.append, cancel=cancel)
    assert not seen
    assert list(tmp_path.iterdir()) == []
    assert threading.active_count() == threads


@pytest.mark.parametrize("preset", ["soft", slow("studio")])
def test_frames_leave_no_circles(preset: str, tmp_path: Path) -> None:
    """Cyclic references would keep frames in memory until the garbage collector runs."""
    left = []
    clip = write_small(tmp_path / "in.mp4", 27)
    for seconds in (0.2, 0.8):
        gc.collect()
        gc.disable()
        try:
            report = bgsoft.render(
                clip, tmp_path / f"{seconds}.mp4", preset=preset, duration=seconds
            )
            left.append((report.frames_encoded, gc.collect()))
        finally:
            gc.enable()
    (few, of_few), (many, of_many) = left
    assert many > few + 15
    assert of_many < of_few + (many - few) / 2


@pytest.mark.parametrize("codec", ["h264", slow("ffv1")])
@pytest.mark.parametrize("chunks", [slow(1), 2])
def test_a_pause_does_not_make_a_video_longer(codec: str, chunks: int, tmp_path: Path) -> None:
    """MP4 stores the time between decoding times, so a reordered frame may last the whole pause."""
    source, target = tmp_path / "in.mp4", tmp_path / "out.mkv"
    times = [time + (2 if time > 12 else 0) for time in regular_times(310)]
    write_video(source, VideoSpec(times=times, width=48, height=36, options={"bf": "3", "g": "20"}))
    lasting = []
    bgsoft.render(source, target, codec=codec, chunks=chunks, **QUICK)
    for path in (source, target):
        (text,) = re.findall(r"Duration: 00:00:([\d.]+)", described_by_ffmpeg(path))
        lasting.append(float(text))
    assert lasting == pytest.approx([14.4, 14.4], abs=0.011)


@pytest.mark.parametrize("codec", ["h264", "hevc", "ffv1"])
@pytest.mark.parametrize("location", ["center", "topleft"])
def test_where_chroma_lies_is_kept(codec: str, location: str, tmp_path: Path) -> None:
    source, target = tmp_path / "in.mp4", tmp_path / "out.mkv"
    options = {"chroma_sample_location": location}
    write_video(source, VideoSpec(times=regular_times(5), options=options))
    bgsoft.render(source, target, codec=codec, **QUICK)
    for path in (source, target):
        assert re.search(rf"[( ]{location}\)", described_by_ffmpeg(path))


def test_of_several_faults_the_first_stage_tells(tmp_path: Path) -> None:
    """All faults occur together. The stages are input, picture and output."""
    target, missing = tmp_path / "out.mp4", tmp_path / "none.png"
    target.write_text("precious")
    threads = threading.active_count()
    for _ in range(2):
        with pytest.raises(ConfigError, match="does not exist"):
            bgsoft.render(SAMPLE, target, effect="image", background=str(missing))
        with pytest.raises(OpenError, match="does not exist"):
            bgsoft.render(tmp_path / "none.mp4", target, effect="image", background=str(missing))
    assert target.read_text() == "precious"
    assert threading.active_count() == threads


def test_an_existing_output_is_kept_unless_asked(tmp_path: Path) -> None:
    target = tmp_path / "out.mp4"
    target.write_text("precious")
    with pytest.raises(OutputError, match="exists"):
        bgsoft.render(SAMPLE, target)
    assert target.read_text() == "precious"
    record = tmp_path / "folder" / "report.json"
    for before in (None, "before"):  # a report that is there is left as it is
        if before is not None:
            record.write_text(before)
        assert bgsoft.render(SAMPLE, target, skip_existing=True, report=record).skipped
        assert target.read_text() == "precious"
        assert record.read_text() == before if before else json.loads(record.read_text())
    bgsoft.render(SAMPLE, target, overwrite=True, duration=0.1, speed="ultrafast", **QUICK)
    assert target.stat().st_size > 1000


def test_missing_folders_are_made_and_reported(tmp_path: Path) -> None:
    target, matte = tmp_path / "a" / "b" / "out.mp4", tmp_path / "c" / "matte.mkv"
    report = bgsoft.render(SAMPLE, target, duration=0.1, matte_out=matte, **QUICK)
    assert target.is_file()
    assert matte.is_file()
    told = [event.message for event in report.events if event.kind == "notice"]
    assert told == [f"created folder {path.parent}" for path in (target, matte)]


def test_a_failed_render_leaves_no_folder(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b" / "out.mp4"
    with pytest.raises(ConfigError, match="no frame"):
        bgsoft.render(SAMPLE, target, start=9999, **QUICK)
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot create folder"):
        bgsoft.render(SAMPLE, tmp_path / "file" / "out.mp4")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_unknown_options_and_values_are_errors(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="'strenght'"):
        bgsoft.render(SAMPLE, tmp_path / "out.mp4", strenght=3)
    with pytest.raises(ConfigError, match="strength must be between"):
        bgsoft.render(SAMPLE, tmp_path / "out.mp4", strength=99.0)
    with pytest.raises(ConfigError, match=r"cannot start at 1000 s"):
        bgsoft.render(SAMPLE, tmp_path / "out.mp4", start=1000, **QUICK)
    assert list(tmp_path.iterdir()) == []


def test_public_names_exist() -> None:
    for name in bgsoft.__all__:
        assert getattr(bgsoft, name) is not None
    assert dataclasses.is_dataclass(bgsoft.RenderConfig)


@pytest.mark.parametrize("name", [slow("out.webm"), slow("out.mov"), "out.mkv"])
def test_a_cutout_shows_nothing_of_the_room_without_its_alpha(tmp_path: Path, name: str) -> None:
    """Away from the person the colour planes are black, within the losses of VP9 and ProRes."""
    bgsoft.render(SAMPLE, tmp_path / name, preset="cutout", duration=0.05)
    frames = read_back(tmp_path / name)
    assert len(frames) == 2
    for frame in frames:
        luma, *chroma, alpha = (plane >> (frame.bits - 8) for plane in frame.planes)
        far = cv2.dilate((alpha > 0).astype(np.uint8), np.ones((41, 41), np.uint8)) == 0
        assert 0.3 < far.mean() < 0.9
        loss = 0 if name == "out.mkv" else 3
        assert np.abs(luma[far].astype(int) - 16).max() <= loss
        for plane in chroma:
            step_y, step_x = (-(-a // b) for a, b in zip(luma.shape, plane.shape, strict=True))
            assert np.abs(plane[far[::step_y, ::step_x]].astype(int) - 128).max() <= loss


def test_a_presets_codec_that_is_left_out_is_named(tmp_path: Path) -> None:
    source = write_video(tmp_path / "in.mkv", VideoSpec(times=regular_times(2)))
    (tmp_path / "mine.toml").write_text("[encode]\ncodec = 'hevc'\n")
    settings = {**QUICK, "preset": str(tmp_path / "mine.toml")}
    report = bgsoft.render(source, tmp_path / "out.webm", **settings)
    text = "codec hevc of preset or config.toml left out: WebM cannot hold it"
    assert [event.message for event in report.events if "left out" in event.message] == [text]
