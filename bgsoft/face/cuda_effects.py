"""Faces in mattes on a CUDA device.

Reference: :class:`bgsoft.face.guard.CpuMatteEditor`.

The host hands over outlines, as an argument of the two kernels that a frame with covered faces
takes: one finds out what the matte has of each, the other fills in what is missing. What the matte
had covered is waited for once in many such frames. What looks at mattes waits, too, and may run on
another stream than what changes them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import cupy
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.base import analysis_factor, analysis_shape
from bgsoft.cuda.device import CudaDevice, pinned_array
from bgsoft.face.base import OUTLINE_POINTS
from bgsoft.face.guard import (
    FILLED_SHARE,
    MAX_MEASURED,
    MISSED_SHARE,
    SAMPLES,
    Cover,
    OnCoverage,
    Outline,
    Plane8,
    missing_shares,
)
from bgsoft.frame import FrameFormat, Matte
from bgsoft.ops.loader import BLOCK, blocks, kernel

_MAX_OUTLINES = 12
"""MAX_OUTLINES of ``bgsoft/ops/face.cu``: outlines that one launch takes."""
_OUTLINE = struct.Struct(f"={2 * OUTLINE_POINTS * 4}s4f5i")
"""``Outline`` of that file: points as bytes; scale, shift x and y, opacity; side; left, top, right,
bottom."""
_EDIT = struct.Struct("=2f9i")
"""``MatteEdit`` of that file, but its outlines, which follow: missed and filled share; rows,
columns, height, width, shift; whether there is a limit, first outline, number of outlines, number
of measured ones."""
_EDIT_BYTES = _EDIT.size + _MAX_OUTLINES * _OUTLINE.size

_MEASURE_BLOCK = (32, 32, 1)
"""Threads that measure one face: all that a block may have, as a close-up has 30,000 cells."""
_MAX_ASKED, _MISSING_BLOCK = 64, (128, 1, 1)
"""Faces whose mattes are looked at by one launch; threads for each."""
_TOLD_EVERY = 16
"""Frames with covers whose coverage is waited for together."""


class CudaMatteEditor:
    """Reads and changes mattes on a device, on the current stream.

    The device must be the current one.
    """

    def __init__(self, format: FrameFormat, device: CudaDevice) -> None:
        self._device = device
        self._shape = rows, columns = shape = analysis_shape(format.width, format.height)
        shift = analysis_factor(format.width, format.height).bit_length() - 1
        self._reduced = cupy.empty(shape, np.uint8)
        self._limit = cupy.empty(shape, np.uint8)
        self._staged: Plane8 = pinned_array(shape, np.uint8)
        # What is asked of faces: the addresses of their mattes, then cells of these.
        size = _MAX_ASKED * (8 + 4 * SAMPLES)
        self._asked: NDArray[np.uint8] = pinned_array((size,), np.uint8)
        self._asked_there = cupy.empty(size, np.uint8)
        self._lacks: NDArray[np.int32] = pinned_array((_MAX_ASKED,), np.int32)
        self._lacks_there = cupy.empty(_MAX_ASKED, np.int32)
        self._measure_missing = kernel("face", "measure_missing")

        self._shares = (MISSED_SHARE, FILLED_SHARE)
        self._sizes = (rows, columns, format.height, format.width, shift)
        # CuPy passes an array of one element by value, whatever its type.
        self._edit = np.zeros(1, np.dtype((np.void, _EDIT_BYTES)))
        self._edit_bytes = self._edit.view(np.uint8).data
        self._strengths = cupy.empty(_MAX_OUTLINES, np.float32)
        self._measure_covers = kernel("face", "measure_covers")
        self._edit_matte = kernel("face", "edit_matte")
        self._grid = blocks(columns, rows)

        self._coverage = cupy.empty((_TOLD_EVERY, MAX_MEASURED), np.float32)
        self._told: NDArray[np.float32] = pinned_array(self._coverage.shape, np.float32)
        self._listeners: list[tuple[OnCoverage, int]] = []

    def read(self, matte: Matte) -> Plane8:
        """See :meth:`bgsoft.face.guard.MatteEditor.read`; waits for the stream."""
        staged, stream = self._staged, cupy.cuda.get_current_stream()
        matte.reduced.data.copy_to_host_async(staged.ctypes.data, staged.nbytes, stream)
        self._device.copies.add_d2h(staged.nbytes)
        stream.synchronize()
        return staged

    def missing(self, mattes: Sequence[Matte], cells: NDArray[np.int32]) -> list[float]:
        """See :meth:`bgsoft.face.guard.MatteEditor.missing`; one launch, waits for the stream."""
        shares: list[float] = []
        for first in range(0, len(cells), _MAX_ASKED):
            part = slice(first, first + _MAX_ASKED)
            shares += missing_shares(self._lacking(mattes[part], cells[part]), cells[part])
        return shares

    def _lacking(self, mattes: Sequence[Matte], cells: NDArray[np.int32]) -> NDArray[np.int32]:
        count = len(cells)
        at, end = 8 * count, 8 * count + cells.nbytes
        self._asked[:at].view(np.uint64)[:] = [matte.reduced.data.ptr for matte in mattes]
        self._asked[at:end].view(np.int32)[:] = cells.ravel()
        stream = cupy.cuda.get_current_stream()
        there = self._asked_there
        there.data.copy_from_host_async(self._asked.ctypes.data, end, stream)
        arguments = (there, there[at:], self._lacks_there, np.int32(SAMPLES))
        self._measure_missing((count, 1, 1), _MISSING_BLOCK, arguments)
        self._lacks_there.data.copy_to_host_async(self._lacks.ctypes.data, 4 * count, stream)
        stream.synchronize()
        return self._lacks[:count]

    def apply(
        self,
        matte: Matte,
        cover: Cover | None,
        limit: Plane8 | None,
        on_coverage: OnCoverage | None,
    ) -> None:
        """Change a matte; see :meth:`bgsoft.face.guard.MatteEditor.apply`."""
        if cover is None and limit is None:
            return
        if limit is not None:
            # From pageable memory: the driver has its own copy when this returns.
            stream = cupy.cuda.get_current_stream()
            self._limit.data.copy_from_host_async(limit.ctypes.data, limit.nbytes, stream)
            self._device.copies.add_h2d(limit.nbytes)
        outlines = [] if cover is None else cover.outlines
        measured = 0 if cover is None or on_coverage is None else len(cover.faces)
        seen = (matte.reduced, self._limit, self._strengths)
        changed = (self._reduced, matte.alpha)
        row = self._coverage[len(self._listeners)]
        # A frame with more faces than one launch takes is changed by several.
        for first in range(0, max(1, len(outlines)), _MAX_OUTLINES):
            part = outlines[first : first + _MAX_OUTLINES]
            self._write(limit is not None, first, part, measured)
            if part:
                arguments = (*seen, row, self._edit)
                self._measure_covers((len(part), 1, 1), _MEASURE_BLOCK, arguments)
            self._edit_matte(self._grid, BLOCK, (*seen, *changed, self._edit))
        # The kernels read a cell's neighbours while they write others.
        size = self._reduced.nbytes
        matte.reduced.data.copy_from_device_async(self._reduced.data, size)
        if on_coverage is not None and measured:
            self._listeners.append((on_coverage, measured))
            if len(self._listeners) == _TOLD_EVERY:
                self._tell()

    def _write(
        self, has_limit: bool, first: int, outlines: Sequence[Outline], measured: int
    ) -> None:
        """Write the kernel's argument; a launch has copied it when it returns."""
        part = (has_limit, first, len(outlines), measured)
        _EDIT.pack_into(self._edit_bytes, 0, *self._shares, *self._sizes, *part)
        at = _EDIT.size
        for outline in outlines:
            fractions = (outline.scale, *outline.shift, outline.opacity)
            points = outline.points.tobytes()
            _OUTLINE.pack_into(self._edit_bytes, at, points, *fractions, outline.side, *outline.box)
            at += _OUTLINE.size

    def _tell(self) -> None:
        """Tell of the coverage that the kernels have measured; waits for the stream."""
        stream = cupy.cuda.get_current_stream()
        self._coverage.data.copy_to_host_async(self._told.ctypes.data, self._told.nbytes, stream)
        self._device.copies.add_d2h(self._told.nbytes)
        stream.synchronize()
        listeners, self._listeners = self._listeners, []
        for (on_coverage, count), row in zip(listeners, self._told, strict=False):
            on_coverage(row[:count].tolist())

    def close(self) -> None:
        """Tell of what is outstanding, in order."""
        if self._listeners:
            self._tell()
