"""People's own colour, of which the pipeline's 4:2:0 holds less than what frames are made from.

What was lost is given back, α of it in each sample:

    picture + α·(original − decoded)

So the original's own samples come out, bit for bit, where there is nothing but a person, and
nothing changes where there is none: backgrounds come by way of 4:2:0, and so do hidden places.
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
    """Give back, in place, what 4:2:0 has taken from people.

    Args:
        picture: (h, w, channels): the result by way of 4:2:0; contiguous.
        original: The same of what it was made from.
        decoded: Tells what was left of that before anything was done to it, as (n, channels) for
            so many indices of :func:`samples`.
        alpha: (h, w).
        opaque: Its value where there is nothing but a person; where it is 0 there is none.
        bits: Of a code value; None: as many as a sample has.
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
    """(h, w, channels) as (h·w, channels); a view where it is contiguous."""
    return picture.reshape(-1, picture.shape[-1])


def opacity(frame: Frame, original: Original) -> Plane:
    """(H, W) uint8: how much of a frame's original may be shown; 0 where a place is hidden."""
    alpha: Plane = frame.planes.alpha
    if original.hidden:
        alpha = alpha.copy()
        for left, top, right, bottom in original.hidden:
            alpha[max(0, top) : max(0, bottom), max(0, left) : max(0, right)] = 0
    return alpha


class FineChroma:
    """Makes chroma as fine as the original's, people's as it was.

    Its buffers are used again.

    Args:
        format: Layout of the frames.
        shape: (h, w) of the originals' chroma.
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
        """Cb and Cr, code values, not shifted as in the frame; valid until the next."""
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
        """Alpha summed over the pixels of each chroma sample, and what that is where all are
        opaque."""
        opaque = 255
        if self._across:
            alpha, opaque = _add_pairs(alpha, self._columns), 2 * opaque
        if self._down:
            alpha, opaque = _add_pairs(alpha.T, self._rows.T).T, 2 * opaque
        return alpha, opaque


def _add_pairs(source: Plane, target: Plane) -> Plane:
    """Sums of neighbours in a row; the last of an odd number counts twice."""
    pairs = source.shape[1] // 2
    np.add(source[:, : 2 * pairs : 2], source[:, 1::2], out=target[:, :pairs], dtype=target.dtype)
    if source.shape[1] % 2:
        np.multiply(source[:, -1], 2, out=target[:, pairs], dtype=target.dtype)
    return target


def _pairs(chroma: Plane) -> NDArray[Any]:
    """(h, w, 2) as (h, w): Cb and Cr move together."""
    pairs: NDArray[Any] = chroma.view(f"u{2 * chroma.itemsize}")
    return pairs[..., 0]


def repeat(source: Plane, target: Plane) -> None:
    """Write a plane into one that has as many samples each way, or about twice as many."""
    rows, columns = target.shape
    every = target[:: 2 if rows > source.shape[0] else 1]
    if columns > source.shape[1]:
        every[:, ::2] = source
        every[:, 1::2] = source[:, : columns // 2]
    else:
        every[:] = source
    if every.shape[0] < rows:
        target[1::2] = every[: rows // 2]
