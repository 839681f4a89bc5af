"""The results of a benchmark as charts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bgsoft.cli.bench_tables import STAGES, phase_label
from bgsoft.cli.plotting import bar_chart, write_plot


def write_bench_plot(results: Mapping[str, Any], path: Path) -> None:
    """Draw frames a second, and the busy time of each stage.

    Args:
        results: What ``bgsoft bench --json`` writes (schema ``bgsoft-bench/1``).
        path: ``.png`` or ``.svg``.

    Raises:
        OutputError: The file cannot be written.
    """
    clip, hardware = results["clip"], results["hardware"]
    phases = [phase for phase in results["phases"] if phase["available"]]
    transcodes = [row for row in results["transcodes"] if row["available"]]
    labels = [phase_label(phase) for phase in phases]
    names = [name for name in STAGES if any(name in phase["stage_ms"] for phase in phases)]
    title = (
        f"bgsoft bench: {clip['name']}, {clip['width']}×{clip['height']}, on {hardware['cpu']}, "
        f"{hardware['usable_cores']} cores"
    )
    charts = [
        bar_chart(
            "Frames a second over the whole process",
            "frames/s",
            [*labels, *(row["name"] for row in transcodes)],
            {"frames/s": [row["run_fps"] for row in (*phases, *transcodes)]},
        ),
        bar_chart(
            "Busy time of each stage; stages run side by side",
            "ms a frame",
            labels,
            {name: [phase["stage_ms"].get(name, 0.0) for phase in phases] for name in names},
        ),
    ]
    write_plot(path, title, charts)
