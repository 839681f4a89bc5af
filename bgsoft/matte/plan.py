"""The numbers that the matte's steps work with, for the host's and the device's alike.

Each plan follows from the settings and the size of the planes; both implementations of a step are
built from it. Lengths are in cells of the analysis frame, where nothing else is said. Filter sizes
are given for the grid of a 1080-line frame, 270 rows, and cover the same part of any picture.
"""

from __future__ import annotations

import math
from typing import Self

import cv2
import numpy as np

from bgsoft.analysis.base import analysis_factor, analysis_shape
from bgsoft.frame import Array, FrameFormat
from bgsoft.records import NamedTuple
from bgsoft.settings.config import MatteConfig, Refine

Shape = tuple[int, int]

STILL_VARIANCE = 6.5
"""Mean squared difference of 8-bit luma (40 dB) below which two pictures differ in noise only."""
_TEMPORAL_WINDOW = 5
"""Side of the box, in mask samples, over which changes are averaged: single samples are noise."""
_MASK_CHANGE = (0.15, 0.40)
"""Mean change of the mask at which following starts, and at which it is immediate."""
_LUMA_CHANGE = (1.0, 3.5)
"""Change of the mean of 8-bit luma likewise: where the picture moves, the mask may. The mean of
the window moves with an edge, while noise and fine texture cancel out in it."""
_LUMA_STEPS = 32.0
"""Steps per code value in which that change is counted."""
_HELD_CODES = 8.0
"""By how much opacity, in 1/255, may stay behind what is fitted on the frame, where the picture
stands still. Twice as much takes 9 % more off the flicker, but a third more stays behind slow
movement."""
_SKIRT = 8.0
"""How far soft alpha may reach from the half-opaque contour."""
_HYSTERESIS = 1.5
"""A region that was kept in the last frame may shrink by this factor before it goes; one that was
not must be larger by it to come. Without it, regions about as large as the limit flicker."""
_SURE = 0.7
"""Share of the threshold below which the mask is sure of background: a hole in a person with such
a place is a gap, however small. On 81 photographs, with standard and best looks, 22 of 25 small
holes that have one are background, of those without 82 of 131. With these filled too, boundary F is
lower by 0.003 to 0.004 (by 0.011 with the preset privacy, whose limit is ten times as high), and on
six clips mattes of best looks flicker by 8 % more. 0.6 is up to 0.0013 worse; with 0.8, 0.0005
better, twice as many photographs lose by it."""
_GUIDED_RADIUS = 2.0
"""Box radius in cells of the half grid."""
_EPSILON = 5e-5
"""Variance of the guide, with samples scaled to 0–1, below which it counts as flat: a standard
deviation of 1.8 code values of 8 bits, just above the noise that is left in a cell."""
_STEEPEN = 2.0
"""Slope applied to the guided filter's result around one half: it leaves a faint rim as wide as its
windows beside an edge that it has found."""
_FINE_STEEPEN = 1.5
"""The same on the frame, where windows are less coarse. With 2, edges of people who move before a
room, in 360 lines, were further from the truth (gradient error 7.8 against 7.1)."""
_SMOOTH_SIGMA = 2.4
"""Gaussian at smooth = 1; it grows with the square of smooth."""
_EDGE_WIDTH = 4.0
"""Width of an edge's ramp that smoothing keeps."""


def _unit(shape: Shape) -> float:
    """How many cells of this grid make one cell of the 270-row grid."""
    return min(shape) / 270.0


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


def _ramp(low: float, high: float) -> Array:
    """(256,) uint8: 0 up to index ``low``, 255 from ``high`` on."""
    return _smoothstep(np.clip((np.arange(256) - low) / (high - low), 0.0, 1.0))


