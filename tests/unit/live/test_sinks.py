"""Sinks with threads of their own, and figures."""

from __future__ import annotations

import sys
import threading
import time
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bgsoft.clock import StageClock
from bgsoft.errors import BackendUnavailableError, ConfigError, OutputError
from bgsoft.frame import Frame, FrameFormat, PixelLayout
from bgsoft.live.encoded import EncodedSink
from bgsoft.live.figures import Figures, percentiles, stats_line
from bgsoft.live.queued import Fitter, QueuedSink
from bgsoft.live.settings import picture_config
from bgsoft.live.virtual_camera import VirtualCamera
from tests.live_frames import SMALL, live_frame
from tests.live_threads import no_thread_is_left
from tests.outside import ffmpeg, shown_by_ffmpeg
from tests.rendering import video_info

__all__ = ["no_thread_is_left"]

CONFIG = picture_config("fast", {})


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.002)


class SlowSink(QueuedSink):
    """Writes when it may."""

    def __init__(self) -> None:
        self.may, self.began = threading.Event(), threading.Event()
        self.written: list[int] = []
        self.ended = ""
        super().__init__("slow")

    def _write(self, frame: Frame) -> None:
        self.began.set()
        self.may.wait()
        if frame.index == 99:
            raise ValueError("it broke")
        self.written.append(int(frame.luma[0, 0]))

    def _finish(self) -> None:
        self.ended = "finished"

    def _abandon(self) -> str:
        self.ended = "abandoned"
        return "a part"


def test_a_slow_sink_keeps_the_newest_frames_and_counts_the_others() -> None:
    sink = SlowSink()
    for value in range(10):
        frame = live_frame(value)
        sink.publish(frame)
        frame.frame.luma.fill(255)  # its buffers are used again
        if value == 0:
            assert sink.began.wait(30)
    sink.may.set()
    sink.close()
    # One was being written, three slots were left for those that wait.
    assert (sink.written, sink.dropped) == ([0, 7, 8, 9], 6)
    assert sink.ended == "finished"
    sink.close()


def test_a_sink_that_breaks_says_so_and_lets_go() -> None:
    sink = SlowSink()
    sink.may.set()
    sink.publish(live_frame(99))
    sink._thread.join(30)
    with pytest.raises(OutputError, match=r"^slow: it broke; what was written is a part$"):
        sink.publish(live_frame(1))
    assert sink.ended == "abandoned"
    with pytest.raises(OutputError, match="it broke"):
        sink.close()
    sink.close()


def test_the_first_failure_is_told_where_letting_go_fails_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def abandon(_sink: SlowSink) -> str:
        raise OSError("the disk is gone")

    monkeypatch.setattr(SlowSink, "_abandon", abandon)
    sink = SlowSink()
    sink.may.set()
    sink.publish(live_frame(99))
    with pytest.raises(OutputError, match=r"^slow: it broke$"):
        sink.close()


