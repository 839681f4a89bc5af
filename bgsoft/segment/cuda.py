"""Segmentation of frames on a CUDA device; the networks may run on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import cupy
import numpy as np

from bgsoft.analysis.base import analysis_shape
from bgsoft.analysis.reduce import Grid
from bgsoft.cuda.device import CudaDevice, pinned_array
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat
from bgsoft.infer.base import Driver
from bgsoft.infer.cuda import for_device
from bgsoft.infer.loading import NetworkLoader
from bgsoft.infer.warm import network_stream
from bgsoft.models.catalog import ModelSpec
from bgsoft.ops.loader import BLOCK, blocks, kernel
from bgsoft.ops.resize import resampling
from bgsoft.ops.sides import device as device_side
from bgsoft.report import Event
from bgsoft.segment.averaged import HIGH, LOW, Average, thin_width
from bgsoft.segment.network import STRETCHED_FROM, NetworkSegmenter, Side, runs_singly
from bgsoft.segment.preprocess import MAX_BILINEAR_SHRINK, fixed_matrix, normalisation
from bgsoft.segment.schedule import MOVED, STILL, BlendWeights, Box, Cells
from bgsoft.segment.zoomed import ZoomPlanes

_MOST_TABLES = 256
"""Sizes, or pairs of sizes, that tables are kept for; crops and boxes may have any."""
_NOTHING = np.uint64(0)
"""A null pointer."""


def _tables(*shapes: tuple[int, int], area: bool, fixed_point: bool) -> tuple[Any, ...]:
    source, target = shapes
    made = resampling(device_side(), source, target, area=area, fixed_point=fixed_point)
    return tuple(np.int32(each) if isinstance(each, int) else each for each in made.args)


class DeviceSide(Side):
    """Frames on a device, which is current.

    Args:
        backend, format, on_event: See :class:`bgsoft.segment.network.Side`.
        batch: Frames at a time.
        device: Where the frames are.
        stream: CuPy stream of all work.
    """

    runs_apart = True

    def __init__(
        self,
        backend: str,
        format: FrameFormat,
        batch: int,
        device: CudaDevice,
        stream: Any,
        on_event: Callable[[Event], None],
    ) -> None:
        super().__init__(backend, format, on_event)
        self._batch = batch
        self._device = device
        self._stream = stream
        self._apart = network_stream(device, 1)

    def driver(self, loader: NetworkLoader, *, single: bool = False, apart: bool = False) -> Driver:
        spec = loader.model.spec
        loader.check(self._backend)
        gpu = self._device, self._apart if apart else self._stream
        batch = 1 if single else self._batch
        # TensorRT's engine of the whole batch serves single frames apart, too.
        largest = self._batch if apart else batch
        if runs_singly(spec) or spec.batch:
            batch = largest = spec.batch or 1
        with self._device.use(gpu[1]):  # maybe in a thread of its own
            return self._batch_driver(
                loader, lambda each: for_device(each, *gpu), gpu, batch, largest
            )

    def segmenter(self, spec: ModelSpec, driver: Driver) -> NetworkSegmenter:
        with self._device.use(self._stream):
            return DeviceSegmenter(spec, driver, self._format, self._batch)

    def zoom_planes(self, model: tuple[int, int], half: float, *, apart: bool) -> ZoomPlanes:
        stream = self._apart if apart else None
        with self._device.use(self._stream):
            return CudaZoomPlanes(self._format, model, self._device, self._batch, half, stream)

    def average(self) -> Average:
        with self._device.use(self._stream):
            return CudaAverage(self._format)


class DeviceSegmenter(NetworkSegmenter):
    """Prepares and reads on the current stream."""

    def __init__(self, spec: ModelSpec, driver: Driver, format: FrameFormat, batch: int) -> None:
        super().__init__(spec, driver, format)
        self._preprocessor = CudaPreprocessor(self._spec, format)
        self._planes = cupy.zeros((batch, *self._mask_shape), np.float32)

    def _write(
        self, shown: Sequence[AnalysisFrame], tensor: Array, first: int, mirrored: bool
    ) -> None:
        for item, picture in enumerate(shown):
            self._preprocessor.write(picture, tensor, item)
        if mirrored:
            _mirror(tensor if self._spec.layout == "NCHW" else tensor.swapaxes(2, 3))

    def _read(self, raw: Array, first: int, mirrored: bool) -> None:
        masks = self._planes[first : first + len(raw)]
        to_masks(raw, self._spec, masks)
        if mirrored:
            _mirror(masks)


def _mirror(arrays: Array) -> None:
    """Turn the last axis round, in place."""
    arrays[...] = arrays[..., ::-1].copy()


_limited = cupy.ElementwiseKernel(
    "T raw", "float32 mask", "mask = raw > T(0) ? min(float(raw), 1.0f) : 0.0f", "limit_mask"
)
"""NaN is greater than nothing, so it becomes 0."""

_stretched = cupy.ElementwiseKernel(
    "float32 raw, float32 least, float32 most",
    "float32 mask",
    "mask = __saturatef((raw - least) / (most - least))",
    "stretch_mask",
)


def to_masks(raw: Array, spec: ModelSpec, masks: Array) -> None:
    """Turn (n, C, h, w) raw outputs into (n, h, w) masks in [0, 1]."""
    person = raw[:, spec.output_channel]
    if spec.activation == "sigmoid":
        person = 1.0 / (1.0 + cupy.exp(-cupy.clip(person, -60.0, 60.0)))
    elif spec.activation == "softmax":
        shifted = cupy.exp(raw - raw.max(axis=1, keepdims=True))
        person = shifted[:, spec.output_channel] / shifted.sum(axis=1)
    _limited(person, masks)
    if spec.stretch == "min-max":
        low, high = STRETCHED_FROM
        least = cupy.minimum(masks.min(axis=(1, 2), keepdims=True), np.float32(low))
        most = cupy.maximum(masks.max(axis=(1, 2), keepdims=True), np.float32(high))
        _stretched(masks, least, most, masks)


class CudaPreprocessor:
    """Writes frames of one format, or parts of them, into a batch tensor; one launch each."""

    def __init__(self, spec: ModelSpec, format: FrameFormat) -> None:
        bits = 8 * format.bytes_per_sample
        size = spec.height, spec.width
        channels_last = spec.layout != "NCHW"
        self.shape = (*size, 3) if channels_last else (3, *size)
        """Of an item of the tensor: (3, H, W) or (H, W, 3) by the model's layout."""
        norm = normalisation(spec)
        self._by_maximum: tuple[Any, Any] | None = None
        if spec.divide_by == "maximum":
            # The largest is known once all are there: codes are written, and divided after that.
            of_channel = (1, 1, 3) if channels_last else (3, 1, 1)
            gains, biases = normalisation(spec, 1.0).reshape(2, *of_channel)
            self._by_maximum = cupy.asarray(gains), cupy.asarray(biases)
            norm = np.array([1, 1, 1, 0, 0, 0], np.float32)
        constants = (fixed_matrix(spec, format), norm)
        self._constants = tuple(cupy.asarray(each) for each in constants)
        self._size = tuple(map(np.int32, size))
        self._channels_last = np.int32(channels_last)
        self._grid = blocks(size[1], size[0])
        self._kernels = {
            dtype: kernel("preprocess", f"preprocess_{dtype}", sample_bits=bits)
            for dtype in ("float32", "float16")
        }

        @lru_cache(_MOST_TABLES)
        def tables(source: tuple[int, int]) -> tuple[Any, ...]:
            shrink = max(s / t for s, t in zip(source, size, strict=True))
            area = shrink > MAX_BILINEAR_SHRINK
            return _tables(source, size, area=area, fixed_point=bits == 8)

        self._tables = tables

    def write(self, picture: AnalysisFrame, tensor: Array, index: int = 0) -> None:
        """Resize, convert and normalise a picture, whose rows may be padded.

        Args:
            picture: On the device.
            tensor: Items of :attr:`shape`, float32 or float16, C-contiguous.
            index: Item of the tensor that is overwritten.

        Raises:
            ValueError: The tensor's shape or dtype is another, or it has no such item.
        """
        run = self._kernels.get(tensor.dtype.name)
        if run is None or tensor.shape[1:] != self.shape or not 0 <= index < tensor.shape[0]:
            raise ValueError(
                f"expected item {index} of {self.shape} float32 or float16, "
                f"not {tensor.shape} {tensor.dtype}"
            )
        shown = picture.for_networks
        luma, chroma = shown.luma, shown.chroma
        planes = (luma, _pitch(luma), chroma, _pitch(chroma))
        tables = (*self._tables(luma.shape), *self._tables(chroma.shape[:2]))
        place = (*self._size, np.int32(index), self._channels_last)
        run(self._grid, BLOCK, (*planes, *tables, *self._constants, tensor, *place))
        if self._by_maximum is not None:
            codes = tensor[index]
            _divided(codes, codes.max(), *self._by_maximum, codes)


