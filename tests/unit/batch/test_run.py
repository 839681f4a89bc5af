"""The loop over a batch's files, with an executor whose workers only exist in the test."""

from __future__ import annotations

import shutil
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bgsoft.batch.decide import Act, agree, decide
from bgsoft.batch.find import Found
from bgsoft.batch.job import BatchJob, JobFactory
from bgsoft.batch.run import Batch, BatchView, Summary, clear_skipped
from bgsoft.batch.state import BatchState, FileState
from bgsoft.chunks.folder import WorkFolder
from bgsoft.chunks.renders import Renders
from bgsoft.chunks.tasks import RenderWhole
from bgsoft.errors import (
    BackendUnavailableError,
    DecodeError,
    DiskFullError,
    OutputError,
    RenderCancelledError,
    StallError,
)
from bgsoft.jobs.driver import Driver
from bgsoft.jobs.task import Finished, Started, Task, Update
from bgsoft.outputs import note_receipt
from bgsoft.part_names import hidden_path
from bgsoft.report import RenderReport

Render = Callable[[RenderWhole], object]


class FakeExecutor:
    """Finishes one task a poll, with what ``render`` returns or raises."""

    def __init__(self, workers: int, render: Render) -> None:
        self._workers = workers
        self._render = render
        self._tasks: deque[tuple[int, Any]] = deque()
        self.submitted: list[str] = []
        self.closed = False

    @property
    def idle(self) -> int:
        return self._workers - len(self._tasks)

    def submit(self, task: Task) -> int:
        self._tasks.append((len(self.submitted), task))
        assert isinstance(task, RenderWhole)
        self.submitted.append(task.config.input.stem)
        return len(self.submitted) - 1

    def poll(self, timeout: float) -> list[Update]:
        if not self._tasks:
            return []
        task_id, job = self._tasks.popleft()
        try:
            end = Finished(task_id, self._render(job))
        except Exception as exc:
            end = Finished(task_id, error=exc)
        return [Started(task_id, "fake"), end]

    def kill(self, task_id: int, reason: str) -> None:
        raise AssertionError(reason)

    def close(self) -> None:
        self.closed = True


def done(job: RenderWhole) -> RenderReport:
    output, receipt = job.config.output, job.config.receipt
    assert receipt is not None
    if output.exists() and not job.config.overwrite:
        raise OutputError(f"{output} exists")
    part = output.with_name(".part")
    part.write_bytes(b"made from " + job.config.input.read_bytes())
    note_receipt(receipt, output, part)
    part.replace(output)
    return RenderReport(
        bgsoft_version="0",
        input=str(job.config.input),
        output=str(job.config.output),
        frames_encoded=10,
        settings={},
        peak_rss_bytes=1,
    )


class Run:
    def __init__(
        self,
        top: Path,
        files: str = "abcdef",
        workers: int = 2,
        executor: type[FakeExecutor] = FakeExecutor,
    ) -> None:
        self._top, self.folder = top, top / "out"
        self.folder.mkdir(exist_ok=True)
        for name in files:
            (top / f"{name}.mp4").write_text(name)
        self._files, self._workers, self.make_executor = files, workers, executor
        self.stop = threading.Event()
        self.view = BatchView()

    def jobs(self, files: str) -> list[BatchJob]:
        job_factory = JobFactory(self.folder, name="{stem}{suffix}", preset="soft", flags={})
        return job_factory.plan(Found(self._top / f"{name}.mp4", Path()) for name in files)

    def __call__(
        self,
        render: Render,
        *,
        resume: bool = False,
        more: Callable[[], list[BatchJob]] | None = None,
    ) -> Summary:
        self.executor = self.make_executor(self._workers, render)
        with BatchState(self.folder) as state:
            decisions = [decide(job, state, resume=resume) for job in self.jobs(self._files)]
            agree(decisions, state, resume=resume)
            state.begin(decision.entry for decision in decisions)
            summary = Batch(
                [decision.job for decision in decisions if decision.act is Act.RENDER],
                Renders(Driver(self.executor)),
                state,
                view=self.view,
                stop=self.stop,
                more=more,
                poll_seconds=0.0,
            ).run()
        assert self.executor.closed
        return summary


def test_a_file_that_fails_ends_nothing(tmp_path: Path) -> None:
    def render(job: RenderWhole) -> RenderReport:
        if job.config.input.stem in "bd":
            raise DecodeError("broken")
        return done(job)

    summary = Run(tmp_path)(render)
    assert [entry.reason for entry in summary.failed] == ["broken", "broken"]
    assert [str(entry.output) for entry in summary.failed] == ["b.mp4", "d.mp4"]
    assert (summary.rendered, summary.frames, summary.left) == (4, 40, 0)


