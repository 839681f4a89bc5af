"""Segmentation of frames on the host; the networks may run on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat
from bgsoft.infer.base import Driver
from bgsoft.infer.drivers import LanesDriver
from bgsoft.infer.loading import NetworkLoader
from bgsoft.infer.warm import network_stream
from bgsoft.models.catalog import ModelSpec
from bgsoft.ops.sides import HOST
from bgsoft.report import Event
from bgsoft.segment.averaged import Average, average_on_host
from bgsoft.segment.families import FAMILIES
from bgsoft.segment.network import STRETCHED_FROM, NetworkSegmenter, Side, runs_singly
from bgsoft.segment.preprocess import CpuPreprocessor
from bgsoft.segment.schedule import CELL, MOVED, STILL, BlendWeights, Box, Cells
from bgsoft.segment.zoomed import ZoomPlanes
from bgsoft.workers import Workers

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice

Plane = NDArray[np.float32]

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
        with np.errstate(invalid="ignore"):  # what is no number, or endless
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


def _resize_mask(mask: Plane, out: Plane) -> None:
    """Resize a plane, averaging where it becomes smaller both ways."""
    smaller = mask.shape[0] >= out.shape[0] and mask.shape[1] >= out.shape[1]
    method = cv2.INTER_AREA if smaller else cv2.INTER_LINEAR
    cv2.resize(mask, out.shape[::-1], dst=out, interpolation=method)


@lru_cache(maxsize=64)
def _close_weights(box: Box, grid: tuple[int, int]) -> Plane:
    """(rows, columns) of the box: the close pass's weight, which fades in from inner borders."""
    left, top, right, bottom = box.fade_widths(grid)
    rows, columns = box.shape

    def ramp(count: int, first: float, last: float) -> Plane:
        at = np.arange(count, dtype=np.float32) + np.float32(0.5)
        rise = at / np.float32(first) if first else np.ones(count, np.float32)
        fall = at[::-1] / np.float32(last) if last else np.ones(count, np.float32)
        return np.minimum(np.minimum(rise, fall), np.float32(1.0))

    across = np.float32(box.weight(grid)) * ramp(columns, left, right)
    return np.outer(ramp(rows, top, bottom), across)


class CpuZoomPlanes(ZoomPlanes):
    """Works on the frames of a batch side by side; see :class:`ZoomPlanes`."""

    def __init__(
        self, format: FrameFormat, model: tuple[int, int], workers: Workers, half: float = 0.5
    ) -> None:
        batch = workers.lanes
        super().__init__(format, model, batch, half)
        self._workers = workers
        self._kept = np.zeros((2, self.slots, *self.grid), np.float32)
        self._masks = np.empty((batch, *self.grid), np.float32)
        self._lumas = np.empty((batch, *self._cell_shape), np.float32)
        bits = 8 * format.bytes_per_sample
        self._luma_cells, self._blend_rows = (
            HOST.operation("zoom", name, sample_bits=bits) for name in ("luma_cells", "blend_rows")
        )
        # For each frame that is blended: the close pass at its box's size, and weights of rows.
        self._close = np.empty((batch, self.grid[0] * self.grid[1]), np.float32)
        self._lines = np.empty((batch, (4 * CELL + 1) * self._cell_shape[1] + 2), np.float32)

    def watch(self, reduced: Sequence[AnalysisFrame]) -> None:
        scale, size = float(self._luma_scale), self._cell_shape
        for grid, cells in zip(reduced, self._lumas, strict=False):
            self._luma_cells(size, grid.luma, *self.grid, scale, cells, *size)

    def keep(self, network: int, slot: int, index: int, mask: Array) -> Array:
        kept = self._kept[network, slot]
        _resize_mask(mask, kept)
        return kept

    def read(self, masks: Sequence[Array], lumas: int = 0) -> Callable[[], list[Cells]]:
        people = [np.empty(self._cell_shape, np.float32) for _ in masks]
        for mask, cells in zip(masks, people, strict=True):
            _average(mask, cells)
        return lambda: [*self._lumas[:lumas], *people]

    def _halved(self, index: int, frame: Frame, reduced: AnalysisFrame) -> Array:
        return reduced.luma if reduced.factor == 2 else reduced.halved

    def blend(
        self, first: int, blends: Sequence[BlendWeights], close: Sequence[Array | None]
    ) -> list[Array]:
        masks = list(self._masks[first : first + len(blends)])
        self._workers.map(self._blend, blends, close, masks)
        return masks

    def _blend(self, index: int, blend: BlendWeights, close: Array | None, mask: Plane) -> None:
        resized, weights, place = None, None, (0, 0, 0, 0)
        if blend.box is not None and close is not None:
            box = blend.box
            rows, columns = box.shape
            resized = self._close[index, : rows * columns].reshape(rows, columns)
            _resize_mask(close, resized)
            weights = _close_weights(box, self.grid)
            place = box.left, box.top, box.right, box.bottom
        self._blend_rows(
            self.grid,
            *(self._kept[network, each.slot] for network, each in enumerate(blend.passes)),
            *(blend.luma, *(each.luma for each in blend.passes), *self._cell_shape),
            *(limit for limits in blend.limits for limit in limits),
            *(MOVED, MOVED - STILL, resized, weights, *place, float(self._lift)),
            *(mask, *self.grid, self._lines[index]),
        )


def _average(plane: Plane, cells: Cells) -> None:
    """Means over cells; those that the right and lower edges cut, over what they hold."""

    def parts(samples: int) -> list[tuple[slice, slice]]:
        whole = samples // CELL
        return [
            (slice(CELL * whole), slice(whole)),
            (slice(CELL * whole, None), slice(whole, None)),
        ]

    for (y, cell_y), (x, cell_x) in product(*map(parts, plane.shape)):
        target = cells[cell_y, cell_x]
        if target.size:
            cv2.resize(plane[y, x], target.shape[::-1], dst=target, interpolation=cv2.INTER_AREA)
