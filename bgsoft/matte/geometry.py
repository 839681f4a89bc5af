"""Moving planes between the three sizes of the matte stage: model, analysis grid, full frame.

The model's mask covers the frame exactly. The grid covers it too, but where the frame's sides are
no multiples of the grid's factor its last row and column reach over the edge, so a plain resize
between the two would drift by a part of a cell.
"""

from __future__ import annotations

import cv2
import numpy as np

from bgsoft.analysis.base import grid_factor, grid_shape
from bgsoft.frame import Array, FrameFormat

__all__ = ["FrameUpsampler", "MaskResampler", "grid_unit"]

_REFERENCE_SIDE = 270.0
"""Short side of the grid of a 1080-line frame; filter sizes are given for it."""


def grid_unit(shape: tuple[int, int]) -> float:
    """How many cells of this grid make one cell of the 270-row grid of a 1080-line frame.

    Filter sizes in cells are multiplied by it, so they cover the same part of any picture.
    """
    return min(shape) / _REFERENCE_SIDE


class MaskResampler:
    """Enlarges (or reduces) model-sized planes to the grid, bilinearly, cell centres aligned."""

    def __init__(self, format: FrameFormat) -> None:
        self._frame_shape = format.luma_shape
        self._factor = grid_factor(format.width, format.height)
        self.shape = grid_shape(format.width, format.height)
        """(gh, gw) of the grid."""
        height, width = self._frame_shape
        self._exact = height % self._factor == 0 and width % self._factor == 0

    def apply(self, plane: Array, out: Array) -> None:
        """Resample a plane.

        Args:
            plane: (h, w) uint8 or float32 at model size, covering the frame.
            out: (gh, gw) of the same dtype; filled.
        """
        rows, columns = self.shape
        if plane.shape == out.shape and self._exact:
            np.copyto(out, plane)
        elif self._exact:
            cv2.resize(plane, (columns, rows), dst=out, interpolation=cv2.INTER_LINEAR)
        else:
            height, width = self._frame_shape
            scale_y = plane.shape[0] * self._factor / height
            scale_x = plane.shape[1] * self._factor / width
            # Centre of cell i is (i + 1/2)·scale in the mask's units, whose samples sit at 1/2.
            matrix = np.array(
                [[scale_x, 0, scale_x / 2 - 0.5], [0, scale_y, scale_y / 2 - 0.5]], np.float64
            )
            cv2.warpAffine(
                plane,
                matrix,
                (columns, rows),
                dst=out,
                flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
                borderMode=cv2.BORDER_REPLICATE,
            )


class FrameUpsampler:
    """Enlarges grid-sized planes to the full frame, bilinearly, cell centres aligned.

    Only the rectangle that holds anything is enlarged; the rest is cleared, which takes a fraction
    of the time.
    """

    def __init__(self, format: FrameFormat) -> None:
        self._factor = grid_factor(format.width, format.height)
        rows, columns = grid_shape(format.width, format.height)
        padded = (rows * self._factor, columns * self._factor)
        self._padded = None if padded == format.luma_shape else np.empty(padded, np.uint8)

    def apply(self, plane: Array, out: Array) -> None:
        """Enlarge a plane.

        Args:
            plane: (gh, gw) uint8.
            out: (H, W) uint8, C-contiguous; filled.
        """
        if self._factor == 1:
            np.copyto(out, plane)
        elif self._padded is None:
            self._enlarge(plane, out)
        else:
            self._enlarge(plane, self._padded)
            np.copyto(out, self._padded[: out.shape[0], : out.shape[1]])

    def _enlarge(self, plane: Array, out: Array) -> None:
        factor = self._factor
        left, top, width, height = cv2.boundingRect(plane)
        # An empty cell on each side, so that the edge fades as it does in the whole plane.
        x = slice(max(0, left - 1), left + width + 1)
        y = slice(max(0, top - 1), top + height + 1)
        part = plane[y, x]
        rows, columns = part.shape[0] * factor, part.shape[1] * factor
        box = (
            slice(y.start * factor, y.start * factor + rows),
            slice(x.start * factor, x.start * factor + columns),
        )
        out[: box[0].start] = 0
        out[box[0].stop :] = 0
        out[box[0], : box[1].start] = 0
        out[box[0], box[1].stop :] = 0
        if width:
            cv2.resize(part, (columns, rows), dst=out[box], interpolation=cv2.INTER_LINEAR)
        else:
            out[box] = 0
