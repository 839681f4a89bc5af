"""Code for the nodes of a Ray cluster: their check, and workers."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue

from bgsoft import __version__
from bgsoft.infer.warm import keep_warm
from bgsoft.jobs.task import Started
from bgsoft.jobs.worker import GRACE_SECONDS, WorkerMessage, perform


def node_problem(
    version: str, marker: Path, token: str, inputs: Mapping[Path, int | None]
) -> str | None:
    """Return why the node that this runs on cannot be used; None if it can.

    ``marker`` is a file in the output folder, which contains ``token``. ``inputs`` are files and
    folders to read, files with their size in bytes.
    """
    if version != __version__:
        return f"has bgsoft {__version__}, not {version}"
    folder = marker.parent
    with suppress(OSError):
        if marker.read_text(encoding="ascii") == token and os.access(folder, os.W_OK | os.X_OK):
            unseen = next((path for path in inputs if not _sees(path, inputs[path])), None)
            return None if unseen is None else f"does not see {unseen}"
    return f"does not see the folder {folder}, or may not write to it"


def _sees(path: Path, size: int | None) -> bool:
    try:
        return size in (None, path.stat().st_size)
    except OSError:
        return False


class RayWorker:
    """An actor: a process on a node. It keeps imports, CUDA contexts and models between tasks."""

    def __init__(self, threads: int, folder: Path) -> None:
        self._threads = threads
        with suppress(OSError):  # in that case files have absolute names
            os.chdir(folder)
        # Ray shows only the reserved GPU, or all of them if none was reserved.
        self._gpu = 0 if import_module("ray").get_gpu_ids() else None
        if self._gpu is None:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        self._name = f"{socket.gethostname()}, pid {os.getpid()}"
        self._news: SimpleQueue[str | WorkerMessage] = SimpleQueue()
        self._news.put(self._name)
        self._cancel = threading.Event()
        self._thread: threading.Thread | None = None
        keep_warm()

    def begin(self, task_id: int, pickled: bytes) -> None:
        """Start a task."""
        self._news.put(Started(task_id, self._name))
        given = (task_id, pickled, self._threads, self._news.put, self._cancel, self._gpu)
        self._thread = threading.Thread(target=perform, args=given, daemon=True)
        self._thread.start()

    def news(self) -> list[str | WorkerMessage]:
        """Wait for news and return it; the first is the worker's name."""
        news = [self._news.get()]
        while not self._news.empty():
            news.append(self._news.get())
        return news

    def cancel(self) -> None:
        """Ask the task to end; return when it has, or after a limit."""
        self._cancel.set()
        if self._thread is not None:
            self._thread.join(GRACE_SECONDS)
