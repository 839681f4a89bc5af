"""Dimensions and constants of backgrounds, the same for host and device.

Each plan follows from the effect's settings and the frame's format. A background's picture is made
on cells: squares of luma pixels whose edge is a power of two. Cells are 16-bit full scale: code
value ``<< 8`` of 8-bit frames and ``<< 6`` of 10-bit frames, which is the same scale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.base import analysis_factor, analysis_shape
from bgsoft.frame import FrameFormat, PixelLayout
from bgsoft.records import NamedTuple, dataclass

Shape = tuple[int, int]
"""(rows, columns)."""

DITHER_ROWS = 128
"""Luma rows after which the dither repeats; chroma's repeats after half of them."""
_DEAD_ZONE = 1 / 16
"""Part of a code value around whole ones that dithering leaves unchanged, for flat areas."""
HOLD_STEPS = {8: 256, 10: 128}
"""Largest ignored change of a cell by bit depth, in 16-bit full-scale steps: one 8-bit code value,
two of 10 bits."""

_MIN_SIGMA_CELLS = 1.25
_MIN_SIGMA_COARSE_CELLS = 2.25
"""Standard deviation of the blur in cells: large enough that bilinear enlargement is invisible (its
error is 1 / 8σ² of the local contrast), small enough for small kernels."""
_MIN_CHROMA_SIGMA_CELLS = 0.75
"""Smallest sigma of chroma cells, which are twice as large: the eye resolves colour less."""

_MIN_RADIUS_CELLS = 2.5
"""Smallest radius of discs on the grid; smaller ones take finer cells."""
_MAX_RADIUS_CELLS = 12.0
"""Largest radius in cells; larger discs take coarser ones. Their rim is within a sixth of it."""
_HIGHLIGHT_GAIN = 14.0
_SUPERSAMPLING = 16


def full_scale_shift(format: FrameFormat) -> int:
    """Return the left shift from stored samples to 16-bit full scale: 8 for NV12, 0 for P010."""
    return 8 if format.layout is PixelLayout.NV12 else 0


def black_and_neutral(format: FrameFormat) -> tuple[int, int]:
    """Return luma of black and neutral chroma, 16-bit full scale."""
    shift = full_scale_shift(format)
    return format.luma_range[0] << shift, format.chroma_neutral << shift


def dither_pattern(format: FrameFormat) -> NDArray[np.uint16]:
    """Return thresholds, which are added to enlarged cells before the fraction is cut off.

    Interleaved gradient noise: it looks like fine grain, without the checks of a Bayer matrix.
    J. Jimenez, "Next generation post processing in Call of Duty: Advanced Warfare", SIGGRAPH 2014.

    Returns:
        (DITHER_ROWS, W) uint16 from 1/16 to below 15/16 of a code value, mean about half a one.
        Chroma's pattern is its upper left part.
    """
    levels = 1 << (16 - format.bit_depth)
    y, x = np.arange(DITHER_ROWS)[:, np.newaxis], np.arange(format.width)
    noise = 0.06711056 * x + 0.00583715 * y
    noise -= np.floor(noise)
    noise *= 52.9829189
    noise -= np.floor(noise)
    pattern: NDArray[np.uint16] = (levels * (_DEAD_ZONE + (1 - 2 * _DEAD_ZONE) * noise)).astype(
        np.uint16
    )
    return pattern


def level_shapes(shape: Shape) -> list[Shape]:
    """Return the levels' shapes of a push-pull pyramid, finest first, down to 2×2 cells."""
    shapes = [shape]
    while max(shape) > 2:
        shape = (shape[0] + 1) // 2, (shape[1] + 1) // 2
        shapes.append(shape)
    return shapes


def level_table(shapes: Sequence[Shape]) -> tuple[list[int], int]:
    """Return the levels for kernels (``Level`` in ``background.cuh``), and their cell count."""
    numbers, end = [len(shapes)], 0
    for rows, columns in shapes:
        numbers += [rows, columns, end]
        end += rows * columns
    return numbers, end


