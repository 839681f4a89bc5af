from __future__ import annotations

from collections.abc import Callable
from functools import cache

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from bgsoft.analysis.base import REACH
from bgsoft.analysis.reduce import Reducer
from bgsoft.analysis.scenes import THUMB_SHAPE, LumaProbe, SceneCutDetector
from bgsoft.frame import AnalysisFrame, FrameFormat, PixelLayout
from tests.marks import slow
from tests.pictures import random_frame

Picture = NDArray[np.float32]

HEIGHT, WIDTH = 144, 256


@cache
def room(seed: int = 2) -> Picture:
    """Soft and hard shapes, in [0.1, 0.8]."""
    rng = np.random.default_rng(seed)
    coarse = rng.uniform(0.1, 0.8, (9, 16)).astype(np.float32)
    soft = cv2.resize(coarse, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC)
    hard = np.kron(rng.uniform(-0.1, 0.1, (12, 16)), np.ones((12, 16))).astype(np.float32)
    return np.clip(soft + hard, 0.1, 0.8)


def with_person(background: Picture, seed: int, x: float = 0.0, raised: float = 0.0) -> Picture:
    """Somebody in the middle, moved by a share of the width; a hand raised by one of the height."""
    rng = np.random.default_rng(seed)
    picture = background.copy()
    skin, hair, *shirt = rng.uniform(0.0, 1.0, 8)
    wide, head = rng.integers(22, 34), rng.integers(42, 60)
    at = round(WIDTH * (0.5 + x) + rng.normal(0, 12))
    cv2.ellipse(picture, (at, HEIGHT), (2 * wide, HEIGHT - head - 16), 0, 0, 360, shirt[0], -1)
    for stripe, tone in enumerate(shirt[1:]):
        y = head + 34 + 14 * stripe
        cv2.rectangle(picture, (at - wide, y), (at + wide, y + 9), tone, -1)
    cv2.ellipse(picture, (at, head), (wide - 6, 24), 0, 0, 360, skin, -1)
    cv2.ellipse(picture, (at, head - 18), (wide - 5, 10), 0, 0, 360, hair, -1)
    cv2.circle(picture, (at + 40, round(HEIGHT * (0.9 - raised))), 9, skin, -1)
    return picture


def seen(picture: Picture, grain: int = 0) -> Picture:
    """The thumbnail, with a little grain."""
    rng = np.random.default_rng(grain)
    noisy = picture + rng.normal(0, 0.01, picture.shape).astype(np.float32)
    return cv2.resize(noisy, THUMB_SHAPE[::-1], interpolation=cv2.INTER_AREA)


def cuts(picture_at: Callable[[int], Picture], frames: int = 60) -> list[int]:
    detector = SceneCutDetector()
    return [i for i in range(frames) if detector.update(seen(picture_at(i), i))]


@pytest.mark.parametrize("at", [1, 4, 25])
@pytest.mark.parametrize("seed", [*range(3), *map(slow, range(3, 8))])
def test_a_cut_between_rooms_is_found_at_its_frame(seed: int, at: int) -> None:
    assert cuts(lambda i: room(seed if i < at else 50 + seed)) == [at]


@pytest.mark.parametrize("seed", [*range(3), *map(slow, range(3, 8))])
def test_a_cut_to_somebody_else_in_the_same_room_is_found(seed: int) -> None:
    def picture(index: int) -> Picture:
        sway = 0.02 * np.sin(index / 6)
        return with_person(room(), seed if index < 25 else 50 + seed, sway, 0.3 + sway)

    assert cuts(picture) == [25]


@pytest.mark.parametrize("seed", [*range(3), *map(slow, range(3, 8))])
def test_cuts_are_found_among_moving_hands_in_the_dark(seed: int) -> None:
    def picture(index: int) -> Picture:
        raised = 0.4 * abs(np.sin(index / 5))
        whole = with_person(room(), seed if index < 25 else 50 + seed, 0.0, raised)
        return 0.06 + 0.3 * whole

    assert cuts(picture) == [25]


