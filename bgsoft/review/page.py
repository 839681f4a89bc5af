"""The page of a review: one HTML file that loads nothing."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from bgsoft.pages import read_page
from bgsoft.review.doubts import flicker_of, mending_line
from bgsoft.review.evidence import Evidence
from bgsoft.review.pictures import ShownDoubt
from bgsoft.review.videos import ReviewVideo
from bgsoft.settings.regions import RegionAction

_TEMPLATE = Path(__file__).with_name("page.html")
_COLUMNS = 1000
"""Columns of the timeline; if a video has more frames, each column shows the range of several."""
_ROW, _GAP, _FOOT = 34, 8, 24
_FLICKER_PCT = 0.5
"""Percent of the frame that the row of flicker is high, at least: less is seen by nobody."""
_WORDS = {
    RegionAction.HIDE: "Hide this place:",
    RegionAction.KEEP: "Keep this place as person:",
    RegionAction.DROP: "Treat this place as background:",
}


def write_page(
    evidence: Evidence,
    shown: Sequence[ShownDoubt],
    left_out: int,
    source: ReviewVideo,
    result: ReviewVideo,
    origin: str,
) -> str:
    """Return the page.

    Args:
        evidence: For the timeline.
        shown: Doubts to show, in order.
        left_out: Doubts that are not shown.
        source: The source.
        result: The result.
        origin: Sentence about the source of the figures.
    """
    template = Template(read_page(_TEMPLATE))
    count = len(source.pts)
    summary = f"{_number(len(shown), 'doubtful place')} shown"
    if left_out:
        summary += f", {left_out} of less weight left out"
    return template.substitute(
        title=escape(f"{result.path.name}: review"),
        source=escape(source.path.name),
        result=escape(result.path.name),
        facts=f"{_number(count, 'frame')}, {clock(source.seconds(count - 1))}. {escape(origin)}",
        summary=summary,
        timeline="".join(_timeline(evidence, shown, source)),
        doubts="".join(_article(number, each, source) for number, each in enumerate(shown, 1))
        or "<p>Nothing doubtful was found. That is no proof: look at the result.</p>",
    )


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def clock(seconds: float) -> str:
    """A time as M:SS.mmm, or H:MM:SS.mmm, which regions take."""
    minutes, rest = divmod(round(seconds, 3), 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}:{minutes:02}:{rest:06.3f}" if hours else f"{minutes}:{rest:06.3f}"


def _article(number: int, shown: ShownDoubt, source: ReviewVideo) -> str:
    doubt = shown.doubt
    left, top, right, bottom = shown.view
    width, height = right - left, bottom - top
    css = "display:none"
    if shown.box is not None:
        x0, y0, x1, y1 = shown.box
        places = (x0 - left) / width, (y0 - top) / height, (x1 - x0) / width, (y1 - y0) / height
        style = zip(("left", "top", "width", "height"), places, strict=True)
        css = ";".join(f"{name}:{100 * place:.2f}%" for name, place in style)
    frame = f'<i class="box" style="{css}"></i>'
    figures = "".join(
        f'<figure><div><img alt="{name}, frame {doubt.frame}" width="{width}" height="{height}"'
        f' src="data:image/webp;base64,{base64.b64encode(data).decode()}">{frame}</div>'
        f"<figcaption>{name}</figcaption></figure>"
        for name, data in (("Source", shown.source), ("Result", shown.result))
    )
    advice, hidden = _WORDS[doubt.action], ""
    if shown.box is None:
        advice, hidden = f"No place was found: draw one. {advice}", " hidden"
    line = mending_line(doubt, shown.box or shown.view, source)
    mend = (
        f"<p>{advice}</p><div class=mend{hidden}><pre>{escape(line)}</pre>"
        "<button type=button>Copy</button></div>"
    )
    when = clock(source.seconds(doubt.first))
    if doubt.first != doubt.last:
        when += f" to {clock(source.seconds(doubt.last))}"
    return (
        f'<article class="card" id="d{number}" tabindex="-1" data-frame="{doubt.frame}"'
        f' data-view="{left},{top}">'
        f"<h2><b>{number}</b> {escape(doubt.kind)}</h2>"
        f'<p class="when soft">{when}, frame {doubt.frame}</p>'
        f"<div class=pair>{figures}</div>{mend}</article>\n"
    )


def _timeline(
    evidence: Evidence, shown: Sequence[ShownDoubt], source: ReviewVideo
) -> Iterator[str]:
    """The timeline as SVG: rows of curves and bars, from the first frame to the last."""
    count = len(source.pts)
    area, flicker = evidence.area, flicker_of(evidence)
    name = f"{evidence.area_name}, {min(area):.1f} to {max(area):.1f} %"
    flicker_name = f"Flicker, at most {flicker.max():.2f} %"
    rows = [
        (name, _curve(area, "area")),
        (flicker_name, _curve(flicker, "flicker", _FLICKER_PCT)),
    ]
    if evidence.faces is not None:
        rows.append((f"Faces, at most {max(evidence.faces)}", _curve(evidence.faces, "faces")))
    if evidence.hidden:
        rows.append(("Hidden", _bars(evidence, count)))
    height = len(rows) * (_ROW + _GAP) + _FOOT
    yield f'<svg viewBox="0 0 {_COLUMNS} {height}" role="img" aria-label="Timeline">'
    for cut in evidence.cuts:
        line, title = f"M{_x(cut, count)} 0V{height - _FOOT}", f"<title>cut, frame {cut}</title>"
        yield f'<path class="cut" d="{line}">{title}</path>'
    for number, (name, drawn) in enumerate(rows):
        y = number * (_ROW + _GAP) + _GAP
        yield f'<g transform="translate(0 {y})">{drawn}<text y="8">{escape(name)}</text></g>'
    for number, each in enumerate(shown, 1):
        x, label = _x(each.doubt.frame, count), escape(each.doubt.kind)
        yield (
            f'<a href="#d{number}"><circle cx="{x}" cy="{height - _FOOT // 2}" r="6"/>'
            f"<title>{number}: {label}</title></a>"
        )
    yield "</svg>"


def _x(frame: int, count: int) -> str:
    return f"{_COLUMNS * (frame + 0.5) / count:.1f}"


def _curve(values: Any, name: str, scale: float = 1e-6) -> str:
    """A row with a curve, filled to the ground; of several frames in a column, their range.

    The row's height is the largest value, and at least ``scale``.
    """
    curve = np.asarray(values, np.float64)
    top = max(float(curve.max(initial=0.0)), scale)
    parts = np.array_split(curve, min(len(curve), _COLUMNS))
    step = _COLUMNS / len(parts)
    ranges = [[_ROW * (1 - edge / top) for edge in (part.max(), part.min())] for part in parts]
    upper, lower = (
        [f"{step * (at + 0.5):.1f} {edges[side]:.1f}" for at, edges in enumerate(ranges)]
        for side in (0, 1)
    )
    first, last = f"0 {ranges[0][0]:.1f}", f"{_COLUMNS} {ranges[-1][0]:.1f}"
    ground = f"M0 {_ROW}L{'L'.join([first, *upper, last])}L{_COLUMNS} {_ROW}Z"
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
    high = (_ROW - 12) / max(1, len(lanes))
    return "".join(
        f'<rect class="hidden" x="{_COLUMNS * first / count:.1f}" y="{12 + lane * high:.1f}"'
        f' width="{max(1.0, _COLUMNS * (last - first + 1) / count):.1f}"'
        f' height="{max(1.0, high - 1):.1f}"><title>{title}</title></rect>'
        for lane, first, last, title in bars
    )
