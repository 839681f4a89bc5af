"""Whole commands against each other: renders in chunks, a batch, a shell loop, plain ffmpeg."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bgsoft.bench.phases import Measurement, ffmpeg_row, in_turns, render_part
from bgsoft.bench.process import Run, preset_text, run_process, run_render
from bgsoft.compare.vmaf import ffmpeg_executables
from bgsoft.errors import BackendUnavailableError, ConfigError
from bgsoft.media.info import VideoInfo
from bgsoft.settings.config import RenderConfig

SCHEMA = "bgsoft-bench-ways/1"


def chunk_rows(
    config: RenderConfig, info: VideoInfo, folder: Path, counts: Sequence[int]
) -> list[Measurement]:
    """A render in each number of chunks, with and without its encoder, and an ffmpeg transcode."""
    rows = []
    for count in counts:
        name = f"{count} chunk{'s' * (count > 1)}"
        rows.append(Measurement(name, partial(_in_chunks, folder, count), [config]))
        floor = partial(render_part, f"chunks={count}", folder)
        rows.append(Measurement(f"{name} without encoder", floor, [config]))
    return [*rows, ffmpeg_row(config, info, folder)]


def _in_chunks(folder: Path, count: int, config: RenderConfig) -> Run:
    run = run_render(config, folder, chunks=count)
    if count > 1 and len(run.report["parts"]) < 2:
        raise BackendUnavailableError(f"cannot divide {config.input}: it was rendered whole")
    return run


def file_rows(config: RenderConfig, info: VideoInfo, folder: Path, count: int) -> list[Measurement]:
    """``bgsoft render`` for one clip after another, and ``bgsoft batch`` for all of them."""
    source = folder / "in"
    source.mkdir()
    _cut(config, info, source, count)
    settings = folder / "settings.toml"
    settings.write_text(preset_text(config), encoding="utf-8")
    common = ["--preset", str(settings), "-q", "-y"]
    return [
        Measurement("shell loop", partial(_loop, source, folder, common), [config]),
        Measurement("batch", partial(_batch, source, folder, common), [config]),
    ]


def _cut(config: RenderConfig, info: VideoInfo, folder: Path, count: int) -> None:
    """Cut clips from all over a video; their length is that of a render."""
    length, ffmpeg = info.duration_seconds, (ffmpeg_executables() or [""])[-1]
    if length is None:
        raise ConfigError(f"cannot cut clips from {config.input}: its length is unknown")
    if not ffmpeg:
        raise BackendUnavailableError("cannot cut clips: no ffmpeg; pip install '.[quality]'")
    seconds = min(length, config.duration_seconds or length)
    for number in range(count):
        start = (length - seconds) * number / max(1, count - 1)
        command = [ffmpeg, "-v", "error", "-nostdin", "-ss", str(start), "-t", str(seconds)]
        command += ["-i", str(config.input), "-map", "0:v:0", "-map", "0:a?"]
        command += ["-c:v", "libx264", "-preset", "veryfast", "-crf", "20", "-c:a", "aac"]
        run_process([*command, str(folder / f"clip{number:03}.mp4")])


def _loop(source: Path, folder: Path, common: Sequence[str], _config: RenderConfig) -> Run:
    wall = cpu = 0.0
    frames = 0
    report = folder / "report.json"
    for clip in sorted(source.iterdir()):
        render = [sys.executable, "-m", "bgsoft", "render", str(clip), str(folder / clip.name)]
        its_wall, its_cpu, _ = run_process([*render, *common, "--report", str(report)])
        wall, cpu = wall + its_wall, cpu + its_cpu
        frames += json.loads(report.read_text(encoding="utf-8"))["frames_encoded"]
    return Run(frames=frames, wall_s=wall, cpu_s=cpu, report={})


def _batch(source: Path, folder: Path, common: Sequence[str], _config: RenderConfig) -> Run:
    report = folder / "batch.json"
    batch = [sys.executable, "-m", "bgsoft", "batch", str(source), str(folder / "batch")]
    wall, cpu, _ = run_process([*batch, *common, "--report", str(report)])
    frames = json.loads(report.read_text(encoding="utf-8"))["frames"]
    return Run(frames=frames, wall_s=wall, cpu_s=cpu, report={})


def measure(
    rows: Sequence[Measurement], rounds: int, log: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Run all rows in turns.

    Returns:
        ``ways`` of the results: ``name``, ``available``, ``reason``, ``run_fps`` with its samples,
        ``wall_s`` (median seconds of the whole command) and ``speedup`` over the first row.
    """
    for counts, row in in_turns(rows, rounds, log):
        row.take(keep=counts)
    first = rows[0].median(lambda run: run.wall_s)
    made = []
    for row in rows:
        wall = row.median(lambda run: run.wall_s)
        made.append(
            {**row.result(), "wall_s": wall, "speedup": first / wall if first and wall else None}
        )
    return made
