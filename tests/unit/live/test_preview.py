"""The browser's preview, by urllib: who may see it, what it shows, and what its sliders do."""

from __future__ import annotations

import json
import socket
import threading
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from bgsoft.errors import ConfigError, EncodeError, OutputError
from bgsoft.exitcodes import ExitCode, exit_code
from bgsoft.frame import ColorInfo, FrameFormat, PixelLayout
from bgsoft.live import page
from bgsoft.live import preview as preview_module
from bgsoft.live.base import LiveFrame
from bgsoft.live.preview import PreviewServer
from bgsoft.live.settings import LiveSettings
from bgsoft.rendering.preview import frame_to_bgr
from bgsoft.settings import presets
from bgsoft.settings.config import EffectKind, FaceMode, RenderConfig
from bgsoft.settings.presets import load_preset, save_preset
from tests.live_frames import flat_planes, live_frame


class Applied:
    """The settings of a stream without one: what it was given, and what it cannot do."""

    def __init__(self) -> None:
        self.configs: list[RenderConfig] = []
        flags = {"effect": {"strength": 4.0}, "face": {"mode": FaceMode.OFF}}
        self.settings = LiveSettings("soft", flags, self.apply, lambda: {"frames_in": 12})

    def apply(self, config: RenderConfig) -> None:
        if config.effect.kind is EffectKind.ALPHA:
            raise ConfigError("no alpha while a stream runs")
        self.configs.append(config)


@pytest.fixture
def applied() -> Applied:
    return Applied()


@pytest.fixture
def server(applied: Applied, monkeypatch: pytest.MonkeyPatch) -> Iterator[PreviewServer]:
    monkeypatch.setattr(preview_module, "_INTERVAL_SECONDS", 0.0)
    before = set(threading.enumerate())
    with PreviewServer(0, applied.settings) as server:
        yield server
    until = time.monotonic() + 20
    while left := set(threading.enumerate()) - before:
        assert time.monotonic() < until, left
        time.sleep(0.005)


