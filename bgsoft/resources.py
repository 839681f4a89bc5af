"""Cores, GPU and event listener of one render, shared by its stages."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from bgsoft.report import Event
from bgsoft.startup import span
from bgsoft.threads import usable_cores

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice


class Resources:
    """Cores and a GPU, which is initialised when a stage first uses it; thread-safe.

    Args:
        gpu: CUDA device number.
        threads: Cores to plan for, as the user named them; 0: all that this process may use.
        on_event: Receives notices, fallbacks and faults of the stages.
        device: The GPU, if it has been initialised already; replaces ``gpu``.
    """

    def __init__(
        self,
        gpu: int = 0,
        threads: int = 0,
        on_event: Callable[[Event], None] = lambda _event: None,
        device: CudaDevice | None = None,
    ) -> None:
        self.gpu = gpu if device is None else device.number
        self.threads = threads
        self.cores = threads or usable_cores()
        self.on_event = on_event
        self._device = device
        self._lock = threading.Lock()
        """Held while the device is initialised."""

    @property
    def device(self) -> CudaDevice:
        """The GPU, current in the calling thread.

        Raises:
            BackendUnavailableError: It cannot be initialised.
        """
        with self._lock:
            if self._device is None:
                with span("device"):
                    from bgsoft.cuda.device import CudaDevice

                    self._device = CudaDevice(self.gpu)
        self._device.make_current()
        return self._device

    @property
    def used_device(self) -> CudaDevice | None:
        """The GPU, if any stage uses it; else None."""
        return self._device

    def notice(self, stage: str, *messages: str) -> None:
        """Report notices of a stage."""
        for message in messages:
            self.on_event(Event(kind="notice", stage=stage, message=message))
