"""Removal of small islands and holes, and the state that filters keep between masks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import cv2
import numpy as np

from bgsoft.analysis.base import analysis_factor, analysis_shape
from bgsoft.analysis.reduce import AreaReducer
from bgsoft.frame import Array, FrameFormat
from bgsoft.matte.contour import Shape, half_widths
from bgsoft.ops.placement import Placement, address
from bgsoft.ops.resize import Resized
from bgsoft.settings.config import MatteConfig

_SKIRT = 8.0
"""Reach of soft alpha from the half-opaque contour, in cells of a grid of 270 rows."""
_SURE = 0.7
"""Share of the threshold below which the mask is sure of background. A hole in a person with such a
place is a gap, however small. On 81 photographs, with standard and best settings, 22 of 25 small
holes with one are background, and 82 of 131 without. With these filled too, boundary F falls by
0.003 to 0.004, or by 0.011 with the preset privacy, whose limit is ten times as high. On six clips,
best mattes flicker by 8 % more. 0.6 is up to 0.0013 worse. 0.8 is 0.0005 better, but worse on
twice as many photographs."""
MAX_FRAMES = 16
"""Largest number of frames that a device processes at a time."""
_MASKS = np.dtype([(name, np.uint64, MAX_FRAMES) for name in ("opacity", "coarse", "mask")])
"""``Masks`` of ``bgsoft/ops/components.cu``."""


def half_shape(shape: Shape) -> Shape:
    """Return (rows, columns) of half the grid, rounded up."""
    return -(-shape[0] // 2), -(-shape[1] // 2)


class MaskState:
    """State of one mask until the next one has been averaged and cleaned."""

    def __init__(self, placement: Placement, shape: Shape) -> None:
        self._xp = placement.xp
        self.mask: Array = self._xp.empty((0, 0), np.float32)
        """(h, w): the mask, averaged over time."""
        self.luma_sums: Array
        """(h, w) uint16: sums of luma over the temporal window."""
        self.opacity = self._xp.empty(shape, np.uint8)
        """(gh, gw) uint8: cleaned, before the edge is fitted."""

    def allocate(self, shape: Shape) -> None:
        """Allocate buffers for masks of this shape."""
        if self.mask.shape != shape:
            self.mask = self._xp.empty(shape, np.float32)
            self.luma_sums = self._xp.zeros(shape, np.uint16)


class IslandFilter:
    """Keeps only large connected regions of opacity on the grid.

    This applies to person and background alike. Regions are those of the plane cut at one half, on
    half the grid. A small hole in a person is kept too, if the mask is sure of background somewhere
    in it. Soft alpha is kept within a skirt around these regions. Beyond it the plane becomes
    exactly 0 or 255, which removes haze in the background and thin spots inside a person.

    OpenCV finds components on the host. A device uses union-find with atomics: one launch each to
    merge labels, to count cells and to decide, for the person's and then for the background's
    components, of all frames at once.

    Args:
        placement: Device of the planes, or the host.
        format: Format of the frames.
        config: The size limits.
        max_frames: Frames at a time, up to :data:`MAX_FRAMES` on a device.
    """

    def __init__(
        self, placement: Placement, format: FrameFormat, config: MatteConfig, max_frames: int = 1
    ) -> None:
        self._placement, self._format, xp = placement, format, placement.xp
        self._scale = lru_cache(1)(lambda mask_shape: mask_scale(format, mask_shape))
        self._factor = analysis_factor(format.width, format.height)
        self._shape = shape = analysis_shape(format.width, format.height)
        self._half = half = half_shape(shape)
        self._cleans = config.min_area > 0
        self._min_area = math.ceil(config.min_area * half[0] * half[1])
        self._gap = _SURE * (0.5 if config.threshold is None else config.threshold)
        self._resized = Resized(placement, shape, np.uint8)
        self._labels = [xp.empty((max_frames, *half), np.int32) for _ in range(2)]
        reach = max(1, round(_SKIRT / 2.0 * min(shape) / 270.0))
        width = 2 * reach + 1
        self._skirt = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (width, width))
        self._limits = [xp.empty((max_frames, *half), np.uint8) for _ in range(2)]
        """Upper limits of alpha, and of the background's opacity."""
        self._frame_limits = [*zip(*self._limits, strict=True)]
        room = placement.scratch(4 * half[1], np.uint16)
        self._limit = placement.operation("matte", "limit_alpha")
        self._limit_args = *shape, room
        if placement.on_device:
            self._enlarge, self._merge, self._count, self._decide = (
                placement.operation("components", name)
                for name in (
                    *("opacity_to_grid", "merge_components"),
                    *("count_components", "decide_components"),
                )
            )
            self._window = placement.array(half_widths(self._skirt)), reach
            self._areas = [xp.empty((max_frames, *half), np.int32) for _ in range(2)]
            self._masks = np.zeros(1, _MASKS)
            self._addresses = [self._masks[name][0] for name in _MASKS.fields or ()]
        else:
            self._halve = AreaReducer(shape, 2)
            self._small = np.empty(half, np.uint8)
            self._flat = self._labels[0][0].reshape(-1)
            self._centres = lru_cache(1)(self._cells)

    def apply(self, opacities: Sequence[Array], states: Sequence[MaskState]) -> None:
        """Scale opacity to the grid, with aligned centres, and clean it.

        Args:
            opacities: (h, w) uint8 each, of the mask's size.
            states: States whose masks are read and whose opacity is written.
        """
        scale = self._scale(opacities[0].shape)
        if self._placement.on_device:
            self._apply_on_device(opacities, states, scale)
            return
        ceiling, rest = self._frame_limits[0]
        for opacity, state in zip(opacities, states, strict=True):
            alpha = state.opacity
            alpha[...] = self._resized.arguments(opacity, self._shape, scale=scale)[0]
            if not self._cleans:
                continue
            self._halve.reduce(alpha, self._small)
            _, person = cv2.threshold(self._small, 127, 255, cv2.THRESH_BINARY)
            person = self._large(person, 8, None)
            background = self._large(~person, 4, state.mask)
            cv2.blur(cv2.dilate(person, self._skirt), (3, 3), dst=ceiling)
            cv2.blur(cv2.dilate(background, self._skirt), (3, 3), dst=rest)
            self._limit(self._shape, alpha, ceiling, rest, *self._limit_args)

    def _large(self, binary: Array, connectivity: int, mask: Array | None) -> Array:
        """Return the large regions of a plane of 0 and 255; a mask shows which holes are gaps."""
        labels = self._labels[0][0]
        count, _ = cv2.connectedComponents(
            binary, labels=labels, connectivity=connectivity, ltype=cv2.CV_32S
        )
        if count == 2 and cv2.countNonZero(binary) >= self._min_area:  # nearly always
            return binary
        stays = np.bincount(self._flat, minlength=count) >= self._min_area
        if np.logical_and.reduce(stays[1:]):
            return binary
        if mask is not None:
            stays[labels[mask[self._centres(mask.shape)] < self._gap]] = True
        stays[0] = False
        kept: Array = (stays * np.uint8(255)).take(labels)
        return kept

    def _cells(self, mask_shape: Shape) -> tuple[Array, ...]:
        """Return the positions of the cells' centres in a mask."""
        return np.ix_(*map(self._samples, self._half, mask_shape, self._format.luma_shape))

    def _samples(self, cells: int, samples: int, pixels: int) -> Array:
        """Return the sample of a mask, which covers the pixels, at each cell's centre."""
        centres = (2 * np.arange(cells) + 1) * self._factor
        return np.minimum(centres * samples // pixels, samples - 1)

    def _apply_on_device(
        self,
        opacities: Sequence[Array],
        states: Sequence[MaskState],
        scale: tuple[float, float] | None,
    ) -> None:
        half, shape, mask_shape = self._half, self._shape, states[0].mask.shape
        size = *half, len(states)
        for at, (opacity, state) in enumerate(zip(opacities, states, strict=True)):
            planes = opacity, state.opacity, state.mask
            for addresses, plane in zip(self._addresses, planes, strict=True):
                addresses[at] = address(plane)
        _, *reading = self._resized.arguments(opacities[0], shape, scale=scale)
        self._enlarge(size, self._masks, *reading, self._labels[0], *self._areas, *shape)
        if not self._cleans:
            return
        gaps = self._masks, *mask_shape, self._factor, *self._format.luma_shape
        following = self._labels[1], None
        for index, (labels, areas, limit) in enumerate(
            zip(self._labels, self._areas, self._limits, strict=True)
        ):
            self._merge(size, labels, *half, int(index == 0))
            self._count(size, labels, areas, *half, self._gap if index else 0.0, *gaps)
            limits = *self._window, limit, following[index]
            self._decide(size, labels, areas, self._min_area, *limits, *half)
        for state, limits in zip(states, self._frame_limits, strict=False):
            self._limit(shape, state.opacity, *limits, *self._limit_args)


def mask_scale(format: FrameFormat, mask_shape: Shape) -> tuple[float, float] | None:
    """Return (vertical, horizontal) mask samples per cell where the grid exceeds the frame.

    The mask covers the frame exactly. Where the frame's size is not a multiple of the factor, the
    grid's last row and column exceed it. A plain resize would then shift by a part of a cell. None:
    both cover the same area, and a plain resize is exact.
    """
    height, width = format.luma_shape
    factor = analysis_factor(width, height)
    if height % factor == 0 and width % factor == 0:
        return None
    return mask_shape[0] * factor / height, mask_shape[1] * factor / width
