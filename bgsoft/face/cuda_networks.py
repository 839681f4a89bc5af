"""The face networks on a CUDA device; reference: :class:`bgsoft.face.networks.CpuFaceNetworks`.

The networks' inputs are made on the device, and their outputs are decoded there. Faces and
landmarks, some kilobytes each, come back to the host, where tracks are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.base import analysis_shape, detail_factor
from bgsoft.closing import Closing
from bgsoft.cuda.device import pinned_array
from bgsoft.face.detect import Detection, DetectionReader
from bgsoft.face.geometry import frame_from_roi
from bgsoft.face.landmarks import Mesh, MeshReader
from bgsoft.face.networks import FrameRoi, FrameView, resolve_detector, resolve_landmarker
from bgsoft.face.warp import MAX_SPACING, MAX_TAPS, MIN_GRID_SAMPLES, WARP_VIEW, View
from bgsoft.frame import Array, FrameFormat
from bgsoft.infer.base import Network
from bgsoft.infer.warm import daemon_thread
from bgsoft.models.catalog import ModelSpec, ResolvedModel
from bgsoft.ops import sides
from bgsoft.ops.loader import BLOCK, blocks, kernel
from bgsoft.segment.preprocess import fixed_matrix, normalisation
from bgsoft.startup import StartupPool
from bgsoft.workers import Job

MakeNetwork = Callable[[ResolvedModel, int, bool], Network]
"""Loads a model for a batch size, with its arrays on the device, on the current stream; the last
argument says whether it may replay a CUDA graph, which is captured by its first run."""

_RUNS_PER_WAIT = 4
"""Runs of a network whose results are waited for together, at most."""

_PLANES = 4
"""Addresses of a frame: its luma and chroma, and those of its grid."""
_LAYOUT = np.dtype(
    [
        *((name, np.int32) for name in ("rows", "columns", "chroma_rows", "chroma_columns")),
        *((name, np.int32) for name in ("grid_rows", "grid_columns", "factor")),
        *((name, np.float32) for name in ("min_grid_samples", "max_spacing")),
        *((name, np.int32) for name in ("max_taps", "black", "neutral")),
    ]
)
"""``Layout`` of ops/warp.cu."""


class CudaFaceNetworks(Closing):
    """Implements :class:`bgsoft.face.networks.FaceNetworks` for frames on the current device.

    Everything runs on the current stream, which the host waits for at the end of each call.

    Args:
        format: Format of the frames.
        make_network: Loads a network.
        batch: Looks of a run.
        needs_landmarks: Load the landmark model with the other; else once all has begun to run, as
            many videos never ask for it. It cannot be captured then.

    Raises:
        ModelError: A model's file is damaged.
        BackendUnavailableError: A network does not load on the device.
    """

    def __init__(
        self,
        format: FrameFormat,
        make_network: MakeNetwork,
        batch: int,
        *,
        needs_landmarks: bool = True,
    ) -> None:
        detector, landmarker = resolve_detector(), resolve_landmarker()
        device, stream = cupy.cuda.Device(), cupy.cuda.get_current_stream()
        self.views_per_run = self.faces_per_run = batch

        def load(model: ResolvedModel, graphs: bool) -> _Model:
            device.use()
            with stream:
                made = _Model(model, make_network(model, batch, graphs), format, batch)
                if not graphs:  # half of what it takes is done by its first run
                    made.network.run()
            return made

        self._load_landmarker = partial(load, landmarker, False)
        self._landmarker: Future[_Model] | Job[_Model] | None = None
        with StartupPool() as pool:
            loading = pool.submit("face detector", partial(load, detector, True))
            if needs_landmarks:
                self._landmarker = pool.submit("face landmarks", partial(load, landmarker, True))
            self._detector = loading.result()
        most, side = self._detector.most, sides.device()
        self._found = DetectionReader(detector.spec.width, most, side)
        self._meshes = MeshReader(most, side)

    def start(self) -> None:
        """Run what is loaded once, in the thread that will use it."""
        self._detector.network.run()
        if self._landmarker is None:
            loading = self._landmarker = Job(self._load_landmarker)
            daemon_thread(loading.run, "bgsoft-start face landmarks").start()
        else:
            self._landmarker.result().network.run()

    def detect(self, asked: Sequence[FrameView], min_score: float) -> list[list[Detection]]:
        """See :class:`bgsoft.face.networks.FaceNetworks`."""
        answers: list[list[Detection]] = []
        for start in range(0, len(asked), self._detector.most):
            part = asked[start : start + self._detector.most]
            for views, outputs, first, count in self._detector.run(part):
                raw = outputs["boxes"], outputs["scores"]
                self._found.launch(views, *raw, first, count, min_score)
            answers += self._found.read(len(part))
        return answers

    def landmarks(self, asked: Sequence[FrameRoi]) -> list[Mesh]:
        """See :class:`bgsoft.face.networks.FaceNetworks`."""
        if not asked:
            return []
        assert self._landmarker is not None
        landmarker = self._landmarker.result()
        size, most = landmarker.size, landmarker.most
        answers: list[Mesh] = []
        for start in range(0, len(asked), most):
            part = [
                (frame, grid, View(frame_from_roi(roi, size), True))
                for frame, grid, roi in asked[start : start + most]
            ]
            for views, outputs, first, count in landmarker.run(part):
                raw = outputs["landmarks"], outputs["presence"]
                self._meshes.launch(views, *raw, first, count)
            answers += self._meshes.read(len(part))
        return answers

    def close(self) -> None:
        """Free the networks; safe to call twice."""
        self._detector.network.close()
        if self._landmarker is not None:
            with suppress(Exception):  # it did not load
                self._landmarker.result().network.close()


class _Model:
    """One network and what fills its input."""

    def __init__(
        self, model: ResolvedModel, network: Network, format: FrameFormat, batch: int
    ) -> None:
        self.size = model.spec.width
        self.most = _RUNS_PER_WAIT * batch
        """Views of one :meth:`run`, at most."""
        self._batch = batch
        self._input = model.spec.input
        self.network = network
        self._warper = CudaWarper(model.spec, format, batch, self.most)

    def run(self, asked: Sequence[FrameView]) -> Iterator[tuple[Array, dict[str, Array], int, int]]:
        """Run as often as it takes to show all views, up to :attr:`most`.

        Yields views and outputs on the device, the outputs overwritten by the next run; and the
        index of the run's first view, and how many it has.
        """
        self._warper.upload(asked)
        for first in range(0, len(asked), self._batch):
            count = self._warper.write(first, self.network.inputs[self._input])
            self.network.run()
            yield self._warper.views(first), self.network.outputs, first, count


class CudaWarper:
    """Writes views of frames of one format into a tensor of ``batch`` items.

    ``spec`` says input size and normalisation; square, RGB, channels first. Up to ``most`` views
    are told of at a time.
    """

    def __init__(self, spec: ModelSpec, format: FrameFormat, batch: int, most: int) -> None:
        self._size = spec.width
        self.shape = (batch, 3, spec.width, spec.width)
        """Of the tensor."""
        constants = fixed_matrix(spec, format), normalisation(spec)
        self._constants = _layout(format), *map(cupy.asarray, constants)
        # Views, then the addresses of as many frames: one copy takes both.
        self._views_bytes = most * WARP_VIEW.itemsize
        size = self._views_bytes + most * _PLANES * 8
        self._host: NDArray[np.uint8] = pinned_array((size,), np.uint8)
        self._device = cupy.empty(size, np.uint8)
        self._views = self._host[: self._views_bytes].view(WARP_VIEW)
        self._planes = self._host[self._views_bytes :].view(np.uint64).reshape(-1, _PLANES)
        self._kernel = kernel("warp", "warp_views", sample_bits=8 * format.bytes_per_sample)
        self._uploaded = 0

    def upload(self, asked: Sequence[FrameView]) -> None:
        """Tell the device what is to be looked at; the stream must have passed the last upload."""
        self._uploaded = len(asked)
        frames: dict[int, int] = {}
        planes: list[list[int]] = []
        rows = []
        for frame, grid, view in asked:
            index = frames.setdefault(id(frame), len(frames))
            if index == len(planes):
                seen = grid.for_networks
                arrays = (frame.luma, frame.chroma, seen.luma, seen.chroma)
                planes.append([array.data.ptr for array in arrays])
            rows.append((tuple(view.frame_from_input), index, view.repeat_edges))
        self._views[: len(rows)] = rows
        self._planes[: len(planes)] = planes
        size = self._views_bytes + len(planes) * _PLANES * 8
        stream = cupy.cuda.get_current_stream()
        self._device.data.copy_from_host_async(self._host.ctypes.data, size, stream)

    def views(self, first: int) -> Array:
        """Those uploaded, from one of them on, on the device."""
        return self._device[first * WARP_VIEW.itemsize :]

    def write(self, first: int, tensor: Array) -> int:
        """Sample, convert and normalise the views from ``first`` on: one launch.

        ``tensor`` is of :attr:`shape`, float32, C-contiguous. Returns how many of its items were
        written: all, or those that are left.
        """
        count = min(self.shape[0], self._uploaded - first)
        if count > 0:
            planes = self._device[self._views_bytes :]
            args = (self.views(first), planes, *self._constants, tensor, np.int32(self._size))
            self._kernel(blocks(self._size, self._size, count), BLOCK, args)
        return count


def _layout(format: FrameFormat) -> Any:
    """One element of :data:`_LAYOUT`; CuPy passes it by value."""
    factor = detail_factor(format.width, format.height)
    grid = analysis_shape(format.width, format.height, factor)
    limits = MIN_GRID_SAMPLES, MAX_SPACING, MAX_TAPS
    codes = format.luma_range[0], format.chroma_neutral
    shapes = *format.luma_shape, *format.chroma_shape[:2], *grid
    return np.array([(*shapes, factor, *limits, *codes)], _LAYOUT)
