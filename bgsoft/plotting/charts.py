"""Lays out bar charts and line charts.

Nothing is drawn for what was not measured: a row without a value says why in words.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from bgsoft.plotting.drawing import SERIES, Drawing, Line, Path, Rect, Role, Text, text_width

__all__ = ["Bar", "Series", "Stack", "bar_chart", "line_chart", "stacked_chart", "ticks"]

WIDTH = 920.0
_ROW, _BAR = 30.0, 18.0
_AXIS = 24.0
_SMALL = 12.0
_LABEL_SHARE = 0.34
"""The labels' largest part of the width."""
_GAP = 7.0
"""Between a bar and the figure behind it."""
_MAX_POINTS = 1200
"""A line of more points is thinned to its lowest and highest in each stretch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One row of a bar chart."""

    label: str
    value: float | None
    text: str = ""
    """Behind the bar; where ``value`` is None: why there is none."""
    low: float | None = None
    high: float | None = None
    """Ends of a thin line across the bar's end: the range of its samples."""
    target: tuple[float, float] | None = None
    """(from, to): a band that is to be reached; drawn where there is a value."""
    role: Role = "s1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One row of a stacked chart."""

    label: str
    parts: Sequence[float | None]
    """One for each legend entry; None: not measured, left out."""
    missing: str = ""
    """Why there are no parts at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line."""

    name: str
    values: Sequence[float | None] = field(default_factory=tuple)
    """None leaves a gap."""


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers (1, 2, 5 × 10ⁿ apart) from ``low`` to ``high``, both included where round."""
    if high <= low:
        return [low]
    raw = (high - low) / count
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(index * step, 10) for index in range(first, last + 1)]


def bar_chart(title: str, unit: str, bars: Sequence[Bar]) -> Drawing | None:
    """Horizontal bars from zero.

    Args:
        title: What is shown.
        unit: Of the axis.
        bars: Rows, top to bottom.

    Returns:
        None where no row has a value: there is nothing to draw.
    """
    ends = [v for bar in bars if bar.value is not None for v in (bar.value, bar.high or 0.0)]
    if not ends or max(ends) <= 0:
        return None
    bands = [bar.target for bar in bars if bar.target is not None and bar.value is not None]
    most = max(ends + [high for _, high in bands])
    tails = [(max(bar.value, bar.high or 0.0), bar.text) for bar in bars if bar.value is not None]
    sheet, left, scale = _rows(title, unit, [bar.label for bar in bars], most, tails)
    for row, bar in enumerate(bars):
        top = _ROW * row + (_ROW - _BAR) / 2
        middle = top + _BAR / 2
        if bar.value is None:
            sheet.add(_not_run(left, middle, bar.text))
            continue
        if bar.target is not None:
            low, high = bar.target
            span = (high - low) * scale
            tooltip = f"target {low:g} to {high:g} {unit}"
            sheet.add(
                Rect(x=left + low * scale, y=top - 3, width=span, height=_BAR + 6, fill="target",
                     opacity=0.28, tooltip=tooltip)
            )  # fmt: skip
        length = bar.value * scale
        tooltip = f"{bar.label}: {bar.text or f'{bar.value:g} {unit}'}"
        sheet.add(Rect(x=left, y=top, width=length, height=_BAR, fill=bar.role, tooltip=tooltip))
        end = length
        if bar.low is not None and bar.high is not None and bar.high > bar.low:
            x1, x2 = left + bar.low * scale, left + bar.high * scale
            sheet.add(Line(x1=x1, y1=middle, x2=x2, y2=middle, stroke="ink", width=1.2))
            for x in (x1, x2):
                sheet.add(Line(x1=x, y1=middle - 4, x2=x, y2=middle + 4, stroke="ink", width=1.2))
            end = max(end, x2 - left)
        begin = left + end + _GAP
        if bar.target is not None:  # the figure stands clear of the band, if there is room
            low, high = (left + side * scale for side in bar.target)
            width = text_width(bar.text, 13)
            if begin < high and begin + width > low - _GAP and high + _GAP + width <= WIDTH:
                begin = high + _GAP
        sheet.add(Text(x=begin, y=middle + 4.5, text=bar.text))
    return sheet


def stacked_chart(
    title: str, unit: str, legend: Sequence[str], stacks: Sequence[Stack]
) -> Drawing | None:
    """Horizontal bars made of parts.

    Returns:
        None where no row has a part.
    """
    totals = [sum(part or 0.0 for part in stack.parts) for stack in stacks]
    if not totals or max(totals) <= 0:
        return None
    labels = [stack.label for stack in stacks]
    tails = [(total, f"{total:.2f} {unit}") for total in totals]
    sheet, left, scale = _rows(title, unit, labels, max(totals), tails, _legend_height(legend))
    _add_legend(sheet, left, legend)
    for row, stack in enumerate(stacks):
        top = _legend_height(legend) + _ROW * row + (_ROW - _BAR) / 2
        middle = top + _BAR / 2
        if not any(part for part in stack.parts):
            sheet.add(_not_run(left, middle, stack.missing))
            continue
        x = left
        for name, part, role in zip(legend, stack.parts, SERIES, strict=False):
            if not part:
                continue
            tooltip = f"{stack.label}: {name} {part:.2f} {unit}"
            width = part * scale
            sheet.add(Rect(x=x, y=top, width=width, height=_BAR, fill=role, tooltip=tooltip))
            x += width
        sheet.add(Text(x=x + _GAP, y=middle + 4.5, text=tails[row][1]))
    return sheet


def _rows(
    title: str,
    unit: str,
    labels: Sequence[str],
    most: float,
    tails: Sequence[tuple[float, str]],
    above: float = 0.0,
) -> tuple[Drawing, float, float]:
    """A sheet with labels, grid and axis.

    Args:
        title: What is shown.
        unit: Of the axis.
        labels: Of the rows.
        most: What the axis has to reach.
        tails: (end of a bar, text behind it), for the room that those need.
        above: Height kept free at the top, pixels.

    Returns:
        (sheet, x of zero, pixels per unit).
    """
    widest = max(text_width(label, 13) for label in labels) + 12
    left = min(widest, WIDTH * _LABEL_SHARE)
    room = WIDTH - left
    scale = (room - text_width(f"00 {unit}", _SMALL)) / most
    for end, text in tails:
        if end > 0:
            scale = min(scale, max(room - _GAP - text_width(text, 13), room / 3) / end)
    bottom = above + _ROW * len(labels)
    sheet = Drawing(width=WIDTH, height=bottom + _AXIS, label=title)
    shown = ticks(0, most)
    for tick in shown:
        x = left + tick * scale
        stroke: Role = "muted" if tick == 0 else "grid"
        sheet.add(Line(x1=x, y1=above, x2=x, y2=bottom, stroke=stroke))
        text = f"{tick:g} {unit}" if tick == shown[-1] else f"{tick:g}"
        sheet.add(Text(x=x, y=bottom + 16, text=text, fill="muted", size=_SMALL, anchor="middle"))
    for row, label in enumerate(labels):
        y = above + _ROW * row + _ROW / 2 + 4.5
        sheet.add(Text(x=left - 10, y=y, text=_fit(label, left - 10), anchor="end"))
    return sheet, left, scale


def _not_run(left: float, middle: float, reason: str) -> Text:
    text = f"not run: {reason or 'no reason was recorded'}"
    return Text(
        x=left + 6, y=middle + 4.5, text=_fit(text, WIDTH - left - 12), fill="muted", size=_SMALL
    )


def _fit(text: str, width: float) -> str:
    if text_width(text, 13) <= width:
        return text
    return text[: max(1, int(len(text) * width / text_width(text, 13)) - 1)] + "…"


def _legend_height(legend: Sequence[str]) -> float:
    return 26.0 if legend else 0.0


def _add_legend(sheet: Drawing, left: float, legend: Sequence[str]) -> None:
    x = left
    for name, role in zip(legend, SERIES, strict=False):
        sheet.add(Rect(x=x, y=3, width=12, height=12, fill=role), Text(x=x + 17, y=13.5, text=name))
        x += 17 + text_width(name, 13) + 22


def line_chart(
    title: str,
    x_unit: str,
    y_unit: str,
    xs: Sequence[float],
    series: Sequence[Series],
    *,
    bounds: tuple[float, float] | None = None,
    stepped: bool = False,
    height: float = 200.0,
    mark: tuple[float, float, str] | None = None,
) -> Drawing | None:
    """Lines over a common x.

    Args:
        title: What is shown.
        x_unit: Unit of ``xs``.
        y_unit: Unit of the values.
        xs: Rising.
        series: Lines, each with a value for each x.
        bounds: (lowest, highest) y; None: from the values.
        stepped: Hold each value up to the next x.
        height: Of the plotted area, pixels.
        mark: (x, y, text) of a point to point out.

    Returns:
        None with fewer than two points to join.
    """
    drawn = [line for line in series if sum(value is not None for value in line.values) >= 2]
    if len(xs) < 2 or not drawn or xs[-1] <= xs[0]:
        return None
    known = [value for line in drawn for value in line.values if value is not None]
    low, high = bounds or _padded(min(known), max(known))
    legend = [line.name for line in series] if len(series) > 1 else []
    above = _legend_height(legend) + 22
    y_marks = ticks(low, high)
    left = max(text_width(f"{mark:g}", _SMALL) for mark in y_marks) + 14
    right = WIDTH - 30
    bottom = above + height
    sheet = Drawing(width=WIDTH, height=bottom + _AXIS + 4, label=title)
    _add_legend(sheet, left, legend)
    x_scale, y_scale = (right - left) / (xs[-1] - xs[0]), height / (high - low)
    for value in y_marks:
        y = bottom - (value - low) * y_scale
        sheet.add(Line(x1=left, y1=y, x2=right, y2=y, stroke="grid"))
        sheet.add(
            Text(x=left - 7, y=y + 4, text=f"{value:g}", fill="muted", size=_SMALL, anchor="end")
        )
    sheet.add(Text(x=0, y=above - 10, text=y_unit, fill="muted", size=_SMALL))
    times = ticks(xs[0], xs[-1], 8)
    for value in times:
        x = left + (value - xs[0]) * x_scale
        sheet.add(Line(x1=x, y1=bottom, x2=x, y2=bottom + 4, stroke="muted"))
        text = f"{value:g} {x_unit}" if value == times[-1] else f"{value:g}"
        sheet.add(Text(x=x, y=bottom + 18, text=text, fill="muted", size=_SMALL, anchor="middle"))
    sheet.add(Line(x1=left, y1=bottom, x2=right, y2=bottom, stroke="muted"))
    for line, role in zip(series, SERIES, strict=False):
        for run in _runs(xs, line.values):
            points = tuple(
                (left + (x - xs[0]) * x_scale, bottom - (min(max(v, low), high) - low) * y_scale)
                for x, v in _thinned(run)
            )
            sheet.add(Path(points=_steps(points) if stepped else points, stroke=role))
    if mark is not None:
        x, y = left + (mark[0] - xs[0]) * x_scale, bottom - (mark[1] - low) * y_scale
        sheet.add(Rect(x=x - 3.5, y=y - 3.5, width=7, height=7, fill="bad", tooltip=mark[2]))
        near_right = x + text_width(mark[2], _SMALL) > right
        sheet.add(
            Text(
                x=x + 4 if near_right else x - 4,
                y=min(y + 17, bottom - 5),  # below: what is pointed out is a low
                text=mark[2],
                fill="bad",
                size=_SMALL,
                anchor="end" if near_right else "start",
            )
        )
    return sheet


def _padded(low: float, high: float) -> tuple[float, float]:
    """Bounds a little outside the values; never of no height."""
    margin = (high - low) * 0.08 or abs(high) * 0.02 or 1.0
    return low - margin, high + margin


def _runs(xs: Sequence[float], values: Sequence[float | None]) -> list[list[tuple[float, float]]]:
    """The stretches without a gap, of two points or more."""
    runs: list[list[tuple[float, float]]] = [[]]
    for x, value in zip(xs, values, strict=False):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((x, value))
    return [run if len(run) > 1 else [run[0], run[0]] for run in runs if run]


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most about :data:`_MAX_POINTS`: the lowest and the highest of each stretch, in order."""
    if len(points) <= _MAX_POINTS:
        return points
    size = math.ceil(2 * len(points) / _MAX_POINTS)
    kept: list[tuple[float, float]] = []
    for begin in range(0, len(points), size):
        stretch = points[begin : begin + size]
        ends = {min(stretch, key=lambda p: p[1]), max(stretch, key=lambda p: p[1])}
        kept += sorted(ends)
    return kept


def _steps(points: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    stepped = [points[0]]
    for (_, y), (x, after) in itertools.pairwise(points):
        stepped += [(x, y), (x, after)]
    return tuple(stepped)
