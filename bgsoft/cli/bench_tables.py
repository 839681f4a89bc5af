"""The results of a benchmark as tables and charts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from bgsoft.cli.results import Table, bar_chart, number, write_plot
from bgsoft.report import STAGE_NAMES

Row: TypeAlias = Mapping[str, Any]
"""One object of the results' JSON."""
Columns: TypeAlias = Mapping[str, Callable[[Row], str]]
"""Heading → text of a row's cell."""


def _phase_label(phase: Row) -> str:
    """Format a phase, e.g. ``2 + NVDEC``."""
    return f"{phase['id']} {phase['name']}"


def _name(row: Row) -> str:
    return str(row["name"])


def _ms(value: float | None) -> str:
    """Format milliseconds with three significant digits."""
    return number(value, sum((value or 0) < limit for limit in (100, 10, 1, 0.1)))


def _stage_ms(stage: str, phase: Row) -> str:
    return _ms(phase["stage_ms"].get(stage))


def _figure(
    key: str, digits: int = 1, unit: str = "", *, factor: float = 1
) -> Callable[[Row], str]:
    """Return a column with a number of each row."""

    def text(row: Row) -> str:
        value = row[key]
        return number(None if value is None else factor * value, digits, unit)

    return text


def _gpu_load(key: str) -> Callable[[Row], str]:
    """Return a column with the GPU monitor's mean over each render."""
    return lambda row: number(((row["gpu"] or {}).get("mean") or {}).get(key), 0, " %")


_PHASES: Columns = {
    "phase": _phase_label,
    "frames/s": _figure("fps"),
    "speed-up": _figure("speedup", 2, "×"),
    "whole run": _figure("run_fps"),
    "start s": _figure("startup_s", 2),
    "PSNR dB": lambda row: "equal" if row["identical"] else number(row["psnr_db"]),
    "SSIM": _figure("ssim", 4),
}
_LOAD: Columns = {
    "phase": _phase_label,
    "cores": _figure("cpu_load", 0, " %", factor=100),
    "GPU": _gpu_load("sm_pct"),
    "VRAM": _gpu_load("memory_pct"),
    "NVDEC": _gpu_load("decoder_pct"),
    "NVENC": _gpu_load("encoder_pct"),
    "to GPU B": _figure("h2d_bytes", 0),
    "back B": _figure("d2h_bytes", 0),
    "RSS MB": _figure("peak_rss_bytes", 0, factor=1e-6),
    "VRAM MB": _figure("peak_vram_bytes", 0, factor=1e-6),
}
_FLOOR: Columns = {
    "by": _name,
    "frames/s": _figure("fps"),
    "whole run": _figure("run_fps"),
    "fastest phase": lambda row: number(row["ratio"], 2, f"× (phase {row['ratio_phase']})"),
}
_WAYS: Columns = {
    "by": _name,
    "seconds": _figure("wall_s", 2),
    "frames/s": _figure("run_fps"),
    "speed-up": _figure("speedup", 2, "×"),
}
_CHANGES: Columns = {
    "what": lambda row: str(row["what"]),
    "before": lambda row: _ms(row["before"]),
    "now": lambda row: _ms(row["after"]),
    "unit": lambda row: str(row["unit"]),
    "takes": lambda row: (
        f"{abs(row['change_pct']):.1f} % {'more' if row['verdict'] == 'slower' else 'less'} time"
    ),
    "noise": _figure("noise_pct", 1, " %"),
    "": lambda row: str(row["verdict"]),
}


def _table(title: str, columns: Columns, rows: Iterable[Row], notes: Iterable[str] = ()) -> Table:
    cells = [[text(row) for text in columns.values()] for row in rows]
    return Table(title, list(columns), cells, list(notes))


def _stages(phases: Iterable[Row]) -> list[str]:
    """Return the stages that any phase had."""
    return [name for name in STAGE_NAMES if any(name in phase["stage_ms"] for phase in phases)]


def _by_reason(rows: Iterable[Row], name: Callable[[Row], str]) -> list[str]:
    """Return the reasons for missing rows, each once."""
    names: dict[str, list[str]] = {}
    for row in rows:
        if row["reason"] is not None:
            names.setdefault(row["reason"], []).append(name(row))
    return [f"{', '.join(those)}: {reason}" for reason, those in names.items()]


