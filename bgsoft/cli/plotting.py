"""Charts in one picture, by Matplotlib, which is imported when one is drawn."""

from __future__ import annotations

import importlib.util
import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bgsoft.errors import BackendUnavailableError, ConfigError
from bgsoft.outputs import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_SUFFIXES = (".png", ".svg")
_WIDTH = 11.0
"""Of the picture, inches."""
_ROW = 0.3
"""Height of a bar with its gap, inches."""
_AXIS = 0.9
"""Height of a chart's title, axis and legend, inches."""


class Chart(NamedTuple):
    """A chart that is still to be drawn."""

    title: str
    height: float
    """Inches."""
    draw: Callable[[Axes], None]


def check_plot(path: Path) -> None:
    """Raise at once what would only be found out after the measurement.

    Raises:
        ConfigError: The file is neither ``.png`` nor ``.svg``.
        BackendUnavailableError: Matplotlib is not installed.
    """
    if path.suffix.lower() not in _SUFFIXES:
        raise ConfigError(f"--plot must end in .png or .svg, not {path.name!r}", path=path)
    if importlib.util.find_spec("matplotlib") is None:
        raise BackendUnavailableError("--plot needs Matplotlib: pip install '.[plot]'")


def bar_chart(
    title: str, unit: str, labels: Sequence[str], parts: Mapping[str, Sequence[float]]
) -> Chart:
    """Horizontal bars from zero, the first one on top, with their lengths behind them.

    Args:
        title: What is shown.
        unit: Of the values.
        labels: Of the bars.
        parts: Name → a value for each bar; several are stacked.
    """

    def draw(axes: Axes) -> None:
        rows, ends = range(len(labels)), [0.0] * len(labels)
        for name, values in parts.items():
            bars = axes.barh(rows, values, left=ends, height=0.6, label=name)
            ends = [end + value for end, value in zip(ends, values, strict=True)]
        axes.bar_label(bars, [f"{end:.4g}" for end in ends], padding=4)
        axes.set_yticks(rows, labels)
        axes.invert_yaxis()
        axes.margins(x=0.1)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(unit)
        if len(parts) > 1:
            axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=len(parts))

    return Chart(title, _AXIS + _ROW * (len(labels) + (len(parts) > 1)), draw)


def write_plot(path: Path, title: str, charts: Sequence[Chart]) -> None:
    """Write charts one below the other.

    Args:
        path: ``.png`` or ``.svg``.
        title: Above all.
        charts: At least one.

    Raises:
        OutputError: The file cannot be written.
    """
    import matplotlib.style
    from matplotlib.figure import Figure

    heights = [chart.height for chart in charts]
    # The user's own settings don't matter, and file names may have dollar signs.
    settings = {"text.parse_math": False, "axes.axisbelow": True, "axes.grid": True}
    with matplotlib.style.context(["default", settings]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # file names in any script
        figure = Figure(figsize=(_WIDTH, 0.6 + sum(heights)), layout="constrained")
        figure.suptitle(title)
        panels = figure.subplots(len(charts), 1, height_ratios=heights, squeeze=False)
        for chart, axes in zip(charts, panels[:, 0], strict=True):
            chart.draw(axes)
            axes.set_title(chart.title, loc="left")
        file = io.BytesIO()
        figure.savefig(file, format=path.suffix.lower()[1:], dpi=150)
    write_whole(path, "plot", file.getvalue())