def test_a_full_disk_stops_new_files_and_keeps_them_for_later(tmp_path: Path) -> None:
    def render(job: RenderWhole) -> RenderReport:
        if job.config.input.stem == "b":
            raise DiskFullError("disk full")
        return done(job)

    run = Run(tmp_path)
    summary = run(render)
    assert run.executor.submitted == ["a", "b", "c"]  # c was running
    assert str(summary.full) == "disk full"
    assert (summary.rendered, summary.left, summary.failed) == (2, 4, [])
    assert run(done, resume=True).rendered == 4
    assert run.executor.submitted == ["b", "d", "e", "f"]


def test_a_stage_that_stands_still_is_tried_again_and_then_reported(tmp_path: Path) -> None:
    def render(job: RenderWhole) -> RenderReport:
        raise StallError("no frame", stage="encode")

    run = Run(tmp_path, "a")
    (entry,) = run(render).failed
    assert run.executor.submitted == ["a", "a"]
    assert (entry.attempts, entry.reason) == (2, "encode: no frame")


@pytest.mark.parametrize("published", [False, True])
def test_what_runs_when_it_is_stopped_is_left_for_later(tmp_path: Path, published: bool) -> None:
    """A file whose output is complete counts as done, even if its report came too late."""

    class Deaf(FakeExecutor):
        def poll(self, timeout: float) -> list[Update]:
            return [] if len(self.submitted) > 1 and self._hang() else super().poll(timeout)

        def _hang(self) -> bool:
            try:
                self._render(self._tasks[0][1])
            except AssertionError:
                return True
            return False

    run = Run(tmp_path, workers=1, executor=Deaf)

    def render(job: RenderWhole) -> RenderReport:
        if job.config.input.stem == "a":
            return done(job)
        run.stop.set()
        if published:
            done(job)
        raise AssertionError("never asked")

    summary = run(render)
    states = [entry.state for entry in summary.entries]
    second = FileState.DONE if published else FileState.WAITING
    assert states == [FileState.DONE, second, *[FileState.WAITING] * 4]
    assert summary.stopped
    run.stop.clear()
    assert run(done, resume=True).left == 0


def test_a_file_that_is_cancelled_though_nobody_asked_has_failed(tmp_path: Path) -> None:
    def render(job: RenderWhole) -> RenderReport:
        raise RenderCancelledError("interrupted")

    summary = Run(tmp_path, "a")(render)
    assert [entry.reason for entry in summary.failed] == ["interrupted"]
    assert not summary.stopped


def test_the_view_ends_also_where_the_workers_are_lost(tmp_path: Path) -> None:
    class View(BatchView):
        left = -1

        def end(self, summary: Summary) -> None:
            self.left = summary.left

    class Lost(FakeExecutor):
        def poll(self, timeout: float) -> list[Update]:
            raise BackendUnavailableError("no node is left")

    run = Run(tmp_path, "ab", executor=Lost)
    run.view = view = View()
    summary = run(done)
    assert str(summary.lost) == "no node is left"
    assert (view.left, summary.left) == (2, 2)
    assert run.make_executor is Lost
    run.make_executor = FakeExecutor
    assert run(done, resume=True).rendered == 2


@pytest.mark.parametrize(("workers", "rendered"), [(1, "aba"), (3, "abab")])
def test_a_watched_file_is_rendered_once_at_a_time(
    tmp_path: Path, workers: int, rendered: str
) -> None:
    """A change while it waits causes one render; a change during the render, another one."""

    class Slow(FakeExecutor):
        polls = 0

        def submit(self, task: Any) -> int:
            assert task.config.output not in [job.config.output for _, job in self._tasks]
            return super().submit(task)

        def poll(self, timeout: float) -> list[Update]:
            self.polls += 1
            return super().poll(timeout) if self.polls % 4 == 0 else []

    run = Run(tmp_path, "", workers, executor=Slow)
    looks, idle = ["ab", "ab"], [0]

    def more() -> list[BatchJob]:
        names = looks.pop(0) if looks else ""
        for name in names:
            (tmp_path / f"{name}.mp4").write_bytes(bytes(len(looks)))
        idle[0] = idle[0] + 1 if run.executor.idle == workers else 0
        if idle[0] > 1:
            run.stop.set()
        return run.jobs(names)

    assert run(done, more=more).rendered == 2  # the first results of changed files are not kept
    assert "".join(run.executor.submitted) == rendered


