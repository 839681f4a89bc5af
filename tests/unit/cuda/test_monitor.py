"""The NVML monitor, with a stand-in for the driver."""

from __future__ import annotations

import os
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from bgsoft.cuda.monitor import GpuWatch

BUS_ID = "0000:3b:00.0"


class NotSupportedError(Exception):
    """NVML's error for figures that a GPU lacks."""


class Nvml:
    """The part of pynvml that the monitor uses; each figure rises with every sample."""

    NVML_TEMPERATURE_GPU = 0

    def __init__(self, pid: int | None = None) -> None:
        self.pid = pid
        self.samples = 0
        self.open = False
        self.missing: set[str] = set()

    def _answer(self, name: str, value: Any) -> Any:
        assert self.open
        if name in self.missing:
            raise NotSupportedError("Not Supported")
        return value

    def nvmlInit(self) -> None:  # noqa: N802
        self.open = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open = False

    def nvmlDeviceGetHandleByPciBusId(self, bus_id: str) -> str:  # noqa: N802
        if bus_id != BUS_ID:
            raise NotSupportedError("Not Found")
        return "handle"

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:  # noqa: N802
        assert handle == "handle"
        self.samples += 1
        return self._answer("rates", SimpleNamespace(gpu=10 * self.samples, memory=self.samples))

    def nvmlDeviceGetDecoderUtilization(self, _handle: str) -> list[int]:  # noqa: N802
        return self._answer("decoder", [50, 167_000])

    def nvmlDeviceGetEncoderUtilization(self, _handle: str) -> list[int]:  # noqa: N802
        return self._answer("encoder", [0, 167_000])

    def nvmlDeviceGetComputeRunningProcesses(self, _handle: str) -> list[Any]:  # noqa: N802
        processes = [SimpleNamespace(pid=-1, usedGpuMemory=7)]
        if self.pid is not None:
            processes.append(SimpleNamespace(pid=self.pid, usedGpuMemory=1000 * self.samples))
        return self._answer("processes", processes)

    def nvmlDeviceGetMemoryInfo(self, _handle: str) -> Any:  # noqa: N802
        return self._answer("memory", SimpleNamespace(used=9_000_000 * self.samples))

    def nvmlDeviceGetPowerUsage(self, _handle: str) -> int:  # noqa: N802
        return self._answer("power", 125_500)

    def nvmlDeviceGetTemperature(self, _handle: str, _sensor: int) -> int:  # noqa: N802
        return self._answer("temperature", 40 + self.samples)


def device(bus_id: str = BUS_ID) -> Any:
    return SimpleNamespace(bus_id=bus_id, used_bytes=lambda: 123)


def sampled(
    nvml: Nvml | None, monkeypatch: pytest.MonkeyPatch, bus_id: str = BUS_ID
) -> dict[str, Any]:
    """The summary of a watch that has taken its first and its last sample."""
    monkeypatch.setitem(sys.modules, "pynvml", nvml)  # type: ignore[arg-type]
    with GpuWatch(device(bus_id)) as watch:
        assert watch.summary is None
    assert watch.summary is not None
    return watch.summary


def test_means_and_maxima(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml(pid=os.getpid())
    summary = sampled(nvml, monkeypatch)
    assert summary["samples"] == 2
    assert summary["reason"] is None
    assert summary["mean"] == {
        "sm_pct": 15.0,
        "memory_pct": 1.5,
        "decoder_pct": 50.0,
        "encoder_pct": 0.0,
        "memory_bytes": 1500.0,
        "power_w": 125.5,
        "temperature_c": 41.5,
    }
    assert summary["max"]["sm_pct"] == 20
    assert summary["memory_of"] == "process"
    assert not nvml.open


def test_it_continues_sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)  # type: ignore[arg-type]
    with GpuWatch(device()) as watch:
        while nvml.samples < 3:
            time.sleep(0.001)
    assert watch.summary is not None
    assert watch.summary["samples"] >= 3


@pytest.mark.parametrize(
    ("lacks", "gone"),
    [
        ({"power"}, {"power_w"}),
        ({"rates"}, {"sm_pct", "memory_pct"}),
        ({"encoder", "decoder"}, {"encoder_pct", "decoder_pct"}),
        ({"processes", "memory"}, {"memory_bytes"}),
        ({"temperature"}, {"temperature_c"}),
    ],
)
def test_what_a_gpu_does_not_tell_is_left_out(
    lacks: set[str], gone: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = set(sampled(Nvml(), monkeypatch)["max"])
    nvml = Nvml()
    nvml.missing = lacks
    assert everything - set(sampled(nvml, monkeypatch)["max"]) == gone


def test_why_nothing_could_be_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    summary = sampled(None, monkeypatch)
    assert summary["reason"] == "pynvml is missing: pip install nvidia-ml-py"
    assert (summary["samples"], summary["max"]) == (0, {})
    nvml = Nvml()
    unknown = sampled(nvml, monkeypatch, "0000:ff:00.0")
    assert "does not know the GPU at 0000:ff:00.0: Not Found" in unknown["reason"]
    assert not nvml.open

    def refuse() -> None:
        raise NotSupportedError("Driver Not Loaded")

    monkeypatch.setattr(nvml, "nvmlInit", refuse)
    assert sampled(nvml, monkeypatch)["reason"] == "cannot initialise NVML: Driver Not Loaded"


@pytest.mark.parametrize(
    ("nvml", "peak_bytes", "memory_of"),
    [
        (Nvml(pid=os.getpid()), 2000, "process"),
        (Nvml(), 18_000_000, "device"),  # in a container NVML names other processes
        (None, 123, "device"),  # in use at the end
    ],
)
def test_watching(
    monkeypatch: pytest.MonkeyPatch, nvml: Nvml | None, peak_bytes: int, memory_of: str
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)  # type: ignore[arg-type]
    with GpuWatch(device()) as watch:
        pass
    assert watch.summary is not None
    assert watch.summary["memory_of"] == memory_of
    assert watch.peak_bytes == peak_bytes


def test_the_watch_ends_where_the_render_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError), GpuWatch(device()):
        raise ZeroDivisionError
    assert not nvml.open


def test_a_gpu_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = threading.Event()
    nvml = Nvml()
    nvml.nvmlDeviceGetUtilizationRates = lambda _: hangs.wait() and None  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "pynvml", nvml)  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError), GpuWatch(device(), end_seconds=0.05):
        raise ZeroDivisionError
    with GpuWatch(device(), end_seconds=0.05) as watch:
        pass
    hangs.set()
    assert watch.summary is not None
    assert watch.summary["reason"] == "NVML does not answer"


def test_nothing_is_watched_on_the_cpu() -> None:
    with GpuWatch(None) as watch:
        pass
    assert (watch.summary, watch.peak_bytes) == (None, None)
