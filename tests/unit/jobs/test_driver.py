"""Tasks that belong together, second tries, and time limits."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bgsoft.errors import DecodeError, StallError, WorkerDiedError
from bgsoft.jobs.driver import Driver
from bgsoft.jobs.pool import Pool
from bgsoft.jobs.task import Finished, Message, Retrying, Started, Task, Update
from tests.marks import slow
from tests.unit.jobs.tasks import Crawl, Die, Echo, Fail, Square, Wait

Make = Callable[..., Driver]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Driver] = []

    def driver(workers: int = 2, *, warm: bool = False, **options: float) -> Driver:
        pool = Pool(workers, threads=1)
        if warm:  # a process takes a while to start
            pool.submit(Echo(1))
            while not any(isinstance(update, Finished) for update in pool.poll(1.0)):
                pass
        made.append(Driver(pool, **options))  # type: ignore[arg-type]
        return made[-1]

    yield driver
    for each in made:
        each.close()


def collect(driver: Driver, tasks: int = 1) -> list[Update]:
    updates: list[Update] = []
    until = time.monotonic() + 60
    while sum(isinstance(update, Finished) for update in updates) < tasks:
        assert time.monotonic() < until, updates
        updates += driver.poll(1.0)
    return updates


def end(updates: list[Update], task_id: int) -> Finished:
    (found,) = (u for u in updates if isinstance(u, Finished) and u.task_id == task_id)
    return found


def outcome(driver: Driver, task: Task) -> Finished:
    task_id = driver.submit([task])
    return end(collect(driver), task_id)


def test_tasks_run_together_and_their_results_come_in_order(make: Make) -> None:
    driver = make()
    task_id = driver.submit([Square(i) for i in range(6)])
    updates = collect(driver)
    assert end(updates, task_id).result == [i**2 for i in range(6)]
    told = {(u.index, u.content) for u in updates if isinstance(u, Message)}
    assert told == {(i, f"squaring {i}") for i in range(6)}
    assert sum(isinstance(u, Started) for u in updates) == 1


def test_what_came_first_goes_first(make: Make) -> None:
    driver = make(1)
    first = driver.submit([Square(1), Square(2)])
    second = driver.submit([Echo(1)])
    ended = [u.task_id for u in collect(driver, 2) if isinstance(u, Finished)]
    assert ended == [first, second]


def test_when_one_task_fails_the_others_are_given_up(make: Make, tmp_path: Path) -> None:
    driver = make(2)
    mark = tmp_path / "cancelled"
    parts = [Wait(mark), Fail(DecodeError("broken", stage="decode")), *[Square(1)] * 3]
    failed, other = driver.submit(parts), driver.submit([Echo(1)])
    updates = collect(driver, 2)
    error = end(updates, failed).error
    assert isinstance(error, DecodeError)
    assert error.stage == "decode"
    assert end(updates, other).error is None
    assert not any(isinstance(u, Message) and "squaring" in str(u.content) for u in updates)
    driver.close()
    assert mark.exists()


@pytest.mark.parametrize("others", [[], [Square(2)]])
def test_a_task_whose_worker_dies_is_tried_again(
    make: Make, tmp_path: Path, others: list[Task]
) -> None:
    driver = make()
    task_id = driver.submit([*others, Die(marks=tmp_path)])
    updates = collect(driver)
    assert end(updates, task_id).result == [*[4 for _ in others], "lived"]
    (retry,) = (u for u in updates if isinstance(u, Retrying))
    assert "SIGKILL" in str(retry.error)
    assert retry.task_id == task_id


@pytest.mark.parametrize(("retries", "died"), [(0, 1), (1, 2), slow(3, 4)])
def test_a_task_that_kills_every_worker_is_given_up(
    make: Make, tmp_path: Path, retries: int, died: int
) -> None:
    driver = make(retries=retries)
    task_id = driver.submit([Die(signal.SIGSEGV, tmp_path, times=99)])
    error = end(collect(driver), task_id).error
    assert isinstance(error, WorkerDiedError)
    assert "SIGSEGV" in str(error)
    assert len(list(tmp_path.iterdir())) == died


@pytest.mark.parametrize(
    ("error", "tries"), [(DecodeError("x"), 1), (ValueError("x"), 1), (StallError("x"), 2)]
)
def test_only_what_may_go_well_the_next_time_is_tried_again(
    make: Make, error: Exception, tries: int
) -> None:
    driver = make()
    task_id = driver.submit([Fail(error)])
    updates = collect(driver)
    assert isinstance(end(updates, task_id).error, type(error))
    assert sum(isinstance(u, Retrying) for u in updates) == tries - 1


def test_a_task_is_ended_when_its_time_is_up(make: Make, tmp_path: Path) -> None:
    driver = make(1, timeout_seconds=1.5, warm=True)
    mark = tmp_path / "cancelled"
    late = driver.submit([Square(1), Wait(mark)])
    updates = collect(driver)
    assert str(end(updates, late).error) == "it was not finished after 1.5 s"
    assert not any(isinstance(u, Retrying) for u in updates)
    driver.close()
    assert mark.exists()


def test_a_task_with_nothing_new_is_ended(make: Make) -> None:
    driver = make(1, stall_seconds=2, retries=0, warm=True)
    error = outcome(driver, Crawl()).error
    assert isinstance(error, WorkerDiedError)
    assert str(error) == "nothing new for 2 s after 3 frames"


def test_nothing_is_begun_after_the_end(make: Make, tmp_path: Path) -> None:
    driver = make(1)
    marks = [tmp_path / name for name in ("first", "second")]
    driver.submit([Wait(mark) for mark in marks])
    until = time.monotonic() + 60
    while not any(isinstance(update, Started) for update in driver.poll(0.1)):
        assert time.monotonic() < until
    driver.close()
    assert driver.poll(0.0) == []
    driver.close()
    assert [mark.exists() for mark in marks] == [True, False]
    assert driver._executor.idle == 1
