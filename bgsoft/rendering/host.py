"""Maker of the picture stages for frames in host memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from bgsoft.analysis.reduce import Reducer
from bgsoft.analysis.scenes import LumaProbe
from bgsoft.composite.compositor import PictureCompositor
from bgsoft.composite.effects import create_compositor
from bgsoft.frame import FrameFormat, Planes
from bgsoft.infer.loading import NetworkLoader
from bgsoft.matte.area import AreaMeter
from bgsoft.matte.base import MatteSetup, MatteStage
from bgsoft.matte.stage import create_matte_stage
from bgsoft.media.info import VideoInfo
from bgsoft.models.catalog import ResolvedModel
from bgsoft.ops.placement import HOST, Placement
from bgsoft.pipeline.picture import Execution
from bgsoft.rendering import backends
from bgsoft.resources import Resources
from bgsoft.segment.base import FaceBoxes, Segmenter
from bgsoft.segment.factory import HostSegmenterFactory
from bgsoft.settings.config import (
    EffectConfig,
    MatteConfig,
    MatteMode,
    MatteQuality,
    Precision,
    RenderConfig,
)
from bgsoft.settings.regions import Region
from bgsoft.threads import LanePool

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice
    from bgsoft.detect.step import DetectorStep
    from bgsoft.face.step import FaceStep
    from bgsoft.matte.given import GivenSegmenter, MatteMerger, MatteReader
    from bgsoft.pipeline.trace import TraceRecorder
    from bgsoft.regions.follow import FollowedRegions
    from bgsoft.regions.step import RegionStep
    from bgsoft.rendering.picture_options import PictureOptions

LoaderMaker = Callable[[ResolvedModel, Precision | None], NetworkLoader]
"""Function that makes a model's loader; precision None: that of the render."""

_RING_SLOTS = 6
"""Enough for each thread to be one frame ahead; more only takes memory.

Larger batches get more."""
_MAX_BATCH = 8


def host_planes(format: FrameFormat, slot: int) -> Planes:
    """Return the buffers of one ring slot in host memory."""
    return Planes(
        slot=slot,
        luma=np.empty(format.luma_shape, format.dtype),
        chroma=np.empty(format.chroma_shape, format.dtype),
        alpha=np.zeros(format.luma_shape, np.uint8),
    )


class StageFactory:
    """Base of the makers of picture stages.

    Args:
        resources: Resources of the render.
        placement: Host or device that holds the frames.
        device: The device; None: the host.
        batch: Frames at a time.
        lanes: Frames in parallel.
    """

    def __init__(
        self,
        resources: Resources,
        placement: Placement,
        device: CudaDevice | None,
        batch: int,
        lanes: int = 1,
    ) -> None:
        self.batch = batch
        self._resources = resources
        self._placement, self._frames_device = placement, device
        # Closed with the execution: threads of segmentation, and of later stages.
        self._ahead, self._pool = LanePool(lanes), LanePool(lanes)

    def reducer(self, format: FrameFormat) -> Reducer:
        return Reducer(format, self._ahead, placement=self._placement, batch=self.batch)

    def scenes(self, format: FrameFormat) -> LumaProbe:
        return LumaProbe(format, placement=self._placement, batch=self.batch)

    def matte_stage(
        self,
        config: MatteConfig,
        format: FrameFormat,
        *,
        from_alpha: bool = False,
        given: bool = False,
        fine: bool = False,
    ) -> MatteStage:
        setup = MatteSetup(
            config,
            format,
            self._pool,
            self.batch,
            self._frames_device,
            from_alpha=from_alpha,
            given=given,
            fine=fine,
        )
        return create_matte_stage(setup)

    def given_segmenter(self, reader: MatteReader) -> GivenSegmenter:
        """Return a segmenter that reads the mattes of a file."""
        from bgsoft.matte.given import GivenSegmenter

        return GivenSegmenter(reader, self._placement)

    def matte_merger(
        self, reader: MatteReader, mode: MatteMode, format: FrameFormat
    ) -> MatteMerger:
        """Return a stage that combines the mattes of a file with our own."""
        from bgsoft.matte.given import MatteMerger

        return MatteMerger(reader, mode, format, self._placement)

    def compositor(
        self,
        config: EffectConfig,
        format: FrameFormat,
        began: Fraction | None = None,
        aspect: Fraction = Fraction(1),
    ) -> PictureCompositor:
        device = self._frames_device
        compositor = create_compositor(
            config,
            format,
            placement=self._placement,
            pool=self._pool,
            copies=None if device is None else device.copies,
            began=began,
            aspect=aspect,
        )
        self._resources.notice("composite", *compositor.notices)
        return compositor

    def regions(
        self,
        regions: Sequence[Region],
        config: RenderConfig,
        info: VideoInfo,
        followed: FollowedRegions | None = None,
    ) -> RegionStep | None:
        """Return the step that applies regions and inverts mattes; None if not needed."""
        if not (regions or config.effect.invert):
            return None
        from bgsoft.regions.step import RegionStep

        on_event = self._resources.on_event
        return RegionStep(regions, config, info, self._placement, self._pool, on_event, followed)

    def detector(
        self,
        config: RenderConfig,
        format: FrameFormat,
        factory: HostSegmenterFactory,
        loader: NetworkLoader,
    ) -> DetectorStep:
        """Return the step that hides what a detector finds; ``factory`` makes its networks."""
        from bgsoft.detect.detector import Detector
        from bgsoft.detect.step import DetectorStep
        from bgsoft.hide.plan import HidePlan

        spec, driver = loader.model.spec, factory.driver(loader)
        notice = partial(self._resources.notice, "segment")
        found = Detector(spec, driver, format, self._ahead, self._placement, notice)
        plan = HidePlan.of(config, format)
        return DetectorStep(found, loader.model, plan, self._pool, self._placement)

    def areas(self, *, of_all: bool) -> AreaMeter:
        """Return the meter of the mattes' areas."""
        return AreaMeter(self._placement, of_all=of_all)


