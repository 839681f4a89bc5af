"""Whole live runs: sources of every kind, faults in the middle, and frames counted by ffmpeg.

The number of dropped frames depends on the machine; the sums must be right.
"""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bgsoft.errors import BgsoftError, InferenceError, OutputError
from bgsoft.live.base import LiveFrame
from bgsoft.live.cameras import CameraConfig
from bgsoft.live.encoded import EncodedSink
from bgsoft.live.engine import Engine
from bgsoft.live.run import LiveOptions, run_live
from bgsoft.live.settings import LiveSettings, picture_config
from bgsoft.live.source import Patience, parse_source
from bgsoft.live.stages import LiveStages
from bgsoft.live.switch import STARTING, StageSwitch
from bgsoft.media.info import VideoInfo
from bgsoft.media.probe import probe
from bgsoft.pipeline.metrics import Metrics
from bgsoft.rendering.build import StageBuilder
from bgsoft.settings.config import RenderConfig
from bgsoft.settings.presets import Layer
from bgsoft.threads import DaemonThread
from tests.live_threads import no_thread_is_left
from tests.outside import ffmpeg, ffmpeg_program, shown_by_ffmpeg
from tests.processes import wait_until
from tests.synthetic import VideoSpec, read_index, regular_times, write_video

__all__ = ["no_thread_is_left"]

