"""A drawing as a list of shapes, and its SVG form.

Charts are laid out once, as shapes; SVG for the page and OpenCV for the picture
(:mod:`bgsoft.plotting.raster`) both draw from that list, so neither needs a plotting library.
Colours are roles, not values: the page gives each role one value for light and one for dark.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Literal, TypeAlias

__all__ = [
    "SERIES",
    "Drawing",
    "Line",
    "Path",
    "Rect",
    "Role",
    "Text",
    "text_width",
    "wrap",
]

Role: TypeAlias = Literal[
    "ink", "muted", "grid", "target", "bad", "s1", "s2", "s3", "s4", "s5", "s6"
]
"""What a shape stands for; see ``PALETTES`` in :mod:`bgsoft.plotting.palette`."""

SERIES: tuple[Role, ...] = ("s1", "s2", "s3", "s4", "s5", "s6")
"""Colours of data, in order of use."""

_MEAN_ADVANCE = 0.6
"""Mean width of a character in a wide sans-serif face (DejaVu), in parts of its size. Readers have
other faces; narrower ones leave some room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rect:
    """A filled rectangle. All lengths are pixels from the top left corner."""

    x: float
    y: float
    width: float
    height: float
    fill: Role
    opacity: float = 1.0
    tooltip: str = ""
    """Shown by browsers while the pointer rests on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A straight line."""

    x1: float
    y1: float
    x2: float
    y2: float
    stroke: Role
    width: float = 1.0
    dashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """A line through points."""

    points: tuple[tuple[float, float], ...]
    stroke: Role
    width: float = 1.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """One line of text."""

    x: float
    y: float
    """Of the baseline."""
    text: str
    fill: Role = "ink"
    size: float = 13
    anchor: Literal["start", "middle", "end"] = "start"
    bold: bool = False


Shape: TypeAlias = Rect | Line | Path | Text


@dataclass(slots=True, kw_only=True)
class Drawing:
    """Shapes on an empty sheet, later ones on top."""

    width: float
    height: float
    label: str
    """What it shows, for readers that don't see it."""
    shapes: list[Shape] = field(default_factory=list)

    def add(self, *shapes: Shape) -> None:
        self.shapes.extend(shapes)

    def to_svg(self) -> str:
        """An inline ``<svg>`` element; its colours come from the page's style sheet."""
        body = "\n".join(_svg(shape) for shape in self.shapes)
        return (
            f'<svg viewBox="0 0 {self.width:g} {self.height:g}" role="img"'
            f' aria-label="{escape(self.label)}">\n{body}\n</svg>'
        )


def text_width(text: str, size: float) -> float:
    """About how wide a text is, pixels; there is no font to ask."""
    return len(text) * size * _MEAN_ADVANCE


def wrap(text: str, size: float, width: float) -> list[str]:
    """Break a text at spaces into lines of at most ``width`` pixels; longer words stay whole."""
    lines: list[str] = []
    for word in text.split():
        if lines and text_width(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _svg(shape: Shape) -> str:
    match shape:
        case Rect():
            opacity = f' fill-opacity="{shape.opacity:g}"' if shape.opacity < 1 else ""
            title = f"<title>{escape(shape.tooltip)}</title>" if shape.tooltip else ""
            return (
                f'<rect class="f-{shape.fill}" x="{shape.x:.1f}" y="{shape.y:.1f}"'
                f' width="{shape.width:.1f}" height="{shape.height:.1f}"{opacity}>{title}</rect>'
            )
        case Line():
            dash = ' stroke-dasharray="4 4"' if shape.dashed else ""
            return (
                f'<line class="l-{shape.stroke}" x1="{shape.x1:.1f}" y1="{shape.y1:.1f}"'
                f' x2="{shape.x2:.1f}" y2="{shape.y2:.1f}" stroke-width="{shape.width:g}"{dash}/>'
            )
        case Path():
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in shape.points)
            return (
                f'<polyline class="l-{shape.stroke}" points="{points}" fill="none"'
                f' stroke-width="{shape.width:g}" stroke-linejoin="round"/>'
            )
        case Text():
            weight = ' font-weight="600"' if shape.bold else ""
            return (
                f'<text class="f-{shape.fill}" x="{shape.x:.1f}" y="{shape.y:.1f}"'
                f' font-size="{shape.size:g}" text-anchor="{shape.anchor}"{weight}>'
                f"{escape(shape.text)}</text>"
            )
