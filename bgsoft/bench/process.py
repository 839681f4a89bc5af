"""A timed run of a command, in a process of its own, as a user would start it."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bgsoft.exitcodes import ExitCode, error_of
from bgsoft.records import dataclass
from bgsoft.settings.config import RenderConfig
from bgsoft.settings.options import SECTIONS
from bgsoft.settings.presets import Preset, as_toml, settings_of
from bgsoft.settings.user import CONFIG_VARIABLE

_STOPPED = (ExitCode.INTERRUPTED, ExitCode.TERMINATED, -signal.SIGINT, -signal.SIGTERM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of ``bgsoft render``, or of another program with frames."""

    frames: int
    wall_s: float
    """Wall time of the process."""
    cpu_s: float
    """CPU time of all its threads."""
    report: dict[str, Any]
    """The report of ``--report``; empty for other programs."""

    @property
    def run_fps(self) -> float:
        """Frames over the time of the whole process."""
        return self.frames / self.wall_s

    @property
    def fps(self) -> float:
        """Frames per second from the first finished frame, as for a longer video."""
        first = self.report.get("first_frame_s")
        if first is None or self.frames < 2:
            return self.run_fps
        return (self.frames - 1) / max(1e-9, float(self.report["wall_s"]) - float(first))

    @property
    def stage_ms(self) -> dict[str, float]:
        """Busy milliseconds a frame, by stage."""
        stages = self.report.get("stages", {}).items()
        return {name: s["ms_per_frame"] for name, s in stages if s["backend"] != "off"}

    @property
    def stage_load(self) -> dict[str, float]:
        """Share of busy time of each stage, from the first frame."""
        return {name: min(1.0, ms * self.fps / 1000) for name, ms in self.stage_ms.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return the raw figures."""
        return {
            "frames": self.frames,
            "wall_s": self.wall_s,
            "render_s": self.report.get("wall_s"),
            "first_frame_s": self.report.get("first_frame_s"),
            "cpu_s": self.cpu_s,
            "stage_ms": self.stage_ms,
        }


def run_process(command: Sequence[str]) -> tuple[float, float, str]:
    """Run a command with this package; return (wall seconds, CPU seconds, stdout).

    Raises:
        BgsoftError: It failed; the type follows its exit code, the message is its last line.
    """
    here, path = str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    with ExitStack() as running:
        with _signals_put_off():
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={
                    **os.environ,
                    "PYTHONPATH": f"{here}{os.pathsep}{path}" if path else here,
                    CONFIG_VARIABLE: "",  # the settings are complete
                },
            )
            running.enter_context(process)
            running.callback(process.wait)
            running.callback(process.kill)
        out, err = process.communicate()
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode in _STOPPED:
        raise KeyboardInterrupt
    if process.returncode != 0:
        lines = [line for line in err.splitlines() if line.strip()]
        text = lines[-1] if lines else f"exit code {process.returncode}"
        raise error_of(process.returncode)(text.removeprefix("bgsoft: error: "))
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, out


@contextmanager
def _signals_put_off() -> Iterator[None]:
    """Handle signals that end this process after the block.

    Otherwise a child that is just being started would lose its parent, and go on.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    got: list[int] = []
    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = {each: found for each in ending if callable(found := signal.getsignal(each))}
    try:
        for each in handlers:
            signal.signal(each, lambda number, _frame: got.append(number))
        yield
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
        for number in got[:1]:
            signal.raise_signal(number)


def preset_text(config: RenderConfig) -> str:
    """Format all settings of a render as a preset file."""
    settings = settings_of(config, SECTIONS)
    return as_toml(Preset(name="bench", description="bench", path=Path(), settings=settings))


def run_render(config: RenderConfig, folder: Path, chunks: int = 1) -> Run:
    """Run ``bgsoft render`` with exactly these settings, overwriting its output.

    With several chunks, the time to the first frame is meaningless.

    Raises:
        BgsoftError: The render failed, or a backend is unavailable.
    """
    preset, report = folder / "settings.toml", folder / "report.json"
    preset.write_text(preset_text(config), encoding="utf-8")
    command = [
        *(sys.executable, "-m", "bgsoft", "render", str(config.input), str(config.output)),
        *("--preset", str(preset), "-y", "-q", "--progress", "none", "--report", str(report)),
        *("--chunks", str(chunks)),
    ]
    if config.duration_seconds is not None:
        command += ["--duration", repr(config.duration_seconds)]
    wall, cpu, _ = run_process(command)
    record = json.loads(report.read_text(encoding="utf-8"))
    return Run(frames=record["frames_encoded"], wall_s=wall, cpu_s=cpu, report=record)
