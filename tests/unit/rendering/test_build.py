"""Settings that stages are built with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bgsoft
from bgsoft.encode.cpu import open_encoder
from bgsoft.errors import BackendUnavailableError
from bgsoft.rendering import backends
from bgsoft.rendering.backends import Backend
from bgsoft.rendering.build import StageBuilder
from bgsoft.report import Event
from bgsoft.settings.config import BackendConfig, CompositeBackend
from tests.face_clips import write_small
from tests.pictures import frame_format


@pytest.mark.parametrize(
    ("asked", "held", "slots"),
    [(None, 0, 6), (None, 8, 14), (4, 0, 4), (4, 8, 10), (16, 8, 16), (32, 8, 32)],
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


encoded: list[str] = []


def open_toy_encoder(*args: Any) -> Any:
    encoder = open_encoder(*args)
    encoder.name = "toy"
    encoded.append(encoder.name)
    return encoder


def test_an_encoder_is_added_by_a_line_in_the_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = Backend(f"{__name__}:open_toy_encoder", encodes_matte_out=True)
    monkeypatch.setitem(backends.REGISTRY, "encode", {"toy": toy, "cpu": toy})
    monkeypatch.setattr(backends, "driver_problem", lambda _gpu: "no NVIDIA GPU found")
    matte = tmp_path / "matte.mkv"
    clip = write_small(tmp_path / "in.mp4", 6)
    report = bgsoft.render(clip, tmp_path / "out.mkv", matte_out=matte)
    assert encoded == ["toy", "toy"]
    assert report.stages["encode"].backend == "toy"
    assert report.frames_encoded > 0


@pytest.mark.parametrize("stage", ["decode", "composite", "encode"])
def test_the_cpu_needs_nothing_that_a_gpu_needs(stage: str) -> None:
    assert callable(backends.maker(stage, "cpu"))
    assert [backends.on_gpu(stage, name) for name in backends.names(stage)] == [True, False]
