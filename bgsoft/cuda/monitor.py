"""Load, memory and power of the GPU during a render, sampled by NVML twice a second.

It needs no CUDA context. Without NVML, the summary states the reason.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from bgsoft.threads import DaemonThread

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice

_INTERVAL_SECONDS = 0.5


class GpuWatch:
    """Samples a GPU, if there is one, during a ``with`` block.

    Args:
        device: Identified by its PCI address: NVML numbers GPUs in another order than CUDA, and
            ignores ``CUDA_VISIBLE_DEVICES``.
        on_value: Called with the name and value of each figure, on the watch's own thread.
        end_seconds: Longest wait for the last sample: NVML does not answer for a hanging GPU.
    """

    def __init__(
        self,
        device: CudaDevice | None,
        on_value: Callable[[str, float], None] | None = None,
        *,
        end_seconds: float = 2.0,
    ) -> None:
        self.summary: dict[str, Any] | None = None
        """Set at the end of the block: ``samples``, ``interval_s``, ``memory_of`` (``process`` or
        ``device``), and ``mean`` and ``max`` of this GPU's figures. ``memory_pct`` is the share of
        time in which memory was read or written. ``reason`` is there if nothing was sampled."""
        self.peak_bytes: int | None = None
        """Largest used device memory in bytes."""
        self._device = device
        self._on_value, self._end_seconds = on_value, end_seconds
        self._stop = threading.Event()
        self._thread: DaemonThread | None = None
        self._nvml: Any = None
        self._handle: Any = None
        self._values: dict[str, list[float]] = {}
        self._samples = 0
        self._own_memory = True
        self._reason: str | None = None

    def __enter__(self) -> Self:
        if self._device is not None:
            # NVML is initialised on the thread, so that nothing waits for it.
            self._thread = DaemonThread(partial(self._run, self._device.bus_id), "bgsoft-nvml")
            self._thread.start()
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        if self._device is None or self._thread is None:
            return
        self._stop.set()
        self._thread.join(self._end_seconds)
        if exc_type is not None:
            return
        values, reason = self._values, self._reason
        if self._thread.is_alive():
            values, reason = {}, "NVML does not answer"
        peak = max(values.get("memory_bytes", ()), default=None)
        if peak is None:
            peak = self._device.used_bytes()  # while all allocations of the block exist
            self._own_memory = False
        self.peak_bytes = int(peak)
        self.summary = {
            "samples": self._samples,
            "interval_s": _INTERVAL_SECONDS,
            "memory_of": "process" if self._own_memory else "device",
            "mean": {name: sum(each) / len(each) for name, each in values.items()},
            "max": {name: max(each) for name, each in values.items()},
            "reason": reason,
        }

    def _run(self, bus_id: str) -> None:
        try:
            self._nvml = importlib.import_module("pynvml")
        except ImportError:
            self._reason = "pynvml is missing: pip install nvidia-ml-py"
            return
        nvml = self._nvml
        try:
            nvml.nvmlInit()
        except Exception as exc:  # NVMLError's subclasses are made at run time
            self._reason = f"cannot initialise NVML: {exc}"
            return
        try:
            self._handle = nvml.nvmlDeviceGetHandleByPciBusId(bus_id)
        except Exception as exc:
            self._reason = f"NVML does not know the GPU at {bus_id}: {exc}"
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
        # These two return (percent, microseconds sampled).
        decoder = self._ask(lambda: nvml.nvmlDeviceGetDecoderUtilization(handle)[0])
        self._add("decoder_pct", decoder)
        encoder = self._ask(lambda: nvml.nvmlDeviceGetEncoderUtilization(handle)[0])
        self._add("encoder_pct", encoder)
        self._add("memory_bytes", self._memory())
        self._add("power_w", self._ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000))
        sensor = getattr(nvml, "NVML_TEMPERATURE_GPU", 0)
        self._add("temperature_c", self._ask(lambda: nvml.nvmlDeviceGetTemperature(handle, sensor)))

    def _memory(self) -> int | None:
        """Return the memory of this process, or of all if NVML lists other ids (in containers)."""
        nvml, handle = self._nvml, self._handle
        if self._own_memory:
            running = self._ask(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle)) or []
            for process in running:
                if process.pid == os.getpid() and process.usedGpuMemory:
                    return int(process.usedGpuMemory)
            # The first sample decides: a maximum over both would be meaningless.
            if "memory_bytes" in self._values:
                return None
            self._own_memory = False
        used = self._ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used)
        return None if used is None else int(used)

    def _ask(self, question: Callable[[], Any]) -> Any:
        """Return the driver's answer; None if this GPU has none."""
        try:
            return question()
        except Exception:
            # NVMLError_NotSupported for missing figures, others for a lost GPU: the figure is left
            # out of the summary. A lost GPU fails the render's own calls.
            return None

    def _add(self, name: str, value: float | None) -> None:
        if value is not None:
            self._values.setdefault(name, []).append(float(value))
            if self._on_value is not None:
                self._on_value(name, float(value))
