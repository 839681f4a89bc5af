"""Connecting to a Ray cluster that is missing."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from bgsoft.errors import BackendUnavailableError, ConfigError
from bgsoft.jobs.ray import RayExecutor
from bgsoft.jobs.ray_cluster import LOCAL


@pytest.mark.ray
@pytest.mark.parametrize("address", ["nonsense", "host:", "http://host:80", ""])
def test_what_is_no_address(tmp_path: Path, address: str) -> None:
    pytest.importorskip("ray")
    with pytest.raises(ConfigError, match="--ray must be HOST:PORT"):
        RayExecutor(address, folder=tmp_path)


@pytest.mark.ray
def test_an_address_where_nobody_answers(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(BackendUnavailableError, match=f"no Ray cluster answers at {address}"):
            RayExecutor(address, folder=tmp_path)


def test_without_ray_the_command_that_installs_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bgsoft.jobs.ray_cluster.find_spec", {"ray": None}.__getitem__)
    with pytest.raises(BackendUnavailableError, match=r"Ray is missing; pip install '\.\[ray\]'"):
        RayExecutor(LOCAL, folder=tmp_path)
