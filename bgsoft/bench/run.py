"""The benchmark, from options to results that are printed, stored and plotted."""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bgsoft import __version__
from bgsoft.bench import baseline as baselines
from bgsoft.bench import ways
from bgsoft.bench.phases import measure_phases
from bgsoft.diagnose.machine import hardware
from bgsoft.errors import ConfigError
from bgsoft.media.info import VideoInfo
from bgsoft.media.probe import probe
from bgsoft.rendering.backends import chosen_gpu
from bgsoft.rendering.configure import build_config
from bgsoft.settings.config import RenderConfig
from bgsoft.settings.options import SECTIONS
from bgsoft.settings.presets import Layer, Preset, settings_of
from bgsoft.threads import usable_cores

SAMPLE = Path(__file__).parents[2] / "samples" / "person.mp4"
"""The sample video in a checkout; an installed package has none."""


def run_bench(
    source: Path | None,
    *,
    preset: Preset,
    flags: Layer,
    seconds: float,
    rounds: int,
    baseline: Path | None,
    command: Sequence[str],
    log: Callable[[str], None],
) -> dict[str, Any]:
    """Measure a clip.

    Args:
        source: The clip; None: the sample.
        preset: Preset of the renders.
        flags: Settings of the renders, on top of the preset.
        seconds: Length of video in each render; a shorter clip is rendered whole.
        rounds: Number of measured renders of each row.
        baseline: Earlier results to compare with.
        command: The command line, for the record.
        log: Receives progress messages.

    Returns:
        The results: plain JSON types under stable names.

    Raises:
        ConfigError: A setting or the baseline is invalid, or there is no sample.
        BgsoftError: The clip cannot be read, or a render failed.
    """
    before = None if baseline is None else baselines.load(baseline)
    with _opened(source, preset, flags, seconds) as (config, info):
        folder = config.output.parent
        found = measure_phases(config, info, folder, rounds=rounds, cores=usable_cores(), log=log)
    results = {
        **_record(baselines.SCHEMA, config, info, preset, seconds, rounds, command),
        **found,
        "baseline": None,
    }
    frames = [run["frames"] for phase in found["phases"] for run in phase["runs"]]
    results["clip"]["frames"] = frames[0] if frames else info.estimated_frames or 0
    if before is not None:
        results["baseline"] = baselines.compare(results, before, str(baseline))
    return results


def run_ways(
    source: Path | None,
    *,
    preset: Preset,
    flags: Layer,
    seconds: float,
    rounds: int,
    command: Sequence[str],
    log: Callable[[str], None],
    chunks: Sequence[int] = (),
    files: int = 0,
) -> dict[str, Any]:
    """Compare renders in these numbers of chunks, or a batch of files with a shell loop.

    Arguments, and errors, are those of :func:`run_bench`. The results have ``ways``, as
    :func:`bgsoft.bench.ways.measure` returns them.
    """
    with _opened(source, preset, flags, seconds) as (config, info):
        folder = config.output.parent
        if chunks:
            rows = ways.chunk_rows(config, info, folder, chunks)
        else:
            rows = ways.file_rows(config, info, folder, files)
        found = ways.measure(rows, rounds, log)
    record = _record(ways.SCHEMA, config, info, preset, seconds, rounds, command)
    record["clip"]["frames"] = next((row.runs[0].frames for row in rows if row.runs), 0)
    return {**record, "ways": found}


@contextmanager
def _opened(
    source: Path | None, preset: Preset, flags: Layer, seconds: float
) -> Iterator[tuple[RenderConfig, VideoInfo]]:
    """Probe the clip; yield the settings of its render into a temporary folder."""
    if source is None and not SAMPLE.is_file():
        raise ConfigError("cannot start: name a video, as the package has no sample")
    path = source or SAMPLE
    info = probe(path)
    length = info.duration_seconds
    limit = None if length is not None and length <= seconds else seconds
    with tempfile.TemporaryDirectory(prefix="bgsoft-bench-") as name:
        config = build_config(
            path.absolute(),
            Path(name) / "out.mkv",  # Matroska holds every codec
            preset=preset,
            flags=flags,
            duration_seconds=limit,
        )
        yield config, info


def _record(
    schema: str,
    config: RenderConfig,
    info: VideoInfo,
    preset: Preset,
    seconds: float,
    rounds: int,
    command: Sequence[str],
) -> dict[str, Any]:
    """Describe clip, settings and machine."""
    return {
        "schema": schema,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "bgsoft_version": __version__,
        "settings": {
            "rounds": rounds,
            "seconds": seconds,
            "preset": preset.name,
            "command": list(command),
            "render": _settings(config),
        },
        "hardware": hardware(chosen_gpu(config.backends.gpu)),
        "clip": _clip(config, info),
    }


def _clip(config: RenderConfig, info: VideoInfo) -> dict[str, Any]:
    limit = config.duration_seconds
    return {
        "name": config.input.name,
        "width": info.format.width,
        "height": info.format.height,
        "bit_depth": info.format.bit_depth,
        "codec": info.codec,
        "frame_rate": float(info.frame_rate) if info.frame_rate else None,
        "duration_s": info.duration_seconds if limit is None else limit,
    }


def _settings(config: RenderConfig) -> dict[str, Any]:
    """Return the settings of the measurement, without the names of the clip and the output."""
    plain = asdict(config) | settings_of(config, SECTIONS)
    for key in ("input", "output", "matte_out", "overwrite", "config_file"):
        del plain[key]
    return plain
