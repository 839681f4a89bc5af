"""The loop over batches, in a render."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import bgsoft
from bgsoft.analysis.reduce import Reducer
from bgsoft.analysis.scenes import LumaProbe
from bgsoft.face.step import FaceStep
from bgsoft.frame import AnalysisFrame, Frame
from bgsoft.pipeline.picture import Execution
from tests.face_clips import SAMPLE, write_small
from tests.outside import ffmpeg
from tests.rendering import LOSSLESS

SECONDS = 20.0


def test_nobody_waits_for_faces_while_there_are_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reduce, inspect = Reducer.reduce, FaceStep.inspect
    batches: list[int] = []
    goes_on = threading.Event()
    waited: list[bool] = []

    def reducing(self: Reducer, frames: Sequence[Frame]) -> list[AnalysisFrame]:
        batches.append(len(frames))
        if len(batches) > 1:
            goes_on.set()
        return reduce(self, frames)

    def looking(self: FaceStep, *args: Any) -> None:
        waited.append(goes_on.wait(SECONDS))
        inspect(self, *args)

    monkeypatch.setattr(Reducer, "reduce", reducing)
    monkeypatch.setattr(FaceStep, "inspect", looking)
    report = bgsoft.render(SAMPLE, tmp_path / "out.mp4", batch=2, duration=0.2, infer="cpu")
    assert waited == [True] * len(batches)
    assert report.frames_encoded == sum(batches)


def test_what_is_segmented_ahead_waits_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scenes begin within batches, and have masks of their own."""
    cuts = LumaProbe.cuts
    seen = 0

    def cutting(self: LumaProbe, reduced: Sequence[AnalysisFrame]) -> list[bool]:
        nonlocal seen
        cuts(self, reduced)
        at = range(seen, seen + len(reduced))
        seen += len(reduced)
        return [index % 7 == 5 for index in at]

    monkeypatch.setattr(LumaProbe, "cuts", cutting)
    frames = []
    clip = write_small(tmp_path / "in.mp4", 18)
    for ahead in (1, 0):
        monkeypatch.setattr(Execution, "ahead", ahead)
        seen, target = 0, tmp_path / f"{ahead}.mkv"
        bgsoft.render(clip, target, batch=4, infer="cpu", **LOSSLESS)
        assert seen > 15
        frames.append(ffmpeg("-i", target, "-map", "0:v", "-f", "framemd5", "-"))
    assert frames[0] == frames[1]
    assert frames[0].count("\n") > 15
