"""The numbers that the matte's steps work with, for the host's and the device's alike.

Each plan follows from the settings and the size of the planes. Both implementations of a step are
built from the same plan. Lengths are in cells of the analysis grid, where nothing else is said.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np

from bgsoft.analysis.base import grid_factor, grid_shape
from bgsoft.config import MatteConfig, Refine
from bgsoft.frame import Array, FrameFormat

__all__ = [
    "STILL_VARIANCE",
    "ContourPlan",
    "DilationPlan",
    "FeatherPlan",
    "GuidedPlan",
    "IslandPlan",
    "MattePlan",
    "ObsPlan",
    "SmoothPlan",
    "TemporalPlan",
    "ThresholdPlan",
    "frame_contour",
    "half_shape",
    "half_widths",
]

Shape = tuple[int, int]

STILL_VARIANCE = 6.5
"""Mean squared difference of 8-bit luma (40 dB) below which two pictures differ in noise only."""
_HYSTERESIS = 1.5
"""A region that was kept in the last frame may shrink by this factor before it goes; one that was
not must be larger by it to come. Without it, regions about as large as the limit flicker."""
_REFERENCE_SIDE = 270.0
"""Short side of the grid of a 1080-line frame; filter sizes are given for it."""


def _unit(shape: Shape) -> float:
    """How many cells of this grid make one cell of the 270-row grid of a 1080-line frame.

    Filter sizes in cells are multiplied by it, so they cover the same part of any picture.
    """
    return min(shape) / _REFERENCE_SIDE


def half_shape(shape: Shape) -> Shape:
    """(rows, columns) of half the grid, rounded up."""
    return -(-shape[0] // 2), -(-shape[1] // 2)


def half_widths(window: Array) -> Array:
    """(side,) int32: half the width of each row of a symmetric window; −1 where empty."""
    # A row of 2·n + 1 cells has the half-width n.
    return ((np.count_nonzero(window, axis=1) + 1) // 2 - 1).astype(np.int32)


def _smoothstep(x: Array) -> Array:
    """uint8 table that rises smoothly from 0 to 255 while ``x`` goes from 0 to 1."""
    return np.rint(255.0 * x * x * (3.0 - 2.0 * x)).astype(np.uint8)


@dataclass(frozen=True, slots=True)
class TemporalPlan:
    """Averaging of masks over time."""

    strength: float
    """0 (off)–1; at 1 a steady place keeps its value until something changes."""
    window: int = 5
    """Side of the box, in mask samples, over which changes are averaged: single samples are
    noise."""

    @property
    def floor(self) -> float:
        """Weight of a new mask where nothing happens; 1: earlier masks don't count."""
        return 1.0 - self.strength

    @property
    def mask_ramp(self) -> Array:
        """(256,) uint8: weight, in 1/255, for each mean change of the mask, in 1/255.

        Following starts at a change of 0.15, and is immediate at 0.4.
        """
        return _ramp(0.15 * 255.0, 0.40 * 255.0)

    @property
    def luma_ramp(self) -> Array:
        """(256,) uint8: the same for each change of the mean of 8-bit luma, in 1/32.

        Where the picture moves, the mask may: from 1 code value on, fully at 3.5. The mean of the
        window moves with an edge, while noise and fine texture cancel out in it.
        """
        return _ramp(32.0 * 1.0, 32.0 * 3.5)

    @property
    def luma_scale(self) -> float:
        """From a difference of the window's sums of luma to steps of :attr:`luma_ramp`."""
        return 32.0 / self.window**2


def _ramp(low: float, high: float) -> Array:
    return _smoothstep(np.clip((np.arange(256) - low) / (high - low), 0.0, 1.0))


@dataclass(frozen=True, slots=True)
class ThresholdPlan:
    """The smooth step from mask values to opacity.

    It runs from ``threshold - h`` to ``threshold + h`` as 3x² − 2x³, where ``h`` is ``softness``
    times the distance from the threshold to the nearer end of [0, 1]: below it the result is
    exactly 0, above it exactly 255, at the threshold one half.
    """

    threshold: float | None
    """Mask value of half opacity, 0–1; None: opacity is the mask value."""
    softness: float
    """Width of the step, 0 (hard)–1 (as wide as the range allows)."""

    @property
    def scale(self) -> float:
        """Steps of :attr:`curve` over the mask's range."""
        return 255.0 / (2.0 * self._half_width)

    @property
    def offset(self) -> float:
        """The step of :attr:`curve` at mask value 0; below 0."""
        middle = 0.5 if self.threshold is None else self.threshold
        return -(middle - self._half_width) * self.scale

    @property
    def curve(self) -> Array | None:
        """(256,) uint8: opacity at each place of the step; None: straight."""
        return None if self.threshold is None else _smoothstep(np.arange(256) / 255.0)

    @property
    def _half_width(self) -> float:
        if self.threshold is None:
            return 0.5
        # At least 1/256 of the range wide, so that the scale stays finite for a hard step.
        return max(self.softness * min(self.threshold, 1.0 - self.threshold), 1.0 / 512.0)


