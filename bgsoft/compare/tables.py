"""What a comparison found, as tables to print, and as a page with each measure frame by frame."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from bgsoft.compare.result import Comparison, Curve, Pictures
from bgsoft.plotting.charts import Chart, line_chart
from bgsoft.plotting.page import Block, write_page
from bgsoft.tables import FAILED, NONE, Table

_PLANES = {"y": "Y", "cb": "Cb", "cr": "Cr", "all": "all"}
_DECIMALS = {"psnr": 2, "ssim": 4, "vmaf": 2}
_UNITS = {"vmaf": "of 100", "psnr": "dB", "ssim": ""}
_TOP = {"vmaf": 100.0, "psnr": math.inf, "ssim": 1.0}
"""The best value; PSNR has none."""


def pictures_table(result: Comparison) -> Table:
    """Each measure: mean, 1st percentile and worst frame."""
    pictures = result.pictures
    if pictures is None:
        return Table(f"Pictures: not compared: {result.pictures_reason}")
    title = (
        f"Pictures: {pictures.frames} frames, {pictures.width}x{pictures.height},"
        f" {pictures.bit_depth} bit"
    )
    if pictures.region_share is not None:
        title += f", {pictures.region} only ({pictures.region_share:.1%} of the picture)"
    return Table(
        title,
        ("", "mean", "1st pct", "worst", "worst frame"),
        [_row(curve) for curve in pictures.curves],
        _vmaf_notes(pictures),
    )


def _row(curve: Curve) -> tuple[str, ...]:
    label = curve.metric.upper()
    if curve.metric != "vmaf":
        label += f" {_PLANES[curve.plane]}"
    found = curve.statistic
    if found is None:
        return label, NONE, NONE, NONE, "nothing to measure in the region or the plane"
    unit = " dB" if curve.metric == "psnr" else ""
    mean, p1, worst = (
        "identical" if math.isinf(value) else f"{value:.{_DECIMALS[curve.metric]}f}{unit}"
        for value in (found.mean, found.p1, found.worst)
    )
    where = f"frame {found.worst_frame}, {found.worst_seconds:.3f} s"
    return label, mean, p1, worst, "identical in every frame" if found.identical else where


def _vmaf_notes(pictures: Pictures) -> list[str]:
    if pictures.vmaf_reason is not None:
        return [f"no VMAF: {pictures.vmaf_reason}"]
    notes = [f"VMAF by {pictures.vmaf_model}, {pictures.vmaf_by}"]
    if pictures.vmaf_region is not None:
        notes.append(f"VMAF is of {pictures.vmaf_region}")
    return notes


def checks_table(result: Comparison) -> Table:
    """Each check, and what was found."""
    passed = sum(check.ok for check in result.checks)
    return Table(
        f"Checks: {passed} of {len(result.checks)} pass",
        ("", "", ""),
        [("pass" if c.ok else FAILED, c.name, c.detail) for c in result.checks],
        text_columns=3,
    )


def write_comparison_plot(result: Comparison, path: Path) -> None:
    """Write the page.

    Args:
        result: What was compared.
        path: As :func:`bgsoft.plotting.page.write_page` takes it.

    Raises:
        BgsoftError: As there.
    """
    blocks: list[Block | None] = [
        f"A, the reference: {result.a}. B: {result.b}. bgsoft {result.versions['bgsoft']}",
        *(f"B misses what was asked: {failure}" for failure in result.failures),
        pictures_table(result),
    ]
    if result.pictures is not None:
        for metric in _UNITS:
            blocks += _curve_charts(result.pictures, metric)
    blocks.append(checks_table(result))
    blocks += [f"Notice: {notice}" for notice in result.notices]
    title = f"{Path(result.b).name} compared with {Path(result.a).name}"
    write_page(title, blocks, path)


def _curve_charts(pictures: Pictures, metric: str) -> Iterator[Chart | str | None]:
    """The chart of one measure; where PSNR is infinite, words."""
    curves = {
        _PLANES[curve.plane]: curve
        for curve in pictures.curves
        if curve.metric == metric
        and curve.plane != "all"
        and curve.statistic is not None
        and not curve.statistic.identical
    }
    lines = {
        name: [None if v is None or math.isinf(v) else v for v in curve.values]
        for name, curve in curves.items()
    }
    known = [value for values in lines.values() for value in values if value is not None]
    if not known:
        return
    luma = curves["Y"].statistic if "Y" in curves else None
    mark = None
    if luma is not None and math.isfinite(luma.worst):
        mark = (luma.worst_seconds, luma.worst, f"worst: frame {luma.worst_frame}")
    low, high = min(known), max(known)
    margin = (high - low) * 0.08 or abs(high) * 0.02
    # Twice below, where the worst frame is pointed out.
    bounds = (low - 2 * margin, max(high, min(high + margin, _TOP[metric])))
    title = f"{metric.upper()}, frame by frame"
    yield line_chart(title, _UNITS[metric], pictures.seconds, lines, bounds=bounds, mark=mark)
    for name, curve in curves.items():
        equal = sum(value is not None and math.isinf(value) for value in curve.values)
        if equal:
            words = f"{name}: {equal} of {pictures.frames} frames are identical"
            yield f"{words} and not drawn: their PSNR is infinite."