class TemporalPlan(NamedTuple):
    """Averaging of masks over time."""

    floor: float
    """Weight of a new mask where nothing happens; 1: earlier masks don't count."""
    window: int
    """Side of the box over which changes are averaged, mask samples."""
    mask_ramp: Array
    """(256,) uint8: weight, in 1/255, for each mean change of the mask, in 1/255."""
    luma_ramp: Array
    """(256,) uint8: the same for each change of the mean of luma, in steps."""
    luma_scale: float
    """Steps that a difference of 1 of the window's sums of luma makes."""

    @property
    def reach(self) -> Array:
        """(256,) uint8: how far a matte of the frame's size may stay behind, for each change of
        the mean of luma, in steps."""
        return np.rint(_HELD_CODES * (1.0 - self.luma_ramp / 255.0)).astype(np.uint8)

    @classmethod
    def of(cls, strength: float) -> Self:
        """0 (off)–1; at 1 a steady place keeps its value until something changes."""
        return cls(
            floor=1.0 - strength,
            window=_TEMPORAL_WINDOW,
            mask_ramp=_ramp(*(change * 255.0 for change in _MASK_CHANGE)),
            luma_ramp=_ramp(*(_LUMA_STEPS * change for change in _LUMA_CHANGE)),
            luma_scale=_LUMA_STEPS / _TEMPORAL_WINDOW**2,
        )


class ThresholdPlan(NamedTuple):
    """The smooth step from mask values to opacity: ``curve[scale · value + offset]``.

    It runs from ``threshold - h`` to ``threshold + h`` as 3x² − 2x³, where ``h`` is ``softness``
    times the distance from the threshold to the nearer end of [0, 1]: below it the result is
    exactly 0, above it exactly 255, at the threshold one half.
    """

    scale: float
    offset: float
    curve: Array
    """(256,) uint8; straight without a threshold."""

    @classmethod
    def of(cls, threshold: float | None, softness: float) -> Self:
        """Without a threshold opacity is the mask value."""
        middle = 0.5 if threshold is None else threshold
        half = 0.5 if threshold is None else softness * min(threshold, 1.0 - threshold)
        # At least 1/256 of the range wide, so that the scale stays finite for a hard step.
        half = max(half, 1.0 / 512.0)
        scale = 255.0 / (2.0 * half)
        curve = np.arange(256, dtype=np.uint8)
        if threshold is not None:
            curve = _smoothstep(curve / 255.0)
        return cls(scale, -(middle - half) * scale, curve)


class IslandPlan(NamedTuple):
    """Removal of small islands of person and of unsure holes in one, on half the grid."""

    sure: int
    """Cells of the smallest region that is kept where no frame before counts."""
    low: int
    """Cells of the smallest region that is kept if it was kept in the frame before."""
    high: int
    """Cells of the smallest region that is kept if it was not."""
    gap: float
    """Mask value below which a hole is kept, whatever its size."""
    skirt: Array
    """Disc, (side, side) uint8, over which soft alpha may reach from a region."""

    @classmethod
    def of(cls, shape: Shape, min_area: float, threshold: float | None = None) -> Self:
        """From the grid's shape, the smallest region, a fraction of the frame, and the mask value
        that is half opaque."""
        half = half_shape(shape)
        cells = min_area * half[0] * half[1]
        side = 2 * max(1, round(_SKIRT / 2.0 * _unit(shape))) + 1
        return cls(
            sure=math.ceil(cells),
            low=math.ceil(cells / _HYSTERESIS),
            high=math.ceil(cells * _HYSTERESIS),
            gap=_SURE * (0.5 if threshold is None else threshold),
            skirt=cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (side, side)),
        )


class GuidedPlan(NamedTuple):
    """Fit of the edge to the picture by a guided filter on half a plane."""

    radius: int
    """Of the windows, in their own spacing."""
    spacing: int = 1
    """Of the windows' centres, in cells of half the plane: 1 or 2."""
    epsilon: float = _EPSILON
    steepen: float = _STEEPEN

    @classmethod
    def of(cls, shape: Shape, spacing: int = 1) -> Self:
        radius = max(1, round(_GUIDED_RADIUS * min(shape) / (270 * spacing)))
        return cls(radius, spacing, steepen=_STEEPEN if spacing == 1 else _FINE_STEEPEN)

    @property
    def offset(self) -> float:
        """Added after steepening: one half stays."""
        return 127.5 * (1.0 - self.steepen)

    @property
    def margin(self) -> int:
        """The filter changes nothing beyond so many cells from the last uneven one."""
        return (2 * self.radius + 2) * self.spacing - 1


