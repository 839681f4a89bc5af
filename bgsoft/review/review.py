"""Creation of the page of a review from two videos."""

from __future__ import annotations

from pathlib import Path

from bgsoft.outputs import made_folders, write_whole
from bgsoft.records import dataclass
from bgsoft.review.doubts import MAX_SHOWN, find_doubts
from bgsoft.review.evidence import compute_evidence, read_face_data, read_report, read_start
from bgsoft.review.page import write_page
from bgsoft.review.pictures import picture_doubts
from bgsoft.review.videos import open_pair

_PICTURES_BYTES = 3_500_000
"""Bytes of all pictures; as text they take a third more, and the page stays below 5 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewResult:
    """The page that was written."""

    shown: int
    """Doubts on it."""
    left_out: int
    """Doubts of less weight, or whose frames do not decode."""
    page_bytes: int


def write_review(
    source: Path,
    result: Path,
    page: Path,
    *,
    report: Path | None = None,
    face_data: Path | None = None,
    start_seconds: float | None = None,
) -> ReviewResult:
    """Write a page of the doubtful frames of a render.

    Args:
        source: The video that was rendered.
        result: The rendered video.
        page: The HTML file; replaced if it exists.
        report: The render's report. None: both videos are decoded whole.
        face_data: The render's face data.
        start_seconds: Where the render of a part began. None: the report says it; or, without a
            report, the whole video was rendered.

    Raises:
        ConfigError: The videos, report and face data are not of one render.
        MediaError: A video cannot be read.
        OutputError: The page cannot be written.
        InferenceError, ModelError: The face detector failed.
    """
    if report is not None and start_seconds is None:
        start_seconds = read_start(report)
    one, other = open_pair(source, result, start_seconds)
    if report is None:
        evidence = compute_evidence(one, other)
        origin = "No report was given: areas, cuts and faces were computed from both videos."
    else:
        evidence = read_report(report, one, other)
        origin = f"Figures from {report.name}, whose hashes are those of both videos."
    if face_data is not None:
        evidence.seen = read_face_data(face_data, len(one.pts))
    doubts = find_doubts(evidence, one)
    shown = picture_doubts(doubts[:MAX_SHOWN], one, other, _PICTURES_BYTES)
    left_out = len(doubts) - len(shown)
    text = write_page(evidence, shown, left_out, one, other, origin)
    with made_folders([page], lambda _text: None):
        write_whole(page, "page", text)
    return ReviewResult(shown=len(shown), left_out=left_out, page_bytes=len(text.encode()))
