"""Tables of results, for the terminal."""

from __future__ import annotations

import io
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console as RichConsole


NONE = "–"
"""Stands for a figure that there is not."""
_NO_WRAP = 10_000
"""Columns in which no line is broken."""


@dataclass(slots=True)
class Table:
    """Rows of text under a heading."""

    title: str
    columns: Sequence[str] = ()
    rows: list[Sequence[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Lines below."""
    text_columns: int = 1
    """Columns from the left that hold words; the others hold figures, and end flush."""


def number(value: float | None, digits: int = 1, unit: str = "") -> str:
    """A figure with its unit; a dash where there is none."""
    return NONE if value is None else f"{value:,.{digits}f}{unit}"


def plain_text(table: Table) -> str:
    """Aligned columns without any markup, however wide."""
    from rich.console import Console as RichConsole

    text = _drawn(table, RichConsole(file=io.StringIO(), width=_NO_WRAP, color_system=None))
    return "\n".join(line.rstrip() for line in text.splitlines())


def terminal_text(table: Table) -> str:
    """As wide and as colourful as the terminal has it; plain where stdout is none."""
    from bgsoft.cli.console import rich_console

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
