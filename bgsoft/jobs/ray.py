"""Workers on the nodes of a Ray cluster.

A worker is an actor on a node of its own choosing here, not Ray's: so a node that cannot do the
work is named and left alone, and a lost one is known. Ray keeps the account of CPUs and GPUs, and
notices what dies. A task whose worker is lost finishes with WorkerDiedError, as everywhere;
trying again is the driver's part, so that there is one count of tries.
"""

from __future__ import annotations

import logging
import os
import pickle
import re
import secrets
import signal
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import shorten
from typing import Any

from bgsoft import __version__
from bgsoft.closing import Closing
from bgsoft.errors import BackendUnavailableError, BgsoftError, ConfigError, WorkerDiedError
from bgsoft.jobs.link import Home, Look, Read, Write
from bgsoft.jobs.ray_worker import News, Wanted, Worker
from bgsoft.jobs.task import CORES_A_TASK, TASKS_A_GPU, Finished, Task, Update
from bgsoft.jobs.worker import LEAVE_SECONDS, Leaving
from bgsoft.outputs import hidden_beside, write_whole
from bgsoft.workers import usable_cores

LOCAL = "local"
_ADDRESS = re.compile(r"(ray://)?\[?(?P<host>[^/]+?)\]?:(?P<port>\d+)")
_CONNECT_SECONDS = 5.0
_LOOK_SECONDS = 2.0
"""How often nodes that have joined are looked for."""
_PATIENCE_SECONDS = 60.0
"""How long a cluster may be without any node."""
_MANY = 10_000
_THREADS = range(1, 257)
_STORE_BYTES = 100 * 2**20
"""Ray's memory for large objects. Of a cluster on this machine, which sees all files, none are
sent; it takes no less than 75 MiB."""


@dataclass(eq=False, slots=True)
class _Actor:
    """A worker as it is seen from here."""

    handle: Any
    node: str
    host: str
    call: Any
    """What it has been asked; None: it is free."""
    is_fit: bool = False
    is_leaving: bool = False
    """Of no more use after its task."""
    task_id: int | None = None
    home: Home = field(default_factory=Home)
    """Answers its task."""
    reason: str = ""
    """Why it is being ended."""
    deadline: float = float("inf")


def check_address(address: str) -> None:
    """Fail early where there is no cluster: Ray itself would wait for minutes, and print a page.

    Raises:
        ConfigError: It is no address.
        BackendUnavailableError: Ray is missing, or no cluster answers.
    """
    if find_spec("ray") is None:
        raise BackendUnavailableError("Ray is missing: pip install '.[ray]'")
    if address == LOCAL:
        return
    parts = _ADDRESS.fullmatch(address)
    if parts is None:
        raise ConfigError(f"{address} is no address of a Ray cluster: HOST:PORT or ray://HOST:PORT")
    try:
        with socket.create_connection((parts["host"], int(parts["port"])), _CONNECT_SECONDS):
            return
    except (OSError, OverflowError) as exc:
        text = f"no Ray cluster answers at {address}: {exc}"
        raise BackendUnavailableError(text) from exc


