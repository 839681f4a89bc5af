"""From the raw mask to clean opacity on the analysis frame, and from the grid to the frame."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np

from bgsoft.analysis.cpu import halve
from bgsoft.frame import Array
from bgsoft.matte.plan import IslandPlan, MattePlan, TemporalPlan, ThresholdPlan


class Moment:
    """What the temporal filter keeps of one mask, until the next one has been averaged.

    Args:
        shape: (h, w) of the mask.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape = shape
        self.state: Array = np.empty(shape, np.float32)
        """(h, w): the smoothed mask."""
        self.luma: Array = np.empty(shape, np.uint8)
        """(h, w): the picture at the mask's size."""
        self.luma_sums: Array = np.empty(shape, np.uint16)
        """(h, w): sums of its luma over the window."""


class TemporalFilter:
    """A recursive average per mask sample whose weight depends on what happens there.

    ``state += w · (mask − state)``, with ``w`` between ``1 − strength`` where both the mask and
    the picture are steady (model noise, flicker) and 1 where either changes over a neighbourhood
    (movement), so that moving edges are followed in the same frame. Differences are compared with
    fixed amounts, never stretched to the frame's own extremes: noise stays small.
    """

    def __init__(self, plan: TemporalPlan) -> None:
        self._is_off = plan.floor >= 1.0
        self._window = (plan.window, plan.window)
        self._luma_scale = plan.luma_scale
        scale, floor = np.float32((1.0 - plan.floor) / 255.0), np.float32(plan.floor)
        self._mask_weights = plan.mask_ramp * scale + floor
        self._luma_weights = plan.luma_ramp * scale + floor
        self._shape: tuple[int, int] | None = None

    def see(self, luma: Array, moment: Moment) -> None:
        """Take the picture's window sums. Needs nothing of earlier frames, unlike :meth:`apply`.

        Args:
            luma: (gh, gw) uint8, the picture the mask belongs to.
            moment: Its sums are filled.
        """
        if self._is_off:
            return
        size = moment.shape[::-1]
        cv2.resize(luma, size, dst=moment.luma, interpolation=cv2.INTER_LINEAR)
        sums = moment.luma_sums
        cv2.boxFilter(moment.luma, cv2.CV_16U, self._window, dst=sums, normalize=False)

    def apply(self, mask: Array, moment: Moment, last: Moment | None) -> None:
        """Average one mask with those before it.

        Args:
            mask: (h, w) float32 in [0, 1].
            moment: Its picture was seen; its state is filled.
            last: That of the mask before; None: the mask is taken as it is.
        """
        if last is None or self._is_off:
            np.copyto(moment.state, mask)
        else:
            self._blend(mask, moment, last)
        # A model that overflows must not spoil every frame after.
        cv2.patchNaNs(moment.state, 0.0)

    def _blend(self, mask: Array, moment: Moment, last: Moment) -> None:
        """Move the state towards the mask: much where something happens, little elsewhere."""
        if self._shape != moment.shape:
            self._allocate(moment.shape)
        delta, change, weight = self._delta, self._change, self._weight
        cv2.absdiff(moment.luma_sums, last.luma_sums, dst=self._luma_delta)
        cv2.convertScaleAbs(self._luma_delta, dst=change, alpha=self._luma_scale)
        cv2.LUT(change, self._luma_weights, dst=self._luma_weight)
        cv2.subtract(mask, last.state, dst=delta)
        cv2.convertScaleAbs(delta, dst=change, alpha=255.0)
        cv2.blur(change, self._window, dst=change)
        cv2.LUT(change, self._mask_weights, dst=weight)
        cv2.max(weight, self._luma_weight, dst=weight)
        cv2.multiply(delta, weight, dst=delta)
        cv2.add(last.state, delta, dst=moment.state)

    def _allocate(self, shape: tuple[int, int]) -> None:
        self._shape = shape
        self._delta, self._weight, self._luma_weight = np.empty((3, *shape), np.float32)
        self._luma_delta = np.empty(shape, np.uint16)
        self._change = np.empty(shape, np.uint8)


