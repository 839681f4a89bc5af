"""A Ray cluster of several nodes on this machine, for those tests that need one."""

from __future__ import annotations

import gc
import shlex
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
_STORE_BYTES = 80 * 2**20


def unwarned(call: Callable[[], T]) -> T:
    """Ray leaves open files to the garbage collector, which warns about each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        result = call()
        gc.collect()
    return result


class Nodes:
    """A cluster whose head has no CPUs; tests add the nodes that they need."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        head = {
            "num_cpus": 0,
            "object_store_memory": _STORE_BYTES,
            "include_dashboard": False,
            # A node is lost after 5 s of silence rather than 15.
            "_system_config": {"health_check_period_ms": 1000, "health_check_failure_threshold": 5},
        }
        self._cluster = unwarned(lambda: Cluster(initialize_head=True, head_node_args=head))
        self.address = str(self._cluster.address)
        self._blind: list[subprocess.Popen[bytes]] = []

    def add(self, **resources: float) -> Any:
        add = self._cluster.add_node
        return unwarned(lambda: add(object_store_memory=_STORE_BYTES, **resources))

    def add_blind(self, *folders: Path, **resources: int) -> None:
        """Add a node that sees empty folders in place of these."""
        mounts = [f"mount -t tmpfs none {shlex.quote(str(each))}" for each in folders]
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in resources.items()]
        ray = Path(sys.executable).with_name("ray")
        start = [str(ray), "start", f"--address={self.address}", "--block", *flags]
        start.append(f"--object-store-memory={_STORE_BYTES}")
        script = " && ".join([*mounts, f"exec {shlex.join(start)}"])
        unshare = ["unshare", "--mount", "--propagation=private"]
        if subprocess.run(
            [*unshare, "mount", "-t", "tmpfs", "none", "/mnt"], check=False
        ).returncode:
            pytest.skip("no file systems may be mounted here")
        alive = len(self._alive())
        node = subprocess.Popen(
            [*unshare, "sh", "-c", script], stdout=subprocess.DEVNULL, start_new_session=True
        )
        self._blind.append(node)
        until = time.monotonic() + 60.0
        while len(self._alive()) <= alive:
            assert time.monotonic() < until
            time.sleep(0.1)

    def remove(self, node: Any) -> None:
        unwarned(lambda: self._cluster.remove_node(node, allow_graceful=False))

    def clear(self) -> None:
        """Remove all nodes; returns when the cluster knows."""
        for blind in self._blind:
            blind.terminate()
            blind.wait()
        self._blind.clear()
        for node in list(self._cluster.worker_nodes):
            unwarned(partial(self._cluster.remove_node, node, allow_graceful=True))
        unwarned(partial(self._cluster.wait_for_nodes, timeout=60))

    def _alive(self) -> Any:
        return self._cluster.global_state._live_node_ids()

    def close(self) -> None:
        unwarned(self._cluster.shutdown)


@pytest.fixture(scope="session")
def _ray_cluster() -> Iterator[Nodes]:
    pytest.importorskip("ray", reason="Ray is not installed")
    nodes = Nodes()
    yield nodes
    nodes.close()


@pytest.fixture
def nodes(_ray_cluster: Nodes) -> Iterator[Nodes]:
    yield _ray_cluster
    _ray_cluster.clear()


@pytest.fixture
def ray_address(nodes: Nodes) -> str:
    nodes.add(num_cpus=2)
    return nodes.address
