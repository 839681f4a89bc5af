"""From settings to stages: which backend runs each, and how they are joined where they differ.

Frames live where they are composited. A stage that runs elsewhere gets an adapter that carries
frames (or, for inference, the model's small tensors) across. Everything here happens once, before
the first frame; the methods of one builder may be called from several threads at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from bgsoft.analysis.cpu import CpuReducer
from bgsoft.analysis.scenes import CpuSceneProbe
from bgsoft.composite.cpu import CpuCompositor
from bgsoft.composite.foreground import REPLACING
from bgsoft.decode.base import Decoder, DecodeSettings
from bgsoft.decode.cpu import CpuDecoder
from bgsoft.encode.base import Encoder, PictureKind
from bgsoft.encode.codecs import choose_encoder
from bgsoft.encode.cpu import CpuEncoder
from bgsoft.face.create import create_device_faces, create_host_faces
from bgsoft.face.data import FaceDataWriter
from bgsoft.face.step import FaceStep
from bgsoft.frame import Frame, FrameFormat, Planes
from bgsoft.hide.cpu import CpuHider
from bgsoft.hide.regions import create_regions
from bgsoft.infer.base import Network, Wiring
from bgsoft.infer.drivers import RecoveringNetwork
from bgsoft.infer.loading import NetworkLoader
from bgsoft.infer.warm import network_stream
from bgsoft.matte.cpu import create_matte_stage
from bgsoft.media.info import VideoInfo
from bgsoft.media.mux import Muxer
from bgsoft.models.catalog import ResolvedModel
from bgsoft.pipeline.metrics import Metrics
from bgsoft.pipeline.picture import HostExecution, MaskSchedule, PictureStages
from bgsoft.pipeline.trace import TraceRecorder
from bgsoft.rendering import backends
from bgsoft.rendering.backends import Choice
from bgsoft.report import Event
from bgsoft.ring import FrameRing
from bgsoft.segment.base import Segmenter
from bgsoft.segment.create import create_device_segmenter, create_host_segmenter
from bgsoft.segment.families import FAMILIES
from bgsoft.segment.single import network_shapes
from bgsoft.settings.config import BackendConfig, EffectKind, EncodeConfig, Precision, RenderConfig
from bgsoft.startup import Parts, span
from bgsoft.workers import Workers, usable_cores

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice


R = TypeVar("R")

_FINE_EDGES = (*REPLACING, EffectKind.MATTE)
"""Effects for which the edge is fitted on the frame itself: the people get another background."""

_HOST_RING_SLOTS = 8
"""Enough for each of the three threads to be a frame or two ahead; more only costs memory."""
_MAX_DECODE_THREADS = 8
_MAX_HOST_BATCH = 8
_DEVICE_RING_SLOTS = 32
_DEVICE_BATCH = 8
"""On an H100 a run of 8 takes 0.86 ms where a run of 1 takes 0.51 ms."""
_DEVICE_SHARE = 0.25
"""Part of the free device memory that the ring may take."""


def host_planes(format: FrameFormat, slot: int) -> Planes:
    """The buffers of one ring slot in host memory."""
    return Planes(
        slot=slot,
        luma=np.empty(format.luma_shape, format.dtype),
        chroma=np.empty(format.chroma_shape, format.dtype),
        alpha=np.zeros(format.luma_shape, np.uint8),
    )


class StageBuilder:
    """Builds the stages of one render and remembers what was chosen.

    Args:
        config: Where each stage is to run.
        on_event: Called for what happens while stages are built or recover from faults.
        device: The GPU, where it has been set up already.
        alone: Stages are built to be tried alone: what others lack does not matter.

    Raises:
        BackendUnavailableError: A backend that was named cannot be here.
    """

    def __init__(
        self,
        config: BackendConfig,
        on_event: Callable[[Event], None],
        *,
        device: CudaDevice | None = None,
        alone: bool = False,
    ) -> None:
        self._config = config
        self._cores = config.threads or usable_cores()
        self._gpu = backends.chosen_gpu(config.gpu) if device is None else device.number
        self._on_event = on_event
        self._device = device
        self._lock = threading.Lock()
        """Around setting up the device."""
        self.faces: FaceStep | None = None
        """What is done for faces, once the picture stages are made; None: nothing."""
        self.choices: dict[str, Choice] = {}
        """What runs, by stage; filled as the stages are built."""
        if not alone:
            self._check_named()
        self._choose("composite", lambda name: None if name == "cpu" else self.device)

    @property
    def device(self) -> CudaDevice:
        """The GPU, set up when a stage first asks for it, and current in the calling thread.

        Raises:
            BackendUnavailableError: It does not start.
        """
        with self._lock:
            if self._device is None:
                with span("device"):
                    from bgsoft.cuda.device import CudaDevice

                    self._device = CudaDevice(self._gpu)
        self._device.make_current()
        return self._device

    @property
    def used_device(self) -> CudaDevice | None:
        """The GPU, where any stage uses it."""
        return self._device

    @property
    def on_device(self) -> bool:
        """Whether frames live on the GPU between decoder and encoder."""
        return self.choices["composite"].backend == "cuda"

    @property
    def batch(self) -> int:
        """Frames that go through the picture stages at a time; on the host one a core."""
        most = _DEVICE_BATCH if self.on_device else min(_MAX_HOST_BATCH, self._cores)
        return self._config.batch or most

    def _choose(self, stage: str, make: Callable[[str], R]) -> R:
        """The best backend of a stage that works; ``make`` makes it by its name."""

        def timed(name: str) -> R:
            with span(f"{stage} {name}"):
                return make(name)

        choice, made = self._create(stage, timed)
        self.choices[stage] = choice
        return made

    def _create(self, stage: str, make: Callable[[str], R]) -> tuple[Choice, R]:
        config = self._config
        return backends.create(
            stage,
            getattr(config, stage),
            {name: partial(make, name) for name in backends.names(stage)},
            gpu=self._gpu,
            require_gpu=config.require_gpu,
        )

    def _check_named(self) -> None:
        """Fail at once where a backend that the user insists on cannot be here.

        Inference is looked at in any case: an installation at fault is better reported before work.
        """
        config = self._config
        for stage in backends.STAGES:
            if getattr(config, stage) != "auto" or config.require_gpu or stage == "infer":
                self._create(stage, lambda _name: None)

    def open_decoder(
        self, path: Path, settings: DecodeSettings, info: VideoInfo | None = None
    ) -> Decoder:
        """Open the input, on the device if it can be decoded there; its frames are where they live.

        Args:
            path: The input.
            settings: What part of it; threads are chosen here.
            info: The input, where it has been probed already.

        Raises:
            OpenError, UnsupportedFormatError: The input cannot be read.
            BackendUnavailableError: As :func:`bgsoft.rendering.backends.create`.
        """
        decoder = self._choose("decode", lambda name: self.make_decoder(name, path, settings, info))
        decodes_on_device = self.choices["decode"].backend == "nvdec"
        if decodes_on_device == self.on_device:
            return decoder
        from bgsoft.pipeline.crossing import DownloadingDecoder, UploadingDecoder

        adapter = DownloadingDecoder if decodes_on_device else UploadingDecoder
        return adapter(decoder, self.device)

    def make_decoder(
        self, backend: str, path: Path, settings: DecodeSettings, info: VideoInfo | None = None
    ) -> Decoder:
        """The decoder ``nvdec`` or ``cpu`` alone, its frames where it works.

        Raises:
            OpenError, UnsupportedFormatError: The input cannot be read.
            BackendUnavailableError: It cannot decode this; the message is the reason.
        """
        if backend == "cpu":
            # The encoder and the picture stages have work for all cores; with FFmpeg's own choice
            # (one more than there are cores) a render of 1080p on two cores was 2.5 % slower.
            threads = max(1, min(_MAX_DECODE_THREADS, self._cores // 2))
            return CpuDecoder(path, replace(settings, threads=threads), info=info)
        from bgsoft.decode.nvdec import NvdecDecoder

        return NvdecDecoder(path, settings, device=self.device, info=info)

    def make_ring(self, format: FrameFormat, held: int = 0) -> FrameRing:
        """The frame slots, where frames live.

        Args:
            format: Format of the frames.
            held: Frames that the picture stages keep back; there is a slot more for each, except
                where the user has named a number of slots that is enough.
        """
        allocate: Callable[[FrameFormat, int], Planes] = host_planes
        slots = _HOST_RING_SLOTS
        if self.on_device:
            from bgsoft.cuda.device import device_planes

            allocate, slots = device_planes, _DEVICE_RING_SLOTS
            slot_bytes = format.width * format.height * (1.5 * format.bytes_per_sample + 1)
            room = self.device.free_bytes() * _DEVICE_SHARE
            while slots > 2 * self.batch and (slots + held) * slot_bytes > room:
                slots //= 2
        elif self._device is not None:
            from bgsoft.cuda.device import pinned_planes

            allocate = pinned_planes
        slots = self._config.ring_slots or slots + held
        return FrameRing(max(slots, 2 * self.batch + held), partial(allocate, format))

    def make_picture_stages(
        self,
        config: RenderConfig,
        info: VideoInfo,
        model: ResolvedModel,
        metrics: Metrics,
        on_cut: Callable[[Frame], None],
        face_data: FaceDataWriter | None = None,
        *,
        kept_from: int | None = None,
        began: Fraction | None = None,
    ) -> PictureStages:
        """The stages between decoder and encoder.

        Args:
            config: What to do.
            info: What is decoded.
            model: Makes the masks.
            metrics: Gets the clocks of the stages.
            on_cut: Called for the first frame of each new scene.
            face_data: Where faces are written; None: nowhere. The caller closes it.
            kept_from: Frames with an earlier pts only lead up to those that are rendered; None: all
                are rendered.
            began: When a background video starts, seconds of the frames' time; None: with the first
                frame.

        Raises:
            ConfigError, ModelError: Look or model cannot be used.
            BackendUnavailableError: As :func:`bgsoft.rendering.backends.create`.
        """
        join = partial(
            PictureStages,
            schedule=MaskSchedule(config.segment.mask_every, config.segment.similarity_db),
            metrics=metrics,
            on_cut=on_cut,
            kept_from=kept_from,
        )
        from_alpha = FAMILIES[model.spec.family].makes_alpha
        if self.on_device:
            return self._device_stages(
                config,
                info,
                model,
                join,
                from_alpha,
                metrics.observer,
                face_data,
                began,
            )
        format = info.format
        workers = Workers(self.batch)

        def segmenter(backend: str) -> Segmenter:
            device = None if backend == "cpu" else self.device
            loader = self._loader(model, instead=self._instead)
            looks = config.segment.looks
            return create_host_segmenter(
                backend, loader, format, workers, device, self._on_event, looks
            )

        with Parts() as parts:
            make_faces = partial(create_host_faces, config, format, self._on_event, face_data)
            faces = parts.begin("faces", make_faces)
            chosen = self._choose("infer", segmenter)
            self.faces = faces.result()
        return join(
            execution=HostExecution(workers),
            reducer=CpuReducer(format, workers),
            scenes=CpuSceneProbe(format),
            segmenter=chosen,
            matte=create_matte_stage(
                config.matte,
                format,
                workers,
                from_alpha=from_alpha,
                fine=config.effect.kind in _FINE_EDGES,
            ),
            compositor=CpuCompositor(config.effect, format, workers, began),
            faces=self.faces,
            regions=create_regions(config, info, CpuHider, workers, self._on_event),
        )

    @property
    def _instead(self) -> tuple[str, ...]:
        """What may run a model that a better backend would only run a part of."""
        if self._config.infer != "auto":
            return ()
        return ("cuda",) if self._config.require_gpu else ("cuda", "cpu")

    def _loader(
        self,
        model: ResolvedModel,
        precision: Precision | None = None,
        instead: tuple[str, ...] = (),
    ) -> NetworkLoader:
        def tell(text: str) -> None:
            self._on_event(Event(kind="notice", stage="segment", message=text))

        chosen = precision or self._config.precision
        return NetworkLoader(model, chosen, tell, self._cores, instead)

    def _device_stages(
        self,
        config: RenderConfig,
        info: VideoInfo,
        model: ResolvedModel,
        join: Callable[..., PictureStages],
        from_alpha: bool,
        observer: TraceRecorder | None,
        face_data: FaceDataWriter | None,
        began: Fraction | None,
    ) -> PictureStages:
        from bgsoft.analysis.cuda import CudaReducer, CudaSceneProbe
        from bgsoft.composite.cuda import CudaCompositor
        from bgsoft.hide.cuda import CudaHider
        from bgsoft.matte.cuda import create_cuda_matte_stage
        from bgsoft.pipeline.device_execution import DeviceExecution

        device, format = self.device, info.format
        stream = network_stream(device)

        def segmenter(backend: str) -> Segmenter:
            loader = self._loader(model, instead=self._instead)
            return create_device_segmenter(
                backend,
                loader,
                format,
                self.batch,
                device,
                stream,
                self._on_event,
                config.segment.looks,
            )

        def choose_segmenter() -> Segmenter:
            with device.use(stream):
                return self._choose("infer", segmenter)

        face_step = partial(self._device_faces, config, format, device, stream, face_data)
        # A similar frame is one like the last that was segmented, so each has to be known before
        # the next is looked at.
        batch = self.batch if config.segment.similarity_db is None else 1
        with Parts() as parts, device.use(stream):
            choosing = parts.begin("segmenter", choose_segmenter)
            # What the segmenter will run on is as good as known, except while it may yet have to
            # build an engine.
            expected = backends.first_available("infer", self._config.infer, self._gpu)
            early = None
            if expected != "tensorrt":
                early = parts.begin("faces", partial(face_step, expected))
            with span("picture kernels"):
                reducer = CudaReducer(format, batch)
                scenes = CudaSceneProbe(format, batch)
                matte = create_cuda_matte_stage(
                    config.matte,
                    format,
                    device,
                    batch,
                    from_alpha=from_alpha,
                    fine=config.effect.kind in _FINE_EDGES,
                )
                compositor = CudaCompositor(config.effect, format, device, began)
                regions = create_regions(config, info, CudaHider, None, self._on_event)
            chosen = choosing.result()
            backend = self.choices["infer"].backend
            if early is not None and backend != expected:
                parts.drop(early)
                early = None
            self.faces = face_step(backend) if early is None else early.result()
            return join(
                execution=DeviceExecution(device, stream, batch, observer),
                reducer=reducer,
                scenes=scenes,
                segmenter=chosen,
                matte=matte,
                compositor=compositor,
                faces=self.faces,
                regions=regions,
            )

    def _device_faces(
        self,
        config: RenderConfig,
        format: FrameFormat,
        device: CudaDevice,
        stream: Any,
        face_data: FaceDataWriter | None,
        backend: str,
    ) -> FaceStep | None:
        from bgsoft.infer.cuda import for_device

        def face_network(face_model: ResolvedModel, batch: int) -> Network:
            # Small as they are, there is no fp16 file of them; TensorRT makes its own.
            loader = self._loader(face_model, None if backend == "tensorrt" else Precision.FP32)
            wiring = Wiring(inputs=network_shapes(face_model.spec, batch))

            def make_twin() -> Network:
                (network,) = loader.on_cpu(wiring)
                return for_device(network, device, stream)

            if backend == "cpu":
                return make_twin()
            network = for_device(loader.on_gpu(wiring, backend, device, stream), device, stream)
            return RecoveringNetwork(network, make_twin, stage="face", on_event=self._on_event)

        with device.use(stream):
            return create_device_faces(
                config,
                format,
                device,
                backend,
                self.batch,
                face_network,
                self._on_event,
                face_data,
            )

    def open_encoder(
        self,
        muxer: Muxer,
        config: EncodeConfig,
        info: VideoInfo,
        kind: PictureKind = PictureKind.COLOR,
    ) -> Encoder:
        """The encoder of the output, on the device if it can be encoded there.

        Args:
            muxer: Takes its packets.
            config: What it is to make.
            info: What is decoded.
            kind: Which planes it reads.

        Raises:
            ConfigError, UnsupportedFormatError: Settings, container and codec don't fit.
            EncodeError: The encoder refuses its settings.
            BackendUnavailableError: As :func:`bgsoft.rendering.backends.create`.
        """
        encoder = self._choose(
            "encode", lambda name: self.make_encoder(name, muxer, config, info, kind)
        )
        return self._joined(self.choices["encode"].backend, encoder, info, kind)

    def open_matte_encoder(self, muxer: Muxer, info: VideoInfo) -> Encoder:
        """An encoder of the matte alone, on the CPU, with its default settings."""
        encoder = self.make_encoder("cpu", muxer, EncodeConfig(), info, PictureKind.MATTE)
        return self._joined("cpu", encoder, info, PictureKind.MATTE)

    def make_encoder(
        self,
        backend: str,
        muxer: Muxer,
        config: EncodeConfig,
        info: VideoInfo,
        kind: PictureKind = PictureKind.COLOR,
    ) -> Encoder:
        """The encoder ``nvenc`` or ``cpu`` alone, for frames where it works.

        Raises:
            ConfigError, UnsupportedFormatError: Settings, container and codec don't fit.
            EncodeError: The encoder refuses its settings.
            BackendUnavailableError: It cannot encode this; the message is the reason.
        """
        if backend == "cpu":
            choice = choose_encoder(config, muxer.container, info, kind)
            self._notice(*choice.notices)
            return CpuEncoder(muxer, choice, self._config.threads)
        from bgsoft.encode.nv_settings import choose_nvenc
        from bgsoft.encode.nvenc import NvencEncoder

        nv_choice = choose_nvenc(config, muxer.container, info, kind)
        encoder = NvencEncoder(muxer, nv_choice, device=self.device)
        self._notice(*encoder.notices)
        return encoder

    def _joined(
        self, backend: str, encoder: Encoder, info: VideoInfo, kind: PictureKind
    ) -> Encoder:
        """The encoder for frames where they live."""
        encodes_on_device = backend == "nvenc"
        if encodes_on_device == self.on_device:
            return encoder
        from bgsoft.pipeline.crossing import DownloadingEncoder, UploadingEncoder

        adapter = UploadingEncoder if encodes_on_device else DownloadingEncoder
        return adapter(encoder, self.device, info.format, kind)

    def _notice(self, *messages: str) -> None:
        for message in messages:
            self._on_event(Event(kind="notice", stage="encode", message=message))

    def close(self) -> None:
        """Wait for the GPU, where one is used, so that nothing runs at exit."""
        if self._device is not None:
            self._device.synchronize()
