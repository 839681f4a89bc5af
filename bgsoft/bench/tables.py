"""The results as tables: what to print and to put on a page, not how."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from bgsoft.tables import NONE, Table, number

STAGES = ("decode", "segment", "face", "matte", "composite", "encode")
"""As a report names them, in the order of the data."""
Row: TypeAlias = Mapping[str, Any]
"""One object of the results' JSON."""


def tables(results: Row) -> Iterator[Table]:
    """Everything that was measured, in the order to read it."""
    for part in (phase_tables, stage_tables, tune_tables, baseline_tables):
        yield from part(results)


def phase_label(phase: Row) -> str:
    """e.g. ``2 + NVDEC``."""
    return f"{phase['id']} {phase['name']}"


def value_text(trial: Row) -> str:
    """The value of a setting that ``--tune`` tried."""
    return "auto" if trial["value"] in (None, 0) else str(trial["value"])


def _ms(value: float | None) -> str:
    """Three significant digits, whether microseconds or seconds."""
    if value is None:
        return NONE
    return number(value, sum(value < limit for limit in (100, 10, 1, 0.1)))


def _mega(value: float | None) -> str:
    return number(None if value is None else value / 1e6, 0)


def _by_reason(rows: Iterable[tuple[str, str | None]]) -> list[str]:
    """Why some are missing, each reason once."""
    names: dict[str, list[str]] = {}
    for name, reason in rows:
        if reason is not None and name not in names.setdefault(reason, []):
            names[reason].append(name)
    return [f"{', '.join(those)}: {reason}" for reason, those in names.items()]


def phase_tables(results: Row) -> Iterator[Table]:
    """Whole renders and transcodes; nothing where they were not asked for."""
    phases, transcodes = results["phases"], results["transcodes"]
    if not phases:
        return
    clip, machine = results["clip"], results["hardware"]
    gpu = machine["gpu"]["name"] if machine["gpu"] else f"no GPU ({machine['gpu_reason']})"
    yield Table(
        f"Phases: {clip['name']}, {clip['frames']} frames of {clip['width']}x{clip['height']}, on "
        f"{machine['cpu']}, {machine['usable_cores']} cores, {gpu}",
        ("phase", "frames/s", "speed-up", "whole run", "start s"),
        [
            (
                phase_label(phase),
                number(phase["fps"]),
                number(phase["speedup"], 2, "×"),
                number(phase["run_fps"]),
                number(phase["startup_s"], 2),
            )
            for phase in phases
        ],
        [
            *_by_reason((f"phase {phase['id']}", phase["reason"]) for phase in phases),
            "frames/s: from the first finished frame on. whole run: by a stopwatch around the "
            "command.",
        ],
    )
    ran = [phase for phase in phases if phase["available"]]
    yield Table(
        "Likeness to phase 0, bytes a frame over PCIe, peak memory",
        ("phase", "PSNR dB", "SSIM", "to GPU B", "back B", "RSS MB", "VRAM MB"),
        [
            (
                phase_label(phase),
                "equal" if phase["identical"] else number(phase["psnr_db"]),
                number(phase["ssim"], 4),
                number(phase["h2d_bytes"], 0),
                number(phase["d2h_bytes"], 0),
                _mega(phase["peak_rss_bytes"]),
                _mega(phase["peak_vram_bytes"]),
            )
            for phase in ran
        ],
        ["PSNR and SSIM: luma of the decoded outputs, as bgsoft compare gives them."],
    )
    stages = [stage for stage in STAGES if any(stage in p["stage_ms"] for p in ran)]
    busy = Table(
        "Milliseconds a frame that each stage was busy",
        ("phase", *stages, "cores"),
        [
            (
                phase_label(phase),
                *(_ms(phase["stage_ms"].get(stage)) for stage in stages),
                number(None if phase["cpu_load"] is None else 100 * phase["cpu_load"], 0, " %"),
            )
            for phase in ran
        ],
        ["Stages run side by side, so these don't add up to the time of a frame."],
    )
    if results["bottleneck"] is not None:
        found = results["bottleneck"]
        busy.notes.append(f"phase {found['phase']} is {found['text']}")
    yield busy
    yield Table(
        "The floor: the same decoder and encoder without what is between them, and a plain "
        "transcode",
        ("by", "frames/s", "whole run", "fastest phase"),
        [
            (
                row["name"],
                number(row["fps"]),
                number(row["run_fps"]),
                number(row["ratio"], 2, f"× (phase {row['ratio_phase']})"),
            )
            for row in transcodes
        ],
        _by_reason((row["name"], row["reason"]) for row in transcodes),
    )


def stage_tables(results: Row) -> Iterator[Table]:
    """Stages alone; nothing where they were not asked for."""
    stages = results["stages"]
    if not stages:
        return
    ran = [stage for stage in stages if stage["available"]]
    missing = _by_reason(
        (f"{s['group']} {s['backend']} {s['details'].get('precision', '')}".rstrip(), s["reason"])
        for s in stages
    )
    yield Table(
        "Stages alone, milliseconds a frame",
        ("stage", "what", "on", "median", "p95", "frames/s", "kbit/s", "VMAF"),
        [
            (
                stage["group"],
                stage["name"],
                stage["backend"],
                _ms(stage["median_ms"]),
                _ms(stage["p95_ms"]),
                number(stage["fps"]),
                number(stage["bitrate_kbps"], 0) if "bitrate_kbps" in stage else "",
                number(stage["vmaf"]) if "vmaf" in stage else "",
            )
            for stage in ran
        ],
        [
            *(f"not here: {text}" for text in missing),
            *_by_reason(("VMAF", stage.get("vmaf_reason")) for stage in ran),
        ],
        text_columns=3,
    )


def tune_tables(results: Row) -> Iterator[Table]:
    """What ``--tune`` tried and chose; nothing without it."""
    found = results["tune"]
    if found is not None:
        yield Table(
            "Tuning",
            ("setting", "value", "frames/s"),
            [(t["setting"], value_text(t), number(t["fps"])) for t in found["trials"]],
            ["Save this as a file and give it to --preset:", "", found["preset"].rstrip()],
            text_columns=2,
        )


def baseline_tables(results: Row) -> Iterator[Table]:
    """What changed since ``--baseline``; nothing without it."""
    found = results["baseline"]
    if found is None:
        return
    differ = "; ".join(found["notes"])
    rows = found["rows"]
    more_or_less = {"slower": "more", "faster": "less"}
    counts = [f"{sum(r['verdict'] == v for r in rows)} {v}" for v in ("same", "faster", "slower")]
    yield Table(
        f"Against {found['file']}" + (f" ({differ})" if differ else ""),
        ("what", "before", "now", "unit", "takes", "noise", ""),
        [
            (
                row["what"],
                _ms(row["before"]),
                _ms(row["after"]),
                row["unit"],
                f"{abs(row['change_pct']):.1f} % {more_or_less[row['verdict']]} time",
                f"{row['noise_pct']:.1f} %",
                row["verdict"],
            )
            for row in rows
            if row["verdict"] != "same"
        ],
        [", ".join(counts)]
        if found["comparable"]
        else ["not compared, as it is not the same measurement"],
    )
