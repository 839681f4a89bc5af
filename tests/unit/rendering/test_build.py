"""What stages are built with."""

from __future__ import annotations

import pytest

from bgsoft.errors import BackendUnavailableError
from bgsoft.rendering.build import StageBuilder
from bgsoft.report import Event
from bgsoft.settings.config import (
    BackendConfig,
    CompositeBackend,
)
from tests.pictures import frame_format


@pytest.mark.parametrize(
    ("asked", "held", "slots"),
    [(None, 0, 8), (None, 8, 16), (4, 0, 4), (4, 8, 10), (16, 8, 16), (32, 8, 32)],
)
def test_the_ring_has_room_for_frames_that_are_held_back(
    asked: int | None, held: int, slots: int
) -> None:
    config = BackendConfig(ring_slots=asked, batch=1).on_cpu()
    builder = StageBuilder(config, lambda _event: None)
    assert builder.make_ring(frame_format((16, 8)), held).size == slots


@pytest.mark.parametrize(("threads", "frames"), [(1, 1), (3, 3), (64, 8)])
def test_frames_side_by_side_are_as_many_as_threads(threads: int, frames: int) -> None:
    config = BackendConfig(composite=CompositeBackend.CPU, threads=threads)
    assert StageBuilder(config, fail, alone=True).batch == frames


def fail(event: Event) -> None:
    raise AssertionError(event.message)


def test_a_render_looks_at_every_stage_first() -> None:
    config = BackendConfig(require_gpu=True).on_cpu()
    with pytest.raises(BackendUnavailableError, match="decode would run on the CPU"):
        StageBuilder(config, fail)
