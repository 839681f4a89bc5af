"""From a model to its segmenter, wherever frames are and networks run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from bgsoft.frame import FrameFormat
from bgsoft.infer.base import Driver
from bgsoft.infer.loading import NetworkLoader
from bgsoft.models.catalog import ModelSpec, resolve
from bgsoft.report import Event
from bgsoft.segment.averaged import Average, AveragedSegmenter
from bgsoft.segment.base import Segmenter
from bgsoft.segment.cpu import HostSide
from bgsoft.segment.families import averaged_with, companion
from bgsoft.segment.network import NetworkSegmenter, Tensors
from bgsoft.segment.zoomed import ZoomedSegmenter, ZoomPlanes
from bgsoft.settings.config import MatteQuality
from bgsoft.startup import Parts
from bgsoft.workers import Workers

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice

_HALF = {MatteQuality.STANDARD: 0.5, MatteQuality.BEST: 0.45}
"""The mean of all passes that is half a person: mirrored passes do not quite fit, which makes it
softer. 0.45 was best in a study of six passes; over 81 photographs the mean IoU of ``best`` is
0.916 with it and 0.914 without."""


class Side(Protocol):
    """What segmenters are made of, on the side that the frames are on."""

    @property
    def single_passes_apart(self) -> bool:
        """Whether passes that take turns have a network for single frames, beside the others."""
        ...

    def driver(self, loader: NetworkLoader, *, single: bool = False, apart: bool = False) -> Driver:
        """What runs a model; may be called in a thread of its own.

        Args:
            loader: Of the model.
            single: Frames come one at a time.
            apart: It runs beside the others.

        Raises:
            ModelError: The model does not match its contract.
            BackendUnavailableError: It does not run there.
        """
        ...

    def tensors(self, spec: ModelSpec, format: FrameFormat, shape: tuple[int, int]) -> Tensors:
        """See :data:`bgsoft.segment.network.MakeTensors`."""
        ...

    def zoom_planes(self, model: tuple[int, int], half: float, *, turns: bool) -> ZoomPlanes:
        """See :class:`bgsoft.segment.zoomed.ZoomPlanes`."""
        ...

    def average(self) -> Average:
        """What averages mattes with masks."""
        ...


def create_host_segmenter(
    backend: str,
    loader: NetworkLoader,
    format: FrameFormat,
    workers: Workers,
    device: CudaDevice | None,
    on_event: Callable[[Event], None],
    quality: MatteQuality = MatteQuality.FAST,
) -> Segmenter:
    """The segmenter for frames on the host; see :class:`bgsoft.segment.cpu.HostSide`."""
    return _create(HostSide(backend, format, workers, device, on_event), loader, format, quality)


def create_device_segmenter(
    backend: str,
    loader: NetworkLoader,
    format: FrameFormat,
    batch: int,
    device: CudaDevice,
    stream: Any,
    on_event: Callable[[Event], None],
    quality: MatteQuality = MatteQuality.FAST,
) -> Segmenter:
    """The segmenter for frames on a device; see :class:`bgsoft.segment.cuda.DeviceSide`."""
    from bgsoft.segment.cuda import DeviceSide

    side = DeviceSide(backend, format, batch, device, stream, on_event)
    return _create(side, loader, format, quality)


def _create(
    side: Side, loader: NetworkLoader, format: FrameFormat, quality: MatteQuality
) -> Segmenter:
    spec = loader.model.spec
    masker = averaged_with(spec, quality)
    if masker is not None:
        beside = loader.beside(resolve(masker))
        with Parts() as parts:
            masks = parts.begin("models for masks", partial(_create, side, beside, format, quality))
            mattes = _create(side, loader, format, MatteQuality.FAST)
        return AveragedSegmenter(mattes, masks.result(), side.average())
    other = companion(spec, quality)
    if other is not None:
        return _create_zoomed(side, loader, loader.beside(resolve(other)), format, quality)
    return NetworkSegmenter(spec, side.driver(loader), format, side.tensors)


def _create_zoomed(
    side: Side,
    loader: NetworkLoader,
    other: NetworkLoader,
    format: FrameFormat,
    quality: MatteQuality,
) -> Segmenter:
    spec = loader.model.spec
    turns = quality is MatteQuality.STANDARD
    apart = turns and side.single_passes_apart
    with Parts() as parts:
        landscape = parts.begin(
            f"model {other.model.spec.name}", partial(side.driver, other, single=turns)
        )
        single = None
        if apart:
            single = parts.begin(
                "model for single frames", partial(side.driver, loader, single=True, apart=True)
            )
        close = NetworkSegmenter(spec, side.driver(loader), format, side.tensors)
        whole = close
        if single is not None:
            whole = NetworkSegmenter(spec, single.result(), format, side.tensors)
        beside = NetworkSegmenter(other.model.spec, landscape.result(), format, side.tensors)
    planes = side.zoom_planes((spec.height, spec.width), _HALF[quality], turns=turns)
    mirrors = quality is MatteQuality.BEST
    return ZoomedSegmenter(whole, beside, close, planes, turns=turns, mirrors=mirrors)
