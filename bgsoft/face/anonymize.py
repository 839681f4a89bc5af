"""Faces are blurred beyond recognition, in place, in the finished frame. The host's half.

An ellipse around the face is replaced by the means of a few coarse cells, enlarged smoothly, with
a feathered rim outside it. Cells hang on the face, not on the frame: a grid that a face moves
across would show other means in each frame, from which finer detail could be put together.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.face.base import Face
from bgsoft.face.oval import Ellipse, box_overlap, hiding_ellipse
from bgsoft.frame import Frame, FrameFormat

__all__ = ["Anonymizer", "CpuAnonymizer", "HiddenFaces", "Patch", "make_patch"]

Samples = NDArray[Any]

CELLS_ACROSS = 5
"""Cells across an ellipse, which is wider than the face: eyes and mouth are a cell each or less."""
MAX_CELLS = 16
"""Cells of a patch each way, at most; thin, tilted ellipses get larger cells."""
FEATHER = 0.15
"""Width of the rim in which the frame returns, as a part of the half axes; all of it outside."""

_HOLD_SECONDS = 0.7
"""A face that is out of sight stays hidden where it was going for this long."""
_HOLD_GROWTH = 0.02
"""And its ellipse grows by this each frame, as nobody knows where it is."""
_MAX_GROWTH = 1.3
_SAME_FACE = 0.5
"""A face in sight that overlaps a lost one's place by this much is the one that was lost."""
_DRIFT = 0.9
"""A lost face goes on at the speed it had, which falls by this factor each frame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """The cells under an ellipse, laid out on the frame."""

    ellipse: Ellipse
    left: int
    """Frame column of the first cell; even, may be negative."""
    top: int
    """Frame row of the first cell; even, may be negative."""
    edge: int
    """Frame pixels per cell, each way; even."""
    columns: int
    rows: int


def make_patch(ellipse: Ellipse, format: FrameFormat) -> Patch | None:
    """Lay out the cells for an ellipse; None where none of it is in the frame.

    Args:
        ellipse: What is to be hidden.
        format: Format of the frame.
    """
    values = (ellipse.x, ellipse.y, ellipse.across, ellipse.along)
    if not all(math.isfinite(value) for value in values):
        return None
    outer = 1 + FEATHER
    half_width = outer * math.hypot(ellipse.across * ellipse.cos, ellipse.along * ellipse.sin)
    half_height = outer * math.hypot(ellipse.across * ellipse.sin, ellipse.along * ellipse.cos)
    if (
        ellipse.x + half_width <= 0
        or ellipse.y + half_height <= 0
        or ellipse.x - half_width >= format.width
        or ellipse.y - half_height >= format.height
    ):
        return None
    wanted = 2 * min(ellipse.across, ellipse.along) / CELLS_ACROSS
    # Two pixels are lost to rounding at most, and one cell more covers them.
    least = 2 * max(half_width, half_height) / (MAX_CELLS - 2)
    edge = 2 * max(1, math.ceil(max(wanted, least) / 2))
    columns = math.ceil((2 * half_width + 2) / edge)
    rows = math.ceil((2 * half_height + 2) / edge)
    left = 2 * round((ellipse.x - columns * edge / 2) / 2)
    top = 2 * round((ellipse.y - rows * edge / 2) / 2)
    return Patch(ellipse=ellipse, left=left, top=top, edge=edge, columns=columns, rows=rows)


class Anonymizer(Protocol):
    """Hides faces in frames of one format, wherever they are."""

    def apply(self, frame: Frame, ellipses: Sequence[Ellipse]) -> None:
        """Hide what is inside some ellipses, one after another, in place."""
        ...


@dataclass(slots=True)
class _Track:
    ellipse: Ellipse
    box: tuple[float, float, float, float]
    seen_at: float
    dx: float = 0.0
    dy: float = 0.0


class HiddenFaces:
    """Remembers the faces that are to be hidden, and bridges gaps in their tracks."""

    def __init__(self) -> None:
        self._tracks: dict[int, _Track] = {}

    def reset(self) -> None:
        """A new scene begins."""
        self._tracks.clear()

    def update(
        self, faces: Sequence[Face], shown: Collection[int], seconds: float
    ) -> list[Ellipse]:
        """The ellipses to hide in the next frame.

        Args:
            faces: The faces of the frame.
            shown: Ids of those that are not to be hidden.
            seconds: The frame's time.
        """
        present = {face.id for face in faces}
        for id in [id for id in self._tracks if id in shown]:
            del self._tracks[id]
        for id in [id for id in self._tracks if id not in present]:
            self._carry_on(id, [face for face in faces if face.id not in shown], seconds)
        for face in faces:
            if face.id in shown:
                continue
            ellipse = hiding_ellipse(face)
            last = self._tracks.get(face.id)
            dx, dy = (0.0, 0.0)
            if last is not None:
                dx, dy = ellipse.x - last.ellipse.x, ellipse.y - last.ellipse.y
            self._tracks[face.id] = _Track(ellipse, face.box_xyxy, seconds, dx, dy)
        return [track.ellipse for track in self._tracks.values()]

    def _carry_on(self, id: int, hidden: Sequence[Face], seconds: float) -> None:
        """Bridge a gap of one track; ``hidden`` are the faces in sight that are hidden anyway.

        A main face at the same place ends nothing: in doubt it is hidden for a moment, too.
        """
        track = self._tracks[id]
        found_again = any(box_overlap(face.box_xyxy, track.box) >= _SAME_FACE for face in hidden)
        if found_again or seconds - track.seen_at > _HOLD_SECONDS:
            del self._tracks[id]
            return
        track.dx *= _DRIFT
        track.dy *= _DRIFT
        held = track.ellipse.moved(track.dx, track.dy, 1 + _HOLD_GROWTH)
        left, top, right, bottom = track.box
        if held.across * held.along > _MAX_GROWTH**2 * _area(track.box):
            held = track.ellipse.moved(track.dx, track.dy)
        track.ellipse = held
        track.box = (left + track.dx, top + track.dy, right + track.dx, bottom + track.dy)


def _area(box: tuple[float, float, float, float]) -> float:
    """Product of the half axes that a box's face would be hidden by, about."""
    return 1.8 * (box[2] - box[0]) * (box[3] - box[1]) / 4


