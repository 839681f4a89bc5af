"""The results as tables: what to print, not how."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Table", "change_text", "plain_lines", "tables"]

_STAGES = ("decode", "segment", "face", "matte", "composite", "encode")
_NONE = "–"
_EXACT_DB = 99.0


@dataclass(slots=True)
class Table:
    """Rows of text under a heading."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Lines below."""
    text_columns: int = 1
    """Columns from the left that hold words; the others hold figures, and end flush."""


def tables(results: Mapping[str, Any]) -> Iterator[Table]:
    """Everything that was measured, in the order to read it."""
    if results["phases"]:
        yield _phases(results)
        yield _likeness(results)
        yield _phase_stages(results)
        yield _transcodes(results)
    if results["stages"]:
        yield _stages(results["stages"])
    if results["metrics_overhead"] is not None:
        yield _overhead(results["metrics_overhead"])
    if results["tune"] is not None:
        yield _tune(results["tune"])
    if results["baseline"] is not None:
        yield _baseline(results["baseline"])


def plain_lines(table: Table) -> Iterator[str]:
    """A table as aligned text without any markup."""
    yield table.title
    if table.rows:
        lines = [table.columns, *table.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(table.columns))]
        for line in lines:
            cells = [
                cell.ljust(width) if index < table.text_columns else cell.rjust(width)
                for index, (cell, width) in enumerate(zip(line, widths, strict=True))
            ]
            yield ("  " + "  ".join(cells)).rstrip()
    for note in table.notes:
        yield f"  {note}"


def change_text(percent: float) -> str:
    """How much more time something takes than before."""
    return f"{abs(percent):.1f} % {'more' if percent > 0 else 'less'} time"


def _number(value: float | None, digits: int = 1, unit: str = "") -> str:
    return _NONE if value is None else f"{value:,.{digits}f}{unit}"


def _ms(value: float | None) -> str:
    """Three significant digits, whether microseconds or seconds."""
    if value is None:
        return _NONE
    digits = sum(value < limit for limit in (100, 10, 1, 0.1))
    return f"{value:.{digits}f}"


def _mega(value: float | None) -> str:
    return _NONE if value is None else f"{value / 1e6:,.0f}"


def _bytes(value: float | None) -> str:
    return _NONE if value is None else f"{value:,.0f}"


def _psnr(value: float | None) -> str:
    if value is None:
        return _NONE
    return "equal" if value >= _EXACT_DB else f"{value:.1f}"


def _target(target: Sequence[float] | None) -> str:
    return _NONE if target is None else f"{target[0]:g}–{target[1]:g}×"