def ask(
    server: PreviewServer,
    path: str,
    body: Any = None,
    *,
    headers: dict[str, str] | None = None,
    token: str | None = None,
) -> tuple[int, bytes, Any]:
    """Status, body and headers of an answer; what is not bytes is sent as JSON."""
    origin, _, own = server.url.partition("/?token=")
    address = f"{origin}{path}{'&' if '?' in path else '?'}token={own if token is None else token}"
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(address, data=data, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, exc.read(), exc.headers


def error(answer: tuple[int, bytes, Any]) -> str:
    assert answer[0] == 400
    text = json.loads(answer[1])["error"]
    assert "\n" not in text
    return str(text)


def picture(server: PreviewServer, view: str, frame: LiveFrame) -> np.ndarray[Any, Any]:
    """What a view shows of a frame; (H, W, 3), as a browser has it."""
    answers: list[tuple[int, bytes, Any]] = []
    seen = server._pictures.get(view, (0,))[0]
    path = f"/picture?view={view}&after={seen}"
    thread = threading.Thread(target=lambda: answers.append(ask(server, path)))
    thread.start()
    until = time.monotonic() + 20
    while thread.is_alive() and time.monotonic() < until:
        server.publish(frame)
        thread.join(0.005)
    ((status, data, headers),) = answers
    assert status == 200
    assert headers["Content-Type"] == "image/jpeg"
    assert int(headers["X-Number"]) > seen
    assert 0 <= float(headers["X-Age-Ms"]) < 60_000
    decoded = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    assert decoded is not None
    return decoded


@pytest.mark.parametrize("path", ["/", "/state", "/picture?view=result", "/nowhere"])
def test_nothing_is_shown_without_the_token(server: PreviewServer, path: str) -> None:
    for token in ("", "x", server.token[:-1], server.token + "x"):
        status, body, _ = ask(server, path, token=token)
        assert (status, server.token.encode() in body) == (403, False)
    origin = server.url.partition("?")[0].rstrip("/")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(origin + path, timeout=20)
    with caught.value as refused:
        assert refused.code == 403


def test_nothing_is_changed_without_the_token(server: PreviewServer, applied: Applied) -> None:
    for path in ("/change", "/save"):
        assert ask(server, path, {"strength": 1, "name": "x"}, token="x")[0] == 403
    assert not applied.configs


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", ""])
def test_another_host_is_refused_with_the_token_too(server: PreviewServer, host: str) -> None:
    port = server.url.split(":")[2].partition("/")[0]
    headers = {"Host": host.format(port=port)}
    assert ask(server, "/", headers=headers)[0] == 403
    assert ask(server, "/change", {"strength": 1}, headers=headers)[0] == 403
    assert ask(server, "/", headers={"Host": f"localhost:{port}"})[0] == 200


def test_only_this_machine_is_served(server: PreviewServer) -> None:
    assert server._server.server_address[0] == "127.0.0.1"


def test_the_page_needs_nothing_from_elsewhere(server: PreviewServer) -> None:
    status, body, headers = ask(server, "/")
    assert status == 200
    text = body.decode()
    assert "http://" not in text
    assert "https://" not in text
    for view in ("source", "matte", "result"):
        assert f'id="{view}"' in text
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["Referrer-Policy"] == "no-referrer"
    assert ask(server, "/favicon.ico")[0] == 404
    assert ask(server, "/picture?view=other")[0] == 404
    assert ask(server, "/other", {})[0] == 404


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
    """A matrix that the source does not name goes by its height, not by the preview's."""
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
    server: PreviewServer, monkeypatch: pytest.MonkeyPatch
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
    monkeypatch.setattr(preview_module, "_WATCHED_SECONDS", 0.0)
    number = server._pictures["matte"][0]
    server.publish(live_frame(91))
    assert not server._is_taken
    assert server._pictures["matte"][0] == number


def test_what_comes_while_one_is_encoded_is_dropped_and_counted(
    server: PreviewServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    encode = cv2.imencode

    def slow(*args: Any) -> Any:
        begun.set()
        assert go_on.wait(20)
        return encode(*args)

    monkeypatch.setattr(cv2, "imencode", slow)
    server._watched["result"] = time.monotonic()
    try:
        server.publish(live_frame(1))
        assert begun.wait(20)
        for value in range(2, 6):
            server.publish(live_frame(value))
        assert server.dropped == 4
    finally:
        go_on.set()
    assert json.loads(ask(server, "/state")[1])["figures"] == {"frames_in": 12, "not shown here": 4}


def test_an_encoder_that_fails_ends_the_preview_and_says_so(
    server: PreviewServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object, **_more: object) -> None:
        raise EncodeError("no picture of a frame")

    monkeypatch.setattr(preview_module._Snapshot, "encode", fail)
    server._watched["result"] = time.monotonic()
    server.publish(live_frame(1))
    server._threads[0].join(20)
    with pytest.raises(OutputError, match="the preview ends: no picture"):
        server.publish(live_frame(2))


def test_sliders_show_what_is_in_force(server: PreviewServer) -> None:
    state = json.loads(ask(server, "/state")[1])
    values = {name: slider["value"] for name, slider in state["sliders"].items()}
    assert values == {"strength": 4.0, "threshold": 0.5, "feather": 0.0, "temporal": 0.7}
    assert (state["sliders"]["strength"]["low"], state["sliders"]["strength"]["high"]) == (0, 25)
    assert (state["sliders"]["feather"]["low"], state["sliders"]["feather"]["high"]) == (0, 10)
    assert state["preset"] == "soft"
    assert {"soft", "studio"} <= set(state["presets"])


def test_a_slider_changes_what_is_in_force(server: PreviewServer, applied: Applied) -> None:
    status, body, _ = ask(server, "/change", {"strength": 7.5, "feather": 1})
    assert status == 200
    assert json.loads(body)["sliders"]["strength"]["value"] == 7.5
    assert ask(server, "/change", {"temporal": 0})[0] == 200
    config = applied.settings.config
    assert config is applied.configs[-1]
    assert (config.effect.strength, config.matte.feather_pct, config.matte.temporal) == (7.5, 1, 0)
    assert config.face.mode is FaceMode.OFF, "what else the user has named stays"


def test_changes_at_once_both_count(
    server: PreviewServer, applied: Applied, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2)
    take = applied.settings._apply

    def apply(config: RenderConfig) -> None:
        with suppress(threading.BrokenBarrierError):
            both.wait(0.2)  # the other one has looked at the settings, or waits for its turn
        take(config)

    monkeypatch.setattr(applied.settings, "_apply", apply)
    bodies: list[dict[str, float]] = [{"strength": 7.5}, {"feather": 1}]
    threads = [threading.Thread(target=ask, args=(server, "/change", body)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    config = applied.settings.config
    assert (config.effect.strength, config.matte.feather_pct) == (7.5, 1)


def test_a_preset_takes_back_what_sliders_have_set(server: PreviewServer, applied: Applied) -> None:
    ask(server, "/change", {"strength": 7.5, "temporal": 0.1})
    status, body, _ = ask(server, "/change", {"preset": "studio"})
    assert status == 200
    state = json.loads(body)
    preset = load_preset("studio").settings
    assert state["preset"] == "studio"
    assert state["sliders"]["strength"]["value"] == preset["effect"]["strength"]
    assert applied.configs[-1].effect.kind == preset["effect"]["kind"]
    assert applied.configs[-1].face.mode is FaceMode.OFF
    assert ask(server, "/change", {"strength": 1})[0] == 200
    assert applied.configs[-1].effect.kind == preset["effect"]["kind"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"strength": 26}, "between 0 and 25"),
        ({"feather": 11}, "feather must be between 0 and 10"),
        ({"feather": float("nan")}, "feather must be between 0 and 10"),
        ({"temporal": "much"}, "temporal must be a number"),
        ({"temporal": [1]}, "temporal must be a number"),
        ({"stength": 1}, "did you mean strength"),
        ({"gpu": 1}, "unknown setting"),
        ({"preset": "studoi"}, "did you mean studio"),
        ({"preset": "/etc/passwd"}, "unknown preset"),
        ({"preset": ["soft"]}, "unknown preset"),
        ({"preset": "cutout"}, "no alpha while a stream runs"),
        ([1], "no JSON object"),
        (b"{", "no JSON"),
        (b"[" * 9000, "no JSON"),
        (b" " * 70_000, "too long"),
    ],
)
def test_what_cannot_be_is_said_and_changes_nothing(
    server: PreviewServer, applied: Applied, body: Any, words: str
) -> None:
    before = applied.settings.config
    assert words in error(ask(server, "/change", body))
    assert applied.settings.config is before
    assert not applied.configs


def test_settings_are_saved_as_a_preset(
    server: PreviewServer, applied: Applied, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presets, "user_folder", lambda: tmp_path / "presets")
    ask(server, "/change", {"strength": 7.5, "threshold": 0.4})
    status, body, _ = ask(server, "/save", {"name": "mine"})
    path = tmp_path / "presets" / "mine.toml"
    assert (status, json.loads(body)["saved"]) == (200, str(path))
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    assert (table["effect"]["strength"], table["matte"]["threshold"]) == (7.5, 0.4)
    other = LiveSettings("mine", {}, lambda _config: None).config
    config = applied.settings.config
    for section in ("effect", "segment", "face", "hide", "matte"):
        assert getattr(other, section) == getattr(config, section)
    ask(server, "/change", {"strength": 3})
    assert (
        error(ask(server, "/save", {"name": "mine"}))
        == "cannot save preset mine: it exists already"
    )
    assert load_preset("mine").settings["effect"]["strength"] == 7.5
    assert ask(server, "/save", {"name": "mine", "replace": True})[0] == 200
    assert load_preset("mine").settings["effect"]["strength"] == 3
    assert "mine" in json.loads(ask(server, "/state")[1])["presets"]
    assert [file.name for file in path.parent.iterdir()] == ["mine.toml"]


@pytest.mark.parametrize("name", ["soft", "../x", "", None, "a" * 65, ".x"])
def test_names_of_saved_presets_are_checked(
    server: PreviewServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: Any
) -> None:
    monkeypatch.setattr(presets, "user_folder", lambda: tmp_path)
    if name is None:
        assert "the name of a preset" in error(ask(server, "/save", {"nom": "x"}))
    else:
        assert "name" in error(ask(server, "/save", {"name": name, "replace": True}))
    assert not list(tmp_path.iterdir())


def test_a_preset_that_cannot_be_written_is_an_error(
    server: PreviewServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    monkeypatch.setattr(presets, "user_folder", lambda: tmp_path / "file" / "presets")
    assert "cannot create folder" in error(ask(server, "/save", {"name": "mine"}))


def test_a_saved_background_does_not_depend_on_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presets, "user_folder", lambda: tmp_path / "presets")
    monkeypatch.chdir(tmp_path)
    Path("beach.png").write_bytes(b"picture")
    flags = {"effect": {"kind": EffectKind.IMAGE, "background": "beach.png"}}
    config = LiveSettings("soft", flags, lambda _config: None).config
    save_preset("beach", config, replaces=False)
    found = load_preset("beach").settings["effect"]["background"]
    assert found == str(tmp_path / "beach.png")


def test_a_port_in_use_is_an_error_in_one_line(server: PreviewServer, applied: Applied) -> None:
    port = server._server.port
    with pytest.raises(OutputError) as caught:
        PreviewServer(port, applied.settings)
    assert str(caught.value) == f"cannot show the preview on port {port}: Address already in use"
    assert exit_code(caught.value) == ExitCode.OUTPUT
    with pytest.raises(ConfigError, match="between 0 and 65535"):
        PreviewServer(65536, applied.settings)


def test_a_port_is_free_again_after_the_preview(applied: Applied) -> None:
    with PreviewServer(0, applied.settings) as first:
        port = first._server.port
        assert ask(first, "/state")[0] == 200
    first.close()
    with PreviewServer(port, applied.settings) as second:
        assert ask(second, "/state")[0] == 200


@pytest.mark.parametrize(
    "request_line",
    [
        "GET //[?token={token}",
        "GET /picture?view=result&after={nines}&token={token}",
        "GET /picture?view=matte&after=x&token={token}",
        "POST /change?token={token}",
        "GET /?token=%ff%fe&token={token}",
        "GET /?" + "a&" * 30_000,
    ],
)
def test_odd_requests_do_not_end_in_a_traceback(
    server: PreviewServer,
    request_line: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(preview_module, "_POLL_SECONDS", 0.01)
    port, nines = server._server.port, "9" * 5000
    line = request_line.format(token=server.token, nines=nines)
    text = f"{line} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {nines}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        connection.sendall(text.encode())
        assert connection.recv(8) == b"HTTP/1.0"
    server.close()
    assert capfd.readouterr().err == ""


@pytest.mark.timeout(20)
def test_it_ends_while_browsers_wait_or_stall(
    server: PreviewServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fixture sees that no thread is left."""
    monkeypatch.setattr(page._Request, "timeout", 60.0)
    monkeypatch.setattr(preview_module, "_POLL_SECONDS", 60.0)
    port = server._server.port
    with socket.create_connection(("127.0.0.1", port)) as silent:
        answers: list[object] = []

        def wait() -> None:
            try:
                answers.append(ask(server, "/picture?view=result")[0])
            except OSError as exc:
                answers.append(exc)

        waiting = threading.Thread(target=wait)
        waiting.start()
        until = time.monotonic() + 20
        while "result" not in server._watched and time.monotonic() < until:
            time.sleep(0.005)
        server.close()
        assert silent.recv(1) == b""
        waiting.join(20)
    assert answers


@pytest.mark.timeout(20)
def test_it_ends_while_a_change_waits_for_stages_that_hang(
    server: PreviewServer, applied: Applied, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, hangs = threading.Event(), threading.Event()

    def apply(_config: RenderConfig) -> None:
        began.set()
        hangs.wait()

    def slide() -> None:
        with suppress(OSError):
            ask(server, "/change", {"strength": 3})

    monkeypatch.setattr(page, "_END_SECONDS", 0.05)
    monkeypatch.setattr(applied.settings, "_apply", apply)
    browser = threading.Thread(target=slide)
    browser.start()
    assert began.wait(20)
    server.close()
    hangs.set()
    browser.join(20)
