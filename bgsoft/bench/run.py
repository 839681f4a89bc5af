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
from bgsoft.records import dataclass
from bgsoft.rendering.backends import chosen_gpu
from bgsoft.rendering.configure import build_config
from bgsoft.rendering.request import Request
from bgsoft.settings.config import RenderConfig
from bgsoft.settings.options import SECTIONS
from bgsoft.settings.presets import Layer, Preset, settings_of
from bgsoft.threads import usable_cores

SAMPLE = Path(__file__).parents[2] / "samples" / "person.mp4"
"""The sample video in a checkout; an installed package has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """The clip, its renders, and the comparison."""

    source: Path | None = None
    """The clip; None: the sample."""
    preset: Preset
    flags: Layer
    """Settings of the renders, on top of the preset."""
    seconds: float
    """Length of video in each render; a shorter clip is rendered whole."""
    rounds: int
    """Number of measured renders of each row."""
    baseline: Path | None = None
    """Earlier results to compare with."""
    chunks: Sequence[int] = ()
    """Numbers of chunks to compare, instead of backends."""
    files: int = 0
    """Number of files of a batch to compare with a shell loop, instead of backends."""
    command: Sequence[str] = ()
    """The command line, for the record."""


def run_bench(options: BenchOptions, log: Callable[[str], None]) -> dict[str, Any]:
    """Measure a clip; ``log`` receives progress messages.

    Returns:
        The results: plain JSON types under stable names. Comparisons of chunks and files have
        ``ways``, as :func:`bgsoft.bench.ways.measure` returns them.

    Raises:
        ConfigError: A setting or the baseline is invalid, or there is no sample.
        BgsoftError: The clip cannot be read, or a render failed.
    """
    before = None if options.baseline is None else baselines.load(options.baseline)
    with _opened(options) as (config, info):
        measure = _compare_ways if options.chunks or options.files else _measure_phases
        frames, found = measure(options, config, info, log)
    results = {**_record(options, config, info), **found}
    results["clip"]["frames"] = frames
    if before is not None:
        results["baseline"] = baselines.compare(results, before, str(options.baseline))
    return results


def _measure_phases(
    options: BenchOptions, config: RenderConfig, info: VideoInfo, log: Callable[[str], None]
) -> tuple[int, dict[str, Any]]:
    """Return the number of frames, and the results."""
    folder, cores = config.output.parent, usable_cores()
    found = measure_phases(config, info, folder, rounds=options.rounds, cores=cores, log=log)
    frames = [run["frames"] for phase in found["phases"] for run in phase["runs"]]
    count = frames[0] if frames else info.estimated_frames or 0
    return count, {"schema": baselines.SCHEMA, **found, "baseline": None}


def _compare_ways(
    options: BenchOptions, config: RenderConfig, info: VideoInfo, log: Callable[[str], None]
) -> tuple[int, dict[str, Any]]:
    """Return the number of frames, and the results."""
    folder = config.output.parent
    if options.chunks:
        rows = ways.chunk_rows(config, info, folder, options.chunks)
    else:
        rows = ways.file_rows(config, info, folder, options.files)
    found = ways.measure(rows, options.rounds, log)
    frames = next((row.runs[0].frames for row in rows if row.runs), 0)
    return frames, {"schema": ways.SCHEMA, "ways": found}


def read_files(options: BenchOptions) -> list[Path]:
    """Return the files that are read, and must not be written.

    Raises:
        ConfigError: A setting is invalid.
        OpenError: The clip is a sequence without pictures.
    """
    baseline = [] if options.baseline is None else [options.baseline]
    return [*Request(_config(options, Path()), writes=False).read_files, *baseline]


def _config(options: BenchOptions, folder: Path, limit: float | None = None) -> RenderConfig:
    """Return the settings of a render of the clip into a folder."""
    return build_config(
        (options.source or SAMPLE).absolute(),
        folder / "out.mkv",  # Matroska holds every codec
        preset=options.preset,
        flags=options.flags,
        duration_seconds=limit,
    )


@contextmanager
def _opened(options: BenchOptions) -> Iterator[tuple[RenderConfig, VideoInfo]]:
    """Probe the clip; yield the settings of its render into a temporary folder."""
    if options.source is None and not SAMPLE.is_file():
        raise ConfigError("cannot start: name a video, as the package has no sample")
    info = probe(options.source or SAMPLE)
    length = info.duration_seconds
    limit = None if length is not None and length <= options.seconds else options.seconds
    with tempfile.TemporaryDirectory(prefix="bgsoft-bench-") as name:
        yield _config(options, Path(name), limit), info


def _record(options: BenchOptions, config: RenderConfig, info: VideoInfo) -> dict[str, Any]:
    """Describe clip, settings and machine."""
    return {
        "schema": None,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "bgsoft_version": __version__,
        "settings": {
            "rounds": options.rounds,
            "seconds": options.seconds,
            "preset": options.preset.name,
            "command": list(options.command),
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
    for key in ("input", "output", "matte_out", "overwrite", "preset_file", "config_file"):
        del plain[key]
    return plain