@pytest.mark.parametrize("speed", [1, 4, 8, 16])
def test_a_camera_that_begins_to_move_is_no_cut(speed: int) -> None:
    wide = np.concatenate([room(seed) for seed in range(6)], axis=1)

    def picture(index: int) -> Picture:
        x = speed * min(max(0, index - 20), 5 * WIDTH // speed)
        return wide[:, x : x + WIDTH]

    assert not cuts(picture)


def test_a_shaken_camera_is_no_cut() -> None:
    rng = np.random.default_rng(3)
    shakes = rng.integers(-8, 9, (60, 2))
    wide = cv2.copyMakeBorder(room(), 8, 8, 8, 8, cv2.BORDER_REFLECT)

    def picture(index: int) -> Picture:
        y, x = shakes[index] + 8 if index % 10 > 6 else (8, 8)
        return wide[y : y + HEIGHT, x : x + WIDTH]

    assert not cuts(picture)


@pytest.mark.parametrize("jump", [0.02, 0.05])
def test_somebody_who_starts_to_move_is_no_cut(jump: float) -> None:
    def picture(index: int) -> Picture:
        t = max(0, index - 20)
        return with_person(room(), 1, 0.3 * np.sin(t * jump), min(0.6, 6 * jump * t))

    assert not cuts(picture)


@pytest.mark.parametrize(
    "light",
    [
        lambda picture, i: np.clip(picture * 1.3 + 0.25, 0, 1) if i % 2 else picture,
        lambda picture, i: np.clip(picture * 1.3 + 0.25, 0, 1) if i == 30 else picture,
        lambda picture, i: picture * np.float32(0.5 if i >= 30 else 1),
        lambda picture, i: picture * np.float32(1 + 0.3 * np.sin(i / 2)),
        lambda picture, i: picture * np.float32(max(0, 1 - i / 12)),
        lambda picture, i: (
            picture * np.linspace(1.7, 1, WIDTH, dtype=np.float32) if i >= 30 else picture
        ),
    ],
    ids=["strobe", "flash", "lamp off", "autoexposure", "fade to black", "lamp on at one side"],
)
def test_other_light_is_no_cut(light: Callable[[Picture, int], Picture]) -> None:
    assert not cuts(lambda i: light(with_person(room(), 1), i))


def test_a_slow_dissolve_is_no_cut() -> None:
    a, b = room(4), room(6)
    assert not cuts(lambda i: a + (b - a) * np.float32(min(1.0, i / 30)))


@pytest.mark.parametrize("light", [0.0, 1.0])
@pytest.mark.parametrize("between", [1, 3, 7])
def test_another_picture_after_black_or_white_frames_is_a_cut(between: int, light: float) -> None:
    def picture(index: int) -> Picture:
        flat = 25 <= index < 25 + between
        shown = with_person(room(), 1 if index < 25 else 51)
        return np.full_like(shown, light) if flat else shown

    assert cuts(picture)[-1] == 25 + between


def test_another_picture_that_fades_in_from_black_is_a_cut() -> None:
    def picture(index: int) -> Picture:
        fade = np.interp(index, [20, 29, 31, 40], [1, 0, 0, 1])
        return np.float32(fade) * with_person(room(), 1 if index < 30 else 51)

    (at,) = cuts(picture)
    assert 30 < at < 40


@pytest.mark.parametrize("between", [1, 7])
def test_the_same_picture_after_white_frames_is_no_cut(between: int) -> None:
    """Motion after them does not add up to one."""

    def picture(index: int) -> Picture:
        zoom = 1 + 0.005 * max(0, index - 25)
        shown = cv2.warpAffine(
            with_person(room(), 1, raised=0.01 * index),
            np.array([[zoom, 0, (1 - zoom) * WIDTH / 2], [0, zoom, (1 - zoom) * HEIGHT / 2]]),
            (WIDTH, HEIGHT),
        ).astype(np.float32)
        return np.ones_like(shown) if 25 <= index < 25 + between else shown

    assert cuts(picture) == []


def test_decisions_depend_on_so_many_frames_and_no_more() -> None:
    # The second cut comes so soon after the first that it does not stand out from it.
    first, second = 21, 21 + REACH - 1
    pictures = [seen(room((i >= first) + (i >= second)), i) for i in range(60)]

    def found(start: int) -> list[int]:
        detector = SceneCutDetector()
        return [i for i in range(start, 60) if detector.update(pictures[i])]

    assert found(0) == [first]
    assert found(second - REACH) == [first]
    assert found(second - REACH + 1) == [second]


def test_thumbnails_may_be_overwritten() -> None:
    kept, fresh, thumb = SceneCutDetector(), SceneCutDetector(), np.empty(THUMB_SHAPE, np.float32)
    for index in range(30):
        now = seen(with_person(room(), 1 if index < 20 else 2), index)
        np.copyto(thumb, now)
        assert kept.update(thumb) == fresh.update(now.copy()) == (index == 20)


def test_a_jump_to_where_both_pictures_show_the_same_is_no_cut() -> None:
    wide = np.concatenate([seen(room(seed)) for seed in (1, 2)], axis=1)
    last = wide[:, 10 : 10 + THUMB_SHAPE[1]]
    for x in (-8, -3, 0, 5, 8):
        moved = wide[:, 10 + x : 10 + x + THUMB_SHAPE[1]]
        detector = SceneCutDetector()
        assert not any(detector.update(moved if i >= 20 else last) for i in range(30))


def reduced(value: int, dtype: str) -> AnalysisFrame:
    return AnalysisFrame(1, np.full((108, 192), value, dtype), np.zeros((54, 96, 2), dtype))


@pytest.mark.parametrize("layout", list(PixelLayout))
@pytest.mark.parametrize("size", [(480, 300), (1280, 720), (1001, 1027), (1920, 1080)])
def test_thumbnails_are_means(size: tuple[int, int], layout: PixelLayout) -> None:
    format = FrameFormat(width=size[0], height=size[1], layout=layout)
    peak = float(((1 << format.bit_depth) - 1) << format.shift)
    rng = np.random.default_rng(1)
    grids = Reducer(format, batch=3).reduce([random_frame(format, rng) for _ in range(3)])
    probe = LumaProbe(format, batch=3)
    probe.cuts(grids)
    for thumb, grid in zip(probe.thumbs, grids, strict=True):
        mean = cv2.resize(grid.luma, THUMB_SHAPE[::-1], interpolation=cv2.INTER_AREA)
        np.testing.assert_array_equal(thumb, mean * np.float32(1 / peak))


def test_similarity_is_psnr_in_either_depth() -> None:
    for layout, scale in ((PixelLayout.NV12, 1), (PixelLayout.P010, 256)):
        format = FrameFormat(width=192, height=108, layout=layout)
        probe = LumaProbe(format)
        assert not probe.is_similar(reduced(100 * scale, format.dtype), 35)
        probe.keep(reduced(100 * scale, format.dtype))
        assert probe.is_similar(reduced(100 * scale, format.dtype), 99)
        # An offset of one 8-bit code is 48.1 dB, of ten is 28.1 dB.
        assert probe.is_similar(reduced(101 * scale, format.dtype), 45)
        assert not probe.is_similar(reduced(110 * scale, format.dtype), 35)
