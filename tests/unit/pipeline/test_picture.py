"""The loop over batches, in a render."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import bgsoft
from bgsoft.analysis.reduce import Reducer
from bgsoft.face.step import FaceStep
from bgsoft.frame import AnalysisFrame, Frame
from tests.face_clips import SAMPLE

SECONDS = 20.0


def test_nobody_waits_for_faces_while_there_are_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reduce, look_at = Reducer.reduce, FaceStep.look_at
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
        look_at(self, *args)

    monkeypatch.setattr(Reducer, "reduce", reducing)
    monkeypatch.setattr(FaceStep, "look_at", looking)
    report = bgsoft.render(SAMPLE, tmp_path / "out.mp4", batch=2, duration=0.2, infer="cpu")
    assert waited == [True] * len(batches)
    assert report.frames_encoded == sum(batches)