def threshold_mask(mask: Array, plan: ThresholdPlan, out: Array) -> None:
    """Write the opacity, (h, w) uint8, of a mask, (h, w) float32 in [0, 1]."""
    # addWeighted saturates below 0 as well, unlike convertScaleAbs.
    cv2.addWeighted(mask, plan.scale, mask, 0.0, plan.offset, dst=out, dtype=cv2.CV_8U)
    if plan.curve is not None:
        cv2.LUT(out, plan.curve, dst=out)


def to_grid(plane: Array, scale: tuple[float, float] | None, out: Array) -> None:
    """Enlarge (or reduce) a plane of the model's size to the grid: bilinear, centres aligned.

    Args:
        plane: (h, w) uint8 or float32, covering the frame.
        scale: :meth:`MattePlan.mask_scale` of its shape.
        out: (gh, gw) of the same dtype; filled.
    """
    rows, columns = out.shape
    if scale is not None:
        y, x = scale
        # Centre of cell i is (i + 1/2)·scale in the mask's units, whose samples sit at 1/2.
        matrix = np.array([[x, 0, x / 2 - 0.5], [0, y, y / 2 - 0.5]], np.float64)
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        border = cv2.BORDER_REPLICATE
        cv2.warpAffine(plane, matrix, (columns, rows), dst=out, flags=flags, borderMode=border)
    elif plane.shape == out.shape:
        np.copyto(out, plane)
    else:
        cv2.resize(plane, (columns, rows), dst=out, interpolation=cv2.INTER_LINEAR)


class IslandFilter:
    """Keeps large connected regions, of person and of background alike, and gaps in a person.

    Regions are those of the plane cut at one half, on half the grid. A small hole in a person is
    kept, too, where the mask is sure of background somewhere in it. Soft alpha is kept within a
    skirt around the regions that stay; beyond it the plane becomes exactly 0 or 255, so haze in
    the background and thin spots deep inside a person go too.

    A filter has the buffers and the regions of one frame. What the frame before kept is asked for
    only where it counts: for regions about as large as the limit.
    """

    def __init__(self, plan: IslandPlan) -> None:
        half = plan.shape
        self._plan = plan
        self._rim = np.ones((3, 3), np.uint8)
        self._small = np.empty(half, np.uint8)
        self._binary = np.empty(half, np.uint8)
        self._labels = np.empty(half, np.int32)
        self._regions = np.empty((2, *half), np.uint8)
        """Of the person and of the background, those that stay."""
        self._near = np.empty(half, np.uint8)
        self._soft = np.empty(half, np.uint8)
        # Twice the half grid: where a side of the grid is odd, one cell more than that.
        self._limit = np.empty((2 * half[0], 2 * half[1]), np.uint8)

    def apply(
        self,
        alpha: Array,
        before: Callable[[], IslandFilter] | None = None,
        gaps: Callable[[], Array] | None = None,
    ) -> None:
        """Clean a plane in place.

        Args:
            alpha: (gh, gw) uint8; replaced.
            before: Gives the filter of the frame before, another than this. None: there is none.
            gaps: Says where the mask is sure of background: bool, on half the grid. None: nowhere.
        """
        rows, columns = alpha.shape
        person, background = self._regions
        halve(alpha, self._small)
        cv2.threshold(self._small, 127, 255, cv2.THRESH_BINARY, dst=self._binary)
        self._keep_large(0, before, None)
        if self._exceeds(self._small, self._binary, person):
            cv2.min(alpha, self._limit[:rows, :columns], dst=alpha)
        cv2.bitwise_not(person, dst=self._binary)
        self._keep_large(1, before, gaps)
        cv2.bitwise_not(self._small, dst=self._small)
        if self._exceeds(self._small, self._binary, background):
            cv2.bitwise_not(self._limit, dst=self._limit)
            cv2.max(alpha, self._limit[:rows, :columns], dst=alpha)

    def _keep_large(
        self,
        side: int,
        before: Callable[[], IslandFilter] | None,
        sure: Callable[[], Array] | None,
    ) -> None:
        """Find the components of the binary plane that stay, and write their region.

        Args:
            side: Whose components they are: 0, the person's; 1, the background's.
            before: Gives the filter of the frame before.
            sure: Says where a component stays whatever its size.
        """
        binary, region = self._binary, self._regions[side]
        connectivity = (8, 4)[side]
        count, _ = cv2.connectedComponents(
            binary, labels=self._labels, connectivity=connectivity, ltype=cv2.CV_32S
        )
        plan = self._plan
        if count == 2 and cv2.countNonZero(binary) >= plan.high:
            np.copyto(region, binary)
            return
        # Counting labels is much cheaper than OpenCV's statistics, which has boxes and centroids.
        labels = self._labels.ravel()
        areas = np.bincount(labels, minlength=count)
        keep = areas >= plan.sure
        unsure = (areas >= plan.low) & (areas < plan.high)
        unsure[0] = keep[0] = False
        if unsure.any() and before is not None:
            kept_before = before()._regions[side].ravel()
            was_kept = np.bincount(labels, weights=kept_before, minlength=count) / 255.0
            keep[unsure] = (2.0 * was_kept >= areas)[unsure]
        if sure is not None and not keep[1:].all():
            keep[self._labels[sure()]] = True
            keep[0] = False
        if keep[1:].all():
            np.copyto(region, binary)
            return
        table = np.where(keep, 255, 0).astype(np.uint8)
        np.take(table, self._labels, out=region, mode="clip")

    def _exceeds(self, opacity: Array, binary: Array, region: Array) -> bool:
        """Whether a plane is above the skirted region of those of its components that stay.

        If so, the region with its skirt is written to the limit plane, which covers the grid.

        Args:
            opacity: (h, w) uint8 on half the grid.
            binary: (h, w) uint8, the components; overwritten.
            region: (h, w) uint8, those that stay.
        """
        near = self._near
        cv2.dilate(region, self._plan.skirt, dst=near)
        cv2.subtract(binary, region, dst=binary)
        if cv2.countNonZero(binary):
            # A component that goes must not survive in the skirt of one that stays.
            cv2.dilate(binary, self._rim, dst=self._soft, iterations=3)
            cv2.dilate(region, self._rim, dst=binary)
            cv2.subtract(self._soft, binary, dst=self._soft)
            cv2.subtract(near, self._soft, dst=near)
        cv2.blur(near, (3, 3), dst=self._soft)
        cv2.subtract(opacity, self._soft, dst=near)
        if cv2.countNonZero(near) == 0:
            return False
        size = self._limit.shape[::-1]
        cv2.resize(self._soft, size, dst=self._limit, interpolation=cv2.INTER_LINEAR)
        return True


