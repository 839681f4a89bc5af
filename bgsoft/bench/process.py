"""One timed run of a command, in a process of its own, as a user would start it."""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bgsoft.cli.exitcodes import ExitCode
from bgsoft.config import RenderConfig
from bgsoft.errors import (
    BackendUnavailableError,
    BgsoftError,
    ConfigError,
    OpenError,
    OutputError,
)
from bgsoft.options import SECTIONS
from bgsoft.presets import Preset, as_toml

__all__ = [
    "Run",
    "mapping_median",
    "preset_text",
    "python_command",
    "run_process",
    "run_render",
    "stage_load",
]

_ERRORS: dict[int, type[BgsoftError]] = {
    ExitCode.USAGE: ConfigError,
    ExitCode.INPUT: OpenError,
    ExitCode.UNAVAILABLE: BackendUnavailableError,
    ExitCode.OUTPUT: OutputError,
}
_STOPPED = (ExitCode.INTERRUPTED, ExitCode.TERMINATED, -signal.SIGINT, -signal.SIGTERM)
_PREFIX = "bgsoft: error: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of ``bgsoft render``, or of anything else that has frames."""

    frames: int
    wall_s: float
    """By a stopwatch around the process."""
    cpu_s: float
    """Of all its threads."""
    report: dict[str, Any]
    """As ``--report`` writes it; empty for other programs."""

    @property
    def run_fps(self) -> float:
        """Frames over the time of the whole process."""
        return self.frames / self.wall_s

    @property
    def fps(self) -> float:
        """Frames a second from the first finished frame on: what a longer video would have."""
        first = self.report.get("first_frame_s")
        if first is None or self.frames < 2:
            return self.run_fps
        return (self.frames - 1) / max(1e-9, float(self.report["wall_s"]) - float(first))

    @property
    def stage_ms(self) -> dict[str, float]:
        """Busy milliseconds a frame, by stage."""
        stages = self.report.get("stages", {})
        return {
            name: stage["ms_per_frame"]
            for name, stage in stages.items()
            if stage["backend"] != "off"
        }

    def to_dict(self) -> dict[str, Any]:
        """The raw figures."""
        return {
            "frames": self.frames,
            "wall_s": self.wall_s,
            "render_s": self.report.get("wall_s"),
            "first_frame_s": self.report.get("first_frame_s"),
            "cpu_s": self.cpu_s,
            "stage_ms": self.stage_ms,
        }


def stage_load(run: Run) -> dict[str, float]:
    """Share of the render's time, from its first frame on, in which each stage was busy."""
    return {name: min(1.0, ms * run.fps / 1000) for name, ms in run.stage_ms.items()}


def python_command(module: str) -> list[str]:
    """What starts a module in this interpreter."""
    return [sys.executable, "-m", module]


def run_process(command: Sequence[str]) -> tuple[float, float, str]:
    """Run a command to its end.

    Returns:
        (wall seconds, CPU seconds, stdout).

    Raises:
        BgsoftError: It failed; by its exit code as ``bgsoft`` has them, with its last line.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run(
        list(command),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=_environment(),
        check=False,
    )
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode in _STOPPED:
        raise KeyboardInterrupt
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        text = lines[-1].removeprefix(_PREFIX) if lines else f"exit code {done.returncode}"
        raise _ERRORS.get(done.returncode, BgsoftError)(text)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, done.stdout


def _environment() -> dict[str, str]:
    """Ours, with the folder that this package was imported from."""
    here = str(Path(__file__).parents[2])
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{here}{os.pathsep}{path}" if path else here}


def preset_text(config: RenderConfig) -> str:
    """All settings of a render as a preset file."""
    settings = {}
    for section in SECTIONS:
        values = getattr(config, section)
        settings[section] = {
            field.name: getattr(values, field.name) for field in dataclasses.fields(values)
        }
    preset = Preset(name="bench", description="bench", path=Path("bench.toml"), settings=settings)
    return as_toml(preset)


def run_render(config: RenderConfig, folder: Path, *extra: str) -> Run:
    """Run ``bgsoft render`` with exactly these settings.

    Args:
        config: Its output is overwritten.
        folder: For the settings and the report.
        extra: Further flags.

    Raises:
        BgsoftError: The render failed, or a backend is unavailable.
    """
    preset, report = folder / "settings.toml", folder / "report.json"
    preset.write_text(preset_text(config), encoding="utf-8")
    command = [
        *python_command("bgsoft"),
        *("render", str(config.input), str(config.output), "--preset", str(preset)),
        *("-y", "-q", "--progress", "none", "--report", str(report), *extra),
    ]
    if config.start_seconds:
        command += ["--start", repr(config.start_seconds)]
    if config.duration_seconds is not None:
        command += ["--duration", repr(config.duration_seconds)]
    wall, cpu, _ = run_process(command)
    record = json.loads(report.read_text(encoding="utf-8"))
    return Run(frames=record["frames_encoded"], wall_s=wall, cpu_s=cpu, report=record)


def mapping_median(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of every key."""
    from bgsoft.bench.sampling import median

    return {key: median([row[key] for row in rows]) or 0.0 for key in (rows[0] if rows else {})}
