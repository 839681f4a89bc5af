"""The nodes of a Ray cluster: which can be used, and for how many tasks."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bgsoft import __version__
from bgsoft.closing import Closing
from bgsoft.errors import BackendUnavailableError
from bgsoft.jobs.task import CORES_A_TASK, TASKS_A_GPU
from bgsoft.outputs import hidden_beside, write_whole

_LOOK_SECONDS = 2.0
"""How often nodes that have joined or are lost are looked for."""
PATIENCE_SECONDS = 60.0
"""How long a cluster may be without any node."""
_THREADS = range(1, 257)
_LABEL = "ray.io/node-id"
"""Ray gives it to every node."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a node has to have."""

    version: str
    marker: Path
    """A file in the folder that is written to."""
    token: str
    """What is in it."""
    inputs: Mapping[Path, int | None]
    """Files and folders to read; of files the size in bytes."""

    def problem(self) -> str | None:
        """Why this process's node cannot be used; None: it can."""
        if self.version != __version__:
            return f"has bgsoft {__version__}, not {self.version}"
        folder = self.marker.parent
        with suppress(OSError):
            is_seen = self.marker.read_text(encoding="ascii") == self.token
            if is_seen and os.access(folder, os.W_OK | os.X_OK):
                unseen = next((path for path in self.inputs if not self._sees(path)), None)
                return None if unseen is None else f"does not see {unseen}"
        return f"does not see the folder {folder}, or may not write to it"

    def _sees(self, path: Path) -> bool:
        try:
            return self.inputs[path] in (None, path.stat().st_size)
        except OSError:
            return False


def problem_here(wanted: Wanted) -> str | None:
    """The same as :meth:`Wanted.problem`; what a node is asked to do."""
    return wanted.problem()


@dataclass(frozen=True, slots=True)
class Share:
    """What a task reserves of a node."""

    threads: int
    """Cores."""
    gpu: float
    """Part of a GPU, up to 1."""

    def slots(self, node: Mapping[str, float]) -> int:
        """How many tasks a node with these resources has room for."""
        slots = int(node.get("CPU", 0)) // self.threads
        return min(slots, int(node.get("GPU", 0)) * int(1 / self.gpu)) if self.gpu > 0 else slots


def choose_share(ray: Any, most: int | None, threads: int | None, gpu: float | None) -> Share:
    """What tasks reserve where the user has not said it.

    Args:
        ray: Ray's module, connected.
        most: Most tasks at a time; None: as many as have two cores each.
        threads: None: as many as that leaves.
        gpu: None: a half, where the cluster has GPUs.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if gpu is None:
        gpu = 1 / TASKS_A_GPU if any(node.get("GPU", 0) >= 1 for node in nodes) else 0.0
    if threads is None:
        room = {cores: sum(map(Share(cores, gpu).slots, nodes)) for cores in _THREADS}
        tasks = max(1, min(most or room[CORES_A_TASK], room[CORES_A_TASK]))
        threads = max((cores for cores in _THREADS if room[cores] >= tasks), default=1)
    return Share(threads, gpu)


class Nodes(Closing):
    """Which nodes can be used now. Each is asked once, when it is first seen.

    Args:
        ray: Ray's module, connected.
        folder: They have to see it, and may write to it.
        inputs: Files and folders that they have to see.
        share: What a task reserves of it.
        notice: Called with a line about each node that cannot be used.

    Raises:
        OutputError: The folder cannot be written to.
    """

    def __init__(
        self,
        ray: Any,
        folder: Path,
        inputs: Iterable[Path],
        share: Share,
        notice: Callable[[str], None],
    ) -> None:
        self._ray = ray
        self._marker, token = hidden_beside(folder.resolve() / "ray"), secrets.token_hex(16)
        there = [path.absolute() for path in inputs if path.exists()]
        sizes = {path: path.stat().st_size if path.is_file() else None for path in there}
        self._wanted = Wanted(__version__, self._marker, token, sizes)
        self._share = share
        self._notice = notice
        self._asked: dict[str, Any] = {}
        """Node → its answer, once that is there."""
        self._problems: dict[str, str | None] = {}
        """Node that has answered → why it cannot be used; None: it can."""
        self._looked_at = self._manned_at = -float("inf")
        self.usable: frozenset[str] = frozenset()
        """Their ids."""
        self.slots = 0
        """Tasks at a time on all of them."""
        write_whole(self._marker, "mark for the cluster's nodes", token)

    def look(self) -> None:
        """Find out what has changed, unless that was done a moment ago.

        Raises:
            BackendUnavailableError: There is none, and nothing speaks for one to come.
        """
        now = time.monotonic()
        if now - self._looked_at < _LOOK_SECONDS:
            return
        nodes = {n["NodeID"]: n for n in self._ray.nodes() if n["Alive"]}
        room = {
            id: slots for id, n in nodes.items() if (slots := self._share.slots(n["Resources"]))
        }
        for id in room.keys() - self._asked.keys() - self._problems.keys():
            check = self._ray.remote(problem_here).options(
                num_cpus=0, max_retries=0, label_selector=selector([id])
            )
            self._asked[id] = check.remote(self._wanted)
        for id in [*self._asked]:
            if id not in nodes:
                del self._asked[id]
            elif self._ray.wait([self._asked[id]], timeout=0)[0]:
                self._judge(nodes[id], self._asked.pop(id))
        self._looked_at = -float("inf") if self._asked else now
        self.usable = frozenset(id for id in room if self._problems.get(id, "") is None)
        self.slots = sum(room[id] for id in self.usable)
        problem = next((self._problems[id] for id in room if self._problems.get(id)), None)
        if self.usable or self._asked:
            self._manned_at = now
        elif problem is not None:
            raise BackendUnavailableError(f"no node of the Ray cluster can be used: {problem}")
        elif now - self._manned_at > PATIENCE_SECONDS:
            share = self._share
            gpu = f" and {share.gpu:g} of a GPU" if share.gpu > 0 else ""
            text = f"no node of the Ray cluster has {share.threads} CPUs{gpu} for a task"
            raise BackendUnavailableError(text)

    def close(self) -> None:
        self._marker.unlink(missing_ok=True)

    def _judge(self, node: Mapping[str, Any], answer: Any) -> None:
        """Take in what a node says."""
        try:
            problem = self._ray.get(answer)
        except self._ray.exceptions.RayError as exc:
            problem = f"cannot start a worker: {last_line(exc)}"
        if problem is not None:
            problem = f"the node {node['NodeManagerHostname']} ({node['NodeName']}) {problem}"
            self._notice(f"{problem}; it is not used")
        self._problems[node["NodeID"]] = problem


def selector(nodes: Iterable[str]) -> dict[str, str]:
    """As an option of Ray's: on one of these nodes only."""
    return {_LABEL: f"in({','.join(nodes)})"}


def last_line(exc: Exception) -> str:
    """What an error of Ray's comes to: most have a page."""
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    return lines[-1] if lines else type(exc).__name__