@dataclass(frozen=True, slots=True)
class IslandPlan:
    """Removal of small islands of person and of holes in one, on half the grid."""

    shape: Shape
    """Of the grid."""
    min_area: float
    """Smallest region that is kept, as a fraction of the frame."""

    @property
    def sure(self) -> int:
        """Smallest region that is kept where no frame before counts, in cells of half the grid."""
        return math.ceil(self._min_cells)

    @property
    def low(self) -> int:
        """Smallest region that may stay if it was kept in the frame before."""
        return math.ceil(self._min_cells / _HYSTERESIS)

    @property
    def high(self) -> int:
        """Regions below it go if they were not kept in the frame before."""
        return math.ceil(self._min_cells * _HYSTERESIS)

    @property
    def _min_cells(self) -> float:
        half = half_shape(self.shape)
        return self.min_area * half[0] * half[1]

    @property
    def skirt(self) -> Array:
        """Disc, (side, side) uint8, over which soft alpha may reach from the half-opaque contour.

        Its radius is 8 cells of a 270-row grid.
        """
        side = 2 * max(1, round(8.0 / 2.0 * _unit(self.shape))) + 1
        return np.asarray(cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (side, side)))


@dataclass(frozen=True, slots=True)
class GuidedPlan:
    """Fit of the edge to the picture by a guided filter on half the grid."""

    shape: Shape
    """Of the grid."""
    epsilon: float = 5e-5
    """Variance of the guide, with samples scaled to 0–1, below which it counts as flat: a standard
    deviation of 1.8 code values of 8 bits, just above the noise that is left in a cell."""
    steepen: float = 2.0
    """Slope applied to the result around one half: the filter leaves a faint rim as wide as its
    windows beside an edge that it has found."""

    @property
    def radius(self) -> int:
        """Of the box, in cells of half the grid: 2 for a 270-row grid."""
        return max(1, round(2.0 * _unit(self.shape)))

    @property
    def margin(self) -> int:
        """The filter changes nothing beyond so many cells from the last uneven one."""
        return 2 * self.radius + 1

    @property
    def offset(self) -> float:
        """Added after :attr:`steepen`."""
        return 127.5 * (1.0 - self.steepen)


@dataclass(frozen=True, slots=True)
class SmoothPlan:
    """Rounding of ragged contours: a Gaussian, then a ramp that restores the edge's width."""

    shape: Shape
    """Of the grid."""
    amount: float
    """Above 0 to 1."""

    @property
    def sigma(self) -> float:
        """Of the Gaussian: 2.4 cells of a 270-row grid at most."""
        return self.amount * self.amount * 2.4 * _unit(self.shape)

    @property
    def radius(self) -> int:
        """Where the Gaussian is cut off."""
        return max(1, math.ceil(2.5 * self.sigma))

    @property
    def slope(self) -> float:
        """Of the ramp that makes an edge as wide as it was: 4 cells of a 270-row grid."""
        # A ramp of width w has the variance w²/12; the Gaussian adds its own.
        width = 4.0 * _unit(self.shape)
        return math.sqrt(width * width + 12.0 * self.sigma**2) / width

    @property
    def offset(self) -> float:
        """Added after :attr:`slope`."""
        return 127.5 * (1.0 - self.slope)


