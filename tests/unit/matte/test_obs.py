"""The obs matte against a plain implementation of the same steps."""

from __future__ import annotations

import itertools
from typing import Any

import cv2
import numpy as np
import pytest

from bgsoft.analysis.base import analysis_shape
from bgsoft.settings.config import MatteConfig, MatteStyle
from tests.mattes import matte_stage
from tests.unit.matte.scenes import Plane, blank_frame, discs, reduce

MASK = (64, 64)
SIZE = (90, 52)


def stack_weights(radius: int) -> Plane:
    """The triangle that a stack blur weighs with."""
    ramp = np.arange(1, radius + 2)
    return np.concatenate([ramp, ramp[-2::-1]]) / (radius + 1) ** 2


def separable(plane: Plane, weights: Plane) -> Plane:
    """Rows and columns weighted, borders repeated, in double precision."""
    radius = len(weights) // 2
    result = plane.astype(np.float64)
    for axis in (0, 1):
        pad = [(radius, radius) if a == axis else (0, 0) for a in (0, 1)]
        padded = np.pad(result, pad, mode="edge")
        result = sum(
            weight * np.take(padded, range(start, start + plane.shape[axis]), axis)
            for start, weight in enumerate(weights)
        )
    return result


def morph(plane: Plane, times: int, grow: bool) -> Plane:
    """3×3 dilation or erosion, some times over; nothing counts beyond the border."""
    for _ in range(times):
        padded = np.pad(plane, 1, constant_values=0 if grow else 255)
        windows = [
            padded[dy : dy + plane.shape[0], dx : dx + plane.shape[1]]
            for dy, dx in itertools.product(range(3), repeat=2)
        ]
        plane = (np.max if grow else np.min)(windows, axis=0)
    return plane


def outside_fill(background: Plane, share: float) -> Plane:
    """Fill the outer contours of all non-zero samples whose area is above the share.

    The contour runs through the centres of the border's samples; its area is the shoelace's.
    """
    height, width = background.shape
    # A sample is inside an outer contour if no path over zeros leads to it from the border.
    walls = np.pad(background > 0, 1)
    outside = np.zeros_like(walls)
    stack = [(0, 0)]
    while stack:
        y, x = stack.pop()
        inside = 0 <= y < height + 2 and 0 <= x < width + 2
        if not inside or outside[y, x] or walls[y, x]:
            continue
        outside[y, x] = True
        stack += [(y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)]
    filled = ~outside[1:-1, 1:-1]
    result = np.zeros_like(background)
    for y0, x0 in zip(*np.nonzero(filled), strict=True):
        if result[y0, x0] or not filled[y0, x0]:
            continue
        component, stack = [], [(y0, x0)]
        while stack:
            y, x = stack.pop()
            if 0 <= y < height and 0 <= x < width and filled[y, x]:
                filled[y, x] = False
                component.append((y, x))
                stack += [(y + a, x + b) for a, b in itertools.product((-1, 0, 1), repeat=2)]
        points = np.array(component)
        # A region without thin parts: polygon area by Pick's theorem from its samples.
        inner = np.zeros((height + 2, width + 2), bool)
        inner[points[:, 0] + 1, points[:, 1] + 1] = True
        quads = inner[:-1, :-1].astype(int) + inner[1:, :-1] + inner[:-1, 1:] + inner[1:, 1:]
        area = np.count_nonzero(quads == 4) + 0.5 * np.count_nonzero(quads == 3)
        if area > share * height * width:
            result[points[:, 0], points[:, 1]] = 255
    return result


