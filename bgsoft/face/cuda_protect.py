"""Changes mattes on a CUDA device; reference: :class:`bgsoft.face.protect.CpuMatteEditor`.

What is drawn on the host is packed into one small upload (a face of a 1080p portrait is 15 kB), and
two kernels do the rest; a frame without a face takes none. What the matte had covered comes back
some frames later, so that nothing waits for it. Only :meth:`CudaMatteEditor.read` waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.base import grid_factor, grid_shape
from bgsoft.cuda.device import CudaDevice
from bgsoft.face.protect import MAX_MEASURED, Cover, OnCoverage, Plane8
from bgsoft.frame import FrameFormat, Matte
from bgsoft.kernels.loader import BLOCK, blocks, kernel

__all__ = ["CudaMatteEditor"]

_SLOTS = 32
"""Uploads that may be under way; more than frames of a batch."""
_SUM_BYTES = 4 * MAX_MEASURED
_HEAD_BYTES = _SUM_BYTES + 16 * MAX_MEASURED
_HOST_TO_DEVICE, _DEVICE_TO_HOST = 1, 2  # cudaMemcpyKind


@dataclass(slots=True, eq=False)
class _Slot:
    """Page-locked memory of one frame's upload, and what is to be told once it is through."""

    upload: NDArray[np.uint8]
    """Sums (zeroed), boxes of faces, then cover and limit."""
    sums: NDArray[np.uint32]
    """(MAX_MEASURED,) as they come back."""
    done: Any
    """CuPy event behind everything that reads or writes the slot."""
    used: bool = False
    cells: list[int] | None = None
    tell: OnCoverage | None = None


