"""A Ray cluster of several nodes on this machine: placement of tasks, and lost nodes.

``test_pool.py`` runs the tests of local processes on Ray as well.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bgsoft.batch.state import STATE_NAME
from bgsoft.errors import BackendUnavailableError, OutputError
from bgsoft.jobs.ray import RayExecutor
from bgsoft.jobs.task import Message
from bgsoft.outputs import write_whole
from tests.face_clips import SAMPLE
from tests.outside import ffmpeg, shown_by_ffmpeg
from tests.processes import ROOT
from tests.unit.jobs.conftest import Nodes
from tests.unit.jobs.tasks import Here
from tests.unit.jobs.test_pool import SECONDS, begin, first_message, wait_until_gone

pytestmark = [pytest.mark.slow, pytest.mark.ray]


def poll_until(executor: RayExecutor, idle: int) -> None:
    until = time.monotonic() + SECONDS
    while executor.idle != idle:
        assert time.monotonic() < until
        assert executor.poll(1.0) == []


def parent_of(pid: object) -> int:
    """Id of a process's parent; 0 of one that has gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def process_ids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def test_a_node_that_joins_is_used(nodes: Nodes, tmp_path: Path) -> None:
    nodes.add(num_cpus=1)
    with RayExecutor(nodes.address, folder=tmp_path) as executor:
        poll_until(executor, idle=1)
        nodes.add(num_cpus=3)
        poll_until(executor, idle=4)


def test_shares_of_gpus_are_dealt_out(nodes: Nodes, tmp_path: Path) -> None:
    nodes.add(num_cpus=8)
    nodes.add(num_cpus=7, num_gpus=2)
    seen = []
    with RayExecutor(nodes.address, folder=tmp_path) as executor:
        poll_until(executor, idle=3)
        for _ in range(3):
            executor.submit(Here())
        until = time.monotonic() + SECONDS
        while len(seen) < 3:
            assert time.monotonic() < until
            seen += [u.content for u in executor.poll(1.0) if isinstance(u, Message)]
        assert executor.idle == 0
    assert sorted(seen) in ([(0, gpu, 2) for gpu in gpus] for gpus in ("001", "011"))
    with RayExecutor(nodes.address, folder=tmp_path, max_tasks=1, gpu_share=0.0) as executor:
        begin(executor, Here())
        assert first_message(executor).content == (None, "", 8)


