"""A Ray cluster of several nodes on this machine: what is put where, and what becomes of the lost.

That tasks run there as in processes of this machine is tested beside those.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import bgsoft.jobs.ray
from bgsoft.batch.state import STATE_NAME
from bgsoft.errors import BackendUnavailableError, ConfigError, OutputError, WorkerDiedError
from bgsoft.jobs.driver import Driver
from bgsoft.jobs.ray import LOCAL, RayExecutor
from bgsoft.jobs.task import Finished, Retrying, TaskContext, Told, Update
from tests.outside import ffmpeg, shown_by_ffmpeg
from tests.unit.jobs.conftest import Nodes
from tests.unit.jobs.tasks import Here, Wait
from tests.unit.jobs.test_pool import SECONDS, collect, ends, first_told, wait_until_gone

SAMPLE = Path(__file__).parents[3] / "samples/person.mp4"


@dataclass(frozen=True)
class Append:
    """Adds a line to a file once it has had its time; says who does it."""

    path: Path
    line: str

    def run(self, context: TaskContext) -> object:
        context.tell(os.getpid())
        if context.cancel.wait(1.0):
            return None
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{self.line}\n")
        return os.getppid()


def poll_until(executor: RayExecutor, idle: int) -> None:
    until = time.monotonic() + SECONDS
    while executor.idle != idle:
        assert time.monotonic() < until
        assert executor.poll(1.0) == []


def test_a_killed_node_costs_no_task_and_no_output_twice(
    nodes: Nodes, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lost, _ = (nodes.add(num_cpus=2) for _ in range(2))
    out = tmp_path / "out"
    with Driver(RayExecutor(nodes.address, folder=tmp_path, threads=1)) as driver:
        tasks = {driver.submit(Append(out, str(i))) for i in range(12)}
        updates: list[Update] = []
        killed: set[object] = set()
        until = time.monotonic() + SECONDS
        while len(ends(updates)) < len(tasks):
            assert time.monotonic() < until
            updates += driver.poll(1.0)
            told = {u.message for u in updates if isinstance(u, Told)}
            if not killed and len(told) == 4:
                killed = {pid for pid in told if parent_of(pid) == raylet_of(lost)}
                os.kill(raylet_of(lost), signal.SIGKILL)
                for pid in killed:
                    os.kill(pid, signal.SIGKILL)  # type: ignore[arg-type]
    assert len(killed) == 2
    assert [u.error for u in updates if isinstance(u, Finished)] == [None] * len(tasks)
    assert set(ends(updates)) == tasks
    reasons = [str(u.error) for u in updates if isinstance(u, Retrying)]
    assert len(reasons) == 2
    assert all("was lost" in line or "its worker on" in line for line in reasons)
    assert sorted(map(int, out.read_text().split())) == list(range(12))
    assert list(tmp_path.iterdir()) == [out]
    assert "".join(capfd.readouterr()) == ""


def raylet_of(node: Any) -> int:
    (raylet,) = node.all_processes["raylet"]
    pid = raylet.process.pid
    assert isinstance(pid, int)
    return pid


def parent_of(pid: object) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


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
        for _ in range(5):
            executor.submit(Here())
        until = time.monotonic() + SECONDS
        while len(seen) < 3:
            assert time.monotonic() < until
            seen += [u.message for u in executor.poll(1.0) if isinstance(u, Told)]
        assert executor.poll(2.0) == []
    assert sorted(seen) in ([(0, gpu, 2) for gpu in gpus] for gpus in ("001", "011"))
    with RayExecutor(nodes.address, folder=tmp_path, workers=1, gpu_share=0.0) as executor:
        executor.submit(Here())
        assert first_told(executor).message == (None, "", 8)


@pytest.mark.parametrize(
    ("options", "idle", "threads"),
    [
        ({}, 3, 2),
        ({"tasks": 1}, 1, 4),
        ({"tasks": 9}, 3, 2),
        ({"workers": 2}, 2, 2),
        ({"workers": 9}, 6, 1),
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
        assert first_told(executor).message == (None, "", threads)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"threads": 3}, "no node of the Ray cluster has 3 CPUs for a task"),
        ({"gpu_share": 1.0}, "no node of the Ray cluster has 1 CPUs and 1 of a GPU for a task"),
    ],
)
def test_what_no_node_has(
    ray_address: str, tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(BackendUnavailableError, match=reason):
        RayExecutor(ray_address, folder=tmp_path, **options)
    assert list(tmp_path.iterdir()) == []


def test_nodes_that_see_another_folder_are_left_alone(
    ray_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    with RayExecutor(ray_address, folder=tmp_path, inputs=[], notice=said.append) as executor:
        (mark,) = tmp_path.iterdir()
        mark.write_text("of another folder")
        with pytest.raises(BackendUnavailableError, match="does not see the folder"):
            poll_until(executor, idle=2)
    (line,) = said
    host = socket.gethostname()
    problem = f"does not see the folder {tmp_path}, or may not write to it"
    assert line.startswith(f"the node {host} (")
    assert line.endswith(f") {problem}; it is not used")
    assert list(tmp_path.iterdir()) == []


def test_nodes_without_the_input_or_with_another_version_are_left_alone(
    ray_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = tmp_path / "only here"
    with (
        RayExecutor(ray_address, folder=tmp_path, inputs=[missing]) as executor,
        pytest.raises(BackendUnavailableError, match=r"can be used: .* does not see .*only here"),
    ):
        poll_until(executor, idle=2)
    monkeypatch.setattr(bgsoft.jobs.ray, "__version__", "99.0")
    with (
        RayExecutor(ray_address, folder=tmp_path) as executor,
        pytest.raises(BackendUnavailableError, match=r"has bgsoft .*, not 99\.0"),
    ):
        poll_until(executor, idle=2)


def test_a_node_that_cannot_start_a_worker_is_named(
    ray_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(bgsoft.jobs.ray.Worker):
        def __init__(self, threads: int) -> None:
            raise ModuleNotFoundError("No module named 'bgsoft'")

    monkeypatch.setattr(bgsoft.jobs.ray, "Worker", Broken)
    with (
        RayExecutor(ray_address, folder=tmp_path) as executor,
        pytest.raises(
            BackendUnavailableError,
            match="cannot start a worker: ModuleNotFoundError: No module named 'bgsoft'",
        ),
    ):
        poll_until(executor, idle=2)


def test_when_the_last_node_is_lost(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bgsoft.jobs.ray, "_PATIENCE_SECONDS", 1.0)
    node = nodes.add(num_cpus=1)
    with RayExecutor(nodes.address, folder=tmp_path) as executor:
        executor.submit(Wait())
        first_told(executor)
        nodes.remove(node)
        (found,) = ends(collect(executor, 1)).values()
        assert isinstance(found.error, WorkerDiedError)
        with pytest.raises(BackendUnavailableError, match="no node of the Ray cluster has 1 CPUs"):
            poll_until(executor, idle=1)


@pytest.mark.parametrize("address", ["nonsense", "host:", "http://host:80", ""])
def test_what_is_no_address(tmp_path: Path, address: str) -> None:
    pytest.importorskip("ray")
    with pytest.raises(ConfigError, match="no address of a Ray cluster"):
        RayExecutor(address, folder=tmp_path)


def test_an_address_where_nobody_answers(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(BackendUnavailableError, match=f"no Ray cluster answers at {address}"):
            RayExecutor(address, folder=tmp_path)


def test_a_folder_that_cannot_be_written_to(ray_address: str, tmp_path: Path) -> None:
    with pytest.raises(OutputError):
        RayExecutor(ray_address, folder=tmp_path / "missing")


def test_without_ray_the_command_that_installs_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bgsoft.jobs.ray.find_spec", {"ray": None}.__getitem__)
    with pytest.raises(BackendUnavailableError, match=r"Ray is missing: pip install '\.\[ray\]'"):
        RayExecutor(LOCAL, folder=tmp_path)


LOCAL_CLUSTER = """
import signal, sys
from pathlib import Path
from bgsoft.jobs.ray import LOCAL, RayExecutor
from bgsoft.jobs.task import Told
from tests.unit.jobs.tasks import Wait
handler = signal.getsignal(signal.SIGTERM)
with RayExecutor(LOCAL, folder=Path(sys.argv[1]), workers=1) as executor:
    assert signal.getsignal(signal.SIGTERM) is handler
    executor.submit(Wait(Path(sys.argv[2])))
    told = 0
    while not told:
        for update in executor.poll(1.0):
            if isinstance(update, Told):
                told = update.message
    print(told, executor._scratch.name, flush=True)
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
        cwd=Path(__file__).parents[3],
    ) as parent:
        assert parent.stdout is not None
        worker, scratch = parent.stdout.readline().split()
        raylet = parent_of(worker)
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


