"""Worker processes: results, deaths, and the end of their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from bgsoft.errors import BgsoftError, DecodeError, OutputError, StallError, WorkerDiedError
from bgsoft.jobs.pool import Pool
from bgsoft.jobs.ray import RayExecutor
from bgsoft.jobs.task import Executor, Finished, Message, Started, Task, Update
from tests.marks import slow
from tests.processes import ROOT, is_running, wait_until
from tests.unit.jobs.tasks import (
    Awkward,
    AwkwardError,
    Die,
    Echo,
    Exit,
    Fail,
    Here,
    LeaveBehind,
    Say,
    Stick,
    Wait,
    note_gpu,
    progress,
)

SECONDS = 60
"""Far more than anything here takes."""


@pytest.fixture(params=["pool", pytest.param("ray", marks=[pytest.mark.slow, pytest.mark.ray])])
def pool(request: pytest.FixtureRequest) -> Executor:
    """One worker of each kind of executor."""
    return request.getfixturevalue(f"one_worker_{request.param}")  # type: ignore[no-any-return]


@pytest.fixture
def one_worker_pool() -> Iterator[Pool]:
    with Pool(1, threads=1) as pool:
        yield pool


@pytest.fixture
def one_worker_ray(ray_address: str, tmp_path: Path) -> Iterator[RayExecutor]:
    with RayExecutor(ray_address, folder=tmp_path, max_tasks=1) as executor:
        yield executor


def collect(executor: Executor, *tasks: Task, running: int = 0) -> list[Update]:
    """Run tasks, and take all updates until they have finished, and some that run already."""
    updates: list[Update] = []
    waiting = list(tasks)
    until = time.monotonic() + SECONDS
    while len(ends(updates)) < len(tasks) + running:
        assert time.monotonic() < until, updates
        while waiting and executor.idle:
            executor.submit(waiting.pop(0))
        updates += executor.poll(1.0)
    return updates


def begin(executor: Executor, task: Task) -> int:
    """Run a task as soon as there is a worker; its id."""
    until = time.monotonic() + SECONDS
    while not executor.idle:
        assert time.monotonic() < until
        executor.poll(1.0)
    return executor.submit(task)


def ends(updates: list[Update]) -> dict[int, Finished]:
    return {update.task_id: update for update in updates if isinstance(update, Finished)}


def first_message(executor: Executor) -> Message:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        for update in executor.poll(1.0):
            if isinstance(update, Message):
                return update
    raise AssertionError("nothing was told")


def wait_until_gone(pid: int) -> None:
    wait_until(lambda: not is_running(pid))


def test_one_process_runs_task_after_task_and_results_come_whole(pool: Executor) -> None:
    value = {"frames": list(range(100_000)), "name": "ü\udcff"}
    updates = collect(pool, *[Echo(value)] * 3)
    found = ends(updates)
    results = [end.result for end in found.values()]
    assert all(result["value"] == value for result in results)  # type: ignore[index]
    assert len({result["pid"] for result in results}) == 1  # type: ignore[index]
    assert results[0]["pid"] != os.getpid()  # type: ignore[index]
    assert [u.task_id for u in updates if isinstance(u, Started)] == list(found)


def test_nothing_of_a_task_stays(one_worker_pool: Pool) -> None:
    updates = collect(one_worker_pool, LeaveBehind(), LeaveBehind(), LeaveBehind())
    assert [end.result for end in ends(updates).values()] == [0, 0, 0]


def test_idle_counts_what_would_start_at_once() -> None:
    with Pool(2, threads=1) as pool:
        assert pool.idle == 2
        for left in (1, 0):
            pool.submit(Echo(1))
            assert pool.idle == left
        collect(pool, running=2)
        assert pool.idle == 2


def test_messages_come_in_order_and_progress_is_throttled(pool: Executor) -> None:
    said = ("a", *(progress(i) for i in range(500)), "b")
    told = [u.content for u in collect(pool, Say(said)) if isinstance(u, Message)]
    assert told[0] == "a"
    assert told[-1] == "b"
    assert 1 <= len(told) - 2 < 100


def test_our_errors_come_back_whole(pool: Executor) -> None:
    error = OutputError("no room", stage="encode", path=Path("x.mp4"), pts=7)
    error.add_note("the faces are in y")
    (found,) = ends(collect(pool, Fail(error))).values()
    assert type(found.error) is OutputError
    assert str(found.error) == "no room"
    assert (found.error.stage, found.error.path, found.error.pts) == ("encode", Path("x.mp4"), 7)
    assert found.error.__notes__ == ["the faces are in y"]
    assert found.traceback is not None
    assert "tasks.py" in found.traceback


def test_an_exception_that_cannot_be_sent_comes_as_text(pool: Executor) -> None:
    (found,) = ends(collect(pool, Awkward())).values()
    assert not isinstance(found.error, AwkwardError | WorkerDiedError | BgsoftError)
    assert "AwkwardError: 5 odd" in str(found.error)


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        (Die(signal.SIGKILL), "was killed (SIGKILL; the system may have run out of memory)"),
        (Die(signal.SIGSEGV), "crashed (SIGSEGV)"),
        (Die(signal.SIGTERM), "was ended by SIGTERM"),
        (Die(signal.SIGRTMIN + 1), f"was ended by signal {signal.SIGRTMIN + 1}"),
        (Exit(3), "ended with exit code 3"),
    ],
)
def test_how_a_worker_died_is_said(one_worker_pool: Pool, task: Die | Exit, reason: str) -> None:
    (found,) = ends(collect(one_worker_pool, task)).values()
    assert str(found.error) == f"its worker process {reason}"


@pytest.mark.parametrize("task", [Die(signal.SIGKILL), Die(signal.SIGSEGV), Exit(0)])
def test_a_worker_that_dies_is_replaced(pool: Executor, task: Die | Exit) -> None:
    died, lives = ends(collect(pool, task, Echo(1))).values()
    assert isinstance(died.error, WorkerDiedError)
    assert lives.error is None


def test_a_worker_with_a_stuck_thread_is_replaced(pool: Executor) -> None:
    first, stalls, last = ends(collect(pool, Echo(1), Stick(), Echo(2))).values()
    assert isinstance(stalls.error, StallError)
    assert first.result["pid"] != last.result["pid"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("stubborn", "stuck"), [(False, False), slow(True, False), slow(False, True)], ids=str
)
def test_kill_ends_a_task_and_lets_it_clean_up(
    pool: Executor, tmp_path: Path, stubborn: bool, stuck: bool
) -> None:
    mark = tmp_path / "cleaned up"
    task_id = begin(pool, Wait(mark, stubborn, stuck))
    pid = first_message(pool).content
    pool.kill(task_id, "took too long")
    killed, other = ends(collect(pool, Echo(2), running=1)).values()
    assert str(killed.error) == "took too long"
    assert isinstance(killed.error, WorkerDiedError)
    assert other.error is None
    assert mark.exists() is not stubborn
    assert isinstance(pid, int)
    wait_until_gone(pid)


def test_close_cancels_and_leaves_nobody(tmp_path: Path) -> None:
    mark = tmp_path / "cleaned up"
    pool = Pool(2, threads=1)
    pool.submit(Wait(mark))
    pool.submit(Echo(1))
    pid = first_message(pool).content
    pool.close()
    pool.close()
    assert mark.exists()
    assert isinstance(pid, int)
    assert not is_running(pid)


PARENT = """
import sys, time
from bgsoft.jobs.pool import Pool
from bgsoft.jobs.task import Message
from tests.unit.jobs.tasks import Wait
pool = Pool(2, threads=1)
pool.submit(Wait())
pool.submit(Wait(stubborn=True))
while True:
    for update in pool.poll(1.0):
        if isinstance(update, Message):
            print(update.content, flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, slow(signal.SIGINT)])
