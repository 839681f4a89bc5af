"""Sinks with threads of their own: a slow one drops frames, a broken one stops."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from bgsoft.errors import OutputError
from bgsoft.frame import ColorInfo, Frame, FrameFormat, PixelLayout
from bgsoft.live.queued import Fitter, QueuedSink
from tests.live_frames import SMALL, live_frame
from tests.rendering import video_info


class SlowSink(QueuedSink):
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
    with pytest.raises(OutputError, match=r"^slow: it broke; what was written is kept as a part$"):
        sink.publish(live_frame(1))
    assert sink.ended == "abandoned"
    with pytest.raises(OutputError, match="it broke"):
        sink.close()
    sink.close()


def test_the_first_failure_is_reported_where_letting_go_fails_too(
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


@pytest.mark.parametrize(
    ("color", "red"),
    [
        (ColorInfo(matrix=6), (81, 90, 240)),
        (ColorInfo(matrix=1), (63, 102, 240)),
        (ColorInfo(matrix=6, full_range=True), (76, 85, 255)),
    ],
)
@pytest.mark.parametrize("width", [64, 32])
def test_red_of_another_range_or_matrix_stays_red(
    color: ColorInfo, red: tuple[int, int, int], width: int
) -> None:
    """The values are those of ITU-R BT.601 and BT.709."""
    fitter = Fitter(video_info(replace(SMALL, color=ColorInfo(matrix=6))))
    frame = live_frame(77, FrameFormat(width=width, height=48, color=color)).frame
    frame.luma.fill(red[0])
    frame.chroma[:] = red[1:]
    fitted = fitter.fit(frame)
    found = int(fitted.luma[24, 32]), *map(int, fitted.chroma[12, 16])
    assert np.abs(np.subtract(found, (81, 90, 240))).max() <= 1
    assert width < 64 or (fitted.planes.alpha == 77).all()
