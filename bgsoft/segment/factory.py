"""Creation of a model's segmenter for frames on the host or on a CUDA device.

The networks may run elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from bgsoft.frame import FrameFormat
from bgsoft.infer.base import Driver, GpuRun, Network
from bgsoft.infer.drivers import BatchDriver, LanesDriver
from bgsoft.infer.loading import NetworkLoader
from bgsoft.infer.warm import network_stream
from bgsoft.models.catalog import resolve
from bgsoft.models.families import REFINER
from bgsoft.ops.placement import HOST, current_device
from bgsoft.report import Event
from bgsoft.segment.averaged import AveragedSegmenter
from bgsoft.segment.base import FaceBoxes, Segmenter
from bgsoft.segment.families import companion, runs_singly, wiring, with_size
from bgsoft.segment.network import NetworkSegmenter
from bgsoft.segment.planes import ZoomPlanes
from bgsoft.segment.zoomed import ZoomedSegmenter
from bgsoft.settings.config import MatteQuality, Precision
from bgsoft.startup import StartupPool
from bgsoft.threads import LanePool

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice


class HostSegmenterFactory:
    """Makes what segments frames of one format on the host.

    As many frames are segmented at a time as there are lanes.

    Args:
        backend: ``tensorrt``, ``cuda`` or ``cpu``, for the models.
        format: Format of the frames.
        pool: Threads that prepare inputs, read outputs, and run models on the CPU.
        device: Device of the models, unless they run on the CPU.
        on_event: Called for retries, where the CPU takes over, and for notices.
        batch: Frames at a time; no fewer than lanes.
    """

    placement = HOST
    """Place of the frames."""
    _stream: Any = None
    """Stream of work on a device."""
    _single_stream: Any = None
    """Stream of passes over single frames of a batch, with networks of their own; None: they run on
    the stream of the others."""

    def __init__(
        self,
        backend: str,
        format: FrameFormat,
        pool: LanePool,
        device: CudaDevice | None = None,
        on_event: Callable[[Event], None] = lambda _event: None,
        batch: int = 1,
    ) -> None:
        self._backend, self._format, self._on_event = backend, format, on_event
        self._pool, self._batch = pool, max(batch, pool.lanes)
        self._device = device

    def create(
        self,
        loader: NetworkLoader,
        quality: MatteQuality = MatteQuality.FAST,
        make_faces: Callable[[], FaceBoxes] | None = None,
    ) -> Segmenter:
        """Return the segmenter of a model; errors are those of :meth:`driver`.

        ``best`` also finds people by their faces; ``make_faces`` makes the face detector.
        """
        spec, best = loader.model.spec, quality is MatteQuality.BEST
        name = companion(spec, quality)
        if name is None:
            return self.segmenter(loader)
        other = loader.sibling(resolve(name))
        if not spec.of_family.makes_alpha:
            return self._create_zoomed(loader, other, best, make_faces if best else None)
        with StartupPool() as startup:
            create = partial(self.create, other, quality, make_faces)
            masks = startup.submit("models for masks", create)
            mattes = self.segmenter(loader)
        common = self._format, self._pool, self.placement
        with self.current():
            return AveragedSegmenter(mattes, masks.result(), *common)

    def _create_zoomed(
        self,
        loader: NetworkLoader,
        other: NetworkLoader,
        refines: bool,
        make_faces: Callable[[], FaceBoxes] | None,
    ) -> Segmenter:
        refiner = faces = None
        with StartupPool() as startup:

            def begin(loader: NetworkLoader, **how: bool) -> Future[NetworkSegmenter]:
                name = f"model {loader.model.spec.name}"
                return startup.submit(name, partial(self.segmenter, loader, **how))

            landscape = begin(other, single=True)
            if self._single_stream is not None:
                single = begin(loader, single=True, own_stream=True)
            if refines:
                # It has no file in half precision.
                model = resolve(REFINER, (REFINER,))
                refining = begin(loader.sibling(model, Precision.FP32))
            if make_faces is not None:
                finding = startup.submit("model for faces", make_faces)
            close = self.segmenter(loader)
        general = close if self._single_stream is None else single.result()
        if refines:
            refiner = refining.result()
        if make_faces is not None:
            faces = finding.result()
        with self.current():
            planes = ZoomPlanes(
                self._format,
                (refiner or close).size,
                self._pool,
                placement=self.placement,
                batch=self._batch,
                device=self._device if self.placement.on_device else None,
                stream=self._single_stream,
            )
        return ZoomedSegmenter(general, landscape.result(), close, planes, refiner, faces)

    def segmenter(self, loader: NetworkLoader, **how: bool) -> NetworkSegmenter:
        """Return the segmenter of a model alone; arguments are those of :meth:`driver`."""

        def on_notice(text: str) -> None:
            self._on_event(Event(kind="notice", stage="segment", message=text))

        driver = self.driver(loader, **how)
        with self.current():
            return NetworkSegmenter(
                loader.model.spec,
                driver,
                self._format,
                self._pool,
                placement=self.placement,
                batch=self._batch,
                on_notice=on_notice,
            )

    def driver(
        self, loader: NetworkLoader, *, single: bool = False, own_stream: bool = False
    ) -> Driver:
        """Return the driver of a model; may be called in a thread of its own.

        Args:
            loader: Loader of the model.
            single: Frames are run one at a time, where they are on a device.
            own_stream: Run it on another stream there.

        Raises:
            ModelError: The model does not match its contract.
            BackendUnavailableError: It does not run there.
        """
        format, on_device = self._format, self.placement.on_device
        spec = with_size(loader.model.spec, format)
        loader.check(self._backend)
        singly = runs_singly(spec)
        if self._device is None:
            lanes, threads = (1, loader.cores) if singly else (self._pool.lanes, 1)
            return LanesDriver(loader.on_cpu(wiring(spec, format, 1), lanes, threads), self._pool)
        from bgsoft.infer.cuda import for_device, for_host

        # It gives networks arrays where frames are.
        wrap = for_device if on_device else for_host
        device = self._device
        stream = self._single_stream if own_stream else self._stream or network_stream(device)
        batch = 1 if single and on_device else self._batch
        # TensorRT's engine of the whole batch serves single frames there, too.
        largest = self._batch if own_stream else batch
        if singly or spec.batch:
            batch = largest = spec.batch or 1

        def on_cpu(size: int) -> Network:
            threads = loader.cores if singly else 1
            (network,) = loader.on_cpu(wiring(spec, format, size), threads=threads)
            return wrap(network, device, stream)

        def make(size: int, graphs: bool) -> Network:
            if self._backend == "cpu":
                return on_cpu(size)
            # After a fault, a smaller batch goes on with the engine of the whole one.
            run = GpuRun(self._backend, device, stream, graphs=graphs, largest_batch=largest)
            network = loader.on_gpu(wiring(spec, format, size), run, alone=not graphs)
            return wrap(network, device, stream)

        with self.current(own_stream):  # maybe in a thread of its own
            return BatchDriver(make, lambda: on_cpu(1), batch=batch, on_event=self._on_event)

    def current(self, own_stream: bool = False) -> AbstractContextManager[None]:
        """Return the context of the new object."""
        if self._device is None or not self.placement.on_device:
            return nullcontext()
        return self._device.use(self._single_stream if own_stream else self._stream)


class DeviceSegmenterFactory(HostSegmenterFactory):
    """Frames on a device, which is current.

    Args:
        backend, format, batch, on_event: See :class:`HostSegmenterFactory`.
        device: Device of the frames, and of the models unless they run on the CPU.
        stream: CuPy stream of all work.
    """

    def __init__(
        self,
        backend: str,
        format: FrameFormat,
        batch: int,
        device: CudaDevice,
        stream: Any,
        on_event: Callable[[Event], None],
    ) -> None:
        super().__init__(backend, format, LanePool(), device, on_event, batch)
        self.placement = current_device()
        self._stream, self._single_stream = stream, network_stream(device, 1)
