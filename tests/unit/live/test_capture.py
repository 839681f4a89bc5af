"""The thread of a source, with scripted sources."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from av.packet import Packet
from av.video.frame import VideoFrame

from bgsoft.clock import StageClock
from bgsoft.errors import BgsoftError, DecodeError, OpenError, UnsupportedFormatError
from bgsoft.frame import FrameFormat
from bgsoft.live import capture as module
from bgsoft.live.capture import Capture, SourceState
from bgsoft.live.source import Feed, Patience, Picture, SourceKind, SourceSpec
from tests.face_clips import SAMPLE
from tests.processes import wait_until
from tests.rendering import video_info

INFO = video_info(FrameFormat(width=16, height=16))
Script = Callable[[threading.Event], Iterator[Picture]]


def picture() -> Picture:
    return Picture(VideoFrame(16, 16, "yuv420p"), INFO, None, time.monotonic_ns())


class FakeFeed:
    """Play the next script each time it is opened; end after the last."""

    def __init__(self, *scripts: Script | BgsoftError) -> None:
        self.scripts = list(scripts)
        self.opened = 0
        self.closed = 0
        self.skipped = self.damaged = 0

    def __call__(self, _spec: object, stop: threading.Event, _clock: object) -> Any:
        self.opened += 1
        script = self.scripts.pop(0) if self.scripts else OpenError("nothing there")
        if isinstance(script, BgsoftError):
            raise script
        self.pictures = lambda: script(stop)
        return self

    def __enter__(self) -> FakeFeed:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed += 1


def frames(count: int, then: BgsoftError | None = None) -> Script:
    def play(_stop: threading.Event) -> Iterator[Picture]:
        for _ in range(count):
            yield picture()
        if then is not None:
            raise then

    return play


def spec(kind: SourceKind) -> SourceSpec:
    return SourceSpec(name="it", kind=kind)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.Backoff, "wait_seconds", lambda _self: 0.001)


def test_a_file_ends_where_it_ends() -> None:
    feed, lines = FakeFeed(frames(3)), []
    capture = Capture(spec(SourceKind.FILE), threading.Event(), lines.append, feed=feed)
    capture.start()
    wait_until(lambda: capture.state is SourceState.ENDED)
    assert (capture.frames_in, capture.dropped, capture.error) == (3, 2, None)
    assert (feed.opened, feed.closed, lines) == (1, 1, [])


@pytest.mark.parametrize("then", [None, DecodeError("it: cut")])
def test_frames_skipped_at_the_end_are_counted(then: BgsoftError | None) -> None:
    def play(_stop: threading.Event) -> Iterator[Picture]:
        yield picture()
        feed.skipped, feed.damaged = 3, 1
        if then is not None:
            raise then

    feed = FakeFeed(play)
    capture = Capture(spec(SourceKind.FILE), threading.Event(), lambda _: None, feed=feed)
    capture.start()
    wait_until(lambda: capture.state is SourceState.ENDED)
    assert (capture.frames_in, capture.dropped, capture.damaged) == (4, 3, 1)
    assert capture.error is then


def test_a_stream_that_fails_is_opened_again_and_said_so_once() -> None:
    gone = DecodeError("it: cut")
    away = [OpenError("it sends nothing")] * 4
    feed = FakeFeed(OpenError("it sends nothing"), frames(2, gone), *away, frames(1, gone))
    lines: list[str] = []
    capture = Capture(spec(SourceKind.NETWORK), threading.Event(), lines.append, feed=feed)
    capture.start()
    wait_until(lambda: feed.opened > 8)
    capture.stop()
    assert capture.frames_in == 3
    assert lines[:5] == [
        "it sends nothing; opening it again",
        "it: cut; opening it again",
        "it sends nothing; opening it again",
        "it is back",
        "it: cut; opening it again",
    ]
    assert len(lines) <= 6  # and nothing for each further try
    assert capture.state is SourceState.AWAY


@pytest.mark.parametrize(
    ("kind", "error", "over"),
    [
        (SourceKind.CAMERA, OpenError("no such camera"), True),
        (SourceKind.NETWORK, UnsupportedFormatError("no srt here"), True),
        (SourceKind.FILE, OpenError("no such file"), True),
        (SourceKind.PIPE, OpenError("no video"), True),
        (SourceKind.NETWORK, OpenError("nobody there yet"), False),
    ],
)
def test_what_was_never_there_ends_it_but_for_a_network(
    kind: SourceKind, error: BgsoftError, over: bool
) -> None:
    feed = FakeFeed(error, frames(1))
    capture = Capture(spec(kind), threading.Event(), lambda _: None, feed=feed)
    capture.start()
    wait_until(lambda: capture.state is SourceState.ENDED or capture.frames_in == 1)
    capture.stop()
    assert (capture.error is error) is over


def test_a_camera_that_is_unplugged_is_opened_again() -> None:
    feed = FakeFeed(frames(1, DecodeError("it: no such device")), frames(1))
    capture = Capture(spec(SourceKind.CAMERA), threading.Event(), lambda _: None, feed=feed)
    capture.start()
    wait_until(lambda: capture.frames_in == 2)
    capture.stop()
    assert capture.restarts >= 1


def test_a_thread_that_hangs_is_replaced_and_does_nothing_when_it_returns() -> None:
    hold = threading.Event()

    def hang(_stop: threading.Event) -> Iterator[Picture]:
        yield picture()
        hold.wait()
        yield picture()

    def last(stop: threading.Event) -> Iterator[Picture]:
        yield picture()
        stop.wait()

    feed, lines = FakeFeed(hang, last), []
    capture = Capture(spec(SourceKind.CAMERA), threading.Event(), lines.append, feed=feed)
    capture.start()
    wait_until(lambda: capture.frames_in == 1)
    capture.check(time.monotonic())
    assert lines == []
    capture.check(time.monotonic() + capture.spec.patience.sign_seconds + 1)
    assert lines[0] == "it: reading it hangs; trying again beside that"
    wait_until(lambda: capture.frames_in == 2)
    hold.set()
    wait_until(lambda: feed.closed == 1)
    assert capture.frames_in == 2
    assert lines[1:] == ["it is back"]
    capture.stop()


@pytest.mark.parametrize("stopped", [False, True])
def test_a_network_stream_that_sends_no_more_video_ends(stopped: bool) -> None:
    """Whatever else it sends, for example sound."""
    stop = threading.Event()
    with Feed(SourceSpec(name=str(SAMPLE), kind=SourceKind.FILE), stop, StageClock()) as feed:
        feed._spec = replace(feed._spec, kind=SourceKind.NETWORK, patience=Patience(read_seconds=0))
        sound = itertools.repeat(SimpleNamespace(stream=None, size=1))
        file = feed._container
        feed._container = SimpleNamespace(demux=lambda *_: sound, close=file.close)  # type: ignore[assignment]
        pictures = feed.pictures()
        if stopped:
            stop.set()
            assert next(pictures, None) is None
        else:
            with pytest.raises(OpenError, match="no video comes"):
                next(pictures)


@pytest.mark.parametrize("skipped", ["DEFAULT", "NONKEY"])
def test_a_network_stream_whose_packets_give_no_more_frames_ends(skipped: str) -> None:
    """Its sender has returned with another codec."""
    stop = threading.Event()
    with Feed(SourceSpec(name=str(SAMPLE), kind=SourceKind.FILE), stop, StageClock()) as feed:
        patience = Patience(open_seconds=0, read_seconds=0)
        feed._spec = replace(feed._spec, kind=SourceKind.NETWORK, patience=patience)
        file = feed._container

        def demux() -> Iterator[Packet[Any]]:
            yield from itertools.islice(file.demux(feed._stream), 9)
            for _ in range(9):
                other = Packet(b"another codec")
                other.stream = feed._stream
                yield other

        feed._container = SimpleNamespace(  # type: ignore[assignment]
            demux=demux, close=file.close, format=file.format, duration=file.duration
        )
        pictures = feed.pictures()
        next(pictures)
        feed._codec.skip_frame = skipped
        with pytest.raises(OpenError, match="no video comes"):
            list(pictures)
