"""Resizing as part of an operation.

OpenCV resizes on the host. On a device, tables make kernels resize like ``cv2.resize``
(``bgsoft/ops/resample.cuh``).

The arithmetic follows the interpolation rules that OpenCV documents for ``INTER_LINEAR`` and
``INTER_AREA``: sample centres at one half, edge samples repeated, area weights by overlap.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from bgsoft.frame import Array
from bgsoft.ops.placement import Placement

_LINEAR, _AREA, _CELLS, _LERP = range(4)
"""``ResampleMode`` in ``resample.cuh``."""
_FIXED_ONE = 2048
"""8-bit bilinear weights are multiples of its reciprocal."""
_SLIVER = 1e-3
"""Overlaps smaller than this part of a sample are ignored, as in OpenCV."""
_MAX_TABLES = 256
"""Number of size pairs whose tables are cached; crops and boxes may have any size."""


NO_TABLES = (None, 0, None, 0, 0)
"""Tables of a plane that has the size already."""
Scale = tuple[float, float]
"""Source samples per target sample, (vertical, horizontal); corners coincide."""


def _view(
    room: Any, channels: tuple[int, ...], shape: tuple[int, int]
) -> tuple[Array, tuple[Any, ...]]:
    """Return the host's plane of this shape, with its :meth:`arguments`."""
    whole = *shape, *channels
    made = room[: math.prod(whole)].reshape(whole)
    return made, (made, made[0].size, *NO_TABLES)


class Resized:
    """Provides planes to operations at another size, one after another.

    Args:
        placement: Device of the planes, or the host.
        max_shape: The largest requested size: (rows, columns), and channels if any.
        dtype: Type of the samples.
    """

    def __init__(
        self, placement: Placement, max_shape: tuple[int, ...], dtype: npt.DTypeLike
    ) -> None:
        self._made: Any = placement.scratch(math.prod(max_shape), dtype)
        channels = max_shape[2:]
        if not placement.on_device and np.dtype(dtype) == np.float32:
            self._run = placement.operation("resize", "resize_area")
            self._room = np.empty(0, np.float32)

        @lru_cache(_MAX_TABLES)
        def tables(
            source: tuple[int, int], target: tuple[int, int], scale: Scale | None, *, area: bool
        ) -> tuple[Any, ...]:
            if scale is not None:
                return aligned_resampling(placement, source, target, scale)
            fixed_point = np.dtype(dtype) == np.uint8
            return resampling(placement, source, target, area=area, fixed_point=fixed_point)

        self._tables, self._views = (
            tables,
            lru_cache(_MAX_TABLES)(partial(_view, self._made, channels)),
        )

    def arguments(
        self,
        plane: Array,
        shape: tuple[int, int],
        *,
        area: bool | None = False,
        scale: Scale | None = None,
    ) -> tuple[Any, ...]:
        """Return plane, pitch in samples, x table, its stride, y table, its stride, mode.

        On the host the plane is resized, without tables; the next call overwrites it. A
        C-contiguous plane of that shape is returned unchanged.

        Args:
            plane: (rows, columns) or (rows, columns, channels); rows may be padded.
            shape: (rows, columns) to resize to.
            area: ``INTER_AREA`` instead of ``INTER_LINEAR``; None: if both dimensions shrink.
            scale: See :func:`aligned_resampling`; None: the edges of both planes coincide.
        """
        smaller = plane.shape[0] >= shape[0] and plane.shape[1] >= shape[1]
        if area is None:
            area = smaller
        if self._made is None:
            pitch = plane.strides[0] // plane.itemsize
            return plane, pitch, *self._tables(plane.shape[:2], shape, scale, area=area)
        if plane.shape[:2] == shape and scale is None and plane.flags.c_contiguous:
            return plane, plane[0].size, *NO_TABLES
        made, arguments = self._views(shape)
        if area and smaller and self._made.dtype == np.float32 and plane.flags.c_contiguous:
            self._average(plane, made)
            return arguments
        method, size = cv2.INTER_AREA if area else cv2.INTER_LINEAR, shape[::-1]
        if scale is None:
            cv2.resize(plane, size, made, 0, 0, method)
        else:
            y, x = scale
            # Centre of sample i is (i + 1/2)·scale in the plane's units, whose samples sit at 1/2.
            matrix = np.array([[x, 0, x / 2 - 0.5], [0, y, y / 2 - 0.5]], np.float64)
            how = {"flags": method | cv2.WARP_INVERSE_MAP, "borderMode": cv2.BORDER_REPLICATE}
            cv2.warpAffine(plane, matrix, size, dst=made, **how)
        return arguments

    def _average(self, plane: Array, made: Array) -> None:
        """Halve a plane, in a quarter of OpenCV's time."""
        shape, columns = made.shape, plane.shape[1]
        *tables, _ = self._tables(plane.shape, shape, None, area=True)
        needed = columns + tables[1] + (1 + tables[1]) * shape[1]
        if self._room.size < needed:
            self._room = np.empty(needed, np.float32)
        self._run(shape, plane, columns, columns, *tables, made, *shape, self._room)