def test_an_input_that_changes_while_it_is_rendered_is_rendered_again(tmp_path: Path) -> None:
    def render(job: RenderWhole) -> RenderReport:
        report = done(job)
        if job.config.input.stem == "a":
            job.config.input.write_text("longer than before")
        return report

    run = Run(tmp_path, "ab")
    summary = run(render)
    assert (summary.rendered, summary.frames) == (1, 10)
    assert not (run.folder / "a.mp4").exists(), "the next run may be told to skip what exists"
    assert all(not entry.files for entry in summary.failed)
    assert [entry.reason for entry in summary.failed] == [
        "cannot keep the result: its input changed during the render; render it again with --resume"
    ]
    assert run(done, resume=True).failed == []
    assert run.executor.submitted == ["a"]
    assert (run.folder / "a.mp4").read_text() == "made from longer than before"


def test_an_input_that_is_gone_once_it_is_rendered_is_done(tmp_path: Path) -> None:
    def render(job: RenderWhole) -> RenderReport:
        report = done(job)
        job.config.input.unlink()
        return report

    summary = Run(tmp_path, "a")(render)
    assert [entry.state for entry in summary.entries] == [FileState.DONE]


@pytest.mark.parametrize("resume", [False, True])
def test_what_somebody_puts_there_meanwhile_is_not_replaced(tmp_path: Path, resume: bool) -> None:
    run = Run(tmp_path, "ab", workers=1)
    if resume:
        run(done)
        for name in "ab":
            (tmp_path / f"{name}.mp4").write_text(f"another {name}")

    def render(job: RenderWhole) -> RenderReport:
        (run.folder / "b.mp4").write_text("somebody else's")
        return done(job)

    (entry,) = run(render, resume=resume).failed
    assert entry.reason is not None
    assert "b.mp4" in entry.reason
    assert "--overwrite" in entry.reason
    assert run.executor.submitted == ["a"]
    assert (run.folder / "b.mp4").read_text() == "somebody else's"


def test_the_files_of_a_watched_folder_are_rendered_over_their_own_outputs(tmp_path: Path) -> None:
    run = Run(tmp_path, "", workers=1)
    contents = ["half", "the whole of it"]

    def more() -> list[BatchJob]:
        if not contents:
            run.stop.set()
            return []
        (tmp_path / "a.mp4").write_text(contents.pop(0))
        return run.jobs("a")

    summary = run(done, more=more)
    assert (summary.rendered, summary.failed) == (2, [])
    assert (run.folder / "a.mp4").read_text() == "made from the whole of it"


def test_what_killed_renders_left_of_skipped_outputs_is_removed(tmp_path: Path) -> None:
    run = Run(tmp_path, "ab")
    run(done)
    (run.folder / "b.mp4").unlink()
    for name in "abc":
        folder = WorkFolder(run.folder / f"{name}.mp4")
        folder.prepare(run.jobs("a")[0].config, [])
        stale = hidden_path(run.folder / f"{name}.mp4")
        stale.with_name(f"{stale.name}.mp4").touch()
    with BatchState(run.folder) as state:
        decisions = [decide(job, state, resume=True) for job in run.jobs("ab")]
        (line,) = clear_skipped(decisions, run.folder)
    assert [decision.act for decision in decisions] == [Act.SKIP, Act.RENDER]
    assert ".c.mp4.chunks" in line
    hidden = sorted(path.name for path in run.folder.iterdir() if path.name.startswith("."))
    left = [name for name in hidden if not name.startswith(".bgsoft")]
    assert [name[:3] for name in left] == [".b.", ".b.", ".c.", ".c."]


def deleting(run: Run, stem: str) -> Callable[[RenderWhole], RenderReport]:
    """A render that deletes the batch's folder before it writes the output of one input."""

    def render(job: RenderWhole) -> RenderReport:
        if job.config.input.stem == stem:
            shutil.rmtree(run.folder)
            run.folder.mkdir()
        return done(job)

    return render


def test_no_output_is_lost_with_a_folder_that_had_none(tmp_path: Path) -> None:
    run = Run(tmp_path, workers=1)
    said: list[str] = []
    run.view.notice = said.append  # type: ignore[method-assign]
    assert run(deleting(run, "a")).left == 0
    assert said == []


def test_a_folder_that_is_deleted_meanwhile_is_known_again(tmp_path: Path) -> None:
    run = Run(tmp_path, workers=1)
    said: list[str] = []
    run.view.notice = said.append  # type: ignore[method-assign]
    summary = run(deleting(run, "c"))
    assert (summary.rendered, summary.left) == (6, 2)
    assert said == [
        f"{run.folder} was deleted during the batch with 2 outputs; render again with --resume"
    ]
    assert run(done, resume=True).left == 0
    assert run.executor.submitted == ["a", "b"]
