"""Bar charts and line charts by Matplotlib, which is imported when one is drawn.

Nothing is drawn for what was not measured; the tables beside the charts say why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# The data colours differ in lightness as well as in hue, so that they stay apart for readers who
# don't see red and green as different. Each light colour stands for its role: no two are equal.
LIGHT = {
    "page": "#ffffff",
    "panel": "#f6f7f9",
    "ink": "#1d2127",
    "muted": "#5b6470",
    "grid": "#d9dde3",
    "bad": "#b42318",
    "s1": "#2f6fc1",
    "s2": "#e08a1e",
    "s3": "#1f8f6a",
    "s4": "#8757c9",
    "s5": "#c2416b",
    "s6": "#5d6b7a",
}
DARK = {
    "page": "#14171b",
    "panel": "#1c2026",
    "ink": "#e8ebef",
    "muted": "#a3acb8",
    "grid": "#343a43",
    "bad": "#ff8a7a",
    "s1": "#6aa5ee",
    "s2": "#f0ab55",
    "s3": "#4cc398",
    "s4": "#b391ea",
    "s5": "#ee7fa3",
    "s6": "#a0acba",
}
INK, BAD = LIGHT["ink"], LIGHT["bad"]
SERIES = tuple(color for role, color in LIGHT.items() if role[1:].isdigit())
"""Of the data, in the order of its series."""

WIDTH = 9.2
"""Of a chart, inches."""
_ROW, _AXIS, _LINES = 0.3, 0.55, 2.3
"""Heights, inches: of a bar with its gap, of title and axis, of the lines' area."""
_LONGEST_LABEL = 60
_CHARACTER = 0.011
"""Width of a character behind a bar, as a part of the bars' room: rather more than less."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart that is still to be drawn."""

    title: str
    height: float
    """Inches."""
    draw: Callable[[Axes], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One row of a bar chart."""

    label: str
    value: float
    text: str
    """Behind the bar."""
    low: float | None = None
    high: float | None = None
    """Ends of a thin line across the bar's end: the range of its samples."""
    series: int = 0
    """Which colour."""


def bar_chart(title: str, unit: str, bars: Sequence[Bar]) -> Chart | None:
    """Horizontal bars from zero, the first one on top; None without any."""
    if not bars:
        return None

    def draw(axes: Axes) -> None:
        ends = []
        for row, bar in enumerate(bars):
            axes.barh(row, bar.value, color=SERIES[bar.series], height=0.6)
            end = bar.value
            if bar.low is not None and bar.high is not None and bar.high > bar.low:
                axes.plot([bar.low, bar.high], [row, row], color=INK, linewidth=1, marker="|")
                end = max(end, bar.high)
            ends.append((end, bar.text))
        _finish_rows(axes, unit, [bar.label for bar in bars], ends)

    return Chart(title, _AXIS + _ROW * len(bars), draw)


def stacked_chart(
    title: str, unit: str, names: Sequence[str], rows: Mapping[str, Sequence[float]]
) -> Chart | None:
    """Horizontal bars made of named parts; the rows by their labels. None without any."""
    if not rows:
        return None

    def draw(axes: Axes) -> None:
        starts = [0.0] * len(rows)
        for number, name in enumerate(names):
            parts = [row[number] for row in rows.values()]
            color = SERIES[number % len(SERIES)]
            axes.barh(range(len(rows)), parts, left=starts, color=color, height=0.6, label=name)
            starts = [start + part for start, part in zip(starts, parts, strict=True)]
        ends = [(end, f"{end:.2f} {unit}") for end in starts]
        _finish_rows(axes, unit, list(rows), ends)
        _add_legend(axes, len(names))

    return Chart(title, _AXIS + _ROW * (1 + len(rows)), draw)


def line_chart(
    title: str,
    unit: str,
    seconds: Sequence[float],
    lines: Mapping[str, Sequence[float | None]],
    *,
    bounds: tuple[float, float] | None = None,
    stepped: bool = False,
    mark: tuple[float, float, str] | None = None,
) -> Chart | None:
    """Lines over time; None where none has two values to join.

    Args:
        title: What is shown.
        unit: Of the values.
        seconds: Rising.
        lines: Name → a value for each of ``seconds``; None leaves a gap.
        bounds: (lowest, highest) value of the axis; None: from the values.
        stepped: Hold each value up to the next one.
        mark: (seconds, value, text) of a point to point out.
    """
    drawn = {
        name: values
        for name, values in lines.items()
        if sum(value is not None for value in values) >= 2
    }
    if not drawn:
        return None

    def draw(axes: Axes) -> None:
        for (name, values), color in zip(drawn.items(), SERIES, strict=False):
            gaps = [float("nan") if value is None else value for value in values]
            style = "steps-post" if stepped else "default"
            axes.plot(seconds, gaps, color=color, linewidth=1.3, drawstyle=style, label=name)
        if mark is not None:
            axes.plot(*mark[:2], color=BAD, marker="o", markersize=4)
            at_end = mark[0] > 0.8 * seconds[-1]
            axes.annotate(
                mark[2],
                mark[:2],
                xytext=(-6 if at_end else 4, -12),
                textcoords="offset points",
                color=BAD,
                ha="right" if at_end else "left",
            )
        axes.set_xlim(seconds[0], seconds[-1])
        if bounds is not None:
            axes.set_ylim(*bounds)
        axes.set_xlabel("s", loc="right")
        axes.set_ylabel(unit)
        axes.grid(visible=True)
        if len(drawn) > 1:
            _add_legend(axes, len(drawn))

    return Chart(title, _AXIS + _LINES, draw)


def _finish_rows(
    axes: Axes, unit: str, labels: Sequence[str], ends: Sequence[tuple[float, str]]
) -> None:
    """Labels before the bars, words behind them, and room for those."""
    for row, (end, text) in enumerate(ends):
        axes.annotate(text, (end, row), xytext=(5, 0), textcoords="offset points", va="center")
    axes.set_xlim(0, max(end / max(0.3, 1 - _CHARACTER * (len(text) + 2)) for end, text in ends))
    axes.set_ylim(len(labels) - 0.5, -0.5)
    cut = [t if len(t) <= _LONGEST_LABEL else t[: _LONGEST_LABEL - 1] + "…" for t in labels]
    axes.set_yticks(range(len(labels)), cut)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=True, axis="x")
    axes.set_xlabel(unit, loc="right")


def _add_legend(axes: Axes, columns: int) -> None:
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, frameon=False)
