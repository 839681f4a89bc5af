"""The run of a batch: renders its files and saves their state."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from bgsoft import __version__
from bgsoft.batch.decide import READ_FILES, Act, Decision, decide
from bgsoft.batch.job import BatchJob
from bgsoft.batch.state import STATE_NAME, BatchState, Entry, FileState, describe
from bgsoft.chunks.folder import WorkFolder, leftovers
from bgsoft.chunks.renders import Renders
from bgsoft.errors import (
    BackendUnavailableError,
    DiskFullError,
    OpenError,
    OutputError,
    RenderCancelledError,
    VerificationError,
)
from bgsoft.exitcodes import one_line
from bgsoft.jobs.task import Finished, Message, Retrying, Started
from bgsoft.media.endpoints import EndpointKind, source_for
from bgsoft.outputs import made_folders, real_path, remove_leftovers, stamp, write_whole
from bgsoft.records import dataclass
from bgsoft.report import Event, Progress, RenderReport
from bgsoft.untrusted import parse_json

_POLL_SECONDS = 0.2
POLL_SECONDS = 1.0
"""Interval at which a watched folder is asked for new files."""


class BatchView:
    """A display of a batch, called from one thread; this one shows nothing."""

    def begin(self, total: int, finished: int) -> None:
        """Begin with ``total`` files, of which ``finished`` need no work."""

    def more(self, count: int) -> None:
        """``count`` further files were found."""

    def notice(self, text: str) -> None:
        """A notice about workers or their machines."""

    def started(self, job: BatchJob, worker: str) -> None:
        """A worker has begun a file."""

    def progress(self, job: BatchJob, progress: Progress) -> None:
        """Frames were encoded."""

    def event(self, job: BatchJob, event: Event) -> None:
        """A render reported something."""

    def retrying(self, job: BatchJob, error: BaseException) -> None:
        """A file is tried again."""

    def done(self, job: BatchJob, report: RenderReport) -> None:
        """A file is finished."""

    def failed(self, job: BatchJob, error: BaseException, traceback: str | None) -> None:
        """A file could not be rendered."""

    def tick(self) -> None:
        """Called several times a second."""

    def end(self, summary: Summary) -> None:
        """Nothing more will happen."""


@dataclass(slots=True)
class Summary:
    """Outcome of a batch."""

    seconds: float
    entries: list[Entry]
    """All files, in order."""
    rendered: int = 0
    """Files rendered by this run."""
    frames: int = 0
    """Frames in these files."""
    full: DiskFullError | None = None
    """Error after which no more files were begun."""
    lost: BackendUnavailableError | None = None
    """Error after which no machine was left to render on."""
    stopped: bool = False
    """True: the batch was asked to stop."""

    def count(self, state: FileState) -> int:
        """Return the number of files in a state."""
        return sum(entry.state is state for entry in self.entries)

    @property
    def left(self) -> int:
        """Number of files that ``--resume`` would render."""
        return self.count(FileState.WAITING) + self.count(FileState.RUNNING)

    @property
    def failed(self) -> list[Entry]:
        """Files that could not be rendered."""
        return [entry for entry in self.entries if entry.state is FileState.FAILED]

    def write_json(self, path: Path) -> None:
        """Write the batch's report; raise OutputError if that fails."""
        plain = {
            "bgsoft_version": __version__,
            "seconds": self.seconds,
            "frames": self.frames,
            "fps": self.frames / self.seconds if self.seconds else 0.0,
            "counts": {str(state): self.count(state) for state in FileState},
            "files": [_plain(entry) for entry in self.entries],
        }
        write_whole(path, "report", json.dumps(plain, indent=2, default=str) + "\n")


def is_report(path: Path) -> bool:
    """Return True if a file was written by :meth:`Summary.write_json`."""
    if not path.is_file():  # a pipe would block
        return False
    with suppress(OSError, ValueError):
        found = parse_json(path.read_bytes())
        return isinstance(found, dict) and {"bgsoft_version", "counts", "files"} <= found.keys()
    return False


def _plain(entry: Entry) -> dict[str, Any]:
    names = ("output", "input", "number", "state", "attempts", "reason", "started_at", "ended_at")
    values = {name: getattr(entry, name) for name in names}
    return {**values, "report": json.loads(entry.report) if entry.report else None}