class FrameUpsampler:
    """Enlarges grid-sized planes to the full frame, bilinearly, cell centres aligned.

    Only the rectangle that holds anything is enlarged; the rest is cleared, which takes a fraction
    of the time.
    """

    def __init__(self, plan: MattePlan) -> None:
        self._factor = plan.factor
        padded = (plan.shape[0] * plan.factor, plan.shape[1] * plan.factor)
        exact = padded == plan.format.luma_shape
        self._padded = None if exact else np.empty(padded, np.uint8)

    def apply(self, plane: Array, out: Array) -> None:
        """Enlarge a plane.

        Args:
            plane: (gh, gw) uint8.
            out: (H, W) uint8, C-contiguous; filled.
        """
        if self._factor == 1:
            np.copyto(out, plane)
        elif self._padded is None:
            self._enlarge(plane, out)
        else:
            self._enlarge(plane, self._padded)
            np.copyto(out, self._padded[: out.shape[0], : out.shape[1]])

    def _enlarge(self, plane: Array, out: Array) -> None:
        factor = self._factor
        left, top, width, height = cv2.boundingRect(plane)
        # An empty cell on each side, so that the edge fades as it does in the whole plane.
        x, y = max(0, left - 1), max(0, top - 1)
        part = plane[y : top + height + 1, x : left + width + 1]
        rows, columns = part.shape[0] * factor, part.shape[1] * factor
        x, y = x * factor, y * factor
        out[:y] = 0
        out[y + rows :] = 0
        box = out[y : y + rows]
        box[:, :x] = 0
        box[:, x + columns :] = 0
        target = box[:, x : x + columns]
        cv2.resize(part, (columns, rows), dst=target, interpolation=cv2.INTER_LINEAR)
