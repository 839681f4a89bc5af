"""A page of charts, tables and words: one HTML file that loads nothing, or one picture."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from bgsoft.errors import BackendUnavailableError, ConfigError
from bgsoft.outputs import write_whole
from bgsoft.plotting.charts import DARK, LIGHT, WIDTH, Chart
from bgsoft.tables import FAILED, Table, plain_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_SUFFIXES = (".html", ".htm", ".png", ".svg")
_PICTURE_DPI = 150
_PICTURE_INCHES = 11.0
_TITLE_INCHES = 0.45
_TEXT_POINTS, _LINE_INCHES, _LINE_CHARACTERS = 8.0, 0.16, 155
"""Of monospaced text in a picture: size, height and longest line."""

Block: TypeAlias = Chart | Table | str
"""A string is a paragraph."""


def check_plot(path: Path) -> None:
    """Raise at once what would only be found out after the measurement.

    Raises:
        ConfigError: The file's suffix does not tell how to write it.
        BackendUnavailableError: Matplotlib is not installed.
    """
    if path.suffix.lower() not in _SUFFIXES:
        raise ConfigError(f"--plot must end in .html, .png or .svg, not {path.name!r}", path=path)
    if importlib.util.find_spec("matplotlib") is None:
        raise BackendUnavailableError("--plot needs Matplotlib: pip install '.[plot]'")


def write_page(title: str, blocks: Sequence[Block | None], path: Path) -> None:
    """Write a page.

    Args:
        title: Above all.
        blocks: In the order to read them, the first a line about the whole; None for a chart of
            what was not measured.
        path: ``.html``: light or dark as the reader's system has it; ``.png`` or ``.svg``: a
            picture in light colours.

    Raises:
        ConfigError: It is neither.
        BackendUnavailableError: Matplotlib is not installed.
        OutputError: The file cannot be written.
    """
    check_plot(path)
    suffix = path.suffix.lower()
    shown = [block for block in blocks if block is not None]
    with _style():
        if suffix in (".png", ".svg"):
            data = _picture(title, shown, suffix[1:])
        else:
            data = _html(title, shown).encode()
    write_whole(path, "plot", data)


@contextlib.contextmanager
def _style() -> Iterator[None]:
    """Matplotlib's settings for charts, whatever the user's own are."""
    import matplotlib.style

    ink, grid = LIGHT["ink"], LIGHT["grid"]
    settings: dict[str, Any] = {
        "axes.axisbelow": True,
        "axes.edgecolor": grid,
        "axes.labelcolor": LIGHT["muted"],
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlelocation": "left",
        "axes.titleweight": "bold",
        "figure.constrained_layout.use": True,
        "figure.constrained_layout.w_pad": 0.12,
        "font.size": 9.0,
        "grid.color": grid,
        "svg.fonttype": "none",  # text stays text
        "text.color": ink,
        "text.parse_math": False,  # file names may have dollar signs
        "xtick.color": LIGHT["muted"],
        "ytick.labelcolor": ink,
        "ytick.color": grid,
    }
    with matplotlib.style.context(["default", settings]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # file names in any script
        yield


def _saved(figure: Figure, format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    if format == "svg":  # no date, and no addresses: it loads nothing
        options["metadata"] = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(file, format=format, **options)
    return file.getvalue()


def _picture(title: str, blocks: Sequence[Block], format: str) -> bytes:
    """All blocks one below the other."""
    from matplotlib.figure import Figure

    about, *others = blocks
    rows: list[Chart | str] = []
    for block in (f"{title}\n{about}", *others):
        text = plain_text(block) if isinstance(block, Table) else block
        rows.append(text if isinstance(text, Chart) else _wrapped(text))
    heights = [
        block.height + _TITLE_INCHES
        if isinstance(block, Chart)
        else _LINE_INCHES * (block.count("\n") + 1) + 0.2
        for block in rows
    ]
    figure = Figure(figsize=(_PICTURE_INCHES, sum(heights)))
    parts = figure.subfigures(len(rows), 1, height_ratios=heights, squeeze=False)[:, 0]
    for row, (block, part) in enumerate(zip(rows, parts, strict=True)):
        if isinstance(block, Chart):
            axes = part.add_subplot()
            block.draw(axes)
            axes.set_title(block.title, pad=24 if axes.get_legend() else 6)
        else:
            weight = "bold" if row == 0 else "normal"
            part.text(
                0.01, 0.97, block, va="top", family="monospace", size=_TEXT_POINTS, weight=weight
            )
    return _saved(figure, format, dpi=_PICTURE_DPI)


def _wrapped(text: str) -> str:
    """The text with its long lines broken; columns of tables stay as they are."""
    lines = (
        textwrap.wrap(line, _LINE_CHARACTERS, subsequent_indent="    ", drop_whitespace=False)
        if len(line) > _LINE_CHARACTERS
        else [line]
        for line in text.split("\n")
    )
    return "\n".join("\n".join(parts) for parts in lines)


def _html(title: str, blocks: Sequence[Block]) -> str:
    body = "\n".join(_block_html(block) for block in blocks)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{escape(title)}</title>
<style>
{_css()}
</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
{body}
</main>
</body>
</html>
"""