class Batch:
    """A batch that renders files until none is left.

    Args:
        jobs: Files, in the order of rendering.
        renders: Renders the files; closed at the end.
        state: The state, with an entry for every job.
        view: Display of the batch.
        stop: Set it to stop the batch.
        more: Return further jobs; called regularly until the batch stops. None: no more come.
        poll_seconds: Shortest interval between two calls of ``more``.
    """

    def __init__(
        self,
        jobs: Sequence[BatchJob],
        renders: Renders,
        state: BatchState,
        *,
        view: BatchView,
        stop: threading.Event,
        more: Callable[[], Sequence[BatchJob]] | None = None,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._waiting = deque(jobs)
        self._renders = renders
        self._state = state
        self._view = view
        self._stop = stop
        self._more, self._poll_seconds = more, poll_seconds
        self._polled_at = 0.0
        self._rewritten: list[BatchJob] = []
        """Files that were written again while they were rendered."""
        self._running: dict[int, tuple[BatchJob, Entry]] = {}
        """Jobs by their ids in ``renders``."""
        self._failed: list[tuple[BatchJob, BaseException]] = []
        self._folders = ExitStack()
        self._started = time.perf_counter()
        self._summary = Summary(0.0, [])

    def run(self) -> Summary:
        """Render all files; one that fails does not end the batch."""
        summary = self._summary
        entries = self._state.current
        self._view.begin(len(entries), sum(entry.state.has_output for entry in entries))
        with self._folders:
            try:
                while not self._stop.is_set():
                    self._poll()
                    self._begin()
                    if not self._running and (summary.full or not (self._waiting or self._more)):
                        break
                    for update in self._renders.poll(_POLL_SECONDS):
                        self._take(update)
                    self._view.tick()
            except BackendUnavailableError as exc:  # no machine is left to render on
                summary.lost = exc
            finally:
                self._renders.close()
                self._give_up()
                summary.stopped = self._stop.is_set()
                summary.seconds = time.perf_counter() - self._started
                summary.entries = self._state.current
                self._view.end(summary)
        return summary

    def _poll(self) -> None:
        """Add the files that have come into a watched folder."""
        if self._more is None or time.monotonic() - self._polled_at < self._poll_seconds:
            return
        self._polled_at = time.monotonic()
        found, self._rewritten = [*self._rewritten, *self._more()], []
        running = {job.config.output for job, _ in self._running.values()}
        waiting = {job.config.output for job in self._waiting}
        for job in found:
            if job.config.output in running:
                self._rewritten.append(job)
                continue
            decision = decide(job, self._state, resume=True)
            self._save(decision.entry)
            if decision.act is not Act.SKIP and job.config.output not in waiting:
                self._waiting.append(job)
                waiting.add(job.config.output)
                self._view.more(1)

    def _begin(self) -> None:
        while self._waiting and self._renders.idle and self._summary.full is None:
            # Decide again: the file may have waited for hours.
            decision = decide(self._waiting.popleft(), self._state, resume=True)
            job, entry = decision.job, decision.entry
            try:
                if decision.act is Act.REFUSE:
                    raise OutputError(f"{decision.reason}; use --overwrite to replace it")
                for path in job.config.inputs:
                    if source_for(path).kind is EndpointKind.PIPE:  # reading it may block for ever
                        raise OpenError(
                            f"cannot read {path}: a batch cannot read pipes; use bgsoft render"
                        )
                self._folders.enter_context(made_folders([job.config.output], lambda _text: None))
            except (OpenError, OutputError) as exc:
                self._fail(job, entry, exc, None)
            else:
                self._submit(job, entry, replaces=decision.replaces)

    def _submit(self, job: BatchJob, entry: Entry, *, replaces: bool) -> None:
        entry.state, entry.made_from = FileState.RUNNING, job.made_from(self._state.folder)
        entry.attempts, entry.started_at = 1, time.time()
        self._save(entry)
        self._state.drop_receipt(entry)
        config = replace(job.config, receipt=self._state.receipt(entry))
        if replaces:
            config = replace(config, overwrite=True, skip_existing=False)
        self._running[self._renders.submit(config)] = replace(job, config=config), entry

    def _take(self, update: Started | Message | Retrying | Finished) -> None:
        job, entry = self._running[update.task_id]
        if isinstance(update, Started):
            self._view.started(job, update.worker)
        elif isinstance(update, Message):
            if isinstance(update.content, Progress):
                self._view.progress(job, update.content)
            elif isinstance(update.content, Event):
                self._view.event(job, update.content)
        elif isinstance(update, Retrying):
            entry.attempts += 1
            self._save(entry)
            self._view.retrying(job, update.error)
        else:
            del self._running[update.task_id]
            entry.ended_at = time.time()
            self._end(job, entry, update)

    def _end(self, job: BatchJob, entry: Entry, end: Finished) -> None:
        if end.error is None:
            assert isinstance(end.result, RenderReport)
            self._finish(job, entry, end.result)
        elif isinstance(end.error, DiskFullError):
            self._summary.full = end.error
            self._put_back(job, entry)
        elif isinstance(end.error, RenderCancelledError) and self._stop.is_set():
            self._put_back(job, entry)
        else:
            self._fail(job, entry, end.error, end.traceback)

    def _finish(self, job: BatchJob, entry: Entry, report: RenderReport) -> None:
        WorkFolder(
            job.config.output
        ).remove_unused()  # chunks of a video that was then rendered whole
        if report.skipped:
            entry.state, entry.made_from = FileState.SKIPPED, {}
        else:
            changed = self._changed(job, entry)
            if changed is not None:
                self._remove_files(job, entry)
                self._fail(job, entry, changed, None)
                return
            entry.state = FileState.DONE
            entry.files |= {
                str(path.relative_to(self._state.folder)): describe(path)
                for path in job.files
                if stamp(path)
            }
        entry.report = json.dumps(report.to_dict(), default=str)
        self._summary.rendered += not report.skipped
        self._summary.frames += report.frames_encoded
        self._save(entry)
        self._state.drop_receipt(entry)
        self._view.done(job, report)

    def _remove_files(self, job: BatchJob, entry: Entry) -> None:
        """Remove the files of a render whose result is not kept: nobody may take them for it."""
        self._state.drop_receipt(entry)
        for path in job.files:
            try:
                real_path(path).unlink(missing_ok=True)
            except OSError as exc:
                self._view.notice(f"cannot remove {path}: {exc.strerror}")
            else:
                entry.files.pop(str(path.relative_to(self._state.folder)), None)

    def _changed(self, job: BatchJob, entry: Entry) -> VerificationError | None:
        """Return an error if a file that was read has changed since the render began."""
        now = job.made_from(self._state.folder)
        keys = [key for key, value in now.items() if value and value != entry.made_from[key]]
        if not keys:
            return None
        again = "" if self._more else "; render it again with --resume"
        names = " and ".join(READ_FILES[key] for key in keys)
        return VerificationError(
            f"cannot keep the result: {names} changed during the render{again}"
        )

    def _fail(
        self, job: BatchJob, entry: Entry, error: BaseException, traceback: str | None
    ) -> None:
        self._state.recover(entry)
        _clean_up(job, error)
        self._failed.append((job, error))
        entry.state, entry.reason, entry.made_from = FileState.FAILED, one_line(error), {}
        self._save(entry)
        self._view.failed(job, error, traceback)

    def _put_back(self, job: BatchJob, entry: Entry) -> None:
        """Let a later run render a file again, unless its output is complete."""
        self._state.recover(entry)
        _clean_up(job)
        self._save(entry)

    def _give_up(self) -> None:
        """Leave unfinished files to a later run, after all workers have ended."""
        for job, entry in self._running.values():
            self._put_back(job, entry)
        self._running.clear()
        for job, error in self._failed:  # a worker may have written until now
            _clean_up(job, error)

    def _save(self, entry: Entry) -> None:
        try:
            deleted = self._state.restore()
            if deleted is not None:
                self._view.notice(deleted)
            self._state.put(entry)
        except DiskFullError as exc:
            self._summary.full = exc


def _clean_up(job: BatchJob, error: BaseException | None = None) -> None:
    """Remove a worker's temporary files; with an error, also chunks that cannot be used again."""
    for path in job.config.videos:
        remove_leftovers(path)
    if error is not None:
        WorkFolder(job.config.output).keep_or_remove(error)


def kept_files_text(decisions: Sequence[Decision], folder: Path) -> str | None:
    """Return a notice about files that earlier settings made and the new ones do not replace."""
    kept = [
        name
        for each in decisions
        if each.act is Act.RENDER
        for name in each.entry.files
        if folder / name not in each.job.files and (folder / name).exists()
    ]
    more = f" and {len(kept) - 1} more" if len(kept) > 1 else ""
    return f"files made with earlier settings are kept: {kept[0]}{more}" if kept else None


def clear_skipped(decisions: Sequence[Decision], folder: Path) -> list[str]:
    """Remove temporary files of killed renders for outputs that are skipped.

    Returns:
        Notices about chunks of other stopped renders in the folders of the outputs.
    """
    skipped = [each.job.config for each in decisions if each.act is Act.SKIP]
    videos = [path for config in skipped for path in config.videos]
    stale = {parent for parent in {path.parent for path in videos} if any(parent.glob(".*.part*"))}
    for path in videos:
        if path.parent in stale:  # each call reads the folder
            remove_leftovers(path)
    for config in skipped:
        WorkFolder(config.output).remove_unused()
    outputs = [each.job.config.output for each in decisions]
    return leftovers(map(WorkFolder, (folder / STATE_NAME, *outputs)))