def _arguments(
    placement: Placement, mode: int, rows: NDArray[np.float32], columns: NDArray[np.float32]
) -> tuple[Any, ...]:
    return placement.array(columns), columns.shape[1], placement.array(rows), rows.shape[1], mode


def resampling(
    placement: Placement,
    source: tuple[int, int],
    target: tuple[int, int],
    *,
    area: bool,
    fixed_point: bool,
) -> tuple[Any, ...]:
    """Return tables for ``cv2.resize`` between two shapes (rows, columns).

    Args:
        source, target: The shapes.
        area: ``INTER_AREA`` instead of ``INTER_LINEAR``.
        fixed_point: For 8-bit samples, whose bilinear weights are rounded.

    Returns:
        x table, its stride, y table, its stride, mode: arguments of kernels.
    """
    scales = tuple(s / t for s, t in zip(source, target, strict=True))
    shrinks = min(scales) >= 1.0
    whole = all(s % t == 0 for s, t in zip(source, target, strict=True))
    # At exactly one half, OpenCV averages where bilinear gives the same.
    if not area and scales == (2.0, 2.0):
        area = True
    if area and shrinks:
        mode = _CELLS if whole else _AREA
        tables = [_area_table(s, t) for s, t in zip(source, target, strict=True)]
    else:
        mode = _LINEAR
        tables = [
            _linear_table(_positions(s, t, area=area), s, fixed_point=fixed_point)
            for s, t in zip(source, target, strict=True)
        ]
    return _arguments(placement, mode, *tables)


def aligned_resampling(
    placement: Placement, source: tuple[int, int], target: tuple[int, int], scale: Scale
) -> tuple[Any, ...]:
    """Return tables for ``cv2.warpAffine`` with ``INTER_LINEAR`` and repeated edges, scaling only.

    The target may extend beyond the source's edge.
    """
    tables = []
    for rows, count, step in zip(source, target, scale, strict=True):
        # OpenCV 5 works in float32 here.
        step32, offset = np.float32(step), np.float32(step / 2 - 0.5)
        positions = (np.arange(count, dtype=np.float32) * step32 + offset).astype(np.float64)
        tables.append(_linear_table(positions, rows, fixed_point=False))
    return _arguments(placement, _LERP, *tables)


def _positions(source: int, target: int, *, area: bool) -> NDArray[np.float64]:
    """Return each output sample's position in the source; 0 is the first sample's centre."""
    scale = source / target
    if not area:
        return (np.arange(target, dtype=np.float64) + 0.5) * scale - 0.5
    # Enlarging "by area": an output sample blends two samples only where it covers both.
    whole = np.floor(np.arange(target) * scale)
    share = np.arange(1, target + 1) - (whole + 1) / scale
    positions: NDArray[np.float64] = whole + np.where(share > 0, share - np.floor(share), 0.0)
    return positions


def _linear_table(
    positions: NDArray[np.float64], source: int, *, fixed_point: bool
) -> NDArray[np.float32]:
    """Return (n, 4) float32: two source indices and their weights."""
    first = np.floor(positions)
    part = (positions - first).astype(np.float32)
    weights = np.stack([np.float32(1) - part, part], axis=1)
    if fixed_point:
        weights = np.rint(weights * np.float32(_FIXED_ONE))
    indices = np.clip(np.stack([first, first + 1], axis=1), 0, source - 1)
    return np.concatenate([indices, weights], axis=1).astype(np.float32)


def _area_table(source: int, target: int) -> NDArray[np.float32]:
    """Return (n, 2 + taps) float32: first source index, count, and the shares of source samples."""
    scale = source / target
    rows: list[list[float]] = []
    for index in range(target):
        start, end = index * scale, min((index + 1) * scale, source)
        first = math.floor(start) if math.ceil(start) - start > _SLIVER else math.ceil(start)
        last = math.floor(end)
        stop = last + 1 if end - last > _SLIVER else last
        overlaps = [min(end, i + 1) - max(start, i) for i in range(first, stop)]
        rows.append([first, len(overlaps), *(o / (end - start) for o in overlaps)])
    table = np.zeros((target, max(map(len, rows))), np.float32)
    for row, values in zip(table, rows, strict=True):
        row[: len(values)] = values
    return table
