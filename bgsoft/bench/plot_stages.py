"""The parts of the benchmark's page about stages alone, metrics, tuning and earlier runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from bgsoft.bench.plot_words import Row, add_chart, number, range_of, reason
from bgsoft.bench.tables import change_text
from bgsoft.plotting.charts import Bar, bar_chart
from bgsoft.plotting.page import Paragraph, Section, Table

__all__ = ["baseline_section", "overhead_section", "stages_section", "tune_section"]

_GROUPS = {
    "decode": "Decode",
    "preprocess": "Reduce and preprocess",
    "segment": "Segmentation",
    "face": "Faces",
    "matte": "Matte",
    "effect": "Effects",
    "encode": "Encode",
    "copy": "Copies between host and GPU",
}


def stages_section(results: Mapping[str, Any]) -> Section:
    """Each stage by itself."""
    section = Section(title="Stages alone, at full rate")
    stages: Sequence[Row] = results.get("stages") or ()
    if not stages:
        section.blocks.append(Paragraph("Not run: the stages were not asked for."))
        return section
    for group, members in groupby(stages, key=lambda row: str(row["group"])):
        rows = list(members)
        title = f"{_GROUPS.get(group, group)}: median milliseconds a frame; the line ends at p95"
        add_chart(
            section, bar_chart(title, "ms", [_stage_bar(row) for row in rows]), _none_of(rows)
        )
        section.blocks.append(_stage_table(group, rows))
    return section


def _none_of(rows: Sequence[Row]) -> str:
    """Why nothing of a group ran."""
    return "; ".join(f"{_stage_label(row)}: {reason(row)}" for row in rows)


def _stage_label(row: Row) -> str:
    name, backend = str(row["name"]), str(row["backend"])
    return name if backend in name.split() else f"{name}, {backend}"


def _stage_bar(row: Row) -> Bar:
    median, high = row.get("median_ms"), row.get("p95_ms")
    text = reason(row) if median is None else f"{median:.3g} ms"
    return Bar(label=_stage_label(row), value=median, text=text, low=median, high=high)


def _stage_table(group: str, rows: Sequence[Row]) -> Table:
    head = ["Stage", "Median", "p95", "Mean", "Frames/s"]
    if group == "encode":
        head += ["Bitrate", "VMAF"]
    table: list[list[str]] = []
    for row in rows:
        if row.get("median_ms") is None:
            label = f"{_stage_label(row)}. Not run: {reason(row)}"
            table.append([label] + ["–"] * (len(head) - 1))
            continue
        cells = [number(row.get(key), 3, " ms") for key in ("median_ms", "p95_ms", "mean_ms")]
        line = [_stage_label(row), *cells, number(row.get("fps"), 1)]
        if group == "encode":
            vmaf = row.get("vmaf")
            why = row.get("vmaf_reason") or "not measured"
            line.append(number(row.get("bitrate_kbps"), 0, " kbit/s"))
            line.append(f"not run: {why}" if vmaf is None else f"{vmaf:.2f}")
        table.append(line)
    return Table(head=head, rows=table)


def overhead_section(results: Mapping[str, Any]) -> Section | None:
    """The cost of the always-on metrics; None where it was not measured."""
    found = results.get("metrics_overhead")
    if not found:
        return None
    text = (
        f"{found['us_per_frame']:.3g} µs a frame, {found['share']:.3%} of phase 0's time:"
        f" {found['blocks_per_frame']:g} timed blocks of {found['block_ns']:g} ns."
    )
    if found.get("ab_ratio") is not None:
        text += f" Renders with and without them took {found['ab_ratio']:.4f} of the time."
    return Section(title="What the built-in metrics cost", blocks=[Paragraph(text)])


def tune_section(results: Mapping[str, Any]) -> Section | None:
    """What ``--tune`` tried; None where it was not asked for."""
    found = results.get("tune")
    if not found:
        return None
    bars = [
        Bar(
            label=f"{trial['setting']} {trial['value']}",
            value=trial.get("fps"),
            text=reason(trial) if trial.get("fps") is None else f"{trial['fps']:.1f}",
            low=range_of(trial.get("samples"))[0],
            high=range_of(trial.get("samples"))[1],
            role="s3" if (found.get("chosen") or {}).get(trial["setting"]) == trial["value"]
            else "s6",
        )
        for trial in found.get("trials") or ()
    ]  # fmt: skip
    section = Section(title="Tuning")
    add_chart(
        section, bar_chart("Frames per second; green is chosen", "frames/s", bars), "no trial ran"
    )
    chosen = found.get("chosen") or {}
    words = ", ".join(f"{setting} {value}" for setting, value in chosen.items())
    section.blocks.append(Paragraph(f"Chosen: {words or 'the defaults, nothing was faster'}."))
    return section


def baseline_section(results: Mapping[str, Any]) -> Section | None:
    """What changed since an earlier run; None where none was given."""
    found = results.get("baseline")
    if not found:
        return None
    section = Section(title="Compared with an earlier run")
    section.blocks.append(Paragraph(f"Earlier run: {found['file']}."))
    section.blocks += [Paragraph(str(note)) for note in found.get("notes") or ()]
    rows = [
        [
            str(row["what"]),
            str(row["verdict"]),
            number(row.get("before"), 3, f" {row['unit']}"),
            number(row.get("after"), 3, f" {row['unit']}"),
            change_text(row["change_pct"]),
            number(row.get("noise_pct"), 1, " %"),
        ]
        for row in found.get("rows") or ()
    ]
    head = ["What", "Verdict", "Before", "Now", "Takes", "Noise"]
    if rows:
        section.blocks.append(Table(head=head, rows=rows, left=2))
    elif not found["comparable"]:
        section.blocks.append(Paragraph("Not compared, as it is not the same measurement."))
    else:
        section.blocks.append(Paragraph("Not run: the two have nothing in common to compare."))
    return section
