"""The model's input as the GPU makes it against the CPU's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bgsoft.analysis.reduce import Reducer
from bgsoft.diagnose.parity import TENSOR
from bgsoft.frame import PixelLayout
from bgsoft.models.catalog import ModelSpec
from bgsoft.ops.placement import current_device
from bgsoft.segment.preprocess import Preprocessor
from tests.gpu.device_frames import grid_on_device
from tests.gpu.tolerances import TENSOR_8_BITS
from tests.pictures import frame_format, random_frame

pytestmark = pytest.mark.gpu

STD = (0.5, 0.25, 1.0)


def spec(height: int, width: int, layout: str = "NCHW", color_order: str = "rgb") -> ModelSpec:
    return ModelSpec(
        name="fake",
        family="single-shot",
        file="fake.onnx",
        input="image",
        output="mask",
        height=height,
        width=width,
        layout=layout,
        color_order=color_order,
        mean=(0.5, 0.4, 0.3),
        std=STD,
    )


@pytest.mark.parametrize("full_range", [False, True])
@pytest.mark.parametrize("pixels", list(PixelLayout))
@pytest.mark.parametrize("order", ["rgb", "bgr"])
@pytest.mark.parametrize("model_layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    ("size", "shape"),
    [
        ((641, 359), (256, 256)),  # factor 1: chroma is half the grid's size
        ((1920, 1080), (256, 256)),  # bilinear
        ((2048, 1152), (144, 256)),  # exactly one half each way
        ((1026, 770), (31, 53)),  # averages over parts of samples
        ((1024, 1024), (32, 32)),  # averages over whole samples
        ((3, 2), (8, 16)),
        ((1, 1), (5, 7)),
    ],
)
def test_the_tensor_is_the_same(
    gpu: Any,
    size: tuple[int, int],
    shape: tuple[int, int],
    model_layout: str,
    order: str,
    pixels: PixelLayout,
    full_range: bool,
) -> None:
    import cupy

    format = frame_format(size, pixels, full_range=full_range)
    reduced = Reducer(format).reduce([random_frame(format, np.random.default_rng(21))])[0]
    model = spec(*shape, model_layout, order)
    item = (3, *shape) if model_layout == "NCHW" else (*shape, 3)
    expected = np.empty(item, np.float32)
    Preprocessor(model, format).write(reduced, expected[None])
    preprocessor = Preprocessor(model, format, current_device())
    std = np.array(STD).reshape((3, 1, 1) if model_layout == "NCHW" else 3)
    for dtype in ("float32", "float16"):
        tensor = cupy.full((2, *item), 9, dtype)
        preprocessor.write(grid_on_device(reduced), tensor, 1)
        assert (tensor[0].get() == 9).all()
        codes = np.abs(tensor[1].get().astype(np.float32) - expected) * std * 255
        # A half has eleven bits: at most 1/8 of a code here.
        assert (TENSOR_8_BITS if pixels is PixelLayout.NV12 else TENSOR).allows(codes)


def test_a_wide_picture_lies_between_bars(gpu: Any) -> None:
    import cupy

    format = frame_format((1920, 800))
    reduced = Reducer(format).reduce([random_frame(format, np.random.default_rng(3))])[0]
    model = replace(spec(256, 256), checksum="of the catalogue")
    expected = np.empty((1, 3, 256, 256), np.float32)
    Preprocessor(model, format).write(reduced, expected)
    assert np.ptp(expected[0, :, 0], axis=1).max() == 0
    for dtype in ("float32", "float16"):
        tensor = cupy.full(expected.shape, 9, dtype)
        Preprocessor(model, format, current_device()).write(grid_on_device(reduced), tensor)
        codes = np.abs(tensor.get().astype(np.float32) - expected)[0] * np.reshape(STD, (3, 1, 1))
        assert TENSOR_8_BITS.allows(codes * 255)


def test_other_tensors_are_refused(gpu: Any) -> None:
    import cupy

    format = frame_format((64, 48))
    reduced = Reducer(format).reduce([random_frame(format, np.random.default_rng(1))])[0]
    preprocessor = Preprocessor(spec(8, 16), format, current_device())
    grid = grid_on_device(reduced)
    for tensor, index in (
        (cupy.empty((2, 3, 8, 16), np.float64), 0),
        (cupy.empty((2, 3, 16, 8), np.float32), 0),
        (cupy.empty((2, 3, 8, 16), np.float32), 2),
    ):
        with pytest.raises(ValueError, match=r"\(3, 8, 16\)"):
            preprocessor.write(grid, tensor, index)