def _css() -> str:
    light, dark = (
        " ".join(f"--{role}: {color};" for role, color in palette.items())
        for palette in (LIGHT, DARK)
    )
    return f""":root {{ color-scheme: light dark; {light} }}
@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}
body {{ margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }}
main > p:first-of-type {{ color: var(--muted); }}
main {{ max-width: 960px; margin: 0 auto; padding: 28px 20px 60px; }}
h1 {{ font-size: 26px; line-height: 1.2; margin: 0 0 4px; }}
h2 {{ font-size: 17px; margin: 36px 0 8px; }}
p {{ margin: 6px 0 14px; max-width: 75ch; white-space: pre-line; }}
figure {{ margin: 12px 0 22px; }}
figcaption {{ font-weight: 600; margin-bottom: 8px; }}
svg {{ display: block; width: 100%; min-width: 640px; height: auto; }}
svg text {{ font-family: system-ui, sans-serif !important; }}
.scroll {{ overflow-x: auto; }}
table {{ margin: 12px 0 22px; border-collapse: collapse; font-size: 14px;
  font-variant-numeric: tabular-nums; }}
th, td {{ padding: 5px 12px; border-bottom: 1px solid var(--grid); text-align: right;
  vertical-align: top; white-space: nowrap; }}
th {{ color: var(--muted); font-weight: 600; background: var(--panel); }}
td.words, th.words {{ text-align: left; white-space: normal; overflow-wrap: break-word; }}
.bad {{ color: var(--bad); font-weight: 600; }}
@media print {{ figure, table {{ break-inside: avoid; }} }}"""


def _block_html(block: Block) -> str:
    if isinstance(block, Chart):
        caption = f"<figcaption>{escape(block.title)}</figcaption>"
        return f'<figure>\n{caption}\n<div class="scroll">{_svg(block)}</div>\n</figure>'
    if isinstance(block, str):
        return f"<p>{escape(block)}</p>"
    parts = [f"<h2>{escape(block.title)}</h2>"]
    if block.rows:
        rows = [_row(row, "td", block.text_columns) for row in block.rows]
        if any(block.columns):
            rows.insert(0, _row(block.columns, "th", block.text_columns))
        parts.append('<div class="scroll"><table>\n' + "\n".join(rows) + "\n</table></div>")
    parts += [f"<p>{escape(note)}</p>" for note in block.notes if note]
    return "\n".join(parts)


def _row(cells: Sequence[str], tag: str, text_columns: int) -> str:
    parts = []
    for column, cell in enumerate(cells):
        classes = ["words"] * (column < text_columns) + ["bad"] * (cell == FAILED)
        name = f' class="{" ".join(classes)}"' if classes else ""
        parts.append(f"<{tag}{name}>{escape(cell)}</{tag}>")
    return f"<tr>{''.join(parts)}</tr>"


def _svg(chart: Chart) -> str:
    """The chart as an element of the page, in the page's colours."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, chart.height))
    chart.draw(figure.add_subplot())
    text = _saved(figure, "svg", transparent=True).decode()
    for role, color in LIGHT.items():
        text = text.replace(color, f"var(--{role})")
    return text[text.index("<svg") :]
