"""Draws the results of a benchmark: phases, stages, queues, and all figures as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from bgsoft.bench.plot_stages import (
    baseline_section,
    overhead_section,
    stages_section,
    tune_section,
)
from bgsoft.bench.plot_words import (
    Row,
    add_chart,
    bytes_text,
    number,
    percent,
    psnr_text,
    range_of,
    reason,
)
from bgsoft.plotting.charts import Bar, Series, Stack, bar_chart, line_chart, stacked_chart
from bgsoft.plotting.page import Page, Paragraph, Section, Table, write_page

__all__ = ["write_plot"]

_STAGES = ("decode", "segment", "face", "matte", "composite", "encode")
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
_LOW_QUEUE_HEIGHT = 90.0


def write_plot(results: Mapping[str, Any], path: Path) -> None:
    """Write a page of charts and tables.

    What was not measured appears with its reason; nothing is drawn for it.

    Args:
        results: What ``bgsoft bench --json`` writes (schema ``bgsoft-bench/1``).
        path: ``.html``: one file that loads nothing, light or dark as the reader's system has it;
            ``.png``: the same as a picture.

    Raises:
        ConfigError: The name ends otherwise.
        OutputError: The file cannot be written.
    """
    sections = [
        _phases(results),
        _breakdown(results),
        _queues(results),
        stages_section(results),
    ]
    sections += [
        s
        for s in (overhead_section(results), tune_section(results), baseline_section(results))
        if s
    ]
    sections.append(_machine(results))
    write_page(Page(title="bgsoft bench", subtitle=_subtitle(results), sections=sections), path)


def _subtitle(results: Mapping[str, Any]) -> str:
    clip, hardware = results.get("clip") or {}, results.get("hardware") or {}
    gpu = hardware.get("gpu")
    parts = [
        f"{clip.get('name', 'clip')}: {clip.get('width')}×{clip.get('height')}, "
        f"{clip.get('bit_depth')} bit, {clip.get('codec')}, {clip.get('frames')} frames",
        f"{hardware.get('cpu')}, {hardware.get('usable_cores')} cores",
        gpu["name"] if gpu else f"no GPU ({hardware.get('gpu_reason') or 'none found'})",
        f"bgsoft {results.get('bgsoft_version')}",
        str(results.get("created", "")),
    ]
    return " · ".join(part for part in parts if part)


def _label(phase: Row) -> str:
    return f"{phase['id']}  {phase['name']}"


def _phases(results: Mapping[str, Any]) -> Section:
    phases: Sequence[Row] = results.get("phases") or ()
    section = Section(title="Phases")
    if not phases:
        section.blocks.append(Paragraph("Not run: the phases were not asked for."))
        return section
    bottleneck = results.get("bottleneck")
    if bottleneck:
        text = f"Phase {bottleneck['phase']}: {bottleneck['text']}"
        section.blocks.append(Paragraph(text, strong=True))
    speeds = [_speed_bar(_label(phase), phase, "s1") for phase in phases]
    speeds += [_speed_bar(t["name"], t, "s6") for t in results.get("transcodes") or ()]
    title = "Frames per second over the whole process; a thin line spans the rounds"
    add_chart(section, bar_chart(title, "frames/s", speeds), "no phase gave a speed")
    gains = [
        Bar(
            label=_label(phase),
            value=phase.get("speedup"),
            text=_gain_text(phase),
            target=_target(phase),
            role="s3",
        )
        for phase in phases
    ]
    title = "Speed-up over phase 0, from the first frame on"
    if any(bar.target is not None and bar.value is not None for bar in gains):
        title += "; the grey band is the target"
    chart = bar_chart(title, "×", gains)
    add_chart(section, chart, "phase 0 did not run, so there is nothing to compare with")
    section.blocks.append(_phase_table(phases))
    if any(phase.get("fps") is not None for phase in phases):
        section.blocks.append(_cost_table(phases))
    transcodes: Sequence[Row] = results.get("transcodes") or ()
    if transcodes:
        section.blocks.append(_transcode_table(transcodes))
    return section


def _speed_bar(label: str, row: Row, role: Any) -> Bar:
    value = row.get("run_fps")
    low, high = range_of(row.get("run_fps_samples"))
    text = reason(row) if value is None else f"{value:.1f}"
    if value is not None and row.get("ratio") is not None:
        text += f" (phase {row['ratio_phase']}: {row['ratio']:.2f} of it)"
    return Bar(label=label, value=value, text=text, low=low, high=high, role=role)


def _target(phase: Row) -> tuple[float, float] | None:
    target = phase.get("target")
    return (float(target[0]), float(target[1])) if target else None


def _gain_text(phase: Row) -> str:
    if phase.get("speedup") is None:
        return reason(phase)
    return f"{phase['speedup']:.2f}×"


def _phase_table(phases: Sequence[Row]) -> Table:
    head = ["Phase", "Stages", "Frames/s", "Whole process", "Speed-up", "Target", "CPU load"]
    rows = []
    for phase in phases:
        if phase.get("fps") is None:
            stages = f"{_backends(phase)}. Not run: {reason(phase)}"
            rows.append([_label(phase), stages, "–", "–", "–", _target_text(phase), "–"])
            continue
        rows.append(
            [
                _label(phase),
                _backends(phase),
                number(phase["fps"], 1),
                number(phase.get("run_fps"), 1),
                number(phase.get("speedup"), 2, "×"),
                _target_text(phase),
                percent(phase.get("cpu_load")),
            ]
        )
    return Table(head=head, rows=rows, left=2)


def _cost_table(phases: Sequence[Row]) -> Table:
    """What each phase that ran gives and takes."""
    head = [
        "Phase", "PSNR to phase 0", "SSIM", "To GPU", "From GPU", "Peak RSS", "Peak VRAM",
    ]  # fmt: skip
    rows = [
        [
            _label(phase),
            psnr_text(phase.get("psnr_db")),
            number(phase.get("ssim"), 4),
            bytes_text(phase.get("h2d_bytes"), "/frame"),
            bytes_text(phase.get("d2h_bytes"), "/frame"),
            bytes_text(phase.get("peak_rss_bytes")),
            bytes_text(phase.get("peak_vram_bytes")),
        ]
        for phase in phases
        if phase.get("fps") is not None
    ]
    return Table(head=head, rows=rows)


def _target_text(phase: Row) -> str:
    target = _target(phase)
    return f"{target[0]:g}–{target[1]:g}×" if target else "–"


def _backends(phase: Row) -> str:
    """Neighbours on the same backend together, e.g. «decode, infer: cpu; encode: nvenc»."""
    pairs = (phase.get("backends") or {}).items()
    return "; ".join(
        f"{', '.join(stage for stage, _ in members)}: {name}"
        for name, members in groupby(pairs, key=lambda pair: str(pair[1]))
    )


def _transcode_table(transcodes: Sequence[Row]) -> Table:
    rows = []
    for row in transcodes:
        missing = row.get("run_fps") is None and row.get("fps") is None
        name = f"{row['name']}. Not run: {reason(row)}" if missing else str(row["name"])
        ratio = row.get("ratio")
        best = "–" if ratio is None else f"{ratio:.2f} (phase {row['ratio_phase']})"
        rows.append([name, number(row.get("fps"), 1), number(row.get("run_fps"), 1), best])
    head = ["Plain transcode, same encoder", "Frames/s", "Whole process", "Best phase over it"]
    return Table(head=head, rows=rows)


def _breakdown(results: Mapping[str, Any]) -> Section:
    section = Section(title="Where the time goes")
    phases: Sequence[Row] = results.get("phases") or ()
    measured = [phase.get("stage_ms") or {} for phase in phases]
    names = [name for name in _STAGES if any(row.get(name) for row in measured)]
    stacks = [
        Stack(
            label=_label(phase),
            parts=[row.get(name) for name in names] if phase.get("fps") is not None else [],
            missing=reason(phase),
        )
        for phase, row in zip(phases, measured, strict=True)
    ]
    chart = stacked_chart("Busy time of each stage, milliseconds a frame", "ms", names, stacks)
    add_chart(section, chart, "no phase was measured")
    if chart is None:
        return section
    section.blocks.append(
        Paragraph(
            "Stages run side by side, so the time between two frames is that of the busiest"
            " stage, not of the whole bar."
        )
    )
    rows = []
    for phase, row in zip(phases, measured, strict=True):
        load = phase.get("load") or {}
        cells = [
            f"{row[name]:.2f} ms ({percent(load.get(name))})" if row.get(name) else "–"
            for name in names
        ]
        rows.append([_label(phase), *cells])
    head = ["Phase: busy a frame (share of the time)", *names]
    section.blocks.append(Table(head=head, rows=rows))
    return section


def _queues(results: Mapping[str, Any]) -> Section:
    section = Section(title="Queues over time")
    timeline = results.get("timeline")
    times: Sequence[float] = (timeline or {}).get("t_s") or ()
    if not timeline or len(times) < 2:
        section.blocks.append(Paragraph("Not run: no render was traced."))
        return section
    section.blocks.append(
        Paragraph(
            f"One render of phase {timeline['phase']}. A queue that is always full waits for the"
            " stage behind it, one that is always empty for the stage before it."
        )
    )
    for name, values in timeline["counters"].items():
        capacity = (timeline.get("capacity") or {}).get(name)
        top = float(capacity or max([v for v in values if v is not None], default=0) or 1)
        title = f"{_QUEUES.get(name, name)}: {_occupancy(values, capacity)}"
        series = [Series(name=name, values=values)]
        chart = line_chart(
            title, "s", "frames", times, series,
            bounds=(0.0, top), stepped=True, height=_LOW_QUEUE_HEIGHT,
        )  # fmt: skip
        add_chart(section, chart, f"{name} was not sampled")
    gpu = timeline.get("gpu")
    if not gpu:
        return section
    for name, values in gpu["counters"].items():
        title, unit, factor = _GPU.get(name, (name, "", 1.0))
        shown = [None if value is None else value * factor for value in values]
        known = [value for value in shown if value is not None]
        if not known:
            section.blocks.append(Paragraph(f"GPU {title.lower()}: not run: not told by NVML."))
            continue
        title = f"GPU: {title}, mean {sum(known) / len(known):.3g} {unit}".rstrip()
        top = 100.0 if unit == "%" else max(known) * 1.1 or 1.0
        chart = line_chart(
            title, "s", unit, gpu["t_s"], [Series(name=name, values=shown)],
            bounds=(0.0, top), height=_LOW_QUEUE_HEIGHT,
        )  # fmt: skip
        add_chart(section, chart, f"{title}: fewer than two samples")
    return section


def _occupancy(values: Sequence[float | None], capacity: float | None) -> str:
    """In words, so that a line along an edge can't be taken for a missing one."""
    known = [value for value in values if value is not None]
    if not known:
        return "not sampled"
    words = f"mean {sum(known) / len(known):.1f}"
    if capacity:
        full = sum(value >= capacity for value in known) / len(known)
        words += f" of {capacity:g}, full in {full:.0%} of the samples"
    empty = sum(value == 0 for value in known) / len(known)
    return f"{words}, empty in {empty:.0%}"


def _machine(results: Mapping[str, Any]) -> Section:
    hardware, settings = results.get("hardware") or {}, results.get("settings") or {}
    gpu = hardware.get("gpu")
    rows = [
        ["Command", " ".join(settings.get("command") or ("unknown",))],
        ["Preset, rounds", f"{settings.get('preset')}, {settings.get('rounds')}"],
        ["CPU", f"{hardware.get('cpu')}, {hardware.get('cores')} cores"],
        ["Memory", bytes_text(hardware.get("memory_bytes"))],
        ["System", str(hardware.get("os"))],
        [
            "GPU",
            f"{gpu['name']}, {bytes_text(gpu.get('memory_bytes'))}, driver {gpu.get('driver')}"
            if gpu
            else f"none: {hardware.get('gpu_reason') or 'not found'}",
        ],
    ]
    rows += [[str(name), str(version)] for name, version in (results.get("versions") or {}).items()]
    return Section(title="Machine and versions", blocks=[Table(head=["", ""], rows=rows, left=2)])
