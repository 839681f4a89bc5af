"""What a detector finds, hidden on the GPU and on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bgsoft
from tests.contract.test_render_detector import LAST, SOLID, assert_hidden, hidden, write_clip
from tests.detectors import write_detector

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("composite", ["cuda", "cpu"])
@pytest.mark.parametrize("settings", [{}, {"layout": "yolov5", "batch": "any", "half": True}])
def test_what_is_found_is_hidden_as_on_the_cpu(
    gpu: Any, tmp_path: Path, composite: str, settings: dict[str, Any]
) -> None:
    clip = write_clip(tmp_path / "in.mkv")
    common = {
        **SOLID,
        "encode": "cpu",
        "detector": write_detector(tmp_path / "own.onnx", **settings),
    }
    counts, places = [], []
    for infer, frames in (("cuda", composite), ("cpu", "cpu")):
        target = tmp_path / f"{infer}.mkv"
        report = bgsoft.render(clip, target, infer=infer, composite=frames, **common)
        assert report.stages["segment"].backend == infer
        assert report.detector is not None
        counts.append(report.detector["classes"])
        places.append(hidden(target, clip))
    assert counts[0] == counts[1]
    for number, (black, other) in enumerate(zip(*places, strict=True)):
        # Boxes may differ by a chroma sample, because inputs are rounded elsewhere.
        assert np.count_nonzero(black != other) <= 400
        if number < LAST:
            assert_hidden(black, number, 24)
