"""The recipe of CONTRIBUTING for a family of models: its properties, and code if it needs any."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import bgsoft
from bgsoft.errors import ConfigError, ModelError
from bgsoft.frame import AnalysisFrame, Array, FrameFormat
from bgsoft.models.catalog import ModelSpec, resolve
from bgsoft.models.families import FAMILIES, Family
from bgsoft.ops.placement import Placement
from bgsoft.segment.families import PROCESSING, Processing
from tests.marks import crossed
from tests.outside_models import masks_of, save_network
from tests.pictures import flat_frame, frame_format
from tests.synthetic import VideoSpec, regular_times, write_video

Axes = tuple[int | str, ...]


@pytest.fixture(autouse=True)
def whole_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES, "whole", Family(makes_masks=True, takes_frame=True))  # type: ignore[arg-type]
    monkeypatch.setattr("bgsoft.models.catalog.SEGMENTATION_FAMILIES", ("whole",))


def write_whole(folder: Path, axes: Axes, channels: int = 3, keys: str = "") -> Path:
    """Write a model that returns the mean of the input's channels, at half the input's size."""
    shapes = {"image": ("n", channels, *axes), "mask": ("n", 1, None, None)}
    nodes = [
        helper.make_node("ReduceMean", ["image"], ["grey"], axes=[1], keepdims=1),
        helper.make_node(
            "AveragePool", ["grey"], ["mask"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1
        ),
    ]
    path = save_network(folder / "own.onnx", nodes, shapes)
    path.with_suffix(".toml").write_text(f'family = "whole"\n{keys}')
    return path


@crossed(size=[(64, 48), (33, 21), (641, 359)], frames=[1, 3])
def test_a_family_may_take_the_frame_as_it_is(
    size: tuple[int, int], frames: int, tmp_path: Path
) -> None:
    model = resolve(str(write_whole(tmp_path, ("h", "w"))))
    masks = masks_of(model, [flat_frame(frame_format(size), 16 + 219 // 2, 128, 128)] * frames)
    assert len(masks) == frames
    for mask in masks:
        assert mask.shape == ((size[1] + 1) // 2, (size[0] + 1) // 2)
        np.testing.assert_allclose(mask, 0.5, atol=0.005)


def test_a_file_may_fix_the_size_of_the_frame(tmp_path: Path) -> None:
    model = resolve(str(write_whole(tmp_path, (48, 64))))
    masks_of(model, [flat_frame(frame_format((64, 48)), 200, 128, 128)])
    with pytest.raises(ModelError, match="takes only frames of 64x48, not 48x64"):
        masks_of(model, [flat_frame(frame_format((48, 64)), 200, 128, 128)])


def test_a_sidecar_states_no_size(tmp_path: Path) -> None:
    path = write_whole(tmp_path, ("h", "w"), keys="[input]\nwidth = 192\n")
    with pytest.raises(ConfigError, match="whole models take frames of any size"):
        resolve(str(path))


class LumaOnly:
    """Writes the luma of pictures, 0 to 1, into an input of one channel."""

    def __init__(self, spec: ModelSpec, format: FrameFormat, placement: Placement) -> None:
        self._shape = spec.height, spec.width

    def write(self, picture: AnalysisFrame, tensor: Array, index: int = 0) -> None:
        assert picture.luma.shape == self._shape
        tensor[index, 0] = picture.luma / np.float32(255)


def inverted(placement: Placement, raw: Array, spec: ModelSpec, masks: Array) -> None:
    masks[...] = 1 - raw[:, 0]


def test_a_family_may_bring_its_own_processing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = Family(makes_masks=True, takes_frame=True, channels=1)
    monkeypatch.setitem(FAMILIES, "whole", family)  # type: ignore[arg-type]
    code = Processing(preprocessor=LumaOnly, to_masks=inverted)
    monkeypatch.setitem(PROCESSING, "whole", code)  # type: ignore[arg-type]
    model = resolve(str(write_whole(tmp_path, ("h", "w"), channels=1)))
    (mask,) = masks_of(model, [flat_frame(frame_format((64, 48)), 51, 128, 128)])
    np.testing.assert_allclose(mask, 0.8, atol=1e-6)


def test_such_a_model_renders(tmp_path: Path) -> None:
    path = write_whole(tmp_path, ("h", "w"))
    clip = write_video(tmp_path / "in.mp4", VideoSpec(times=regular_times(3)))
    report = bgsoft.render(clip, tmp_path / "out.mp4", model=str(path), infer="cpu")
    assert report.frames_encoded == 3