class CudaMatteEditor:
    """Changes mattes on a device, on its current stream.

    Args:
        format: Format of every frame.
        device: Where the frames are; it must be the current device.
    """

    def __init__(self, format: FrameFormat, device: CudaDevice) -> None:
        self._device = device
        rows, columns = shape = grid_shape(format.width, format.height)
        self._shape = shape
        self._factor = grid_factor(format.width, format.height)
        self._size = (np.int32(format.height), np.int32(format.width))
        self._format = format
        plane_bytes = rows * columns
        self._packed = cupy.empty(_HEAD_BYTES + 2 * plane_bytes, np.uint8)
        self._sums = self._packed[:_SUM_BYTES].view(np.uint32)
        self._boxes = self._packed[_SUM_BYTES:_HEAD_BYTES].view(np.int32)
        self._reduced = cupy.empty(shape, np.uint8)
        self._read = _pinned(plane_bytes).reshape(shape)
        self._slots = [
            _Slot(
                upload=_pinned(self._packed.nbytes),
                sums=_pinned(_SUM_BYTES).view(np.uint32),
                done=cupy.cuda.Event(disable_timing=True),
            )
            for _ in range(_SLOTS)
        ]
        self._turn = 0
        self._edit_grid = kernel("face", "edit_grid")
        self._edit_alpha = kernel("face", "edit_alpha")
        self._grid = blocks(columns, rows)

    def read(self, matte: Matte) -> Plane8:
        """The matte on the grid, on the host; waits for everything before it on the stream."""
        plane = matte.reduced
        stream = cupy.cuda.get_current_stream()
        self._copy(self._read.ctypes.data, plane.data.ptr, plane.nbytes, _DEVICE_TO_HOST)
        self._device.copies.add_d2h(plane.nbytes)
        stream.synchronize()
        return self._read

    def apply(
        self,
        matte: Matte,
        cover: Cover | None,
        limit: Plane8 | None,
        on_coverage: OnCoverage | None,
    ) -> None:
        """Change a matte; see :meth:`bgsoft.face.protect.MatteEditor.apply`."""
        if cover is None and limit is None:
            return
        slot = self._next_slot()
        count = self._pack_head(slot, cover, on_coverage)
        at = _HEAD_BYTES
        box = (0, 0, 0, 0)
        cover_part = limit_part = self._packed[at:]
        if cover is not None:
            box = cover.box
            left, top, right, bottom = box
            size = (bottom - top) * (right - left)
            patch = slot.upload[at : at + size].reshape(bottom - top, right - left)
            np.copyto(patch, cover.plane[top:bottom, left:right])
            at += size
        if limit is not None:
            limit_part = self._packed[at:]
            np.copyto(slot.upload[at : at + limit.size].reshape(limit.shape), limit)
            at += limit.size
        self._copy(self._packed.data.ptr, slot.upload.ctypes.data, at, _HOST_TO_DEVICE)
        self._device.copies.add_h2d(at)
        self._launch(matte, cover_part, limit_part, box, limit is not None, count)
        if count:
            self._copy(slot.sums.ctypes.data, self._packed.data.ptr, 4 * count, _DEVICE_TO_HOST)
            self._device.copies.add_d2h(4 * count)
        slot.done.record()
        slot.used = True

    def _pack_head(self, slot: _Slot, cover: Cover | None, on_coverage: OnCoverage | None) -> int:
        """Write sums and boxes; returns how many faces are measured."""
        slot.upload[:_SUM_BYTES] = 0
        slot.tell = None
        if cover is None or on_coverage is None or not cover.faces:
            return 0
        count = len(cover.faces)
        boxes = slot.upload[_SUM_BYTES:_HEAD_BYTES].view(np.int32).reshape(MAX_MEASURED, 4)
        boxes[:count] = cover.face_boxes
        slot.cells, slot.tell = list(cover.face_cells), on_coverage
        return count

    def _launch(
        self,
        matte: Matte,
        cover: Any,
        limit: Any,
        box: tuple[int, int, int, int],
        has_limit: bool,
        count: int,
    ) -> None:
        sides = tuple(map(np.int32, (*box, *self._shape)))
        planes = (matte.reduced, self._reduced, cover, limit, self._boxes, self._sums)
        self._edit_grid(self._grid, BLOCK, (*planes, np.int32(count), np.int32(has_limit), *sides))
        matte.reduced = self._reduced
        first_x = first_y = 0
        last_x, last_y = self._format.width, self._format.height
        factor = self._factor
        if not has_limit:  # nothing changes further than a cell from the cover
            left, top, right, bottom = box
            first_x, first_y = max(0, left - 1) * factor, max(0, top - 1) * factor
            last_x, last_y = min(last_x, (right + 1) * factor), min(last_y, (bottom + 1) * factor)
        shift = np.int32(factor.bit_length() - 1)
        first = (np.int32(first_x), np.int32(first_y))
        self._edit_alpha(
            blocks(last_x - first_x, last_y - first_y),
            BLOCK,
            (matte.alpha, cover, limit, np.int32(has_limit), *sides, shift, *self._size, *first),
        )

    def _copy(self, target: int, source: int, size: int, kind: int) -> None:
        stream = cupy.cuda.get_current_stream()
        cupy.cuda.runtime.memcpyAsync(target, source, size, kind, stream.ptr)

    def _next_slot(self) -> _Slot:
        """The slot that was used longest ago, through with it."""
        slot = self._slots[self._turn]
        self._turn = (self._turn + 1) % _SLOTS
        self._finish(slot)
        return slot

    def _finish(self, slot: _Slot) -> None:
        if not slot.used:
            return
        slot.done.synchronize()
        slot.used = False
        if slot.tell is not None and slot.cells is not None:
            slot.tell(
                [
                    int(total) / (255.0 * cells) if cells else 1.0
                    for total, cells in zip(slot.sums.tolist(), slot.cells, strict=False)
                ]
            )
            slot.tell = None

    def close(self) -> None:
        """Report what is outstanding, in order."""
        for index in range(_SLOTS):
            self._finish(self._slots[(self._turn + index) % _SLOTS])


def _pinned(size: int) -> NDArray[np.uint8]:
    """Page-locked bytes; freed with the last view of them."""
    memory = cupy.cuda.alloc_pinned_memory(size)  # may be larger than asked for
    return np.frombuffer(memory, np.uint8, size)
