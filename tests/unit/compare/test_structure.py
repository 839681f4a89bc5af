"""Checks of timestamps, sound and metadata on clips that differ in one thing each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from av.stream import Disposition
from av.video.stream import VideoStream

from bgsoft.compare.compare import Limits, compare
from bgsoft.compare.result import Comparison
from bgsoft.media.source import open_input
from tests.outside import ffmpeg
from tests.synthetic import SoundSpec, VideoSpec, regular_times, write_movie

VIDEO = VideoSpec(times=regular_times(25))
SOUND = SoundSpec(language="eng")
CHAPTERS = [(Fraction(0), Fraction(1, 2), "one"), (Fraction(1, 2), Fraction(1), "two")]

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def call(name: str = "b.mp4", video: VideoSpec = VIDEO, **changes: object) -> Path:
        settings: dict[str, object] = {
            "sounds": [SOUND],
            "metadata": {"title": "a film"},
            "chapters": CHAPTERS,
            **changes,
        }
        return write_movie(tmp_path / name, video, **settings)  # type: ignore[arg-type]

    return call


def run(a: Path, b: Path) -> Comparison:
    return compare(a, b, vmaf=False, limits=Limits(strict=True))


def failed(result: Comparison) -> dict[str, str]:
    return {check.name: check.detail for check in result.checks if not check.ok}


def test_equal_files_pass(write: Write) -> None:
    result = run(write("a.mp4"), write("b.mp4"))
    assert failed(result) == {}
    assert result.failures == []
    assert {check.name for check in result.checks} >= {
        "frame count",
        "timestamps",
        "audio 0",
        "audio 0 sync",
        "file tags",
        "track tags",
        "dispositions",
        "chapters",
        "colour tags",
        "rotation",
    }


def test_another_container_passes(write: Write) -> None:
    video = replace(VIDEO, times=regular_times(30, Fraction(30_000, 1001)))
    result = run(write("a.mp4", video), write("b.mkv", video))
    # FFmpeg's copy into Matroska shifts all by the sound's delay; pictures stay in their places.
    assert set(failed(result)) <= {"dispositions", "audio 0 sync"}
    times = next(check for check in result.checks if check.name == "timestamps")
    assert "within the containers' clock" in times.detail


def test_a_timecode_may_move_from_the_file_to_its_video(write: Write) -> None:
    source = write("a.mkv", metadata={"timecode": "01:02:03:04"})
    assert failed(run(source, write(metadata={"timecode": "01:02:03:04"}))).keys() <= {
        "dispositions"
    }
    assert "track tags" in failed(run(source, write(metadata={})))


def test_late_frame_is_found(write: Write) -> None:
    times = regular_times(25)
    times[7] += Fraction(1, 50)
    found = failed(run(write("a.mp4"), write(video=replace(VIDEO, times=times))))
    assert set(found) == {"timestamps"}
    assert "20.000 ms apart, at frame 7" in found["timestamps"]


def test_a_frame_that_a_clock_of_frames_moves_is_found(tmp_path: Path) -> None:
    times = [time for time in regular_times(9) if time != Fraction(4, 25)]
    source = write_movie(tmp_path / "a.mp4", replace(VIDEO, times=times))
    moved = tmp_path / "b.y4m"
    ffmpeg("-i", source, "-vf", "setpts=N/25/TB", "-f", "yuv4mpegpipe", moved)
    assert "40.000 ms apart, at frame 4" in failed(run(source, moved))["timestamps"]
    ffmpeg("-i", write_movie(source, VIDEO), "-f", "yuv4mpegpipe", moved)
    assert "timestamps" not in failed(run(source, moved))


def test_missing_frames_are_found(write: Write) -> None:
    result = run(write("a.mp4"), write(video=replace(VIDEO, times=regular_times(23))))
    assert failed(result)["frame count"] == "A has 25, B 23"
    assert result.pictures is not None
    assert result.pictures.frames == 23
    assert any("only the first 23 are compared" in notice for notice in result.notices)
    assert result.failures == ["checks failed: frame count"]


def test_sound_that_starts_elsewhere_is_found(write: Write) -> None:
    later = replace(VIDEO, times=regular_times(25, start=Fraction(1, 5)))
    found = failed(run(write("a.mp4"), write(video=later)))
    assert set(found) == {"audio 0 sync"}
    assert "-200.0 ms in B" in found["audio 0 sync"]


def test_an_encoder_s_delay_that_is_played_is_no_shift(tmp_path: Path, write: Write) -> None:
    a = write("a.mov", sounds=[SoundSpec(codec="ac3")])
    # MOV hides the delay, MPEG-TS cannot say that there is one.
    ffmpeg("-i", a, "-c", "copy", tmp_path / "b.ts")
    result = run(a, tmp_path / "b.ts")
    sync = next(check for check in result.checks if check.name == "audio 0 sync")
    assert sync.ok
    assert "packets at the same times" in sync.detail


@pytest.mark.parametrize(
    ("changes", "name", "words"),
    [
        ({"sounds": []}, "audio tracks", "A has 1, B 0"),
        ({"sounds": [SOUND, SOUND]}, "audio tracks", "A has 1, B 2"),
        ({"sounds": [replace(SOUND, pitch=880.0)]}, "audio 0", "decoded samples differ"),
        ({"sounds": [replace(SOUND, codec="ac3")]}, "audio 0", "aac / ac3"),
        ({"sounds": [replace(SOUND, language="deu")]}, "track tags", "language 'eng' / 'deu'"),
        ({"sounds": [replace(SOUND, language=None)]}, "track tags", "language missing in B"),
        ({"metadata": {"title": "the film"}}, "file tags", "title 'a film' / 'the film'"),
        ({"metadata": {}}, "file tags", "title missing in B"),
        ({"cover": True}, "covers and attachments", "cover 0 only in B"),
        ({"chapters": []}, "chapters", "A has 2, B 0"),
        (
            {"chapters": [CHAPTERS[0], (Fraction(3, 5), Fraction(1), "two")]},
            "chapters",
            "begins or ends at another time",
        ),
        ({"chapters": [CHAPTERS[0], (*CHAPTERS[1][:2], "three")]}, "chapters", "'two' / 'three'"),
    ],
)
def test_each_difference_is_named(
    write: Write, changes: dict[str, object], name: str, words: str
) -> None:
    found = failed(run(write("a.mp4"), write(**changes)))
    assert words in found[name]


def test_lossless_sound_in_other_packets_passes(write: Write) -> None:
    a = write("a.mov", sounds=[replace(SOUND, codec="pcm_s16le")])
    b = write("b.mov", sounds=[replace(SOUND, codec="pcm_s16be")])
    result = run(a, b)
    check = next(check for check in result.checks if check.name == "audio 0")
    assert check.ok
    assert "decoded samples equal" in check.detail


def test_channels_in_another_order_pass(tmp_path: Path) -> None:
    """FFmpeg writes 7.1 to QuickTime in an order of its own."""
    tones = "|".join(f"0.1*sin({300 + 100 * number}*2*PI*t)" for number in range(8))
    ffmpeg(
        *("-f", "lavfi", "-i", "testsrc2=s=64x64:d=1"),
        *("-f", "lavfi", "-i", f"aevalsrc='{tones}':c=7.1:d=1", "-c:v", "mpeg4"),
        *("-c:a", "pcm_s16le", tmp_path / "a.mov"),
    )
    swap = "channelmap=0|1|2|3|4|5|7|6:7.1"
    for name, options in (("b", ()), ("swapped", ("-af", swap))):
        ffmpeg(
            "-i",
            tmp_path / "a.mov",
            "-c:v",
            "copy",
            *options,
            "-c:a",
            "flac",
            tmp_path / f"{name}.mkv",
        )
    assert "audio 0" not in failed(run(tmp_path / "a.mov", tmp_path / "b.mkv"))
    assert "audio 0" in failed(run(tmp_path / "a.mov", tmp_path / "swapped.mkv"))


def test_lines_at_other_times_are_found(tmp_path: Path, write: Write) -> None:
    clip, made = write("clip.mkv"), []
    for name, later in (("a.mkv", 0), ("same.mp4", 0), ("late.mkv", 30)):
        line = "1\n00:00:00,100 --> 00:00:00,300\n1\n\n2\n00:00:00,{} --> 00:00:00,700\n2\n"
        (tmp_path / "in.srt").write_text(line.format(500 + later))
        codec = "mov_text" if name.endswith(".mp4") else "copy"
        options = ("-map", "0", "-map", "1", "-c", "copy", "-c:s", codec)
        made.append(tmp_path / name)
        ffmpeg("-i", clip, "-i", tmp_path / "in.srt", *options, made[-1])
    a, same, late = made
    assert "subtitles" not in failed(run(a, same))
    said = "track 0: 2 times of lines differ, such as 0.500 s from the first picture"
    assert failed(run(a, late)) == {"subtitles": said}


def test_colour_tags(write: Write) -> None:
    def tagged(stream: VideoStream) -> None:
        stream.codec_context.color_primaries = 9
        stream.codec_context.color_trc = 16

    found = failed(run(write("a.mp4"), write(video=replace(VIDEO, setup=tagged))))
    assert "primaries 2 / 9" in found["colour tags"]
    assert "transfer 2 / 16" in found["colour tags"]


def test_dispositions(write: Write) -> None:
    def forced(stream: VideoStream) -> None:
        stream.disposition = Disposition.default | Disposition.hearing_impaired

    found = failed(run(write("a.mkv"), write("b.mkv", video=replace(VIDEO, setup=forced))))
    assert "hearing_impaired" in found["dispositions"]


def test_attachments_covers_and_videos_that_are_missing(tmp_path: Path, write: Write) -> None:
    cover = write("cover.mp4", cover=True)
    ffmpeg("-i", cover, "-map", "0:v:1", "-c", "copy", "-f", "image2", tmp_path / "cover.jpg")
    a, b = tmp_path / "a.mkv", tmp_path / "b.mkv"
    attached = ("-attach", tmp_path / "cover.jpg", "-metadata:s:t", "mimetype=image/jpeg")
    font = ("-attach", cover, "-metadata:s:t:1", "mimetype=font/ttf")
    two = ("-map", "0:v:0", "-map", "0:v:0", "-map", "0:a", "-c", "copy")
    ffmpeg("-i", write("a.mp4"), *two, *attached, *font, a)
    ffmpeg("-i", write("a.mp4"), "-map", "0:v:0", "-map", "0:a", "-c", "copy", b)
    found = failed(run(a, b))
    assert found["video tracks"] == "A has 2, B 1"
    assert "cover 0 missing in B" in found["covers and attachments"]
    assert "attachment cover.mp4 missing in B" in found["covers and attachments"]
    # The same picture, as MP4 and as Matroska keep it.
    ffmpeg("-i", write("a.mp4"), "-map", "0:v:0", "-map", "0:a", "-c", "copy", *attached, b)
    assert "covers and attachments" not in failed(run(cover, b))


def test_keys_of_a_file_s_own_are_compared(write: Write) -> None:
    options = {"movflags": "use_metadata_tags"}
    a = write("a.mp4", metadata={"title": "a film", "mood": "blue"}, options=options)
    assert failed(run(a, write("b.mp4"))) == {"file tags": "mood missing in B"}


def test_baked_in_rotation_passes(write: Write) -> None:
    def flagged(stream: VideoStream) -> None:
        stream.set_display_rotation(270)

    def turn(plane: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.rot90(plane))

    upright = write("upright.mp4")
    turned = write("turned.mp4", replace(VIDEO, turn=turn, setup=flagged))
    result = run(turned, upright)
    assert failed(result) == {}
    check = next(check for check in result.checks if check.name == "rotation")
    assert check.detail == "A's 90° is baked into B's pictures"
    assert result.pictures is not None
    luma = result.pictures.statistic("psnr", "y")
    assert luma is not None
    assert luma.worst > 35  # the right way round
    # The flag must not appear on pictures that had none.
    assert set(failed(run(upright, turned))) == {"rotation"}


def test_packets_that_are_never_played_may_go_missing(write: Write, tmp_path: Path) -> None:
    a = write("a.mp4", chapters=())
    for dropped, passes in ((1, True), (2, False)):
        b = tmp_path / f"b{dropped}.mkv"
        with open_input(a) as source, av.open(str(b), "w") as output:
            streams = {
                s.index: output.add_stream_from_template(s)
                for s in (source.streams.video[0], source.streams.audio[0])
            }
            heard = 0
            for packet in source.demux(list(source.streams)):
                if not packet.size:
                    continue
                if packet.stream.type == "audio":
                    heard += 1
                    if heard <= dropped:
                        continue
                packet.stream = streams[packet.stream.index]
                output.mux(packet)
        check = next(c for c in run(a, b).checks if c.name == "audio 0")
        assert check.ok is passes, check.detail
        if passes:
            assert "except 1 packet before the first played sample" in check.detail
