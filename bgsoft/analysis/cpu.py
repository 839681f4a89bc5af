"""Reduction of frames to the analysis frame with OpenCV."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.base import KEPT_BATCHES, analysis_factor, analysis_shape, detail_factor
from bgsoft.frame import AnalysisFrame, Frame, FrameFormat
from bgsoft.workers import Workers

Samples = NDArray[Any]
"""One plane of frame samples, uint8 or uint16."""


class AreaReducer:
    """Averages one plane over square cells, with whole cells on a fast path.

    Halving by area is vectorised in OpenCV for one channel (0.05 ms for a 1080p luma plane on one
    core, where reducing by 4 in one step takes 0.5 ms), so whole cells are halved repeatedly.
    Cells that the right and bottom edges cut are averaged on their own over what they hold.

    Args:
        height: Rows of the plane.
        width: Columns of the plane.
        factor: Cell edge in samples, a power of two.
        dtype: ``uint8`` or ``uint16``.
    """

    def __init__(self, height: int, width: int, factor: int, dtype: str) -> None:
        if factor < 1 or factor & (factor - 1):
            raise ValueError(f"factor must be a power of two, not {factor}")
        self.shape = (-(-height // factor), -(-width // factor))
        self._source_shape = (height, width)
        self._factor = factor
        self._dtype = np.dtype(dtype)
        self._rows, self._columns = height // factor, width // factor
        self._steps: list[Samples] = []
        step = factor // 2
        while step > 1 and self._rows and self._columns:
            self._steps.append(np.empty((self._rows * step, self._columns * step), self._dtype))
            step //= 2

    def reduce(self, plane: Samples, out: Samples, halved: Samples | None = None) -> None:
        """Average ``plane`` into ``out``.

        Each halving rounds halves up, so a cell is above its exact mean by half a code value per
        halving at most, and below it by a quarter.

        Args:
            plane: (height, width), rows may be padded.
            out: Of :attr:`shape` and the plane's dtype, overwritten.
            halved: For what :func:`halve` makes of the plane, the first step where the factor is 4
                or more; overwritten.

        Raises:
            ValueError: A shape or dtype differs from what the reducer was made for.
        """
        if plane.shape != self._source_shape or out.shape != self.shape:
            raise ValueError(
                f"expected {self._source_shape} to {self.shape}, not {plane.shape} to {out.shape}"
            )
        if plane.dtype != self._dtype or out.dtype != self._dtype:
            raise ValueError(f"expected {self._dtype}, not {plane.dtype} to {out.dtype}")
        factor, rows, columns = self._factor, self._rows, self._columns
        if factor == 1:
            np.copyto(out, plane)
            return
        source, steps = plane[: rows * factor, : columns * factor], self._steps
        if halved is not None:
            halve(plane, halved)
            source, steps = halved[: rows * factor // 2, : columns * factor // 2], steps[1:]
        if rows and columns:
            for target in (*steps, out[:rows, :columns]):
                _resize_area(source, target)
                source = target
        height, width = self._source_shape
        if width > columns * factor and rows:
            _resize_area(plane[: rows * factor, columns * factor :], out[:rows, columns:])
        if height > rows * factor and columns:
            _resize_area(plane[rows * factor :, : columns * factor], out[rows:, :columns])
        if height > rows * factor and width > columns * factor:
            _resize_area(plane[rows * factor :, columns * factor :], out[rows:, columns:])


def _resize_area(source: Samples, target: Samples) -> None:
    """Area-average ``source`` into ``target``; the ratio is a whole number each way."""
    cv2.resize(source, (target.shape[1], target.shape[0]), dst=target, interpolation=cv2.INTER_AREA)


def halve(plane: Samples, out: Samples) -> None:
    """Average 2×2 samples, or what the edges leave of them.

    Args:
        plane: (H, W).
        out: (⌈H/2⌉, ⌈W/2⌉), same dtype, overwritten.
    """
    height, width = plane.shape
    rows, columns = height // 2, width // 2
    if rows and columns:
        _resize_area(plane[: rows * 2, : columns * 2], out[:rows, :columns])
    if width % 2 and rows:
        _resize_area(plane[: rows * 2, width - 1 :], out[:rows, columns:])
    if height % 2 and columns:
        _resize_area(plane[height - 1 :, : columns * 2], out[rows:, :columns])
    if height % 2 and width % 2:
        out[rows, columns] = plane[height - 1, width - 1]


class CpuReducer:
    """Reduces frames of one format on the host, those of a batch side by side.

    P010 cells keep the fraction of their mean in the low six bits.

    Args:
        format: Format of every frame.
        workers: What does it; a lane a frame.
    """

    def __init__(self, format: FrameFormat, workers: Workers | None = None) -> None:
        self._workers = workers or Workers()
        size = (format.width, format.height)
        factor, detail = analysis_factor(*size), detail_factor(*size)
        lanes = range(self._workers.lanes)
        self._grids = [_Grid(format, factor) for _ in lanes]
        self._details = [_Grid(format, detail) for _ in lanes] if 2 < detail < factor else []
        self._detail = detail if detail < factor else 0

    def reduce(self, frames: Sequence[Frame]) -> list[AnalysisFrame]:
        """See :meth:`bgsoft.analysis.base.Reducer.reduce`."""
        return self._workers.map(self._reduce, frames)

    def _reduce(self, lane: int, frame: Frame) -> AnalysisFrame:
        reduced = self._grids[lane].reduce(frame)
        if self._details:
            reduced.detail = self._details[lane].reduce(frame)
        elif self._detail:
            luma = frame.luma if self._detail == 1 else reduced.halved
            reduced.detail = AnalysisFrame(self._detail, luma, frame.chroma)
        return reduced


class _Grid:
    """A grid of one size and what it takes to fill it."""

    def __init__(self, format: FrameFormat, factor: int) -> None:
        height, width = format.luma_shape
        shape, half = (analysis_shape(width, height, each) for each in (factor, 2))
        chroma_rows, chroma_columns, _ = format.chroma_shape
        chroma_shape = (*shape, 2) if factor > 1 else format.chroma_shape
        self._reduced = deque(
            AnalysisFrame(
                factor=factor,
                luma=np.empty(shape, format.dtype),
                chroma=np.empty(chroma_shape, format.dtype),
                halved=np.empty(half, format.dtype) if factor > 2 else None,
            )
            for _ in range(KEPT_BATCHES)
        )
        self._luma = AreaReducer(height, width, factor, format.dtype)
        # OpenCV's area average is slow on interleaved channels (0.4 ms against 0.05 ms for two
        # planes at 1080p, the splitting included), so chroma is taken apart for it.
        self._chroma: AreaReducer | None = None
        if factor > 2:
            self._chroma = AreaReducer(chroma_rows, chroma_columns, factor // 2, format.dtype)
            self._split = [np.empty((chroma_rows, chroma_columns), format.dtype) for _ in "br"]
            self._cells = [np.empty(shape, format.dtype) for _ in "br"]

    def reduce(self, frame: Frame) -> AnalysisFrame:
        self._reduced.rotate()
        reduced = self._reduced[0]
        self._luma.reduce(frame.luma, reduced.luma, reduced.halved)
        if self._chroma is None:
            np.copyto(reduced.chroma, frame.chroma)
            return reduced
        cv2.split(frame.chroma, self._split)
        for plane, cells in zip(self._split, self._cells, strict=True):
            self._chroma.reduce(plane, cells)
        cv2.merge(self._cells, reduced.chroma)
        return reduced
