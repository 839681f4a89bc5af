"""A comparison as a page: the tables of the terminal, and each measure frame by frame."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from bgsoft.compare.result import Comparison, Pictures
from bgsoft.compare.tables import PLANES, checks_table, pictures_table
from bgsoft.plotting.charts import Chart, line_chart
from bgsoft.plotting.page import Block, write_page

__all__ = ["write_comparison_plot"]

_UNITS = {"vmaf": "of 100", "psnr": "dB", "ssim": ""}
_TOP = {"vmaf": 100.0, "psnr": math.inf, "ssim": 1.0}
"""The best value; PSNR has none."""


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
            blocks += _curves(result.pictures, metric)
    blocks.append(checks_table(result))
    blocks += [f"Notice: {notice}" for notice in result.notices]
    title = f"{Path(result.b).name} compared with {Path(result.a).name}"
    write_page(title, blocks, path)


def _curves(pictures: Pictures, metric: str) -> Iterator[Chart | str | None]:
    """The chart of one measure; where PSNR is infinite, words."""
    curves = {
        PLANES[curve.plane]: curve
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