def test_frames_of_another_size_are_fitted_between_bars() -> None:
    fitter = Fitter(video_info(SMALL))
    same = live_frame(100).frame
    assert fitter.fit(same) is same
    tall = live_frame(100, FrameFormat(width=48, height=96)).frame
    fitted = fitter.fit(tall)
    assert fitted.luma.shape == SMALL.luma_shape
    columns = fitted.luma[24]
    assert (columns[0], columns[32], columns[-1]) == (16, 100, 16)
    deep = live_frame(100, replace(SMALL, layout=PixelLayout.P010)).frame
    assert np.all(fitter.fit(deep).luma == 100)


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
    """Meanwhile; nor does it replace what was kept of an earlier one."""
    (tmp_path / "a.partial.mkv").write_text("an earlier one")
    sink = EncodedSink(str(tmp_path / "a.mkv"), CONFIG, lambda: video_info(SMALL))
    sink.publish(live_frame(1))
    wait_until(lambda: not sink._waiting)
    (tmp_path / "a.mkv").write_text("mine")
    with pytest.raises(OutputError, match=r"appeared meanwhile.*written is .*a\.partial-2\.mkv"):
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
    assert told == [f"an unfinished recording of before is {kept} now"]
    assert kept.read_bytes() == b"frames"
    assert {each.name for each in tmp_path.iterdir()} == {kept.name, ".a.ts.ab.part.ts"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.avi", "recorded as"),
        ("a.webm", "recorded as"),
        ("a.png", "recorded as"),
        ("a.doc", "no video container"),
        ("http://h/a.ts", "a stream is one of udp"),
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


class FakeCamera:
    made: FakeCamera

    def __init__(self, **asked: Any) -> None:
        self.asked, self.sent, self.open = asked, [], True
        FakeCamera.made = self

    def send(self, picture: Any) -> None:
        self.sent.append(picture.copy())

    def close(self) -> None:
        self.open = False


def test_a_virtual_camera_gets_nv12_of_an_even_size(monkeypatch: pytest.MonkeyPatch) -> None:
    library: Any = types.ModuleType("pyvirtualcam")
    library.Camera, library.PixelFormat = FakeCamera, types.SimpleNamespace(NV12="nv12")
    monkeypatch.setitem(sys.modules, "pyvirtualcam", library)
    info = video_info(FrameFormat(width=65, height=49))
    sink = VirtualCamera("/dev/video9", CONFIG, lambda: info)
    sink.publish(live_frame(100, info.format))
    sink.close()
    camera = FakeCamera.made
    assert camera.asked == {
        "width": 64,
        "height": 48,
        "fps": 25.0,
        "fmt": "nv12",
        "device": "/dev/video9",
    }
    assert len(camera.sent[0]) == 64 * 48 * 3 // 2
    assert not camera.open


def test_a_virtual_camera_needs_its_library_and_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyvirtualcam", None)
    with pytest.raises(BackendUnavailableError, match=r"pip install '\.\[live\]'"):
        VirtualCamera("/dev/video9", CONFIG, lambda: None)
    with pytest.raises(ConfigError, match="no alpha channel"):
        VirtualCamera("/dev/video9", picture_config("cutout", {}), lambda: None)


def test_figures_are_those_since_the_last_look() -> None:
    assert percentiles([]) == {"p50": None, "p95": None, "p99": None}
    assert percentiles(range(1, 201)) == {"p50": 100, "p95": 190, "p99": 198}
    clock = StageClock("segment")
    figures = Figures([clock])
    clock.busy_ns, clock.calls = 6_000_000, 3
    figures.add(10_000_000)
    figures.add(20_000_000)
    first = figures.interval(2.0, {"source": "it"})
    assert first["latency_ms"] == {"p50": 10.0, "p95": 20.0, "p99": 20.0}
    assert (first["fps"], first["stages_ms"]) == (1.0, {"segment": 2.0})
    second = figures.interval(2.0, {"source": "it"})
    assert (second["frames_out"], second["fps"], second["stages_ms"]) == (2, 0.0, {})
    counts = {"state": "live", "frames_in": 5, "dropped": 3, "level": 1}
    sinks = [{"name": "a.mkv", "dropped": 2}, {"name": "b.mkv", "dropped": 0}]
    line = stats_line({**first, **counts, "sinks": sinks})
    assert line == (
        "it: live | in 5 out 2 dropped 3 | 1.0 frames/s | latency p50 10 p95 20 p99 20 ms | "
        "stages segment 2.0 ms | quality down 1 | sinks dropped a.mkv 2"
    )


def test_settings_of_ten_bits_codec_alone_are_an_error_with_the_first_frame_of_eight(
    tmp_path: Path,
) -> None:
    config = picture_config("fast", {"encode": {"encoder_option": ["limit-refs=2"]}})
    sink = EncodedSink(str(tmp_path / "a.mkv"), config, lambda: video_info(SMALL))
    sink.publish(live_frame(1))
    with pytest.raises(ConfigError, match=r"a\.mkv: cannot use --encoder-option limit-refs: "):
        sink.close()
    assert list(tmp_path.iterdir()) == []