@dataclass(frozen=True, slots=True)
class DilationPlan:
    """Grey dilation, or erosion, by a fractional number of cells.

    Steps of a 3×3 cross and a 3×3 square alternate so that the reach is nearly the same in every
    direction (an octagon); the fraction is a blend of the two nearest whole numbers of steps.
    """

    cells: float
    """How far the edge moves; below 0 inwards (erosion)."""

    @property
    def steps(self) -> int:
        """Whole steps."""
        return int(abs(self.cells))

    @property
    def fraction(self) -> float:
        """Part of one step more."""
        return abs(self.cells) % 1.0

    def kernel(self, step: int) -> Array:
        """(3, 3) uint8: the cross or the square of a step."""
        # A regular octagon needs the share sqrt(2) − 1 of its steps to be squares.
        share = math.sqrt(2.0) - 1.0
        is_square = math.floor((step + 1) * share) > math.floor(step * share)
        kind = cv2.MORPH_RECT if is_square else cv2.MORPH_CROSS
        return np.asarray(cv2.getStructuringElement(kind, (3, 3)))

    @property
    def octagons(self) -> Array:
        """(2, 2·steps + 3) int32: :func:`half_widths` of all steps in one, and of one step more."""
        side = 2 * self.steps + 3
        window: Array = np.zeros((side, side), np.uint8)
        window[side // 2, side // 2] = 1
        for step in range(self.steps):
            window = cv2.dilate(window, self.kernel(step))
        return np.stack(
            [half_widths(window), half_widths(cv2.dilate(window, self.kernel(self.steps)))]
        )


@dataclass(frozen=True, slots=True)
class FeatherPlan:
    """A soft rim outside the person.

    Moved outwards by half the rim and blurred over the other half, the plane keeps its full value
    at the old contour and reaches 0 at the rim's end. Wide rims are made on a coarser grid: they
    are smooth.
    """

    shape: Shape
    """Of the planes."""
    cells: float
    """Width of the rim, from the contour to where it ends."""

    @property
    def _coarse(self) -> int:
        coarse = 1
        while self.cells / coarse > 8.0:
            coarse *= 2
        return coarse

    @property
    def small_shape(self) -> Shape:
        """Of the coarser grid, or the planes' own."""
        rows, columns = self.shape
        return -(-rows // self._coarse), -(-columns // self._coarse)

    @property
    def dilation(self) -> DilationPlan:
        """On the coarser grid."""
        return DilationPlan(self.cells / self._coarse / 2.0)

    @property
    def radius(self) -> int:
        """Of the box on the coarser grid; it is applied twice."""
        return max(1, round(self.dilation.cells / 2.0))


ContourPlan = DilationPlan | FeatherPlan


def frame_contour(config: MatteConfig, format: FrameFormat) -> list[ContourPlan]:
    """What moves the edge on purpose in mattes of the frame's size, in order."""
    expand_px = config.expand_pct * format.height / 100.0
    return _contour(format.luma_shape, expand_px, config.feather_pct * format.height / 100.0)


def _contour(shape: Shape, expand: float, feather: float) -> list[ContourPlan]:
    plans: list[ContourPlan] = []
    if expand:
        plans.append(DilationPlan(expand))
    if feather > 0:
        plans.append(FeatherPlan(shape, feather))
    return plans


@dataclass(frozen=True, slots=True)
class MattePlan:
    """The soft matte of frames of one format; steps that are off are None."""

    config: MatteConfig
    format: FrameFormat

    @property
    def factor(self) -> int:
        """Frame pixels per cell of the grid, each way."""
        return grid_factor(self.format.width, self.format.height)

    @property
    def shape(self) -> Shape:
        """(gh, gw) of the grid."""
        return grid_shape(self.format.width, self.format.height)

    @property
    def temporal(self) -> TemporalPlan:
        return TemporalPlan(self.config.temporal)

    @property
    def threshold(self) -> ThresholdPlan:
        return ThresholdPlan(self.config.threshold, self.config.softness)

    @property
    def islands(self) -> IslandPlan | None:
        area = self.config.min_area
        return IslandPlan(self.shape, area) if area > 0 else None

    @property
    def guided(self) -> GuidedPlan | None:
        return GuidedPlan(self.shape) if self.config.refine is Refine.GUIDED else None

    @property
    def smooth(self) -> SmoothPlan | None:
        return SmoothPlan(self.shape, self.config.smooth) if self.config.smooth > 0 else None

    @property
    def contour(self) -> list[ContourPlan]:
        cells_per_pct = self.format.height / self.factor / 100.0
        expand = self.config.expand_pct * cells_per_pct
        return _contour(self.shape, expand, self.config.feather_pct * cells_per_pct)

    def mask_scale(self, mask_shape: Shape) -> tuple[float, float] | None:
        """(vertical, horizontal) mask samples per cell, where the grid reaches over the frame.

        The mask covers the frame exactly. Where the frame's sides are no multiples of the factor,
        the grid's last row and column reach over the edge, so a plain resize between the two would
        drift by a part of a cell. None: they cover the same, a plain resize serves.
        """
        height, width = self.format.luma_shape
        if height % self.factor == 0 and width % self.factor == 0:
            return None
        return mask_shape[0] * self.factor / height, mask_shape[1] * self.factor / width


@dataclass(frozen=True, slots=True)
class ObsPlan:
    """The matte of style obs for frames of one format. Without a threshold no edge is shaped."""

    config: MatteConfig
    format: FrameFormat

    @property
    def history_share(self) -> float | None:
        """Weight of a new mask against the earlier ones; None: they don't count."""
        share = 1.0 - self.config.temporal
        return max(share, self.config.threshold or 0.0) if 0.0 < share < 1.0 else None

    @property
    def contour_share(self) -> float:
        """Part of the mask that a contour must enclose; 0: all stay."""
        return self.config.min_area if self._shapes_edge and self.config.min_area < 1.0 else 0.0

    @property
    def smooth_side(self) -> int:
        """Side of the contour's blur, mask samples; 0: none."""
        smooth = self.config.smooth
        return _odd(3 + 11 * smooth) if self._shapes_edge and smooth > 0 else 0

    @property
    def dilation_px(self) -> int:
        """By how much the person grows, frame pixels; below 0: shrinks."""
        pixels = round(self.config.expand_pct * self.format.height / 100.0)
        return pixels if self._shapes_edge else 0

    @property
    def feather_side(self) -> int:
        """Side of the feather's box, frame pixels; 0: none."""
        pixels = self.config.feather_pct * self.format.height / 100.0
        return _odd(pixels) if self._shapes_edge and pixels > 0 else 0

    @property
    def _shapes_edge(self) -> bool:
        return self.config.threshold is not None


def _odd(value: float) -> int:
    """``int(value)``, one more where that is even."""
    return int(value) | 1
