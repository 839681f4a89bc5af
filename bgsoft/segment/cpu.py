"""Segmentation of frames on the host; the networks may run on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bgsoft.frame import AnalysisFrame, Array, FrameFormat
from bgsoft.infer.base import Driver
from bgsoft.infer.drivers import LanesDriver
from bgsoft.infer.loading import NetworkLoader
from bgsoft.infer.warm import network_stream
from bgsoft.models.catalog import ModelSpec
from bgsoft.report import Event
from bgsoft.segment.averaged import Average, average_on_host
from bgsoft.segment.families import FAMILIES
from bgsoft.segment.network import STRETCHED_FROM, NetworkSegmenter, Side, runs_singly
from bgsoft.segment.preprocess import CpuPreprocessor
from bgsoft.segment.zoomed import ZoomPlanes
from bgsoft.segment.zoomed_cpu import CpuZoomPlanes
from bgsoft.workers import Workers

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice

_MAX_LOGIT = 60.0
"""Beyond it the sigmoid is 0 or 1 in float32 anyway, and its exponential would overflow."""


class HostSide(Side):
    """Frames on the host, those of a batch side by side.

    Args:
        backend, format, on_event: See :class:`bgsoft.segment.network.Side`.
        workers: One for each frame of a batch.
        device: Where models run, unless on the CPU.
    """

    runs_apart = False

    def __init__(
        self,
        backend: str,
        format: FrameFormat,
        workers: Workers,
        device: CudaDevice | None = None,
        on_event: Callable[[Event], None] = lambda _event: None,
    ) -> None:
        super().__init__(backend, format, on_event)
        self._workers = workers
        self._device = device

    def driver(self, loader: NetworkLoader, *, single: bool = False, apart: bool = False) -> Driver:
        spec, device = loader.model.spec, self._device
        loader.check(self._backend)
        lanes, threads = (1, loader.cores) if runs_singly(spec) else (self._workers.lanes, 1)
        if device is None:
            wiring = FAMILIES[spec.family].wiring(spec, self._format, 1)
            return LanesDriver(loader.on_cpu(wiring, lanes, threads), self._workers)
        from bgsoft.infer.cuda import for_host

        gpu, batch = (device, network_stream(device)), spec.batch or lanes
        return self._batch_driver(loader, lambda each: for_host(each, *gpu), gpu, batch, batch)

    def segmenter(self, spec: ModelSpec, driver: Driver) -> NetworkSegmenter:
        return HostSegmenter(spec, driver, self._format, self._workers)

    def zoom_planes(self, model: tuple[int, int], half: float, *, apart: bool) -> ZoomPlanes:
        return CpuZoomPlanes(self._format, model, self._workers, half)

    def average(self) -> Average:
        def average(mattes: Sequence[Array], masks: Sequence[Array]) -> None:
            self._workers.map(lambda _worker, *each: average_on_host(*each), mattes, masks)

        return average


class HostSegmenter(NetworkSegmenter):
    """Prepares and reads in NumPy and OpenCV; the frames of a run side by side."""

    def __init__(
        self, spec: ModelSpec, driver: Driver, format: FrameFormat, workers: Workers
    ) -> None:
        super().__init__(spec, driver, format)
        self._workers = workers
        at_once = 1 if runs_singly(spec) else workers.lanes
        self._preprocessors = [CpuPreprocessor(self._spec, format) for _ in range(at_once)]
        self._planes = [np.empty(self._mask_shape, np.float32) for _ in range(workers.lanes)]

    def _write(
        self, shown: Sequence[AnalysisFrame], tensor: Array, first: int, mirrored: bool
    ) -> None:
        def write(item: int, picture: AnalysisFrame) -> None:
            preprocessor = self._preprocessors[(first + item) % len(self._preprocessors)]
            preprocessor.write(picture, tensor[item])
            if mirrored:
                nchw = self._spec.layout == "NCHW"
                _mirror(tensor[item] if nchw else tensor[item].swapaxes(1, 2))

        self._workers.map(write, shown)

    def _read(self, raw: Array, first: int, mirrored: bool) -> None:
        def read(item: int, mask: NDArray[np.float32]) -> None:
            to_mask(raw[item], self._spec, mask)
            if mirrored:
                _mirror(mask)

        self._workers.map(read, self._planes[first : first + len(raw)])


def _mirror(array: NDArray[Any]) -> None:
    """Turn the last axis round, in place."""
    array[...] = array[..., ::-1].copy()


def to_mask(channels: NDArray[Any], spec: ModelSpec, mask: NDArray[np.float32]) -> None:
    """Turn (C, h, w) raw output into an (h, w) float32 mask in [0, 1]."""
    raw = channels[spec.output_channel]
    if spec.activation == "sigmoid":
        np.clip(raw, -_MAX_LOGIT, _MAX_LOGIT, out=mask, casting="unsafe")
        np.negative(mask, out=mask)
        np.exp(mask, out=mask)
        mask += 1.0
        np.reciprocal(mask, out=mask)
    elif spec.activation == "softmax":
        shifted = np.exp(channels - channels.max(axis=0))
        np.divide(shifted[spec.output_channel], shifted.sum(axis=0), out=mask)
    else:
        np.copyto(mask, raw, casting="unsafe")
    # What is no number becomes 0.
    np.fmax(mask, np.float32(0.0), out=mask)
    np.fmin(mask, np.float32(1.0), out=mask)
    if spec.stretch == "min-max":
        low, high = STRETCHED_FROM
        least, most = min(float(mask.min()), low), max(float(mask.max()), high)
        mask -= np.float32(least)
        mask *= np.float32(1.0 / (most - least))
        np.clip(mask, 0.0, 1.0, out=mask)