def _reasons(rows: Sequence[tuple[str, str | None]]) -> list[str]:
    """Why some are missing, each reason once."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in rows:
        if reason is not None:
            by_reason.setdefault(reason, []).append(name)
    return [f"{', '.join(names)}: {reason}" for reason, names in by_reason.items()]


def _phases(results: Mapping[str, Any]) -> Table:
    clip, machine = results["clip"], results["hardware"]
    gpu = machine["gpu"]["name"] if machine["gpu"] else f"no GPU ({machine['gpu_reason']})"
    table = Table(
        f"Phases: {clip['name']}, {clip['frames']} frames of {clip['width']}x{clip['height']}, on "
        f"{machine['cpu']}, {machine['usable_cores']} cores, {gpu}",
        ("phase", "frames/s", "speed-up", "target", "whole run", "start s"),
    )
    for phase in results["phases"]:
        table.rows.append(
            (
                f"{phase['id']} {phase['name']}",
                _number(phase["fps"]),
                _number(phase["speedup"], 2, "×"),
                _target(phase["target"]),
                _number(phase["run_fps"]),
                _number(phase["startup_s"], 2),
            )
        )
    table.notes += _reasons([(f"phase {p['id']}", p["reason"]) for p in results["phases"]])
    table.notes += [
        "frames/s: from the first finished frame on. whole run: by a stopwatch around the command.",
    ]
    return table


def _likeness(results: Mapping[str, Any]) -> Table:
    table = Table(
        "Likeness to phase 0, bytes a frame over PCIe, peak memory",
        ("phase", "PSNR dB", "SSIM", "to GPU B", "back B", "RSS MB", "VRAM MB"),
        notes=["PSNR and SSIM: luma of the decoded outputs, every fifth frame."],
    )
    for phase in results["phases"]:
        if not phase["available"]:
            continue
        table.rows.append(
            (
                f"{phase['id']} {phase['name']}",
                _psnr(phase["psnr_db"]),
                _number(phase["ssim"], 4),
                _bytes(phase["h2d_bytes"]),
                _bytes(phase["d2h_bytes"]),
                _mega(phase["peak_rss_bytes"]),
                _mega(phase["peak_vram_bytes"]),
            )
        )
    return table


def _phase_stages(results: Mapping[str, Any]) -> Table:
    stages = [s for s in _STAGES if any(s in phase["stage_ms"] for phase in results["phases"])]
    table = Table("Milliseconds a frame that each stage was busy", ("phase", *stages, "cores"))
    for phase in results["phases"]:
        if phase["available"]:
            load = phase["cpu_load"]
            cells = [_ms(phase["stage_ms"].get(stage)) for stage in stages]
            cores = _NONE if load is None else f"{100 * load:.0f} %"
            table.rows.append((f"{phase['id']} {phase['name']}", *cells, cores))
    table.notes.append("Stages run side by side, so these don't add up to the time of a frame.")
    if results["bottleneck"] is not None:
        found = results["bottleneck"]
        table.notes.append(f"phase {found['phase']} is {found['text']}")
    return table


def _transcodes(results: Mapping[str, Any]) -> Table:
    table = Table(
        "Plain transcode with the same encoder: the floor",
        ("by", "frames/s", "whole run", "fastest phase"),
    )
    for row in results["transcodes"]:
        ratio = row["ratio"]
        ours = _NONE if ratio is None else f"{ratio:.2f}× (phase {row['ratio_phase']})"
        table.rows.append((row["name"], _number(row["fps"]), _number(row["run_fps"]), ours))
    table.notes += _reasons([(row["name"], row["reason"]) for row in results["transcodes"]])
    return table


def _stages(stages: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(
        "Stages alone, milliseconds a frame",
        ("stage", "what", "on", "median", "p95", "frames/s", "kbit/s", "VMAF"),
        text_columns=3,
    )
    for stage in stages:
        if stage["available"]:
            table.rows.append(
                (
                    stage["group"],
                    stage["name"],
                    stage["backend"],
                    _ms(stage["median_ms"]),
                    _ms(stage["p95_ms"]),
                    _number(stage["fps"]),
                    _number(stage.get("bitrate_kbps"), 0) if "bitrate_kbps" in stage else "",
                    _number(stage.get("vmaf"), 1) if "vmaf" in stage else "",
                )
            )
    missing: dict[str, list[str]] = {}
    for stage in stages:
        if stage["reason"] is not None:
            words = missing.setdefault(stage["reason"], [])
            word = f"{stage['group']} {stage['backend']}"
            precision = stage["details"].get("precision")
            if precision:
                word += f" {precision}"
            if word not in words:
                words.append(word)
    table.notes += [f"not here: {', '.join(words)}: {reason}" for reason, words in missing.items()]
    vmaf = {s["vmaf_reason"] for s in stages if s["available"] and s.get("vmaf_reason")}
    table.notes += [f"VMAF: {reason}" for reason in sorted(vmaf)]
    return table


def _overhead(found: Mapping[str, Any]) -> Table:
    share = found["share"]
    of_frame = "" if share is None else f", {100 * share:.3f} % of a frame's time in phase 0"
    device = found["device_us_per_frame"]
    on_gpu = [] if device is None else [f"the GPU's clocks: {device:.1f} µs a frame on the host"]
    return Table(
        "Cost of the metrics that are always on",
        (),
        notes=[
            f"{found['us_per_frame']:.1f} µs a frame{of_frame}; picture stages with them take "
            f"{100 * (found['ab_ratio'] - 1):+.2f} % CPU time ({found['frames']} frames each way, "
            "in turns)",
            *on_gpu,
        ],
    )


def _tune(found: Mapping[str, Any]) -> Table:
    table = Table("Tuning", ("setting", "value", "frames/s"), text_columns=2)
    for trial in found["trials"]:
        automatic = trial["value"] in (None, 0)
        value = "auto" if automatic else str(trial["value"])
        table.rows.append((trial["setting"], value, _number(trial["fps"])))
    table.notes += ["Save this as a file and give it to --preset:", ""]
    table.notes += found["preset"].splitlines()
    return table


def _baseline(found: Mapping[str, Any]) -> Table:
    differ = "; ".join(found["notes"])
    table = Table(
        f"Against {found['file']}" + (f" ({differ})" if differ else ""),
        ("what", "before", "now", "unit", "takes", "noise", ""),
    )
    if not found["comparable"]:
        table.notes.append("not compared, as it is not the same measurement")
        return table
    counts = {"same": 0, "faster": 0, "slower": 0}
    for row in found["rows"]:
        counts[row["verdict"]] += 1
        if row["verdict"] != "same":
            table.rows.append(
                (
                    row["what"],
                    _ms(row["before"]),
                    _ms(row["after"]),
                    row["unit"],
                    change_text(row["change_pct"]),
                    f"{row['noise_pct']:.1f} %",
                    row["verdict"],
                )
            )
    table.notes.append(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return table