class CpuAnonymizer:
    """Hides faces on the host; the reference.

    Args:
        format: Format of every frame.
    """

    def __init__(self, format: FrameFormat) -> None:
        self._format = format
        self._deep = format.bit_depth > 8

    def apply(self, frame: Frame, ellipses: Sequence[Ellipse]) -> None:
        """Hide some faces; see :meth:`Anonymizer.apply`."""
        for ellipse in ellipses:
            patch = make_patch(ellipse, self._format)
            if patch is None:
                continue
            self._hide(frame.luma, patch, 1)
            self._hide(frame.chroma, patch, 2)

    def _hide(self, plane: Samples, patch: Patch, step: int) -> None:
        """Hide one plane's part.

        Args:
            plane: (h, w) or (h, w, channels), changed in place.
            patch: The cells.
            step: Frame pixels per sample, 1 or 2.
        """
        height, width = plane.shape[:2]
        left, top, edge = patch.left // step, patch.top // step, patch.edge // step
        right, bottom = left + patch.columns * edge, top + patch.rows * edge
        x0, y0, x1, y1 = max(left, 0), max(top, 0), min(right, width), min(bottom, height)
        if x0 >= x1 or y0 >= y1:
            return
        inside = plane[y0:y1, x0:x1]
        # Cells that the frame's edge cuts see the edge's samples repeated.
        whole = cv2.copyMakeBorder(
            inside, y0 - top, bottom - y1, x0 - left, right - x1, cv2.BORDER_REPLICATE
        )
        means = cv2.resize(
            whole.astype(np.float32), (patch.columns, patch.rows), interpolation=cv2.INTER_AREA
        )
        size = (right - left, bottom - top)
        smooth = cv2.resize(means, size, interpolation=cv2.INTER_LINEAR)
        smooth = smooth[y0 - top : y1 - top, x0 - left : x1 - left]
        weight = _weights(patch.ellipse, (x0, y0, x1, y1), step)
        if plane.ndim == 3:
            weight = weight[..., None]
        mixed = inside + (smooth - inside) * weight
        if self._deep:
            # 10-bit code values sit in the high bits.
            values = np.rint(mixed / 64).astype(np.uint16)
            hidden: Samples = np.minimum(values, 1023) << 6
        else:
            hidden = np.rint(mixed).astype(np.uint8)
        # Where nothing is hidden not a bit changes, whatever the low bits hold.
        np.copyto(inside, hidden, where=weight > 0)


def _weights(ellipse: Ellipse, box: tuple[int, int, int, int], step: int) -> NDArray[np.float32]:
    """How far each sample of a box is hidden: 1 in the ellipse, falling to 0 at the rim's end.

    Args:
        ellipse: In frame pixels.
        box: Left, top, right, bottom in samples.
        step: Frame pixels per sample.
    """
    x = (np.arange(box[0], box[2], dtype=np.float32) + 0.5) * step - np.float32(ellipse.x)
    y = (np.arange(box[1], box[3], dtype=np.float32)[:, None] + 0.5) * step - np.float32(ellipse.y)
    cos, sin = np.float32(ellipse.cos), np.float32(ellipse.sin)
    u = (x * cos + y * sin) / np.float32(ellipse.across)
    v = (y * cos - x * sin) / np.float32(ellipse.along)
    distance = np.sqrt(u * u + v * v)
    weight: NDArray[np.float32] = np.clip(
        (np.float32(1 + FEATHER) - distance) * np.float32(1 / FEATHER), 0, 1
    )
    return weight
