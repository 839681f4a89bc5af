"""Drawing of a video's timeline: curves of figures, cuts, hidden runs, and dots for places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

import numpy as np

from bgsoft.records import NamedTuple
from bgsoft.review.doubts import flicker_of
from bgsoft.review.evidence import Evidence

_COLUMNS = 1000
"""Columns of the timeline; if a video has more frames, each column shows the range of several."""
_ROW, _GAP, _FOOT = 40, 4, 24
_LABEL = 12
"""Part of a row above its curve or bars."""
_FLICKER_PCT = 0.5
"""Percent of the frame that the row of flicker is high, at least: less is seen by nobody."""


class TimelineMark(NamedTuple):
    """A dot below the timeline."""

    frame: int
    href: str
    label: str


def draw_timeline(evidence: Evidence, count: int, marks: Sequence[TimelineMark]) -> str:
    """Return the timeline as SVG: rows of curves and bars, from the first frame to the last.

    Args:
        evidence: Its figures may still lack the last frames.
        count: Frames of the video.
        marks: Dots with links.
    """
    return "".join(_parts(evidence, count, marks))


def _parts(evidence: Evidence, count: int, marks: Sequence[TimelineMark]) -> Iterator[str]:
    area, flicker = evidence.area, flicker_of(evidence)
    name = f"{evidence.area_name}, {min(area, default=0):.1f} to {max(area, default=0):.1f} %"
    flicker_name = f"Flicker, at most {flicker.max(initial=0):.2f} %"
    width = _COLUMNS * len(area) / count
    rows = [
        (name, _curve(area, "area", width)),
        (flicker_name, _curve(flicker, "flicker", width, _FLICKER_PCT)),
    ]
    if evidence.faces is not None:
        name = f"Faces, at most {max(evidence.faces, default=0)}"
        rows.append((name, _curve(evidence.faces, "faces", width)))
    if evidence.hidden:
        rows.append(("Hidden", _bars(evidence, count)))
    height = len(rows) * (_ROW + _GAP) + _FOOT
    view = f'viewBox="0 0 {_COLUMNS} {height}"'
    yield f'<svg class="timeline" {view} role="img" aria-label="Timeline">'
    for cut in evidence.cuts:
        line, title = f"M{_x(cut, count)} 0V{height - _FOOT}", f"<title>cut, frame {cut}</title>"
        yield f'<path class="cut" d="{line}">{title}</path>'
    for number, (name, drawn) in enumerate(rows):
        y = number * (_ROW + _GAP) + _GAP
        yield f'<g transform="translate(0 {y})">{drawn}<text y="8">{escape(name)}</text></g>'
    for mark in marks:
        yield (
            f'<a href="{mark.href}"><circle cx="{_x(mark.frame, count)}"'
            f' cy="{height - _FOOT // 2}" r="6"/><title>{escape(mark.label)}</title></a>'
        )
    yield "</svg>"


def _x(frame: int, count: int) -> str:
    return f"{_COLUMNS * (frame + 0.5) / count:.1f}"


def _curve(values: Any, name: str, width: float, scale: float = 1e-6) -> str:
    """A row with a curve, filled to the ground; of several frames in a column, their range.

    The row's height is the largest value, and at least ``scale``.
    """
    curve = np.asarray(values, np.float64)
    if not len(curve):
        return ""
    top = max(float(curve.max(initial=0.0)), scale)
    parts = np.array_split(curve, min(len(curve), _COLUMNS))
    step = width / len(parts)
    high = _ROW - _LABEL
    ranges = [[_ROW - high * edge / top for edge in (part.max(), part.min())] for part in parts]
    upper, lower = (
        [f"{step * (at + 0.5):.1f} {edges[side]:.1f}" for at, edges in enumerate(ranges)]
        for side in (0, 1)
    )
    first, last = f"0 {ranges[0][0]:.1f}", f"{width:.1f} {ranges[-1][0]:.1f}"
    ground = f"M0 {_ROW}L{'L'.join([first, *upper, last])}L{width:.1f} {_ROW}Z"
    band = f"M{'L'.join([first, *upper, last, *lower[::-1]])}Z"
    return f'<path class="{name} ground" d="{ground}"/><path class="{name}" d="{band}"/>'


def _bars(evidence: Evidence, count: int) -> str:
    """A row with a bar for each hidden run, below each other where they overlap."""
    lanes: list[int] = []
    bars = []
    for run in evidence.hidden:
        first, last = run["first_frame"], run["last_frame"]
        lane = next((n for n, end in enumerate(lanes) if end < first), len(lanes))
        lanes[lane : lane + 1] = [last]
        title = escape(f"{run['region'] or 'face'}, frames {first} to {last}")
        bars.append((lane, first, last, title))
    high = (_ROW - _LABEL) / max(1, len(lanes))
    return "".join(
        f'<rect class="hidden" x="{_COLUMNS * first / count:.1f}" y="{_LABEL + lane * high:.1f}"'
        f' width="{max(1.0, _COLUMNS * (last - first + 1) / count):.1f}"'
        f' height="{max(1.0, high - 1):.1f}"><title>{title}</title></rect>'
        for lane, first, last, title in bars
    )
