"""The virtual camera, with a stand-in for its library."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from bgsoft.errors import BackendUnavailableError, ConfigError
from bgsoft.frame import ColorInfo, FrameFormat
from bgsoft.live.settings import picture_config
from bgsoft.live.virtual_camera import VirtualCamera
from tests.live_frames import live_frame
from tests.rendering import video_info


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
    info = video_info(FrameFormat(width=65, height=49, color=ColorInfo(full_range=True)))
    sink = VirtualCamera("/dev/video9", picture_config("fast", {}), lambda: info)
    sink.publish(live_frame(255, info.format))
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
    assert camera.sent[0][24 * 64] == 235, "white in limited range"
    assert not camera.open


def test_a_virtual_camera_needs_its_library_and_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyvirtualcam", None)
    with pytest.raises(BackendUnavailableError, match=r"pip install '\.\[live\]'"):
        VirtualCamera("/dev/video9", picture_config("fast", {}), lambda: None)
    with pytest.raises(ConfigError, match="no alpha channel"):
        VirtualCamera("/dev/video9", picture_config("cutout", {}), lambda: None)
