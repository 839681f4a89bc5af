"""From a model to its segmenter, wherever frames are and networks run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bgsoft.frame import FrameFormat
from bgsoft.infer.base import Driver, Network
from bgsoft.infer.drivers import BatchDriver, LanesDriver
from bgsoft.infer.loading import NetworkLoader
from bgsoft.report import Event
from bgsoft.segment.base import Segmenter
from bgsoft.segment.families import FAMILIES
from bgsoft.workers import Workers

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice

__all__ = ["create_device_segmenter", "create_host_segmenter", "make_host_driver"]


def create_host_segmenter(
    backend: str,
    loader: NetworkLoader,
    format: FrameFormat,
    workers: Workers,
    device: CudaDevice | None,
    on_event: Callable[[Event], None],
) -> Segmenter:
    """The segmenter for frames on the host; see :func:`make_host_driver`."""
    spec = loader.model.spec
    driver = make_host_driver(backend, loader, format, workers, device, on_event)
    return FAMILIES[spec.family].on_host(spec, format, driver, workers)


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
        on_event: Told of retries and of the CPU taking over.

    Raises:
        ModelError: The model is not what its contract says.
        BackendUnavailableError: It does not run there.
    """
    spec = loader.model.spec
    family = FAMILIES[spec.family]
    loader.check(backend)
    # What goes in order has all threads for one frame, and else each frame one.
    lanes, threads = (1, workers.lanes) if family.in_order else (workers.lanes, 1)
    if device is None:
        networks = loader.on_cpu(family.wiring(spec, format, 1), lanes, threads)
        return LanesDriver(networks, workers)
    from bgsoft.infer.cuda import HostFedNetwork

    stream = device.new_stream()

    def make(batch: int, graphs: bool) -> Network:
        wiring = family.wiring(spec, format, batch)
        on_gpu = loader.on_gpu(wiring, backend, device, stream, graphs=graphs, largest_batch=lanes)
        return HostFedNetwork(on_gpu, device, stream)

    def make_twin() -> Network:
        return loader.on_cpu(family.wiring(spec, format, 1), threads=threads)[0]

    return BatchDriver(make, make_twin, batch=lanes, on_event=on_event)


def create_device_segmenter(
    backend: str,
    loader: NetworkLoader,
    format: FrameFormat,
    batch: int,
    device: CudaDevice,
    stream: Any,
    on_event: Callable[[Event], None],
) -> Segmenter:
    """The same for frames on a CUDA device, which is current, on its stream.

    Args:
        backend: ``tensorrt``, ``cuda`` or ``cpu``.
        loader: Of the model.
        format: Format of the frames.
        batch: Frames at a time.
        device: Where the frames are.
        stream: CuPy stream of all work.
        on_event: Told of retries and of the CPU taking over.

    Raises:
        ModelError: The model is not what its contract says.
        BackendUnavailableError: It does not run there.
    """
    from bgsoft.infer.cuda import DeviceFedNetwork

    spec = loader.model.spec
    family = FAMILIES[spec.family]
    loader.check(backend)
    largest = 1 if family.in_order else batch
    threads = loader.cores if family.in_order else 1

    def on_cpu(size: int) -> Network:
        (network,) = loader.on_cpu(family.wiring(spec, format, size), threads=threads)
        return DeviceFedNetwork(network, device, stream)

    def make(size: int, graphs: bool) -> Network:
        if backend == "cpu":
            return on_cpu(size)
        # After a fault, a smaller batch goes on with the engine of the whole one.
        wiring = family.wiring(spec, format, size)
        return loader.on_gpu(wiring, backend, device, stream, graphs=graphs, largest_batch=largest)

    driver = BatchDriver(make, lambda: on_cpu(1), batch=largest, on_event=on_event)
    return family.on_device(spec, format, driver, batch)