class Source(IntEnum):
    """Source of a plane of cells; the numbers are those of ``picture.cu``."""

    CELLS = 0
    """The filled cells themselves."""
    COARSE = 1
    """Filled cells, averaged further."""
    GRID = 2
    """The analysis frame, people replaced by filled cells."""
    FRAME = 3
    """The frame, averaged, people replaced by filled cells."""


class PlanePlan(NamedTuple):
    """One plane of the picture without its people."""

    shape: Shape
    source: Source
    factor: int
    """Samples of the source per cell, each way."""
    fine: int
    """Cells per cell of the analysis frame, each way; 1 where cells are larger."""


@dataclass(frozen=True, slots=True)
class CellsPlan:
    """A background that is made on cells and enlarged bilinearly."""

    format: FrameFormat
    factor: int
    """Luma pixels per luma cell, each way, a power of two."""
    chroma_factor: int
    """Luma pixels per chroma cell, each way, a power of two, 2 or more."""

    @property
    def scales(self) -> tuple[int, int]:
        """The frame's samples per cell, each way, of luma and of chroma."""
        return self.factor, self.chroma_factor // 2

    @property
    def planes(self) -> tuple[PlanePlan, PlanePlan, PlanePlan]:
        """Luma, Cb and Cr."""
        chroma = self._plane(self.chroma_factor, samples=2)
        return self._plane(self.factor, samples=1), chroma, chroma

    @property
    def shapes(self) -> tuple[Shape, Shape, Shape]:
        """(rows, columns) of the planes."""
        luma, cb, cr = (plane.shape for plane in self.planes)
        return luma, cb, cr

    @property
    def offsets(self) -> tuple[int, int, int]:
        """Offsets of the planes in a buffer that holds them one after another."""
        luma, cb, _ = (rows * columns for rows, columns in self.shapes)
        return 0, luma, luma + cb

    @property
    def count(self) -> int:
        """Number of cells of all planes."""
        return sum(rows * columns for rows, columns in self.shapes)

    def _plane(self, edge: int, samples: int) -> PlanePlan:
        """Return a plane with cells of ``edge`` luma pixels; a sample covers ``samples``."""
        size = self.format.width, self.format.height
        grid = analysis_factor(*size)
        if edge >= 2 * grid:
            factor = edge // (2 * grid)
            source = Source.COARSE if factor > 1 else Source.CELLS
        elif edge == grid:
            source, factor = Source.GRID, 1
        else:
            source, factor = Source.FRAME, edge // samples
        return PlanePlan(analysis_shape(*size, edge), source, factor, max(grid // edge, 1))


class BlurPlan(NamedTuple):
    """The frame's own background, blurred by a Gaussian."""

    cells: CellsPlan
    sigmas: tuple[float, float]
    """Standard deviations for luma and chroma, cells."""

    @classmethod
    def of(cls, format: FrameFormat, sigma_px: float) -> Self:
        """Return the plan for a standard deviation in frame pixels, above 0."""
        grid = analysis_factor(format.width, format.height)
        factor = 1
        # Cells finer than the grid's cost more, coarser ones next to nothing.
        while sigma_px >= 2 * factor * (
            _MIN_SIGMA_CELLS if factor < grid else _MIN_SIGMA_COARSE_CELLS
        ):
            factor *= 2
        chroma_factor = max(2, factor)
        if factor <= grid and sigma_px >= _MIN_CHROMA_SIGMA_CELLS * 2 * factor:
            chroma_factor = 2 * factor
        sigmas = (
            _sigma_cells(sigma_px, factor, averages=factor > 1),
            _sigma_cells(sigma_px, chroma_factor, averages=chroma_factor > 2),
        )
        return cls(CellsPlan(format, factor, chroma_factor), sigmas)

    @property
    def reaches(self) -> tuple[int, int]:
        """Reach of the kernel to each side, for luma and chroma, cells."""
        luma, chroma = (math.ceil(3 * sigma) for sigma in self.sigmas)
        return luma, chroma


def _sigma_cells(sigma_px: float, cell: int, *, averages: bool) -> float:
    """Return the standard deviation of the kernel, in cells.

    The rest of the variance comes from averaging over a cell (1/12 cells²) and from bilinear
    enlargement (1/6).
    """
    variance = (sigma_px / cell) ** 2
    if averages:
        variance -= 1 / 4
    return math.sqrt(max(variance, 0.01))


class BokehPlan(NamedTuple):
    """The frame's own background, out of focus: points become discs, and highlights bloom."""

    cells: CellsPlan
    radii: tuple[float, float]
    """Radius of the disc for luma and chroma, cells."""
    black: float
    """Luma of black, 16-bit full scale."""
    span: float
    """Distance from black to white."""
    gain: float
    """Additional weight of white, see ``bokeh.cu``."""

    @classmethod
    def of(cls, format: FrameFormat, radius_px: float, highlights: float) -> Self:
        """Return the plan for a disc's radius (circle of confusion) in frame pixels, above 0.

        Args:
            format: Format of every frame.
            radius_px: The radius.
            highlights: How much highlights bloom, 0–1.
        """
        factor = analysis_factor(format.width, format.height)
        while factor > 1 and radius_px < _MIN_RADIUS_CELLS * factor:
            factor //= 2
        while radius_px > _MAX_RADIUS_CELLS * factor:
            factor *= 2
        cells = CellsPlan(format, factor, max(factor, 2))
        black, white = (float(sample << full_scale_shift(format)) for sample in format.luma_range)
        return cls(
            cells=cells,
            radii=(radius_px / factor, radius_px / cells.chroma_factor),
            black=black,
            span=white - black,
            gain=highlights * _HIGHLIGHT_GAIN,
        )


def disc_kernel(radius: float) -> NDArray[np.float32]:
    """Return a disc whose rim is anti-aliased by the covered share of each cell.

    Args:
        radius: Radius in cells, above 0.

    Returns:
        (n, n) float32, n odd, sum 1.
    """
    if radius <= 0.5:
        return np.ones((1, 1), np.float32)
    reach = int(np.ceil(radius - 0.5))
    side = 2 * reach + 1
    fine = (np.arange(side * _SUPERSAMPLING) + 0.5) / _SUPERSAMPLING - side / 2
    inside = fine[:, None] ** 2 + fine[None, :] ** 2 <= radius**2
    shares = inside.reshape(side, _SUPERSAMPLING, side, _SUPERSAMPLING).mean(axis=(1, 3))
    kernel: NDArray[np.float32] = (shares / shares.sum()).astype(np.float32)
    return kernel


class PixelatePlan(NamedTuple):
    """A mosaic of square blocks, aligned to the centre of the frame."""

    edge_px: int
    """Edge of a block, frame pixels. It is even, so that no chroma sample lies in two blocks, which
    would get coloured rims."""
    cells: CellsPlan
    """Cells that blocks are averaged from: the largest that divide them. Chroma cells are as
    large as those of luma."""
    top: int
    left: int
    """Cells of the first blocks above and left of the frame."""
    blocks: Shape

    @classmethod
    def of(cls, format: FrameFormat, length_px: float) -> Self:
        """Return the plan for the wanted edge of a block, frame pixels."""
        edge_px = max(2, 2 * round(length_px / 2))
        factor = min(edge_px & -edge_px, max(analysis_factor(format.width, format.height), 2))
        cells = CellsPlan(format, factor, factor)
        rows, columns = cells.shapes[0]
        per_block = edge_px // factor
        top = -(format.height // 2 // factor) % per_block
        left = -(format.width // 2 // factor) % per_block
        blocks = -(-(top + rows) // per_block), -(-(left + columns) // per_block)
        return cls(edge_px, cells, top, left, blocks)