class RayExecutor(Closing):
    """An executor (:class:`bgsoft.jobs.task.Executor`) of workers on a Ray cluster.

    A node that has another version of bgsoft is left alone. What one does not see of the files of
    this machine, its tasks can have by :attr:`bgsoft.jobs.task.TaskContext.link`.

    Args:
        address: ``HOST:PORT``, where this machine is part of the cluster; ``ray://HOST:PORT``, from
            outside; ``local``: a cluster on this machine, which ends with the executor.
        folder: Where the tasks write to.
        inputs: What every node must see, as well as the folder, to be used; None: nothing.
        tasks: How many there will be; None: nobody knows.
        workers: Most tasks at a time; None: as many as have two cores each.
        threads: Cores that a task reserves and plans for; None: as many as that leaves.
        gpu_share: The part of a GPU that a task reserves, up to 1; 0: it sees no GPU. None: a half,
            where the cluster has GPUs.
        notice: Called with a line about each node that cannot be used.

    Raises:
        ConfigError: The address is none.
        BackendUnavailableError: Ray is missing; no cluster answers; none of its nodes has what a
            task needs.
        OutputError: The folder cannot be written to.
    """

    def __init__(
        self,
        address: str,
        *,
        folder: Path,
        inputs: Sequence[Path] | None = None,
        tasks: int | None = None,
        workers: int | None = None,
        threads: int | None = None,
        gpu_share: float | None = None,
        notice: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self._most = min(tasks or _MANY, workers or _MANY)
        self._notice = notice
        self._actors: list[_Actor] = []
        self._unusable: dict[str, str] = {}
        self._queue: deque[tuple[int, bytes]] = deque()
        self._ids = count()
        self._updates: list[Update] = []
        self._looked_at = self._manned_at = -float("inf")
        token = secrets.token_hex(16)
        self._marker = hidden_beside(folder.resolve() / "ray")
        if inputs is not None:
            inputs = [path.absolute() for path in inputs]
        self._wanted = pickle.dumps(Wanted(__version__, self._marker, token, inputs))
        self._ray: Any = None
        self._scratch: TemporaryDirectory[str] | None = None
        try:
            self._connect(address)
            self._gpu_share, self._threads = self._share(
                gpu_share, threads, 1 if workers else CORES_A_TASK
            )
            write_whole(self._marker, "mark for the cluster's nodes", token)
            self._look()
        except BaseException:
            self.close()
            raise

    @property
    def idle(self) -> int:
        free = sum(actor.call is None for actor in self._actors)
        return max(0, free - len(self._queue))

    def submit(self, task: Task) -> int:
        task_id = next(self._ids)
        self._queue.append((task_id, pickle.dumps(task)))
        self._deal()
        return task_id

    def poll(self, timeout: float) -> list[Update]:
        """As declared; also returns when a worker has become free.

        Raises:
            BackendUnavailableError: No node is left that can be used.
        """
        if time.monotonic() - self._looked_at >= _LOOK_SECONDS:
            self._look()
        self._listen(0.0 if self._updates else timeout)
        self._deal()
        updates, self._updates = self._updates, []
        return updates

    def kill(self, task_id: int, reason: str) -> None:
        """As declared; a task has a moment to clean up before its process is killed."""
        for waiting in self._queue:
            if waiting[0] == task_id:
                self._queue.remove(waiting)
                self._updates.append(Finished(task_id, error=WorkerDiedError(reason)))
                return
        for actor in self._actors:
            if actor.task_id == task_id and not actor.reason:
                actor.reason = reason
                actor.deadline = time.monotonic() + LEAVE_SECONDS
                actor.call = actor.handle.cancel.remote()

    def close(self) -> None:
        self._queue.clear()
        if self._ray is not None:
            leaving = [a.handle.cancel.remote() for a in self._actors if a.task_id is not None]
            if leaving:
                self._ray.wait(leaving, num_returns=len(leaving), timeout=LEAVE_SECONDS)
            for actor in self._actors:
                self._ray.kill(actor.handle)
                actor.home.close()
            self._actors.clear()
            self._ray.shutdown()
            self._ray = None
        self._marker.unlink(missing_ok=True)
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    def _connect(self, address: str) -> None:
        check_address(address)
        # Older ones warn of what they will no longer do, and what is not needed here.
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        options: dict[str, Any] = {}
        if address == LOCAL:
            # Else Ray makes one, and leaves it in the user's home.
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
            # Its logs go with it, and the user's own cluster stays the one that Ray's tools find.
            # As Ray's own, whatever TMPDIR is: the names of its sockets may not be longer.
            self._scratch = TemporaryDirectory(
                prefix="bgsoft-", dir="/tmp", ignore_cleanup_errors=True
            )
            options = {
                "num_cpus": usable_cores(),
                "include_dashboard": False,
                "object_store_memory": _STORE_BYTES,
                "_temp_dir": self._scratch.name,
            }
        ray: Any = import_module("ray")
        before = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
        except Exception as exc:
            token = "if it asks for a token, set RAY_AUTH_MODE=token"
            text = f"no way into the Ray cluster at {address} ({token}): {shorten(str(exc), 300)}"
            raise BackendUnavailableError(text) from exc
        finally:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, before)  # Ray sets one of its own
        self._ray = ray
        # Else Ray prints pages about each lost process on our standard output, log_to_driver or
        # not (2.60).
        ray._private.worker._worker_logs_enabled = False

    def _share(self, gpu_share: float | None, threads: int | None, least: int) -> tuple[float, int]:
        """What a task reserves: a part of a GPU, and cores, at least so many where there are."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        if gpu_share is None:
            gpu_share = 1 / TASKS_A_GPU if any(node.get("GPU", 0) >= 1 for node in nodes) else 0.0
        if threads is None:
            room = [sum(_slots(node, cores, gpu_share) for node in nodes) for cores in _THREADS]
            tasks = max(1, min(self._most, room[_THREADS.index(least)]))
            fitting = [cores for cores, slots in zip(_THREADS, room, strict=True) if slots >= tasks]
            threads = max(fitting, default=1)
        return gpu_share, threads

    def _look(self) -> None:
        """Put workers on nodes that have room for them."""
        now = self._looked_at = time.monotonic()
        room: Counter[str] = Counter()
        hosts: dict[str, str] = {}
        for node in self._ray.nodes():
            if node["Alive"] and node["NodeID"] not in self._unusable:
                room[node["NodeID"]] = _slots(node["Resources"], self._threads, self._gpu_share)
                hosts[node["NodeID"]] = f"{node['NodeManagerHostname']} ({node['NodeName']})"
        room.subtract(actor.node for actor in self._actors)
        while room and len(self._actors) < self._most:
            ((node_id, slots),) = room.most_common(1)
            if slots <= 0:
                break
            room[node_id] -= 1
            self._actors.append(self._start(node_id, hosts[node_id]))
        if self._actors:
            self._manned_at = now
        elif self._unusable or now - self._manned_at > _PATIENCE_SECONDS:
            raise BackendUnavailableError(self._why_nobody())

    def _why_nobody(self) -> str:
        if self._unusable:
            return f"no node of the Ray cluster can be used: {next(iter(self._unusable.values()))}"
        gpu = f" and {self._gpu_share:g} of a GPU" if self._gpu_share > 0 else ""
        return f"no node of the Ray cluster has {self._threads} CPUs{gpu} for a task"

    def _start(self, node_id: str, host: str) -> _Actor:
        strategies: Any = import_module("ray.util.scheduling_strategies")
        actor = self._ray.remote(Worker).options(
            num_cpus=self._threads,
            num_gpus=self._gpu_share,
            max_concurrency=2,  # it listens while it works
            scheduling_strategy=strategies.NodeAffinitySchedulingStrategy(node_id, soft=False),
        )
        handle = actor.remote(self._threads)
        return _Actor(handle, node_id, host, call=handle.greet.remote(self._wanted))

    def _deal(self) -> None:
        """Give tasks to free workers."""
        for actor in self._actors:
            if not self._queue:
                return
            if actor.call is None:
                given = self._queue.popleft()
                actor.task_id = given[0]
                actor.call = actor.handle.begin.remote(*given)

    def _listen(self, timeout: float) -> None:
        """Take what a worker says, and notice deaths."""
        now = time.monotonic()
        calls = {actor.call: actor for actor in self._actors if actor.call is not None}
        until = min([now + timeout, now + _LOOK_SECONDS, *(a.deadline for a in self._actors)])
        if calls:
            ready, _ = self._ray.wait(list(calls), timeout=max(0.0, until - now))
            for call in ready:
                self._hear(calls[call])
        else:
            time.sleep(max(0.0, until - now))
        for actor in [a for a in self._actors if a.deadline <= time.monotonic()]:
            self._drop(actor, actor.reason)

    def _hear(self, actor: _Actor) -> None:
        try:
            said = self._ray.get(actor.call)
        except self._ray.exceptions.RayError as exc:
            self._lose(actor, exc)
            return
        if actor.reason:
            self._drop(actor, actor.reason)
        elif not actor.is_fit:
            actor.call, actor.is_fit = None, said is None
            if said is not None:
                self._leave_alone(actor, said)
        else:
            self._take(actor, said)

    def _take(self, actor: _Actor, said: list[News]) -> None:
        """Pass a worker's news on; hear more of its task, or end that."""
        actor.call = None
        for news in said:
            if isinstance(news, Leaving):
                actor.is_leaving = True
            elif isinstance(news, Look | Read | Write):
                actor.call = actor.handle.answer.remote(self._sendable(actor.home.answer(news)))
            elif isinstance(news, Finished):
                self._finish(actor, news)
                return
            else:
                self._updates.append(news)
        if actor.call is None:
            actor.call = actor.handle.news.remote()

    def _sendable(self, answer: object) -> object:
        if not isinstance(answer, bytes):
            return answer
        try:
            return self._ray.put(answer)  # from outside a cluster, large arguments are warned of
        except self._ray.exceptions.RayError as exc:
            return WorkerDiedError(f"Ray has no room for a piece of a file: {_last_line(exc)}")

    def _finish(self, actor: _Actor, finished: Finished) -> None:
        with actor.home as home:
            if finished.error is None:
                try:
                    home.commit()
                except BgsoftError as exc:
                    finished = Finished(finished.task_id, error=exc)
        self._updates.append(finished)
        actor.task_id, actor.home = None, Home()
        if actor.is_leaving:
            self._drop(actor, "")

    def _lose(self, actor: _Actor, exc: Exception) -> None:
        if actor.reason:
            self._drop(actor, actor.reason)
        elif not any(n["Alive"] and n["NodeID"] == actor.node for n in self._ray.nodes()):
            self._drop(actor, f"the node {actor.host} was lost")
        elif isinstance(exc, self._ray.exceptions.OutOfMemoryError):
            self._drop(actor, f"the node {actor.host} ran short of memory; Ray ended the worker")
        elif actor.is_fit:
            text = "ended: a crash, a kill, or the system ran out of memory"
            self._drop(actor, f"its worker on {actor.host} {text}")
        else:
            self._leave_alone(actor, f"cannot start a worker: {_last_line(exc)}")

    def _leave_alone(self, actor: _Actor, problem: str) -> None:
        self._drop(actor, "")
        if actor.node not in self._unusable:
            text = self._unusable[actor.node] = f"the node {actor.host} {problem}"
            self._notice(f"{text}; it is not used")

    def _drop(self, actor: _Actor, reason: str) -> None:
        """Part with a worker; it is replaced when nodes are looked at."""
        self._actors.remove(actor)
        self._looked_at = -float("inf")
        self._ray.kill(actor.handle)
        actor.home.close()
        if actor.task_id is not None:
            self._updates.append(Finished(actor.task_id, error=WorkerDiedError(reason)))


def _slots(resources: dict[str, float], threads: int, gpu_share: float) -> int:
    """How many tasks a node has room for."""
    slots = int(resources.get("CPU", 0)) // threads
    if gpu_share > 0:
        slots = min(slots, int(resources.get("GPU", 0)) * int(1 / gpu_share))
    return slots


def _last_line(exc: Exception) -> str:
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    return lines[-1] if lines else type(exc).__name__
