"""What a comparison found, as tables to print and to put on a page."""

from __future__ import annotations

import math

from bgsoft.compare.result import Comparison, Curve, Pictures
from bgsoft.tables import FAILED, NONE, Table

__all__ = ["PLANES", "checks_table", "pictures_table"]

PLANES = {"y": "Y", "cb": "Cb", "cr": "Cr", "all": "all"}
_DECIMALS = {"psnr": 2, "ssim": 4, "vmaf": 2}


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
        label += f" {PLANES[curve.plane]}"
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
