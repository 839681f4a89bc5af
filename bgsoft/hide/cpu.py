"""Hides places of frames on the host; the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.frame import Frame
from bgsoft.hide.plan import LEAST_ALPHA, Ellipse, HidePlan, Patch, PatchPart, Place, Rectangle
from bgsoft.settings.hide import HideStyle

Samples = NDArray[Any]
Floats = NDArray[np.float32]


class CpuHider:
    """Hides places on the host; may be called from several threads at once."""

    def __init__(self, plan: HidePlan) -> None:
        self._plan = plan

    def apply(self, frame: Frame, places: Sequence[Place]) -> None:
        """Hide some places; see :meth:`bgsoft.hide.plan.Hider.apply`."""
        alpha = frame.planes.alpha if self._plan.by_alpha else None
        for patch in self._plan.patches(frame, places):
            self._hide(frame.luma[..., None], alpha, patch, 1)
            small = None if alpha is None else alpha[::2, ::2]
            self._hide(frame.chroma, small, patch, 2)

    def _hide(
        self, plane: Samples, alpha: NDArray[np.uint8] | None, patch: Patch, step: int
    ) -> None:
        """Hide a patch in a plane, (h, w, channels), with the alpha of each of its samples."""
        part = patch.part_of(plane.shape, step)
        if part is None:
            return
        left, top, right, bottom = part.hidden
        hidden = plane[top:bottom, left:right]
        clear = np.float32(self._plan.clear[step - 1])
        if self._plan.style is HideStyle.SOLID:
            value: Floats = np.broadcast_to(clear, hidden.shape)
        else:
            value = self._averages(plane, alpha, patch, part, clear)
        if patch.ellipse is None:
            weight = np.ones((1, 1, 1), np.float32)
        else:
            weight = _weights(patch.ellipse, self._plan.feather, part.hidden, step)[..., None]
        mixed = hidden + (value - hidden) * weight
        if self._plan.format.shift:
            # 10-bit code values sit in the high bits.
            values = np.rint(mixed / 64).astype(np.uint16)
            changed: Samples = np.minimum(values, 1023) << 6
        else:
            changed = np.rint(mixed).astype(np.uint8)
        # Where nothing is hidden not a bit changes, whatever the low bits hold.
        np.copyto(hidden, changed, where=weight > 0)

    def _averages(
        self,
        plane: Samples,
        alpha: NDArray[np.uint8] | None,
        patch: Patch,
        part: PatchPart,
        clear: np.float32,
    ) -> Floats:
        """What the hidden part is replaced by: the means of its cells, enlarged."""
        source = plane[_slices(part.inside)].astype(np.float32)
        if alpha is None:
            return self._enlarged(source, patch, part)
        opacity = alpha[_slices(part.inside)].astype(np.float32)[..., None] / np.float32(255)
        weighted = self._enlarged(np.concatenate([source * opacity, opacity], -1), patch, part)
        opacity = weighted[..., -1:]
        least = np.float32(LEAST_ALPHA)
        mean: Floats = (weighted[..., :-1] + least * clear) / (opacity + least)
        return mean

    def _enlarged(self, source: Floats, patch: Patch, part: PatchPart) -> Floats:
        """Means of the cells over ``part.inside``, enlarged to the size of ``part.hidden``."""
        left, top, right, bottom = part.cells
        x0, y0, x1, y1 = part.inside
        # Cells that the frame's edge cuts see the edge's samples repeated.
        whole = cv2.copyMakeBorder(
            source, y0 - top, bottom - y1, x0 - left, right - x1, cv2.BORDER_REPLICATE
        )
        means = cv2.resize(whole, (patch.columns, patch.rows), interpolation=cv2.INTER_AREA)
        if self._plan.style is HideStyle.PIXELATE:
            means = means.reshape(patch.rows, patch.columns, -1)
            large = means.repeat(part.edge, axis=0).repeat(part.edge, axis=1)
        else:
            large = cv2.resize(means, (right - left, bottom - top), interpolation=cv2.INTER_LINEAR)
            large = large.reshape(bottom - top, right - left, -1)
        x0, y0, x1, y1 = part.hidden
        return np.asarray(large[y0 - top : y1 - top, x0 - left : x1 - left], np.float32)


def _slices(box: Rectangle) -> tuple[slice, slice]:
    return slice(box.top, box.bottom), slice(box.left, box.right)


def _weights(ellipse: Ellipse, feather: float, box: Rectangle, step: int) -> Floats:
    """How far each sample of a box is hidden: 1 in the ellipse, falling to 0 at the rim's end."""
    x = (np.arange(box.left, box.right, dtype=np.float32) + 0.5) * step - np.float32(ellipse.x)
    rows = np.arange(box.top, box.bottom, dtype=np.float32)[:, None]
    y = (rows + 0.5) * step - np.float32(ellipse.y)
    cos, sin = np.float32(ellipse.cos), np.float32(ellipse.sin)
    u = (x * cos + y * sin) / np.float32(ellipse.across)
    v = (y * cos - x * sin) / np.float32(ellipse.along)
    distance = np.sqrt(u * u + v * v)
    weight: Floats = np.clip((np.float32(1 + feather) - distance) * np.float32(1 / feather), 0, 1)
    return weight
