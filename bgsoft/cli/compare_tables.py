"""Results of a comparison, as tables and as charts over the frames."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bgsoft.cli.results import NONE, Chart, Table, write_plot
from bgsoft.compare.result import Comparison, Curve, Pictures

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_PLANES = {"y": "Y", "cb": "Cb", "cr": "Cr", "all": "all"}
_DECIMALS = {"psnr": 2, "ssim": 4, "vmaf": 2}
_UNITS = {"vmaf": "of 100", "psnr": "dB", "ssim": ""}
_CHART_INCHES = 2.8


def pictures_table(result: Comparison) -> Table:
    """Return a table of each measure: mean, 1st percentile and worst frame."""
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
    """Return a table of each check and its result."""
    passed = sum(check.ok for check in result.checks)
    return Table(
        f"Checks: {passed} of {len(result.checks)} pass",
        ("", "", ""),
        [("pass" if c.ok else "FAIL", c.name, c.detail) for c in result.checks],
        text_columns=3,
    )


def write_comparison_plot(result: Comparison, path: Path) -> None:
    """Draw each measure over the frames, to a ``.png`` or ``.svg``; nothing without pictures.

    Raises:
        OutputError: The file cannot be written.
    """
    pictures = result.pictures
    if pictures is None:
        return
    metrics = dict.fromkeys(curve.metric for curve in pictures.curves)
    title = f"{Path(result.b).name} compared with {Path(result.a).name}"
    write_plot(path, title, [_chart(pictures, metric) for metric in metrics])


def _chart(pictures: Pictures, metric: str) -> Chart:
    """Return the planes' curves of one measure, with the worst frame of luma."""
    curves = [c for c in pictures.curves if c.metric == metric and c.plane != "all"]
    luma = pictures.statistic(metric, "y")
    worst = None if luma is None or luma.identical else luma
    title = metric.upper()
    if worst is not None:
        title += f", worst in frame {worst.worst_frame}"

    def draw(axes: Axes) -> None:
        for curve in curves:
            # A gap where the frames are equal, or nothing is measured: infinity, None.
            values = np.array(curve.values, np.float64)
            axes.plot(pictures.seconds, values, label=_PLANES[curve.plane])
        if worst is not None:
            axes.plot(worst.worst_seconds, worst.worst, "o", color="red", markersize=4)
        axes.set_xlabel("s")
        axes.set_ylabel(_UNITS[metric])
        axes.legend()

    return Chart(title, _CHART_INCHES, draw)
