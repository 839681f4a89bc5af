"""From settings to stages: which backend runs each, and how they are joined where they differ.

Frames live where they are composited. A stage that runs elsewhere gets an adapter that carries
frames (or, for inference, the model's small tensors) across. Everything here happens once, before
the first frame; the methods of one builder may be called from several threads at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bgsoft.decode.base import Decoder, DecodeSettings
from bgsoft.encode.base import Encoder, PictureKind
from bgsoft.frame import FrameFormat
from bgsoft.infer.loading import NetworkLoader
from bgsoft.infer.shared import ModelUser, SharedModels
from bgsoft.media.info import VideoInfo
from bgsoft.media.writer import Writer
from bgsoft.models.boxes import BOXES
from bgsoft.models.catalog import ResolvedModel, resolve
from bgsoft.pipeline.metrics import Metrics
from bgsoft.pipeline.picture import MaskSchedule, PictureStages
from bgsoft.rendering import backends
from bgsoft.rendering.backends import Choice
from bgsoft.rendering.picture_options import PictureOptions
from bgsoft.report import Event
from bgsoft.resources import Resources
from bgsoft.ring import FrameRing
from bgsoft.segment.base import Segmenter
from bgsoft.settings.config import (
    REPLACING,
    BackendConfig,
    EffectKind,
    EncodeConfig,
    Precision,
    RenderConfig,
)
from bgsoft.settings.regions import Region
from bgsoft.startup import StartupPool, span

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice
    from bgsoft.detect.step import DetectorStep
    from bgsoft.face.step import FaceStep
    from bgsoft.matte.given import MatteReader
    from bgsoft.regions.step import RegionStep
    from bgsoft.rendering.device import DeviceStages
    from bgsoft.rendering.host import HostStages


R = TypeVar("R")

_FINE_EDGES = (*REPLACING, EffectKind.MATTE)
"""Effects for which the edge is fitted on the frame itself: the people get another background."""


def _open_mattes(config: RenderConfig, info: VideoInfo, resources: Resources) -> MatteReader | None:
    if config.segment.matte_in is None:
        return None
    from bgsoft.decode.cpu import decoder_threads
    from bgsoft.matte.given import MatteReader

    reader = MatteReader(config.segment, info, config.fps, threads=decoder_threads(resources))
    resources.notice("segment", *reader.notices)
    return reader


_DEFAULTS = PictureOptions()


class StageBuilder:
    """Builds the stages of one render and remembers what was chosen.

    Args:
        config: Backends of the stages.
        on_event: Called for what happens while stages are built or recover from faults.
        device: The GPU, where it has been set up already.
        alone: Stages are built to be tried alone: what others lack does not matter.
        user: Of models that others use, too, or that stages will be built of again; None: there
            are no such.

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
        user: ModelUser | None = None,
    ) -> None:
        self._config = config
        self._user = user
        gpu = backends.chosen_gpu(config.gpu) if device is None else device.number
        self._resources = Resources(gpu, config.threads, on_event, device)
        self.choices: dict[str, Choice] = {}
        """Chosen backends by stage; filled as the stages are built."""
        for stage in () if alone else backends.STAGES:
            # A named backend that cannot be here fails at once; so does, whatever was named, an
            # installation of the runtime that is at fault.
            if getattr(config, stage) != "auto" or config.require_gpu or stage == "infer":
                backends.create(stage, config, lambda _name: None, gpu)
        self._stages: HostStages | DeviceStages = self._choose(
            "composite",
            lambda name: backends.maker("composite", name)(self._resources, config.batch),
        )
        """Makes what works where frames live."""

    @property
    def used_device(self) -> CudaDevice | None:
        """The GPU, where any stage uses it."""
        return self._resources.used_device

    @property
    def on_device(self) -> bool:
        """Return whether frames live on the GPU between decoder and encoder."""
        return backends.on_gpu("composite", self.choices["composite"].backend)

    @property
    def batch(self) -> int:
        """Frames that go through the picture stages at a time; on the host one a core."""
        return self._stages.batch

    def working(self) -> AbstractContextManager[None]:
        """Around the work on a frame, where others work on theirs: on the CPU, one a core."""
        return (
            nullcontext() if self._user is None else self._user.working(limited=not self.on_device)
        )

    def uses(self, models: SharedModels) -> bool:
        """Return whether stages are built of these."""
        return self._user is not None and self._user.models is models

    def leave(self) -> None:
        """Nobody works by it any more, whatever a thread that hangs says."""
        if self._user is not None:
            self._user.leave()

    def _choose(self, stage: str, make: Callable[[str], R]) -> R:
        """The best backend of a stage that works; ``make`` makes it by its name."""

        def timed(name: str) -> R:
            with span(f"{stage} {name}"):
                return make(name)

        created = backends.create(stage, self._config, timed, self._resources.gpu)
        self.choices[stage], made = created
        return made

    def open_decoder(
        self, path: Path, settings: DecodeSettings, info: VideoInfo | None = None
    ) -> Decoder:
        """Open the input, on the device if it can be decoded there; its frames are where they live.

        Args:
            path: The input.
            settings: The part of it to decode; threads are chosen here.
            info: The input, where it has been probed already.

        Raises:
            OpenError, UnsupportedFormatError: The input cannot be read.
            BackendUnavailableError: As :func:`bgsoft.rendering.backends.create`.
        """
        return self._choose("decode", lambda name: self.make_decoder(name, path, settings, info))

    def make_decoder(
        self, backend: str, path: Path, settings: DecodeSettings, info: VideoInfo | None = None
    ) -> Decoder:
        """:meth:`open_decoder` on a named backend.

        Raises:
            BackendUnavailableError: It cannot decode this; the message is the reason.
        """
        decoder: Decoder = backends.maker("decode", backend)(path, settings, info, self._resources)
        return self.adapt_decoder(decoder, on_device=backends.on_gpu("decode", backend))

    def adapt_decoder(self, decoder: Decoder, *, on_device: bool) -> Decoder:
        """A decoder, on the device or on the host, as one whose frames are where they live."""
        if on_device == self.on_device:
            return decoder
        from bgsoft.pipeline.crossing import DownloadingDecoder, UploadingDecoder

        adapter = DownloadingDecoder if on_device else UploadingDecoder
        return adapter(decoder, self._resources.device)

    def open_encoder(
        self, writer: Writer, config: EncodeConfig, info: VideoInfo, kind: PictureKind
    ) -> Encoder:
        """The encoder of the output, on the device if it can be encoded there.

        Args:
            writer: Takes its packets or pictures.
            config: The codec and its settings.
            info: The input.
            kind: The planes to encode.

        Raises:
            ConfigError, UnsupportedFormatError: Settings, container and codec don't fit.
            EncodeError: The encoder refuses its settings.
            BackendUnavailableError: As :func:`bgsoft.rendering.backends.create`.
        """
        return self._choose(
            "encode", lambda name: self.make_encoder(name, writer, config, info, kind)
        )

    def make_encoder(
        self,
        backend: str,
        writer: Writer,
        config: EncodeConfig,
        info: VideoInfo,
        kind: PictureKind = PictureKind.COLOR,
    ) -> Encoder:
        """:meth:`open_encoder` on a named backend.

        Raises:
            BackendUnavailableError: It cannot encode this; the message is the reason.
        """
        open_encoder = backends.maker("encode", backend)
        encoder: Encoder = open_encoder(writer, config, info, kind, self._resources)
        on_device = backends.on_gpu("encode", backend)
        return self.adapt_encoder(encoder, info.format, kind, on_device=on_device)

    def adapt_encoder(
        self, encoder: Encoder, format: FrameFormat, kind: PictureKind, *, on_device: bool
    ) -> Encoder:
        """An encoder, on the device or on the host, as one that takes frames from where they live.

        Args:
            encoder: Closed with what is returned.
            format: Format of the frames.
            kind: The planes that it reads.
            on_device: Where it takes them from itself.
        """
        if on_device == self.on_device:
            return encoder
        from bgsoft.pipeline.crossing import CrossingEncoder

        return CrossingEncoder(encoder, self._resources.device, format, kind, up=on_device)

    def make_ring(self, format: FrameFormat, held: int = 0) -> FrameRing:
        """The frame slots, where frames live.

        Args:
            format: Format of the frames.
            held: Frames that the picture stages keep back; there is a slot more for each, except
                where the user has named a number of slots that is enough.
        """
        slots = self._config.ring_slots or self._stages.ring_slots(format, held) + held
        planes = partial(self._stages.planes, format)
        return FrameRing(max(slots, 2 * self.batch + held), planes)

    def make_regions(
        self, regions: Sequence[Region], config: RenderConfig, info: VideoInfo
    ) -> RegionStep | None:
        """The step that applies regions, where there are any; those of ``config`` do not count.

        Raises:
            ConfigError: A region cannot be used on this video.
        """
        return self._stages.regions(regions, config, info)

    def make_picture_stages(
        self,
        config: RenderConfig,
        info: VideoInfo,
        model: ResolvedModel,
        metrics: Metrics,
        options: PictureOptions = _DEFAULTS,
    ) -> PictureStages:
        """The stages between decoder and encoder.

        Args:
            config: Settings of the render.
            info: The input.
            model: The segmentation model.
            metrics: Gets the clocks of the stages.
            options: Their surroundings.

        Raises:
            ConfigError, ModelError: Look or model cannot be used.
            BackendUnavailableError: As :func:`bgsoft.rendering.backends.create`.
        """
        stages, format, segment = self._stages, info.format, config.segment
        from_alpha = model.spec.of_family.makes_alpha
        fine = config.effect.kind in _FINE_EDGES
        # A similar frame is one like the last that was segmented, so each has to be known before
        # the next is tried.
        loop = stages if segment.similarity_db is None else stages.singly()
        reader, replaces = _open_mattes(config, info, self._resources), segment.replaces_matte
        with StartupPool() as pool, stages.current():
            make_networks = partial(self._make_networks, config, info, model, options)
            making = pool.submit("networks", make_networks)
            with span("picture kernels"):
                reducer, scenes = loop.reducer(format), loop.scenes(format)
                matte = loop.matte_stage(
                    config.matte, format, from_alpha=from_alpha, given=replaces, fine=fine
                )
                aspect = info.sample_aspect_ratio
                compositor = stages.compositor(config.effect, format, options.began, aspect)
                drawn = config.all_regions
                if options.drawn_in is not None:
                    drawn = tuple(each.in_percent(options.drawn_in) for each in drawn)
                regions = stages.regions(drawn, config, info, options.followed)
            segmenter, faces, detector = making.result()
            merger = None
            if reader is not None and replaces:
                segmenter = stages.given_segmenter(reader)
            elif reader is not None:
                merger = stages.matte_merger(reader, segment.matte_mode, format)
            assert segmenter is not None
            for step in (faces, detector):
                if step is not None and options.trim_start is not None:
                    step.trim_start = options.trim_start
            return PictureStages(
                execution=loop.execution(metrics.observer),
                reducer=reducer,
                scenes=scenes,
                segmenter=segmenter,
                matte=matte,
                compositor=compositor,
                faces=faces,
                regions=regions,
                detector=detector,
                schedule=MaskSchedule()
                if replaces
                else MaskSchedule(segment.mask_every, segment.similarity_db),
                merger=merger,
                reader=reader,
                areas=stages.areas(of_all=options.measures),
                metrics=metrics,
                on_cut=options.on_cut,
                trim_start=options.trim_start,
            )

    def _make_networks(
        self,
        config: RenderConfig,
        info: VideoInfo,
        model: ResolvedModel,
        options: PictureOptions,
    ) -> tuple[Segmenter | None, FaceStep | None, DetectorStep | None]:
        """Make the segmenter, the face step and the detector in parallel, on one backend."""
        stages, quality = self._stages, config.segment.matte

        def make_segmenter(backend: str) -> Segmenter | None:
            if config.segment.replaces_matte:
                return None
            with stages.current():
                loader = self._loader(model, instead=self._instead)
                return stages.segmenter(backend, loader, info.format, quality)

        def make_faces(backend: str) -> FaceStep | None:
            with stages.current():
                return stages.faces(config, info, backend, self._loader, options)

        def make_detector(backend: str) -> DetectorStep | None:
            file = config.detector.file
            if file is None or config.effect.kind is EffectKind.MATTE:
                return None
            # There is no other file of it in half precision.
            loader = self._loader(resolve(file, (BOXES,)), Precision.FP32, self._instead)
            with stages.current():
                return stages.detector(
                    config, info.format, stages.segmenter_factory(backend, info.format), loader
                )

        def make(backend: str) -> tuple[Segmenter | None, FaceStep | None, DetectorStep | None]:
            with StartupPool() as pool:
                segmenter = pool.submit("segmenter", partial(make_segmenter, backend))
                if backend == "tensorrt":  # which times kernels while it builds an engine
                    segmenter.exception()
                faces = pool.submit("faces", partial(make_faces, backend))
                if backend == "tensorrt":
                    faces.exception()
                detector = pool.submit("detector", partial(make_detector, backend))
            return segmenter.result(), faces.result(), detector.result()

        return self._choose("infer", make)

    @property
    def _instead(self) -> tuple[str, ...]:
        """Return what may run a model of which a better backend would run only a part."""
        if self._config.infer != "auto":
            return ()
        return ("cuda",) if self._config.require_gpu else ("cuda", "cpu")

    def _loader(
        self,
        model: ResolvedModel,
        precision: Precision | None = None,
        instead: tuple[str, ...] = (),
    ) -> NetworkLoader:
        on_notice = partial(self._resources.notice, "segment")
        chosen = precision or self._config.precision
        return NetworkLoader(model, chosen, on_notice, self._resources.cores, instead, self._user)

    def close(self) -> None:
        """Wait for the GPU, where one is used, so that nothing runs at exit."""
        device = self._resources.used_device
        if device is not None:
            device.synchronize()
