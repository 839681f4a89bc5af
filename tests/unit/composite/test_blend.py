from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bgsoft.composite.background import CellsBackground, Hold
from bgsoft.composite.plan import CellsPlan
from bgsoft.frame import Frame, PixelLayout
from bgsoft.ops.placement import HOST
from tests.pictures import Array, cell_planes, chroma_alpha, copy_frame, frame_format, random_frame

LAYOUTS = (PixelLayout.NV12, PixelLayout.P010)


def tiled_alpha(shape: tuple[int, int], rng: np.random.Generator) -> Array:
    """All person, all background and mixed areas, of many sizes."""
    height, width = shape
    alpha = np.zeros(shape, np.uint8)
    for _ in range(6):
        y, x = rng.integers(0, height), rng.integers(0, width)
        h, w = rng.integers(1, height + 1), rng.integers(1, width + 1)
        kind = rng.integers(0, 4)
        area = alpha[y : y + h, x : x + w]
        if kind == 0:
            area[:] = rng.integers(0, 256, area.shape)
        else:
            area[:] = 255 if kind < 3 else 0
    return alpha


def reference(samples: Array, other: Array, alpha: Array) -> Array:
    share = alpha.astype(np.float64) / 255
    return samples.astype(np.float64) * share + other * (1 - share)


def blend(frame: Frame, alpha: Array, other: Frame) -> Frame:
    format, result = frame.format, copy_frame(frame)
    launch = HOST.operation("blend", "blend_plate", sample_bits=8 * format.bytes_per_sample)
    planes = result.luma, result.chroma, alpha
    launch(format.luma_shape, *planes, *format.luma_shape, other.luma, other.chroma)
    return result


@settings(deadline=None, max_examples=60)
@given(
    size=st.tuples(st.integers(1, 200), st.integers(1, 150)),
    layout=st.sampled_from(LAYOUTS),
    seed=st.integers(0, 2**32 - 1),
)
def test_blend_is_the_weighted_mean(size: tuple[int, int], layout: PixelLayout, seed: int) -> None:
    rng = np.random.default_rng(seed)
    format = frame_format(size, layout)
    frame, other = random_frame(format, rng), random_frame(format, rng)
    alpha = tiled_alpha(format.luma_shape, rng)
    result = blend(frame, alpha, other)

    code = 1 << format.shift
    # Two products, each rounded to a code at 8 bit; at 10 bit only their sum is.
    most = 1.0 if layout is PixelLayout.NV12 else (0.5 + 2 / 64) * code
    assert np.abs(result.luma - reference(frame.luma, other.luma, alpha)).max() <= most
    # The mean alpha is rounded too: half a step of 255, over the range of samples.
    most += 0.5 / 255 * np.ptp(np.array([0, ((1 << format.bit_depth) - 1) * code]))
    mean = chroma_alpha(alpha)[..., None]
    assert np.abs(result.chroma - reference(frame.chroma, other.chroma, mean)).max() <= most
    if layout is PixelLayout.P010:
        assert not (result.luma & 63).any()
        assert not (result.chroma & 63).any()

    assert np.array_equal(result.luma[alpha == 255], frame.luma[alpha == 255])
    assert np.array_equal(result.luma[alpha == 0], other.luma[alpha == 0])
    mean = chroma_alpha(alpha)
    assert np.array_equal(result.chroma[mean == 255], frame.chroma[mean == 255])
    assert np.array_equal(result.chroma[mean == 0], other.chroma[mean == 0])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_alpha_against_every_pair_of_extremes(layout: PixelLayout) -> None:
    format = frame_format((256, 4), layout)
    top = ((1 << format.bit_depth) - 1) << format.shift
    rng = np.random.default_rng(0)
    frame, other = random_frame(format, rng), random_frame(format, rng)
    frame.luma[:] = np.array([0, top, top, 0])[:, None]
    other.luma[:] = np.array([0, top, 0, top])[:, None]
    alpha = np.broadcast_to(np.arange(256, dtype=np.uint8), (4, 256)).copy()
    result = blend(frame, alpha, other)
    wanted = reference(frame.luma, other.luma, alpha)
    assert np.abs(result.luma - wanted).max() <= 1 << format.shift
    assert result.luma[:, 255].tolist() == frame.luma[:, 255].tolist()
    assert result.luma[:, 0].tolist() == other.luma[:, 0].tolist()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [(333, 130), (640, 131)])
@pytest.mark.parametrize("factor", [1 << log for log in range(9)])
def test_cells_of_any_size_are_enlarged_as_opencv_does(
    factor: int, size: tuple[int, int], layout: PixelLayout
) -> None:
    format = frame_format(size, layout)
    plan = CellsPlan(format, factor, max(2, factor))
    rng = np.random.default_rng(factor)
    background = CellsBackground(HOST, plan, Hold(HOST, plan), lambda _: lambda *_: None)
    cells = rng.integers(0, 60000, plan.count).astype(np.uint16)
    background.arguments[1][:] = cells
    frame, alpha = random_frame(format, rng), np.zeros(format.luma_shape, np.uint8)
    launch = HOST.operation("blend", background.kernel, sample_bits=8 * format.bytes_per_sample)
    planes = frame.luma, frame.chroma, alpha
    launch(format.luma_shape, *planes, *format.luma_shape, *background.arguments)

    scales = plan.scales[0], plan.scales[1], plan.scales[1]
    found = frame.luma, frame.chroma[..., 0], frame.chroma[..., 1]
    code = 1 << (16 - format.bit_depth)
    for plane, samples, scale in zip(cell_planes(plan, cells), found, scales, strict=True):
        rows, columns = samples.shape
        whole = plane.shape[1] * scale, plane.shape[0] * scale
        large = cv2.resize(plane.astype(np.float32), whole, interpolation=cv2.INTER_LINEAR)
        stored = samples.astype(np.float32) * (256 if format.bit_depth == 8 else 1)
        # A threshold of up to a code value is added, and what is below one is cut off.
        assert np.abs(stored - large[:rows, :columns]).max() <= code
