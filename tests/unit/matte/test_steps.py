"""Each step of the soft matte on its own."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from bgsoft import ops
from bgsoft.analysis.base import analysis_factor, analysis_shape
from bgsoft.frame import FrameFormat
from bgsoft.matte.contour import (
    ContourSmoothing,
    Dilation,
    Feather,
    gaussian_weights,
    octagon_steps,
    octagons,
)
from bgsoft.matte.guided import EdgeFitter
from bgsoft.matte.islands import MAX_FRAMES, IslandFilter, MaskState, mask_scale
from bgsoft.matte.temporal import TemporalFilter
from bgsoft.ops.placement import HOST
from bgsoft.ops.resize import Resized
from bgsoft.settings.config import MatteConfig
from tests.marks import slow
from tests.unit.matte.scenes import Plane, discs

GRID = (270, 480)


def as_bytes(mask: Plane) -> Plane:
    return np.rint(mask * 255).astype(np.uint8)


# Threshold and temporal smoothing


class Smoother:
    def __init__(self, strength: float, **settings: Any) -> None:
        self._filter = TemporalFilter(HOST, MatteConfig(temporal=strength, **settings))
        self.last: MaskState | None = None
        self.opacity: Plane

    def apply(self, mask: Plane, luma: Plane) -> Plane:
        state = MaskState(HOST, GRID)
        state.allocate(mask.shape)
        self.opacity = np.full(mask.shape, 9, np.uint8)
        self._filter.apply(mask, luma, state, self.last, self.opacity)
        self.last = state
        return np.asarray(state.mask)


def opacity_of(mask: Plane, **settings: Any) -> Plane:
    smoother = Smoother(0.5, **settings)
    smoother.apply(mask, np.full(GRID, 90, np.uint8))
    return smoother.opacity


@pytest.mark.parametrize("threshold", [0.0, 0.2, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("softness", [0.0, 0.3, 1.0])
def test_threshold_follows_its_formula(threshold: float, softness: float) -> None:
    mask = np.linspace(0, 1, 1001, dtype=np.float32)[None, :].repeat(3, axis=0)
    out = opacity_of(mask, threshold=threshold, softness=softness)
    half = max(softness * min(threshold, 1 - threshold), 1 / 512)
    x = np.clip((mask.astype(np.float64) - threshold + half) / (2 * half), 0, 1)
    # Two roundings, of which the first is steepened by at most 1.5.
    assert np.abs(out - 255 * x * x * (3 - 2 * x)).max() <= 1.3
    assert np.all(out[x == 0] == 0)
    assert np.all(out[x == 1] == 255)


def test_no_threshold_takes_the_mask_as_it_is() -> None:
    mask = np.linspace(0, 1, 256, dtype=np.float32)[None, :].copy()
    assert np.array_equal(opacity_of(mask, threshold=None)[0], np.arange(256))


def noisy(mask: Plane, rng: np.random.Generator, amount: float) -> Plane:
    """Smooth noise where the mask is undecided, as models have it."""
    noise = rng.normal(0, 1, mask.shape)
    for axis in (0, 1):
        noise = sum(np.roll(noise, shift, axis) for shift in (-1, 0, 1)) / np.sqrt(3.0)
    values = mask + amount * noise * (1 - np.abs(2 * mask - 1))
    return np.clip(values, 0, 1).astype(np.float32)


def flicker(strength: float) -> float:
    """Mean change from frame to frame of a still, noisy scene, as a share of the input's."""
    rng = np.random.default_rng(7)
    mask = discs((256, 256), (0.5, 0.5, 0.3), ramp=8.0)
    smoother = Smoother(strength)
    outputs, inputs = [], []
    for _ in range(15):
        luma = np.rint(100 + 80 * discs(GRID, (0.5, 0.5, 0.3)) + rng.normal(0, 1.0, GRID))
        inputs.append(noisy(mask, rng, 0.15))
        outputs.append(smoother.apply(inputs[-1], luma.astype(np.uint8)))
    change = [np.abs(np.diff(np.array(each[5:]), axis=0)).mean() for each in (outputs, inputs)]
    return float(change[0] / change[1])


def test_flicker_falls_with_strength() -> None:
    assert flicker(0.0) == pytest.approx(1.0)
    values = [flicker(strength) for strength in (0.3, 0.5, 0.9)]
    assert all(larger > smaller for larger, smaller in itertools.pairwise(values))
    assert values[1] < 0.5
    assert values[2] < 0.15


