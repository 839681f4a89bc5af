"""A report of charts, tables and words: one HTML file that loads nothing, or one PNG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TypeAlias

from bgsoft.beside import write_whole
from bgsoft.errors import ConfigError
from bgsoft.plotting.drawing import Drawing, Line, Text, text_width, wrap
from bgsoft.plotting.palette import DARK, LIGHT

__all__ = ["FAILED", "Page", "Paragraph", "Section", "Table", "check_plot_name", "write_page"]

_SUFFIXES = (".html", ".htm", ".png")
FAILED = "FAIL"
"""A cell with this text is shown as bad news."""
_MARGIN = 30.0
_WIDTH = 920.0
_WIDEST_CELL = 420.0
"""Of a PNG's tables; more text goes on in the next line."""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph of plain words."""

    text: str
    strong: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of words and figures."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1
    """This many columns hold words and are set to the left, the others to the right."""


Block: TypeAlias = Paragraph | Table | Drawing


@dataclass(slots=True, kw_only=True)
class Section:
    """A part of the page."""

    title: str
    blocks: list[Block] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Page:
    """The whole report."""

    title: str
    subtitle: str
    sections: list[Section]


def check_plot_name(path: Path) -> None:
    """Raise ConfigError unless the file's suffix tells how to write it."""
    if path.suffix.lower() not in _SUFFIXES:
        raise ConfigError(f"a plot is an .html or .png file, not {path.name!r}", path=path)


def write_page(page: Page, path: Path) -> None:
    """Write a page.

    Args:
        page: What to write.
        path: ``.html``, or ``.png`` for a picture in light colours.

    Raises:
        ConfigError: It is neither.
        OutputError: The file cannot be written.
    """
    check_plot_name(path)
    data = _png(page) if path.suffix.lower() == ".png" else to_html(page).encode()
    write_whole(path, "plot", data)


