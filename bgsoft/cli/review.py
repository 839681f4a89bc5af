"""``bgsoft review``: a page of the doubtful frames of a render."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bgsoft.cli import flags
from bgsoft.records import dataclass

_EPILOG = flags.examples(
    "review in.mp4 out.mp4 sheet.html --report report.json",
    "review in.mp4 out.mp4 sheet.html --report report.json --face-data faces.jsonl -y",
)


@dataclass(frozen=True, kw_only=True)
class ReviewFlags:
    """Its arguments and flags."""

    source: Annotated[
        Path, typer.Argument(metavar="IN", help="The video that was rendered.", readable=False)
    ]
    result: Annotated[
        Path, typer.Argument(metavar="OUT", help="The result of the render.", readable=False)
    ]
    page: Annotated[Path, typer.Argument(metavar="SHEET.html", help="Page to write.")]
    report: Annotated[
        Path | None,
        flags.option(
            "The render's report (--report). Without it, both videos are decoded whole.",
            metavar="FILE.json",
        ),
    ] = None
    face_data: Annotated[
        Path | None, flags.option("The render's face data (--face-data).", metavar="FILE")
    ] = None
    start: Annotated[
        str | None,
        flags.option(
            "Where the render of a part began (its --start). A report says it by itself.",
            metavar="TIME",
        ),
    ] = None
    overwrite: Annotated[
        bool, flags.option("Replace SHEET.html if it exists.", "--overwrite", "-y")
    ] = False
    quiet: flags.Quiet = False
    verbose: flags.Verbose = False


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    flags.add_command(app, review, ReviewFlags, epilog=_EPILOG)


def review(own: ReviewFlags, _settings: dict[str, Any]) -> int:
    """Show doubtful frames of a render on one page, source beside result.

    Each comes with the lines for --regions that would mend it. The page loads nothing from
    elsewhere. Keys: j and k go to the next and previous one.
    """
    from bgsoft.cli.console import Console
    from bgsoft.cli.guard import go_on_in_child
    from bgsoft.errors import ConfigError
    from bgsoft.infer.providers import require_runtime
    from bgsoft.outputs import check_target
    from bgsoft.settings.setting import parse_seconds

    if own.page.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(
            f"cannot write the page {own.page}: it is HTML; name a .html file", path=own.page
        )
    start_seconds = None if own.start is None else parse_seconds(own.start, "--start")
    if start_seconds is not None and start_seconds < 0:
        raise ConfigError(f"--start must be 0 or more seconds, not {own.start}")
    given = [own.source, own.result, own.report, own.face_data]
    others = [path for path in given if path is not None]
    check_target(own.page, "page", overwrite=own.overwrite, others=others)
    go_on_in_child(f"review {own.result}")
    require_runtime()
    from bgsoft.review.review import write_review

    made = write_review(
        own.source,
        own.result,
        own.page,
        report=own.report,
        face_data=own.face_data,
        start_seconds=start_seconds,
    )
    if not own.quiet:
        plural = "" if made.shown == 1 else "s"
        left = f", {made.left_out} left out" if made.left_out else ""
        Console().err(
            f"{own.page}: {made.shown} doubtful place{plural}{left}, {made.page_bytes / 1e6:.1f} MB"
        )
    return 0