def lag(strength: float, speed: float, contrast: float) -> float:
    """Frames by which a moving disc's smoothed mask trails; speed in mask samples a frame."""
    rng = np.random.default_rng(8)
    smoother = Smoother(strength)
    found = []
    for index in range(16):

        def at(step: float) -> tuple[float, float, float]:
            return (0.3 + speed * step / 256, 0.5, 0.2)

        mask = discs((256, 256), at(index), ramp=6.0)
        luma = 100 + contrast * mask + rng.normal(0, 1.0, mask.shape)
        state = smoother.apply(mask, np.rint(luma).astype(np.uint8))
        behind = discs((256, 256), at(index - 1), ramp=6.0) - mask
        found.append(float(((state - mask) * behind).sum() / (behind * behind).sum()))
    return float(np.mean(found[4:]))


@pytest.mark.parametrize("strength", [0.5, slow(0.9), 1.0])
def test_moving_edges_are_followed_at_once(strength: float) -> None:
    assert lag(strength, speed=1.0, contrast=60) < 0.15
    assert lag(strength, speed=3.0, contrast=60) < 0.02
    # Even where the picture shows nothing of it, the distance stays within a sample or so.
    for speed in (0.5, 1.0, 4.0):
        assert lag(strength, speed=speed, contrast=0) * speed < 1.4


def test_without_a_last_mask_the_next_is_taken_as_it_is() -> None:
    smoother = Smoother(0.9)
    luma = np.full(GRID, 90, np.uint8)
    smoother.apply(np.full((64, 64), 0.5, np.float32), luma)
    fresh = np.full((64, 64), 0.55, np.float32)
    smoothed = smoother.apply(fresh, luma)
    assert smoothed.max() < 0.52
    smoother.last = None
    assert np.array_equal(smoother.apply(fresh, luma), fresh)


# Geometry


def enlarge(plane: Plane, out: Plane) -> None:
    factor = analysis_factor(*out.shape[::-1])
    lines = np.empty(2 * plane.shape[1] * factor, np.uint16)
    launch = HOST.operation("matte", "enlarge_alpha")
    launch(out.shape, plane, out, factor.bit_length() - 1, *plane.shape, *out.shape, lines)


@pytest.mark.parametrize("size", [(1280, 720), (1027, 579), (641, 359), (333, 700)])
def test_planes_keep_their_place_between_sizes(size: tuple[int, int]) -> None:
    """Apart from the borders, a linear ramp stays the same ramp at every size."""
    fmt = FrameFormat(width=size[0], height=size[1])
    width = size[0]
    x = (np.arange(256) + 0.5) / 256
    mask = (250 * x).astype(np.float32)[None, :].repeat(256, axis=0)
    shape, factor = analysis_shape(*size), analysis_factor(*size)
    columns = shape[1]
    resized = Resized(HOST, shape, np.float32)
    grid = resized.arguments(mask, shape, scale=mask_scale(fmt, mask.shape))[0]
    cells = 250 * (np.arange(columns) + 0.5) * factor / width
    inner = slice(3, -3)
    assert np.allclose(grid[:, inner], cells[None, inner], atol=0.05)
    frame = np.empty((size[1], size[0]), np.uint8)
    enlarge(np.rint(grid).astype(np.uint8), frame)
    pixels = 250 * (np.arange(width) + 0.5) / width
    border = 4 * factor
    middle = slice(border, -border)
    assert np.abs(frame[:, middle] - pixels[None, middle]).max() <= 1.1


# Refinement


