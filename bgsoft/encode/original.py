"""People's own colour, of which the pipeline's 4:2:0 holds less than what frames are made from.

What was lost is given back, α of it in each sample:

    picture + α·(original − decoded)

So the original's own samples come out, bit for bit, where there is nothing but a person, and
nothing changes where there is none: backgrounds come by way of 4:2:0, and so do hidden places.
"""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np

from bgsoft.frame import Frame, Original, OriginalChroma
from bgsoft.media.pyav import Plane


def give_back(
    picture: Plane,
    original: Plane,
    decoded: Callable[[], Plane],
    alpha: Plane,
    opaque: int = 255,
    *,
    bits: int | None = None,
) -> None:
    """Give back, in place, what 4:2:0 has taken from people.

    Args:
        picture: (h, w, channels): the result by way of 4:2:0; contiguous.
        original: The same of what it was made from.
        decoded: Makes the same of what was left of that before anything was done to it.
        alpha: (h, w).
        opaque: Its value where there is nothing but a person; where it is 0 there is none.
        bits: Of a code value; None: as many as a sample has.
    """
    edge = np.flatnonzero((alpha > 0) & (alpha < opaque))
    if edge.size:
        shown, own, left = (_samples(each)[edge] for each in (picture, original, decoded()))
        share = alpha.ravel()[edge, None] / np.float32(opaque)
        mixed = shown + (own.astype(np.float32) - left) * share
        most = (1 << (bits or 8 * picture.itemsize)) - 1
        _samples(picture)[edge] = np.clip(np.rint(mixed), 0, most)
    cv2.copyTo(original, (alpha == opaque).view(np.uint8), picture)


def _samples(picture: Plane) -> Plane:
    """One row for each; a view of a picture that is contiguous."""
    return picture.reshape(-1, picture.shape[-1])


def opacity(frame: Frame, original: Original) -> Plane:
    """(H, W) uint8: how much of a frame's original may be shown; 0 where a place is hidden."""
    alpha: Plane = frame.planes.alpha
    if original.hidden:
        alpha = alpha.copy()
        for left, top, right, bottom in original.hidden:
            alpha[max(0, top) : max(0, bottom), max(0, left) : max(0, right)] = 0
    return alpha


def fine_chroma(frame: Frame, original: OriginalChroma) -> Plane:
    """A frame's chroma as fine as its original's, people's as it was.

    Returns:
        (h, w, 2) code values, not shifted as in the frame.
    """
    own, shift = original.fine, frame.format.shift
    shape = own.shape[:2]

    def enlarged(chroma: Plane) -> Plane:
        return repeated(chroma >> shift if shift else chroma, shape)

    picture = enlarged(frame.chroma)
    alpha, opaque = _sums(opacity(frame, original), shape)
    bits = frame.format.bit_depth
    give_back(picture, own, lambda: enlarged(original.chroma), alpha, opaque, bits=bits)
    return picture


def repeated(plane: Plane, shape: tuple[int, int]) -> Plane:
    """A plane whose samples are repeated, each way once or twice, to fill (h, w); contiguous."""
    rows, columns = (
        length * (2 if wanted > length else 1)
        for length, wanted in zip(plane.shape, shape, strict=False)
    )
    whole = cv2.resize(plane, (columns, rows), interpolation=cv2.INTER_NEAREST)
    return np.ascontiguousarray(whole[: shape[0], : shape[1]])


def _sums(alpha: Plane, shape: tuple[int, int]) -> tuple[Plane, int]:
    """Alpha summed over the pixels of each chroma sample, and what that is where all are opaque."""
    opaque = 255
    if shape[1] < alpha.shape[1]:
        alpha, opaque = _pairs(alpha), 2 * opaque
    if shape[0] < alpha.shape[0]:
        alpha, opaque = _pairs(alpha.T).T, 2 * opaque
    return alpha, opaque


def _pairs(alpha: Plane) -> Plane:
    """Sums of neighbours in a row; the last of an odd number counts twice."""
    if alpha.shape[1] % 2:
        alpha = np.concatenate((alpha, alpha[:, -1:]), axis=1)
    sums: Plane = np.add(alpha[:, ::2], alpha[:, 1::2], dtype=np.uint16)
    return sums
