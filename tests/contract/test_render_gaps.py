"""Small holes in a person over green: the model is sure of one hole only."""

from __future__ import annotations

from pathlib import Path

import av
import cv2
import numpy as np
import pytest
from onnx import helper

import bgsoft
from tests.outside_models import save_network
from tests.synthetic import write_frames

SIDECAR = """\
family = "single-shot"
[input]
name = "x"
width = 160
height = 90
[[outputs]]
name = "y"
"""
GAP, DOUBT = (140, 120), (180, 120)
"""(x, y) of the two holes."""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model that returns the picture's grey as the mask."""
    mean = helper.make_node("ReduceMean", ["x"], ["y"], axes=[1], keepdims=1)
    shapes = {"x": (1, 3, 90, 160), "y": (1, 1, 90, 160)}
    path = save_network(tmp_path / "grey.onnx", [mean], shapes)
    path.with_suffix(".toml").write_text(SIDECAR)
    return path


@pytest.mark.parametrize("preset", ["green", "privacy"])
def test_a_gap_is_open_and_a_doubt_is_filled(model: Path, preset: str, tmp_path: Path) -> None:
    picture = np.zeros((180, 320, 3), np.uint8)
    cv2.ellipse(picture, (160, 120), (80, 100), 0, 0, 360, (255, 255, 255), -1)
    cv2.circle(picture, GAP, 4, (0, 0, 0), -1)
    cv2.circle(picture, DOUBT, 4, (118, 118, 118), -1)
    clip, out = tmp_path / "in.mkv", tmp_path / "out.mkv"
    write_frames(clip, [picture])
    look = {"effect": "color", "background": "#00ff00", "codec": "ffv1"}
    bgsoft.render(clip, out, preset=preset, model=model, **look)
    with av.open(str(out)) as container:
        made = next(container.decode(video=0)).to_ndarray(format="rgb24")
    gap, doubt = (made[y, x].astype(int) for x, y in (GAP, DOUBT))
    assert gap[1] > 200 > 60 > gap[0]
    assert np.ptp(doubt) < 12
