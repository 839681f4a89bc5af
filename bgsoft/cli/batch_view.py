"""Output of a batch: live bars, a line a file, or JSON objects; at the end, its failures."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bgsoft.batch.decide import Act, Decision
from bgsoft.batch.job import BatchJob
from bgsoft.batch.run import BatchView, Summary
from bgsoft.batch.state import FileState
from bgsoft.cli.console import Console, on_one_line
from bgsoft.cli.progress import (
    ProgressKind,
    clock,
    event_text,
    live_bars,
    progress_parts,
    summary_line,
)
from bgsoft.exitcodes import exit_code, one_line
from bgsoft.report import Event, Progress, RenderReport

if TYPE_CHECKING:
    from rich.progress import TaskID

_NAME_CELLS = 40
_BAR_CELLS = 16
_OF_ONE_FILE = ("warning", "repair", "fault")
"""Kinds of events that are printed for each file."""


def make_batch_view(
    kind: ProgressKind, console: Console, *, quiet: bool, verbose: bool
) -> BatchView:
    """Return the view for a kind that :func:`bgsoft.cli.progress.read_progress` returned."""
    if kind is ProgressKind.JSON:
        return JsonBatchView(console)
    if quiet or kind is ProgressKind.NONE:
        return QuietBatchView(console)
    make = LiveBatchView if kind is ProgressKind.RICH else PlainBatchView
    return make(console, verbose=verbose)


def counted(number: int, noun: str) -> str:
    """Format a number with a noun, e.g. ``1 file`` or ``3 files``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def show_plan(decisions: Sequence[Decision], kind: ProgressKind, console: Console) -> None:
    """Print, on stdout, what would be done with each file."""
    for decision in decisions:
        config = decision.job.config
        if kind is ProgressKind.JSON:
            names = {"input": config.input, "output": config.output}
            console.json("plan", **names, action=str(decision.act), reason=decision.reason)
        else:
            text = f"{decision.act:<6}  {config.input} -> {config.output}: {decision.reason}"
            console.out(on_one_line(text))
    counts = Counter(decision.act for decision in decisions)
    if kind not in (ProgressKind.JSON, ProgressKind.NONE):
        parts = [f"{counts[Act.RENDER]} to render", f"{counts[Act.SKIP]} to skip"]
        parts += [f"{counts[Act.REFUSE]} in the way"] if counts[Act.REFUSE] else []
        console.err(f"{counted(len(decisions), 'file')}: {', '.join(parts)}")


def _named(path: Path, reason: str) -> str:
    """Add the name of the file to a reason that lacks it."""
    return reason if path.name in reason else f"{path}: {reason}"


