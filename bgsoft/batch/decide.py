"""Decisions about the files of a batch: render, skip or refuse.

First runs, ``--resume``, ``--watch`` and ``--dry-run`` decide in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from enum import StrEnum
from pathlib import Path

from bgsoft.batch.job import BatchJob
from bgsoft.batch.state import BatchState, Entry, FileState, OutputStatus, classify_output
from bgsoft.errors import ConfigError, OutputError
from bgsoft.records import dataclass

READ_FILES = {
    "input": "its input",
    "effect.background": "the background",
    "regions.file": "the regions file",
    "face.file": "the faces file",
    "segment.matte_in": "the matte",
    "segment.model": "the model",
    "detector.file": "the detector",
}
"""Keys of :meth:`BatchJob.made_from` that are files, with their names in messages."""


class Act(StrEnum):
    """Action for a file."""

    RENDER = "render"
    SKIP = "skip"
    REFUSE = "refuse"
    """A file that the batch did not make is at the place of an output."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Action for a file, with its reason."""

    job: BatchJob
    act: Act
    reason: str
    entry: Entry = field(repr=False)
    """Entry to save in the state, unless the file is refused."""
    replaces: bool = False
    """The output may be replaced, because the batch itself made it."""


def decide(job: BatchJob, state: BatchState, *, resume: bool) -> Decision:
    """Decide about a file from the state and the outputs of earlier runs.

    Without ``resume``, outputs of earlier runs count as files of somebody else.
    """
    config = job.config
    known = state.entries.get(config.output.relative_to(state.folder))
    made_from = job.made_from(state.folder)
    other = known is not None and _is_of_other_input(known, job, made_from)
    own = known if resume and not other else None
    files = own.files if own is not None else {}
    statuses = {path: classify_output(path, files.get(_name(path, state))) for path in job.files}
    changes = ["new"] if own is None else _changes(own, job, made_from, statuses, state)
    if own is not None and not changes:
        return Decision(job, Act.SKIP, "done already", _kept(own, job, FileState.DONE))
    foreign = [path for path, found in statuses.items() if found is OutputStatus.FOREIGN]
    if foreign and config.skip_existing and statuses[config.output] is not OutputStatus.MISSING:
        entry = _kept(known or _entry(job, state), job, FileState.SKIPPED)
        return Decision(job, Act.SKIP, "exists", entry)
    entry = _entry(job, state)
    if known is not None and not other:
        entry.files = dict(known.files)
    if foreign and not config.overwrite:
        reason = f"{foreign[0]} " + _describe_foreign(
            known, _name(foreign[0], state), resume=resume, other=other
        )
        return Decision(job, Act.REFUSE, reason, entry)
    replaces = any(
        found in (OutputStatus.UNCHANGED, OutputStatus.TRUNCATED) for found in statuses.values()
    )
    return Decision(job, Act.RENDER, ", ".join(changes), entry, replaces)


def agree(decisions: Sequence[Decision], state: BatchState, *, resume: bool) -> None:
    """Check that a batch may begin.

    Raises:
        ConfigError: An earlier batch is not finished, and no flag states how to continue.
        OutputError: A file that the batch did not make is at the place of an output.
    """
    current = state.current
    unfinished = sum(not entry.state.has_output for entry in current)
    configs = [decision.job.config for decision in decisions]
    skips = any(config.skip_existing for config in configs)
    if unfinished and not (resume or skips or any(config.overwrite for config in configs)):
        raise ConfigError(
            f"cannot begin a batch in {state.folder}: an earlier one is not finished"
            f" ({unfinished} of {len(current)} files left); continue it with --resume, or start"
            " over with --overwrite or --skip-existing"
        )
    refused = [decision for decision in decisions if decision.act is Act.REFUSE]
    if refused:
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        ways = [] if resume or not current else ["--resume"]
        ways += [] if skips else ["--skip-existing"]
        way = f"{', '.join(ways)} or --overwrite" if ways else "--overwrite"
        raise OutputError(f"cannot begin the batch: {refused[0].reason}{more}; use {way}")


def _changes(
    own: Entry,
    job: BatchJob,
    made_from: dict[str, str],
    statuses: dict[Path, OutputStatus],
    state: BatchState,
) -> list[str]:
    """Return reasons to render an output again; empty if it is up to date."""
    if not own.made_from or not own.state.has_output:
        return ["failed before" if own.state is FileState.FAILED else "not done yet"]
    before = own.made_from
    keys = [key for key in {**before, **made_from} if before.get(key) != made_from.get(key)]
    changes = [f"{READ_FILES.get(key, key)} has changed" for key in keys]
    for path, found in statuses.items():
        # A trace is not part of the result: it is missing only if there was one.
        if path == job.config.trace and _name(path, state) not in own.files:
            continue
        if found is OutputStatus.MISSING:
            changes.append(f"{path} is missing")
        elif found is not OutputStatus.UNCHANGED:
            changes.append(
                f"{path} {'is cut off' if found is OutputStatus.TRUNCATED else 'was changed'}"
            )
    return changes


def _is_of_other_input(known: Entry, job: BatchJob, made_from: dict[str, str]) -> bool:
    """Return True if the output was made from another video, not only from a moved one."""
    moved = known.input != job.config.input.absolute()
    return moved and bool(known.files) and known.made_from.get("input") != made_from["input"]


def _describe_foreign(known: Entry | None, name: str, *, resume: bool, other: bool) -> str:
    """Return the message about a file at the place of an output, without its path."""
    if not resume or known is None:
        return "exists already"
    if other:
        return f"was made from another video, {known.input}"
    if name in known.files:
        return "was changed or replaced by somebody else since the batch made it"
    return "exists, and was not made by this batch"


def _entry(job: BatchJob, state: BatchState) -> Entry:
    return Entry(
        output=job.config.output.relative_to(state.folder),
        input=job.config.input.absolute(),
        number=job.number,
    )


def _kept(entry: Entry, job: BatchJob, kind: FileState) -> Entry:
    """Return an entry whose output is not rendered."""
    made_from = entry.made_from if entry.state.has_output else {}
    return replace(
        entry,
        input=entry.input
        if made_from and kind is FileState.SKIPPED
        else job.config.input.absolute(),
        number=job.number,
        state=kind,
        made_from=made_from,
        reason=None,
    )


def _name(path: Path, state: BatchState) -> str:
    return str(path.relative_to(state.folder))
