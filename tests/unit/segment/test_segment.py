from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from bgsoft.errors import InferenceError, ModelError
from bgsoft.frame import AnalysisFrame, ColorInfo, Frame, FrameFormat, PixelLayout, Planes
from bgsoft.infer.base import Network
from bgsoft.infer.drivers import LanesDriver
from bgsoft.models.catalog import ModelSpec
from bgsoft.segment.masks import channels
from bgsoft.segment.network import NetworkSegmenter
from bgsoft.segment.preprocess import Preprocessor, yuv_to_rgb_matrix
from bgsoft.threads import LanePool


def spec(**changes: object) -> ModelSpec:
    values: dict[str, object] = {
        "name": "fake",
        "family": "single-shot",
        "file": "fake.onnx",
        "input": "image",
        "output": "mask",
        "width": 16,
        "height": 8,
    }
    return ModelSpec(**{**values, **changes})  # type: ignore[arg-type]


def rgb_to_yuv_codes(
    rgb: tuple[float, float, float], kr: float, kb: float, depth: int, full: bool
) -> tuple[int, int, int]:
    """ITU-T H.273, equations for Y', Cb, Cr and their quantisation, written out."""
    r, g, b = rgb
    y = kr * r + (1 - kr - kb) * g + kb * b
    cb = (b - y) / (2 * (1 - kb))
    cr = (r - y) / (2 * (1 - kr))
    scale = 1 << (depth - 8)
    if full:
        peak = (1 << depth) - 1
        codes = (peak * y, peak * cb + (1 << (depth - 1)), peak * cr + (1 << (depth - 1)))
    else:
        codes = (scale * (219 * y + 16), scale * (224 * cb + 128), scale * (224 * cr + 128))
    return tuple(min((1 << depth) - 1, max(0, round(c))) for c in codes)  # type: ignore[return-value]


def flat(format: FrameFormat, codes: tuple[int, int, int], shape: tuple[int, int]) -> AnalysisFrame:
    y, cb, cr = (code << format.shift for code in codes)
    luma = np.full(shape, y, format.dtype)
    chroma = np.empty((*shape, 2), format.dtype)
    chroma[..., 0], chroma[..., 1] = cb, cr
    return AnalysisFrame(4, luma, chroma)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("columns", "rows"),
    [
        (210, 100),  # stretched
        (240, 100),
        (1024, 3),
    ],
)
def test_a_wide_picture_lies_between_bars(columns: int, rows: int, dtype: type) -> None:
    format = FrameFormat(width=2 * columns, height=2 * rows)
    ours = spec(checksum="of the catalogue", height=48, width=48, mean=(0.1, 0.2, 0.3))
    rng = np.random.default_rng(7)
    codes = rng.integers(16, 200, (rows, columns, 3), np.uint8)
    picture = AnalysisFrame(2, codes[..., 0].copy(), codes[..., 1:].copy())
    tensor = np.full((2, 3, 48, 48), np.nan, dtype)
    Preprocessor(ours, format).write(picture, tensor, 1)
    count = 48 if columns == 210 else max(1, round(48 * 16 / 9 * rows / columns))
    alone = np.empty((1, 3, count, 48), dtype)
    Preprocessor(replace(ours, height=count, checksum=None), format).write(picture, alone)
    first = (48 - count) // 2
    np.testing.assert_array_equal(tensor[1, :, first : first + count], alone[0])
    bars = np.delete(tensor[1], range(first, first + count), axis=1)
    black = np.reshape(dtype([-0.1, -0.2, -0.3]), (3, 1, 1))
    np.testing.assert_array_equal(bars, np.broadcast_to(black, bars.shape))
    assert np.isnan(tensor[0]).all()


