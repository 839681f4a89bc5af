"""Each fault in each stage: the render succeeds, or fails cleanly."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from bgsoft.chunks.folder import WorkFolder
from bgsoft.chunks.run import render_config
from bgsoft.chunks.tasks import RenderWhole
from bgsoft.errors import (
    BgsoftError,
    DiskFullError,
    RenderCancelledError,
    StallError,
    WorkerDiedError,
)
from bgsoft.exitcodes import ExitCode, exit_code, one_line
from bgsoft.jobs.driver import Driver
from bgsoft.jobs.pool import Pool
from bgsoft.jobs.task import Finished, Task, TaskContext
from bgsoft.jobs.worker import STAGE_THREADS, TaskError
from bgsoft.outputs import remove_leftovers
from bgsoft.report import STAGE_NAMES, RenderReport
from bgsoft.settings.config import RenderConfig
from tests.faults import AT_THE_END, FAULTS, STAGES, WORKER_FAULTS, Plant, PlantedError, planted
from tests.hostile.judge import frames
from tests.marks import slow
from tests.synthetic import VideoSpec, regular_times, write_video
from tests.unit.chunks.short_chunks import REFRESH_INTERVAL, Here, _short_chunks, settings

__all__ = ["_short_chunks"]

BEFORE = b"what was there"
FEW, MANY = 6, 3 * REFRESH_INTERVAL
STALL_SECONDS = 1.0


def cells(faults: Iterable[str], fast: Iterable[tuple[str, str]]) -> list[Any]:
    """All stages by some faults; those that are not named as fast are slow."""
    return [cell if cell in fast else slow(*cell) for cell in itertools.product(STAGES, faults)]


FAST = [(stage, "exception") for stage in STAGES]
FAST += [(stage, "disk full") for stage in ("encode", *AT_THE_END)]
FAST += [("segment", "out of memory"), ("mux", "cancelled"), ("publish", "cancelled")]
FAST += [("composite", "hang"), ("report", "hang"), ("encode", "clock")]


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    folder, made = tmp_path_factory.mktemp("clips"), {}
    for count in (FEW, MANY):
        spec = VideoSpec(width=64, height=48, times=regular_times(count), options={"g": "8"})
        made[count] = write_video(folder / f"{count}.mp4", spec)
    return made


@pytest.fixture
def config(clips: dict[int, Path], tmp_path: Path) -> RenderConfig:
    """Settings of a render with all outputs, over an existing file."""
    (tmp_path / "out.mkv").write_bytes(BEFORE)
    given = {"face": "guard", "matte": "fast", "effect": "dim"}
    more = {"report": tmp_path / "report.json", "overwrite": True, "codec": "ffv1"}
    cpu = dict.fromkeys(("decode", "infer", "composite", "encode"), "cpu")
    return settings(clips[FEW], tmp_path / "out.mkv", **given, **more, **cpu)


def test_every_stage_has_a_row() -> None:
    assert set(STAGES) >= set(STAGE_NAMES)


def impatient(config: RenderConfig, fault: str) -> RenderConfig:
    """The same settings, which detect a hang soon."""
    seconds = STALL_SECONDS if fault == "hang" else 300.0
    return replace(config, backends=replace(config.backends, stall_seconds=seconds))


def judge(
    plant: Plant, config: RenderConfig, stage: str, work: Callable[[], RenderReport]
) -> BaseException | None:
    """Run it, and check the files that are left; return the error."""
    folder, threads = config.output.parent, set(threading.enumerate())
    count = int(config.input.stem)
    error: BaseException | None = None
    started = time.monotonic()
    freed = threading.Timer(STALL_SECONDS, plant.back.set)
    if stage in AT_THE_END:
        freed.start()  # a disk that is slow is waited for
    try:
        report = work()
    except (BgsoftError, PlantedError, MemoryError, OSError) as exc:
        error = exc
    assert time.monotonic() - started < 20
    assert plant.reached.is_set()
    held = [thread.held for thread in threading.enumerate() if getattr(thread, "held", None)]
    plant.back.set()
    freed.cancel()
    while any(thread.name in STAGE_THREADS for thread in threading.enumerate()):
        time.sleep(0.01)
    for stack in set(held):  # by what hung
        stack.close()
    until = time.monotonic() + 5
    while left := set(threading.enumerate()) - threads:
        assert time.monotonic() < until, left
        time.sleep(0.01)
    if error is None:
        assert report.frames_encoded == count
        assert report.wall_s > 0
        assert sorted(path.name for path in folder.iterdir()) == ["out.mkv", "report.json"]
    else:
        assert exit_code(error) in set(ExitCode)
        assert "\n" not in one_line(error)
        assert [path.name for path in folder.iterdir()] == ["out.mkv"]
    if error is None or stage == "report":
        assert len(frames(config.output)) == count
    else:
        assert config.output.read_bytes() == BEFORE
    return error


def check(stage: str, fault: str, error: BaseException | None, *, tries: int = 1) -> None:
    """Assert that a render ended as the fault and its stage require."""
    if fault == "clock" or (tries > 1 and fault in ("out of memory", "hang")):
        assert error is None
    elif fault == "hang":
        assert error is None if stage in AT_THE_END else isinstance(error, StallError)
    elif fault == "cancelled":
        done = error is None and stage in AT_THE_END
        assert done or isinstance(error, RenderCancelledError)
    elif fault == "exception":
        assert isinstance(error, PlantedError)
    elif fault == "out of memory":
        assert isinstance(error, MemoryError)
    else:
        assert isinstance(error, OSError | DiskFullError)


@pytest.mark.parametrize(("stage", "fault"), cells(FAULTS, FAST))
def test_a_render_in_one_go(stage: str, fault: str, config: RenderConfig) -> None:
    config = impatient(config, fault)
    plant = Plant(fault, at=1 if stage in AT_THE_END else 2)
    with planted(STAGES[stage], plant):
        work = lambda: render_config(replace(config, chunks=1), cancel=plant.cancel)  # noqa: E731
        check(stage, fault, judge(plant, config, stage, work))
    if fault == "exception":  # nothing is broken for the next render
        assert render_config(config).frames_encoded == FEW


@pytest.mark.usefixtures("_short_chunks")
@pytest.mark.parametrize(
    ("stage", "fault"),
    cells(FAULTS, [("segment", "exception"), ("publish", "disk full")]),
)
def test_a_render_in_chunks(
    stage: str, fault: str, clips: dict[int, Path], config: RenderConfig
) -> None:
    """The fault occurs in the second chunk, or in the report."""
    config = replace(impatient(config, fault), input=clips[MANY], chunks=2)
    plant = Plant(fault, at=1 if stage == "report" else 2)
    tries = 1 if stage == "report" else 2  # what is joined is not tried again
    with planted(STAGES[stage], plant):
        check(
            stage, fault, judge(plant, config, stage, lambda: in_chunks(config, plant)), tries=tries
        )


def in_chunks(config: RenderConfig, plant: Plant) -> RenderReport:
    """Render in chunks, one after the other, in this process."""
    folder = WorkFolder(config.output)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bgsoft.jobs.pool.Pool", lambda *_, **__: Here(plant.cancel))
        try:
            return render_config(config, cancel=plant.cancel)
        finally:
            assert not folder.path.exists() or list(folder.path.glob("?????.json"))
            folder.remove()


@dataclass(frozen=True)
class Planted:
    """A task whose stage meets a fault, in the process that does it."""

    task: Task
    stage: str
    fault: str

    def run(self, context: TaskContext) -> object:
        plant = Plant(self.fault, at=1 if self.stage in AT_THE_END else 2)
        with planted(STAGES[self.stage], plant):
            return self.task.run(replace(context, cancel=plant.cancel))


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    made = Driver(Pool(1, threads=1), stall_seconds=20.0, retries=0)
    yield made
    made.close()


WORKER_CELLS = cells(WORKER_FAULTS, [("decode", "dies")])


@pytest.mark.parametrize(("stage", "fault"), WORKER_CELLS)
def test_a_worker_process(stage: str, fault: str, config: RenderConfig, driver: Driver) -> None:
    """Batches and divided renders run such processes."""
    folder = config.output.parent
    job = driver.submit([Planted(RenderWhole(impatient(config, fault)), stage, fault)])
    end, until = None, time.monotonic() + 120
    while end is None:
        assert time.monotonic() < until
        updates = driver.poll(0.5)
        end = next((u for u in updates if isinstance(u, Finished) and u.task_id == job), None)
    names = {path.name for path in folder.iterdir()}
    if end.error is None:
        assert fault == "clock" or (fault in ("cancelled", "hang") and stage in AT_THE_END)
        assert names == {"out.mkv", "report.json"}
        assert len(frames(config.output)) == FEW
        return
    assert isinstance(end.error, EXPECTED[fault]), end.error
    if isinstance(end.error, WorkerDiedError):  # the next render over that output removes the rest
        remove_leftovers(config.output)
        names = {path.name for path in folder.iterdir()}
    assert names == {"out.mkv"}
    assert stage == "report" or config.output.read_bytes() == BEFORE


EXPECTED: dict[str, tuple[type[BaseException], ...]] = {
    "clock": (),
    "exception": (PlantedError, TaskError),
    "out of memory": (MemoryError,),
    "disk full": (OSError, DiskFullError),
    "cancelled": (RenderCancelledError,),
    "hang": (StallError, WorkerDiedError),
    "dies": (WorkerDiedError,),
}
