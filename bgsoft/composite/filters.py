"""Backgrounds made of the frame's own picture: blurred, out of focus, in blocks; of people's."""

from __future__ import annotations

from functools import partial
from itertools import chain

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.base import analysis_shape
from bgsoft.composite.background import RUN, Background, CellFilter
from bgsoft.composite.picture import FilledPicture
from bgsoft.composite.plan import (
    HIGHLIGHT_POWER,
    BlurPlan,
    BokehPlan,
    CellsPlan,
    PixelatePlan,
    black_and_neutral,
    disc_kernel,
)
from bgsoft.frame import AnalysisFrame, Array, Frame, Matte
from bgsoft.ops.sides import HOST, Side

Floats = NDArray[np.float32]

_FULL_SCALE = 65536.0
_RUN = 64
"""RUN of ``blur.cu``."""
_BLUR_BLOCK = (32, 8, 1)
_MAX_REACH = 15
"""Cells to each side that ``blur.cu`` has room for."""
_DISC_BLOCK = (32, 4, 1)
_DISC_OUTPUTS = 4
"""Rows that a thread of ``bokeh.cu`` averages."""
_FLOAT4_BYTES = 16


class BlurFilter:
    """The frame's own background, blurred; writes ``cells``."""

    def __init__(self, side: Side, plan: BlurPlan, cells: Array) -> None:
        self._picture = picture = FilledPicture(side, plan.cells)
        shapes = plan.cells.shapes
        luma, chroma = zip(plan.reaches, plan.sigmas, strict=True)
        numbers: list[int] = []
        taps: list[float] = []
        for shape, (reach, sigma), source, target in zip(
            shapes, (luma, chroma, chroma), picture.offsets, plan.cells.offsets, strict=True
        ):
            assert reach <= _MAX_REACH, f"a blur of {sigma} cells"
            numbers += [*shape, reach, len(taps), source, target]
            taps += cv2.getGaussianKernel(2 * reach + 1, sigma, cv2.CV_32F).ravel().tolist()
        rows, columns = (max(sides) for sides in zip(*shapes, strict=True))
        # A thread does as many rows of a square tile as it has of them.
        self._size = -(-rows * _BLUR_BLOCK[1] // _BLUR_BLOCK[0]), columns, len(shapes)
        reach, pitch = max(plan.reaches), columns + _RUN
        scratch = side.scratch((rows + 2 * reach + 1) * pitch + 2 * reach, np.float32)
        plans = side.array(numbers, np.int32), side.array(taps, np.float32)
        self._arguments = (*plans, picture.buffer, cells, scratch)
        self._blur = side.operation("blur", "blur_planes", block=_BLUR_BLOCK)

    def __call__(self, frame: Frame, matte: Matte, reduced: AnalysisFrame) -> None:
        self._picture.update(frame, matte.reduced, reduced)
        self._blur(self._size, *self._arguments)


class _DiscFilter:
    """Averages two planes at once over discs, in the frequency domain.

    That costs the same for any radius. The two planes travel as the real and the imaginary part;
    a disc is symmetric, so its spectrum is real and keeps them apart.
    """

    def __init__(self, shape: tuple[int, int], radius: float) -> None:
        kernel = disc_kernel(radius)
        self._reach = reach = kernel.shape[0] // 2
        rows, columns = (cv2.getOptimalDFTSize(side + 2 * reach) for side in shape)
        self._shape = shape
        spot = np.zeros((rows, columns), np.float32)
        spot[: kernel.shape[0], : kernel.shape[1]] = kernel
        spot = np.roll(spot, (-reach, -reach), axis=(0, 1))
        spectrum = cv2.dft(spot, flags=cv2.DFT_COMPLEX_OUTPUT)[..., :1]
        self._spectrum = np.repeat(spectrum, 2, axis=2)
        self._pair = np.empty((*shape, 2), np.float32)
        self._padded = np.empty((rows, columns, 2), np.float32)

    def average(self, first: Floats, second: Floats) -> None:
        """Average both planes, in place."""
        cv2.merge((first, second), self._pair)
        rows, columns = self._shape
        padded, reach = self._padded, self._reach
        below, right = padded.shape[0] - rows - reach, padded.shape[1] - columns - reach
        cv2.copyMakeBorder(self._pair, reach, below, reach, right, cv2.BORDER_REFLECT, dst=padded)
        cv2.dft(padded, dst=padded)
        np.multiply(padded, self._spectrum, out=padded)
        cv2.dft(padded, dst=padded, flags=cv2.DFT_INVERSE | cv2.DFT_SCALE)
        cv2.split(padded[reach : reach + rows, reach : reach + columns], (first, second))


class HostBokeh:
    """See :func:`bokeh_filter`; by transforms, which cost the same for any radius."""

    def __init__(self, plan: BokehPlan, cells: Array) -> None:
        self._targets = plan.cells.views(cells)
        self._picture = picture = FilledPicture(HOST, plan.cells)
        self._plan = plan
        shapes = luma_shape, chroma_shape, _ = plan.cells.shapes
        self._cells = plan.cells.views(picture.buffer, picture.offsets)
        luma_radius, chroma_radius = plan.radii
        self._luma_disc = self._chroma_disc = _DiscFilter(luma_shape, luma_radius)
        self._weighted = [np.empty(shape, np.float32) for shape in shapes]
        self._weight = self._chroma_weight = np.empty(luma_shape, np.float32)
        self._same_shape = plan.cells.factor > 1
        if not self._same_shape:
            self._chroma_disc = _DiscFilter(chroma_shape, chroma_radius)
            self._chroma_weight = np.empty(chroma_shape, np.float32)
            self._idle = np.zeros(chroma_shape, np.float32)

    def __call__(self, frame: Frame, matte: Matte, reduced: AnalysisFrame) -> None:
        self._picture.update(frame, matte.reduced, reduced)
        cells = self._cells
        luma, cb, cr = self._weighted
        weight, chroma_weight = self._weight, self._chroma_weight
        # weight ← 1 + gain · y^power
        np.subtract(cells[0], self._plan.black, out=weight)
        np.divide(weight, self._plan.span, out=weight)
        np.clip(weight, 0, 1, out=weight)
        cv2.pow(weight, HIGHLIGHT_POWER, dst=weight)
        np.multiply(weight, self._plan.gain, out=weight)
        np.add(weight, 1, out=weight)
        if not self._same_shape:
            size = chroma_weight.shape[::-1]
            cv2.resize(weight, size, dst=chroma_weight, interpolation=cv2.INTER_AREA)
        weights = (weight, chroma_weight, chroma_weight)
        for plane, cell, by in zip(self._weighted, cells, weights, strict=True):
            np.multiply(cell, by, out=plane)
        # Planes that are transformed together must be of like magnitude: rounding errors of the
        # larger one reach the smaller one. So the weight is brought to full scale too.
        np.multiply(weight, _FULL_SCALE, out=weight)
        self._chroma_disc.average(cb, cr)
        self._luma_disc.average(luma, weight)
        np.multiply(weight, 1 / _FULL_SCALE, out=weight)
        if not self._same_shape:
            self._chroma_disc.average(chroma_weight, self._idle)
        for plane, by, target in zip(self._weighted, weights, self._targets, strict=True):
            np.divide(plane, by, out=plane)
            np.add(plane, 0.5, out=target, casting="unsafe")


class DeviceBokeh:
    """See :func:`bokeh_filter`; the disc's cells are added up one by one, from shared memory.

    With at most 16 cells of radius that is a few microseconds' work.
    """

    def __init__(self, side: Side, plan: BokehPlan, cells: Array) -> None:
        self._picture = picture = FilledPicture(side, plan.cells)
        luma_shape, chroma_shape, _ = plan.cells.shapes
        luma, cb, cr = zip(picture.offsets, plan.cells.offsets, strict=True)
        # Planes of one size go together.
        together = [(luma_shape, plan.radii[0], (luma, cb, cr))]
        if plan.cells.factor == 1:
            together = [
                (luma_shape, plan.radii[0], (luma, luma, luma)),
                (chroma_shape, plan.radii[1], (cb, cr, cr)),
            ]
        columns, thread_rows, _ = _DISC_BLOCK
        self._launches = []
        for shape, radius, planes in together:
            weights = disc_kernel(radius)
            reach = weights.shape[0] // 2
            # Of each column, how many weights next to the middle one there are.
            half_heights = np.maximum(np.count_nonzero(weights[reach:], axis=0) - 1, 0)
            numbers = (*shape, reach, *luma_shape, luma[0], *chain(*zip(*planes, strict=True)))
            arrays = (numbers, np.int32), (weights, np.float32), (half_heights, np.int32)
            tile = (_DISC_OUTPUTS * thread_rows + 2 * reach) * (columns + 2 * reach)
            shared = {"block": _DISC_BLOCK, "shared_bytes": tile * _FLOAT4_BYTES}
            self._launches.append(
                partial(
                    side.operation("bokeh", "bokeh", **shared),
                    (-(-shape[0] // _DISC_OUTPUTS), shape[1]),
                    *(side.array(*each) for each in arrays),
                    *(picture.buffer, cells, plan.black, plan.span, plan.gain),
                )
            )

    def __call__(self, frame: Frame, matte: Matte, reduced: AnalysisFrame) -> None:
        self._picture.update(frame, matte.reduced, reduced)
        for launch in self._launches:
            launch()


def bokeh_filter(side: Side, plan: BokehPlan, cells: Array) -> CellFilter:
    """The frame's own background, out of focus like behind a lens; writes ``cells``."""
    return DeviceBokeh(side, plan, cells) if side.on_device else HostBokeh(plan, cells)


class CutoutFilter:
    """What a cut-out's colour planes hold where nothing is seen: nothing of the room.

    Players and editors that ignore alpha, and codecs that lose it, show these planes. So colour
    under alpha 0 is black, except next to the foreground: there its own colour runs on, filled in
    from where it is wholly opaque, and fades out. Scaling and chroma subsampling then find no edge
    at the edge. Writes ``cells``.
    """

    def __init__(self, side: Side, plan: CellsPlan, cells: Array) -> None:
        format, self._xp = plan.format, side.xp
        self._picture = picture = FilledPicture(side, plan, least_weight=0)
        grid = analysis_shape(format.width, format.height)
        self._room = side.xp.empty(grid, np.uint8)
        self._shape = plan.shapes[0]
        self._arguments = picture.buffer, cells, *self._shape
        self._more = *grid, *black_and_neutral(format)
        self._outline = side.operation("picture", "outline_cells")

    def __call__(self, frame: Frame, matte: Matte, reduced: AnalysisFrame) -> None:
        # What is filled in is the room, from the people.
        self._xp.invert(matte.reduced, out=self._room)
        self._picture.update(frame, self._room, reduced)
        self._outline(self._shape, *self._arguments, matte.reduced, *self._more)


class PixelateBackground(Background):
    """The frame's own background in blocks of one colour each, people filled in."""

    def __init__(self, side: Side, plan: PixelatePlan) -> None:
        self._picture = picture = FilledPicture(side, plan.cells)
        format, factor = plan.cells.format, plan.cells.factor
        rows, columns = plan.cells.shapes[0]
        block_columns = plan.blocks[1]
        blocks = side.xp.empty((3, *plan.blocks), format.dtype)
        sums = side.xp.empty((3, rows, block_columns), np.uint32)
        per_block = plan.edge_px // factor
        offsets = side.array(picture.offsets, np.int32)
        bits = 8 * format.bytes_per_sample
        self._launches = [
            partial(
                side.operation("pixelate", "pixelate_rows"),
                (rows, block_columns),
                *(picture.buffer, offsets, sums, rows, columns, block_columns),
                *(per_block, plan.left),
            ),
            partial(
                side.operation("pixelate", "pixelate_blocks", sample_bits=bits),
                plan.blocks,
                *(sums, blocks, rows, columns, *plan.blocks, per_block, plan.top, plan.left),
            ),
        ]
        places = (*plan.blocks, plan.edge_px, plan.top * factor)
        block_of = (np.arange(format.width + RUN) + plan.left * factor) // plan.edge_px
        super().__init__(
            "blend_blocks",
            side.array(places, np.int32),
            blocks,
            side.array(np.minimum(block_of, block_columns - 1), np.uint16),
        )

    def prepare(self, frame: Frame, matte: Matte, reduced: AnalysisFrame) -> None:
        self._picture.update(frame, matte.reduced, reduced)
        for launch in self._launches:
            launch()
