"""Backgrounds made from the frame itself: blur, bokeh, cut-out colour, mosaic."""

from __future__ import annotations

from functools import partial
from itertools import chain

import cv2
import numpy as np

from bgsoft.analysis.base import analysis_shape
from bgsoft.composite.background import RUN, Background
from bgsoft.composite.picture import FilledPicture
from bgsoft.composite.plan import (
    BlurPlan,
    BokehPlan,
    CellsPlan,
    PixelatePlan,
    black_and_neutral,
    disc_kernel,
)
from bgsoft.frame import AnalysisFrame, Array, Frame, Matte
from bgsoft.ops.placement import Placement

_RUN = 64
"""RUN of ``blur.cu``."""
_DISC_RUN = 16
"""RUN of ``bokeh.cu``."""


class BlurFilter:
    """The frame's own background, blurred; writes ``cells``."""

    def __init__(self, placement: Placement, plan: BlurPlan, cells: Array) -> None:
        self._picture = picture = FilledPicture(placement, plan.cells)
        shapes = plan.cells.shapes
        luma, chroma = zip(plan.reaches, plan.sigmas, strict=True)
        numbers: list[int] = []
        taps: list[float] = []
        room = 0
        for shape, (reach, sigma), source, target in zip(
            shapes, (luma, chroma, chroma), picture.offsets, plan.cells.offsets, strict=True
        ):
            pitch = -(-shape[1] // _RUN) * _RUN
            numbers += [*shape, reach, len(taps), source, target, room, pitch]
            taps += cv2.getGaussianKernel(2 * reach + 1, sigma, cv2.CV_32F).ravel().tolist()
            room += shape[0] * pitch
        rows, columns = (max(sides) for sides in zip(*shapes, strict=True))
        plans = placement.array(numbers, np.int32), placement.array(taps, np.float32)
        along = placement.xp.empty(room, np.float32)
        line = placement.scratch(columns + _RUN + 2 * max(plan.reaches), np.float32)
        size = rows, columns, len(shapes)
        along_rows, down = (
            placement.operation("blur", f"blur_{name}") for name in ("along", "down")
        )
        self._launches = (
            partial(along_rows, size, *plans, picture.buffer, along, line),
            partial(down, size, *plans, along, cells),
        )

    def __call__(self, frame: Frame, matte: Matte, reduced: AnalysisFrame) -> None:
        self._picture.update(frame, matte.reduced, reduced)
        for launch in self._launches:
            launch()


class BokehFilter:
    """The frame's own background, out of focus like behind a lens; writes ``cells``."""

    def __init__(self, placement: Placement, plan: BokehPlan, cells: Array) -> None:
        self._picture = picture = FilledPicture(placement, plan.cells)
        luma_shape, chroma_shape, _ = plan.cells.shapes
        luma, cb, cr = zip(picture.offsets, plan.cells.offsets, strict=True)
        # Planes of one size go together.
        together = [(luma_shape, plan.radii[0], 1, (luma, cb, cr))]
        if plan.cells.factor == 1:
            together = [
                (luma_shape, plan.radii[0], 1, (luma, luma, luma)),
                (chroma_shape, plan.radii[1], 2, (cb, cr, cr)),
            ]
        self._launches = []
        for shape, radius, scale, planes in together:
            weights = disc_kernel(radius)
            reach = weights.shape[0] // 2
            half_widths = np.maximum(np.count_nonzero(weights[:, reach:], axis=1) - 1, 0)
            padded = shape[0] + 2 * reach, shape[1] + 2 * reach
            weighted = placement.xp.zeros((padded[0] * padded[1] + _DISC_RUN, 4), np.float32)
            offsets = chain(*zip(*planes, strict=True))
            numbers = placement.array(
                (*shape, reach, *luma_shape, luma[0], scale, *offsets), np.int32
            )
            disc = placement.array(weights, np.float32), placement.array(half_widths, np.int32)
            self._launches += [
                partial(
                    placement.operation("bokeh", "bokeh_weigh"),
                    *(padded, numbers, picture.buffer, weighted, plan.black, plan.span, plan.gain),
                ),
                partial(
                    placement.operation("bokeh", "bokeh_average"),
                    *(shape, numbers, *disc, weighted, cells),
                ),
            ]

    def __call__(self, frame: Frame, matte: Matte, reduced: AnalysisFrame) -> None:
        self._picture.update(frame, matte.reduced, reduced)
        for launch in self._launches:
            launch()


class CutoutFilter:
    """Colour of a cut-out's transparent samples, without any of the room.

    Players and editors that ignore alpha, and codecs that lose it, show these samples. So colour
    under alpha 0 is black, except next to the foreground: there the colour of its opaque part is
    extended and fades out. Scaling and chroma subsampling then find no colour step at the edge.
    Writes ``cells``.
    """

    def __init__(self, placement: Placement, plan: CellsPlan, cells: Array) -> None:
        format, self._xp = plan.format, placement.xp
        self._picture = picture = FilledPicture(placement, plan, min_weight=0)
        grid = analysis_shape(format.width, format.height)
        self._room = placement.xp.empty(grid, np.uint8)
        self._shape = plan.shapes[0]
        self._arguments = picture.buffer, cells, *self._shape
        self._more = *grid, *black_and_neutral(format)
        self._outline = placement.operation("picture", "outline_cells")

    def __call__(self, frame: Frame, matte: Matte, reduced: AnalysisFrame) -> None:
        # The room is filled in from the people.
        self._xp.invert(matte.reduced, out=self._room)
        self._picture.update(frame, self._room, reduced)
        self._outline(self._shape, *self._arguments, matte.reduced, *self._more)


class PixelateBackground(Background):
    """The frame's own background in blocks of one colour each, people filled in."""

    def __init__(self, placement: Placement, plan: PixelatePlan) -> None:
        self._picture = picture = FilledPicture(placement, plan.cells)
        format, factor = plan.cells.format, plan.cells.factor
        rows, columns = plan.cells.shapes[0]
        block_columns = plan.blocks[1]
        blocks = placement.xp.empty((3, *plan.blocks), format.dtype)
        sums = placement.xp.empty((3, rows, block_columns), np.uint32)
        per_block = plan.edge_px // factor
        offsets = placement.array(picture.offsets, np.int32)
        bits = 8 * format.bytes_per_sample
        self._launches = [
            partial(
                placement.operation("pixelate", "pixelate_rows"),
                (rows, block_columns),
                *(picture.buffer, offsets, sums, rows, columns, block_columns),
                *(per_block, plan.left),
            ),
            partial(
                placement.operation("pixelate", "pixelate_blocks", sample_bits=bits),
                plan.blocks,
                *(sums, blocks, rows, columns, *plan.blocks, per_block, plan.top, plan.left),
            ),
        ]
        places = (*plan.blocks, plan.edge_px, plan.top * factor)
        block_of = (np.arange(format.width + RUN) + plan.left * factor) // plan.edge_px
        super().__init__(
            "blend_blocks",
            placement.array(places, np.int32),
            blocks,
            placement.array(np.minimum(block_of, block_columns - 1), np.uint16),
        )

    def prepare(self, frame: Frame, matte: Matte, reduced: AnalysisFrame) -> None:
        self._picture.update(frame, matte.reduced, reduced)
        for launch in self._launches:
            launch()
