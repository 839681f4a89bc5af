"""The picture without its people, at the resolution that a filter asks for."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.cpu import AreaReducer, Samples, halve
from bgsoft.composite.fill import CLEAR_ALPHA, BackgroundFill, CellPlanes
from bgsoft.composite.upsample import full_scale_shift
from bgsoft.frame import Frame, FrameFormat, Matte, Reduced

__all__ = ["FilledPicture"]

Plane16 = NDArray[np.uint16]


class FilledPicture:
    """A frame with its people filled in, averaged over cells of a given size.

    Args:
        format: Format of every frame.
        factor: Luma pixels per luma cell, each way, a power of two.
        chroma_factor: Luma pixels per chroma cell, each way, a power of two, 2 or more.
    """

    def __init__(self, format: FrameFormat, factor: int, chroma_factor: int) -> None:
        self._fill = BackgroundFill(format)
        self._shift = full_scale_shift(format)
        self._planes = [
            self._make_plane(format, index, factor if index == 0 else chroma_factor)
            for index in range(3)
        ]
        self._chroma: list[Samples] = []
        if any(isinstance(plane, _FramePlane) for plane in self._planes[1:]):
            self._chroma = [np.empty(format.chroma_shape[:2], format.dtype) for _ in "br"]
        self.shapes = [plane.shape for plane in self._planes]
        """(h, w) of luma, Cb and Cr."""

    def _make_plane(
        self, format: FrameFormat, index: int, factor: int
    ) -> _CoarsePlane | _GridPlane | _FramePlane:
        fill = self._fill
        if factor >= fill.factor:
            return _CoarsePlane(fill.cells[index], factor // fill.factor)
        patch = _Patch(fill, index, fill.factor // factor)
        if factor == fill.factor // 2:
            return _GridPlane(fill.grid[index], patch)
        shape = format.luma_shape if index == 0 else format.chroma_shape[:2]
        return _FramePlane(shape, factor if index == 0 else factor // 2, format, patch)

    def update(self, frame: Frame, matte: Matte, reduced: Reduced) -> CellPlanes:
        """Take in the next frame.

        Args:
            frame: The frame, not yet composited.
            matte: Its matte.
            reduced: The frame on the analysis grid.

        Returns:
            Luma, Cb and Cr, 16-bit full scale; overwritten by the next call.
        """
        people = self._fill.update(matte, reduced)
        if self._chroma:
            cv2.split(frame.chroma, self._chroma)
        samples = (frame.luma, *self._chroma) if self._chroma else (frame.luma,) * 3
        luma, cb, cr = (
            plane.update(source, people)
            for plane, source in zip(self._planes, samples, strict=True)
        )
        return luma, cb, cr


class _CoarsePlane:
    """Cells of the filled picture, averaged further."""

    def __init__(self, cells: Plane16, factor: int) -> None:
        self._steps = [cells]
        while factor > 1:
            rows, columns = self._steps[-1].shape
            self._steps.append(np.empty(((rows + 1) // 2, (columns + 1) // 2), np.uint16))
            factor //= 2
        self.shape = self._steps[-1].shape

    def update(self, samples: Samples, people: bool) -> Plane16:
        for index in range(1, len(self._steps)):
            halve(self._steps[index - 1], self._steps[index])
        return self._steps[-1]


class _Patch:
    """The filled picture, enlarged and laid over people."""

    def __init__(self, fill: BackgroundFill, index: int, scale: int) -> None:
        self._cells, self._near = fill.cells[index], fill.near
        rows, columns = self._cells.shape
        self._enlarged = np.empty((rows * scale, columns * scale), np.uint16)
        self._mask_scale = scale // 2
        rows, columns = self._near.shape
        self._mask = np.empty((rows, columns), np.uint8)
        self._large_mask = np.empty((rows * self._mask_scale, columns * self._mask_scale), np.uint8)

    def lay_over(self, plane: Plane16) -> None:
        """Replace samples of people and next to them."""
        size = self._enlarged.shape[::-1]
        cv2.resize(self._cells, size, dst=self._enlarged, interpolation=cv2.INTER_LINEAR)
        cv2.threshold(self._near, CLEAR_ALPHA, 255, cv2.THRESH_BINARY, dst=self._mask)
        mask = self._mask
        if self._mask_scale > 1:
            size = self._large_mask.shape[::-1]
            cv2.resize(mask, size, dst=self._large_mask, interpolation=cv2.INTER_NEAREST)
            mask = self._large_mask
        rows, columns = plane.shape
        cv2.copyTo(self._enlarged[:rows, :columns], mask[:rows, :columns], plane)


class _GridPlane:
    """The analysis grid, patched."""

    def __init__(self, grid: Plane16, patch: _Patch) -> None:
        self._grid, self._patch = grid, patch
        self.shape = grid.shape

    def update(self, samples: Samples, people: bool) -> Plane16:
        if people:
            self._patch.lay_over(self._grid)
        return self._grid


class _FramePlane:
    """The frame itself, averaged over less than a grid cell and patched."""

    def __init__(
        self, shape: tuple[int, int], factor: int, format: FrameFormat, patch: _Patch
    ) -> None:
        self._reducer = AreaReducer(*shape, factor, format.dtype)
        self._shift = full_scale_shift(format)
        self._patch = patch
        self.shape = self._reducer.shape
        self._samples: Samples = np.empty(self.shape, format.dtype)
        self._plane = np.empty(self.shape, np.uint16)

    def update(self, samples: Samples, people: bool) -> Plane16:
        self._reducer.reduce(samples, self._samples)
        np.left_shift(self._samples, self._shift, out=self._plane, dtype=np.uint16)
        if people:
            self._patch.lay_over(self._plane)
        return self._plane
