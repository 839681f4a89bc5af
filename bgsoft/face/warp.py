"""From frames' planes to a face model's input batch, through any affine transform.

Only as many samples as the input needs are converted to RGB.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap
from typing import Any

import numpy as np

from bgsoft.face.geometry import Affine
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat
from bgsoft.models.catalog import ModelSpec
from bgsoft.ops.placement import HOST, Placement, address
from bgsoft.segment.preprocess import fixed_matrix, normalisation

_TAPS = (1, 2, 4)
"""Bilinear samples along each axis of an input pixel: as few as serve."""
_MAX_SPACING = 2.0
"""Source samples between two bilinear samples; more would skip some."""
_MIN_GRID_SAMPLES = 0.75
"""Cells per input pixel from which a reduced frame is sharp enough."""

_PLANE = np.dtype(
    [
        ("samples", np.uint64),
        ("place", np.float32, 6),
        *((name, np.int32) for name in ("rows", "columns", "taps", "border")),
    ]
)
"""``Plane`` of ops/warp.cu."""
_VIEW = np.dtype([("luma", _PLANE), ("chroma", _PLANE)])
"""``View`` of that file."""

FrameView = tuple[Frame, AnalysisFrame, Affine]
"""A frame, the same on the analysis frame, and what of it a model is shown: from the pixels of the
model's input to those of the frame."""

EDGE, MIRRORED = -1, -2
"""Samples beyond a frame: those at its edge, or the frame mirrored; as in ``ops/warp.cu``."""


class Warper:
    """Writes views of frames of one format into a network's input.

    Args:
        spec: The network's contract; its input has channels first.
        format: Format of the frames.
        max_views: Views that are written at a time.
        placement: Host or device of the frames and the input.
        border: Samples beyond a frame: ``EDGE`` or ``MIRRORED``.
    """

    def __init__(
        self,
        spec: ModelSpec,
        format: FrameFormat,
        max_views: int = 1,
        placement: Placement = HOST,
        border: int = EDGE,
    ) -> None:
        self._placement, self._shape, self._border = placement, (spec.height, spec.width), border
        constants = fixed_matrix(spec, format), normalisation(spec)
        self._constants = [*map(placement.array, constants)]
        self._rows = np.zeros(max_views, _VIEW)
        self._views: Array = self._rows
        if placement.on_device:
            from bgsoft.cuda.device import pinned_array

            self._rows = pinned_array((max_views,), _VIEW)
            self._views = placement.xp.empty(self._rows.nbytes, np.uint8)
        bits = 8 * format.bytes_per_sample
        self._warp = placement.operation("warp", "warp_views", sample_bits=bits)

    def write(self, asked: Sequence[FrameView], tensor: Array) -> None:
        """Sample, convert and normalise some views, at most ``max_views``.

        Args:
            asked: The views; a device's stream must have passed those before.
            tensor: (batch, 3, H, W) float32, C-contiguous; the first items are written.
        """
        (height, width), count = self._shape, len(asked)
        self._rows[:count] = [*starmap(self._row, asked)]
        if self._placement.on_device:
            stream = self._placement.xp.cuda.get_current_stream()
            used = count * _VIEW.itemsize
            self._views.data.copy_from_host_async(self._rows.ctypes.data, used, stream)
        self._warp(
            (count * height, width), self._views, *self._constants, tensor, height, width, count
        )

    def _row(self, frame: Frame, reduced: AnalysisFrame, view: Affine) -> tuple[Any, ...]:
        """A view as the kernel takes it: of the reduced frame where that is sharp enough.

        The :class:`Affine` of each plane leads from the input, enlarged by the taps, to the plane,
        sample centres being whole numbers.
        """
        grid, scale = reduced.detail or reduced, view.scale
        is_reduced = grid.factor > 1 and scale / grid.factor >= _MIN_GRID_SAMPLES
        source, cells = (grid, (grid.factor, grid.factor)) if is_reduced else (frame, (1, 2))
        planes: list[tuple[Any, ...]] = []
        for plane, cell in zip((source.luma, source.chroma), cells, strict=True):
            taps = next((n for n in _TAPS if scale / cell / n <= _MAX_SPACING), _TAPS[-1])
            xx, xy, x0, yx, yy, y0 = (value / cell for value in view)
            x, y = (xx + xy) / 2 / taps + x0 - 0.5, (yx + yy) / 2 / taps + y0 - 0.5
            place = xx / taps, xy / taps, x, yx / taps, yy / taps, y
            rows, columns, *_ = plane.shape
            planes.append((address(plane), place, rows, columns, taps, self._border))
        return tuple(planes)
