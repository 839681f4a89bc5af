"""From a model to its segmenter, wherever frames are and networks run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from bgsoft.analysis.base import analysis_shape
from bgsoft.frame import FrameFormat
from bgsoft.infer.base import Driver, Network
from bgsoft.infer.drivers import BatchDriver, LanesDriver
from bgsoft.infer.loading import NetworkLoader
from bgsoft.infer.warm import network_stream
from bgsoft.models.catalog import resolve
from bgsoft.report import Event
from bgsoft.segment.averaged import AveragedSegmenter, host_average
from bgsoft.segment.base import Segmenter
from bgsoft.segment.families import FAMILIES, averaged_with, companion
from bgsoft.segment.rotation import Rotation
from bgsoft.segment.single import SingleShotSegmenter
from bgsoft.segment.zoomed import Looker, ZoomedSegmenter, ZoomSide
from bgsoft.segment.zoomed_cpu import CpuZoomSide
from bgsoft.settings.config import Looks
from bgsoft.startup import StartupPool
from bgsoft.workers import Workers

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice

_HALF = {Looks.STANDARD: 0.5, Looks.BEST: 0.45}
"""The mean of all looks that is half a person: mirrored looks do not quite fit, which makes it
softer. 0.45 was best in a study of six passes; over 81 photographs the mean IoU of ``best`` is
0.916 with it and 0.914 without."""


def create_host_segmenter(
    backend: str,
    loader: NetworkLoader,
    format: FrameFormat,
    workers: Workers,
    device: CudaDevice | None,
    on_event: Callable[[Event], None],
    looks: Looks = Looks.FAST,
) -> Segmenter:
    """The segmenter for frames on the host; see :func:`make_host_driver`.

    ``looks`` is how thoroughly embedded models look, alone or beside one that makes mattes.
    """

    def make(each: NetworkLoader) -> Driver:
        return make_host_driver(backend, each, format, workers, device, on_event)

    spec = loader.model.spec
    masker = averaged_with(spec, looks)
    if masker is not None:
        again = partial(
            create_host_segmenter,
            format=format,
            workers=workers,
            device=device,
            on_event=on_event,
        )
        with StartupPool() as pool:
            masks = pool.submit(
                "models for masks",
                partial(again, backend, loader.beside(resolve(masker)), looks=looks),
            )
            mattes = again(backend, loader)
        return AveragedSegmenter(mattes, masks.result(), host_average(workers))
    beside = companion(spec, looks)
    if beside is None:
        return FAMILIES[spec.family].on_host(spec, format, make(loader), workers)
    other = loader.beside(resolve(beside))
    with StartupPool() as pool:
        making = pool.submit(f"model {beside}", partial(make, other))
        driver = make(loader)
    general = SingleShotSegmenter(spec, driver, format, workers)
    return _zoomed(
        general,
        SingleShotSegmenter(other.model.spec, making.result(), format, workers),
        general,
        CpuZoomSide(format, (spec.height, spec.width), workers, _HALF[looks]),
        format,
        looks,
    )


def _zoomed(
    general: Looker,
    landscape: Looker,
    close: Looker,
    side: ZoomSide,
    format: FrameFormat,
    looks: Looks,
) -> Segmenter:
    rotation = Rotation(analysis_shape(format.width, format.height), turns=looks is Looks.STANDARD)
    return ZoomedSegmenter(general, landscape, close, side, rotation, mirrors=looks is Looks.BEST)


def make_host_driver(
    backend: str,
    loader: NetworkLoader,
    format: FrameFormat,
    workers: Workers,
    device: CudaDevice | None = None,
    on_event: Callable[[Event], None] = lambda _event: None,
) -> Driver:
    """What runs a model for frames on the host.

    Args:
        backend: ``tensorrt``, ``cuda`` or ``cpu``.
        loader: Of the model.
        format: Format of the frames.
        workers: A lane for each frame of a batch.
        device: Where the model runs, unless on the CPU.
        on_event: Called for retries, and where the CPU takes over.

    Raises:
        ModelError: The model does not match its contract.
        BackendUnavailableError: It does not run there.
    """
    spec = loader.model.spec
    family = FAMILIES[spec.family]
    loader.check(backend)
    # What goes one by one has all threads for a frame, and else each frame one.
    one_by_one = family.in_order or spec.large
    lanes, threads = (1, loader.cores) if one_by_one else (workers.lanes, 1)
    if device is None:
        networks = loader.on_cpu(family.wiring(spec, format, 1), lanes, threads)
        return LanesDriver(networks, workers)
    from bgsoft.infer.cuda import for_host

    stream = network_stream(device)
    batch = spec.batch or lanes

    def make(size: int, graphs: bool) -> Network:
        wiring = family.wiring(spec, format, size)
        on_gpu = loader.on_gpu(wiring, backend, device, stream, graphs=graphs, largest_batch=batch)
        return for_host(on_gpu, device, stream)

    def make_twin() -> Network:
        return loader.on_cpu(family.wiring(spec, format, 1), threads=threads)[0]

    return BatchDriver(make, make_twin, batch=batch, on_event=on_event)


def create_device_segmenter(
    backend: str,
    loader: NetworkLoader,
    format: FrameFormat,
    batch: int,
    device: CudaDevice,
    stream: Any,
    on_event: Callable[[Event], None],
    looks: Looks = Looks.FAST,
) -> Segmenter:
    """The same for frames on a CUDA device, which is current, on its stream.

    Args:
        backend: ``tensorrt``, ``cuda`` or ``cpu``.
        loader: Of the model.
        format: Format of the frames.
        batch: Frames at a time.
        device: Where the frames are.
        stream: CuPy stream of all work.
        on_event: Called for retries, and where the CPU takes over.
        looks: How thoroughly embedded models look.

    Raises:
        ModelError: The model does not match its contract.
        BackendUnavailableError: It does not run there.
    """

    def make(each: NetworkLoader, size: int, largest: int, stream: Any = stream) -> Driver:
        with device.use(stream):  # maybe in a thread of its own
            return _make_device_driver(
                backend, each, format, size, largest, device, stream, on_event
            )

    spec = loader.model.spec
    masker = averaged_with(spec, looks)
    if masker is not None:
        from bgsoft.segment.averaged_cuda import CudaAverage

        again = partial(
            create_device_segmenter,
            format=format,
            batch=batch,
            device=device,
            stream=stream,
            on_event=on_event,
        )

        def make_masks() -> Segmenter:
            with device.use(stream):
                return again(backend, loader.beside(resolve(masker)), looks=looks)

        with StartupPool() as pool:
            masks = pool.submit("models for masks", make_masks)
            mattes = again(backend, loader)
        return AveragedSegmenter(mattes, masks.result(), CudaAverage(format))
    beside = companion(spec, looks)
    if beside is None:
        return FAMILIES[spec.family].on_device(spec, format, make(loader, batch, batch), batch)
    from bgsoft.segment.batched import BatchedSegmenter
    from bgsoft.segment.zoomed_cuda import CudaZoomSide

    other = loader.beside(resolve(beside))
    turns = looks is Looks.STANDARD
    # Where looks take turns, few frames of a batch have a whole one: they are run alone, the two
    # models' beside each other.
    size, apart = (1, network_stream(device, 1)) if turns else (batch, None)
    with StartupPool() as pool:
        making = pool.submit(f"model {beside}", partial(make, other, size, size))
        making_whole = None
        if turns:
            # TensorRT's engine serves both.
            alone = partial(make, loader, size, batch, apart)
            making_whole = pool.submit("model for single frames", alone)
        close = BatchedSegmenter(spec, make(loader, batch, batch), format, batch)
        landscape = BatchedSegmenter(other.model.spec, making.result(), format, batch)
        general = close
        if making_whole is not None:
            general = BatchedSegmenter(spec, making_whole.result(), format, batch)
    side = CudaZoomSide(format, (spec.height, spec.width), device, batch, _HALF[looks], apart)
    return _zoomed(general, landscape, close, side, format, looks)


def _make_device_driver(
    backend: str,
    loader: NetworkLoader,
    format: FrameFormat,
    batch: int,
    largest_batch: int,
    device: CudaDevice,
    stream: Any,
    on_event: Callable[[Event], None],
) -> Driver:
    """What runs a model for frames on a device, up to ``batch`` at once.

    ``largest_batch`` is what :class:`bgsoft.infer.cuda.GpuNetwork` says.
    """
    from bgsoft.infer.cuda import for_device

    spec = loader.model.spec
    family = FAMILIES[spec.family]
    loader.check(backend)
    one_by_one = family.in_order or spec.large
    if one_by_one or spec.batch:
        batch = largest_batch = spec.batch or 1
    threads = loader.cores if one_by_one else 1

    def on_cpu(size: int) -> Network:
        (network,) = loader.on_cpu(family.wiring(spec, format, size), threads=threads)
        return for_device(network, device, stream)

    def make(size: int, graphs: bool) -> Network:
        if backend == "cpu":
            return on_cpu(size)
        # After a fault, a smaller batch goes on with the engine of the whole one.
        wiring = family.wiring(spec, format, size)
        network = loader.on_gpu(
            wiring, backend, device, stream, graphs=graphs, largest_batch=largest_batch
        )
        return for_device(network, device, stream)

    return BatchDriver(make, lambda: on_cpu(1), batch=batch, on_event=on_event)
