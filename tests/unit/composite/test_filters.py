"""The background after each effect."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from bgsoft.analysis.base import analysis_factor
from bgsoft.analysis.reduce import Reducer
from bgsoft.composite.effects import create_compositor
from bgsoft.composite.picture import FilledPicture
from bgsoft.composite.plan import (
    BlurPlan,
    BokehPlan,
    CellsPlan,
    PixelatePlan,
    disc_kernel,
    dither_pattern,
)
from bgsoft.frame import FrameFormat, PixelLayout
from bgsoft.ops.placement import HOST
from bgsoft.settings.config import EffectConfig, EffectKind
from tests.marks import crossed
from tests.pictures import (
    Array,
    cell_planes,
    composite,
    disc_mask,
    flat_frame,
    frame_format,
    make_frame,
    matte_from,
    no_one,
    random_frame,
)

LAYOUTS = (PixelLayout.NV12, PixelLayout.P010)


def spot_frame(format: FrameFormat, side: int) -> tuple[int, int, Array, Array]:
    """A bright square in the middle of a dark frame: (row, column, luma, chroma)."""
    frame = flat_frame(format, 16, 128, 128)
    y, x = format.height // 2, format.width // 2
    area = np.s_[y - side // 2 : y + side // 2, x - side // 2 : x + side // 2]
    frame.luma[area] = 235 << (2 if format.bit_depth == 10 else 0) << format.shift
    return y, x, frame.luma, frame.chroma


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sigma_px", [2.0, 3.0, 4.0, 6.0, 9.0, 14.0, 20.0, 30.0])
@pytest.mark.parametrize("size", [(480, 360), (900, 768)])
def test_strength_is_the_blurs_standard_deviation(
    size: tuple[int, int], sigma_px: float, layout: PixelLayout
) -> None:
    """At every level of detail, a blurred edge is the integral of a Gaussian of this width."""
    format = frame_format(size, layout)
    frame = flat_frame(format, 40, 128, 128)
    middle = format.width // 2
    frame.luma[:, middle:] = (200 * (4 if layout is PixelLayout.P010 else 1)) << format.shift
    strength = sigma_px * 100 / format.height
    result = composite(EffectConfig(strength=strength), frame, no_one(format))
    rows = result.luma.astype(float).mean(axis=0)
    low, high = float(frame.luma[0, 0]), float(frame.luma[0, -1])
    edge = (rows - low) / (high - low)
    slopes = np.diff(edge)
    positions = np.arange(1, format.width) - middle
    reach = np.abs(positions) < 5 * sigma_px  # the frame's border mirrors
    mean = (slopes * positions)[reach].sum()
    deviation = np.sqrt((slopes * (positions - mean) ** 2)[reach].sum())
    assert deviation == pytest.approx(sigma_px, rel=0.06, abs=0.1)
    assert abs(mean) < 0.5
    assert np.diff(edge).min() > -0.02


def test_blur_works_on_finer_cells_the_weaker_it_is() -> None:
    format = frame_format((1920, 1080))
    plans = [BlurPlan.of(format, sigma) for sigma in (0.5, 2.0, 3.0, 6.0, 27.0, 270.0)]
    assert [plan.cells.factor for plan in plans] == [1, 1, 2, 4, 8, 64]


def test_enlarged_blur_shows_no_blocks() -> None:
    """Steps between neighbours are no larger at the borders of cells."""
    format = frame_format((1040, 1024), PixelLayout.P010)
    _, _, luma, chroma = spot_frame(format, 200)
    result = composite(EffectConfig(strength=2.5), make_frame(format, luma, chroma), no_one(format))
    rows = result.luma[512].astype(float) / 64
    bend = np.abs(np.diff(rows, 2))
    # The second derivative of the blurred edge is at most 0.242 / σ² of its height.
    height, sigma = 219 * 4, 25.6
    assert bend.max() <= 0.242 / sigma**2 * height * 8 + 2


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_flat_gradient_is_dithered_not_banded(layout: PixelLayout) -> None:
    format = frame_format((640, 480), layout)
    ramp = np.linspace(60, 64, 640) * (4 if layout is PixelLayout.P010 else 1)
    noise = np.random.default_rng(0).random((480, 640))
    frame = flat_frame(format, 0, 128, 128)
    frame.luma[:] = np.floor(ramp + noise).astype(format.dtype) << format.shift
    result = composite(EffectConfig(strength=4), frame, no_one(format))
    code = (result.luma >> format.shift).astype(float)
    # Columns take every mean in between, not only whole code values.
    means = code[:, 40:-40].mean(axis=0)
    assert np.abs(means - ramp[40:-40]).max() < 0.35
    assert (np.abs(means - np.rint(means)) > 0.1).mean() > 0.5


def test_dither_is_unbiased_and_spares_whole_values() -> None:
    pattern = dither_pattern(frame_format((1920, 1080)))
    assert pattern.min() >= 16
    assert pattern.max() < 240
    assert pattern.mean() == pytest.approx(127.5, abs=1)


@pytest.mark.parametrize("radius", [0.3, 1.0, 2.5, 6.75, 16.0])
def test_disc_kernel_is_a_disc(radius: float) -> None:
    kernel = disc_kernel(radius)
    side = kernel.shape[0]
    assert side % 2 == 1
    assert kernel.sum() == pytest.approx(1, abs=1e-5)
    assert np.array_equal(kernel, kernel[::-1])
    assert np.array_equal(kernel, kernel.T)
    if radius < 1:
        return
    y, x = np.mgrid[:side, :side] - side // 2
    distance = np.hypot(y, x)
    inside = 1 / (np.pi * radius**2)
    assert np.abs(kernel[distance < radius - 0.71] - inside).max() <= 0.02 * inside
    assert (kernel[distance > radius + 0.71] == 0).all()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("radius_px", [6.0, 12.0, 25.0, 60.0])
def test_a_point_becomes_a_disc(radius_px: float, layout: PixelLayout) -> None:
    format = frame_format((700, 600), layout)
    y, x, luma, chroma = spot_frame(format, 2 * round(radius_px / 4))
    frame = make_frame(format, luma, chroma)
    strength = radius_px * 100 / format.height
    config = EffectConfig(kind=EffectKind.BOKEH, strength=strength, highlights=0)
    result = composite(config, frame, no_one(format))
    light = result.luma.astype(float) - result.luma[0, 0]
    ys, xs = np.mgrid[: format.height, : format.width] + 0.5
    distance = np.hypot(ys - y, xs - x)
    core = light[distance < radius_px * 0.6 - 2].mean()
    assert core > 0
    if radius_px > 10:
        assert light[distance < radius_px * 0.6].std() < 0.3 * core
    assert light[distance > radius_px * 1.25 + 6].max() <= 0.1 * core
    # Where it has fallen to half, the light covers the disc's area.
    area = (light > core / 2).sum()
    assert np.sqrt(area / np.pi) == pytest.approx(radius_px, rel=0.12, abs=1)


def test_highlights_bloom() -> None:
    format = frame_format((640, 480))
    _, _, luma, chroma = spot_frame(format, 8)
    frame = make_frame(format, luma, chroma)
    peaks = []
    for highlights in (0.0, 0.5, 1.0):
        config = EffectConfig(kind=EffectKind.BOKEH, strength=3, highlights=highlights)
        peaks.append(int(composite(config, frame, no_one(format)).luma.max()))
    assert 16 < peaks[0] < peaks[1] - 10 < peaks[2] - 20


def test_bokeh_cells_suit_the_disc() -> None:
    format = frame_format((1920, 1080))
    radii = (1.0, 6.0, 11.0, 27.0, 70.0, 270.0)
    factors = [BokehPlan.of(format, radius, 0).cells.factor for radius in radii]
    assert factors == [1, 2, 4, 4, 8, 32]


@pytest.mark.parametrize(("length", "edge"), [(0.1, 2), (2.9, 2), (3.1, 4), (32.4, 32), (33.1, 34)])
def test_blocks_have_even_edges(length: float, edge: int) -> None:
    assert PixelatePlan.of(frame_format((640, 360)), length).edge_px == edge


@crossed(layout=LAYOUTS, block=[2, 6, 8, 14, 32, 86], size=[(640, 360), (641, 359), (1038, 1026)])
def test_blocks_are_means_aligned_to_the_centre(
    size: tuple[int, int], block: int, layout: PixelLayout
) -> None:
    format = frame_format(size, layout)
    frame = random_frame(format, np.random.default_rng(block))
    config = EffectConfig(kind=EffectKind.PIXELATE, strength=block * 100 / format.height)
    result = composite(config, frame, no_one(format))
    code = 1 << format.shift
    # The centre is rounded down to whole cells of the reduction that blocks are averaged from.
    cell = 4 if block % 4 == 0 and min(size) >= 1024 else 2
    cy, cx = format.height // 2 // cell * cell, format.width // 2 // cell * cell
    seen = set()
    for y in range(cy - block, cy + block, block):
        for x in range(cx - block, cx + block, block):
            area = np.s_[y : y + block, x : x + block]
            values = np.unique(result.luma[area])
            assert len(values) == 1
            # Rounding in each reduction step shifts a mean by part of a code value.
            assert abs(float(values[0]) - frame.luma[area].mean()) <= 1.25 * code
            half = np.s_[y // 2 : (y + block) // 2, x // 2 : (x + block) // 2]
            for channel in range(2):
                values = np.unique(result.chroma[half][..., channel])
                assert len(values) == 1
                mean = frame.chroma[half][..., channel].mean()
                assert abs(float(values[0]) - mean) <= 1.25 * code
            seen.add(int(result.luma[y, x]))
    assert len(seen) > 1


@pytest.mark.parametrize("full_range", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("percent", [10.0, 60.0, 100.0])
def test_dim_moves_towards_black(percent: float, layout: PixelLayout, full_range: bool) -> None:
    format = frame_format((65, 47), layout, full_range=full_range)
    frame = random_frame(format, np.random.default_rng(1))
    config = EffectConfig(kind=EffectKind.DIM, strength=percent)
    result = composite(config, frame, no_one(format))
    keep = 1 - percent / 100
    black, neutral, code = format.luma_range[0], format.chroma_neutral, 1 << format.shift
    wanted = black + (frame.luma.astype(float) - black) * keep
    assert np.abs(result.luma - wanted).max() <= 0.51 * code
    wanted = neutral + (frame.chroma.astype(float) - neutral) * keep
    assert np.abs(result.chroma - wanted).max() <= 0.51 * code


@pytest.mark.parametrize("size", [(2, 2), (18, 2), (65, 47), (641, 359)])
def test_filled_picture_keeps_what_is_known_and_stays_in_range(size: tuple[int, int]) -> None:
    format = frame_format(size)
    frame = random_frame(format, np.random.default_rng(3))
    reduced = Reducer(format).reduce([frame])[0]
    grid = analysis_factor(*size)
    plan = CellsPlan(format, 2 * grid, 2 * grid)
    picture = FilledPicture(HOST, plan)
    people = no_one(format).reduced
    picture.update(frame, people, reduced)
    known = np.stack(cell_planes(plan, picture.buffer))
    people[:, people.shape[1] // 2 + 1 :] = 255
    picture.update(frame, people, reduced)
    planes = np.stack(cell_planes(plan, picture.buffer))
    away = people.shape[1] // 4
    assert np.array_equal(planes[..., :away], known[..., :away])
    assert not away or not np.array_equal(planes, known)
    assert (planes >= known.min(axis=(1, 2), keepdims=True)).all()
    assert (planes <= known.max(axis=(1, 2), keepdims=True)).all()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "kind",
    [EffectKind.BLUR, EffectKind.BOKEH, EffectKind.PIXELATE, EffectKind.DIM, EffectKind.COLOR],
)
def test_nothing_as_large_as_a_frame_is_allocated(kind: EffectKind, layout: PixelLayout) -> None:
    format = frame_format((1024, 768), layout)
    frame = random_frame(format, np.random.default_rng(0))
    matte = matte_from(format, disc_mask(format))
    reducer = Reducer(format)
    compositor = create_compositor(EffectConfig(kind=kind), format)
    compositor.apply([frame], [matte], [reducer.reduce([frame])[0]])
    tracemalloc.start()
    try:
        compositor.apply([frame], [matte], [reducer.reduce([frame])[0]])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # NumPy takes fixed buffers of some 100 to 200 kB to convert between types, 1.26 the most. Where
    # the background is replaced, samples of the edge are gathered, some rows at a time.
    assert peak < frame.luma.size / (1.5 if kind is EffectKind.COLOR else 3)