@pytest.mark.parametrize("is_blind", [False, True])
def test_a_batch_goes_on_when_a_node_is_killed(
    nodes: Nodes, tmp_path: Path, is_blind: bool
) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    out.mkdir()
    for _ in range(2):
        if is_blind:
            nodes.add_blind(source, out, num_cpus=2)
        else:
            nodes.add(num_cpus=2)
    for number in range(4):
        shutil.copy(SAMPLE, source / f"{number}.mp4")
    (source / "broken.mp4").write_bytes(b"no video")
    command = [sys.executable, "-m", "bgsoft", "batch", "--progress", "json", "--threads", "1"]
    with subprocess.Popen(
        [*command, "--ray", nodes.address, "in", "out"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        cwd=tmp_path,
    ) as batch:
        assert batch.stdout is not None
        said = []
        killed: list[int] = []
        for line in batch.stdout:
            said.append(json.loads(line))
            if said[-1]["type"] == "progress" and not killed:
                running = {int(each["worker"].split()[-1]) for each in said if "worker" in each}
                raylet = parent_of(next(iter(running)))
                killed = [pid for pid in running if parent_of(pid) == raylet]
                for pid in (raylet, *killed):
                    os.kill(pid, signal.SIGKILL)
        assert batch.stderr is not None
        errors = batch.stderr.read()
    assert killed
    assert errors == "bgsoft: error: 1 of 5 files failed\n"
    assert batch.returncode == 1
    assert any(each["type"] == "retry" for each in said)
    done = [Path(each["output"]).name for each in said if each["type"] == "done"]
    assert sorted(done) == ["0.mp4", "1.mp4", "2.mp4", "3.mp4"]
    shown = shown_by_ffmpeg(SAMPLE)
    assert all(shown_by_ffmpeg(out / name) == shown for name in done)
    assert {path.name for path in out.iterdir()} == {*done, STATE_NAME}
    with RayExecutor(nodes.address, folder=tmp_path, threads=1) as executor:
        poll_until(executor, idle=2)  # new workers on a machine remove what killed ones have left
        assert carried_folders() == []


def carried_folders() -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob("bgsoft-carried-*"))


