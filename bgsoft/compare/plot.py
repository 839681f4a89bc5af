"""Draws a comparison: each measure frame by frame, and the checks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from bgsoft.compare.result import Comparison, Curve, Pictures
from bgsoft.plotting.charts import Series, line_chart
from bgsoft.plotting.page import FAILED, Page, Paragraph, Section, Table, write_page

__all__ = ["write_comparison_plot"]

_UNITS = {"psnr": "dB", "ssim": "", "vmaf": "of 100"}
_TOP = {"ssim": 1.0, "vmaf": 100.0}
"""The best value; PSNR has none."""
_DECIMALS = {"psnr": 2, "ssim": 4, "vmaf": 2}
_PLANES = {"y": "Y", "cb": "Cb", "cr": "Cr", "all": "all"}
_TITLES = {
    "vmaf": "VMAF, frame by frame",
    "psnr": "PSNR, frame by frame",
    "ssim": "SSIM, frame by frame",
}


def write_comparison_plot(result: Comparison, path: Path) -> None:
    """Write the page.

    Args:
        result: What was compared.
        path: ``.html`` or ``.png``.

    Raises:
        ConfigError: It is neither.
        OutputError: The file cannot be written.
    """
    sections: list[Section] = []
    if result.failures:
        failures = [Paragraph(failure, strong=True) for failure in result.failures]
        sections.append(Section(title="B misses what was asked", blocks=list(failures)))
    if result.pictures is None:
        reason = f"Not compared: {result.pictures_reason}"
        sections.append(Section(title="Pictures", blocks=[Paragraph(reason)]))
    else:
        sections.append(_figures(result.pictures))
        sections += [_curves(result.pictures, metric) for metric in ("vmaf", "psnr", "ssim")]
    passed = len(result.checks) - len(result.failed_checks)
    rows = [["pass" if c.ok else FAILED, c.name, c.detail] for c in result.checks]
    sections.append(
        Section(
            title=f"Checks: {passed} of {len(rows)} pass",
            blocks=[Table(head=["", "What", "Found"], rows=rows, left=3)],
        )
    )
    sections[-1].blocks += [Paragraph(f"Notice: {notice}") for notice in result.notices]
    page = Page(
        title=f"{Path(result.b).name} compared with {Path(result.a).name}",
        subtitle=f"A, the reference: {result.a}. B: {result.b}."
        f" bgsoft {result.versions.get('bgsoft', '')}",
        sections=sections,
    )
    write_page(page, path)


def _figures(pictures: Pictures) -> Section:
    words = f"{pictures.frames} frames, {pictures.width}×{pictures.height}"
    words += f", {pictures.bit_depth} bit."
    if pictures.region_share is not None:
        words += f" Only the {pictures.region} counts: {pictures.region_share:.1%} of the picture."
    if pictures.vmaf_reason is not None:
        words += f" No VMAF: {pictures.vmaf_reason}."
    else:
        words += f" VMAF by {pictures.vmaf_model}"
        words += f", of {pictures.vmaf_region}." if pictures.vmaf_region else "."
    rows = [_figure_row(curve) for curve in pictures.curves]
    head = ["Measure", "Plane", "Mean", "1st percentile", "Worst", "Worst frame", "At"]
    return Section(title="Pictures", blocks=[Paragraph(words), Table(head=head, rows=rows, left=2)])


def _figure_row(curve: Curve) -> list[str]:
    unit = " dB" if curve.metric == "psnr" else ""
    row = [curve.metric.upper(), _PLANES[curve.plane]]
    found = curve.statistic
    if found is None:
        return [*row, "no value", "", "", "", ""]
    values = [
        "identical" if math.isinf(value) else f"{value:.{_DECIMALS[curve.metric]}f}{unit}"
        for value in (found.mean, found.p1, found.worst)
    ]
    if found.identical:
        return [*row, *values, "", ""]
    return [*row, *values, str(found.worst_frame), f"{found.worst_seconds:.3f} s"]


def _curves(pictures: Pictures, metric: str) -> Section:
    section = Section(title=_TITLES[metric].split(",")[0])
    curves = [c for c in pictures.curves if c.metric == metric and c.plane != "all"]
    if not curves:
        section.blocks.append(Paragraph(f"Not run: {pictures.vmaf_reason}."))
        return section
    if all(curve.statistic is not None and curve.statistic.identical for curve in curves):
        section.blocks.append(Paragraph("Every frame is identical: nothing to draw."))
        return section
    lines = [
        Series(
            name=_PLANES[curve.plane],
            values=[None if v is None or math.isinf(v) else v for v in curve.values],
        )
        for curve in curves
    ]
    luma = next(curve for curve in curves if curve.plane == "y").statistic
    mark = None
    if luma is not None and math.isfinite(luma.worst):
        mark = (luma.worst_seconds, luma.worst, f"worst: frame {luma.worst_frame}")
    known = [value for line in lines for value in line.values if value is not None]
    bounds = _bounds(known, _TOP.get(metric)) if known else None
    unit, seconds = _UNITS[metric], pictures.seconds
    chart = line_chart(_TITLES[metric], "s", unit, seconds, lines, bounds=bounds, mark=mark)
    if chart is None:
        words = "Not drawn: fewer than two frames have a finite value; see the table."
        section.blocks.append(Paragraph(words))
        return section
    section.blocks.append(chart)
    for curve in curves:
        equal = sum(value is not None and math.isinf(value) for value in curve.values)
        if equal:
            words = f"{_PLANES[curve.plane]}: {equal} of {pictures.frames} frames are identical"
            section.blocks.append(Paragraph(f"{words} and not drawn: their PSNR is infinite."))
    return section


def _bounds(values: Sequence[float], top: float | None) -> tuple[float, float]:
    """A little around the values, but not above what the measure can reach."""
    low, high = min(values), max(values)
    margin = (high - low) * 0.08 or abs(high) * 0.02
    # Twice below, where the worst frame is pointed out.
    return low - 2 * margin, high + margin if top is None else max(high, min(high + margin, top))
