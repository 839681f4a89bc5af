"""The results of a benchmark as a page: the tables of the terminal, with charts between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from bgsoft.bench.tables import (
    STAGES,
    Row,
    baseline_tables,
    phase_label,
    phase_tables,
    stage_tables,
    tune_tables,
    value_text,
)
from bgsoft.plotting.charts import Bar, Chart, bar_chart, line_chart, stacked_chart
from bgsoft.plotting.page import Block, write_page
from bgsoft.tables import Table

_QUEUES = {
    "decoded": "Frames decoded, waiting for the picture stages",
    "finished": "Frames finished, waiting for the encoder",
    "slots in use": "Frame slots in use",
}
_GPU = {
    "sm_pct": ("Compute load", "%", 1.0),
    "memory_pct": ("Memory load", "%", 1.0),
    "decoder_pct": ("NVDEC load", "%", 1.0),
    "encoder_pct": ("NVENC load", "%", 1.0),
    "memory_bytes": ("Memory in use", "GiB", 2.0**-30),
    "power_w": ("Power", "W", 1.0),
    "temperature_c": ("Temperature", "°C", 1.0),
}


def write_plot(results: Mapping[str, Any], path: Path) -> None:
    """Write a page of charts and tables.

    Args:
        results: What ``bgsoft bench --json`` writes (schema ``bgsoft-bench/1``).
        path: As :func:`bgsoft.plotting.page.write_page` takes it.

    Raises:
        BgsoftError: As there.
    """
    clip, hardware = results["clip"], results["hardware"]
    gpu = hardware["gpu"]
    blocks: list[Block | None] = [
        " · ".join(
            (
                f"{clip['name']}: {clip['width']}×{clip['height']}, {clip['bit_depth']} bit, "
                f"{clip['codec']}, {clip['frames']} frames",
                f"{hardware['cpu']}, {hardware['usable_cores']} cores",
                gpu["name"] if gpu else f"no GPU ({hardware['gpu_reason']})",
                f"bgsoft {results['bgsoft_version']}",
                results["created"],
            )
        ),
        *_speed_charts(results),
        *phase_tables(results),
        *_queue_charts(results),
        *_stage_charts(results),
        *stage_tables(results),
        *_tune_chart(results),
        *tune_tables(results),
        *baseline_tables(results),
        _machine(results),
    ]
    write_page("bgsoft bench", blocks, path)


def _bar(label: str, row: Row, value: str, text: str, series: int = 0) -> Bar:
    samples: Sequence[float] = row.get(f"{value}_samples") or row.get("samples") or ()
    return Bar(
        label=label,
        value=row[value],
        text=text,
        low=min(samples, default=None),
        high=max(samples, default=None),
        series=series,
    )


def _speed_charts(results: Row) -> Iterator[Chart | None]:
    phases = [phase for phase in results["phases"] if phase["available"]]
    bars = []
    for phase in phases:
        gain = "" if phase["speedup"] is None else f" ({phase['speedup']:.2f}× phase 0)"
        bars.append(_bar(phase_label(phase), phase, "run_fps", f"{phase['run_fps']:.1f}{gain}"))
    bars += [
        _bar(row["name"], row, "run_fps", f"{row['run_fps']:.1f}", series=5)
        for row in results["transcodes"]
        if row["available"]
    ]
    title = "Frames per second over the whole process; a thin line spans the rounds"
    yield bar_chart(title, "frames/s", bars)
    names = [name for name in STAGES if any(name in phase["stage_ms"] for phase in phases)]
    parts = {
        phase_label(phase): [phase["stage_ms"].get(name, 0.0) for name in names] for phase in phases
    }
    title = "Busy time of each stage, milliseconds a frame; stages run side by side"
    yield stacked_chart(title, "ms", names, parts)


def _queue_charts(results: Row) -> Iterator[Chart | str | None]:
    timeline = results["timeline"]
    if timeline is None:
        return
    yield (
        f"The queues of one render of phase {timeline['phase']}. A queue that is always full waits "
        "for the stage behind it, one that is always empty for the stage before it."
    )
    for name, values in timeline["counters"].items():
        capacity = timeline["capacity"][name]
        title = f"{_QUEUES[name]}: {_occupancy(values, capacity)}"
        bounds, lines = (0.0, float(capacity)), {name: values}
        yield line_chart(title, "frames", timeline["t_s"], lines, bounds=bounds, stepped=True)
    gpu = timeline["gpu"] or {"counters": {}}
    for name, values in gpu["counters"].items():
        title, unit, factor = _GPU.get(name, (name, "", 1.0))
        shown = [value * factor for value in values]
        mean = sum(shown) / len(shown)
        top = 100.0 if unit == "%" else max(shown) * 1.1 or 1.0
        title = f"GPU: {title}, mean {mean:.3g} {unit}"
        yield line_chart(title, unit, gpu["t_s"], {name: shown}, bounds=(0.0, top))


def _occupancy(values: Sequence[float], capacity: float) -> str:
    """In words, so that a line along an edge can't be taken for a missing one."""
    full, empty = (sum(v == edge for v in values) / len(values) for edge in (capacity, 0))
    return (
        f"mean {sum(values) / len(values):.1f} of {capacity:g}, "
        f"full in {full:.0%} of the samples, empty in {empty:.0%}"
    )


def _stage_charts(results: Row) -> Iterator[Chart | None]:
    for group, stages in groupby(results["stages"], key=lambda stage: str(stage["group"])):
        bars = [
            Bar(
                label=f"{stage['name']}, {stage['backend']}",
                value=stage["median_ms"],
                text=f"{stage['median_ms']:.3g} ms",
                low=stage["median_ms"],
                high=stage["p95_ms"],
            )
            for stage in stages
            if stage["available"]
        ]
        title = f"Stage {group}: median milliseconds a frame; the line ends at p95"
        yield bar_chart(title, "ms", bars)


def _tune_chart(results: Row) -> Iterator[Chart | None]:
    tune = results["tune"]
    if tune is None:
        return
    bars = []
    for trial in tune["trials"]:
        chosen = tune["chosen"].get(trial["setting"]) == trial["value"]
        label = f"{trial['setting']} {value_text(trial)}"
        bars.append(_bar(label, trial, "fps", f"{trial['fps']:.1f}", series=2 if chosen else 5))
    yield bar_chart("Frames per second; green is chosen", "frames/s", bars)


def _machine(results: Row) -> Table:
    hardware, settings = results["hardware"], results["settings"]
    gpu = hardware["gpu"]
    rows = {
        "Command": " ".join(settings["command"]),
        "Preset, rounds": f"{settings['preset']}, {settings['rounds']}",
        "CPU": f"{hardware['cpu']}, {hardware['cores']} cores",
        "Memory": f"{hardware['memory_bytes'] / 2**30:.1f} GiB",
        "System": hardware["os"],
        "GPU": f"{gpu['name']}, {gpu['memory_bytes'] / 2**30:.1f} GiB, driver {gpu['driver']}"
        if gpu
        else f"none: {hardware['gpu_reason']}",
        **results["versions"],
    }
    return Table("Machine and versions", ("", ""), list(rows.items()), text_columns=2)
