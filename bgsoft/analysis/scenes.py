"""Detection of scene cuts, where all state between frames is reset, and of similar pictures."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.base import REACH, analysis_shape
from bgsoft.cuda.readback import Readback
from bgsoft.frame import AnalysisFrame, FrameFormat
from bgsoft.ops.placement import HOST, Placement
from bgsoft.ops.resize import resampling

THUMB_SHAPE = (36, 64)
"""(rows, columns) of the luma thumbnail. With 18 by 32, 0.56 instead of 0.89 of the cuts between
clips of one person in one room are found."""

# Figures are those of the clips of scripts/measure_cuts.py: recall of cuts within a room, and false
# alarms per 1,000 frames, of ordinary and of hard material (whip pans, flashes, shaking, freezes, a
# fifth of the frame rate, people who pass close). Alarms are compared at one recall.
_MIN_CHANGE = 0.014
"""Change of the thumbnail's contrasts (:class:`_Contrasts`) below which there is no cut: recall is
0.988, with 0.1 and 1.1 false alarms. With 0.012 it is 0.994, with 0.2 and 2.2; with 0.018 it is
0.959, with 0.02 and 0.4. Another person who fills the picture changes it by 0.039 or more."""
_MIN_RATIO = 3.0
"""Ratio of a cut to the changes just before it: motion lasts. With 2 there are twice as many false
alarms; with 4, 2 % more of the cuts are missed."""
_UNKNOWN_CHANGE = 0.015
"""Assumed change before the first frame. Without it, one clip in ten that begins with motion begins
with a false alarm, with it one in 200. It costs 0.08 of the cuts in the first four frames."""

_MIN_CONTRAST = 0.03
"""Mean contrast of a picture's cells below which it is flat, as black or white ones are: two such
pictures hardly differ by :data:`_MIN_CHANGE`."""

_RISE = 1.1
"""Rise of the contrast from one frame to the next while a picture fades in. Only such frames, and
the first after a black or white one, are compared with the picture before that: motion adds up."""

_BLACK = 0.1
"""Added to luma, so that noise in the dark does not count as contrast: with grain and a third of
the light, as many cuts are found."""
_SURROUND = 15
"""Side of the square of cells that a cell's contrast refers to. With 9 there are two to seven times
as many false alarms, with 31 two to four times as many."""
_MAX_CELL_SHARE = 0.2
"""Largest part of the change by one cell, so that many cells count more than large changes: hands
change few, another person many. Without it, 0.72 instead of 0.89 of the cuts between clips of one
person are found, with twice the false alarms; with 0.1 there are two to six times as many."""
_MAX_SHIFT = (5, 8)
"""Largest movement of the camera between two frames, cells down and across."""
_TONES = np.linspace(0.0, 1.0, 17)
"""Shares of the cells, darkest first, at whose luma two pictures' tones are compared."""
_NEAR = np.ones((3, 3), np.uint8)
_ERROR_BYTES = 8
"""Bytes per frame: one uint64, the summed squared difference from the kept picture."""

Thumb = NDArray[np.float32]


class SceneCutDetector:
    """Compares each frame's luma thumbnail with the one before.

    It measures where local contrast changes by more than motion of about a cell explains, relative
    to the changes in earlier frames. If that suggests a cut, the frame is compared again with the
    one before, moved like the camera and with its tones. The first frame after black or white ones,
    and frames that fade in from there, are compared with the last one before these, too.
    """

    def __init__(self) -> None:
        self._earlier: deque[tuple[Thumb, _Contrasts]] = deque(maxlen=REACH)
        self._changes = deque([_UNKNOWN_CHANGE], maxlen=REACH - 1)

    def update(self, thumb: Thumb) -> bool:
        """Return whether the next frame begins a new scene; never the first.

        It is decided by this frame and the :data:`REACH` frames before; ``thumb`` is each frame's
        luma, THUMB_SHAPE float32 in [0, 1].
        """
        contrasts, earlier = _Contrasts(thumb), [*self._earlier]
        self._earlier.append((thumb.copy(), contrasts))
        if not earlier:
            return False
        last, last_contrasts = earlier[-1]
        change = contrasts.change(last_contrasts)
        stands_out = change >= _MIN_CHANGE and change >= _MIN_RATIO * max(self._changes)
        self._changes.append(change)
        if stands_out and _differ(last, thumb):
            return True
        if contrasts.are_flat or contrasts.mean < _RISE * last_contrasts.mean:
            return False
        before = _before_flat(earlier)
        if before is None or not _differ(before, thumb):
            return False
        return last_contrasts.are_flat or not _differ(before, last)


def _before_flat(earlier: Sequence[tuple[Thumb, _Contrasts]]) -> Thumb | None:
    """Return the last of some pictures before the flat ones among them; None: there is none."""
    is_after = False
    for thumb, contrasts in reversed(earlier):
        if is_after and not contrasts.are_flat:
            return thumb
        is_after = is_after or contrasts.are_flat
    return None


class _Contrasts:
    """The contrast of each cell of a thumbnail to its surroundings, independent of the light.

    They are differences of logarithms: a factor on all light changes nothing.
    """

    def __init__(self, thumb: Thumb) -> None:
        tones = np.log(thumb + np.float32(_BLACK))
        side = (_SURROUND, _SURROUND)
        self.cells = tones - cv2.blur(tones, side, borderType=cv2.BORDER_REPLICATE)
        self.mean = float(np.abs(self.cells).mean())
        self.are_flat = self.mean < _MIN_CONTRAST
        # Extremes of each cell and the eight around it: values that small motion may move there.
        self.least = cv2.erode(self.cells, _NEAR)
        self.greatest = cv2.dilate(self.cells, _NEAR)

    def change(self, last: _Contrasts) -> float:
        """Return the mean change that small motion does not explain, 0 to _MAX_CELL_SHARE."""
        rise = np.maximum(self.cells - last.greatest, last.cells - self.greatest)
        fall = np.maximum(last.least - self.cells, self.least - last.cells)
        far = np.minimum(np.maximum(np.maximum(rise, fall), 0.0), _MAX_CELL_SHARE)
        return float(np.add.reduce(far, None) / far.size)


