"""``bgsoft batch``: many videos, unattended."""

from __future__ import annotations

from typing import Any

import typer

from bgsoft.cli import flags
from bgsoft.cli.batch_flags import BatchFlags
from bgsoft.settings.options import OPTIONS

_ELSEWHERE = ("gpu", "report", "format")
"""Settings of a render whose flags differ here; output names choose the container."""
_BRIEF = ("effect", "strength", "background", "quality", "overwrite", "skip_existing")
"""Settings of a render in the short help."""
_EPILOG = (
    "IN is a file, a folder (with its subfolders; the tree is kept) or a quoted pattern."
    " --matte-out, --face-data and --trace take names like --name: '{stem}-matte.mkv'."
    " Exit code 1: some files failed; they are listed at the end.\n\n"
    + flags.examples(
        "batch holiday/ soft/",
        "batch 'in/**/*.mov' out/ --name '{stem}-soft.mp4' --preset studio",
        "batch --from list.txt out/ --resume --report report.json",
        "batch incoming/ out/ --watch",
        "batch /shared/in /shared/out --ray 10.0.0.1:6379",
    )
)


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    names = [name for name in OPTIONS if name not in _ELSEWHERE]
    flags.add_command(app, batch, BatchFlags, epilog=_EPILOG, settings=names, brief_settings=_BRIEF)


def batch(own: BatchFlags, settings: dict[str, Any]) -> int:
    """Render many videos: files, folders, patterns and lists.

    A failed file does not end the batch. OUT_DIR keeps the state: --resume continues after a crash,
    a kill or a power cut.
    """
    from bgsoft.cli.guard import go_on_in_child

    go_on_in_child("continue the batch")
    from bgsoft.cli.batch_run import BatchRun
    from bgsoft.threads import use_batch_scheduling

    use_batch_scheduling()
    return BatchRun(own, settings).run()