class HostStages(StageFactory):
    """Maker of picture stages on the host, the references for :class:`DeviceStages`.

    Args:
        resources: Resources of the render; a GPU only runs networks.
        batch: Frames at a time; 0: one per core, up to 8.
    """

    def __init__(self, resources: Resources, batch: int = 0) -> None:
        batch = batch or min(_MAX_BATCH, resources.cores)
        super().__init__(resources, HOST, None, batch, lanes=max(1, batch // 2))

    def planes(self, format: FrameFormat, slot: int) -> Planes:
        """Return the buffers of one ring slot, page-locked if frames are copied to a GPU."""
        if self._resources.used_device is None:
            return host_planes(format, slot)
        from bgsoft.cuda.device import pinned_planes

        return pinned_planes(format, slot)

    def ring_slots(self, format: FrameFormat, held: int) -> int:
        """Return the slots of a ring, without those for frames that picture stages hold back."""
        return _RING_SLOTS

    def current(self) -> AbstractContextManager[None]:
        """Return the context in which each thread makes and runs stages."""
        return nullcontext()

    def singly(self) -> HostStages:
        """Return a maker for stages that process one frame at a time."""
        return self

    def execution(self, observer: TraceRecorder | None) -> Execution:
        return Execution(self.batch, self._pool, self._ahead)

    def segmenter_factory(self, backend: str, format: FrameFormat) -> HostSegmenterFactory:
        """Return the maker of networks on whole frames for ``tensorrt``, ``cuda`` or ``cpu``."""
        resources = self._resources
        device = resources.device if backends.on_gpu("infer", backend) else None
        return HostSegmenterFactory(
            backend, format, self._ahead, device, resources.on_event, self.batch
        )

    def segmenter(
        self, backend: str, loader: NetworkLoader, format: FrameFormat, quality: MatteQuality
    ) -> Segmenter:
        """Return the segmenter of a model, run by ``tensorrt``, ``cuda`` or ``cpu``."""
        factory = self.segmenter_factory(backend, format)

        def make_faces() -> FaceBoxes:
            from bgsoft.face.networks import FaceGlance

            return FaceGlance(format)

        return factory.create(loader, quality, make_faces)

    def faces(
        self,
        config: RenderConfig,
        info: VideoInfo,
        backend: str,
        make_loader: LoaderMaker,
        options: PictureOptions,
    ) -> FaceStep | None:
        """Return the step for faces, always on the CPU; None if not needed."""
        # Imported in its own thread, in parallel with other imports.
        from bgsoft.face.create import create_faces
        from bgsoft.face.networks import FaceNetworks

        make = partial(FaceNetworks, info.format)
        return create_faces(config, info, make, options.face_data, options.known)
