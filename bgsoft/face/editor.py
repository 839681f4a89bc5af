"""Mattes as faces change them: cut down to a limit, then filled in where a face is missing.

What the matte had covered of each face is waited for once in many frames of a device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bgsoft.analysis.base import analysis_factor, analysis_shape
from bgsoft.cuda.readback import Readback
from bgsoft.face.base import Face
from bgsoft.face.geometry import Roi
from bgsoft.face.guard import (
    EXPECTED_SAMPLES,
    FILLED_SHARE,
    MAX_MEASURED,
    MISSED_SHARE,
    Plane8,
    lay_outlines,
)
from bgsoft.frame import FrameFormat, Matte
from bgsoft.ops.placement import HOST, Placement

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice

_SQUARE = np.dtype([(name, np.float64) for name in ("x", "y", "across", "down")])
"""``Square`` of ``bgsoft/ops/face.cu``."""

_COVER_BLOCK, _MISSING_BLOCK = (256, 1, 1), (128, 1, 1)
"""Threads of a device that measure one face, how it is covered and what its matte missing."""
_MAX_MEASURED_TOGETHER = 64
"""Faces of which what their mattes lack is waited for together, at most."""
_COVERAGE_BATCH = 16
"""Frames of a device with covers whose coverage is waited for together."""

OnCoverage = Callable[[Sequence[int], Sequence[float]], None]
"""Called with ids of measured faces, and of each the share, 0–1, that the matte covered before it
was filled in. The soft edge counts as much as it is opaque. The call may come some frames later."""


class MatteEditor:
    """Reads and changes mattes of frames of one format.

    One thread may read them, :meth:`read` and :meth:`missing`, while another one changes others; of
    a device each on its own stream.

    Args:
        format: Format of the frames.
        placement: Host or device of the mattes.
        device: Whose copies are counted; None: on the host.
    """

    def __init__(
        self, format: FrameFormat, placement: Placement = HOST, device: CudaDevice | None = None
    ) -> None:
        self._placement, self._device = placement, device
        self._grid = grid = analysis_shape(format.width, format.height)
        factor = analysis_factor(format.width, format.height)
        self._cell = 1.0 / factor
        self._measure_missing = placement.operation("face", "measure_missing", block=_MISSING_BLOCK)
        self._measure_covers = placement.operation("face", "measure_covers", block=_COVER_BLOCK)
        self._edit_matte = placement.operation("face", "edit_matte")
        self._staged = Readback(placement, grid, np.uint8) if placement.on_device else None
        self._samples = placement.array(EXPECTED_SAMPLES)
        self._missing = Readback(placement, _MAX_MEASURED_TOGETHER, np.float64)
        self._sizes = *grid, *format.luma_shape, factor.bit_length() - 1
        self._lines = placement.scratch(2 * grid[1] * factor, np.uint16)
        shape = (_COVERAGE_BATCH if placement.on_device else 1, MAX_MEASURED)
        self._coverage = Readback(placement, shape, np.float32)
        self._listeners: list[tuple[OnCoverage, list[int]]] = []

    def read(self, matte: Matte) -> Plane8:
        """A matte on the host: (gh, gw), only to be read; overwritten by the next call."""
        plane: Plane8 = matte.reduced
        if self._staged is not None:
            self._placement.copy(matte.reduced, self._staged.array)
            self._receive(self._staged)
            plane = self._staged.host
        return plane

    def _receive(self, what: Readback) -> None:
        sent = what.send()
        if self._device is not None:
            self._device.copies.add_d2h(sent)
        what.wait()

    def missing(self, asked: Sequence[tuple[Matte, Roi]]) -> list[float]:
        """Return how much each matte lacks of what is expected of a face, 0–1.

        Of the faces that landmarks would be made of in these squares; what lies beyond the frame
        does not count.
        """
        cell, samples, missing = self._cell, self._samples, self._missing
        size, points = (1, _MISSING_BLOCK[0]), samples.shape[1]
        shares: list[float] = []
        for first in range(0, len(asked), _MAX_MEASURED_TOGETHER):
            part = asked[first : first + _MAX_MEASURED_TOGETHER]
            for index, (matte, (x, y, side, angle)) in enumerate(part):
                across, down = cell * side * math.cos(angle), cell * side * math.sin(angle)
                own = np.array([(cell * x, cell * y, across, down)], _SQUARE)
                arguments = matte.reduced, own, samples, missing.array, points, *self._grid
                self._measure_missing(size, *arguments, index)
            shares += missing.read(len(part)).tolist()
        return shares

    def apply(
        self,
        matte: Matte,
        faces: Sequence[tuple[Face, float]],
        limit: Plane8 | None,
        on_coverage: OnCoverage | None,
    ) -> None:
        """Cut a matte down to ``limit``, (gh, gw), then fill in the faces that are missing from it.

        Both of its planes are changed in place. Faces are filled in as opaque as given (0–1); of
        those that are whole so, its coverage in between is reported to ``on_coverage``.
        """
        outlines, ids = lay_outlines(faces, self._cell, self._grid)
        if limit is None and not len(outlines):
            return
        ceiling = None if limit is None else self._placement.array(limit)
        if limit is not None and self._device is not None:
            self._device.copies.add_h2d(limit.nbytes)
        measured = 0 if on_coverage is None else len(ids)
        count, laid = len(outlines), self._placement.array(outlines.view(np.uint8))
        shares = self._placement.xp.empty((count, *self._grid), np.uint8)
        strengths = self._placement.xp.empty(count, np.int32)
        # All faces are measured before any is filled in: they may overlap.
        if count:
            coverage = self._coverage.array[len(self._listeners)]
            self._measure_covers(
                (1, count * _COVER_BLOCK[0]),
                *(matte.reduced, ceiling, laid, shares, strengths, coverage),
                *(*self._grid, count, measured, MISSED_SHARE, FILLED_SHARE),
            )
        planes = matte.reduced, matte.alpha, self._lines
        self._edit_matte(self._grid, ceiling, laid, shares, strengths, *planes, count, *self._sizes)
        if on_coverage is not None and measured:
            self._listeners.append((on_coverage, ids))
            if len(self._listeners) == len(self._coverage.array):
                self._report_coverage()

    def _report_coverage(self) -> None:
        """Report the measured coverage, in order; waits for the stream."""
        self._receive(self._coverage)
        listeners, self._listeners = self._listeners, []
        for (on_coverage, ids), row in zip(listeners, self._coverage.host, strict=False):
            on_coverage(ids, row[: len(ids)].tolist())

    def close(self) -> None:
        """Tell of what is outstanding; safe to call twice."""
        if self._listeners:
            self._report_coverage()
