"""The page of a review: one HTML file that loads nothing."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template

from bgsoft.pages import read_page
from bgsoft.review.doubts import mending_line
from bgsoft.review.evidence import Evidence
from bgsoft.review.pictures import ShownDoubt
from bgsoft.review.timeline import TimelineMark, draw_timeline
from bgsoft.review.videos import ReviewVideo
from bgsoft.settings.regions import RegionAction

_TEMPLATE = Path(__file__).with_name("page.html")
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
    marks = [
        TimelineMark(each.doubt.frame, f"#d{number}", f"{number}: {each.doubt.kind}")
        for number, each in enumerate(shown, 1)
    ]
    span = clock(source.seconds(count - 1))
    if source.seconds(0):
        span = f"{clock(source.seconds(0))} to {span}"
    summary = f"{_number(len(shown), 'doubtful place')} shown"
    if left_out:
        summary += f", {left_out} of less weight left out"
    return template.substitute(
        title=escape(f"{result.path.name}: review"),
        source=escape(source.path.name),
        result=escape(result.path.name),
        facts=f"{_number(count, 'frame')}, {span}. {escape(origin)}",
        summary=summary,
        timeline=draw_timeline(evidence, count, marks),
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
