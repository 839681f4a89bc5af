"""The source's own colour for people, which the pipeline's 4:2:0 cannot hold.

The difference that 4:2:0 made is added back, weighted by α in each sample:

    picture + α·(original − decoded)

Opaque people get the original's own samples, bit for bit. Backgrounds and hidden places keep the
colour of the 4:2:0 frame.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.frame import Frame, FrameFormat, Original, OriginalChroma
from bgsoft.media.planes import Plane

Indices = NDArray[np.intp]


def give_back(
    picture: Plane,
    original: Plane,
    decoded: Callable[[Indices], Plane],
    alpha: Plane,
    opaque: int = 255,
    *,
    bits: int | None = None,
) -> None:
    """Add back, in place, the colour of people that 4:2:0 has lost.

    Args:
        picture: (h, w, channels), contiguous: the result in 4:2:0, upsampled.
        original: (h, w, channels): the source's picture.
        decoded: Returns the source's picture as 4:2:0 holds it, upsampled, as (n, channels) for n
            indices of :func:`samples`.
        alpha: (h, w).
        opaque: Value of alpha for an opaque person; 0 means transparent.
        bits: Bits of a code value; None: those of the dtype.
    """
    edge = np.flatnonzero((alpha > 0) & (alpha < opaque))
    if edge.size:
        share = alpha.ravel()[edge, None] / np.float32(opaque)
        lost = samples(original)[edge].astype(np.float32) - decoded(edge)
        most = (1 << (bits or 8 * picture.itemsize)) - 1
        shown = samples(picture)
        shown[edge] = np.clip(np.rint(shown[edge] + lost * share), 0, most)
    cv2.copyTo(original, (alpha == opaque).view(np.uint8), picture)


def samples(picture: Plane) -> Plane:
    """Reshape (h, w, channels) to (h·w, channels); a view where that is contiguous."""
    return picture.reshape(-1, picture.shape[-1])


def opacity(frame: Frame, original: Original) -> Plane:
    """Return (H, W) uint8: opacity of a frame's original, 0 where a place is hidden."""
    alpha: Plane = frame.planes.alpha
    if original.hidden:
        alpha = alpha.copy()
        for left, top, right, bottom in original.hidden:
            alpha[max(0, top) : max(0, bottom), max(0, left) : max(0, right)] = 0
    return alpha


class FineChroma:
    """Makes chroma at the source's resolution, with people's own colour.

    Buffers are reused.

    Args:
        format: Layout of the frames.
        shape: (h, w) of the source's chroma.
    """

    def __init__(self, format: FrameFormat, shape: tuple[int, int]) -> None:
        self._format = format
        self._coarse = np.empty(format.chroma_shape, format.dtype)
        self._fine = np.empty((*shape, 2), format.dtype)
        self._planes = [np.empty(shape, format.dtype) for _ in range(2)]
        self._steps = [
            1 + (big > small) for big, small in zip(shape, self._coarse.shape, strict=False)
        ]
        height, width = format.luma_shape
        self._down, self._across = shape[0] < height, shape[1] < width
        self._columns = np.empty((height, shape[1]), np.uint16)
        self._rows = np.empty(shape, np.uint16)

    def planes(self, frame: Frame, original: OriginalChroma) -> list[Plane]:
        """Return Cb and Cr as unshifted code values; valid until the next call."""
        np.right_shift(frame.chroma, self._format.shift, out=self._coarse)
        repeat(_pairs(self._coarse), _pairs(self._fine))
        alpha, opaque = self._alpha(opacity(frame, original))

        def decoded(at: Indices) -> Plane:
            row, column = np.divmod(at, self._fine.shape[1])
            left: Plane = original.chroma[row // self._steps[0], column // self._steps[1]]
            return left >> self._format.shift

        bits = self._format.bit_depth
        give_back(self._fine, original.fine, decoded, alpha, opaque, bits=bits)
        cv2.split(self._fine, self._planes)
        return self._planes

    def _alpha(self, alpha: Plane) -> tuple[Plane, int]:
        """Sum alpha over the pixels of each chroma sample; also return the sum for opaque."""
        opaque = 255
        if self._across:
            alpha, opaque = _add_pairs(alpha, self._columns), 2 * opaque
        if self._down:
            alpha, opaque = _add_pairs(alpha.T, self._rows.T).T, 2 * opaque
        return alpha, opaque


def _add_pairs(source: Plane, target: Plane) -> Plane:
    """Add neighbours in each row; the last of an odd number counts twice."""
    pairs = source.shape[1] // 2
    np.add(source[:, : 2 * pairs : 2], source[:, 1::2], out=target[:, :pairs], dtype=target.dtype)
    if source.shape[1] % 2:
        np.multiply(source[:, -1], 2, out=target[:, pairs], dtype=target.dtype)
    return target


def _pairs(chroma: Plane) -> NDArray[Any]:
    """View (h, w, 2) as (h, w), so that Cb and Cr move together."""
    pairs: NDArray[Any] = chroma.view(f"u{2 * chroma.itemsize}")
    return pairs[..., 0]


def repeat(source: Plane, target: Plane) -> None:
    """Write a plane into one with as many samples each way, or about twice as many."""
    rows, columns = target.shape
    every = target[:: 2 if rows > source.shape[0] else 1]
    if columns > source.shape[1]:
        every[:, ::2] = source
        every[:, 1::2] = source[:, : columns // 2]
    else:
        every[:] = source
    if every.shape[0] < rows:
        target[1::2] = every[: rows // 2]