def slow_guided(alpha: Plane, guide: Plane, radius: int, epsilon: float, spacing: int) -> Plane:
    """The colour guided filter by its definition, one window at a time, in double precision.

    Args:
        alpha: (h, w).
        guide: (h, w, 3).
        radius: Window radius, in their spacing; borders are repeated.
        epsilon: As in the paper.
        spacing: Of windows; it divides both sides.

    Returns:
        (h / spacing, w / spacing, 4): the factors and constant averaged over windows.
    """
    height, width = (size // spacing for size in alpha.shape)
    pad = (2 * (radius * spacing,),) * 2
    padded_alpha = np.pad(alpha, pad, mode="edge")
    padded_guide = np.pad(guide, (*pad, (0, 0)), mode="edge")
    side = 2 * radius + 1
    result = np.empty((height, width, 4))
    for row, column in itertools.product(range(height), range(width)):
        window = tuple(slice(at * spacing, (at + side) * spacing) for at in (row, column))
        p = padded_alpha[window].ravel()
        i = padded_guide[window].reshape(-1, 3)
        sigma = np.cov(i.T, bias=True) + epsilon * np.eye(3)
        cov = (i * p[:, None]).mean(axis=0) - i.mean(axis=0) * p.mean()
        factors = np.linalg.solve(sigma, cov)
        result[row, column] = (*factors, p.mean() - factors @ i.mean(axis=0))
    padded = np.pad(result, ((radius, radius), (radius, radius), (0, 0)), mode="edge")
    mean = np.zeros_like(result)
    for dy, dx in itertools.product(range(side), range(side)):
        mean += padded[dy : dy + height, dx : dx + width] / side**2
    return mean


def doubled(plane: Plane) -> Plane:
    """Bilinear, the outermost cells repeated."""
    for axis in (0, 1):
        padded = np.pad(plane, [(1, 1) if a == axis else (0, 0) for a in (0, 1)], mode="edge")
        before, here, after = (
            np.take(padded, range(start, start + plane.shape[axis]), axis) for start in range(3)
        )
        pair = np.stack([here * 0.75 + before * 0.25, here * 0.75 + after * 0.25], axis + 1)
        shape = list(plane.shape)
        shape[axis] *= 2
        plane = pair.reshape(shape)
    return plane


def refine(alpha: Plane, luma: Plane, chroma: Plane, spacing: int = 1) -> Plane:
    out = np.full_like(alpha, 9)
    fitter = EdgeFitter(HOST, alpha.shape, chroma.shape[:2], spacing=spacing)
    fitter.apply(alpha, luma, chroma, out)
    return out


@pytest.mark.parametrize("spacing", [1, 2])
def test_refinement_is_the_guided_filter(spacing: int) -> None:
    rng = np.random.default_rng(9)
    rows, columns = 136, 140
    luma = rng.integers(0, 256, (rows, columns)).astype(np.uint8)
    chroma = rng.integers(0, 256, (rows // 2, columns // 2, 2)).astype(np.uint8)
    alpha = as_bytes(discs((rows, columns), (0.5, 0.5, 0.3)))
    refined = refine(alpha, luma, chroma, spacing)

    def halved(plane: Plane) -> Plane:
        blocks = plane.reshape(rows // 2, 2, columns // 2, 2).astype(np.float64)
        return np.floor(blocks.mean(axis=(1, 3)) + 0.5) / 255

    guide = np.dstack([halved(luma), chroma / 255.0])
    fits = slow_guided(halved(alpha), guide, radius=1, epsilon=5e-5, spacing=spacing)
    mean = fits if spacing == 1 else np.dstack([doubled(fits[..., i]) for i in range(4)])
    rest = mean[..., 3] + (mean[..., 1:3] * guide[..., 1:]).sum(axis=2)
    expected = doubled(mean[..., 0]) * luma + 255 * doubled(rest)
    slope = 2.0 if spacing == 1 else 1.5
    expected = np.clip(127.5 + slope * (expected - 127.5), 0, 255)
    assert np.abs(refined - expected).max() <= 1.0


def test_refinement_leaves_flat_planes_and_flat_pictures_alone() -> None:
    rng = np.random.default_rng(10)
    luma = rng.integers(0, 256, GRID).astype(np.uint8)
    chroma = rng.integers(0, 256, (*GRID, 2)).astype(np.uint8)
    for value in (0, 255):
        alpha = np.full(GRID, value, np.uint8)
        assert np.all(refine(alpha, luma, chroma) == value)


# Islands


class Islands:
    """The island filter on planes of the grid's own size."""

    def __init__(self, shape: tuple[int, int], min_area: float) -> None:
        format = FrameFormat(width=shape[1], height=shape[0])
        self._filter = IslandFilter(HOST, format, MatteConfig(min_area=min_area))
        self._state = MaskState(HOST, shape)

    def apply(self, alpha: Plane) -> None:
        """Clean a plane in place, in which no hole is sure."""
        self._state.mask = np.ones(alpha.shape, np.float32)
        self._filter.apply([alpha], [self._state])
        alpha[:] = self._state.opacity


def test_a_device_has_room_for_as_many_frames() -> None:
    source = Path(ops.__file__).with_name("components.cu").read_text(encoding="utf-8")
    assert f"#define MAX_FRAMES {MAX_FRAMES}\n" in source


def test_islands_go_and_holes_close_but_large_ones_stay() -> None:
    person = discs(GRID, (0.4, 0.55, 0.3), (0.8, 0.6, 0.1))
    holes = discs(GRID, (0.36, 0.55, 0.02), (0.44, 0.6, 0.1))
    speck = discs(GRID, (0.1, 0.2, 0.03))
    alpha = as_bytes(np.clip(np.maximum(person - holes, speck), 0, 1))
    before = alpha.copy()
    Islands(GRID, 0.005).apply(alpha)
    row = [int(0.55 * 270), int(0.6 * 270)]
    assert alpha[54, 48] == 0
    assert not alpha[30:80, 20:80].any()
    assert before[row[0], int(0.36 * 480)] == 0
    assert alpha[row[0], int(0.36 * 480)] == 255
    assert alpha[row[1], int(0.44 * 480)] == 0
    assert alpha[row[1], int(0.8 * 480)] == 255
    # The soft edges of what stays are as they were.
    edge = discs(GRID, (0.4, 0.55, 0.32)) - discs(GRID, (0.4, 0.55, 0.28)) > 0.99
    assert np.array_equal(alpha[edge], before[edge])


def test_haze_far_from_anyone_goes() -> None:
    alpha = as_bytes(np.maximum(discs(GRID, (0.3, 0.5, 0.2)), 0.3 * discs(GRID, (0.8, 0.5, 0.2))))
    Islands(GRID, 0.001).apply(alpha)
    assert not alpha[:, 300:].any()


@pytest.mark.parametrize("shape", [(1, 1), (3, 2), (1, 40), (239, 427)])
def test_alpha_is_kept_within_enlarged_limits(shape: tuple[int, int]) -> None:
    rng, half = np.random.default_rng(5), tuple(-(-side // 2) for side in shape)
    alpha = rng.integers(0, 256, shape, np.uint8)
    most, rest = rng.integers(0, 256, (2, *half), np.uint8)
    most[: half[0] // 3] = rest[:, : half[1] // 2] = 0
    size = 2 * half[1], 2 * half[0]
    upper, lower = (cv2.resize(each, size)[: shape[0], : shape[1]] for each in (most, rest))
    expected = np.maximum(np.minimum(alpha, upper), 255 - lower)
    room = np.zeros(4 * half[1], np.uint16)
    HOST.operation("matte", "limit_alpha")(shape, alpha, most, rest, *shape, room)
    assert np.array_equal(alpha, expected)


@pytest.mark.parametrize("shape", [(1, 1), (3, 2), (239, 427)])
@pytest.mark.parametrize("value", [0, 255])
def test_flat_planes_stay_flat(shape: tuple[int, int], value: int) -> None:
    alpha = np.full(shape, value, np.uint8)
    Islands(shape, 0.01).apply(alpha)
    assert np.all(alpha == value)


# Contour


def test_smoothing_rounds_notches_and_keeps_the_edge_narrow() -> None:
    x = np.arange(480)
    # Teeth of 4 cells on a horizontal edge.
    level = 135 + 2 * ((x // 2) % 2)
    rows = np.arange(270)[:, None]
    alpha = as_bytes(np.clip((rows - level[None, :]) / 3 + 0.5, 0, 1))
    smooth = np.empty_like(alpha)
    ContourSmoothing(HOST, GRID, 1.0).apply(alpha, smooth)
    ragged = np.ptp((alpha > 127).sum(axis=0))
    assert np.ptp((smooth > 127).sum(axis=0)) < ragged
    width = np.count_nonzero((smooth[:, 100] > 0) & (smooth[:, 100] < 255))
    assert width <= 12
    assert np.all(smooth[:120] == 0)
    assert np.all(smooth[150:] == 255)


def move(plane: Plane, cells: float, kind: type[Dilation | Feather] = Dilation) -> Plane:
    out = np.full_like(plane, 9)
    kind(HOST, plane.shape, cells).apply(plane, out)
    return out


def slow_shift(alpha: Plane, cells: float) -> Plane:
    """Grey dilation by the largest value within a distance."""
    height, width = alpha.shape
    reach = int(np.ceil(cells))
    padded = np.pad(alpha, reach)
    result = alpha.copy()
    for dy, dx in itertools.product(range(-reach, reach + 1), repeat=2):
        if np.hypot(dx, dy) <= cells + 1e-9:
            window = padded[reach + dy : reach + dy + height, reach + dx : reach + dx + width]
            result = np.maximum(result, window)
    return result


@pytest.mark.parametrize("cells", [1.0, 3.0, 6.0])
def test_shift_is_nearly_a_dilation_by_a_disc(cells: float) -> None:
    alpha = as_bytes(discs((90, 120), (0.5, 0.5, 0.2), ramp=4.0))
    shifted = move(alpha, cells)
    assert np.all(slow_shift(alpha, cells - 0.5) <= slow_shift(shifted, 0.75))
    assert np.all(shifted <= slow_shift(alpha, cells * 1.12 + 0.5))
    assert abs(int((shifted > 127).sum()) - int((slow_shift(alpha, cells) > 127).sum())) < (
        0.06 * (shifted > 127).sum()
    )


@pytest.mark.parametrize("cells", [0.5, 3.0, 7.2])
def test_all_steps_in_one_window_are_the_steps_one_by_one(cells: float) -> None:
    """The device uses each row's half-width in the window, for whole steps and one more."""
    for extra, spans in enumerate(octagons(octagon_steps(int(cells) + 1))):
        point = np.zeros((41, 41), np.uint8)
        point[20, 20] = 255
        point = move(point, float(int(cells) + extra))
        reach = len(spans) // 2
        rows = point[20 - reach : 21 + reach]
        assert np.array_equal((rows > 0).sum(axis=1), np.maximum(2 * spans + 1, 0))
        assert point.sum() == rows.sum()


@pytest.mark.parametrize("sigma", [0.3, 0.6, 2.4, 5.6])
def test_weights_are_those_of_opencv(sigma: float) -> None:
    """The device blurs with these weights."""
    radius = max(1, int(np.ceil(2.5 * sigma)))
    plane = np.random.default_rng(3).integers(0, 256, (33, 47)).astype(np.uint8)
    blurred = cv2.GaussianBlur(plane, (2 * radius + 1,) * 2, sigma, borderType=cv2.BORDER_REPLICATE)
    sums = np.pad(plane, radius, mode="edge").astype(int)
    weights = gaussian_weights(radius, sigma)
    for axis in (0, 1):
        sums = np.apply_along_axis(np.convolve, axis, sums, weights, "valid")
    assert np.array_equal(blurred, sums + 32768 >> 16)


def test_inwards_is_outwards_of_the_background() -> None:
    alpha = as_bytes(discs((90, 120), (0.5, 0.5, 0.3)))
    inwards = move(alpha, -2.4)
    background = move(255 - alpha, 2.4)
    assert np.abs(inwards.astype(int) - (255 - background.astype(int))).max() <= 1


@pytest.mark.parametrize("cells", [0.5, 3.0, 9.0, 25.0])
def test_feather_falls_smoothly_to_nothing(cells: float) -> None:
    alpha = np.zeros(GRID, np.uint8)
    alpha[:, :200] = 255
    before, alpha = alpha, move(alpha, cells, Feather)
    profile = alpha[135].astype(int)
    assert np.all(alpha >= before)
    assert np.all(np.diff(profile) <= 0)
    assert np.all(profile[: 200 + int(cells * 0.2)] >= 200)
    assert np.all(profile[204 + int(np.ceil(1.1 * cells)) :] == 0)
    if cells >= 3:
        # The half-way value lies near the middle of the rim, and no step is abrupt.
        assert np.count_nonzero(profile > 127) - 200 == pytest.approx(cells / 2, abs=1.5)
        assert np.abs(np.diff(profile[201:])).max() < 3.2 * 255 / cells + 1


@pytest.mark.parametrize("size", [(1920, 1080), (1279, 719), (1024, 768)])
@pytest.mark.parametrize("place", ["nowhere", "everywhere", "corner", "middle", "edge"])
def test_enlarging_a_part_is_enlarging_the_whole(size: tuple[int, int], place: str) -> None:
    format = FrameFormat(width=size[0], height=size[1])
    factor = analysis_factor(*size)
    rows, columns = analysis_shape(*size)
    plane = np.zeros((rows, columns), np.uint8)
    rng = np.random.default_rng(8)
    y, x = {
        "nowhere": (slice(0), slice(0)),
        "everywhere": (slice(None), slice(None)),
        "corner": (slice(0, 9), slice(0, 5)),
        "middle": (slice(40, 90), slice(60, 61)),
        "edge": (slice(100, None), slice(50, None)),
    }[place]
    plane[y, x] = rng.integers(1, 256, plane[y, x].shape)
    out = np.full(format.luma_shape, 77, np.uint8)
    enlarge(plane, out)
    whole = cv2.resize(plane, (columns * factor, rows * factor), interpolation=cv2.INTER_LINEAR)
    np.testing.assert_array_equal(out, whole[: size[1], : size[0]])
