"""Streams that share networks on a device get the results of a stream alone."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from bgsoft.diagnose.parity import MATTE
from bgsoft.infer.shared import ModelUser, SharedModels, SharedNetwork
from bgsoft.live.cameras import CameraConfig
from bgsoft.live.settings import picture_config
from bgsoft.live.source import LIVE_TICKS
from bgsoft.live.stages import LiveStages
from bgsoft.media.probe import probe
from bgsoft.pipeline.metrics import Metrics
from bgsoft.rendering.build import StageBuilder
from bgsoft.settings.backends import CompositeBackend, InferBackend
from bgsoft.settings.config import FaceMode
from bgsoft.settings.presets import Layer
from tests.contract.test_live import Live
from tests.face_clips import SAMPLE
from tests.outside import shown_by_ffmpeg

pytestmark = pytest.mark.gpu

FRAMES = 12
INFO = replace(probe(SAMPLE), time_base=Fraction(1, LIVE_TICKS), start_pts=0)
Made = list[tuple[Any, Any]]


def pictures(first: int) -> list[av.VideoFrame]:
    with av.open(str(SAMPLE)) as container:
        frames = list(container.decode(video=0))
    return frames[first : first + FRAMES]


def run(
    models: SharedModels,
    shown: Sequence[av.VideoFrame],
    preset: str,
    composite: str,
    made: Made,
    together: threading.Barrier,
) -> None:
    """One stream, in the calling thread; its networks are used until all are done."""
    flags: Layer = {
        "backends": {"infer": InferBackend.CUDA, "composite": CompositeBackend(composite)},
        "face": {"mode": FaceMode.GUARD},
    }
    config = picture_config(preset, flags)
    builder = StageBuilder(config.backends, lambda _event: None, user=ModelUser(models))
    with LiveStages(builder, config, INFO, Metrics()) as stages:
        stages.start()
        together.wait(120)
        for index, picture in enumerate(shown):
            with builder.working():
                frame = stages.process(picture, index)
                made.append((frame.luma.copy(), frame.planes.alpha.copy()))
        together.wait(120)
    builder.close()


@pytest.mark.parametrize("preset", ["fast", "soft"])
@pytest.mark.parametrize("composite", ["cuda", "cpu"])
def test_three_streams_at_once(
    gpu: Any, monkeypatch: pytest.MonkeyPatch, preset: str, composite: str
) -> None:
    loaded: list[object] = []
    init = SharedNetwork.__init__

    def counted(self: SharedNetwork, *args: Any) -> None:
        loaded.append(self)
        init(self, *args, deadline_seconds=0.05)

    runs: list[int] = []
    run_at_once = SharedNetwork._run

    def measured(self: SharedNetwork, asked: list[Any]) -> None:
        runs.append(len(asked))
        run_at_once(self, asked)

    monkeypatch.setattr(SharedNetwork, "__init__", counted)
    monkeypatch.setattr(SharedNetwork, "_run", measured)
    clips = [pictures(first) for first in (0, 10, 20)]
    alone: list[Made] = [[], [], []]
    for shown, made in zip(clips, alone, strict=True):
        run(SharedModels(), shown, preset, composite, made, threading.Barrier(1))
    assert not loaded
    models = SharedModels(len(clips))
    shared: list[Made] = [[], [], []]
    together = threading.Barrier(len(clips))
    threads = [
        threading.Thread(target=run, args=(models, shown, preset, composite, made, together))
        for shown, made in zip(clips, shared, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert 0 < len(loaded) == len(models._shared)
    assert max(runs) > 1
    for ours, theirs in zip(shared, alone, strict=True):
        assert len(ours) == FRAMES
        for (luma, alpha), (other_luma, other_alpha) in zip(ours, theirs, strict=True):
            assert MATTE.allows(np.abs(alpha.astype(int) - other_alpha))
            assert np.abs(luma.astype(int) - other_luma).mean() < 0.2


def test_eight_live_sources(gpu: Any, tmp_path: Path) -> None:
    """No source waits for another; every frame is shown, and every output is complete."""
    names = [f"source{number}" for number in range(8)]
    cameras = [
        CameraConfig(name=name, source=str(SAMPLE), to=(str(tmp_path / f"{name}.ts"),), loop=True)
        for name in names
    ]
    flags: Layer = {"backends": {"infer": InferBackend.CUDA, "composite": CompositeBackend.CUDA}}
    shown: dict[str, int] = dict.fromkeys(names, 0)
    live = Live(*cameras, flags=flags)
    live.until(lambda: bool(live.stats) and len(live.stats) >= 2 * len(names))
    live.end()
    assert live.failures == []
    for figures in live.stats:
        shown[figures["source"]] = figures["frames_out"]
        assert figures["frames_in"] >= figures["frames_out"] + figures["dropped"]
    assert min(shown.values()) > 0
    for name in names:
        assert len(shown_by_ffmpeg(tmp_path / f"{name}.ts")) > 0