def padded(video: Path, copy: Path, size_bytes: int) -> None:
    """The same video, with a box after it that means nothing."""
    shutil.copy(video, copy)
    with copy.open("ab") as file:
        file.write(size_bytes.to_bytes(4) + b"free")
        file.truncate(file.tell() + size_bytes - 8)


def batch_on(address: str, folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bgsoft", "batch", "--progress", "json", "--threads", "1"]
    return subprocess.run(
        [*command, "--ray", address, *flags],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        cwd=folder,
        timeout=SECONDS,
        check=False,
    )


def said_by(batch: subprocess.CompletedProcess[str], kind: str) -> list[dict[str, Any]]:
    said = map(json.loads, batch.stdout.splitlines())
    return [each for each in said if each["type"] == kind]


def test_a_node_without_the_files_is_sent_them(nodes: Nodes, tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    out.mkdir()
    nodes.add_blind(source, out, num_cpus=2)
    padded(SAMPLE, source / "big.mp4", 100 * 2**20)  # more than the nodes' stores hold
    (source / "broken.mp4").write_bytes(b"no video")
    background = source / "behind.png"
    cv2.imwrite(str(background), np.full((8, 8, 3), 90, np.uint8))
    batch = batch_on(
        nodes.address,
        tmp_path,
        *("in/big.mp4", "in/broken.mp4", "out", "--report", "all.json"),
        *("--background", "in/behind.png", "--matte-out", "{stem}-matte.mp4"),
        *("--face-data", "{stem}.jsonl", "--trace", "{stem}-trace.json"),
    )
    assert batch.stderr == "bgsoft: error: 1 of 2 files failed\n"
    (failed,) = said_by(batch, "failed")
    assert "bgsoft-carried" not in batch.stdout + (tmp_path / "all.json").read_text()
    assert failed["input"] == "in/broken.mp4"
    shown = shown_by_ffmpeg(SAMPLE)
    assert shown_by_ffmpeg(out / "big.mp4") == shown
    assert shown_by_ffmpeg(out / "big-matte.mp4") == shown
    faces = (out / "big.jsonl").read_text().splitlines()
    assert len(faces) >= len(shown)
    assert json.loads((out / "big-trace.json").read_text())["traceEvents"]
    names = {"big.mp4", "big-matte.mp4", "big.jsonl", "big-trace.json", STATE_NAME}
    assert {path.name for path in out.iterdir()} == names
    assert carried_folders() == []


def test_parts_of_a_video_need_files_that_all_nodes_see(nodes: Nodes, tmp_path: Path) -> None:
    video, out = tmp_path / "in.mp4", tmp_path / "out"
    ffmpeg("-i", SAMPLE, "-an", "-c:v", "libx264", "-g", "10", video)
    out.mkdir()
    nodes.add_blind(out, num_cpus=2)
    batch = batch_on(nodes.address, tmp_path, "in.mp4", "out", "--chunks", "2")
    assert batch.returncode == 4
    assert f"does not see the folder {out}" in batch.stderr
    nodes.add(num_cpus=2)
    batch = batch_on(nodes.address, tmp_path, "in.mp4", "out", "--chunks", "2", "--resume")
    assert batch.returncode == 0
    assert f"does not see the folder {out}" in batch.stdout
    assert "rendered whole" not in batch.stdout
    assert shown_by_ffmpeg(out / "in.mp4") == shown_by_ffmpeg(video)
    assert {path.name for path in out.iterdir()} == {"in.mp4", STATE_NAME}