def _differ(last: Thumb, thumb: Thumb) -> bool:
    """Return whether a picture differs from an earlier one, moved and with this one's tones.

    Without it there are 8.2 instead of 1.7 false alarms in hard material: flashes, whip pans.
    """
    last, thumb = _overlap(last, thumb)
    toned = np.interp(last, _tones(last), _tones(thumb)).astype(np.float32)
    return _Contrasts(thumb).change(_Contrasts(toned)) >= _MIN_CHANGE


def _tones(thumb: Thumb) -> NDArray[np.float64]:
    """Return the luma below which each share of :data:`_TONES` of the cells lies.

    ``np.quantile`` gives the same, but its first call imports all of ``np.ma``, in 12 ms.
    """
    cells = np.sort(thumb, axis=None)
    return np.interp(_TONES * (cells.size - 1), np.arange(cells.size), cells)


def _overlap(last: Thumb, thumb: Thumb) -> tuple[Thumb, Thumb]:
    """Return the common part of both pictures, for the camera movement that fits best."""
    (rows, columns), (most_y, most_x) = thumb.shape, _MAX_SHIFT
    middle = _Contrasts(last).cells[most_y : rows - most_y, most_x : columns - most_x]
    fit = cv2.matchTemplate(_Contrasts(thumb).cells, middle, cv2.TM_CCOEFF_NORMED)
    at_y, at_x = divmod(int(np.argmax(fit)), fit.shape[1])
    y, x = at_y - most_y, at_x - most_x
    return _shifted(last, -y, -x), _shifted(thumb, y, x)


def _shifted(thumb: Thumb, y: int, x: int) -> Thumb:
    """Return the part of a picture that is left when it moves up and left by some cells."""
    rows, columns = thumb.shape
    return thumb[max(0, y) : rows + min(0, y), max(0, x) : columns + min(0, x)]


class LumaProbe:
    """Finds scene cuts and similar pictures by the luma of analysis frames.

    It takes one launch a frame; the host reads 9.2 kB.

    Args:
        format: Format of the frames.
        placement: Device of the frames, or the host.
        batch: Frames at a time.
    """

    def __init__(self, format: FrameFormat, *, placement: Placement = HOST, batch: int = 1) -> None:
        self._placement = placement
        self._detector = SceneCutDetector()
        shape, bits = analysis_shape(format.width, format.height), 8 * format.bytes_per_sample
        self._peak = float((1 << format.bit_depth) - 1 << format.shift)
        self._measure = placement.operation("analysis", "measure", sample_bits=bits)
        rows, columns = THUMB_SHAPE
        cells = rows * columns
        self._size = cells, 32  # a warp a cell
        tables = resampling(placement, shape, THUMB_SHAPE, area=True, fixed_point=bits == 8)
        self._samples = shape[0] * shape[1]
        self._kept = placement.xp.empty(shape, format.dtype)
        self._has_kept = self._compared = False
        # One block of memory for everything that the host reads: errors, then thumbnails.
        ends = batch * _ERROR_BYTES
        self._seen = Readback(placement, ends + batch * cells * 4, np.uint8)
        self._errors = self._seen.array[:ends].view(np.uint64)
        self._host_errors = self._seen.host[:ends].view(np.uint64)
        places = self._seen.array[ends:].view(np.float32).reshape(batch, rows, columns)
        self.thumbs = self._seen.host[ends:].view(np.float32).reshape(batch, rows, columns)
        """(batch, 36, 64) float32, luma in [0, 1], of the last inspected frames."""
        self._arguments = [
            (*tables, 1 / self._peak, places[at], self._errors[at:], *THUMB_SHAPE, *shape)
            for at in range(batch)
        ]

    def cuts(self, reduced: Sequence[AnalysisFrame]) -> list[bool]:
        """Return which frames begin a new scene; waits for a device.

        Called once for every frame, in order.
        """
        self._measure_all(reduced)
        return list(map(self._detector.update, self.thumbs[: len(reduced)]))

    def is_similar(self, reduced: AnalysisFrame, min_db: float) -> bool:
        """Return whether the frame is within ``min_db`` PSNR of the one last kept by :meth:`keep`.

        On a device, the last call of :meth:`cuts`, which measures it, must have been for this frame
        alone.
        """
        if not self._placement.on_device:
            self._measure_all([reduced])
        if not self._compared:
            return False
        error = int(self._host_errors[0]) / self._samples
        return error == 0 or 10 * math.log10(self._peak**2 / error) > min_db

    def _measure_all(self, reduced: Sequence[AnalysisFrame]) -> None:
        if self._has_kept:
            self._errors.fill(0)
        for grid, arguments in zip(reduced, self._arguments, strict=False):
            self._measure(self._size, grid.luma, self._kept, *arguments, int(self._has_kept))
        self._compared = self._has_kept
        if self._placement.on_device:
            self._seen.read()

    def keep(self, reduced: AnalysisFrame) -> None:
        """Remember this frame for :meth:`is_similar`."""
        self._placement.copy(reduced.luma, self._kept)
        self._has_kept = True