def test_no_worker_outlives_its_parent(number: signal.Signals) -> None:
    """Also if Ctrl-C reaches all of them, and the parent is killed."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        cwd=ROOT,
    )
    assert parent.stdout is not None
    pids = [int(parent.stdout.readline()) for _ in range(2)]
    os.killpg(parent.pid, number) if number is signal.SIGINT else parent.kill()
    parent.wait(SECONDS)
    parent.stdout.close()
    for pid in pids:
        wait_until_gone(pid)


def test_cores_and_gpus_are_dealt_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    seen = []
    until = time.monotonic() + SECONDS
    with Pool(3, threads=5, gpus=[2, 0]) as pool:
        for _ in range(3):
            pool.submit(Here())
        while len(seen) < 3:
            assert time.monotonic() < until
            seen += [u.content for u in pool.poll(1.0) if isinstance(u, Message)]
    assert sorted(seen) == [(0, "4", 5), (2, "6", 5), (2, "6", 5)]  # type: ignore[type-var]


def test_workers_make_themselves_ready_before_there_is_a_task(tmp_path: Path) -> None:
    still_running = []

    @contextmanager
    def variables() -> Iterator[dict[str, str]]:
        yield {"CUDA_VISIBLE_DEVICES": "4,5"}
        still_running.extend(path.name for path in tmp_path.iterdir() if is_running(int(path.name)))

    until = time.monotonic() + SECONDS
    ahead = partial(note_gpu, tmp_path)
    with Pool(2, threads=1, gpus=[1, 0], environment=variables(), ahead=ahead) as pool:
        pool.start()
        while len(noted := list(tmp_path.iterdir())) < 2:
            assert time.monotonic() < until
            time.sleep(0.01)
        pool.threads = 7
        begun = [pool.submit(Here()), pool.submit(Here())]
        told = collect(pool, running=0)
        while len(told) < 4:
            told += pool.poll(1.0)
    pids = {int(update.worker.split()[1]) for update in told if isinstance(update, Started)}
    assert {int(path.name) for path in noted} == pids
    assert sorted(path.read_text() for path in noted) == ["0 4", "1 5"]
    assert not still_running
    assert {u.task_id for u in told if isinstance(u, Message) and u.content[2] == 7} == {*begun}  # type: ignore[index]


def test_the_error_of_a_task_that_cannot_be_loaded(pool: Executor) -> None:
    """For example a task of a script's main module, which no other process has."""
    import types

    module = types.ModuleType("only_here")
    sys.modules["only_here"] = module
    task = type("Local", (), {"__module__": "only_here"})
    module.Local = task  # type: ignore[attr-defined]
    try:
        (found,) = ends(collect(pool, task())).values()
    finally:
        del sys.modules["only_here"]
    assert isinstance(found.error, ModuleNotFoundError)


def test_decode_errors_do_not_cost_a_worker(pool: Executor) -> None:
    first, _, last = ends(collect(pool, Echo(1), Fail(DecodeError("bad")), Echo(2))).values()
    assert first.result["pid"] == last.result["pid"]  # type: ignore[index]
