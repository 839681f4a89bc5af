"""From a frame's planes to a face model's input, through any affine transform.

Only as many samples as the input needs are converted to RGB.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.face.geometry import Affine, Roi
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat
from bgsoft.models.catalog import ModelSpec
from bgsoft.ops.sides import HOST
from bgsoft.records import NamedTuple
from bgsoft.segment.preprocess import Normaliser

MAX_TAPS = 4
"""Bilinear samples along each axis of an input pixel, at most."""
MAX_SPACING = 2.0
"""Source samples between two bilinear samples; more would skip some."""
MIN_GRID_SAMPLES = 0.75
"""Grid cells per input pixel from which the analysis frame is sharp enough."""

WARP_VIEW = np.dtype(
    [("frame_from_input", np.float32, 6), ("frame", np.int32), ("repeat_edges", np.int32)]
)
"""``View`` of ops/views.cuh."""


_Matrix = tuple[tuple[float, float, float], tuple[float, float, float]]


class View(NamedTuple):
    """What a model is to look at."""

    frame_from_input: Affine
    """Model input pixels to frame pixels."""
    repeat_edges: bool
    """Beyond the frame: its edge samples, or black."""


FrameView = tuple[Frame, AnalysisFrame, View]
"""A frame, the same on the analysis frame, and what of it a model is shown."""
FrameRoi = tuple[Frame, AnalysisFrame, Roi]
"""The same with the square that the landmark model is shown."""


class Warper(Protocol):
    """Writes views of frames of one format into a network's input, on one side.

    The model's contract says input size and normalisation; square, RGB, channels first.
    """

    def upload(self, asked: Sequence[FrameView]) -> None:
        """Take what is to be looked at, as much as there is room for; on a device the stream must
        have passed the last upload."""
        ...

    def views(self, first: int) -> Array:
        """Those taken, from one of them on, as ``WARP_VIEW`` on the side."""
        ...

    def write(self, first: int, tensor: Array) -> int:
        """Sample, convert and normalise the views from ``first`` on.

        Args:
            first: Index of a view.
            tensor: (batch, 3, S, S) float32, C-contiguous.

        Returns:
            How many of its items were written: all, or those that are left.
        """
        ...


class HostWarper(Warper):
    """Takes up to ``most`` views of frames on the host."""

    def __init__(self, spec: ModelSpec, format: FrameFormat, most: int = 1) -> None:
        self._asked: Sequence[FrameView] = ()
        self._views = np.zeros(most, WARP_VIEW)
        self._size = size = spec.width
        # Of 10 bits, OpenCV's; so are the mesh's views, which are turned.
        self._upright = HOST.operation("warp", "warp_upright") if format.bit_depth == 8 else None
        room = size * size + 2 * size * (MAX_TAPS + 1) + 3 * format.width + 8
        self._room = np.empty(room, np.int32)
        self._normaliser = Normaliser(spec, format)
        self._borders = format.luma_range[0], format.chroma_neutral
        # Each buffer is made on first use: most videos need one or two of the sizes.
        self._buffers: dict[tuple[int, int], NDArray[Any]] = {}
        self._dtype = np.dtype(format.dtype)

    def upload(self, asked: Sequence[FrameView]) -> None:
        self._asked = asked
        self._views[: len(asked)] = [
            (view.frame_from_input, 0, view.repeat_edges) for _, _, view in asked
        ]

    def views(self, first: int) -> Array:
        return self._views[first:]

    def write(self, first: int, tensor: Array) -> int:
        part = self._asked[first : first + len(tensor)]
        for each, item in zip(part, tensor, strict=False):
            self._write(*each, item)
        return len(part)

    def _write(
        self, frame: Frame, reduced: AnalysisFrame, view: View, tensor: NDArray[np.float32]
    ) -> None:
        grid, transform = reduced.for_networks, view.frame_from_input
        scale = transform.scale
        planes, cells = (frame.luma, frame.chroma), (1, 2)
        if grid.factor > 1 and scale / grid.factor >= MIN_GRID_SAMPLES:  # sharp enough
            planes, cells = (grid.luma, grid.chroma), (grid.factor, grid.factor)
        places = [_place(transform, scale, cell) for cell in cells]
        if self._upright and transform.xy == transform.yx == 0 and not view.repeat_edges:
            (on_luma, luma_taps), (on_chroma, chroma_taps) = places
            black, neutral = self._borders
            self._upright(
                (self._size, self._size),
                *(planes[0], *planes[0].shape, luma_taps, black),
                *(planes[1], *planes[1].shape[:2], chroma_taps, neutral),
                np.array([(xx, x, yy, y) for (xx, _, x), (_, yy, y) in (on_luma, on_chroma)]),
                *(*self._normaliser.constants, tensor, self._size, self._room),
            )
            return
        luma, chroma = (
            self._sampled(plane, *place, view.repeat_edges, border)
            for plane, place, border in zip(planes, places, self._borders, strict=True)
        )
        self._normaliser.write(luma, chroma, tensor)

    def _sampled(
        self, plane: NDArray[Any], matrix: _Matrix, taps: int, repeat_edges: bool, border: int
    ) -> NDArray[Any]:
        """(S, S) or (S, S, 2) samples of one plane; overwritten by the next call."""
        channels = plane.ndim - 1
        sampled = self._buffer(taps, channels)
        cv2.warpAffine(
            plane,
            np.array(matrix),
            (sampled.shape[1], sampled.shape[0]),
            dst=sampled,
            flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
            borderMode=cv2.BORDER_REPLICATE if repeat_edges else cv2.BORDER_CONSTANT,
            borderValue=(float(border),) * channels,
        )
        if taps == 1:
            return sampled
        target = self._buffer(1, channels)
        cv2.resize(sampled, (self._size, self._size), dst=target, interpolation=cv2.INTER_AREA)
        return target

    def _buffer(self, taps: int, channels: int) -> NDArray[Any]:
        key = (taps, channels)
        if key not in self._buffers:
            side = self._size * taps
            shape = (side, side) if channels == 1 else (side, side, channels)
            self._buffers[key] = np.empty(shape, self._dtype)
        return self._buffers[key]


def _place(view: Affine, scale: float, cell: int) -> tuple[_Matrix, int]:
    """How a view lies on a plane whose cells are this many frame pixels wide.

    Returns:
        From the input, enlarged by the second, to the plane, sample centres being whole numbers;
        and 1, 2 or 4, the bilinear samples to average along each axis of an input pixel.
    """
    taps = 1
    while taps < MAX_TAPS and scale / cell / taps > MAX_SPACING:
        taps *= 2
    xx, xy, x0, yx, yy, y0 = view
    tap, part = 1 / taps, 1 / cell
    xx, xy, yx, yy = xx * tap * part, xy * tap * part, yx * tap * part, yy * tap * part
    x, y = xx * 0.5 + xy * 0.5 + x0 * part, yx * 0.5 + yy * 0.5 + y0 * part
    return ((xx, xy, x - 0.5), (yx, yy, y - 0.5)), taps