def ways_table(results: Row) -> Table:
    """Compare whole commands, as ``--chunks`` and ``--files`` measure them."""
    clip, ways = results["clip"], results["ways"]
    return _table(
        f"Whole commands: {clip['name']}, {clip['frames']} frames of {clip['width']}x"
        f"{clip['height']}, on {results['hardware']['cpu']}",
        _WAYS,
        ways,
        _by_reason(ways, _name),
    )


def tables(results: Row) -> Iterator[Table]:
    """Yield all results as tables, in reading order."""
    if "ways" in results:
        yield ways_table(results)
        return
    phases, clip, machine = results["phases"], results["clip"], results["hardware"]
    gpu = machine["gpu"]["name"] if machine["gpu"] else f"no GPU ({machine['gpu_reason']})"
    yield _table(
        f"Phases: {clip['name']}, {clip['frames']} frames of {clip['width']}x{clip['height']}, on "
        f"{machine['cpu']}, {machine['usable_cores']} cores, {gpu}",
        _PHASES,
        phases,
        [
            *_by_reason(phases, lambda phase: f"phase {phase['id']}"),
            "frames/s: from the first finished frame. whole run: wall time of the command.",
            "PSNR and SSIM: luma of the decoded output against phase 0's, as in bgsoft compare.",
        ],
    )
    ran = [phase for phase in phases if phase["available"]]
    stages: Columns = {name: partial(_stage_ms, name) for name in _stages(ran)}
    busy = _table(
        "Milliseconds a frame that each stage was busy", {"phase": _phase_label, **stages}, ran
    )
    busy.notes.append("Stages run in parallel, so these do not add up to the time of a frame.")
    found = results["bottleneck"]
    if found is not None:
        busy.notes.append(f"phase {found['phase']} is {found['text']}")
    yield busy
    yield _table("Load, in percent of the time; bytes a frame over PCIe; most memory", _LOAD, ran)
    yield _table(
        "The floor: a render without its encoder, its decoder alone, and a plain transcode",
        _FLOOR,
        results["transcodes"],
        _by_reason(results["transcodes"], _name),
    )
    if results["baseline"] is not None:
        yield _baseline_table(results["baseline"])


def _baseline_table(found: Row) -> Table:
    """Return the changes since ``--baseline``."""
    rows = found["rows"]
    differ = f" ({'; '.join(found['notes'])})" if found["notes"] else ""
    note = "not compared: it is not the same measurement"
    if found["comparable"]:
        verdicts = [row["verdict"] for row in rows]
        note = ", ".join(f"{verdicts.count(v)} {v}" for v in ("same", "faster", "slower"))
    changed = [row for row in rows if row["verdict"] != "same"]
    return _table(f"Against {found['file']}{differ}", _CHANGES, changed, [note])


def write_bench_plot(results: Row, path: Path) -> None:
    """Draw frames per second, and the busy time of each stage.

    Args:
        results: The contents of ``bgsoft bench --json`` (schema ``bgsoft-bench/1``).
        path: ``.png`` or ``.svg``.

    Raises:
        OutputError: The file cannot be written.
    """
    clip, hardware = results["clip"], results["hardware"]
    phases = [phase for phase in results["phases"] if phase["available"]]
    transcodes = [row for row in results["transcodes"] if row["available"]]
    labels = [_phase_label(phase) for phase in phases]
    title = (
        f"bgsoft bench: {clip['name']}, {clip['width']}×{clip['height']}, on {hardware['cpu']}, "
        f"{hardware['usable_cores']} cores"
    )
    charts = [
        bar_chart(
            "Frames a second over the whole process",
            "frames/s",
            [*labels, *map(_name, transcodes)],
            {"frames/s": [row["run_fps"] for row in (*phases, *transcodes)]},
        ),
        bar_chart(
            "Busy time of each stage; stages run side by side",
            "ms a frame",
            labels,
            {
                name: [phase["stage_ms"].get(name, 0.0) for phase in phases]
                for name in _stages(phases)
            },
        ),
    ]
    write_plot(path, title, charts)