RATE = Fraction(25)
SHORT = Patience(open_seconds=1.5, read_seconds=0.7)
HANGS_SOON = Patience(hang_seconds=0.5)
NO_STALL: Layer = {"backends": {"stall_seconds": None, "threads": 1}}


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One second; a key frame every fifth frame, and no frame that waits for another."""
    options = {"g": "5", "bf": "0"}
    spec = VideoSpec(times=regular_times(25, RATE), rate=RATE, options=options)
    return write_video(tmp_path_factory.mktemp("clip") / "clip.mkv", spec)


class Live:
    def __init__(
        self, *cameras: CameraConfig, patience: Patience = SHORT, flags: Layer | None = None
    ) -> None:
        self.cancel = threading.Event()
        self.lines: list[str] = []
        self.stats: list[dict[str, Any]] = []
        self.failures: list[BgsoftError] = []
        self._work = lambda: self.failures.extend(
            run_live(
                cameras,
                LiveOptions(patience=patience, flags=flags or {}),
                cancel=self.cancel,
                report=self.lines.append,
                on_stats=self.stats.append,
            )
        )
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def wait(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()

    def end(self) -> None:
        self.cancel.set()
        self.wait()

    def until(self, condition: Callable[[], bool]) -> None:
        wait_until(lambda: condition() or not self._thread.is_alive())
        assert self._thread.is_alive(), self.lines

    @property
    def last(self) -> dict[str, Any]:
        return self.stats[-1]


def camera(source: Path | str, *to: Path | str, **more: Any) -> CameraConfig:
    targets = tuple(map(str, to))
    return CameraConfig(name="cam", source=str(source), to=targets, preset="fast", **more)


def check_sums(figures: dict[str, Any], *recordings: Path) -> None:
    """Every frame that came was shown or counted as dropped; every one shown is recorded."""
    assert figures["frames_in"] == figures["frames_out"] + figures["dropped"]
    for recording, sink in zip(recordings, figures["sinks"], strict=False):
        shown = shown_by_ffmpeg(recording)
        assert len(shown) >= figures["frames_out"] - sink["dropped"]
        assert shown == sorted(set(shown))


@pytest.mark.parametrize("ending", [".mkv", ".mp4", ".ts"])
def test_a_file_in_real_time_is_recorded(clip: Path, tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"out{ending}"
    live = Live(camera(clip, out, realtime=True))
    live.wait()
    assert live.failures == []
    assert live.last["state"] == "ended"
    assert live.last["frames_in"] == 25
    check_sums(live.last, out)
    assert len(shown_by_ffmpeg(out)) == live.last["frames_out"] - live.last["sinks"][0]["dropped"]
    assert {path.name for path in tmp_path.iterdir()} == {out.name}


def test_a_loop_continues_until_it_is_ended(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.mkv"
    seen: list[float] = []
    watch_sinks(monkeypatch, lambda f: seen.append(float(f.frame.pts * f.frame.time_base)))
    live = Live(camera(clip, out, loop=True))
    live.until(lambda: len(seen) > 25 and seen[-1] - seen[0] > 1.2)  # the clip has 1 s
    live.end()
    assert live.failures == []
    assert live.last["frames_in"] > 25
    assert float(shown_by_ffmpeg(out)[-1]) > 1.0


def _size(folder: Path) -> int:
    total = 0
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # it has just got its name
            total += path.stat().st_size
    return total


@pytest.fixture
def port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


class Sender:
    """ffmpeg, which plays a clip to a port until it is killed."""

    def __init__(self, clip: Path, port: int, *options: str) -> None:
        url = f"udp://127.0.0.1:{port}?pkt_size=1316"
        loop = ("-re", "-stream_loop", "-1", "-i", str(clip))
        coded = options or ("-c", "copy")
        command = [ffmpeg_program(), "-v", "error", *loop, *coded, "-f", "mpegts", url]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def senders() -> Iterator[list[Sender]]:
    made: list[Sender] = []
    yield made
    for sender in made:
        sender.kill()


def test_a_stream_whose_sender_dies_is_shown_dimmed_and_comes_back(
    clip: Path, tmp_path: Path, port: int, senders: list[Sender], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.mkv"
    seen: list[tuple[bool, float]] = []
    watch_sinks(monkeypatch, lambda f: seen.append((f.stale, float(f.frame.luma.mean()))))
    live = Live(camera(f"udp://127.0.0.1:{port}", out))
    senders.append(Sender(clip, port))
    live.until(lambda: len(seen) > 10)
    senders[0].kill()
    live.until(lambda: len([1 for stale, _ in seen if stale]) >= 3)
    senders.append(Sender(clip, port))
    live.until(lambda: "is back" in "".join(live.lines) and not seen[-1][0])
    live.end()
    assert live.failures == []
    assert (
        live.lines[0] == f"cannot read udp://127.0.0.1:{port}: it sends nothing; opening it again"
    )
    first = next(at for at, (stale, _) in enumerate(seen) if stale)
    bright, dim = seen[first - 1][1], seen[first][1]
    assert dim == pytest.approx(16 + 0.4 * (bright - 16), abs=1)
    check_sums(live.last, out)
    assert len(shown_by_ffmpeg(out)) == len(seen) - live.last["sinks"][0]["dropped"]


def test_a_sender_may_come_back_with_another_number_of_its_stream(
    clip: Path, tmp_path: Path, port: int, senders: list[Sender], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    watch_sinks(monkeypatch, lambda f: seen.append(f.frame.pts) if not f.stale else None)
    live = Live(camera(f"udp://127.0.0.1:{port}", tmp_path / "out.mkv"), patience=Patience())
    senders.append(Sender(clip, port))
    live.until(lambda: len(seen) > 10)
    senders[0].kill()
    senders.append(Sender(clip, port, "-c", "copy", "-streamid", "0:300"))
    at = len(seen)
    live.until(lambda: len(seen) > at + 10)
    live.end()
    assert live.failures == []


def watch_sinks(monkeypatch: pytest.MonkeyPatch, look: Callable[[LiveFrame], None]) -> None:
    """Call a function with every frame that recordings receive."""
    publish = EncodedSink.publish

    def watched(self: EncodedSink, frame: LiveFrame) -> None:
        look(frame)
        publish(self, frame)

    monkeypatch.setattr(EncodedSink, "publish", watched)


def test_a_source_may_change_its_size(
    clip: Path, tmp_path: Path, port: int, senders: list[Sender], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.mkv"
    sizes: list[int] = []
    watch_sinks(monkeypatch, lambda f: sizes.append(f.frame.format.width))
    live = Live(camera(f"udp://127.0.0.1:{port}", out))
    senders.append(Sender(clip, port))
    live.until(lambda: 96 in sizes)
    senders[0].kill()
    code = ("-vf", "scale=160:90", "-c:v", "libx264", "-g", "5", "-tune", "zerolatency")
    senders.append(Sender(clip, port, *code))
    live.until(lambda: 160 in sizes)
    live.end()
    assert live.failures == []
    assert sizes == sorted(sizes)
    check_sums(live.last, out)


def test_a_file_may_change_its_size_and_its_clock(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = ("-an", "-c:v", "libx264", "-f", "mpegts")
    small, large, both = tmp_path / "small.ts", tmp_path / "large.ts", tmp_path / "both.ts"
    ffmpeg("-i", clip, *code, small)
    ffmpeg("-i", clip, "-vf", "scale=160:90", *code, large)
    both.write_bytes(small.read_bytes() + large.read_bytes())
    sizes: list[int] = []
    watch_sinks(monkeypatch, lambda f: sizes.append(f.frame.format.width))
    live = Live(camera(both, tmp_path / "out.mkv", realtime=True))
    live.wait()
    assert live.failures == []
    assert live.last["frames_in"] == 50
    assert set(sizes) == {96, 160}
    assert sizes == sorted(sizes)
    changes = [line for line in live.lines if "picture size" in line]
    assert changes == ["cam: notice: the picture size changed from 96x72 to 160x90"]


def test_notices_of_a_source_are_reported_once(clip: Path, tmp_path: Path) -> None:
    fields = tmp_path / "fields.nut"
    code = ("-vf", "setfield=tff", "-c:v", "mpeg2video", "-flags", "+ildct+ilme")
    ffmpeg("-i", clip, *code, fields)
    live = Live(camera(fields, tmp_path / "out.mkv", realtime=True))
    live.wait()
    notices = [line for line in live.lines if "notice:" in line]
    assert notices == ["cam: notice: interlaced picture not deinterlaced"]


def test_a_pipe_ends_with_its_writer(clip: Path, tmp_path: Path) -> None:
    import os

    fifo, out = tmp_path / "fifo", tmp_path / "out.mkv"
    os.mkfifo(fifo)
    live = Live(camera(fifo, out))
    command = [ffmpeg_program(), "-v", "error", "-y", "-re", "-i", clip, "-c", "copy"]
    subprocess.run([*command, "-f", "matroska", fifo], check=True, stdin=subprocess.DEVNULL)
    live.wait()
    assert live.failures == []
    assert live.last["frames_in"] == 25
    check_sums(live.last, out)


def test_a_corrupt_stream_continues(
    clip: Path, tmp_path: Path, port: int, senders: list[Sender], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.mkv"
    seen: list[int] = []
    watch_sinks(monkeypatch, lambda frame: seen.append(frame.frame.pts))
    live = Live(camera(f"udp://127.0.0.1:{port}", out))
    noise = "noise=amount=200:drop=not(mod(n\\,7))"
    senders.append(Sender(clip, port, "-c", "copy", "-bsf:v", noise))
    live.until(lambda: len(seen) > 20)
    live.end()
    assert live.failures == []
    check_sums(live.last, out)


def test_a_source_that_dies_does_not_touch_the_others(clip: Path, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.mkv", tmp_path / "bad.mkv"
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"\0" * 5000)
    first = camera(clip, good, realtime=True)
    second = CameraConfig(name="bad", source=str(broken), to=(str(bad),), realtime=True)
    live = Live(first, second)
    live.wait()
    assert len(live.failures) == 1
    assert [line for line in live.lines if line.startswith("bad: ")] == [
        f"bad: cannot read {broken}: it is not a media file, or is damaged"
    ]
    assert len(shown_by_ffmpeg(good)) > 0
    assert not bad.exists()


def test_a_sink_that_fails_does_not_touch_the_others(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = EncodedSink.publish

    def failing(self: EncodedSink, frame: LiveFrame) -> None:
        if "bad" in self.name:  # from the first frame on: a busy machine may drop all others
            raise OutputError("cannot write bad.mkv: the disk is full")
        publish(self, frame)

    monkeypatch.setattr(EncodedSink, "publish", failing)
    good, bad = tmp_path / "good.mkv", tmp_path / "bad.mkv"
    live = Live(camera(clip, bad, good, realtime=True))
    live.wait()
    assert "cam: cannot write bad.mkv: the disk is full; its other sinks continue" in live.lines
    assert live.lines[-1].startswith(f"{good}: ")
    assert [str(each) for each in live.failures] == ["cannot write bad.mkv: the disk is full"]
    check_sums(live.last, good)


def test_times_are_those_of_a_file_though_the_stages_start_late(
    clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So regions with times are in time."""
    start, shown = LiveStages.start, dict[int, Fraction]()

    def late(self: LiveStages) -> None:
        start(self)
        threading.Event().wait(0.3)

    def publish(frame: LiveFrame) -> None:
        assert frame.source is not None
        shown[read_index(frame.source.luma)] = frame.frame.pts * frame.frame.time_base

    monkeypatch.setattr(LiveStages, "start", late)
    config = picture_config("fast", {})
    sink = SimpleNamespace(name="s", wants_source=True, dropped=0, publish=publish, close=int)
    with Engine(config, lambda _line: None) as engine:
        stream = engine.add("cam", parse_source(str(clip), realtime=True), config)
        stream.sinks.add(sink)  # type: ignore[arg-type]
        engine.run(threading.Event())
    assert min(shown) > 0
    assert shown == {index: index / RATE for index in shown}


