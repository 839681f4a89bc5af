"""A worker process on a node of a Ray cluster, and what its node has to have."""

from __future__ import annotations

import os
import pickle
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue

from bgsoft import __version__
from bgsoft.errors import RenderCancelledError
from bgsoft.infer.warm import keep_warm
from bgsoft.jobs.link import Link, Request, remove_abandoned
from bgsoft.jobs.task import Started, TaskContext, Told, Update
from bgsoft.jobs.worker import LEAVE_SECONDS, Leaving, leaves, perform, thinned

News = Update | Leaving | Request


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a node is asked for."""

    version: str
    marker: Path
    """A file in the folder that is written to."""
    token: str
    inputs: Sequence[Path] | None
    """What it must see; None: nothing, and neither need it see the folder."""

    @property
    def folder(self) -> Path | None:
        """The folder, where this process's node sees it and may write to it."""
        folder = self.marker.parent
        with suppress(OSError):
            if self.marker.read_text(encoding="ascii") == self.token:
                return folder if os.access(folder, os.W_OK | os.X_OK) else None
        return None

    def problem(self) -> str | None:
        """Why this process's node cannot be used."""
        if self.version != __version__:
            return f"has bgsoft {__version__}, not {self.version}"
        if self.inputs is None:
            return None
        if self.folder is None:
            return f"does not see the folder {self.marker.parent}, or may not write to it"
        unseen = next((path for path in self.inputs if not path.exists()), None)
        return None if unseen is None else f"does not see {unseen}"


class Worker:
    """The actor: a process on a node. Imports, CUDA contexts and models stay from task to task."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        # Ray shows the GPU that was reserved as the only one, and all of them where none was.
        self._gpu = 0 if import_module("ray").get_gpu_ids() else None
        if self._gpu is None:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        self._news: SimpleQueue[News] = SimpleQueue()
        self._answers: SimpleQueue[object] = SimpleQueue()
        self._cancel = threading.Event()
        self._thread: threading.Thread | None = None
        self._folder: Path | None = None

    def greet(self, pickled: bytes) -> str | None:
        """Why its node cannot be used."""
        wanted: Wanted = pickle.loads(pickled)
        self._folder = wanted.folder
        remove_abandoned()
        keep_warm()
        return wanted.problem()

    def begin(self, task_id: int, pickled: bytes) -> list[News]:
        """Begin a task, and wait for news of it."""
        self._news.put(Started(task_id, f"{socket.gethostname()}, pid {os.getpid()}"))
        self._thread = threading.Thread(target=self._perform, args=(task_id, pickled), daemon=True)
        self._thread.start()
        return self.news()

    def answer(self, answer: object) -> list[News]:
        """Let the task have what it asked for, and wait for more news of it."""
        self._answers.put(answer)
        return self.news()

    def news(self) -> list[News]:
        """Wait for news of the task."""
        news = [self._news.get()]
        while not self._news.empty():
            news.append(self._news.get())
        return news

    def cancel(self) -> None:
        """Have the task end; returns when it has, or has had the time."""
        self._cancel.set()
        self._answers.put(RenderCancelledError("interrupted"))
        if self._thread is not None:
            self._thread.join(LEAVE_SECONDS)

    def _perform(self, task_id: int, pickled: bytes) -> None:
        tell = thinned(lambda message: self._news.put(Told(task_id, message)))
        context = TaskContext(
            tell=tell,
            cancel=self._cancel,
            threads=self._threads,
            gpu=self._gpu,
            link=Link(self._ask, tell, self._folder),
        )
        finished = perform(task_id, pickled, context)
        if leaves(finished.error):
            self._news.put(Leaving())
        self._news.put(finished)

    def _ask(self, request: Request) -> object:
        if self._cancel.is_set():
            raise RenderCancelledError("interrupted")
        self._news.put(request)
        answer = self._answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer
