"""What operations of the host make of their arguments."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from bgsoft.ops.native import host_operation

SIZE = (3, 5)


@pytest.fixture
def mask() -> Any:
    return np.linspace(0.0, 1.0, 15, dtype=np.float32).reshape(SIZE)


@pytest.fixture
def made() -> Any:
    return np.zeros(SIZE, np.uint8)


def test_runs_a_kernel_on_the_arrays_themselves(mask: Any, made: Any) -> None:
    mask.flags.writeable = False
    assert host_operation("opacity_8")(SIZE, mask, made, *SIZE) is None
    assert (made[0, 0], made[-1, -1]) == (0, 255)
    assert np.abs(made / 255 - mask).max() <= 0.5 / 255 + 1e-6


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda mask, made: (mask, made, 3), TypeError, "opacity_8: argument 3 of kinds ppii"),
        (lambda mask, made: (mask, made, 3, 5, 1), TypeError, "argument 4 of kinds ppii"),
        (lambda mask, made: (mask, made, 3, 5.0), TypeError, "argument 3 of kinds ppii"),
        (lambda mask, made: (mask, 3, 5, made), TypeError, "argument 1 of kinds ppii"),
        (lambda mask, made: (mask, made, 3, 2**31), OverflowError, "2147483648 does not fit"),
        (lambda mask, made: (mask, made, 3, 2**70), OverflowError, "too large"),
        (lambda mask, made: (mask[:, ::2], made, 3, 5), ValueError, "not C-contiguous"),
        (lambda mask, made: ("mask", made, 3, 5), TypeError, "bytes-like object"),
        (lambda mask, made: (mask, *[made] * 64), TypeError, "more than 64 arguments"),
    ],
)
def test_refuses_what_the_kernel_does_not_take(
    mask: Any, made: Any, change: Any, error: type[Exception], said: str
) -> None:
    lent = bytearray(made.nbytes)
    with pytest.raises(error, match=said):
        host_operation("opacity_8")(SIZE, *change(mask, lent))
    assert not any(lent)
    lent.append(0)  # which what is still lent refuses


def test_an_operation_has_a_size_and_a_name() -> None:
    with pytest.raises(TypeError, match="opacity_8: no size"):
        host_operation("opacity_8")()
    with pytest.raises(ValueError, match="no_such_8_kernel"):
        host_operation("no_such_8")


def test_whole_numbers_are_those_of_32_bits(mask: Any, made: Any) -> None:
    # True is 1, a negative number of rows is none.
    run = host_operation("opacity_8")
    run(SIZE, mask, made, True, 5)
    assert made[0].any()
    assert not made[1:].any()
    made[:] = 0
    run(SIZE, mask, made, -1, 5)
    assert not made.any()


def test_threads_run_side_by_side() -> None:
    """A kernel works without the interpreter's lock: others go on meanwhile."""
    rows, columns = 4000, 4000
    large = np.zeros((rows, columns), np.float32), np.zeros((rows, columns), np.uint8)
    run, began, counted = host_operation("opacity_8"), threading.Event(), [0]

    def work() -> None:
        began.set()
        run((rows, columns), *large, rows, columns)

    thread = threading.Thread(target=work)
    thread.start()
    began.wait(10)
    while thread.is_alive():
        counted[0] += 1
    thread.join()
    assert counted[0] > 1
