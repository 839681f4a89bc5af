"""From a frame's planes to a face model's input, through any affine transform.

Only as many samples as the input needs are converted to RGB.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.face.geometry import Affine, Roi
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat, Planes
from bgsoft.models.catalog import ModelSpec
from bgsoft.ops.sides import HOST
from bgsoft.segment.preprocess import Normaliser

MAX_TAPS = 4
"""Bilinear samples along each axis of an input pixel, at most."""
MAX_SPACING = 2.0
"""Source samples between two bilinear samples; more would skip some."""
MIN_GRID_SAMPLES = 0.75
"""Grid cells per input pixel from which the analysis frame is sharp enough."""

WARP_VIEW = np.dtype([("frame_from_input", np.float32, 6), ("planes", np.uint64, 4)])
"""``View`` of ops/views.cuh; addresses of planes are only those of a device."""

FrameView = tuple[Frame, AnalysisFrame, Affine]
"""A frame, the same on the analysis frame, and what of it a model is shown: from the pixels of the
model's input to those of the frame."""
FrameRoi = tuple[Frame, AnalysisFrame, Roi]
"""The same with the square that the landmark model is shown."""


def repeats_edges(spec: ModelSpec) -> bool:
    """Whether a model is shown the frame's edge samples beyond it; else black."""
    return spec.family == "face-landmarks"


class HostWarper:
    """Writes up to ``most`` views of frames of one format into a network's input, on the host.

    The model's contract says input size and normalisation; square, RGB, channels first. Views of
    the detector are upright.
    """

    def __init__(self, spec: ModelSpec, format: FrameFormat, most: int = 1) -> None:
        self._asked: Sequence[FrameView] = ()
        self._views = np.zeros(most, WARP_VIEW)
        self._repeat_edges = repeats_edges(spec)
        self._size = size = spec.width
        # Those of 10 bits, and turned ones, are OpenCV's.
        by_opencv = self._repeat_edges or format.bit_depth > 8
        self._upright = None if by_opencv else HOST.operation("warp", "warp_upright")
        room = size * size + 2 * size * (MAX_TAPS + 1) + 3 * format.width + 8
        self._room = np.empty(room, np.int32)
        self._normaliser = Normaliser(spec, format)
        self._borders = format.luma_range[0], format.chroma_neutral
        # Each buffer is made on first use: most videos need one or two of the sizes.
        self._buffers: dict[tuple[int, int], NDArray[Any]] = {}
        self._dtype = np.dtype(format.dtype)

    def upload(self, asked: Sequence[FrameView]) -> None:
        """Take what is to be looked at, as much as there is room for."""
        self._asked = asked
        for index, (_, _, view) in enumerate(asked):
            self._views["frame_from_input"][index] = view

    def write(self, first: int, tensor: Array) -> tuple[Array, int]:
        """Sample, convert and normalise the views from ``first`` on.

        Args:
            first: Index of a view.
            tensor: (batch, 3, S, S) float32, C-contiguous.

        Returns:
            These views as ``WARP_VIEW`` on the side; and how many of the tensor's items were
            written: all, or those that are left.
        """
        count = 0
        for each, item in zip(self._asked[first:], tensor, strict=False):
            self._write(*each, item)
            count += 1
        return self._views[first:], count

    def _write(
        self, frame: Frame, reduced: AnalysisFrame, view: Affine, tensor: NDArray[np.float32]
    ) -> None:
        grid, scale = reduced.for_networks, view.xx if self._upright else view.scale
        source: Planes | AnalysisFrame = frame.planes
        luma_cell, chroma_cell = 1, 2
        if grid.factor > 1 and scale / grid.factor >= MIN_GRID_SAMPLES:  # sharp enough
            source, luma_cell, chroma_cell = grid, grid.factor, grid.factor
        luma, chroma, (black, neutral) = source.luma, source.chroma, self._borders
        on_luma, luma_taps = _place(view, scale, luma_cell)
        on_chroma, chroma_taps = _place(view, scale, chroma_cell)
        if self._upright:
            self._upright(
                (self._size, self._size),
                *(luma, *luma.shape, luma_taps, black),
                *(chroma, *chroma.shape[:2], chroma_taps, neutral),
                np.array((on_luma, on_chroma)),
                *(*self._normaliser.constants, tensor, self._size, self._room),
            )
            return
        luma = self._sampled(luma, on_luma, luma_taps, black)
        chroma = self._sampled(chroma, on_chroma, chroma_taps, neutral)
        self._normaliser.write(luma, chroma, tensor)

    def _sampled(
        self, plane: NDArray[Any], place: tuple[float, ...], taps: int, border: int
    ) -> NDArray[Any]:
        """(S, S) or (S, S, 2) samples of one plane; overwritten by the next call."""
        channels = plane.ndim - 1
        sampled = self._buffer(taps, channels)
        cv2.warpAffine(
            plane,
            np.array(place).reshape(2, 3),
            (sampled.shape[1], sampled.shape[0]),
            dst=sampled,
            flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
            borderMode=cv2.BORDER_REPLICATE if self._repeat_edges else cv2.BORDER_CONSTANT,
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


def _place(view: Affine, scale: float, cell: int) -> tuple[tuple[float, ...], int]:
    """How a view lies on a plane whose cells are this many frame pixels wide.

    Returns:
        From the input, enlarged by the second, to the plane, sample centres being whole numbers,
        as an :class:`Affine`; and 1, 2 or 4, the bilinear samples to average along each axis of an
        input pixel.
    """
    taps = 1
    while taps < MAX_TAPS and scale / cell / taps > MAX_SPACING:
        taps *= 2
    xx, xy, x0, yx, yy, y0 = view
    tap, part = 1 / taps, 1 / cell
    xx, xy, yx, yy = xx * tap * part, xy * tap * part, yx * tap * part, yy * tap * part
    x, y = xx * 0.5 + xy * 0.5 + x0 * part, yx * 0.5 + yy * 0.5 + y0 * part
    return (xx, xy, x - 0.5, yx, yy, y - 0.5), taps
