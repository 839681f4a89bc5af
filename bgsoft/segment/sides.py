"""What segments frames, made where they are: on the host or on a CUDA device.

The networks may run on the other side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from bgsoft.frame import FrameFormat
from bgsoft.infer.base import Driver, Network
from bgsoft.infer.drivers import BatchDriver, LanesDriver
from bgsoft.infer.loading import NetworkLoader
from bgsoft.infer.warm import network_stream
from bgsoft.models.catalog import ModelSpec
from bgsoft.ops import sides
from bgsoft.report import Event
from bgsoft.segment.averaged import MaskAverage
from bgsoft.segment.families import FAMILIES
from bgsoft.segment.network import NetworkSegmenter, runs_singly
from bgsoft.segment.planes import ZoomPlanes
from bgsoft.workers import Workers

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice


class SegmentSide(ABC):
    """Makes what segments frames of one format, on the side that they are on.

    Args:
        backend: ``tensorrt``, ``cuda`` or ``cpu``, for the models.
        format: Format of the frames.
        workers: What prepares and reads, and runs models on the CPU; one lane on a device.
        batch: Frames at a time.
        on_event: Called for retries, and where the CPU takes over.
    """

    side = sides.HOST
    """Where frames are."""
    runs_apart = False
    """Whether passes over few frames of a batch have networks of their own, beside the others."""

    def __init__(
        self,
        backend: str,
        format: FrameFormat,
        workers: Workers,
        batch: int,
        on_event: Callable[[Event], None],
    ) -> None:
        self._backend, self._format, self._on_event = backend, format, on_event
        self._workers, self._batch = workers, batch

    @abstractmethod
    def driver(self, loader: NetworkLoader, *, single: bool = False, apart: bool = False) -> Driver:
        """What runs a model; may be called in a thread of its own.

        Args:
            loader: Of the model.
            single: Frames are run one at a time, where :attr:`runs_apart`.
            apart: On a stream of its own, there.

        Raises:
            ModelError: The model does not match its contract.
            BackendUnavailableError: It does not run there.
        """

    def current(self) -> AbstractContextManager[None]:
        """Around what is made."""
        return nullcontext()

    def segmenter(self, spec: ModelSpec, driver: Driver) -> NetworkSegmenter:
        """What makes masks by a driver."""
        with self.current():
            return NetworkSegmenter(
                spec, driver, self._format, self._workers, side=self.side, batch=self._batch
            )

    def zoom_planes(self, model: tuple[int, int], half: float, *, apart: bool) -> ZoomPlanes:
        """See :class:`ZoomPlanes`; ``apart``: so the general model runs."""
        return ZoomPlanes(self._format, model, self._workers, batch=self._batch, half=half)

    def average(self) -> MaskAverage:
        """What averages mattes with masks."""
        with self.current():
            return MaskAverage(self._format, self._workers, side=self.side)

    def _batch_driver(
        self,
        loader: NetworkLoader,
        wrap: Callable[[Network], Network],
        gpu: tuple[CudaDevice, Any],
        batch: int,
        largest_batch: int,
    ) -> Driver:
        """A driver on a device and its stream; ``wrap`` gives networks arrays where frames are."""
        spec, format = loader.model.spec, self._format
        wiring = FAMILIES[spec.family].wiring
        threads = loader.cores if runs_singly(spec) else 1

        def on_cpu(size: int) -> Network:
            (network,) = loader.on_cpu(wiring(spec, format, size), threads=threads)
            return wrap(network)

        def make(size: int, graphs: bool) -> Network:
            if self._backend == "cpu":
                return on_cpu(size)
            network = loader.on_gpu(
                wiring(spec, format, size),
                self._backend,
                *gpu,
                graphs=graphs,
                # After a fault, a smaller batch goes on with the engine of the whole one.
                largest_batch=largest_batch,
                alone=not graphs,
            )
            return wrap(network)

        return BatchDriver(make, lambda: on_cpu(1), batch=batch, on_event=self._on_event)


class HostSide(SegmentSide):
    """Frames on the host, as many side by side as workers have lanes.

    Args:
        backend, format, workers, on_event: See :class:`SegmentSide`.
        device: Where models run, unless on the CPU.
        batch: Frames at a time; no fewer than lanes.
    """

    def __init__(
        self,
        backend: str,
        format: FrameFormat,
        workers: Workers,
        device: CudaDevice | None = None,
        on_event: Callable[[Event], None] = lambda _event: None,
        batch: int = 1,
    ) -> None:
        super().__init__(backend, format, workers, max(batch, workers.lanes), on_event)
        self._device = device

    def driver(self, loader: NetworkLoader, *, single: bool = False, apart: bool = False) -> Driver:
        spec, device = loader.model.spec, self._device
        loader.check(self._backend)
        singly = runs_singly(spec)
        if device is None:
            lanes, threads = (1, loader.cores) if singly else (self._workers.lanes, 1)
            wiring = FAMILIES[spec.family].wiring(spec, self._format, 1)
            return LanesDriver(loader.on_cpu(wiring, lanes, threads), self._workers)
        from bgsoft.infer.cuda import for_host

        gpu = device, network_stream(device)
        batch = spec.batch or (1 if singly else self._batch)
        return self._batch_driver(loader, lambda each: for_host(each, *gpu), gpu, batch, batch)


class DeviceSide(SegmentSide):
    """Frames on a device, which is current.

    Args:
        backend, format, batch, on_event: See :class:`SegmentSide`.
        device: Where the frames are.
        stream: CuPy stream of all work.
    """

    runs_apart = True

    def __init__(
        self,
        backend: str,
        format: FrameFormat,
        batch: int,
        device: CudaDevice,
        stream: Any,
        on_event: Callable[[Event], None],
    ) -> None:
        super().__init__(backend, format, Workers(), batch, on_event)
        self.side = sides.device()
        self._device, self._stream = device, stream
        self._apart = network_stream(device, 1)

    def current(self) -> AbstractContextManager[None]:
        return self._device.use(self._stream)

    def driver(self, loader: NetworkLoader, *, single: bool = False, apart: bool = False) -> Driver:
        from bgsoft.infer.cuda import for_device

        spec = loader.model.spec
        loader.check(self._backend)
        gpu = self._device, self._apart if apart else self._stream
        batch = 1 if single else self._batch
        # TensorRT's engine of the whole batch serves single frames apart, too.
        largest = self._batch if apart else batch
        if runs_singly(spec) or spec.batch:
            batch = largest = spec.batch or 1
        with self._device.use(gpu[1]):  # maybe in a thread of its own
            return self._batch_driver(
                loader, lambda each: for_device(each, *gpu), gpu, batch, largest
            )

    def zoom_planes(self, model: tuple[int, int], half: float, *, apart: bool) -> ZoomPlanes:
        with self.current():
            return ZoomPlanes(
                self._format,
                model,
                side=self.side,
                batch=self._batch,
                half=half,
                device=self._device,
                stream=self._apart if apart else None,
            )
