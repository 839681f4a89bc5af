"""Maker of the picture stages for frames on a CUDA device."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from bgsoft.cuda.device import device_planes
from bgsoft.face.create import create_faces
from bgsoft.face.detect import Canvases
from bgsoft.face.networks import FaceGlance, FaceNetworks, wiring_of
from bgsoft.face.step import FaceStep
from bgsoft.frame import FrameFormat, Planes
from bgsoft.infer.base import GpuRun, Network
from bgsoft.infer.cuda import for_device
from bgsoft.infer.drivers import RecoveringNetwork
from bgsoft.infer.loading import NetworkLoader
from bgsoft.infer.warm import network_stream
from bgsoft.media.info import VideoInfo
from bgsoft.models.catalog import ResolvedModel
from bgsoft.ops.placement import current_device
from bgsoft.pipeline.device_execution import DeviceExecution
from bgsoft.pipeline.picture import Execution
from bgsoft.rendering.host import LoaderMaker, StageFactory
from bgsoft.resources import Resources
from bgsoft.segment.base import Segmenter
from bgsoft.segment.factory import DeviceSegmenterFactory
from bgsoft.settings.config import MatteQuality, Precision, RenderConfig

if TYPE_CHECKING:
    from bgsoft.pipeline.trace import TraceRecorder
    from bgsoft.rendering.picture_options import PictureOptions

_RING_SLOTS = 32
_BATCH = 8
"""Frames at a time.

An H100 rendered 9,600 frames in four chunks in 8.8 s with batches of 8, 11.5 s with 16 and 14.4 s
with 32. For larger batches cuDNN chooses slower kernels."""
_MEMORY_SHARE = 0.25
"""Maximum share of the free device memory for the ring."""


class DeviceStages(StageFactory):
    """Maker of picture stages on a device, which it sets up.

    It has the methods of :class:`bgsoft.rendering.host.HostStages`.

    Raises:
        BackendUnavailableError: The device does not start.
    """

    def __init__(self, resources: Resources, batch: int = 0) -> None:
        self._device = resources.device
        super().__init__(resources, current_device(), self._device, batch or _BATCH)
        self._stream = network_stream(self._device)  # for all work but faces, networks included
        self._face_stream = network_stream(self._device, 2)

    def planes(self, format: FrameFormat, slot: int) -> Planes:
        self._device.make_current()
        return device_planes(format, slot)

    def ring_slots(self, format: FrameFormat, held: int) -> int:
        slots = _RING_SLOTS
        slot_bytes = format.width * format.height * (1.5 * format.bytes_per_sample + 1)
        room = self._device.free_bytes() * _MEMORY_SHARE
        while slots > 2 * self.batch and (slots + held) * slot_bytes > room:
            slots //= 2
        return slots

    def current(self) -> AbstractContextManager[None]:
        return self._device.use(self._stream)

    def singly(self) -> DeviceStages:
        single = copy.copy(self)
        single.batch = 1
        return single

    def execution(self, observer: TraceRecorder | None) -> Execution:
        streams = self._stream, self._face_stream
        return DeviceExecution(self._device, streams, self.batch, observer)

    def segmenter_factory(self, backend: str, format: FrameFormat) -> DeviceSegmenterFactory:
        on_event = self._resources.on_event
        return DeviceSegmenterFactory(
            backend, format, self.batch, self._device, self._stream, on_event
        )

    def segmenter(
        self, backend: str, loader: NetworkLoader, format: FrameFormat, quality: MatteQuality
    ) -> Segmenter:
        factory = self.segmenter_factory(backend, format)

        def make_faces() -> FaceGlance:
            make_network = self._face_network(backend, loader.sibling, self._stream)
            with self.current():
                batch = 1 if backend == "cpu" else self.batch
                return FaceGlance(format, make_network, batch, current_device())

        return factory.create(loader, quality, make_faces)

    def _face_network(
        self, backend: str, make_loader: LoaderMaker, stream: Any
    ) -> Callable[[ResolvedModel, int], Network]:
        """Return a function that loads face networks for a stream."""
        device, on_event = self._device, self._resources.on_event

        def load(model: ResolvedModel, batch: int) -> Network:
            # There are no fp16 files of these small networks; TensorRT makes its own.
            loader = make_loader(model, None if backend == "tensorrt" else Precision.FP32)
            wiring = wiring_of(model, batch)

            def make_twin() -> Network:
                (network,) = loader.on_cpu(wiring)
                return for_device(network, device, stream)

            if backend == "cpu":
                return make_twin()
            network = loader.on_gpu(wiring, GpuRun(backend, device, stream))
            network = for_device(network, device, stream)
            return RecoveringNetwork(network, make_twin, stage="face", on_event=on_event)

        return load

    def faces(
        self,
        config: RenderConfig,
        info: VideoInfo,
        backend: str,
        make_loader: LoaderMaker,
        options: PictureOptions,
    ) -> FaceStep | None:
        device, stream = self._device, self._face_stream
        load = self._face_network(backend, make_loader, stream)

        def make_networks(canvases: Canvases) -> FaceNetworks:
            # On the CPU, a batch is no faster than single views.
            batch = 1 if backend == "cpu" else self.batch
            with stream:
                return FaceNetworks(info.format, canvases, load, batch, current_device())

        return create_faces(
            config,
            info,
            make_networks,
            options.face_data,
            options.known,
            backend=backend,
            device=device,
        )
