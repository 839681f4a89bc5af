"""Renders in parts in this process, with renewals so close that short clips have several parts."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bgsoft.chunks import plan
from bgsoft.chunks.run import Plan, Whole, plan_render
from bgsoft.jobs.task import Followup, Task, TaskContext
from bgsoft.pipeline import picture
from bgsoft.rendering.configure import build_config
from bgsoft.report import RenderReport
from bgsoft.settings.config import RenderConfig
from bgsoft.settings.options import settings_from_options

RENEWAL, BACKGROUND_RENEWAL = 16, 8


@pytest.fixture
def _short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (plan, picture):
        monkeypatch.setattr(module, "RENEWAL", RENEWAL)
        monkeypatch.setattr(module, "BACKGROUND_RENEWAL", BACKGROUND_RENEWAL)


def settings(
    source: Path, target: Path, *, preset: str | None = None, **given: Any
) -> RenderConfig:
    """The settings of a render, by keywords as :func:`bgsoft.render` takes them."""
    flags = settings_from_options(given, from_text=False)
    return build_config(source, target, preset=preset, flags=flags)


def context(tell: Callable[[object], None] = lambda _message: None) -> TaskContext:
    return TaskContext(tell=tell, cancel=threading.Event(), threads=2, gpu=None)


def planned(config: RenderConfig) -> Followup:
    """The tasks of a render that is divided."""
    found = plan_render(config, 2)
    assert isinstance(found, Plan), found
    return found.followup()


def joined(followup: Followup, given: TaskContext | None = None) -> RenderReport:
    """Run the tasks one after the other, then the last; gives the report."""
    given = given or context()
    result: object = followup
    while isinstance(result, Followup):
        results: list[object] = [task.run(given) for task in result.tasks]
        last: Task = result.last.with_results(results)
        result = last.run(given)
    assert isinstance(result, RenderReport), result
    return result


def render_in_parts(config: RenderConfig) -> RenderReport:
    """The whole of it; the settings say in how many parts."""
    return joined(planned(config))


def reason(config: RenderConfig) -> str:
    """Why a video is rendered whole."""
    found = plan_render(config, 2)
    assert isinstance(found, Whole)
    return found.notices[0].message


def with_output(config: RenderConfig, output: Path) -> RenderConfig:
    return dataclasses.replace(config, output=output)
