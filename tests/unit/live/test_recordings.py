"""Recordings: times of frames, what is kept after an error, and invalid names."""

from __future__ import annotations

import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bgsoft.errors import ConfigError, OutputError
from bgsoft.frame import FrameFormat
from bgsoft.live.encoded import EncodedSink
from bgsoft.live.settings import picture_config
from tests.live_frames import SMALL, live_frame
from tests.outside import ffmpeg, shown_by_ffmpeg
from tests.processes import wait_until
from tests.rendering import video_info

CONFIG = picture_config("fast", {})


@pytest.mark.parametrize("name", ["a.mkv", "a.mp4", "a.ts", "a.mov"])
def test_a_recording_has_all_frames_at_their_times(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    info = video_info(SMALL)
    sink = EncodedSink(str(path), CONFIG, lambda: info)
    for index in range(8):
        at = 90_000 * (index + 3) // 25
        frame = live_frame(10 * index)
        shown = replace(frame.frame, pts=at, time_base=info.time_base)
        sink.publish(replace(frame, frame=shown))
        wait_until(lambda: not sink._waiting)  # nothing may be dropped here
    assert not path.exists()
    sink.close()
    times = shown_by_ffmpeg(path)
    assert sink.dropped == 0
    assert [round(float(each - times[0]), 2) for each in times] == [n / 25 for n in range(8)]
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_a_recording_is_fitted_where_the_size_changes(tmp_path: Path) -> None:
    path = tmp_path / "a.mkv"
    sink = EncodedSink(str(path), CONFIG, lambda: video_info(SMALL))
    sink.publish(live_frame(1))
    wait_until(lambda: not sink._waiting)
    sink.publish(live_frame(2, FrameFormat(width=128, height=96)))
    sink.close()
    raw = tmp_path / "a.yuv"
    ffmpeg("-i", path, "-f", "rawvideo", "-pix_fmt", "gray", raw)
    assert raw.stat().st_size == 2 * 64 * 48


def test_nothing_is_left_of_a_recording_without_frames(tmp_path: Path) -> None:
    EncodedSink(str(tmp_path / "a.mkv"), CONFIG, lambda: None).close()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = video_info(SMALL)
    sink = EncodedSink(str(tmp_path / "a.ts"), CONFIG, lambda: info)
    sink.publish(live_frame(1))
    wait_until(lambda: any(each.stat().st_size for each in tmp_path.iterdir()))

    def full(_packet: Any) -> None:
        raise OSError(28, "No space left on device")

    assert sink._muxer is not None
    close = sink._muxer._output.close
    monkeypatch.setattr(sink._muxer, "_output", types.SimpleNamespace(mux_one=full, close=close))
    sink.publish(live_frame(2))
    sink._thread.join(30)
    with pytest.raises(OutputError, match=r"a\.ts.*; what was written is .*a\.partial\.ts"):
        sink.close()
    assert [each.name for each in tmp_path.iterdir()] == ["a.partial.ts"]


def test_a_recording_is_kept_where_its_name_is_taken(tmp_path: Path) -> None:
    """The name is taken while it records; an earlier partial file is not replaced either."""
    (tmp_path / "a.partial.mkv").write_text("an earlier one")
    sink = EncodedSink(str(tmp_path / "a.mkv"), CONFIG, lambda: video_info(SMALL))
    sink.publish(live_frame(1))
    wait_until(lambda: not sink._waiting)
    (tmp_path / "a.mkv").write_text("mine")
    with pytest.raises(
        OutputError, match=r"appeared during.*written is kept as .*a\.partial-2\.mkv"
    ):
        sink.close()
    assert len(shown_by_ffmpeg(tmp_path / "a.partial-2.mkv")) == 1
    (tmp_path / "a.partial-2.mkv").unlink()
    texts = {each.name: each.read_text() for each in tmp_path.iterdir()}
    assert texts == {"a.mkv": "mine", "a.partial.mkv": "an earlier one"}


def test_the_recording_of_a_killed_run_is_kept(tmp_path: Path) -> None:
    for name, data in ((".a.ts.01234567.part.ts", b"frames"), (".a.ts.ab.part.ts", b"other")):
        (tmp_path / name).write_bytes(data)
    (tmp_path / ".a.ts.76543210.part.ts").touch()
    told: list[str] = []
    EncodedSink(str(tmp_path / "a.ts"), CONFIG, lambda: None, report=told.append).close()
    kept = tmp_path / "a.partial.ts"
    assert told == [f"an unfinished recording of an earlier run is kept as {kept}"]
    assert kept.read_bytes() == b"frames"
    assert {each.name for each in tmp_path.iterdir()} == {kept.name, ".a.ts.ab.part.ts"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.avi", "cannot record to"),
        ("a.webm", "cannot record to"),
        ("a.png", "cannot record to"),
        ("a.doc", "its suffix must be .mkv"),
        ("http://h/a.ts", "or an address of udp"),
    ],
)
def test_targets_that_cannot_be(tmp_path: Path, name: str, message: str) -> None:
    target = name if ":" in name else str(tmp_path / name)
    with pytest.raises(Exception, match=message):
        EncodedSink(target, CONFIG, lambda: None)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_replaced_only_if_asked(tmp_path: Path) -> None:
    path = tmp_path / "a.mkv"
    path.write_text("mine")
    with pytest.raises(OutputError, match="exists"):
        EncodedSink(str(path), CONFIG, lambda: None)
    assert path.read_text() == "mine"


def test_settings_of_ten_bits_codec_alone_are_an_error_with_the_first_frame_of_eight(
    tmp_path: Path,
) -> None:
    config = picture_config("fast", {"encode": {"encoder_option": ["limit-refs=2"]}})
    sink = EncodedSink(str(tmp_path / "a.mkv"), config, lambda: video_info(SMALL))
    sink.publish(live_frame(1))
    with pytest.raises(ConfigError, match=r"a\.mkv: cannot use --encoder-option limit-refs: "):
        sink.close()
    assert list(tmp_path.iterdir()) == []
