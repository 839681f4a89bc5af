"""The results as tables: what to print, not how."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from bgsoft.cli.tables import NONE, Table, number

STAGES = ("decode", "segment", "face", "matte", "composite", "encode")
"""As a report names them, in the order of the data."""
_GPU_LOAD = {
    "sm_pct": "GPU",
    "memory_pct": "VRAM",
    "decoder_pct": "NVDEC",
    "encoder_pct": "NVENC",
}
"""Figure of the GPU monitor → its column."""
Row: TypeAlias = Mapping[str, Any]
"""One object of the results' JSON."""


def phase_label(phase: Row) -> str:
    """e.g. ``2 + NVDEC``."""
    return f"{phase['id']} {phase['name']}"


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


def tables(results: Row) -> Iterator[Table]:
    """Everything that was measured, in the order to read it."""
    phases, clip, machine = results["phases"], results["clip"], results["hardware"]
    gpu = machine["gpu"]["name"] if machine["gpu"] else f"no GPU ({machine['gpu_reason']})"
    yield Table(
        f"Phases: {clip['name']}, {clip['frames']} frames of {clip['width']}x{clip['height']}, on "
        f"{machine['cpu']}, {machine['usable_cores']} cores, {gpu}",
        ("phase", "frames/s", "speed-up", "whole run", "start s", "PSNR dB", "SSIM"),
        [
            (
                phase_label(phase),
                number(phase["fps"]),
                number(phase["speedup"], 2, "×"),
                number(phase["run_fps"]),
                number(phase["startup_s"], 2),
                "equal" if phase["identical"] else number(phase["psnr_db"]),
                number(phase["ssim"], 4),
            )
            for phase in phases
        ],
        [
            *_by_reason((f"phase {phase['id']}", phase["reason"]) for phase in phases),
            "frames/s: from the first finished frame on. whole run: by a stopwatch around the "
            "command.",
            "PSNR and SSIM: luma of the decoded output beside phase 0's, as bgsoft compare gives "
            "them.",
        ],
    )
    ran = [phase for phase in phases if phase["available"]]
    stages = [stage for stage in STAGES if any(stage in phase["stage_ms"] for phase in ran)]
    busy = Table(
        "Milliseconds a frame that each stage was busy",
        ("phase", *stages),
        [
            (phase_label(phase), *(_ms(phase["stage_ms"].get(stage)) for stage in stages))
            for phase in ran
        ],
        ["Stages run side by side, so these don't add up to the time of a frame."],
    )
    found = results["bottleneck"]
    if found is not None:
        busy.notes.append(f"phase {found['phase']} is {found['text']}")
    yield busy
    yield Table(
        "Load, in percent of the time; bytes a frame over PCIe; most memory",
        ("phase", "cores", *_GPU_LOAD.values(), "to GPU B", "back B", "RSS MB", "VRAM MB"),
        [
            (
                phase_label(phase),
                _percent(phase["cpu_load"], 100),
                *(_percent(_gpu_mean(phase, name)) for name in _GPU_LOAD),
                number(phase["h2d_bytes"], 0),
                number(phase["d2h_bytes"], 0),
                _mega(phase["peak_rss_bytes"]),
                _mega(phase["peak_vram_bytes"]),
            )
            for phase in ran
        ],
    )
    yield Table(
        "The floor: a render without its encoder, its decoder alone, and a plain transcode",
        ("by", "frames/s", "whole run", "fastest phase"),
        [
            (
                row["name"],
                number(row["fps"]),
                number(row["run_fps"]),
                number(row["ratio"], 2, f"× (phase {row['ratio_phase']})"),
            )
            for row in results["transcodes"]
        ],
        _by_reason((row["name"], row["reason"]) for row in results["transcodes"]),
    )
    if results["baseline"] is not None:
        yield baseline_table(results["baseline"])


def _gpu_mean(phase: Row, name: str) -> float | None:
    """A figure of the GPU monitor, over a render; None where there is none."""
    mean: Row = (phase["gpu"] or {}).get("mean", {})
    return mean.get(name)


def _percent(value: float | None, factor: float = 1) -> str:
    return number(None if value is None else factor * value, 0, " %")


def baseline_table(found: Row) -> Table:
    """What changed since ``--baseline``."""
    differ = "; ".join(found["notes"])
    rows = found["rows"]
    more_or_less = {"slower": "more", "faster": "less"}
    counts = [f"{sum(r['verdict'] == v for r in rows)} {v}" for v in ("same", "faster", "slower")]
    return Table(
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
