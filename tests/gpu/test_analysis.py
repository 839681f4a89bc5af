"""The analysis frame and the scene probe on a GPU against those on the CPU."""

from __future__ import annotations

import math
from typing import Any

import cv2
import numpy as np
import pytest

from bgsoft.analysis.reduce import Reducer
from bgsoft.analysis.scenes import THUMB_SHAPE, LumaProbe
from bgsoft.frame import PixelLayout
from bgsoft.ops.placement import current_device
from tests.gpu.device_frames import frame_on_device, grid_on_device
from tests.pictures import SIZES, flat_frame, frame_format, random_frame

pytestmark = pytest.mark.gpu

GRID_SIZES = (
    *SIZES,
    (1026, 1030),
    (1279, 719),
    (1023, 1025),
    (2050, 1027),
    (2051, 2053),
    (1920, 1080),
    (4096, 2160),
    (8195, 4099),
)
"""Grid factors 1 to 16, with one, two and three samples left over at the edges."""


@pytest.mark.parametrize("layout", list(PixelLayout))
@pytest.mark.parametrize("size", GRID_SIZES)
def test_the_grid_is_the_same(gpu: Any, size: tuple[int, int], layout: PixelLayout) -> None:
    format = frame_format(size, layout)
    frame = random_frame(format, np.random.default_rng(11))
    expected = Reducer(format).reduce([frame])[0]
    for made in Reducer(format, placement=current_device(), batch=2).reduce(
        [frame_on_device(frame)] * 2
    ):
        for result, wanted in (
            (made, expected),
            (made.detail or made, expected.detail or expected),
        ):
            assert result.factor == wanted.factor
            np.testing.assert_array_equal(result.luma.get(), wanted.luma)
            np.testing.assert_array_equal(result.chroma.get(), wanted.chroma)


def test_another_format_is_refused(gpu: Any) -> None:
    frame = frame_on_device(flat_frame(frame_format((64, 48), PixelLayout.P010), 1, 2, 3))
    with pytest.raises(ValueError, match="uint8"):
        Reducer(frame_format((64, 48)), placement=current_device()).reduce([frame])


@pytest.mark.parametrize("layout", list(PixelLayout))
@pytest.mark.parametrize("size", [(65, 47), (1, 1), (3, 2), (641, 359), (1026, 770), (1920, 1080)])
def test_thumbnails_and_similarity(gpu: Any, size: tuple[int, int], layout: PixelLayout) -> None:
    format = frame_format(size, layout)
    rng = np.random.default_rng(13)
    grids = []
    for _ in range(3):
        reduced = Reducer(format).reduce([random_frame(format, rng)])[0]
        grids.append((reduced.luma.copy(), grid_on_device(reduced)))
    peak = float(((1 << format.bit_depth) - 1) << format.shift)
    probe = LumaProbe(format, placement=current_device(), batch=3)
    probe.keep(grids[0][1])
    probe.cuts([grid for _, grid in grids])
    thumbs = probe.thumbs.copy()
    rows, columns = THUMB_SHAPE
    for index, (luma, _) in enumerate(grids):
        thumb = cv2.resize(luma, (columns, rows), interpolation=cv2.INTER_AREA) / peak
        # Half a code value where the order of the sums decides a rounding.
        assert np.abs(thumbs[index] - thumb).max() <= 1.01 * (1 << format.shift) / peak
        # The sums start anew with every call.
        probe.cuts([grids[index][1]])
        error = cv2.norm(luma, grids[0][0], cv2.NORM_L2SQR) / luma.size
        if error:
            db = 10 * math.log10(peak**2 / error)
            assert probe.is_similar(grids[index][1], db - 1e-5)
            assert not probe.is_similar(grids[index][1], db + 1e-5)
        else:
            assert probe.is_similar(grids[index][1], 1e9)


def test_cuts_are_the_same(gpu: Any) -> None:
    format = frame_format((640, 360))
    host, twin = LumaProbe(format), LumaProbe(format, placement=current_device())
    rng = np.random.default_rng(5)
    rooms = [np.kron(rng.integers(40, 200, (9, 16)), np.ones((40, 40))) for _ in range(2)]
    found = []
    for number in (0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0):
        frame = flat_frame(format, 0, 128, 128)
        frame.planes.luma[:] = rooms[number] + rng.normal(0, 2, format.luma_shape)
        reduced = Reducer(format).reduce([frame])[0]
        grid = grid_on_device(reduced)
        found += host.cuts([reduced])
        assert twin.cuts([grid]) == found[-1:]
        for min_db in (20.0, 45.0):
            assert twin.is_similar(grid, min_db) == host.is_similar(reduced, min_db)
        host.keep(reduced)
        twin.keep(grid)
    assert [index for index, cut in enumerate(found) if cut] == [3, 13]


def test_nothing_is_similar_before_something_is_kept(gpu: Any) -> None:
    format = frame_format((64, 48))
    grid = grid_on_device(Reducer(format).reduce([flat_frame(format, 9, 9, 9)])[0])
    probe = LumaProbe(format, placement=current_device())
    assert probe.cuts([grid]) == [False]
    probe.keep(grid)
    assert not probe.is_similar(grid, 0.0)
    probe.cuts([grid])
    assert probe.is_similar(grid, 99.0)
