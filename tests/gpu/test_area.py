"""Areas of mattes on a GPU against those on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bgsoft.frame import Matte
from bgsoft.matte.area import AreaMeter
from bgsoft.ops.placement import HOST, current_device

pytestmark = pytest.mark.gpu


def test_areas_are_the_same(stream: Any) -> None:
    rng, placement = np.random.default_rng(2), current_device()
    meters = AreaMeter(HOST), AreaMeter(placement)
    for _ in range(1100):
        plane = rng.integers(0, 256, (27, 48), np.uint8)
        for meter, where in zip(meters, (plane, placement.array(plane)), strict=True):
            meter.add(Matte(alpha=where, reduced=where))
    expected, found = (meter.percent() for meter in meters)
    np.testing.assert_allclose(found, expected, atol=0.0101)
