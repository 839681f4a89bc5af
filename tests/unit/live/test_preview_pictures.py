"""Pictures of the preview, and when they are encoded."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import pytest

from bgsoft.errors import EncodeError, OutputError
from bgsoft.frame import ColorInfo, FrameFormat, PixelLayout
from bgsoft.live import preview as preview_module
from bgsoft.live.preview import PreviewServer
from bgsoft.rendering.preview import frame_to_bgr
from bgsoft.settings.config import EffectKind
from tests.live_frames import flat_planes, live_frame
from tests.unit.live.conftest import Applied, Clock, ask, picture


@pytest.mark.parametrize(
    ("size", "shown"),
    [((64, 48), (48, 64)), ((65, 47), (47, 65)), ((1, 1), (1, 1)), ((2600, 100), (33, 866))],
)
@pytest.mark.parametrize("layout", PixelLayout)
def test_views(
    server: PreviewServer, size: tuple[int, int], shown: tuple[int, int], layout: PixelLayout
) -> None:
    color = ColorInfo(matrix=9)
    format = FrameFormat(width=size[0], height=size[1], layout=layout, color=color)
    source = flat_planes(format, 60)
    frame = live_frame(170, format, source=source)
    frame.frame.planes.chroma[..., 0] //= 2
    for view, planes in (("source", source), ("result", frame.frame.planes)):
        decoded = picture(server, view, frame)
        assert decoded.shape == (*shown, 3)
        expected = frame_to_bgr(planes.luma, planes.chroma, format)[0, 0].astype(int)
        assert np.abs(decoded.astype(int) - expected).max() <= 3
    matte = picture(server, "matte", frame)
    assert matte.shape == (*shown, 3)
    assert np.abs(matte.astype(int) - 170).max() <= 1


def test_colours_are_the_frames_where_the_picture_is_made_smaller(server: PreviewServer) -> None:
    """If the source names no matrix, its own height chooses it, not the preview's."""
    format = FrameFormat(width=2560, height=720)
    frame = live_frame(120, format)
    frame.frame.planes.chroma[..., 1] = 190
    expected = frame_to_bgr(frame.frame.luma, frame.frame.chroma, format)[0, 0].astype(int)
    decoded = picture(server, "result", frame)
    assert decoded.shape == (360, 1280, 3)
    assert np.abs(decoded[100, 100].astype(int) - expected).max() <= 3


def test_the_effect_matte_shows_the_matte(server: PreviewServer, applied: Applied) -> None:
    applied.settings.config = replace(
        applied.settings.config,
        effect=replace(applied.settings.config.effect, kind=EffectKind.MATTE),
    )
    frame = live_frame(200)
    frame.frame.planes.luma[:] = 16
    assert np.abs(picture(server, "result", frame).astype(int) - 200).max() <= 1


def test_another_size_is_shown(server: PreviewServer) -> None:
    assert picture(server, "result", live_frame(1)).shape == (48, 64, 3)
    large = FrameFormat(width=128, height=96)
    frame = live_frame(50, large)
    shapes = {picture(server, "result", frame).shape for _ in range(2)}
    assert (96, 128, 3) in shapes


def test_nothing_is_encoded_unless_somebody_looks(
    server: PreviewServer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(*_args: object) -> None:
        raise AssertionError("nobody looks")

    with monkeypatch.context() as patch:
        patch.setattr(cv2, "imencode", encode)
        for value in range(5):
            server.publish(live_frame(value))
    assert picture(server, "matte", live_frame(90)).any()
    assert set(server._pictures) == {"matte"}
    assert server.dropped >= 0
    clock.seconds += 10  # and the page has been closed
    number = server._pictures["matte"][0]
    server.publish(live_frame(91))
    assert not server._is_taken
    assert server._pictures["matte"][0] == number


def test_what_comes_while_one_is_encoded_is_dropped_and_counted(
    server: PreviewServer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    encode = cv2.imencode

    def slow(*args: Any) -> Any:
        begun.set()
        assert go_on.wait(20)
        return encode(*args)

    monkeypatch.setattr(cv2, "imencode", slow)
    server._watched["result"] = clock()
    try:
        server.publish(live_frame(1))
        assert begun.wait(20)
        server.publish(live_frame(2))  # at once: too soon to count
        for value in range(3, 7):
            clock.seconds += 0.1
            server.publish(live_frame(value))
        assert server.dropped == 4
    finally:
        go_on.set()
    assert json.loads(ask(server, "/state")[1])["figures"] == {"frames_in": 12, "not shown here": 4}


def test_an_encoder_that_fails_ends_the_preview_and_says_so(
    server: PreviewServer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object, **_more: object) -> None:
        raise EncodeError("no picture of a frame")

    monkeypatch.setattr(preview_module._Snapshot, "encode", fail)
    server._watched["result"] = clock()
    server.publish(live_frame(1))
    server._threads[0].join(20)
    clock.seconds += 0.1
    with pytest.raises(OutputError, match="cannot show the preview: no picture"):
        server.publish(live_frame(2))
