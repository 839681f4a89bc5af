"""Connection to a Ray cluster, and its usable nodes."""

from __future__ import annotations

import logging
import os
import re
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import shorten
from typing import Any

from bgsoft import __version__
from bgsoft.closing import Closing
from bgsoft.errors import BackendUnavailableError, ConfigError, errors_as
from bgsoft.jobs.ray_worker import RayWorker, node_problem
from bgsoft.jobs.task import CORES_A_TASK, TASKS_A_GPU
from bgsoft.outputs import write_whole
from bgsoft.part_names import hidden_path
from bgsoft.records import dataclass
from bgsoft.threads import usable_cores

LOCAL = "local"
_ADDRESS = re.compile(r"(ray://)?\[?(?P<host>[^/]+?)\]?:(?P<port>\d+)")
_CONNECT_SECONDS = 5.0
_STORE_BYTES = 75 * 2**20
"""Ray's memory for large objects, which are not used here; the least that it accepts."""
_CHECK_SECONDS = 2.0
"""Interval at which nodes that have joined or are lost are checked for."""
PATIENCE_SECONDS = 60.0
"""How long a cluster may be without any node."""
_THREADS = range(1, 257)


def check_address(address: str) -> None:
    """Check that there is a cluster: Ray itself would wait for minutes, and print a page.

    Raises:
        ConfigError: The address is malformed.
        BackendUnavailableError: Ray is missing, or no cluster answers.
    """
    if find_spec("ray") is None:
        raise BackendUnavailableError("cannot use --ray: Ray is missing; pip install '.[ray]'")
    if address == LOCAL:
        return
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise ConfigError(f"--ray must be HOST:PORT, ray://HOST:PORT or local, not {address}")
    silent = f"no Ray cluster answers at {address}"
    with errors_as((OSError, OverflowError), BackendUnavailableError, silent, reason=str):
        socket.create_connection((match["host"], int(match["port"])), _CONNECT_SECONDS).close()


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Connect to a cluster for the block; yields Ray's module.

    The address is ``HOST:PORT``, if this machine is part of the cluster; ``ray://HOST:PORT`` from
    outside; or ``local``: a cluster on this machine, which ends with the block.

    Raises:
        ConfigError, BackendUnavailableError: As :func:`check_address`; or the cluster denies
            access.
    """
    check_address(address)
    # Older versions warn about planned changes, which do not matter here.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    with ExitStack() as stack:
        options = _local_options(stack) if address == LOCAL else {}
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
                signal.signal(signal.SIGTERM, before)  # Ray sets a handler of its own
        stack.callback(ray.shutdown)
        # Otherwise Ray prints pages about each lost process to our standard output, whatever
        # log_to_driver says (2.60).
        ray._private.worker._worker_logs_enabled = False
        yield ray


def _local_options(stack: ExitStack) -> dict[str, Any]:
    # Otherwise Ray makes one, and leaves it in the user's home.
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    # Its logs are removed with it, and Ray's tools still find the user's own cluster. It is in
    # /tmp whatever TMPDIR is: names of sockets have a limit.
    folder = TemporaryDirectory(prefix="bgsoft-", dir="/tmp", ignore_cleanup_errors=True)
    return {
        "num_cpus": usable_cores(),
        "include_dashboard": False,
        "object_store_memory": _STORE_BYTES,
        "_temp_dir": stack.enter_context(folder),
    }


@dataclass(frozen=True, slots=True)
class Share:
    """Reservation of a task on a node: cores, and a part of a GPU up to 1."""

    threads: int
    gpu: float

    def __str__(self) -> str:
        gpu = f" and {self.gpu:g} of a GPU" if self.gpu > 0 else ""
        return f"{self.threads} CPUs{gpu}"

    def slots(self, node: Mapping[str, Any]) -> int:
        """Return the number of tasks that a node has room for."""
        room = node["Resources"]
        slots = int(room.get("CPU", 0)) // self.threads
        return min(slots, int(room.get("GPU", 0)) * int(1 / self.gpu)) if self.gpu > 0 else slots


def choose_share(ray: Any, max_tasks: int | None, threads: int | None, gpu: float | None) -> Share:
    """Return the reservation of tasks; :class:`bgsoft.jobs.ray.RayExecutor` explains None."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    if gpu is None:
        has_gpus = any(node["Resources"].get("GPU", 0) >= 1 for node in nodes)
        gpu = 1 / TASKS_A_GPU if has_gpus else 0.0
    if threads is None:
        room = {cores: sum(map(Share(cores, gpu).slots, nodes)) for cores in _THREADS}
        tasks = max(1, min(max_tasks or room[CORES_A_TASK], room[CORES_A_TASK]))
        threads = max((cores for cores in _THREADS if room[cores] >= tasks), default=1)
    return Share(threads, gpu)