@pytest.mark.parametrize("layout", list(PixelLayout))
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(("matrix", "kr", "kb"), [(1, 0.2126, 0.0722), (5, 0.299, 0.114)])
@pytest.mark.parametrize("rgb", [(1, 1, 1), (0, 0, 0), (0.9, 0.2, 0.1), (0.1, 0.3, 0.8)])
def test_preprocessing_recovers_rgb(
    layout: PixelLayout,
    full: bool,
    matrix: int,
    kr: float,
    kb: float,
    rgb: tuple[float, float, float],
) -> None:
    color = ColorInfo(matrix=matrix, full_range=full, range_specified=True)
    format = FrameFormat(width=192, height=108, layout=layout, color=color)
    codes = rgb_to_yuv_codes(rgb, kr, kb, format.bit_depth, full)
    tensor = np.full((3, 8, 16), np.nan, np.float32)
    Preprocessor(spec(), format).write(flat(format, codes, (27, 48)), tensor[None])
    # Two roundings: of the source's chroma codes and of the 8-bit RGB.
    np.testing.assert_allclose(
        tensor, np.broadcast_to(np.reshape(rgb, (3, 1, 1)), (3, 8, 16)), atol=0.012
    )


def test_normalisation_order_and_layout() -> None:
    format = FrameFormat(width=192, height=108, color=ColorInfo(matrix=1))
    codes = rgb_to_yuv_codes((0.9, 0.2, 0.1), 0.2126, 0.0722, 8, False)
    reduced = flat(format, codes, (27, 48))
    nhwc = np.empty((8, 16, 3), np.float32)
    changed = spec(layout="NHWC", color_order="bgr", mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 2.0))
    Preprocessor(changed, format).write(reduced, nhwc[None])
    expected = (np.array([0.1, 0.2, 0.9]) - [0.1, 0.2, 0.3]) / [0.5, 0.25, 2.0]
    np.testing.assert_allclose(nhwc, np.broadcast_to(expected, nhwc.shape), atol=0.05)


@pytest.mark.parametrize("layout", list(PixelLayout))
@pytest.mark.parametrize("order", ["NCHW", "NHWC"])
@pytest.mark.parametrize("divisor", ["255", "maximum"])
def test_every_sample_is_converted(layout: PixelLayout, order: str, divisor: str) -> None:
    color = ColorInfo(matrix=1, full_range=False, range_specified=True)
    format = FrameFormat(width=192, height=108, layout=layout, color=color)
    rng = np.random.default_rng(2)
    model = spec(
        width=17, height=5, layout=order, divide_by=divisor, mean=(0.1, 0.2, 0.3), std=(0.5, 1, 2)
    )
    codes = rng.integers(16, 200, (3, 5, 17))
    deep = codes << (8 if format.shift else 0)
    luma, chroma = deep[0].astype(format.dtype), np.stack(deep[1:], -1).astype(format.dtype)
    tensor = np.empty((3, 5, 17) if order == "NCHW" else (5, 17, 3), np.float32)
    Preprocessor(model, format).write(AnalysisFrame(4, luma, chroma), tensor[None])
    yuv = np.concatenate([codes, np.ones((1, 5, 17))])
    rgb = np.clip(np.tensordot(yuv_to_rgb_matrix(format), yuv, axes=1), 0, 255)
    most = 255 if divisor == "255" else np.floor(rgb.max() + 0.5)
    mean, std = (np.reshape(each, (3, 1, 1)) for each in (model.mean, model.std))
    found = tensor if order == "NCHW" else np.moveaxis(tensor, -1, 0)
    np.testing.assert_allclose((found * std + mean) * most, rgb, atol=0.6)


def test_the_inverse_matrix_is_the_inverse() -> None:
    format = FrameFormat(width=8, height=8, color=ColorInfo(matrix=9))
    kr, kb = 0.2627, 0.0593
    codes = [rgb_to_yuv_codes(rgb, kr, kb, 8, False) for rgb in np.eye(3)]
    rgb = yuv_to_rgb_matrix(format) @ np.vstack([np.array(codes).T, np.ones(3)])
    np.testing.assert_allclose(rgb, 255 * np.eye(3), atol=2.5)


class FakeNetwork(Network):
    provider = "fake"

    def __init__(self, inputs: dict[str, tuple[int, ...]], output: np.ndarray) -> None:
        self.inputs = {name: np.zeros(shape, np.float32) for name, shape in inputs.items()}
        self.outputs = {"mask": output.astype(np.float32)}
        self.fail = False

    def run(self) -> None:
        if self.fail:
            raise InferenceError("broken", stage="segment")

    def close(self) -> None:
        pass


FORMAT = FrameFormat(width=192, height=108)


