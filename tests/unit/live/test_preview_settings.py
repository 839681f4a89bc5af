"""The preview's sliders and presets: what they change, save and reject."""

from __future__ import annotations

import json
import threading
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bgsoft.live.preview import PreviewServer
from bgsoft.live.settings import LiveSettings
from bgsoft.settings import presets
from bgsoft.settings.config import EffectKind, FaceMode, RenderConfig
from bgsoft.settings.presets import load_preset, save_preset
from tests.unit.live.conftest import Applied, ask, error


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
        ({"temporal": "much"}, "cannot use temporal 'much': it must be a number"),
        ({"temporal": [1]}, "cannot use temporal [1]: it must be a number"),
        ({"stength": 1}, "did you mean strength"),
        ({"gpu": 1}, "unknown setting"),
        ({"preset": "studoi"}, "did you mean studio"),
        ({"preset": "/etc/passwd"}, "unknown preset"),
        ({"preset": ["soft"]}, "unknown preset"),
        ({"preset": "cutout"}, "no alpha while a stream runs"),
        ([1], "not a JSON object"),
        (b"{", "as JSON"),
        (b"[" * 9000, "as JSON"),
        (b" " * 1_048_577, "too long"),
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