class Nodes(Closing):
    """The usable nodes. Each is checked once, when it is first seen.

    They must see ``inputs``, and see and write to ``folder``. ``notice`` receives a line about each
    unusable node.

    Raises:
        OutputError: The folder cannot be written to.
    """

    def __init__(
        self,
        ray: Any,
        folder: Path,
        inputs: Iterable[Path],
        share: Share,
        max_tasks: int | None,
        notice: Callable[[str], None],
    ) -> None:
        self._ray = ray
        self._marker, token = hidden_path(folder.resolve() / "ray"), secrets.token_hex(16)
        there = [path.absolute() for path in inputs if path.exists()]
        sizes = {path: path.stat().st_size if path.is_file() else None for path in there}
        self._wanted = (__version__, self._marker, token, sizes)
        self._share = share
        self._max_tasks = max_tasks
        self._notice = notice
        self._pending: dict[str, Any] = {}
        """Node → the reference of its answer, until that has come."""
        self._problems: dict[str, str | None] = {}
        """Node that has answered → why it is unusable; None: it is usable."""
        self._checked_at = self._manned_at = -float("inf")
        self.usable: frozenset[str] = frozenset()
        """Ids of the usable nodes."""
        self.slots = 0
        """Number of tasks at a time on all of them, at most ``max_tasks``."""
        write_whole(self._marker, "mark for the cluster's nodes", token)

    def check(self) -> None:
        """Update the nodes, unless that was done a moment ago.

        Raises:
            BackendUnavailableError: There is no usable node, and none is expected.
        """
        now = time.monotonic()
        if now - self._checked_at < _CHECK_SECONDS:
            return
        nodes = {node["NodeID"]: node for node in self._ray.nodes() if node["Alive"]}
        room = {id: slots for id, node in nodes.items() if (slots := self._share.slots(node))}
        for id in room.keys() - self._pending.keys() - self._problems.keys():
            ask = self._ray.remote(node_problem)
            ask = ask.options(num_cpus=0, max_retries=0, label_selector=_on_nodes([id]))
            self._pending[id] = ask.remote(*self._wanted)
        for id in [*self._pending]:
            if id not in nodes:
                del self._pending[id]
            elif self._ray.wait([self._pending[id]], timeout=0)[0]:
                self._problems[id] = self._answer(nodes[id], self._pending.pop(id))
        self._checked_at = -float("inf") if self._pending else now
        self.usable = frozenset(id for id in room if self._problems.get(id, "") is None)
        slots = sum(room[id] for id in self.usable)
        self.slots = min(slots, self._max_tasks or slots)
        if self.usable or self._pending:
            self._manned_at = now
            return
        problem = next(filter(None, map(self._problems.get, room)), None)
        if problem is not None:
            raise BackendUnavailableError(f"cannot use any node of the Ray cluster: {problem}")
        if now - self._manned_at > PATIENCE_SECONDS:
            text = f"cannot start a task on the Ray cluster: no node has {self._share}"
            raise BackendUnavailableError(text)

    def start_worker(self) -> Any:
        """Return a worker, which Ray starts once a usable node has room for it."""
        worker = self._ray.remote(RayWorker).options(
            num_cpus=self._share.threads,
            num_gpus=self._share.gpu,
            max_concurrency=2,  # it listens while it works
            scheduling_strategy="SPREAD",
            label_selector=_on_nodes(self.usable),
        )
        return worker.remote(self._share.threads, Path.cwd())

    def close(self) -> None:
        self._marker.unlink(missing_ok=True)

    def _answer(self, node: Mapping[str, Any], reference: Any) -> str | None:
        try:
            problem = self._ray.get(reference)
        except self._ray.exceptions.RayError as exc:
            problem = f"cannot start a worker: {last_line(exc)}"
        if problem is None:
            return None
        text = f"the node {node['NodeManagerHostname']} ({node['NodeName']}) {problem}"
        self._notice(f"{text}; it is not used")
        return text


def _on_nodes(ids: Iterable[str]) -> dict[str, str]:
    """Return Ray's label selector for one of these nodes."""
    return {"ray.io/node-id": f"in({','.join(ids)})"}


def last_line(exc: Exception) -> str:
    """Return the last line of Ray's error, which often has a page."""
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    return lines[-1] if lines else type(exc).__name__