def reference(masks: list[Plane], config: MatteConfig, size: tuple[int, int]) -> Plane:
    width, height = size
    threshold = config.threshold
    factor = 1 - config.temporal
    smoothing = 0 < factor < 1
    last = None
    for mask in masks:
        person = np.rint(np.clip(mask.astype(np.float64), 0, 1) * 255)
        if threshold is None:
            background = 255 - person
        else:
            background = np.where(person < int(threshold * 255), 255.0, 0.0)
        if smoothing and last is not None:
            share = factor if threshold is None else max(factor, threshold)
            background = np.rint(share * background + (1 - share) * last)
        last = background
    plane = background.astype(np.uint8)
    if threshold is not None:
        if 0 < config.min_area < 1:
            plane = outside_fill(plane, config.min_area)
        if config.smooth > 0:
            side = int(3 + 11 * config.smooth)
            side += side % 2 == 0
            plane = np.floor(separable(plane, stack_weights(side // 2)) + 0.5).astype(np.uint8)
    plane = cv2.resize(plane, (width, height), interpolation=cv2.INTER_LINEAR)
    if threshold is not None:
        if config.smooth > 0:
            plane = np.where(plane > 128, 255, 0).astype(np.uint8)
        pixels = round(config.expand_pct * height / 100)
        plane = morph(plane, abs(pixels), grow=pixels < 0)
        if config.feather_pct > 0:
            side = int(config.feather_pct * height / 100)
            side += side % 2 == 0
            plane = morph(plane, side // 3, grow=True)
            padded = np.pad(plane.astype(np.float64), side // 2, mode="reflect")
            plane = np.mean(
                [
                    padded[dy : dy + height, dx : dx + width]
                    for dy, dx in itertools.product(range(side), repeat=2)
                ],
                axis=0,
            )
    return 255 - np.asarray(plane, np.float64)


def config(**settings: Any) -> MatteConfig:
    plain = {"min_area": 0.0, "smooth": 0.0, "temporal": 0.0}
    return MatteConfig(style=MatteStyle.OBS, **{**plain, **settings})


def matte(masks: list[Plane], settings: MatteConfig, size: tuple[int, int] = SIZE) -> Plane:
    frame = blank_frame(*size)
    stage = matte_stage(settings, frame.format)
    for mask in masks:
        result = stage.refine([mask], [frame], [reduce(frame)])[0]
    assert result.alpha is frame.planes.alpha
    assert result.reduced.shape == analysis_shape(*size)
    return result.alpha.copy()


SCENE = discs(MASK, (0.45, 0.6, 0.3), (0.85, 0.3, 0.1), ramp=5.0)
MOVED = discs(MASK, (0.5, 0.6, 0.3), (0.85, 0.3, 0.1), ramp=5.0)
STEPS: list[dict[str, Any]] = [
    {"threshold": None},
    {"threshold": 0.5},
    {"threshold": 0.0},
    {"threshold": 1.0},
    {"threshold": 0.3, "temporal": 0.15},
    {"threshold": 0.3, "temporal": 0.6},
    {"threshold": None, "temporal": 0.6},
    {"temporal": 1.0},
    {"min_area": 0.05},
    {"min_area": 0.05, "temporal": 0.15},
    {"smooth": 0.2},
    {"smooth": 0.5},
    {"expand_pct": 4.0},
    {"expand_pct": -4.0},
    {"feather_pct": 5.0},
    {"feather_pct": 10.0},
    {"feather_pct": 8.0, "expand_pct": 2.0},
    {"min_area": 0.05, "smooth": 0.5, "temporal": 0.15, "expand_pct": 2, "feather_pct": 6.0},
]


@pytest.mark.parametrize("settings", STEPS, ids=str)
@pytest.mark.parametrize("size", [SIZE, (64, 64), (641, 359)])
def test_each_step_against_the_reference(settings: dict[str, Any], size: tuple[int, int]) -> None:
    if size == (641, 359) and "feather_pct" in settings:
        size = (161, 89)  # the plain box filter is slow
    chosen = config(**settings)
    expected = reference([SCENE, MOVED], chosen, size)
    found = matte([SCENE, MOVED], chosen, size).astype(np.float64)
    difference = np.abs(found - expected)
    # Half a step of rounding; blurred contours are cut at 128, where one step decides, so a few
    # samples may fall on the other side.
    assert np.count_nonzero(difference > 1.0) <= 0.002 * found.size


@pytest.mark.parametrize("share", [0.01, 0.05, 0.1])
def test_small_contours_of_background_go(share: float) -> None:
    mask = 1 - discs(MASK, (0.3, 0.4, 0.15), (0.8, 0.7, 0.09), ramp=2.0)
    chosen = config(min_area=share)
    found = matte([mask], chosen, MASK)
    assert np.array_equal(found, reference([mask], chosen, MASK))
    # The two discs cover 7.1 % and 2.5 %.
    assert (found[26, 19] == 0) == (share < 0.07)
    assert (found[45, 51] == 0) == (share < 0.025)


def test_every_step_changes_something() -> None:
    """Otherwise the comparison would miss a step that both omit."""
    plain = matte([SCENE, MOVED], config())
    for settings in STEPS:
        if settings in ({"threshold": 0.5}, {"temporal": 1.0}, {"min_area": 0.05}):
            continue
        assert not np.array_equal(matte([SCENE, MOVED], config(**settings)), plain), settings


def test_the_known_faults_are_there() -> None:
    """As in the original, filtering contours removes enclosed people."""
    assert matte([SCENE], config()).any()
    enclosed = discs(MASK, (0.5, 0.5, 0.2))
    assert matte([enclosed], config()).any()
    assert not matte([enclosed], config(min_area=0.05)).any()
    touching = discs(MASK, (0.5, 0.9, 0.4))
    assert matte([touching], config(min_area=0.05)).any()


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("size", [(1, 1), (641, 359), (1027, 579)])
def test_flat_masks(value: float, size: tuple[int, int]) -> None:
    flat = np.full((144, 256), value, np.float32)
    settings = config(min_area=0.05, smooth=0.5, temporal=0.15)
    assert np.all(matte([flat, flat], settings, size) == round(255 * value))


def test_hold_and_reset() -> None:
    frame = blank_frame(*SIZE)
    stage = matte_stage(config(temporal=0.5, threshold=0.2), frame.format)
    first = stage.refine([SCENE], [frame], [reduce(frame)])[0].alpha.copy()
    frame.planes.alpha[:] = 3
    held = stage.refine([None], [frame], [reduce(frame)])[0]
    assert held.held
    assert np.array_equal(held.alpha, first)
    mixed = stage.refine([MOVED], [frame], [reduce(frame)])[0].alpha.copy()
    stage.reset()
    with pytest.raises(ValueError, match="cannot hold the last mask"):
        stage.refine([None], [frame], [reduce(frame)])
    alone = stage.refine([MOVED], [frame], [reduce(frame)])[0].alpha
    assert not np.array_equal(alone, mixed)
    assert np.array_equal(alone, matte([MOVED], config(temporal=0.5, threshold=0.2)))