class SmoothPlan(NamedTuple):
    """Rounding of ragged contours: a Gaussian, then a ramp that restores the edge's width."""

    sigma: float
    radius: int
    """Where the Gaussian is cut off."""
    slope: float
    """Of the ramp."""
    offset: float
    """Added after it."""

    @classmethod
    def of(cls, shape: Shape, amount: float) -> Self:
        """The amount is above 0 to 1."""
        sigma = amount * amount * _SMOOTH_SIGMA * _unit(shape)
        # A ramp of width w has the variance w²/12; the Gaussian adds its own.
        width = _EDGE_WIDTH * _unit(shape)
        slope = math.sqrt(width * width + 12.0 * sigma**2) / width
        return cls(sigma, max(1, math.ceil(2.5 * sigma)), slope, 127.5 * (1.0 - slope))


class DilationPlan(NamedTuple):
    """Grey dilation, or erosion, by a fractional number of cells.

    Steps of a 3×3 cross and a 3×3 square alternate so that the reach is nearly the same in every
    direction (an octagon); the fraction is a blend of the two nearest whole numbers of steps.
    """

    shape: Shape
    """(rows, columns) of the planes."""
    outwards: bool
    """Dilation rather than erosion."""
    kernels: list[Array]
    """(3, 3) uint8: the cross or the square of each whole step, and of one more."""
    fraction: float
    """Part that the step more has in the result."""

    @classmethod
    def of(cls, shape: Shape, cells: float) -> Self:
        """How far the edge moves; below 0 inwards (erosion)."""
        whole, fraction = divmod(abs(cells), 1.0)
        # A regular octagon needs the share sqrt(2) − 1 of its steps to be squares.
        share = math.sqrt(2.0) - 1.0
        kinds = [
            math.floor((step + 1) * share) > math.floor(step * share)
            for step in range(int(whole) + 1)
        ]
        cross, square = (
            cv2.getStructuringElement(kind, (3, 3)) for kind in (cv2.MORPH_CROSS, cv2.MORPH_RECT)
        )
        kernels = [square if is_square else cross for is_square in kinds]
        return cls(shape, cells > 0, kernels, fraction)

    @property
    def octagons(self) -> Array:
        """(2, 2·steps + 3) int32: :func:`half_widths` of all whole steps, and of one more."""
        side = 2 * len(self.kernels) + 1
        window: Array = np.zeros((side, side), np.uint8)
        window[side // 2, side // 2] = 1
        spans = [half_widths(window)]
        for kernel in self.kernels:
            window = cv2.dilate(window, kernel)
            spans.append(half_widths(window))
        return np.stack(spans[-2:])


class FeatherPlan(NamedTuple):
    """A soft rim outside the person.

    Moved outwards by half the rim and blurred over the other half, the plane keeps its full value
    at the old contour and reaches 0 at the rim's end. Wide rims are made on a coarser grid: they
    are smooth.
    """

    shape: Shape
    """(rows, columns) of the planes."""
    dilation: DilationPlan
    """On the coarser grid, or the planes' own."""
    radius: int
    """Of the box there; it is applied twice."""

    @classmethod
    def of(cls, shape: Shape, cells: float) -> Self:
        """Width of the rim, from the contour to where it ends."""
        coarse = 1
        while cells / coarse > 8.0:
            coarse *= 2
        small = (-(-shape[0] // coarse), -(-shape[1] // coarse))
        reach = cells / coarse / 2.0
        return cls(shape, DilationPlan.of(small, reach), max(1, round(reach / 2.0)))


ContourPlan = DilationPlan | FeatherPlan


def _contour(shape: Shape, expand: float, feather: float) -> list[ContourPlan]:
    plans: list[ContourPlan] = []
    if expand:
        plans.append(DilationPlan.of(shape, expand))
    if feather > 0:
        plans.append(FeatherPlan.of(shape, feather))
    return plans


def frame_contour(config: MatteConfig, format: FrameFormat) -> list[ContourPlan]:
    """What moves the edge on purpose in mattes of the frame's size, in order."""
    expand_px = config.expand_pct * format.height / 100.0
    return _contour(format.luma_shape, expand_px, config.feather_pct * format.height / 100.0)


class MattePlan(NamedTuple):
    """The soft matte of frames of one format; steps that are off are None."""

    format: FrameFormat
    factor: int
    """Frame pixels per cell of the grid, each way."""
    shape: Shape
    """(gh, gw) of the grid."""
    temporal: TemporalPlan
    threshold: ThresholdPlan
    islands: IslandPlan | None
    guided: GuidedPlan | None
    smooth: SmoothPlan | None
    contour: list[ContourPlan]
    """What moves the edge on purpose, in order; on the frame, where that is where it is fitted."""
    fine: GuidedPlan | None
    """Fit of the edge on the frame, in place of that on the grid: where people get another
    background. For 34 portraits before drawn rooms, in 720 lines, the mean squared error of alpha
    near the edge is 8 % less by it, that of its gradient 14 %, and the composite over black 6 to
    8 %; it takes 4 ms of one core at 1080p."""

    @classmethod
    def of(cls, config: MatteConfig, format: FrameFormat, *, fine: bool = False) -> Self:
        """``fine``: fit the edge on the frame itself, if it is fitted."""
        guides = config.refine is Refine.GUIDED
        fine = fine and guides
        factor = analysis_factor(format.width, format.height)
        shape = analysis_shape(format.width, format.height)
        cells_per_pct = format.height / factor / 100.0
        expand, feather = config.expand_pct * cells_per_pct, config.feather_pct * cells_per_pct
        return cls(
            format=format,
            factor=factor,
            shape=shape,
            temporal=TemporalPlan.of(config.temporal),
            threshold=ThresholdPlan.of(config.threshold, config.softness),
            islands=IslandPlan.of(shape, config.min_area, config.threshold)
            if config.min_area > 0
            else None,
            guided=GuidedPlan.of(shape) if guides and not fine else None,
            smooth=SmoothPlan.of(shape, config.smooth) if config.smooth > 0 else None,
            contour=frame_contour(config, format) if fine else _contour(shape, expand, feather),
            fine=GuidedPlan.of(format.luma_shape, spacing=2) if fine else None,
        )

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


class ObsPlan(NamedTuple):
    """The matte of style obs. Without a threshold no edge is shaped."""

    threshold: float | None
    share: float | None
    """Weight of a new mask against the earlier ones; None: they don't count."""
    contour_share: float = 0.0
    """Part of the mask that a contour must enclose; 0: all stay."""
    smooth_side: int = 0
    """Side of the contour's blur, mask samples; 0: none."""
    dilation_px: int = 0
    """By how much the person grows, frame pixels; below 0: shrinks."""
    feather_side: int = 0
    """Side of the feather's box, frame pixels; 0: none."""

    @classmethod
    def of(cls, config: MatteConfig, format: FrameFormat) -> Self:
        share = 1.0 - config.temporal
        keeps_history = 0.0 < share < 1.0
        if config.threshold is None:
            return cls(None, share if keeps_history else None)
        feather_px = config.feather_pct * format.height / 100.0
        return cls(
            threshold=config.threshold,
            share=max(share, config.threshold) if keeps_history else None,
            contour_share=config.min_area if config.min_area < 1.0 else 0.0,
            smooth_side=_odd(3 + 11 * config.smooth) if config.smooth > 0 else 0,
            dilation_px=round(config.expand_pct * format.height / 100.0),
            feather_side=_odd(feather_px) if feather_px > 0 else 0,
        )


def _odd(value: float) -> int:
    """``int(value)``, one more where that is even."""
    return int(value) | 1
