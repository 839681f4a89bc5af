"""Areas of mattes on a GPU against those on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bgsoft.frame import Matte
from bgsoft.matte.area import AreaMeter
from bgsoft.ops.sides import HOST, device

pytestmark = pytest.mark.gpu


def test_areas_are_the_same(stream: Any) -> None:
    rng, side = np.random.default_rng(2), device()
    meters = AreaMeter(HOST), AreaMeter(side)
    for _ in range(1100):
        plane = rng.integers(0, 256, (27, 48), np.uint8)
        for meter, where in zip(meters, (plane, side.array(plane)), strict=True):
            meter.add(Matte(alpha=where, reduced=where))
    expected, found = (meter.percent() for meter in meters)
    np.testing.assert_allclose(found, expected, atol=0.0101)
