"""The files that a render leaves behind if its process dies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bgsoft.media.naming import appears_as, is_pattern
from bgsoft.outputs import remove_empty, remove_leftovers
from bgsoft.pipes import is_output_pipe
from bgsoft.settings.config import RenderConfig


def written_paths(config: RenderConfig) -> list[Path]:
    """The paths that a render writes; of a sequence, its folder."""
    videos = map(appears_as, config.videos)
    return [*videos, *filter(None, (config.face_data, config.trace, config.report))]


def remove_unfinished(config: RenderConfig, missing: Sequence[Path]) -> None:
    """Remove the hidden files of a render that has died, and those folders that are empty.

    Faces that were found get the name of a partial file, as after any failure.
    """
    for path in config.videos:
        if is_pattern(path):
            from bgsoft.media.sequence import remove_leftover_sequences

            remove_leftover_sequences(path)
        elif not is_output_pipe(path):
            remove_leftovers(path)
    if config.face_data is not None:
        remove_leftovers(config.face_data, keeps=True)
    remove_empty(missing)