def test_settings_change_between_two_frames(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an impossible setting, the previous ones stay in use."""
    shown: list[tuple[int, float]] = []

    class Watcher:
        name, wants_source, dropped = "watcher", True, 0

        def publish(self, frame: LiveFrame) -> None:
            assert frame.source is not None
            index = read_index(frame.source.luma)
            change = abs(frame.frame.luma.astype(int) - frame.source.luma.astype(int)).mean()
            shown.append((index, float(change)))

        def close(self) -> None:
            """Nothing to close."""

    config = picture_config("fast", {"effect": {"strength": 0.5}})
    cancel = threading.Event()
    with Engine(config, lambda _line: None) as engine:
        stream = engine.add("cam", parse_source(str(clip), loop=True), config)
        stream.sinks.add(Watcher())
        settings = LiveSettings("fast", {}, stream.stages.apply)
        thread = threading.Thread(target=engine.run, args=(cancel,))
        thread.start()
        wait_until(lambda: len(shown) > 5)
        settings.change("fast", {"effect": {"strength": 8.0}})
        at = len(shown)
        wait_until(lambda: len(shown) > at + 5)
        before = sum(change for _, change in shown[:5]) / 5
        after = sum(change for _, change in shown[-3:]) / 3
        assert after > 1.5 * before
        with pytest.raises(BgsoftError, match="alpha channel"):
            settings.change("cutout", {})
        at = len(shown)
        wait_until(lambda: len(shown) > at)
        assert settings.preset == "fast"
        cancel.set()
        thread.join(60)
    assert engine.failures == []


class Changing(StageSwitch):
    """A source whose size changes while new settings are built."""

    then: VideoInfo | None = None

    def _build(self, config: RenderConfig, info: VideoInfo) -> LiveStages:
        built = super()._build(config, info)
        if self.then is not None:
            then, self.then = self.then, None
            self.stages_for(then)
        return built


def test_settings_outlast_a_change_of_size_and_a_hang(clip: Path) -> None:
    config = picture_config("fast", {})
    info = probe(clip)
    small = replace(info, format=replace(info.format, width=32, height=24))
    with Engine(config, lambda _line: None) as engine:
        builder = engine.add("cam", parse_source(str(clip), loop=True), config).stages.builder
        switch = Changing(builder, config, Metrics(), lambda: False, lambda _what: None)
        switch.stages_for(info)
        switch.then = small
        switch.apply(picture_config("fast", {"effect": {"strength": 8.0}}))
        assert switch.config == config
        stages = switch.stages_for(small)
        assert stages.fits(small)
        assert switch.config.effect.strength == stages.config.effect.strength == 8.0
        switch.apply(picture_config("fast", {"effect": {"strength": 4.0}}))
        switch.restart(builder)
        assert switch.config.effect.strength == 4.0
        switch.close()
        stages.close()


@pytest.mark.parametrize(
    ("what", "named"), [("process", "the picture stages"), ("start", STARTING)]
)
def test_what_hangs_is_named_and_started_again(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, named: str
) -> None:
    hold, work = threading.Event(), getattr(LiveStages, what)
    hung: list[int] = []

    def hanging(self: LiveStages, *args: Any) -> Any:
        if not hung:
            hung.append(1)
            hold.wait()
        return work(self, *args)

    monkeypatch.setattr(LiveStages, what, hanging)
    out = tmp_path / "out.mkv"
    live = Live(camera(clip, out, loop=True), patience=HANGS_SOON, flags=NO_STALL)
    live.until(lambda: any("hangs" in line for line in live.lines))
    wait_until(lambda: _size(tmp_path) > 0)
    live.end()
    hold.set()
    assert live.lines[0].startswith(f"cam: {named} hangs (in ")
    assert len(shown_by_ffmpeg(out)) > 0


def test_a_device_that_a_stream_hangs_in_is_not_waited_for(clip: Path) -> None:
    hangs = threading.Event()
    config = picture_config("fast", {})
    engine = Engine(config, lambda _line: None)
    stream = engine.add("cam", parse_source(str(clip), loop=True), config)
    stream.watchdog.thread = DaemonThread(hangs.wait, "bgsoft-picture cam")
    stream.watchdog.thread.start()
    builder = SimpleNamespace(close=hangs.wait)
    engine._first = builder  # type: ignore[assignment]
    closing = threading.Thread(target=engine.close)
    closing.start()
    closing.join(10)
    assert not closing.is_alive()
    hangs.set()


def test_what_comes_back_while_it_is_replaced_ends(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bgsoft.live.stages import LiveStages

    hold, process, leave = threading.Event(), LiveStages.process, StageBuilder.leave
    hung, ended = list[threading.Thread](), list[bool]()

    def hanging(self: LiveStages, *args: Any) -> Any:
        if not hung:
            hung.append(threading.current_thread())
            hold.wait()
        return process(self, *args)

    def slowly(self: StageBuilder) -> None:
        hold.set()
        hung[0].join(2)
        ended.append(not hung[0].is_alive())
        leave(self)

    monkeypatch.setattr(LiveStages, "process", hanging)
    monkeypatch.setattr(StageBuilder, "leave", slowly)
    live = Live(camera(clip, tmp_path / "out.mkv", loop=True), patience=HANGS_SOON)
    live.until(lambda: bool(ended))
    live.end()
    assert ended[0]


def test_a_sink_that_hangs_is_left_out_and_the_others_continue(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold, publish = threading.Event(), EncodedSink.publish

    def hanging(self: EncodedSink, frame: LiveFrame) -> None:
        if "bad" in self.name:
            hold.wait()
        publish(self, frame)

    monkeypatch.setattr(EncodedSink, "publish", hanging)
    good, bad = tmp_path / "good.ts", tmp_path / "bad.ts"
    live = Live(camera(clip, bad, good, loop=True), patience=HANGS_SOON)
    live.until(lambda: any("hangs" in line for line in live.lines))
    at = live.lines[0]
    assert at.startswith(f"cam: the sink {bad} hangs (in ")
    live.until(lambda: _size(tmp_path) > 5000)
    live.end()
    hold.set()
    assert [str(each) for each in live.failures] == [f"the sink {bad} hangs"]
    assert len(shown_by_ffmpeg(good)) > 0


def test_stages_that_do_not_start_are_freed(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bgsoft.live.stages import LiveStages

    start, close = LiveStages.start, LiveStages.close
    failed, closed = list[LiveStages](), list[LiveStages]()

    def failing(self: LiveStages) -> None:
        if len(failed) < 2:
            failed.append(self)
            raise InferenceError("out of memory")
        start(self)

    def watched(self: LiveStages) -> None:
        closed.append(self)
        close(self)

    monkeypatch.setattr(LiveStages, "start", failing)
    monkeypatch.setattr(LiveStages, "close", watched)
    live = Live(camera(clip, tmp_path / "out.mkv", realtime=True))
    live.wait()
    assert closed[:2] == failed
    assert len(closed) == 3
    assert live.last["frames_out"] > 0


def test_stages_that_never_start_end_their_source_alone(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, good = LiveStages.start, tmp_path / "good.ts"

    def failing(self: LiveStages) -> None:
        if self.info.format.width == 64:
            raise InferenceError("out of memory")
        start(self)

    monkeypatch.setattr(LiveStages, "start", failing)
    small = VideoSpec(width=64, height=48, times=regular_times(25, RATE), rate=RATE)
    bad = CameraConfig(
        name="bad",
        source=str(write_video(tmp_path / "small.mkv", small)),
        to=(str(tmp_path / "bad.ts"),),
        loop=True,
    )
    live = Live(camera(clip, good, loop=True), bad)
    live.until(lambda: any(each["source"] == "bad" for each in live.stats))
    live.until(lambda: _size(tmp_path) > 20_000)
    live.end()
    assert [line for line in live.lines if line.startswith("bad: ")] == ["bad: out of memory"] * 2
    assert [str(each) for each in live.failures] == ["out of memory"]
    assert len(shown_by_ffmpeg(good)) > 0


def test_wrong_settings_from_a_page_do_not_end_a_source_that_has_not_come(clip: Path) -> None:
    config = picture_config("fast", {})
    lines: list[str] = []
    with Engine(config, lines.append) as engine:
        stream = engine.add("cam", parse_source(str(clip), loop=True), config)
        sink = SimpleNamespace(close=lambda: None, wants_source=False)
        stream.sinks.add(sink)  # type: ignore[arg-type]
        stream.stages.apply(picture_config("fast", {"segment": {"model": "none"}}))
        stream.start()
        wait_until(lambda: stream.over or any("unknown model" in line for line in lines))
        assert not stream.over


@pytest.mark.parametrize("what", ["start", "process"])
def test_sources_do_not_wait_for_each_other(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """One source's stages start slowly, or hang; the other sources still run."""
    hold, work = threading.Event(), getattr(LiveStages, what)
    hung: list[LiveStages] = []
    shown: dict[str, int] = {}

    def hanging(self: LiveStages, *args: Any) -> Any:
        if self.info.format.width == 64 and not hung:
            hung.append(self)
            hold.wait()
        return work(self, *args)

    publish = EncodedSink.publish

    def counted(self: EncodedSink, frame: LiveFrame) -> None:
        shown[self.name] = shown.get(self.name, 0) + 1
        publish(self, frame)

    monkeypatch.setattr(LiveStages, what, hanging)
    monkeypatch.setattr(EncodedSink, "publish", counted)
    small = VideoSpec(width=64, height=48, times=regular_times(25, RATE), rate=RATE)
    source = write_video(tmp_path / "small.mkv", small)
    good, bad = tmp_path / "good.ts", tmp_path / "bad.ts"
    first = camera(clip, good, loop=True)
    second = CameraConfig(name="bad", source=str(source), to=(str(bad),), loop=True, preset="fast")
    live = Live(first, second, patience=Patience(hang_seconds=300.0), flags=NO_STALL)
    live.until(lambda: bool(hung) and shown.get(str(good), 0) > 3)
    assert live.lines == []
    hold.set()
    live.until(lambda: shown.get(str(bad), 0) > 3)
    live.end()
    assert live.failures == []
