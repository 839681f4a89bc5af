"""Runs the command line in this process, with a stand-in for the render where that is enough."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bgsoft.cli.main import main
from bgsoft.rendering.listener import Listener
from bgsoft.rendering.request import Request
from bgsoft.report import AudioReport, Event, ModelReport, Progress, RenderReport, StageReport
from bgsoft.settings.config import RenderConfig


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def error_line(self) -> str:
        """The only line on stderr, without the program's name."""
        lines = self.err.splitlines()
        assert len(lines) == 1, f"expected one line on stderr, got: {self.err!r}"
        assert lines[0].startswith("bgsoft: error: ")
        return lines[0].removeprefix("bgsoft: error: ")


Run = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the tests off the user's own presets, defaults and models."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setenv("BGSOFT_CACHE", str(home / "cache"))


@pytest.fixture(autouse=True)
def _all_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """``--gpu`` hides the other GPUs from the process, which goes on after a test."""
    for name in ("CUDA_VISIBLE_DEVICES", "BGSOFT_SHOWN_GPU"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*argv: object) -> Outcome:
        capsys.readouterr()
        code = main([str(arg) for arg in argv])
        captured = capsys.readouterr()
        return Outcome(code=code, out=captured.out, err=captured.err)

    return call


def make_report(config: RenderConfig, **changes: Any) -> RenderReport:
    values: dict[str, Any] = {
        "bgsoft_version": "0",
        "input": str(config.input),
        "output": str(config.output),
        "frames_decoded": 100,
        "frames_encoded": 100,
        "duration_s": 4.0,
        "wall_s": 2.0,
        "fps": 50.0,
        "settings": {
            "effect": {
                "kind": config.effect.kind.value,
                "strength": config.effect.effective_strength,
            },
            "matte": {
                "expand_pct": config.matte.expand_pct,
                "feather_pct": config.matte.feather_pct,
            },
            "hide": {"regions": config.hide.regions},
            "height": 1080,
            "config_file": None if config.config_file is None else str(config.config_file),
        },
        "pixel_format": "yuv420p",
        "model": ModelReport(name="selfie-general", sha256="00", licence="Apache-2.0"),
        "stages": {
            "decode": StageReport(
                backend="cpu", device="cpu", ms_per_frame=3.0, fallback_reason="nvdec: no GPU"
            ),
            "face": StageReport(backend="off", device="cpu", ms_per_frame=0.0),
        },
        "events": [Event(kind="notice", message="4:2:2 converted to 4:2:0")],
        "audio": [AudioReport(track=0, codec="aac", action="transcoded", reason="no vorbis")],
        "peak_rss_bytes": 1,
    }
    return RenderReport(**{**values, **changes})


@dataclass
class FakeRender:
    """Takes the place of the render: remembers what it was asked, and does as told."""

    error: BaseException | None = None
    skipped: bool = False
    calls: list[tuple[RenderConfig, dict[str, Any]]] = field(default_factory=list)

    def __call__(self, request: Request, listener: Listener, **options: Any) -> RenderReport:
        config = request.config
        self.calls.append((config, options))
        event = Event(kind="notice", message="4:2:2 converted to 4:2:0")
        listener.event(event)
        listener.event(event)
        listener.event(Event(kind="scene-cut", message="new scene", frame=12))
        listener.progress(
            Progress(
                frames=50,
                total=100,
                elapsed_seconds=9.0,
                fps=25.0,
                eta_seconds=62.0,
                load={"decode": 0.5, "encode": 1.0},
            )
        )
        if self.error is not None:
            raise self.error
        return make_report(config, skipped=self.skipped)

    @property
    def config(self) -> RenderConfig:
        assert len(self.calls) == 1
        return self.calls[0][0]


@pytest.fixture
def fake_render(monkeypatch: pytest.MonkeyPatch) -> FakeRender:
    fake = FakeRender()
    module = types.ModuleType("bgsoft.rendering.session")
    module.render_whole = fake  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bgsoft.rendering.session", module)
    return fake


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    path = tmp_path / "in.mp4"
    path.write_bytes(b"x")
    return path