@pytest.mark.parametrize(
    ("options", "idle", "threads"),
    [
        ({}, 3, 2),
        ({"max_tasks": 1}, 1, 4),
        ({"max_tasks": 2}, 2, 2),
        ({"max_tasks": 9}, 3, 2),
        ({"threads": 1}, 6, 1),
    ],
)
def test_cores_are_dealt_out(
    nodes: Nodes, tmp_path: Path, options: dict[str, Any], idle: int, threads: int
) -> None:
    nodes.add(num_cpus=4)
    nodes.add(num_cpus=2)
    with RayExecutor(nodes.address, folder=tmp_path, **options) as executor:
        poll_until(executor, idle=idle)
        executor.submit(Here())
        assert first_message(executor).content == (None, "", threads)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"threads": 3}, "Ray cluster: no node has 3 CPUs"),
        ({"gpu_share": 1.0}, "Ray cluster: no node has 1 CPUs and 1 of a GPU"),
    ],
)
def test_what_no_node_has(
    ray_address: str, tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(BackendUnavailableError, match=reason):
        RayExecutor(ray_address, folder=tmp_path, **options)
    assert list(tmp_path.iterdir()) == []


def test_a_node_that_sees_another_folder_is_named(ray_address: str, tmp_path: Path) -> None:
    said: list[str] = []

    def blind(marker: Path, what: str, token: str) -> None:
        write_whole(marker, what, "of another folder")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bgsoft.jobs.ray_cluster.write_whole", blind)
        with (
            pytest.raises(BackendUnavailableError, match="does not see the folder"),
            RayExecutor(ray_address, folder=tmp_path, notice=said.append) as executor,
        ):
            poll_until(executor, idle=1)
    (line,) = said
    assert line.startswith(f"the node {socket.gethostname()} (")
    problem = f"does not see the folder {tmp_path}, or may not write to it"
    assert line.endswith(f") {problem}; it is not used")
    assert list(tmp_path.iterdir()) == []


def test_a_node_with_another_input_or_version_is_named(
    ray_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    video = tmp_path / "a.mp4"
    video.write_bytes(b"video")

    def refused() -> str:
        with (
            pytest.raises(BackendUnavailableError) as caught,
            RayExecutor(ray_address, folder=tmp_path, inputs=[video]) as executor,
        ):
            video.write_bytes(b"longer video")
            poll_until(executor, idle=1)
        return str(caught.value)

    assert re.search(rf"cannot use any node .*: .* does not see {video}", refused())
    monkeypatch.setattr("bgsoft.jobs.ray_cluster.__version__", "99.0")
    assert re.search(r"has bgsoft .*, not 99\.0", refused())


def fails_to_import(*wanted: object) -> str | None:
    raise ModuleNotFoundError("No module named 'bgsoft'")


def test_a_node_that_cannot_start_a_worker_is_named(
    ray_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bgsoft.jobs.ray_cluster.node_problem", fails_to_import)
    problem = "cannot start a worker: ModuleNotFoundError: No module named 'bgsoft'"
    with (
        pytest.raises(BackendUnavailableError, match=problem),
        RayExecutor(ray_address, folder=tmp_path) as executor,
    ):
        poll_until(executor, idle=1)


def test_a_folder_that_cannot_be_written_to(ray_address: str, tmp_path: Path) -> None:
    with pytest.raises(OutputError):
        RayExecutor(ray_address, folder=tmp_path / "missing")


LOCAL_CLUSTER = """
import signal, sys
from pathlib import Path
from bgsoft.jobs.ray import RayExecutor
from bgsoft.jobs.ray_cluster import LOCAL
from bgsoft.jobs.task import Message
from tests.unit.jobs.tasks import Wait
from tests.unit.jobs.test_pool import begin
handler = signal.getsignal(signal.SIGTERM)
with RayExecutor(LOCAL, folder=Path(sys.argv[1]), max_tasks=1) as executor:
    assert signal.getsignal(signal.SIGTERM) is handler
    begin(executor, Wait(Path(sys.argv[2])))
    told = 0
    while not told:
        for update in executor.poll(1.0):
            if isinstance(update, Message):
                told = update.content
    print(told, flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("is_killed", [False, True])
def test_nothing_outlives_a_local_cluster(tmp_path: Path, is_killed: bool) -> None:
    pytest.importorskip("ray")
    folder, home = tmp_path / "out", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", LOCAL_CLUSTER, str(folder), str(tmp_path / "cancelled")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(home)},
        cwd=ROOT,
    ) as parent:
        assert parent.stdout is not None
        worker = parent.stdout.readline().strip()
        raylet = parent_of(worker)
        command = Path(f"/proc/{raylet}/cmdline").read_text()
        (scratch,) = set(re.findall(r"/tmp/bgsoft-\w+", command))
        if is_killed:
            parent.kill()
        printed = "".join(parent.communicate("\n", SECONDS))
    assert printed == ""
    for pid in (int(worker), raylet):
        wait_until_gone(pid)
    assert list(home.iterdir()) == []
    if is_killed:
        shutil.rmtree(scratch)
    else:
        assert (tmp_path / "cancelled").exists()
        assert list(folder.iterdir()) == []
        assert not Path(scratch).exists()


PROGRAM = """
import bgsoft.jobs.ray_cluster
from bgsoft.cli.main import run
bgsoft.jobs.ray_cluster.PATIENCE_SECONDS = 1.0
run()
"""
COMMAND = [sys.executable, "-c", PROGRAM, "batch", "--progress", "json", "--threads", "1"]


def start_batch(folder: Path, *flags: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=folder,
    )


def said_until_progress(batch: subprocess.Popen[str]) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = []
    assert batch.stdout is not None
    for line in batch.stdout:
        said.append(json.loads(line))
        if said[-1]["type"] == "progress":
            break
    return said


def kill_nodes_of(said: list[dict[str, Any]], most: int) -> None:
    """Kill some of the nodes that workers were said to be on, with all that runs there.

    Those that have said nothing yet, too: a worker outlives its node by a moment, and what it was
    writing then is left for the next run to remove.
    """
    raylets = {parent_of(int(each["worker"].split()[-1])) for each in said if "worker" in each}
    for raylet in sorted(raylets)[:most]:
        os.kill(raylet, signal.SIGSTOP)  # it starts nobody from here on
        children = [pid for pid in process_ids() if parent_of(pid) == raylet]
        assert children
        for pid in (*children, raylet):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def videos(tmp_path: Path) -> list[str]:
    """Names of the videos in the folder ``in``; ``out`` is for their outputs."""
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    names = [f"{number}.mp4" for number in range(4)]
    for name in names:
        shutil.copy(SAMPLE, tmp_path / "in" / name)
    return names


def test_a_batch_continues_when_a_node_is_killed(
    nodes: Nodes, tmp_path: Path, videos: list[str]
) -> None:
    for _ in range(2):
        nodes.add(num_cpus=2)
    (tmp_path / "in/broken.mp4").write_bytes(b"no video")
    out = tmp_path / "out"
    with start_batch(tmp_path, "--ray", nodes.address, "in", "out") as batch:
        said = said_until_progress(batch)
        kill_nodes_of(said, 1)
        rest, errors = batch.communicate(timeout=2 * SECONDS)
    said += map(json.loads, rest.splitlines())
    assert errors == "bgsoft: error: 1 of 5 files failed\n"
    assert batch.returncode == 1
    assert any(each["type"] == "retry" for each in said)
    assert sorted(Path(each["output"]).name for each in said if each["type"] == "done") == videos
    shown = shown_by_ffmpeg(SAMPLE)
    assert all(shown_by_ffmpeg(out / name) == shown for name in videos)
    assert {path.name for path in out.iterdir()} == {*videos, STATE_NAME}


def test_a_batch_whose_nodes_are_all_lost_is_resumed(
    nodes: Nodes, tmp_path: Path, videos: list[str]
) -> None:
    nodes.add(num_cpus=2)
    out = tmp_path / "out"
    with start_batch(tmp_path, "--ray", nodes.address, "in", "out") as batch:
        said = said_until_progress(batch)
        kill_nodes_of(said, 9)
        # communicate() would lose lines that have been read ahead.
        assert batch.stdout is not None
        assert batch.stderr is not None
        rest, errors = batch.stdout.read(), batch.stderr.read()
        batch.wait(SECONDS)
    said += map(json.loads, rest.splitlines())
    done = sum(each["type"] == "done" for each in said)
    assert batch.returncode == 4
    reason, left = errors.removeprefix("bgsoft: error: ").rstrip("\n").split("; ", 1)
    assert reason == "cannot start a task on the Ray cluster: no node has 1 CPUs"
    assert left == f"{4 - done} of 4 files are left; continue with --resume"
    assert {path.name for path in out.iterdir()} <= {*videos, STATE_NAME}
    nodes.add(num_cpus=2)
    with start_batch(tmp_path, "--ray", nodes.address, "in", "out", "--resume") as batch:
        rest, errors = batch.communicate(timeout=2 * SECONDS)
    assert batch.returncode == 0, errors
    assert sum(json.loads(line)["type"] == "done" for line in rest.splitlines()) == 4 - done
    shown = shown_by_ffmpeg(SAMPLE)
    assert all(shown_by_ffmpeg(out / name) == shown for name in videos)
    assert {path.name for path in out.iterdir()} == {*videos, STATE_NAME}


@pytest.mark.ray(mounts=True)
def test_chunks_are_rendered_on_nodes_that_see_the_files(nodes: Nodes, tmp_path: Path) -> None:
    video, out = tmp_path / "in.mp4", tmp_path / "out"
    ffmpeg("-i", SAMPLE, "-an", "-c:v", "libx264", "-g", "10", video)
    out.mkdir()
    nodes.add_blind(out, num_cpus=2)
    flags = ("--ray", nodes.address, "in.mp4", "out", "--chunks", "2")
    with start_batch(tmp_path, *flags) as batch:
        _, errors = batch.communicate(timeout=2 * SECONDS)
    assert batch.returncode == 4
    assert f"does not see the folder {out}" in errors
    nodes.add(num_cpus=2)
    with start_batch(tmp_path, *flags, "--resume") as batch:
        printed, errors = batch.communicate(timeout=2 * SECONDS)
    assert batch.returncode == 0, errors + printed
    assert f"does not see the folder {out}" in printed
    assert "rendered whole" not in printed
    assert shown_by_ffmpeg(out / "in.mp4") == shown_by_ffmpeg(video)
    assert {path.name for path in out.iterdir()} == {"in.mp4", STATE_NAME}
