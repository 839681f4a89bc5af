"""The analysis frame on a CUDA device: reduction, scene cuts and picture similarity."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np

from bgsoft.analysis.base import (
    KEPT_BATCHES,
    analysis_factor,
    analysis_shape,
    detail_factor,
    is_similar,
)
from bgsoft.analysis.cuda_resize import resampling
from bgsoft.analysis.scenes import THUMB_SHAPE, SceneCutDetector
from bgsoft.cuda.device import pinned_array
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat
from bgsoft.ops.loader import BLOCK, blocks, kernel

_ERROR_BYTES = 8
"""Per frame: one uint64, the summed squared difference from the kept picture."""
_MAX_FACTOR = 64


class CudaReducer:
    """Reduces frames of one format on the device, bit for bit as :class:`CpuReducer` does.

    One launch a frame on the current stream, or two where networks need more detail.

    Raises:
        ValueError: The frames are larger than 32k on the short side.
    """

    def __init__(self, format: FrameFormat, batch: int = 1) -> None:
        self._format = format
        size = (format.width, format.height)
        factor, detail = analysis_factor(*size), detail_factor(*size)
        if factor > _MAX_FACTOR:
            raise ValueError(f"frames of {size[0]}x{size[1]} are too large to reduce")
        self._grids = CudaGrids(format, factor, batch)
        self._details = CudaGrids(format, detail, batch) if 1 < detail < factor else None
        self._detail_is_frame = detail == 1 < factor

    def reduce(self, frames: Sequence[Frame]) -> list[AnalysisFrame]:
        """See :meth:`bgsoft.analysis.base.Reducer.reduce`; frames are on the device."""
        reduced = []
        for index, frame in enumerate(frames):
            _check(frame.luma, self._format.luma_shape, self._format.dtype)
            _check(frame.chroma, self._format.chroma_shape, self._format.dtype)
            grid = self._grids.reduce(frame, index)
            if self._details is not None:
                grid.detail = self._details.reduce(frame, index)
            elif self._detail_is_frame:
                grid.detail = AnalysisFrame(1, frame.luma, frame.chroma)
            reduced.append(grid)
        return reduced


class CudaGrids:
    """Frames of a batch reduced by one factor."""

    def __init__(self, format: FrameFormat, factor: int, batch: int) -> None:
        height, width = format.luma_shape
        shape = analysis_shape(width, height, factor)
        bits = 8 * format.bytes_per_sample
        self._kernel = kernel("analysis", f"reduce_{factor}", sample_bits=bits)
        self._grid = blocks(shape[1], shape[0])
        self._sizes = tuple(map(np.int32, (height, width, *shape)))
        chroma_shape = (*shape, 2) if factor > 1 else format.chroma_shape
        self._reduced = [
            deque(
                AnalysisFrame(
                    factor=factor,
                    luma=cupy.empty(shape, format.dtype),
                    chroma=cupy.empty(chroma_shape, format.dtype),
                )
                for _ in range(KEPT_BATCHES)
            )
            for _ in range(batch)
        ]

    def reduce(self, frame: Frame, index: int) -> AnalysisFrame:
        """Reduce one frame of a batch; overwritten as :meth:`CudaReducer.reduce` says."""
        self._reduced[index].rotate()
        grid = self._reduced[index][0]
        planes = (frame.luma, frame.chroma, grid.luma, grid.chroma)
        self._kernel(self._grid, BLOCK, (*planes, *self._sizes))
        return grid


def _check(plane: Array, shape: tuple[int, ...], dtype: str) -> None:
    if plane.shape != shape or plane.dtype != dtype or not plane.flags.c_contiguous:
        raise ValueError(f"expected contiguous {shape} {dtype}, not {plane.shape} {plane.dtype}")


class CudaSceneProbe:
    """Finds scene cuts and similar pictures; the host reads 9.2 kB a frame.

    Implements :class:`bgsoft.pipeline.picture.SceneProbe`.
    """

    def __init__(self, format: FrameFormat, batch: int = 1) -> None:
        self._detector = SceneCutDetector()
        shape = analysis_shape(format.width, format.height)
        self._peak = float((1 << format.bit_depth) - 1 << format.shift)
        bits = 8 * format.bytes_per_sample
        self._kernel = kernel("analysis", "measure", sample_bits=bits)
        rows, columns = THUMB_SHAPE
        cells = rows * columns
        self._grid = (-(-cells // BLOCK[1]), 1, 1)
        tables = resampling(shape, THUMB_SHAPE, area=True, fixed_point=bits == 8)
        sizes = tuple(map(np.int32, (rows, columns, *shape)))
        self._cells = shape[0] * shape[1]
        self._kept = cupy.empty(shape, format.dtype)
        self._has_kept = False
        # One block of memory for all that the host reads: the errors, then the thumbnails.
        error_bytes = batch * _ERROR_BYTES
        size = error_bytes + batch * cells * 4
        self._device = cupy.zeros(size, np.uint8)
        self._errors = self._device[:error_bytes].view(np.uint64)
        thumbs = self._device[error_bytes:].view(np.float32).reshape(batch, rows, columns)
        scale = np.float32(1 / self._peak)
        self._args: list[tuple[Any, ...]] = [
            (self._kept, *tables.args, scale, thumbs[index], self._errors[index:], *sizes)
            for index in range(batch)
        ]
        self._compared = False
        self._host = pinned_array((size,), np.uint8)
        self._host_errors = self._host[:error_bytes].view(np.uint64)
        self.thumbs = self._host[error_bytes:].view(np.float32).reshape(batch, rows, columns)
        """(batch, 36, 64) float32, luma in [0, 1], of the frames that were looked at last."""
        self._done = cupy.cuda.Event(disable_timing=True)

    def cuts(self, reduced: Sequence[AnalysisFrame]) -> list[bool]:
        """Which frames begin a new scene; one launch a frame, then waits for the device."""
        for grid, args in zip(reduced, self._args, strict=False):
            self._kernel(self._grid, BLOCK, (grid.luma, *args, np.int32(self._has_kept)))
        self._compared = self._has_kept
        stream = cupy.cuda.get_current_stream()
        self._device.data.copy_to_host_async(self._host.ctypes.data, self._host.nbytes, stream)
        self._errors.data.memset_async(0, self._errors.nbytes, stream)
        self._done.record(stream)
        self._done.synchronize()
        return [self._detector.update(self.thumbs[index]) for index in range(len(reduced))]

    def is_similar(self, reduced: AnalysisFrame, min_db: float) -> bool:
        """Of the only frame that :meth:`cuts` was called with last, as that has measured."""
        error = int(self._host_errors[0]) / self._cells
        return self._compared and is_similar(error, self._peak, min_db)

    def keep(self, reduced: AnalysisFrame) -> None:
        cupy.copyto(self._kept, reduced.luma)
        self._has_kept = True