def to_html(page: Page) -> str:
    """The page; light or dark as the reader's system has it."""
    sections = "\n".join(
        f"<section>\n<h2>{escape(section.title)}</h2>\n"
        + "\n".join(_html(block) for block in section.blocks)
        + "\n</section>"
        for section in page.sections
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{escape(page.title)}</title>
<style>
{_style()}
</style>
</head>
<body>
<main>
<h1>{escape(page.title)}</h1>
<p class="muted">{escape(page.subtitle)}</p>
{sections}
</main>
</body>
</html>
"""


def _style() -> str:
    def variables(palette: Iterable[tuple[str, str]]) -> str:
        return " ".join(f"--{name}: {value};" for name, value in palette)

    roles = [role for role in LIGHT if role not in ("page", "panel")]
    shapes = "\n".join(
        f".f-{role} {{ fill: var(--{role}); }} .l-{role} {{ stroke: var(--{role}); }}"
        for role in roles
    )
    return f""":root {{ color-scheme: light dark; {variables(LIGHT.items())} }}
@media (prefers-color-scheme: dark) {{ :root {{ {variables(DARK.items())} }} }}
body {{ margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }}
main {{ max-width: 960px; margin: 0 auto; padding: 28px 20px 60px; }}
h1 {{ font-size: 26px; line-height: 1.2; margin: 0 0 4px; }}
h2 {{ font-size: 19px; margin: 40px 0 8px; }}
p {{ margin: 6px 0 14px; max-width: 75ch; }}
.muted {{ color: var(--muted); }}
figure {{ margin: 12px 0 22px; }}
figcaption {{ font-weight: 600; margin-bottom: 8px; }}
svg {{ display: block; width: 100%; min-width: 640px; height: auto; font-family: inherit; }}
.scroll {{ overflow-x: auto; }}
table {{ margin: 12px 0 22px; }}
table {{ border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; }}
th, td {{ padding: 5px 12px; border-bottom: 1px solid var(--grid); text-align: right;
  vertical-align: top; white-space: nowrap; }}
th {{ color: var(--muted); font-weight: 600; background: var(--panel); }}
td.words, th.words {{ text-align: left; white-space: normal; overflow-wrap: break-word; }}
.bad {{ color: var(--bad); font-weight: 600; }}
@media print {{ section {{ break-inside: avoid; }} }}
{shapes}"""


def _html(block: Block) -> str:
    match block:
        case Paragraph():
            text = escape(block.text)
            return f"<p><strong>{text}</strong></p>" if block.strong else f"<p>{text}</p>"
        case Drawing():
            caption = escape(block.label)
            drawing = f'<div class="scroll">{block.to_svg()}</div>'
            return f"<figure>\n<figcaption>{caption}</figcaption>\n{drawing}\n</figure>"
        case Table():
            head = _row(block.head, "th", block.left)
            head = f"<thead>\n{head}\n</thead>\n" if any(block.head) else ""
            body = "\n".join(_row(row, "td", block.left) for row in block.rows)
            return f'<div class="scroll"><table>\n{head}<tbody>\n{body}\n</tbody>\n</table></div>'


def _row(cells: Sequence[str], tag: str, left: int) -> str:
    parts = []
    for column, cell in enumerate(cells):
        classes = ["words"] * (column < left) + ["bad"] * (cell == FAILED)
        name = f' class="{" ".join(classes)}"' if classes else ""
        parts.append(f"<{tag}{name}>{escape(cell)}</{tag}>")
    return f"<tr>{''.join(parts)}</tr>"


def _png(page: Page) -> bytes:
    import cv2

    from bgsoft.plotting import raster

    placed: list[tuple[Drawing, float]] = []
    y = 24.0
    head = _words([(page.title, 24, True), (page.subtitle, 13, False)])
    placed.append((head, y))
    y += head.height + 18
    for section in page.sections:
        parts = [_words([(section.title, 18, True)])]
        for block in section.blocks:
            parts += _drawings(block)
        for part in parts:
            placed.append((part, y))
            y += part.height + 10
        y += 14
    width = max([_WIDTH] + [drawing.width for drawing, _ in placed]) + 2 * _MARGIN
    picture = raster.sheet(width, y + 10, LIGHT)
    for drawing, top in placed:
        raster.draw(picture, drawing, _MARGIN, top, LIGHT)
    _, data = cv2.imencode(".png", picture)
    return data.tobytes()


def _drawings(block: Block) -> list[Drawing]:
    match block:
        case Paragraph():
            return [_words([(block.text, 13, block.strong)])]
        case Table():
            return [_table(block)]
        case Drawing():
            return [_words([(block.label, 13, True)]), block]


def _words(paragraphs: Sequence[tuple[str, float, bool]]) -> Drawing:
    """(text, size, bold) one below the other."""
    sheet = Drawing(width=_WIDTH, height=0, label="")
    for text, size, bold in paragraphs:
        for line in wrap(text, size, _WIDTH):
            sheet.height += size * 1.45
            sheet.add(Text(x=0, y=sheet.height - size * 0.3, text=line, size=size, bold=bold))
    return sheet


def _table(table: Table) -> Drawing:
    size, line, gap = 12.0, 18.0, 18.0
    headed = any(table.head)
    cells = [*([list(table.head)] if headed else []), *map(list, table.rows)]
    widths = [
        min(max(text_width(row[column], size) for row in cells), _WIDEST_CELL)
        for column in range(len(table.head))
    ]
    wrapped = [[wrap(cell, size, widths[i]) or [""] for i, cell in enumerate(row)] for row in cells]
    sheet = Drawing(width=sum(widths) + gap * len(widths), height=0, label="")
    for number, row in enumerate(wrapped):
        x = 0.0
        heading = headed and number == 0
        for column, lines in enumerate(row):
            words = column < table.left
            for index, text in enumerate(lines):
                sheet.add(
                    Text(
                        x=x if words else x + widths[column],
                        y=sheet.height + line * (index + 1) - 4,
                        text=text,
                        size=size,
                        anchor="start" if words else "end",
                        fill="bad" if text == FAILED else "muted" if heading else "ink",
                        bold=heading or text == FAILED,
                    )
                )
            x += widths[column] + gap
        sheet.height += line * max(map(len, row)) + 3
        sheet.add(
            Line(x1=0, y1=sheet.height - 1, x2=sheet.width, y2=sheet.height - 1, stroke="grid")
        )
    return sheet