def segment(
    raw: np.ndarray, *, fail: bool = False, told: list[str] | None = None, **changes: object
) -> np.ndarray:
    model, pool = spec(**changes), LanePool()
    network = FakeNetwork({model.input: model.input_shape(1)}, raw)
    network.fail = fail
    on_notice = [].append if told is None else told.append
    driver = LanesDriver([network], pool)
    segmenter = NetworkSegmenter(model, driver, FORMAT, pool, on_notice=on_notice)
    reduced = flat(FORMAT, (100, 128, 128), (27, 48))
    frame = Frame(Planes(0, reduced.luma, reduced.chroma, None), FORMAT, 0, 77, Fraction(1, 30))
    segmenter.masks([frame], [reduced])
    return segmenter.masks([frame], [reduced])[0]


@pytest.mark.parametrize("activation", ["none", "sigmoid"])
def test_a_model_without_numbers_is_reported_once(activation: str) -> None:
    told: list[str] = []
    raw = np.full((1, 1, 8, 16), np.nan)
    assert segment(raw, told=told, activation=activation).max() == 0
    assert told == [
        "the output of model fake has no finite number for the first frame: "
        "its mask is empty, or full"
    ]
    raw[0, 0, 3, 3] = 0
    segment(raw, told=told)
    assert len(told) == 1


def test_mask_is_clipped_and_free_of_nan() -> None:
    raw = np.full((1, 1, 8, 16), 0.5)
    raw[0, 0, 0, :4] = [np.nan, np.inf, -np.inf, 1.5]
    mask = segment(raw)
    assert mask.shape == (8, 16)
    assert mask.dtype == np.float32
    np.testing.assert_array_equal(mask[0, :4], [0, 1, 0, 1])


@pytest.mark.parametrize("shape", [(1, 2, 8, 16), (1, 8, 16, 2)])
def test_softmax_of_either_layout(shape: tuple[int, ...]) -> None:
    channel_axis = shape.index(2, 1)
    raw = np.zeros(shape)
    np.moveaxis(raw, channel_axis, 0)[1] = 2.0
    mask = segment(raw, output_channel=1, activation="softmax")
    np.testing.assert_allclose(mask, np.exp(2) / (1 + np.exp(2)), rtol=1e-6)


def test_sigmoid_of_extreme_logits_does_not_overflow() -> None:
    raw = np.zeros((1, 1, 8, 16))
    raw[0, 0, 0, :3] = [-800, 800, 1]
    mask = segment(raw, activation="sigmoid")
    np.testing.assert_allclose(mask[0, :4], [0, 1, 1 / (1 + np.exp(-1)), 0.5], atol=1e-6)


def test_a_wrong_output_is_a_model_error() -> None:
    with pytest.raises(ModelError, match="no output 'alpha'"):
        segment(np.zeros((1, 1, 8, 16)), output="alpha")
    with pytest.raises(ModelError, match="no output channel 3"):
        segment(np.zeros((1, 1, 8, 16)), output_channel=3)
    with pytest.raises(ModelError, match="softmax needs several channels"):
        segment(np.zeros((1, 1, 8, 16)), activation="softmax")


def test_a_failure_names_the_frame() -> None:
    with pytest.raises(InferenceError) as caught:
        segment(np.zeros((1, 1, 8, 16)), fail=True)
    assert caught.value.pts == 77


@pytest.mark.parametrize(
    ("layout", "shape", "seen"),
    [
        ("NCHW", (1, 21, 8, 16), (21, 8, 16)),
        ("NCHW", (1, 21, 4, 8), (21, 4, 8)),
        ("NHWC", (1, 21, 8, 16), (21, 8, 16)),
        ("NCHW", (1, 8, 16, 21), (21, 8, 16)),
        ("NHWC", (1, 8, 16, 2), (2, 8, 16)),
        ("NHWC", (1, 7, 15, 2), (2, 7, 15)),
        ("NCHW", (1, 2, 7, 15), (2, 7, 15)),
    ],
)
def test_channels_are_recognised_by_the_proportions_of_the_picture(
    layout: str, shape: tuple[int, ...], seen: tuple[int, ...]
) -> None:
    size = (1, 3, 8, 16) if layout == "NCHW" else (1, 8, 16, 3)
    network = FakeNetwork({"image": size}, np.zeros(shape))
    assert channels(network, spec(layout=layout)).shape == (1, *seen)