_divided = cupy.ElementwiseKernel(
    "T code, T most, float32 gain, float32 bias",
    "T value",
    "value = T(float(code) * (gain / max(float(most), 1.0f)) + bias)",
    "divide_by_maximum",
)
"""(code / maximum − mean) / std; one reading of the picture for the maximum comes before it."""


def _pitch(plane: Array) -> np.int32:
    """Samples a row, padding included."""
    return np.int32(plane.strides[0] // plane.itemsize)


class CudaAverage:
    """Averages mattes with masks; four launches each on the current stream.

    Reference: :func:`bgsoft.segment.averaged.average_on_host`.
    """

    def __init__(self, format: FrameFormat) -> None:
        frame, grid = format.luma_shape, analysis_shape(format.width, format.height)
        self._sizes, self._frame_sizes = tuple(map(np.int32, grid)), tuple(map(np.int32, frame))
        self._grid, self._frame_grid = blocks(grid[1], grid[0]), blocks(frame[1], frame[0])
        self._reduce = _tables(frame, grid, area=True, fixed_point=False)
        self._enlarge = _tables(grid, frame, area=False, fixed_point=False)
        self._ramp = (np.float32(LOW), np.float32(1.0 / (HIGH - LOW)))
        self._reach = np.int32(thin_width(grid) // 2)
        self._change = cupy.empty(grid, np.float32)
        self._eroded = cupy.empty((2, *grid), np.float32)
        self._find, self._erode, self._dilate, self._apply = (
            kernel("average", name)
            for name in ("find_change", "erode_change", "dilate_change", "apply_change")
        )

    def __call__(self, mattes: Sequence[Array], masks: Sequence[Array]) -> None:
        """Change (H, W) float32 mattes, by (gh, gw) float32 masks."""
        window = (self._reach, *self._sizes)
        for matte, mask in zip(mattes, masks, strict=True):
            pitch = self._frame_sizes[1]
            args = (matte, pitch, *self._reduce, mask, *self._ramp, self._change, *self._sizes)
            self._find(self._grid, BLOCK, args)
            self._erode(self._grid, BLOCK, (self._change, self._eroded, *window))
            self._dilate(self._grid, BLOCK, (self._eroded, self._change, *window))
            args = (self._change, self._sizes[1], *self._enlarge, matte, *self._frame_sizes)
            self._apply(self._frame_grid, BLOCK, args)


class CudaZoomPlanes(ZoomPlanes):
    """Works on the current stream.

    What is decided from planes is decided on the host (:mod:`bgsoft.segment.schedule`), so that
    both sides decide alike: it reads 30 to 60 kB a frame. They are sent for when a batch begins, so
    that as a rule they have come with what else the host waits for; it waits once more where the
    mask is fed back midway or the frame is searched, and for each frame in which somebody may have
    come in.

    Args:
        format, model, batch, half: See :class:`bgsoft.segment.zoomed.ZoomPlanes`.
        device: Where the frames are.
        stream: That the general model runs over whole frames on; None: the current one.
    """

    def __init__(
        self,
        format: FrameFormat,
        model: tuple[int, int],
        device: CudaDevice,
        batch: int,
        half: float = 0.5,
        stream: Any = None,
    ) -> None:
        super().__init__(format, model, batch, half)
        self._device = device
        shape, cells = self.grid, self._cell_shape
        self._blocks, self._cell_blocks = blocks(shape[1], shape[0]), blocks(cells[1], cells[0])
        self._sizes = tuple(map(np.int32, shape))
        self._cell_sizes = tuple(map(np.int32, cells))
        self._halves = [Grid(format, 2, side=device_side()) for _ in range(batch)]
        self._kept = cupy.zeros((2, self.slots, *shape), np.float32)
        self._masks = cupy.empty((batch, *shape), np.float32)
        # The luma of the frames at hand; two passes each, and a mask that is fed back; and a mask
        # each for what is read later.
        self._cells = cupy.empty((4 * batch + 1, *cells), np.float32)
        self._cells_host = pinned_array(self._cells.shape, np.float32)
        self._kept_lumas = cupy.zeros((2, self.slots, *cells), np.float32)
        self._stream = stream
        self._forked, self._joined, self._sent = (
            cupy.cuda.Event(disable_timing=True) for _ in range(3)
        )
        bits = 8 * format.bytes_per_sample
        self._luma_cells, self._mask_cells, self._resize, self._blend = (
            kernel("zoom", name, sample_bits=bits)
            for name in ("luma_cells", "mask_cells", "resize_mask", "blend_passes")
        )

        @lru_cache(_MOST_TABLES)
        def tables(source: tuple[int, int], target: tuple[int, int]) -> tuple[Any, ...]:
            # Masks are averaged where they become smaller both ways, as in the reference.
            smaller = all(s >= t for s, t in zip(source, target, strict=True))
            return _tables(source, target, area=smaller, fixed_point=False)

        self._tables = tables

    def watch(self, reduced: Sequence[AnalysisFrame]) -> None:
        scale = self._luma_scale
        for index, grid in enumerate(reduced):
            args = (grid.luma, *self._sizes, scale, self._cells[index], *self._cell_sizes)
            self._luma_cells(self._cell_blocks, BLOCK, args)

    @contextmanager
    def apart(self) -> Iterator[None]:
        if self._stream is None:
            yield
            return
        self._forked.record()
        self._stream.wait_event(self._forked)
        with self._stream:
            yield
            self._joined.record()

    def keep(self, network: int, slot: int, index: int, mask: Array) -> Array:
        kept = self._kept[network, slot]
        tables = self._tables(mask.shape, self.grid)
        args = (mask, np.int32(mask.shape[1]), *tables, kept, *self._sizes)
        self._resize(self._blocks, BLOCK, args)
        luma, seen = self._cells[index], self._kept_lumas[network, slot]
        seen.data.copy_from_device_async(luma.data, luma.nbytes, cupy.cuda.get_current_stream())
        return kept

    def read(self, masks: Sequence[Array], lumas: int = 0) -> Callable[[], list[Cells]]:
        stream = cupy.cuda.get_current_stream()
        stream.wait_event(self._joined)
        # What is read later does not touch the luma of the frames at hand.
        first = 0 if lumas else len(self._cells) - len(masks)
        for index, mask in enumerate(masks, first + lumas):
            args = (mask, *self._sizes, self._cells[index], *self._cell_sizes)
            self._mask_cells(self._cell_blocks, BLOCK, args)
        part = slice(first, first + lumas + len(masks))
        host = self._cells_host[part]
        self._cells[part].get(out=host, stream=stream, blocking=False)
        self._device.copies.add_d2h(host.nbytes)
        self._sent.record(stream)

        def wait() -> list[Cells]:
            self._sent.synchronize()
            return list(host)

        return wait

    def _halved(self, index: int, frame: Frame, reduced: AnalysisFrame) -> Array:
        return self._halves[index].reduce(frame).luma

    def blend(
        self, first: int, blends: Sequence[BlendWeights], close: Sequence[Array | None]
    ) -> list[Array]:
        for index, (blend, mask) in enumerate(zip(blends, close, strict=True), first):
            slots = [(network, each.slot) for network, each in enumerate(blend.passes)]
            args = (
                *(self._kept[slot] for slot in slots),
                self._cells[index],
                *(self._kept_lumas[slot] for slot in slots),
                *self._cell_sizes,
                *(np.float32(limit) for limits in blend.limits for limit in limits),
                *(np.float32(MOVED), np.float32(MOVED - STILL)),
                *self._close_args(blend.box, mask),
                *(np.float32(self._lift), self._masks[index], *self._sizes),
            )
            self._blend(self._blocks, BLOCK, args)
        return list(self._masks[first : first + len(blends)])

    def _close_args(self, box: Box | None, mask: Array | None) -> tuple[Any, ...]:
        zero, none = np.int32(0), np.float32(0)
        if box is None or mask is None:
            tables = (_NOTHING, zero, _NOTHING, zero, zero)
            return (_NOTHING, zero, *tables, *(zero,) * 4, *(none,) * 5)
        return (
            *(mask, np.int32(mask.shape[1]), *self._tables(mask.shape, box.shape)),
            *map(np.int32, (box.left, box.top, box.right, box.bottom)),
            *map(np.float32, box.fade_widths(self.grid)),
            np.float32(box.weight(self.grid)),
        )
