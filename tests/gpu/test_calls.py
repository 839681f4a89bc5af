"""Arguments of a device's operations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bgsoft.ops.placement import current_device

pytestmark = pytest.mark.gpu

SIZE = (30, 50)


@pytest.fixture
def planes(gpu: Any) -> tuple[Any, Any]:
    import cupy

    mask = cupy.linspace(0.0, 1.0, SIZE[0] * SIZE[1], dtype=np.float32).reshape(SIZE)
    return mask, cupy.zeros(SIZE, np.uint8)


def test_launches_on_the_current_stream(gpu: Any, planes: tuple[Any, Any]) -> None:
    import cupy

    mask, made = planes
    cupy.cuda.Device().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        current_device().operation("matte", "opacity")(SIZE, mask, made, *SIZE)
    stream.synchronize()
    np.testing.assert_allclose(made.get() / 255, mask.get(), atol=0.5 / 255 + 1e-6)


def test_a_launch_that_fails_says_so(gpu: Any, planes: tuple[Any, Any]) -> None:
    import cupy

    with pytest.raises(cupy.cuda.driver.CUDADriverError, match="INVALID_VALUE"):
        current_device().operation("matte", "opacity", block=(64, 64, 1))(SIZE, *planes, *SIZE)
    assert not planes[1].any()
    current_device().operation("matte", "opacity")(SIZE, *planes, *SIZE)  # the device is well
    assert planes[1].any()


def test_numbers_are_those_of_the_kernel(gpu: Any, planes: tuple[Any, Any]) -> None:
    run = current_device().operation("matte", "opacity")
    with pytest.raises(OverflowError):
        run(SIZE, *planes, SIZE[0], 2**31)
    with pytest.raises(TypeError, match="two or three axes"):
        run((30,), *planes, *SIZE)
    assert not planes[1].any()
