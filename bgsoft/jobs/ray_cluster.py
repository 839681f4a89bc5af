"""The way into a Ray cluster."""

from __future__ import annotations

import logging
import os
import re
import secrets
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from textwrap import shorten
from typing import Any

from bgsoft.errors import BackendUnavailableError, ConfigError, errors_as
from bgsoft.workers import usable_cores

LOCAL = "local"
_ADDRESS = re.compile(r"(ray://)?\[?(?P<host>[^/]+?)\]?:(?P<port>\d+)")
_CONNECT_SECONDS = 5.0
_STORE_BYTES = 75 * 2**20
"""Ray's memory for large objects, of which there are none here; it takes no less."""


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
    silent = f"no Ray cluster answers at {address}"
    with errors_as((OSError, OverflowError), BackendUnavailableError, silent, reason=str):
        socket.create_connection((parts["host"], int(parts["port"])), _CONNECT_SECONDS).close()


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray's module, connected to a cluster for as long as the block takes.

    Args:
        address: ``HOST:PORT``, where this machine is part of the cluster; ``ray://HOST:PORT``, from
            outside; ``local``: a cluster on this machine, which ends with the block.

    Raises:
        ConfigError: The address is none.
        BackendUnavailableError: Ray is missing; no cluster answers, or lets us in.
    """
    check_address(address)
    # Older ones warn of what they will no longer do, and what is not needed here.
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
                signal.signal(signal.SIGTERM, before)  # Ray sets one of its own
        stack.callback(ray.shutdown)
        # Else Ray prints pages about each lost process on our standard output, log_to_driver or
        # not (2.60).
        ray._private.worker._worker_logs_enabled = False
        yield ray


def _local_options(stack: ExitStack) -> dict[str, Any]:
    # Else Ray makes one, and leaves it in the user's home.
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    # Its logs go with it, and the user's own cluster stays the one that Ray's tools find. In /tmp
    # whatever TMPDIR is: the names of its sockets may not be longer.
    folder = TemporaryDirectory(prefix="bgsoft-", dir="/tmp", ignore_cleanup_errors=True)
    return {
        "num_cpus": usable_cores(),
        "include_dashboard": False,
        "object_store_memory": _STORE_BYTES,
        "_temp_dir": stack.enter_context(folder),
    }
