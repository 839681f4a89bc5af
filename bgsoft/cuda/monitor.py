"""Load, memory and power of the GPU while a render runs, sampled through NVML twice a second.

It takes part in no CUDA work and needs no context. Where NVML cannot be had, the summary says why.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice


_INTERVAL_SECONDS = 0.5


class GpuMonitor:
    """Samples one GPU between :meth:`start` and :meth:`stop`.

    Args:
        bus_id: PCI address of the GPU, e.g. ``0000:3b:00.0``: NVML numbers GPUs in another order
            than CUDA, and knows nothing of ``CUDA_VISIBLE_DEVICES``.
        on_value: Called with the name and value of each figure, on the monitor's thread.
    """

    def __init__(self, bus_id: str, on_value: Callable[[str, float], None] | None = None) -> None:
        self._on_value = on_value
        self._bus_id = bus_id
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bgsoft-nvml", daemon=True)
        self._nvml: Any = None
        self._handle: Any = None
        self._values: dict[str, list[float]] = {}
        self._samples = 0
        self._own_memory = True
        self._reason: str | None = None

    def start(self) -> None:
        """Begin to sample; NVML itself is started on the thread, so that nothing waits for it."""
        self._thread.start()

    def stop(self) -> dict[str, Any]:
        """Take the last sample and end; safe to call twice.

        Returns:
            ``samples``, ``interval_s``, ``memory_of`` (``process`` or ``device``), ``mean`` and
            ``max`` (of the figures that this GPU has; ``memory_pct`` is the share of time in which
            memory was read or written), ``reason`` where nothing could be sampled.
        """
        self._stop.set()
        self._thread.join()
        return {
            "samples": self._samples,
            "interval_s": _INTERVAL_SECONDS,
            "memory_of": "process" if self._own_memory else "device",
            "mean": {name: sum(values) / len(values) for name, values in self._values.items()},
            "max": {name: max(values) for name, values in self._values.items()},
            "reason": self._reason,
        }

    def _run(self) -> None:
        try:
            self._nvml = importlib.import_module("pynvml")
        except ImportError:
            self._reason = "pynvml is missing: pip install nvidia-ml-py"
            return
        nvml = self._nvml
        try:
            nvml.nvmlInit()
        except Exception as exc:  # NVMLError's subclasses are made at run time
            self._reason = f"NVML does not start: {exc}"
            return
        try:
            self._handle = nvml.nvmlDeviceGetHandleByPciBusId(self._bus_id)
        except Exception as exc:
            self._reason = f"NVML does not know the GPU at {self._bus_id}: {exc}"
        else:
            self._sample()
            while not self._stop.wait(_INTERVAL_SECONDS):
                self._sample()
            self._sample()
        finally:
            self._ask(nvml.nvmlShutdown)

    def _sample(self) -> None:
        nvml, handle = self._nvml, self._handle
        self._samples += 1
        rates = self._ask(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        self._add("sm_pct", rates and rates.gpu)
        self._add("memory_pct", rates and rates.memory)
        # These two answer with (percent, microseconds sampled).
        decoder = self._ask(lambda: nvml.nvmlDeviceGetDecoderUtilization(handle)[0])
        self._add("decoder_pct", decoder)
        encoder = self._ask(lambda: nvml.nvmlDeviceGetEncoderUtilization(handle)[0])
        self._add("encoder_pct", encoder)
        self._add("memory_bytes", self._memory())
        self._add("power_w", self._ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000))
        sensor = getattr(nvml, "NVML_TEMPERATURE_GPU", 0)
        self._add("temperature_c", self._ask(lambda: nvml.nvmlDeviceGetTemperature(handle, sensor)))

    def _memory(self) -> int | None:
        """Bytes this process uses, or the whole GPU where NVML names other ids (in containers)."""
        nvml, handle = self._nvml, self._handle
        if self._own_memory:
            running = self._ask(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle)) or []
            for process in running:
                if process.pid == os.getpid() and process.usedGpuMemory:
                    return int(process.usedGpuMemory)
            # Decided by the first sample: a maximum over both would mean nothing.
            if "memory_bytes" in self._values:
                return None
            self._own_memory = False
        used = self._ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used)
        return None if used is None else int(used)

    def _ask(self, question: Callable[[], Any]) -> Any:
        """The driver's answer; None where this GPU has none."""
        try:
            return question()
        except Exception:
            # NVMLError_NotSupported for what a GPU lacks, others when it is lost: the figure is
            # left out of the summary; a lost GPU fails the render's own calls.
            return None

    def _add(self, name: str, value: float | None) -> None:
        if value is not None:
            self._values.setdefault(name, []).append(float(value))
            if self._on_value is not None:
                self._on_value(name, float(value))


@dataclass(slots=True)
class Watch:
    """Figures of a GPU, filled when the watching ends."""

    summary: dict[str, Any] | None = None
    """As :meth:`GpuMonitor.stop` gives it; None without a GPU."""
    peak_bytes: int | None = None
    """Most device memory in use; None without a GPU."""


@contextmanager
def watched(
    device: CudaDevice | None, on_value: Callable[[str, float], None] | None = None
) -> Iterator[Watch]:
    """Watch a GPU, where there is one, while the block runs."""
    watch = Watch()
    if device is None:
        yield watch
        return
    monitor = GpuMonitor(device.bus_id, on_value=on_value)
    monitor.start()
    try:
        yield watch
    finally:
        watch.summary = monitor.stop()
    peak = watch.summary["max"].get("memory_bytes")
    if peak is None:
        peak = device.used_bytes()  # with all that the block allocated still there
        watch.summary["memory_of"] = "device"
    watch.peak_bytes = int(peak)
