"""Results of a measurement: tables on the terminal, a JSON file, charts in a picture."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bgsoft.cli.console import Console, rich_console
from bgsoft.errors import BackendUnavailableError, ConfigError
from bgsoft.outputs import DASH, check_target, made_folders, write_whole
from bgsoft.records import NamedTuple, dataclass

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.console import Console as RichConsole


NONE = "–"
"""Placeholder of a missing figure."""
_NO_WRAP = 10_000
"""Columns wide enough for any line."""
_WIDTH, _ROW, _AXIS = 11.0, 0.3, 0.9
"""Inches: width of the picture; height of a bar with its gap, and of title, axis and legend."""


@dataclass(slots=True)
class Table:
    """Rows of text under a heading."""

    title: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    notes: list[str] = field(default_factory=list)
    """Lines below the table."""
    text_columns: int = 1
    """Columns from the left that contain words; the others contain figures, aligned right."""


class Chart(NamedTuple):
    """A chart to be drawn."""

    title: str
    height: float
    """Inches."""
    draw: Callable[[Axes], None]


class ResultFiles(NamedTuple):
    """The files of ``--json`` and ``--plot``."""

    what: str
    """Name of the JSON file in errors."""
    json: Path | None
    plot: Path | None
    """``.png`` or ``.svg``."""
    overwrite: bool
    """Whether they may exist."""

    def check(self, inputs: Iterable[Path]) -> None:
        """Check, before the measurement, that both files can be written.

        Raises:
            ConfigError: The plot is not ``.png`` or ``.svg``, or would replace a file.
            BackendUnavailableError: Matplotlib is missing.
            OutputError: A file cannot be written, exists, is one of the inputs, or is the other.
        """
        if self.overwrite and self.plot is None and self.json in (None, DASH):
            raise ConfigError("cannot use --overwrite: it needs --json FILE or --plot FILE")
        if self.plot is not None:
            if self.plot.suffix.lower() not in (".png", ".svg"):
                message = f"--plot must end in .png or .svg, not {self.plot.name!r}"
                raise ConfigError(message, path=self.plot)
            if importlib.util.find_spec("matplotlib") is None:
                raise BackendUnavailableError(
                    "cannot draw --plot: Matplotlib is missing; pip install '.[plot]'"
                )
        others = list(inputs)
        for what, path in ((self.what, self.json), ("plot", self.plot)):
            if path is not None:
                check_target(path, what, overwrite=self.overwrite, others=others)
                others.append(path)

    def write(
        self, plain: Mapping[str, Any], draw: Callable[[Path], None], console: Console
    ) -> None:
        """Write the JSON and draw the plot; created folders are reported.

        Raises:
            OutputError: As :meth:`check`, since a file may have appeared during the measurement.
        """
        self.check(())
        targets = [path for path in (self.json, self.plot) if path is not None]
        with made_folders(targets, lambda text: console.err(f"notice: {text}")):
            if self.json is not None:
                text = json.dumps(plain, indent=1, default=str, allow_nan=False)
                write_whole(self.json, self.what, text + "\n")
            if self.plot is not None:
                draw(self.plot)


def number(value: float | None, digits: int = 1, unit: str = "") -> str:
    """Format a figure with its unit; a dash where it is missing."""
    return NONE if value is None else f"{value:,.{digits}f}{unit}"


def plain_text(table: Table) -> str:
    """Format aligned columns without markup, however wide."""
    from rich.console import Console as RichConsole

    text = _drawn(table, RichConsole(file=io.StringIO(), width=_NO_WRAP, color_system=None))
    return "\n".join(line.rstrip() for line in text.splitlines())


def terminal_text(table: Table) -> str:
    """Format a table as wide and colourful as the terminal allows; plain if stdout is none."""
    return _drawn(table, rich_console()) if sys.stdout.isatty() else plain_text(table)


def _drawn(table: Table, console: RichConsole) -> str:
    from rich.table import Table as RichTable
    from rich.text import Text

    with console.capture() as captured:
        console.print(Text(table.title, style="bold"), soft_wrap=True)
        if table.rows:
            drawn = RichTable(box=None, header_style="dim", show_header=any(table.columns))
            for index, column in enumerate(table.columns):
                words = index < table.text_columns
                drawn.add_column(column, justify="left" if words else "right", no_wrap=not words)
            for row in table.rows:
                drawn.add_row(*map(Text, row))
            console.print(drawn)
        for note in table.notes:
            console.print(Text(textwrap.indent(note, "  ")), soft_wrap=True)
    return captured.get().rstrip("\n")


def bar_chart(
    title: str, unit: str, labels: Sequence[str], parts: Mapping[str, Sequence[float]]
) -> Chart:
    """Return a chart of horizontal bars from zero with their values, the first one on top.

    ``parts`` has a value for each bar by name; several are stacked.
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
    """Write charts, one below another, to a ``.png`` or ``.svg``.

    Raises:
        OutputError: The file cannot be written.
    """
    import matplotlib.style
    from matplotlib.figure import Figure

    heights = [chart.height for chart in charts]
    # The user's own settings are ignored, and file names may contain dollar signs.
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
