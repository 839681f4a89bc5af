"""Arguments of operations; the device's driver is a stand-in that records them."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from bgsoft.ops import native
from bgsoft.ops.native import host_operation
from bgsoft.ops.placement import HOST
from tests.signatures import FOLDER, declared

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


def test_sources_are_read_as_the_compiler_reads_them() -> None:
    compiled = 0
    for path in FOLDER.glob("*.cu"):
        for name, definitions in declared(path.stem).items():
            try:
                kernel = (ctypes.c_char_p * 2).in_dll(native.library(), f"{name}_8_kernel")
            except ValueError:  # a kernel of the device only
                continue
            compiled += 1
            read = ["".join(each if each in "if" else "p" for each in one) for one in definitions]
            assert (kernel[1] or b"").decode() in read, name
    assert compiled > 40


def test_arrays_of_another_type_are_noticed(mask: Any, made: Any) -> None:
    run = HOST.operation("matte", "opacity")
    run(SIZE, mask, made, *SIZE)
    for wrong in ((made, mask), (mask, mask), (mask.astype(np.float64), made)):
        with pytest.raises(AssertionError, match=r"opacity takes \[\['float', 'u8', 'i', 'i'\]\]"):
            run(SIZE, *wrong, *SIZE)


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


@pytest.fixture
def _never_interrupted() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # s: a thread has the lock until it gives it away
    yield
    sys.setswitchinterval(interval)


class _Kernel(ctypes.Structure):
    """``Kernel`` of calls.hpp."""

    _fields_: ClassVar = [("run", ctypes.c_void_p), ("kinds", ctypes.c_char_p)]


@pytest.mark.usefixtures("_never_interrupted")
def test_threads_run_side_by_side() -> None:
    """A kernel releases the interpreter's lock, so other threads run meanwhile."""
    # Two numbers are seconds and nanoseconds, as nanosleep() takes them: a kernel that only waits.
    wait = ctypes.cast(ctypes.CDLL(None).nanosleep, ctypes.c_void_p).value
    kernel, counted, meanwhile = _Kernel(wait, b"ii"), [0], list[int]()
    make = native._maker("host_operation", ctypes.c_char_p, ctypes.c_void_p)
    run = make(b"nanosleep", ctypes.addressof(kernel))

    def work() -> None:
        for _ in range(100):  # on a busy machine some runs pass before the main thread's turn
            before = counted[0]
            run(SIZE, 0, 50_000_000)
            meanwhile.append(counted[0] - before)
            if meanwhile[-1]:
                break

    thread = threading.Thread(target=work)
    thread.start()
    while thread.is_alive():
        counted[0] += 1
        time.sleep(0.0001)
    assert meanwhile[-1] > 0


class _DeviceArray:
    def __init__(self, address: int) -> None:
        self.data = SimpleNamespace(ptr=address)


class _Driver:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, *types: Any) -> None:
        pointer, number = ctypes.c_void_p, ctypes.c_uint
        prototype = ctypes.CFUNCTYPE(
            ctypes.c_int, pointer, *(number,) * 7, pointer, ctypes.POINTER(pointer), pointer
        )
        self.cuLaunchKernel = prototype(self._launch)
        self.types, self.status = types, 0
        self.seen: list[Any] = []
        cupy = SimpleNamespace(
            ndarray=_DeviceArray,
            cuda=SimpleNamespace(
                get_current_stream=lambda: SimpleNamespace(ptr=77),
                driver=SimpleNamespace(check_status=self._fail),
            ),
        )
        monkeypatch.setitem(sys.modules, "cupy", cupy)
        library = native.library()
        monkeypatch.setattr(native, "library", lambda: library)
        monkeypatch.setattr(ctypes, "CDLL", lambda _name: self)
        kernel = SimpleNamespace(name="kernel", kernel=SimpleNamespace(ptr=55))
        self.run = native.device_operation(kernel, (32, 8, 1), 96)

    def _launch(self, function: int, *rest: Any) -> int:
        *numbers, stream, arguments, _more = rest
        values = [kind.from_address(arguments[at]).value for at, kind in enumerate(self.types)]
        self.seen.append((function, tuple(numbers), stream, values))
        return self.status

    @staticmethod
    def _fail(status: int) -> None:
        raise RuntimeError(f"status {status}")


def test_a_device_is_given_arguments_by_their_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    pointer, real, number = ctypes.c_void_p, ctypes.c_float, ctypes.c_int
    driver = _Driver(monkeypatch, pointer, pointer, number, number, real, real, ctypes.c_uint64)
    value = np.array([2**40 + 3], np.uint64)
    address = 2**47 + 16
    driver.run((17, 65), _DeviceArray(address), None, -5, True, 0.25, np.float64(1.5), value)
    grid, block = (3, 3, 1), (32, 8, 1)
    values = [address, None, -5, 1, 0.25, 1.5, 2**40 + 3]
    assert driver.seen == [(55, (*grid, *block, 96), 77, values)]


@pytest.mark.parametrize(
    ("size", "grid"), [((1, 1), (1, 1, 1)), ((8, 32, 5), (1, 1, 5)), ((9, 33, 1), (2, 2, 1))]
)
def test_blocks_cover_the_size(
    monkeypatch: pytest.MonkeyPatch, size: tuple[int, ...], grid: tuple[int, ...]
) -> None:
    driver = _Driver(monkeypatch)
    driver.run(size)
    assert driver.seen[0][1][:3] == grid


def test_what_a_driver_refuses_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = _Driver(monkeypatch)
    driver.status = 701
    with pytest.raises(RuntimeError, match="status 701"):
        driver.run((1, 1))
    for size in ((1,), (1, 1, 1, 1), ()):
        with pytest.raises(TypeError, match="two or three axes"):
            driver.run(size)
    with pytest.raises((TypeError, SystemError)):
        driver.run(5)
    assert len(driver.seen) == 1


def test_nothing_is_kept_of_an_operation_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = _Driver(monkeypatch)
    while_made = sys.getrefcount(_DeviceArray)
    del driver.run
    assert sys.getrefcount(_DeviceArray) == while_made - 1
    made = [host_operation("opacity_8") for _ in range(100)]
    del made
    host_operation("opacity_8")(SIZE, np.zeros(SIZE, np.float32), bytearray(15), *SIZE)
