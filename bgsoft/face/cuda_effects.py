"""Faces in mattes on a CUDA device.

Reference: :class:`bgsoft.face.guard.CpuMatteEditor`.

The host hands over outlines, as an argument of the two kernels that a frame with faces takes (a
frame without takes none): one finds out what the matte has of each, the other fills in what is
missing. Nothing is uploaded but limits, and nothing is drawn here. What the matte had covered comes
back some frames later, for many frames at once, so that nothing waits for it. Only
:meth:`CudaMatteEditor.read` waits, in a batch once: by the time the first matte has come the
others, sent for right behind it, are almost there.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

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
    Cover,
    OnCoverage,
    Outline,
    Plane8,
)
from bgsoft.frame import FrameFormat, Matte
from bgsoft.ops.loader import BLOCK, blocks, kernel

_HOST_TO_DEVICE, _DEVICE_TO_HOST, _DEVICE_TO_DEVICE = 1, 2, 3  # cudaMemcpyKind

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
_FETCH_EVERY = 16
"""Frames whose coverage is fetched together."""
_UNDER_WAY = 3
"""Fetches that may be under way: more than frames that the host is ahead of the device."""


@dataclass(slots=True, eq=False)
class _Fetch:
    """Coverage of the faces of some frames, on its way to the host."""

    coverage: NDArray[np.float32]
    """(_FETCH_EVERY, MAX_MEASURED), page-locked."""
    done: Any
    """CuPy event behind the copy."""
    listeners: list[tuple[OnCoverage, int]] = field(default_factory=list)
    """What to call for each frame, and with how many faces."""


@dataclass(slots=True, eq=False)
class _Transfer:
    """A matte on its way to the host, or a limit on its way to the device."""

    staged: Plane8
    """(gh, gw), page-locked."""
    done: Any
    """CuPy event behind the copy."""


class CudaMatteEditor:
    """Changes mattes on a device, on its current stream.

    Buffers are made in the constructor, but what each matte of a batch needs for being read: by
    the first batch, where the mode reads any. The device must be the current one.
    """

    def __init__(self, format: FrameFormat, device: CudaDevice) -> None:
        self._device = device
        self._shape = rows, columns = shape = analysis_shape(format.width, format.height)
        shift = analysis_factor(format.width, format.height).bit_length() - 1
        self._reduced = cupy.empty(shape, np.uint8)
        self._limit = cupy.empty(shape, np.uint8)
        self._sent: list[_Transfer] = []
        self._uploads = deque([self._new_transfer()])

        self._shares = (MISSED_SHARE, FILLED_SHARE)
        self._sizes = (rows, columns, format.height, format.width, shift)
        # CuPy passes an array of one element by value, whatever its type.
        self._edit = np.zeros(1, np.dtype((np.void, _EDIT_BYTES)))
        self._edit_bytes = self._edit.view(np.uint8).data
        self._strengths = cupy.empty(_MAX_OUTLINES, np.float32)
        self._measure_covers = kernel("face", "measure_covers")
        self._edit_matte = kernel("face", "edit_matte")
        self._grid = blocks(columns, rows)

        self._coverage = cupy.empty((_FETCH_EVERY, MAX_MEASURED), np.float32)
        self._coverage_rows = [self._coverage[row] for row in range(_FETCH_EVERY)]
        self._listeners: list[tuple[OnCoverage, int]] = []
        self._idle = [
            _Fetch(
                pinned_array(self._coverage.shape, np.float32), cupy.cuda.Event(disable_timing=True)
            )
            for _ in range(_UNDER_WAY)
        ]
        self._fetches: deque[_Fetch] = deque()

    def _new_transfer(self) -> _Transfer:
        event = cupy.cuda.Event(disable_timing=True)
        return _Transfer(pinned_array(self._shape, np.uint8), event)

    def fetch(self, matte: Matte, index: int) -> None:
        """Send for a matte; see :meth:`bgsoft.face.guard.MatteEditor.fetch`."""
        while len(self._sent) <= index:
            self._sent.append(self._new_transfer())
            # One more limit may be under way: none of this batch waits for another's upload.
            self._uploads.append(self._new_transfer())
        sent = self._sent[index]
        source, size = matte.reduced.data.ptr, sent.staged.nbytes
        self._copy(sent.staged.ctypes.data, source, size, _DEVICE_TO_HOST)
        self._device.copies.add_d2h(size)
        sent.done.record()

    def read(self, index: int) -> Plane8:
        """A matte that was sent for; waits for everything before it on the stream."""
        sent = self._sent[index]
        sent.done.synchronize()
        return sent.staged

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
            self._upload(limit)
        outlines = [] if cover is None else cover.outlines
        measured = 0 if cover is None or on_coverage is None else len(cover.faces)
        seen = (matte.reduced, self._limit, self._strengths)
        changed = (self._reduced, matte.alpha)
        row = self._coverage_rows[len(self._listeners)]
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
        self._copy(matte.reduced.data.ptr, self._reduced.data.ptr, size, _DEVICE_TO_DEVICE)
        if on_coverage is not None and measured:
            self._listeners.append((on_coverage, measured))
            if len(self._listeners) == _FETCH_EVERY:
                self._fetch()

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

    def _upload(self, limit: Plane8) -> None:
        upload = self._uploads[0]
        self._uploads.rotate(-1)
        upload.done.synchronize()
        np.copyto(upload.staged, limit)
        source, size = upload.staged.ctypes.data, upload.staged.nbytes
        self._copy(self._limit.data.ptr, source, size, _HOST_TO_DEVICE)
        self._device.copies.add_h2d(size)
        upload.done.record()

    def _fetch(self) -> None:
        """Start copying the coverage that the kernels have measured so far."""
        if not self._idle:
            self._finish()
        fetch = self._idle.pop()
        fetch.listeners, self._listeners = self._listeners, []
        size = len(fetch.listeners) * self._coverage_rows[0].nbytes
        self._copy(fetch.coverage.ctypes.data, self._coverage.data.ptr, size, _DEVICE_TO_HOST)
        self._device.copies.add_d2h(size)
        fetch.done.record()
        self._fetches.append(fetch)

    def _finish(self) -> None:
        """Report the oldest fetch."""
        fetch = self._fetches.popleft()
        fetch.done.synchronize()
        for (on_coverage, count), row in zip(fetch.listeners, fetch.coverage, strict=False):
            on_coverage(row[:count].tolist())
        self._idle.append(fetch)

    def _copy(self, target: int, source: int, size: int, kind: int) -> None:
        stream = cupy.cuda.get_current_stream()
        cupy.cuda.runtime.memcpyAsync(target, source, size, kind, stream.ptr)

    def close(self) -> None:
        """Report what is outstanding, in order."""
        if self._listeners:
            self._fetch()
        while self._fetches:
            self._finish()
