"""What a background on a CUDA device is, and the kind that is enlarged from cells."""

from __future__ import annotations

from typing import Any, Protocol

import cupy
import numpy as np

from bgsoft.composite.upsample import DITHER_ROWS, HOLD_STEPS, dither_pattern
from bgsoft.frame import Array, Frame, FrameFormat, Matte, Reduced
from bgsoft.kernels.loader import kernel

__all__ = ["DeviceBackground", "DeviceCells", "device_ints"]

_HOLD_THREADS = 256


class DeviceBackground(Protocol):
    """A background that one of the kernels of ``blend.cu`` reads."""

    @property
    def blend_kernel(self) -> str:
        """The kernel's name."""
        ...

    @property
    def blend_arguments(self) -> tuple[Any, ...]:
        """Its arguments after those that describe the frame; the same for every frame."""
        ...

    @property
    def is_fixed(self) -> bool:
        """Whether :meth:`prepare` neither reads the frame nor does anything on the host."""
        ...

    def prepare(self, frame: Frame, matte: Matte, reduced: Reduced) -> None:
        """Make the background of this frame, on the current stream; the frame is only read."""
        ...

    def close(self) -> None:
        """Free what it holds on the host; safe to call twice."""
        ...


def device_ints(*values: int) -> Array:
    """Numbers that a kernel reads from device memory, (n,) int32: its plan."""
    return cupy.asarray(np.array(values, np.int32))


class DeviceCells:
    """Cells of a fraction of the frame's size, enlarged and dithered where they are blended.

    The twin of :class:`bgsoft.composite.upsample.GridBackground`.

    Args:
        format: Format of every frame.
        factor: Luma pixels per luma cell, each way, a power of two.
        chroma_factor: Luma pixels per chroma cell, each way, a power of two, 2 or more.
    """

    blend_kernel = "blend_grid"

    def __init__(self, format: FrameFormat, factor: int, chroma_factor: int) -> None:
        height, width = format.luma_shape
        half_height, half_width, _ = format.chroma_shape
        chroma_factor //= 2  # from here on in chroma samples
        rows, columns = -(-height // factor), -(-width // factor)
        chroma_rows, chroma_columns = (
            -(-half_height // chroma_factor),
            -(-half_width // chroma_factor),
        )
        size, chroma_size = rows * columns, chroma_rows * chroma_columns
        self.offsets = (0, size, size + chroma_size)
        """Where luma, Cb and Cr start in :attr:`cells`."""
        self.shapes = ((rows, columns), *((chroma_rows, chroma_columns),) * 2)
        """(h, w) of luma, Cb and Cr."""
        self.cells = cupy.empty(size + 2 * chroma_size, np.uint16)
        """The planes one after another, 16-bit full scale; to be filled before :meth:`hold`."""
        self._shown = cupy.empty_like(self.cells)
        self._hold = kernel("hold", "hold_cells")
        self._hold_blocks = (-(-self.cells.size // _HOLD_THREADS), 1, 1)
        self._hold_steps = HOLD_STEPS[format.bit_depth]
        self._fresh = True
        levels = 1 << (16 - format.bit_depth)
        # Chroma's pattern is the upper left part of luma's. At most 239, so bytes hold it.
        pattern = dither_pattern(DITHER_ROWS, width, levels).astype(np.uint8)
        logs = factor.bit_length() - 1, chroma_factor.bit_length() - 1
        plan = device_ints(rows, columns, chroma_rows, chroma_columns, *logs, *self.offsets)
        self.blend_arguments: tuple[Any, ...] = (plan, self._shown, cupy.asarray(pattern))

    def hold(self) -> None:
        """Let what is blended follow :attr:`cells`, except for noise; one launch."""
        steps = 0 if self._fresh else self._hold_steps
        self._fresh = False
        arguments = (self.cells, self._shown, np.int32(self.cells.size), np.int32(steps))
        self._hold(self._hold_blocks, (_HOLD_THREADS, 1, 1), arguments)
