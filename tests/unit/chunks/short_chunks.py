"""Renders in chunks in this process; refreshes are so close that short clips have several."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bgsoft.chunks import plan
from bgsoft.chunks.folder import WorkFolder
from bgsoft.chunks.prepare import ChunkedRender, WholeRender, prepare
from bgsoft.chunks.renders import Renders
from bgsoft.closing import Closing
from bgsoft.jobs.driver import Driver
from bgsoft.jobs.task import Finished, Message, Started, Task, TaskContext, Update
from bgsoft.pipeline import picture
from bgsoft.rendering.configure import build_config
from bgsoft.rendering.request import Request
from bgsoft.report import RenderReport
from bgsoft.settings.config import RenderConfig
from bgsoft.settings.options import settings_from_options

REFRESH_INTERVAL, BACKGROUND_REFRESH_OFFSET = 16, 8


@pytest.fixture
def _short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (plan, picture):
        monkeypatch.setattr(module, "REFRESH_INTERVAL", REFRESH_INTERVAL)
        monkeypatch.setattr(module, "BACKGROUND_REFRESH_OFFSET", BACKGROUND_REFRESH_OFFSET)


def settings(
    source: Path, target: Path, *, preset: str | None = None, **given: Any
) -> RenderConfig:
    """The settings of a render, by keywords as :func:`bgsoft.render` takes them."""
    flags = settings_from_options(given, from_text=False)
    return build_config(source, target, preset=preset, flags=flags)


def context(
    send: Callable[[object], None] = lambda _message: None, cancel: threading.Event | None = None
) -> TaskContext:
    return TaskContext(send=send, cancel=cancel or threading.Event(), threads=2, gpu=None)


def plan_for(
    config: RenderConfig, workers: int | None = 2, cancel: threading.Event | None = None
) -> ChunkedRender | WholeRender:
    request = Request(config)
    request.check()
    return prepare(request, WorkFolder(config.output), workers, cancel)


def planned(config: RenderConfig) -> ChunkedRender:
    found = plan_for(config)
    assert isinstance(found, ChunkedRender), found
    return found


class Here(Closing):
    """An executor that runs tasks in this process, one at each poll."""

    def __init__(self, cancel: threading.Event | None = None) -> None:
        self._cancel = cancel
        self._tasks: list[Task] = []
        self._done = 0

    @property
    def idle(self) -> int:
        return 99

    @property
    def is_busy(self) -> bool:
        """Whether a task waits for its poll."""
        return self._done < len(self._tasks)

    def start(self) -> None:
        """It has none to start."""

    def submit(self, task: Task) -> int:
        self._tasks.append(task)
        return len(self._tasks) - 1

    def poll(self, timeout: float) -> list[Update]:
        if not self.is_busy:
            time.sleep(0.01)
            return []
        task_id, self._done = self._done, self._done + 1
        told: list[Update] = []
        given = context(lambda message: told.append(Message(task_id, message)), self._cancel)
        try:
            end = Finished(task_id, self._tasks[task_id].run(given))
        except Exception as exc:
            end = Finished(task_id, error=exc)
        return [Started(task_id, "here"), *told, end]

    def kill(self, task_id: int, reason: str) -> None:
        """Kill processes, and wait for their end."""

    def close(self) -> None:
        """Likewise."""


def joined(plan: ChunkedRender, told: list[object] | None = None) -> RenderReport:
    """Render the chunks, and join them; gives the report."""
    with Renders(Driver(Here())) as renders:
        renders.submit(plan.request.config, plan)
        while True:
            for update in renders.poll(1.0):
                if isinstance(update, Message) and told is not None:
                    told.append(update.content)
                elif isinstance(update, Finished):
                    if update.error is not None:
                        raise update.error
                    assert isinstance(update.result, RenderReport), update.result
                    return update.result


def render_in_chunks(config: RenderConfig) -> RenderReport:
    """The whole of it; the settings say in how many chunks."""
    return joined(planned(config))


def reason(config: RenderConfig) -> str:
    """Why a video is rendered whole."""
    found = plan_for(config)
    assert isinstance(found, WholeRender)
    return found.notices[0].message


def with_output(config: RenderConfig, output: Path) -> RenderConfig:
    return dataclasses.replace(config, output=output)
