"""Streams that are sent while their receiver disappears and returns."""

from __future__ import annotations

import itertools
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bgsoft.errors import OutputError
from bgsoft.live.encoded import EncodedSink
from bgsoft.live.settings import picture_config
from tests.live_frames import SMALL, live_frame
from tests.outside import ffmpeg_program, shown_by_ffmpeg
from tests.processes import wait_until
from tests.rendering import video_info

CONFIG = picture_config("fast", {})


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


class Player:
    """Publishes frames to a sink at their own pace, from a thread."""

    def __init__(self, sink: EncodedSink) -> None:
        self.published = 0
        self._sink, self._ending = sink, threading.Event()
        self._thread = threading.Thread(target=self._play)
        self._thread.start()

    def _play(self) -> None:
        info = video_info(SMALL)
        for index in itertools.count():
            if self._ending.wait(0.02):
                return
            frame = live_frame(index % 200)
            at = replace(frame.frame, pts=index * 1800, time_base=info.time_base)
            self._sink.publish(replace(frame, frame=at))
            self.published += 1

    def end(self) -> None:
        self._ending.set()
        self._thread.join(30)


@pytest.fixture
def receivers() -> Iterator[list[subprocess.Popen[bytes]]]:
    made: list[subprocess.Popen[bytes]] = []
    yield made
    for receiver in made:
        receiver.kill()
        receiver.wait()


def test_a_stream_whose_receiver_dies_is_opened_again(
    tmp_path: Path, port: int, receivers: list[subprocess.Popen[bytes]]
) -> None:
    url, lines = f"rtmp://127.0.0.1:{port}/live/key", list[str]()

    def receive(name: str) -> None:
        command = [ffmpeg_program(), "-v", "error", "-f", "flv", "-listen", "1", "-i", url]
        output = ["-c", "copy", str(tmp_path / name)]
        receivers.append(subprocess.Popen([*command, *output], stdin=subprocess.DEVNULL))

    sink = EncodedSink(url, CONFIG, lambda: video_info(SMALL), report=lines.append)
    sink.back_seconds = 0.2
    player = Player(sink)
    wait_until(lambda: len(lines) == 1)
    receive("first.mkv")
    wait_until(lambda: len(lines) == 2)
    receivers[0].kill()
    wait_until(lambda: len(lines) == 3)
    receive("second.mkv")
    wait_until(lambda: len(lines) == 4)
    player.end()
    sink.close()
    receivers[1].wait(30)
    gone, back = "; opening it again", f"{url} is back"
    assert [line.endswith(gone) for line in lines] == [True, False, True, False]
    assert lines[1] == lines[3] == back
    shown = shown_by_ffmpeg(tmp_path / "second.mkv")
    assert shown == sorted(set(shown))
    assert 1 < len(shown) <= player.published - sink.dropped
    assert 0 < sink.dropped < player.published


def test_what_cannot_be_sent_at_all_is_no_stream_that_is_away(port: int) -> None:
    """For example a protocol that this build of FFmpeg lacks."""
    lines: list[str] = []
    url = f"srt://127.0.0.1:{port}"
    sink = EncodedSink(url, CONFIG, lambda: video_info(SMALL), report=lines.append)
    sink._target = f"nothing://127.0.0.1:{port}"
    sink.publish(live_frame(1))
    sink._thread.join(30)
    with pytest.raises(OutputError, match=f"cannot send to {url}"):
        sink.close()
    assert lines == []


def test_a_recording_that_fails_is_not_opened_again(tmp_path: Path) -> None:
    lines: list[str] = []
    path = tmp_path / "gone" / "a.ts"
    path.parent.mkdir()
    sink = EncodedSink(str(path), CONFIG, lambda: video_info(SMALL), report=lines.append)
    sink._target = f"file:{tmp_path}/nowhere/a.ts"
    sink.publish(live_frame(1))
    sink._thread.join(30)
    with pytest.raises(OutputError):
        sink.close()
    assert lines == []
