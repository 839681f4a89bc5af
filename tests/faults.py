"""Faults on purpose, in any stage of a render that runs on the host."""

from __future__ import annotations

import errno
import importlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

STAGES = {
    "decode": ("bgsoft.decode.cpu", "CpuDecoder._write"),
    "analysis": ("bgsoft.analysis.reduce", "Reducer.reduce"),
    "segment": ("bgsoft.infer.cpu", "CpuNetwork.run"),
    "face": ("bgsoft.face.step", "FaceStep.find"),
    "matte": ("bgsoft.matte.soft", "SoftMatte.refine"),
    "composite": ("bgsoft.composite.compositor", "PictureCompositor.apply"),
    "encode": ("bgsoft.encode.cpu", "CpuEncoder.encode"),
    "mux": ("bgsoft.media.mux", "Muxer.write_video"),
    "publish": ("bgsoft.outputs", "AtomicOutput.commit"),
    "report": ("bgsoft.report", "RenderReport.write_json"),
}
"""Method of each stage of a render that does its work."""
AT_THE_END = ("publish", "report")
"""Steps that run once, after all frames."""
DEVICE_STAGES = {
    "decode": ("bgsoft.decode.nvdec", "NvdecDecoder._write"),
    "analysis": STAGES["analysis"],
    "segment": ("bgsoft.infer.cuda", "GpuNetwork.run"),
    "composite": STAGES["composite"],
    "matte": STAGES["matte"],
    "encode": ("bgsoft.encode.nvenc", "NvencEncoder.encode"),
}


class PlantedError(Exception):
    """An error that no code of bgsoft knows."""


class CudaFaultError(RuntimeError):
    """An error like CuPy's for a failed kernel or a lost device."""


@dataclass(eq=False)
class Plant:
    """A fault that a stage meets at one of its calls."""

    kind: str
    """One of :data:`FAULTS`."""
    at: int = 2
    """Number of the call that fails, from 1."""
    cancel: threading.Event = field(default_factory=threading.Event)
    """The render's."""
    back: threading.Event = field(default_factory=threading.Event)
    """Set: what hangs goes on."""
    reached: threading.Event = field(default_factory=threading.Event)
    calls: int = 0

    def meet(self) -> None:
        """Apply the planted fault; called inside the stage."""
        self.calls += 1
        if self.calls == self.at:
            self.reached.set()
            FAULTS_OF_ALL[self.kind](self)


def _raise(make: Callable[[], BaseException]) -> Callable[[Plant], None]:
    def fail(_plant: Plant) -> None:
        raise make()

    return fail


def _hang(plant: Plant) -> None:
    plant.back.wait(60)


def _cancel(plant: Plant) -> None:
    plant.cancel.set()


def _die(_plant: Plant) -> None:
    import os
    import signal

    os.kill(os.getpid(), signal.SIGSEGV)


FAULTS: dict[str, Callable[[Plant], None]] = {
    "exception": _raise(lambda: PlantedError("planted")),
    "out of memory": _raise(MemoryError),
    "disk full": _raise(lambda: OSError(errno.ENOSPC, "No space left on device")),
    "cancelled": _cancel,
    "hang": _hang,
    "clock": lambda _plant: None,
}
"""Faults of a stage; of ``clock``, :func:`planted` does the rest."""
WORKER_FAULTS = {**FAULTS, "dies": _die}
DEVICE_FAULTS = {
    "CUDA error": _raise(lambda: CudaFaultError("CUDA_ERROR_LAUNCH_FAILED")),
    "device lost": _raise(lambda: CudaFaultError("CUDA_ERROR_DEVICE_UNAVAILABLE")),
    "out of device memory": _raise(MemoryError),
}
FAULTS_OF_ALL = {**WORKER_FAULTS, **DEVICE_FAULTS}


@contextmanager
def planted(place: tuple[str, str], plant: Plant) -> Iterator[None]:
    """Have a stage meet a fault during a ``with`` block."""
    module, _, (owner, method) = place[0], "", place[1].split(".")
    kind = getattr(importlib.import_module(module), owner)
    original = getattr(kind, method)

    def met(self: Any, *args: Any, **named: Any) -> Any:
        plant.meet()
        return original(self, *args, **named)

    now, back = time.time, 0.0

    def earlier() -> float:
        nonlocal back
        back += 1e5 if plant.reached.is_set() else 0.0
        return now() - back

    setattr(kind, method, met)
    if plant.kind == "clock":
        time.time = earlier
    try:
        yield
    finally:
        time.time = now
        setattr(kind, method, original)
