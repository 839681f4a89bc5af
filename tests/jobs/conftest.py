"""A Ray cluster of several nodes on this machine, for those tests that need one."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

STORE_BYTES = 80 * 2**20


@pytest.fixture
def ray_closed_files() -> Iterator[None]:
    """Ray leaves closing its files to the garbage collector, which warns of each."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Any]:
    """A head without CPUs; tests add the nodes that they need, and remove them."""
    pytest.importorskip("ray", reason="Ray is not installed")
    from ray.cluster_utils import Cluster

    head = {
        "num_cpus": 0,
        "object_store_memory": STORE_BYTES,
        "include_dashboard": False,
        # A node is lost after 2 s of silence rather than 15.
        "_system_config": {"health_check_period_ms": 500, "health_check_failure_threshold": 3},
    }
    cluster = Cluster(initialize_head=True, head_node_args=head)
    yield cluster
    cluster.shutdown()


@pytest.fixture
def ray_address(ray_cluster: Any, ray_closed_files: None) -> Iterator[str]:
    """Of a cluster with one node of two CPUs."""
    node = ray_cluster.add_node(num_cpus=2, object_store_memory=STORE_BYTES)
    yield ray_cluster.address
    ray_cluster.remove_node(node, allow_graceful=False)