class QuietBatchView(BatchView):
    """Prints failures, at the end."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def end(self, summary: Summary) -> None:
        for entry in summary.failed:
            self._say(f"failed: {_named(entry.input, entry.reason or '')}")

    def _say(self, text: str) -> None:
        self._console.err(text)


class PlainBatchView(QuietBatchView):
    """Prints a line a file on stderr, and a summary."""

    def __init__(self, console: Console, *, verbose: bool = False) -> None:
        super().__init__(console)
        self._verbose = verbose
        self._total = 0
        self._finished = 0
        self._printed: defaultdict[BatchJob | None, set[str]] = defaultdict(set)
        """Events of each running file, and of all files, which are printed once."""

    def begin(self, total: int, finished: int) -> None:
        self._total, self._finished = total, finished
        if finished:
            verb = "is" if finished == 1 else "are"
            self._say(f"{finished} of {counted(total, 'file')} {verb} done already")

    def more(self, count: int) -> None:
        self._total += count

    def notice(self, text: str) -> None:
        self._say(text)

    def event(self, job: BatchJob, event: Event) -> None:
        of_one = self._verbose or event.kind in _OF_ONE_FILE
        text, printed = event_text(event), self._printed[job if of_one else None]
        if (of_one or event.kind == "fallback") and text not in printed:
            printed.add(text)
            self._say(f"{job.config.input}: {text}" if of_one else text)

    def retrying(self, job: BatchJob, error: BaseException) -> None:
        self._say(f"{job.config.input}: tried again: {one_line(error)}")

    def done(self, job: BatchJob, report: RenderReport) -> None:
        self._say(f"{self._next(job)} {summary_line(report)}")

    def failed(self, job: BatchJob, error: BaseException, traceback: str | None) -> None:
        self._say(f"{self._next(job)} failed: {_named(job.config.input, one_line(error))}")
        if self._verbose and traceback is not None:
            for line in traceback.rstrip().splitlines():
                self._say(line)

    def end(self, summary: Summary) -> None:
        parts = [f"{counted(summary.rendered, 'file')} rendered"]
        if summary.frames:
            fps = summary.frames / summary.seconds
            parts.append(
                f"{counted(summary.frames, 'frame')} in {summary.seconds:.1f} s: {fps:.1f} frames/s"
            )
        self._say(", ".join(parts))
        super().end(summary)

    def _next(self, job: BatchJob) -> str:
        self._printed.pop(job, None)
        self._finished += 1
        return f"[{self._finished:{len(str(self._total))}}/{self._total}]"


class LiveBatchView(PlainBatchView):
    """Draws a bar for each running file, and one for all, below the lines."""

    def __init__(self, console: Console, *, verbose: bool = False) -> None:
        super().__init__(console, verbose=verbose)
        self._live = contextlib.ExitStack()
        self._failed = 0
        self._running: dict[BatchJob, TaskID] = {}

    def begin(self, total: int, finished: int) -> None:
        super().begin(total, finished)
        self.bars = self._live.enter_context(live_bars(self._console, _BAR_CELLS))
        self._all = self.bars.add_task("all files", text="")
        self._began = time.monotonic()
        self.tick()

    def started(self, job: BatchJob, worker: str) -> None:
        name = on_one_line(str(job.config.input))[-_NAME_CELLS:]
        self._running[job] = self.bars.add_task(name, total=None, text="begins")

    def progress(self, job: BatchJob, progress: Progress) -> None:
        text = "  ".join(progress_parts(dataclasses.replace(progress, load={})))
        task = self._running[job]
        self.bars.update(task, total=progress.total, completed=progress.frames, text=text)

    def done(self, job: BatchJob, report: RenderReport) -> None:
        self._remove(job)
        super().done(job, report)

    def failed(self, job: BatchJob, error: BaseException, traceback: str | None) -> None:
        self._remove(job)
        self._failed += 1
        super().failed(job, error, traceback)

    def tick(self) -> None:
        left = self._total - self._finished - len(self._running)
        text = (
            f"{self._finished} of {counted(self._total, 'file')}, {len(self._running)} running,"
            f" {left} waiting, {self._failed} failed, {clock(time.monotonic() - self._began)}"
        )
        self.bars.update(self._all, total=self._total, completed=self._finished, text=text)

    def end(self, summary: Summary) -> None:
        self._live.close()
        super().end(summary)

    def _remove(self, job: BatchJob) -> None:
        if job in self._running:
            self.bars.remove_task(self._running.pop(job))


class JsonBatchView(BatchView):
    """Prints one JSON object a line on stdout.

    ``type`` is begin, more, notice, start, progress, event, retry, done, failed or end.
    """

    def __init__(self, console: Console) -> None:
        self._write = console.json

    def begin(self, total: int, finished: int) -> None:
        self._write("begin", files=total, settled=finished)

    def more(self, count: int) -> None:
        self._write("more", files=count)

    def notice(self, text: str) -> None:
        self._write("notice", message=text)

    def started(self, job: BatchJob, worker: str) -> None:
        self._write_of(job, "start", worker=worker)

    def progress(self, job: BatchJob, progress: Progress) -> None:
        self._write_of(job, "progress", **dataclasses.asdict(progress))

    def event(self, job: BatchJob, event: Event) -> None:
        self._write_of(job, "event", **dataclasses.asdict(event))

    def retrying(self, job: BatchJob, error: BaseException) -> None:
        self._write_of(job, "retry", message=one_line(error))

    def done(self, job: BatchJob, report: RenderReport) -> None:
        self._write_of(job, "done", report=report.to_dict())

    def failed(self, job: BatchJob, error: BaseException, traceback: str | None) -> None:
        self._write_of(job, "failed", exit_code=int(exit_code(error)), message=one_line(error))

    def end(self, summary: Summary) -> None:
        counts = {str(state): summary.count(state) for state in FileState}
        self._write("end", seconds=summary.seconds, frames=summary.frames, counts=counts)

    def _write_of(self, job: BatchJob, kind: str, /, **values: Any) -> None:
        self._write(kind, input=job.config.input, output=job.config.output, **values)
