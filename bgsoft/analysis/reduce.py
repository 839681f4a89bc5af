"""Reduction of frames to the analysis frame, and of planes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import numpy as np

from bgsoft.analysis.base import analysis_factor, analysis_shape, detail_factor
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat, Planes
from bgsoft.ops.placement import HOST, Placement
from bgsoft.threads import LanePool

_KEPT_BATCHES = 4
"""Batches whose analysis frames exist at a time: one is segmented, one waits for its matte, one
gets it, and one is composited."""
_MAX_FACTOR = 64


class AreaReducer:
    """Averages planes over square cells; one launch on the current stream.

    Whole cells are halved repeatedly. Each halving rounds halves up. So for each halving, a cell
    exceeds its exact mean by at most half a code value, and falls below it by at most a quarter.
    P010 cells keep the fraction in the low six bits. Cells cut by the right and bottom edges are
    the means of their part inside.

    Args:
        shape: (rows, columns) of the plane.
        factor: Cell edge in samples, a power of two.
        placement: Device of the planes, or the host.
        bits: Bits of a sample.

    Raises:
        ValueError: The factor is invalid.
    """

    def __init__(
        self, shape: tuple[int, int], factor: int, *, placement: Placement = HOST, bits: int = 8
    ) -> None:
        if factor not in (1 << power for power in range(_MAX_FACTOR.bit_length())):
            raise ValueError(f"a factor must be a power of two up to {_MAX_FACTOR}, not {factor}")
        height, width = shape
        self.shape = analysis_shape(width, height, factor)
        self._reduce = placement.operation("analysis", "reduce_planes", sample_bits=bits)
        self._sizes = (factor, height, width, *self.shape)
        self._lines = placement.scratch(2 * width + 4, f"u{bits // 8}")

    def reduce(self, plane: Array, out: Array) -> None:
        """Average a plane into ``out``, of :attr:`shape`; both of ``bits`` bits."""
        self._reduce(self.shape, plane, None, out, None, None, self._lines, *self._sizes)


def alpha_reducer(format: FrameFormat, placement: Placement) -> AreaReducer:
    """Return a reducer of mattes of the frame's size to its analysis frame."""
    factor = analysis_factor(format.width, format.height)
    return AreaReducer(format.luma_shape, factor, placement=placement)


class Reducer:
    """Reduces frames of one format; those of a batch in parallel on the host.

    Args:
        format: Format of every frame.
        pool: Threads, one lane per frame.
        placement: Device of the frames, or the host.
        batch: Frames at a time on a device.

    Raises:
        ValueError: The frames are larger than 32k on the short side.
    """

    def __init__(
        self,
        format: FrameFormat,
        pool: LanePool | None = None,
        *,
        placement: Placement = HOST,
        batch: int = 1,
    ) -> None:
        self._shapes, self._dtype = (format.luma_shape, format.chroma_shape), np.dtype(format.dtype)
        self._pool = pool or LanePool()
        size = (format.width, format.height)
        factor, detail = analysis_factor(*size), detail_factor(*size)
        count = max(batch, self._pool.lanes)
        self._grids = [
            _Grid(format, factor, placement=placement, halves=True) for _ in range(count)
        ]
        # Intermediate halvings of the host serve as detail.
        own = 1 < detail < factor and (placement.on_device or detail > 2)
        self._details = (
            [_Grid(format, detail, placement=placement) for _ in range(count)] if own else []
        )
        self._detail = detail if detail < factor else 0

    def reduce(self, frames: Sequence[Frame]) -> list[AnalysisFrame]:
        """Return the analysis frames of a batch; the fourth call from now overwrites them.

        Raises:
            ValueError: A frame's planes differ from the reducer's format.
        """
        return self._pool.map(self._reduce, range(len(frames)), frames)

    def _reduce(self, _lane: int, index: int, frame: Frame) -> AnalysisFrame:
        planes, dtype = frame.planes, self._dtype
        for plane, shape in zip((planes.luma, planes.chroma), self._shapes, strict=True):
            if plane.shape != shape or plane.dtype != dtype or not plane.flags.c_contiguous:
                raise ValueError(
                    f"expected contiguous {shape} {dtype}, not {plane.shape} {plane.dtype}"
                )
        reduced = self._grids[index].next(planes)
        if self._details:
            reduced.detail = self._details[index].next(planes)
        elif self._detail:
            luma = planes.luma if self._detail == 1 else reduced.halved
            reduced.detail = AnalysisFrame(self._detail, luma, planes.chroma)
        return reduced


class _Grid(AreaReducer):
    """Analysis frames of one factor, used in turn.

    Args:
        format: Format of the frames to reduce.
        factor: See :class:`AnalysisFrame`.
        placement: Device of the frames, or the host.
        halves: Whether the host keeps intermediate halvings.
    """

    def __init__(
        self, format: FrameFormat, factor: int, *, placement: Placement = HOST, halves: bool = False
    ) -> None:
        super().__init__(
            format.luma_shape, factor, placement=placement, bits=8 * format.bytes_per_sample
        )
        shape, half = self.shape, format.chroma_shape[:2]
        halves &= factor > 2 and not placement.on_device
        empty = placement.xp.empty
        # All are allocated now: a generator would allocate each on its first turn.
        grids = [
            AnalysisFrame(
                factor=factor,
                luma=empty(shape, format.dtype),
                chroma=empty((*(shape if factor > 1 else half), 2), format.dtype),
                halved=empty(half, format.dtype) if halves else None,
            )
            for _ in range(_KEPT_BATCHES)
        ]
        self._turns = cycle(grids)

    def next(self, planes: Planes) -> AnalysisFrame:
        """Reduce a frame; the fourth call from now overwrites it."""
        grid, (luma, chroma) = next(self._turns), (planes.luma, planes.chroma)
        outs = grid.luma, grid.chroma, grid.halved
        self._reduce(self.shape, luma, chroma, *outs, self._lines, *self._sizes)
        return grid
