from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bgsoft.analysis.base import analysis_factor, analysis_shape
from bgsoft.analysis.reduce import AreaReducer, Reducer
from bgsoft.frame import PixelLayout
from tests.pictures import SIZES, Array, flat_frame, frame_format, make_frame, random_frame

LAYOUTS = (PixelLayout.NV12, PixelLayout.P010)


def cell_means(plane: Array, factor: int) -> Array:
    """Mean of the samples in each cell; cells at the edges have fewer."""
    sums, samples = plane.astype(np.int64), np.ones(plane.shape, np.int64)
    for axis, length in enumerate(plane.shape):
        starts = np.arange(0, length, factor)
        sums = np.add.reduceat(sums, starts, axis)
        samples = np.add.reduceat(samples, starts, axis)
    means: Array = sums / samples
    return means


@settings(deadline=None, max_examples=60)
@given(
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    factor=st.sampled_from([1, 2, 4, 8, 16]),
    dtype=st.sampled_from(["uint8", "uint16"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_cells_are_means(height: int, width: int, factor: int, dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    plane = rng.integers(0, np.iinfo(dtype).max, (height, width), endpoint=True).astype(dtype)
    reducer = AreaReducer((height, width), factor, bits=8 * np.dtype(dtype).itemsize)
    out = np.empty(reducer.shape, dtype)
    reducer.reduce(plane, out)
    error = out.astype(float) - cell_means(plane, factor)
    halvings = factor.bit_length() - 1
    assert error.max() <= max(0.5 * halvings, 0.5)
    assert error.min() >= -max(0.25 * halvings, 0.5)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [*SIZES, (1025, 769), (2050, 1027)])
def test_reducer_covers_the_frame(size: tuple[int, int], layout: PixelLayout) -> None:
    format = frame_format(size, layout)
    frame = random_frame(format, np.random.default_rng(1))
    reduced = Reducer(format).reduce([frame])[0]
    factor = analysis_factor(*size)
    assert reduced.factor == factor
    assert reduced.luma.shape == analysis_shape(*size)
    halvings = factor.bit_length() - 1
    assert np.abs(reduced.luma - cell_means(frame.luma, factor)).max() <= max(0.5 * halvings, 0.5)
    if factor == 1:
        assert np.array_equal(reduced.chroma, frame.chroma)
        return
    assert reduced.chroma.shape == (*analysis_shape(*size), 2)
    for channel in range(2):
        means = cell_means(frame.chroma[..., channel], factor // 2)
        assert np.abs(reduced.chroma[..., channel] - means).max() <= max(0.5 * halvings, 0.5)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", SIZES)
def test_one_colour_stays_that_colour(size: tuple[int, int], layout: PixelLayout) -> None:
    format = frame_format(size, layout)
    frame = flat_frame(format, 77, 90, 201)
    reduced = Reducer(format).reduce([frame])[0]
    assert (reduced.luma == frame.luma[0, 0]).all()
    assert (reduced.chroma == frame.chroma[0, 0]).all()


def test_the_grid_survives_compositing_of_the_frame() -> None:
    format = frame_format((40, 30))  # factor 1: the grid is as large as the frame
    frame = flat_frame(format, 50, 60, 70)
    reduced = Reducer(format).reduce([frame])[0]
    frame.luma[:], frame.chroma[:] = 0, 0
    assert (reduced.luma == 50).all()
    assert (reduced.chroma == (60, 70)).all()


@pytest.mark.parametrize(
    ("size", "factors"),
    [
        ((480, 300), (1, 1)),
        ((640, 360), (2, 1)),
        ((1280, 720), (4, 2)),
        ((1920, 1080), (4, 4)),
        ((2560, 1440), (8, 4)),
        ((3840, 2160), (8, 8)),
    ],
)
def test_networks_see_enough(size: tuple[int, int], factors: tuple[int, int]) -> None:
    format = frame_format(size)
    frame = random_frame(format, np.random.default_rng(1))
    reduced = Reducer(format).reduce([frame])[0]
    seen = reduced.detail or reduced
    assert (reduced.factor, seen.factor) == factors
    assert seen.luma.shape == analysis_shape(*size, seen.factor)
    cells = cell_means(seen.luma, reduced.factor // seen.factor)
    assert np.abs(reduced.luma - cells).max() <= 2


@pytest.mark.parametrize("size", [(1281, 719), (1280, 720), (1001, 1027), (2051, 1283)])
def test_frames_of_the_batch_before_are_kept(size: tuple[int, int]) -> None:
    """Everything derived from a frame stays valid while the next batch is reduced."""
    format = frame_format(size)
    reducer = Reducer(format)
    frame, other = (random_frame(format, np.random.default_rng(seed)) for seed in (1, 2))
    (reduced,) = reducer.reduce([frame])
    reducer.reduce([other])
    assert reduced.halved is not None
    assert np.abs(reduced.halved - cell_means(frame.luma, 2)).max() <= 0.5
    for grid in (reduced, reduced.detail or reduced):
        error = np.abs(grid.luma - cell_means(frame.luma, grid.factor))
        assert error.max() <= 0.5 * (grid.factor.bit_length() - 1)


def test_another_format_is_refused() -> None:
    format = frame_format((64, 48))
    other = frame_format((64, 48), PixelLayout.P010)
    frame = flat_frame(other, 1, 2, 3)
    with pytest.raises(ValueError, match="uint16"):
        Reducer(format).reduce([frame])
    small = flat_frame(frame_format((62, 48)), 1, 2, 3)
    with pytest.raises(ValueError, match=r"\(48, 62\)"):
        Reducer(format).reduce([make_frame(format, small.luma, small.chroma)])


@pytest.mark.parametrize("factor", [0, 3, -2, 128])
def test_factors_are_powers_of_two(factor: int) -> None:
    with pytest.raises(ValueError, match="power of two"):
        AreaReducer((8, 8), factor)
