"""GPUs that a process sees, and their names."""

from __future__ import annotations

import os
from typing import Any

import pytest

from bgsoft.cuda import driver
from bgsoft.errors import BackendUnavailableError
from bgsoft.rendering import backends
from tests.processes import run_python

VISIBLE = "CUDA_VISIBLE_DEVICES"


@pytest.fixture(autouse=True)
def _unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (VISIBLE, "BGSOFT_SHOWN_GPU"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("visible", "gpu", "shown"),
    [(None, 1, "1"), (None, 0, "0"), ("3,2", 1, "2"), ("GPU-5c1a,GPU-77f0", 0, "GPU-5c1a")],
)
def test_one_gpu_is_shown(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, gpu: int, shown: str
) -> None:
    if visible is not None:
        monkeypatch.setenv(VISIBLE, visible)
    driver.show_only(gpu)
    assert os.environ[VISIBLE] == shown
    assert driver.cuda_number(gpu) == 0
    assert driver.shown_number(0) == gpu
    monkeypatch.setattr(backends, "driver_problem", {0: None}.__getitem__)
    assert backends.chosen_gpu(gpu) == 0
    assert backends.probe("composite", "cuda").device == f"cuda:{gpu}"
    code = (
        f"from bgsoft.cuda import driver; driver.show_only({gpu}); print(driver.cuda_number({gpu}))"
    )
    assert run_python("-c", code, check=True).stdout.split() == ["0"]
    assert os.environ[VISIBLE] == shown


def test_a_gpu_that_is_not_listed_stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VISIBLE, "1")
    driver.show_only(1)
    assert os.environ[VISIBLE] == "1"
    assert driver.cuda_number(1) == 1


def test_a_gpu_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    driver.show_only(5)
    monkeypatch.setattr(backends, "driver_problem", lambda _gpu: driver.NO_GPU)
    with pytest.raises(BackendUnavailableError, match="--gpu 5: there is no GPU 5 here"):
        backends.chosen_gpu(5)


def test_a_context_that_cannot_be_made_is_left_to_those_who_need_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver, "driver_problem", lambda _gpu: driver.NO_GPU)
    monkeypatch.setattr(driver.ctypes, "CDLL", None)
    driver.open_context(0)


def test_a_context_is_that_of_the_gpu_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    retained: list[int] = []

    class Library:
        def cuDeviceGet(self, device: Any, number: int) -> int:  # noqa: N802 - CUDA's name
            device._obj.value = 70 + number
            return 0

        def cuDevicePrimaryCtxRetain(self, _context: Any, device: Any) -> int:  # noqa: N802
            retained.append(device.value)
            return 0

    monkeypatch.setattr(driver, "driver_problem", lambda _gpu: None)
    monkeypatch.setattr(driver.ctypes, "CDLL", lambda _name: Library())
    driver.open_context(2)
    assert retained == [72]


def test_without_a_choice_all_keep_their_numbers() -> None:
    assert (driver.cuda_number(1), driver.shown_number(1)) == (1, 1)
