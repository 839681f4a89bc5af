"""Cells that are enlarged where they are blended, against OpenCV's bilinear resize."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from bgsoft.composite.background import CellsBackground, Hold
from bgsoft.composite.plan import CellsPlan, dither_pattern
from bgsoft.frame import PixelLayout
from bgsoft.ops.placement import HOST
from tests.marks import crossed
from tests.pictures import Array, cell_planes, flat_frame, frame_format, no_one, planes_behind


def enlarged(cells: Array, scale: int, shape: tuple[int, int]) -> Array:
    rows, columns = cells.shape
    size = columns * scale, rows * scale
    whole = cv2.resize(cells, size, interpolation=cv2.INTER_LINEAR)
    return whole[: shape[0], : shape[1]].astype(int)


@crossed(layout=[PixelLayout.NV12, PixelLayout.P010], factor=[1, 2, 4, 8, 16, 32, 64, 128, 256])
@pytest.mark.parametrize("size", [(641, 359), (256, 64), (130, 3), (1, 1)], ids=str)
def test_any_size_of_cells_is_enlarged(
    size: tuple[int, int], factor: int, layout: PixelLayout
) -> None:
    format = frame_format(size, layout)
    plan = CellsPlan(format, factor, max(2, factor))
    rng = np.random.default_rng(factor)
    made: list[Array] = []

    def make_filter(cells: Array):  # type: ignore[no-untyped-def]
        made.append(cells)
        return lambda *_: None

    background = CellsBackground(HOST, plan, Hold(HOST, plan), make_filter)
    made[0][:] = rng.integers(16 << 8, 235 << 8, made[0].shape)
    frame = flat_frame(format, 0, 0, 0)
    background.prepare(frame, no_one(format), None)  # type: ignore[arg-type]
    background.advance(frame)
    luma, chroma = planes_behind(background, format)

    pattern = dither_pattern(format).astype(int)
    down = 16 - format.bit_depth
    scales = plan.scales
    planes = (luma, chroma[..., 0], chroma[..., 1])
    for index, (cells, plane) in enumerate(zip(cell_planes(plan, made[0]), planes, strict=True)):
        rows, columns = plane.shape
        period = 64 if index else 128
        raised = enlarged(cells, scales[min(index, 1)], plane.shape)
        raised += pattern[np.arange(rows) % period][:, :columns]
        wanted = raised >> down
        found = plane.astype(int) >> format.shift
        # Rounding to 16 bits may differ where weights have more digits than a float holds.
        assert np.abs(found - wanted).max() <= 1
        assert (found != wanted).mean() < 0.002
