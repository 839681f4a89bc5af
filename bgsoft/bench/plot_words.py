"""How the benchmark's figures are worded on its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from bgsoft.plotting.page import Block, Paragraph, Section

__all__ = [
    "Row",
    "add_chart",
    "bytes_text",
    "number",
    "percent",
    "psnr_text",
    "range_of",
    "reason",
]

Row: TypeAlias = Mapping[str, Any]
"""One object of the results' JSON."""


def reason(row: Row, otherwise: str = "not measured") -> str:
    """Why something was not measured."""
    return str(row.get("reason") or otherwise)


def range_of(samples: Sequence[float] | None) -> tuple[float | None, float | None]:
    """(lowest, highest) of the samples."""
    return (min(samples), max(samples)) if samples else (None, None)


def add_chart(section: Section, chart: Block | None, missing: str) -> None:
    """Add a chart, or where there is nothing to draw: why."""
    section.blocks.append(chart if chart is not None else Paragraph(f"Not run: {missing}."))


def number(value: float | None, decimals: int, unit: str = "", *, signed: bool = False) -> str:
    """A figure with its unit; a dash where there is none."""
    if value is None:
        return "–"
    return f"{value:+.{decimals}f}{unit}" if signed else f"{value:.{decimals}f}{unit}"


def psnr_text(value: float | None) -> str:
    """Decibels."""
    if value is None:
        return "–"
    # The benchmark writes 99 where no sample differs: JSON has no infinity.
    return "identical" if value >= 99 else f"{value:.2f} dB"


def percent(value: float | None) -> str:
    """A part of one, in percent."""
    return "–" if value is None else f"{value:.0%}"


def bytes_text(value: float | None, per: str = "") -> str:
    """A size in a fitting unit."""
    if value is None:
        return "–"
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= size:
            return f"{value / size:.1f} {unit}{per}"
    return f"{value:.0f} B{per}"
