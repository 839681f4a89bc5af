"""Areas of mattes."""

from __future__ import annotations

import numpy as np
import pytest

from bgsoft.frame import Matte
from bgsoft.matte.area import AreaMeter
from bgsoft.ops.placement import HOST


def test_areas_are_those_of_each_frame_in_order() -> None:
    meter, plane = AreaMeter(HOST), np.zeros((10, 20), np.uint8)
    expected = []
    for number in range(1500):
        plane[:] = 0
        plane.ravel()[: number % 200] = 255
        plane[9, 19] = 51  # a fifth
        meter.add(Matte(alpha=plane, reduced=plane))
        expected.append(round(100 * (number % 200 + 0.2) / 200, 2))
    np.testing.assert_allclose(meter.percent(), expected, atol=0.0101)


@pytest.mark.parametrize("shown", [0, 7, 8, 23, 24, 40, None])
def test_measuring_may_end_with_the_first_matte_that_is_not_empty(shown: int | None) -> None:
    meter = AreaMeter(HOST, of_all=False)
    for number in range(60):
        plane = np.full((10, 20), 255 * (number == shown), np.uint8)
        meter.add(Matte(alpha=plane, reduced=plane))
    assert meter.are_empty() is (shown is None)
    assert len(meter.percent()) < 60 or shown in (40, None)
