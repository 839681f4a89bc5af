"""The soft matte as a whole."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from bgsoft.analysis.base import analysis_shape
from bgsoft.analysis.reduce import Reducer
from bgsoft.frame import Frame, Matte, PixelLayout
from bgsoft.matte.base import MatteStage
from bgsoft.settings.config import MatteConfig, Refine
from bgsoft.threads import LanePool
from tests.marks import crossed
from tests.mattes import matte_stage
from tests.unit.matte.scenes import Plane, blank_frame, discs, reduce

PERSON = (0.5, 0.55, 0.35)
ODD = (641, 359)


def run(
    mask: Plane,
    size: tuple[int, int] = ODD,
    frame: Frame | None = None,
    fine: bool = False,
    **settings: Any,
) -> Plane:
    frame = blank_frame(*size) if frame is None else frame
    stage = matte_stage(MatteConfig(**settings), frame.format, fine=fine)
    return stage.refine([mask], [frame], [reduce(frame)])[0].alpha.copy()


@crossed(
    size=[(1, 1), (2, 3), (64, 64), ODD, (1027, 579), (360, 640)],
    mask_shape=[(256, 256), (144, 256)],
    layout=list(PixelLayout),
    fine=[False, True],
)
def test_any_size_gives_flat_mattes_for_flat_masks(
    size: tuple[int, int], mask_shape: tuple[int, int], layout: PixelLayout, fine: bool
) -> None:
    rng = np.random.default_rng(1)
    frame = blank_frame(*size, luma=rng.integers(16, 236, size[::-1]), layout=layout)
    config = MatteConfig(expand_pct=1, feather_pct=2)
    stage = matte_stage(config, frame.format, fine=fine)
    for value in (0.0, 1.0):
        stage.reset()
        matte = stage.refine([np.full(mask_shape, value, np.float32)], [frame], [reduce(frame)])[0]
        assert matte.alpha is frame.planes.alpha
        assert matte.alpha.dtype == matte.reduced.dtype == np.uint8
        assert matte.reduced.shape == analysis_shape(*size)
        assert np.all(matte.alpha == round(255 * value))
        assert np.all(matte.reduced == round(255 * value))


def ellipse(shape: tuple[int, int], shrink_px: float = 0.0) -> Plane:
    """The disc PERSON of a 256×256 mask in a frame: (H, W) bool."""
    height, width = shape
    y, x = np.mgrid[0:height, 0:width]
    dx, dy = (x + 0.5) / width - PERSON[0], (y + 0.5) / height - PERSON[1]
    radii = PERSON[2] - shrink_px / width, PERSON[2] - shrink_px / height
    return np.hypot(dx / radii[0], dy / radii[1]) < 1.0


@crossed(refine=list(Refine), size=[ODD, (1280, 720), (1027, 579), (333, 700)], fine=[False, True])
def test_the_matte_lies_where_the_mask_does(
    refine: Refine, size: tuple[int, int], fine: bool
) -> None:
    alpha = run(discs((256, 256), PERSON), size, refine=refine, fine=fine)
    truth = ellipse(alpha.shape)
    found = alpha > 127
    assert np.count_nonzero(found != truth) < 0.006 * np.count_nonzero(truth)
    # No drift: the edges' displacement has no direction.
    for axis in (0, 1):
        centre = np.average(np.arange(alpha.shape[axis]), weights=found.sum(axis=1 - axis))
        expected = np.average(np.arange(alpha.shape[axis]), weights=truth.sum(axis=1 - axis))
        assert abs(centre - expected) < 0.35


@pytest.mark.parametrize("refine", list(Refine))
@pytest.mark.parametrize("fine", [False, True])
def test_inside_is_255_and_outside_is_0(refine: Refine, fine: bool) -> None:
    rng = np.random.default_rng(2)
    noisy = blank_frame(1280, 720, luma=rng.integers(16, 236, (720, 1280)))
    alpha = run(discs((256, 256), PERSON), frame=noisy, refine=refine, fine=fine)
    assert np.all(alpha[ellipse(alpha.shape, 30)] == 255)
    assert np.all(alpha[~ellipse(alpha.shape, -30)] == 0)


def test_one_overflow_of_the_model_does_not_stay() -> None:
    frame = blank_frame(*ODD)
    stage = matte_stage(MatteConfig(), frame.format)
    for value, code in ((np.nan, 0), (1.0, 255)):
        mask = np.full((256, 256), value, np.float32)
        assert np.all(stage.refine([mask], [frame], [reduce(frame)])[0].alpha == code)


def test_guided_moves_the_edge_to_the_picture() -> None:
    """The mask's edge is 4 pixels away from a strong edge; refining reduces the distance."""
    height, width = 359, 641
    luma = np.where(np.arange(width) < 320, 60, 190)[None, :].repeat(height, axis=0)
    frame = blank_frame(width, height, luma=luma)
    x = (np.arange(256) + 0.5) * width / 256
    mask = np.clip(0.5 - (x - 324) / 20, 0, 1).astype(np.float32)[None, :].repeat(256, axis=0)
    error = {}
    truth = np.arange(width) < 320
    for refine in Refine:
        alpha = run(mask, frame=frame, refine=refine, min_area=0, smooth=0)[height // 2]
        error[refine] = np.abs(alpha / 255 - truth).sum()
    assert error[Refine.GUIDED] < 0.8 * error[Refine.NONE]


def test_a_fine_edge_is_as_wide_as_the_pictures() -> None:
    """Over another background, clothes get a hard edge, and hair keeps single strands."""
    height, width = 720, 1280
    x, y = np.arange(width), np.arange(height)[:, None]
    strands = (np.abs(x - 632) < 20) & (y % 12 < 3)
    truth = (x < 620) | (strands & (y < 300))
    frame = blank_frame(width, height, luma=np.where(truth, 60, 190))
    at = (np.arange(256) + 0.5) * width / 256
    mask = np.clip(0.5 - (at - 620) / 20, 0, 1).astype(np.float32)[None, :].repeat(256, axis=0)
    coarse, fine = (run(mask, frame=frame, fine=fine) / 255 for fine in (False, True))
    flat = np.s_[400:700]
    widths = [((alpha > 0.05) & (alpha < 0.95))[flat].sum() / 300 for alpha in (coarse, fine)]
    assert widths[1] <= 1 < 3 <= widths[0]
    errors = [np.abs(alpha - truth)[20:280].mean() for alpha in (coarse, fine)]
    assert errors[1] < 0.9 * errors[0]


def test_a_fine_edge_is_that_of_the_matte_on_the_grid_too() -> None:
    frame = blank_frame(*ODD)
    config = MatteConfig(expand_pct=0.5, feather_pct=3)
    stage = matte_stage(config, frame.format, fine=True)
    matte = stage.refine([discs((256, 256), PERSON)], [frame], [reduce(frame)])[0]
    padded = np.pad(matte.alpha.astype(float), ((0, 1), (0, 1)), mode="edge")
    cells = padded.reshape(180, 2, 321, 2).mean(axis=(1, 3))
    assert np.abs(matte.reduced - cells).max() <= 1


def test_a_second_person_stays() -> None:
    alpha = run(discs((256, 256), (0.3, 0.5, 0.2), (0.75, 0.6, 0.08)))
    assert alpha[int(0.5 * 359), int(0.3 * 641)] == 255
    assert alpha[int(0.6 * 359), int(0.75 * 641)] == 255


def with_hole(value: float) -> Plane:
    """The person with a small hole, as between arm and body, in which the mask has a value."""
    hole = discs((256, 256), (0.5, 0.55, 0.025))
    return np.asarray(discs((256, 256), PERSON) * (1 - hole * (1 - value)), np.float32)


@crossed(
    size=[ODD, (1027, 579), (360, 640)], threshold=[None, 0.4, 0.5, 0.6], softness=[0.0, 0.5, 1.0]
)
def test_a_small_hole_stays_only_where_the_model_is_sure(
    size: tuple[int, int], threshold: float | None, softness: float
) -> None:
    def at_hole(value: float) -> int:
        settings = {"threshold": threshold, "softness": softness, "refine": Refine.NONE}
        alpha = run(with_hole(value), size, min_area=0.005, **settings)
        return int(alpha[int(0.55 * size[1]), size[0] // 2])

    assert at_hole(0.0) < 60
    assert at_hole(0.6 * (threshold or 0.5)) < 127
    assert at_hole(0.9 * (threshold or 0.5)) == 255


def test_a_gap_opens_and_closes_with_what_the_model_sees() -> None:
    """The previous frame has no influence."""
    frame = blank_frame(*ODD)
    stage = matte_stage(MatteConfig(temporal=0, min_area=0.005), frame.format)
    values = (0.0, 0.45, 0.45, 0.1, 0.45)
    alphas = [
        int(stage.refine([with_hole(value)], [frame], [reduce(frame)])[0].alpha[197, 320])
        for value in values
    ]
    assert [alpha > 127 for alpha in alphas] == [False, True, True, False, True]


def test_expansion_grows_with_its_amount() -> None:
    mask = discs((256, 256), PERSON)
    amounts = (-5.0, -1.3, -0.4, 0.0, 0.3, 0.31, 1.0, 2.5, 5.0)
    alphas = [run(mask, (1280, 720), expand_pct=amount).astype(int) for amount in amounts]
    for smaller, larger in itertools.pairwise(alphas):
        assert np.all(larger >= smaller)
        assert larger.sum() > smaller.sum()


@pytest.mark.parametrize("amount", [-4.0, 1.0, 4.0])
def test_expansion_moves_the_edge_by_its_share_of_the_height(amount: float) -> None:
    mask = discs((256, 256), PERSON)
    # Upwards from the middle: the number of opaque pixels in the column is twice the radius.
    plain = (run(mask, (1280, 720)) / 255.0)[:, 640].sum()
    moved = (run(mask, (1280, 720), expand_pct=amount) / 255.0)[:, 640].sum()
    # Two edges, 7.2 pixels a percent; the lower one may be cut by the frame.
    assert (moved - plain) / 2 == pytest.approx(7.2 * amount, abs=1.0)


@pytest.mark.parametrize("amount", [0.1, 0.7, 2.0, 10.0])
@pytest.mark.parametrize("size", [ODD, (1280, 720)])
def test_feather_only_adds_outside(amount: float, size: tuple[int, int]) -> None:
    mask = discs((256, 256), PERSON)
    plain = run(mask, size)
    soft = run(mask, size, feather_pct=amount)
    assert np.all(soft >= plain)
    assert np.any(soft > plain)
    # The rim ends where it should, give or take the edge's own width.
    reach = amount * size[1] / 100.0 * max(1.0, size[0] / size[1])
    assert np.all(soft[~ellipse(soft.shape, -reach - 30)] == 0)


@pytest.mark.parametrize("fine", [False, True])
def test_hold_repeats_the_matte_while_the_picture_stands_still(fine: bool) -> None:
    rng = np.random.default_rng(4)
    luma = rng.integers(40, 200, (720, 1280))
    stage = matte_stage(MatteConfig(), blank_frame(1280, 720).format, fine=fine)
    frame = blank_frame(1280, 720, luma=luma)
    first = stage.refine([discs((256, 256), PERSON)], [frame], [reduce(frame)])[0]
    assert not first.held
    expected = first.alpha.copy()
    later = blank_frame(1280, 720, luma=luma)
    held = stage.refine([None], [later], [reduce(later)])[0]
    assert held.held
    assert np.array_equal(held.alpha, expected)


@pytest.mark.parametrize("fine", [False, True])
def test_hold_fits_the_old_mask_to_a_moved_picture(fine: bool) -> None:
    def scene(edge: int) -> Frame:
        luma = np.where(np.arange(641) < edge, 60, 190)[None, :].repeat(359, axis=0)
        return blank_frame(641, 359, luma=luma)

    x = (np.arange(256) + 0.5) * 641 / 256
    mask = np.clip(0.5 - (x - 320) / 20, 0, 1).astype(np.float32)[None, :].repeat(256, axis=0)
    first, second = scene(320), scene(324)
    stage = matte_stage(MatteConfig(), first.format, fine=fine)
    before = stage.refine([mask], [first], [reduce(first)])[0].alpha.astype(int)
    after = stage.refine([None], [second], [reduce(second)])[0].alpha.astype(int)
    assert after.sum() > before.sum()


def test_there_must_be_a_mask_to_hold() -> None:
    frame = blank_frame(64, 64)
    stage = matte_stage(MatteConfig(), frame.format)
    with pytest.raises(ValueError, match="cannot hold the last mask"):
        stage.refine([None], [frame], [reduce(frame)])
    stage.refine([np.ones((256, 256), np.float32)], [frame], [reduce(frame)])
    stage.reset()
    with pytest.raises(ValueError, match="cannot hold the last mask"):
        stage.refine([None], [frame], [reduce(frame)])


def test_reset_forgets() -> None:
    rng = np.random.default_rng(5)
    frame = blank_frame(*ODD)
    masks = [
        np.clip(discs((256, 256), PERSON) + rng.normal(0, 0.05, (256, 256)), 0, 1).astype(
            np.float32
        )
        for _ in range(3)
    ]

    def last(stage: MatteStage, count: int, reset: bool) -> Plane:
        result: Matte | None = None
        for mask in masks[-count:]:
            if reset:
                stage.reset()
            result = stage.refine([mask], [frame], [reduce(frame)])[0]
        assert result is not None
        return result.alpha.copy()

    def fresh() -> MatteStage:
        return matte_stage(MatteConfig(temporal=0.9), frame.format)

    assert np.array_equal(last(fresh(), 3, reset=True), last(fresh(), 1, reset=False))
    assert not np.array_equal(last(fresh(), 3, reset=False), last(fresh(), 1, reset=False))


def test_a_person_who_leaves_leaves_no_ghost() -> None:
    frame = blank_frame(*ODD)
    stage = matte_stage(MatteConfig(temporal=1.0), frame.format)
    for _ in range(5):
        stage.refine([discs((256, 256), PERSON)], [frame], [reduce(frame)])
    empty = np.zeros((256, 256), np.float32)
    assert not stage.refine([empty], [frame], [reduce(frame)])[0].alpha.any()


@pytest.mark.parametrize("fine", [False, True])
def test_the_number_of_workers_changes_nothing(fine: bool) -> None:
    """Even for held masks, where frames of one batch need each other."""
    rng = np.random.default_rng(7)
    pictures = [rng.integers(40, 200, ODD[::-1]) for _ in range(3)]
    masks: list[Plane | None] = [
        discs((256, 256), PERSON, (0.9, 0.1, radius))
        for radius in (0.09, 0.11, 0.12, 0.085, 0.11, 0)
    ]
    masks[2:2] = [None, None]

    def mattes(lanes: int, size: int) -> list[Plane]:
        with LanePool(lanes) as pool:
            frames = [blank_frame(*ODD, luma=pictures[index // 3]) for index in range(len(masks))]
            config = MatteConfig(min_area=0.03)
            stage = matte_stage(config, frames[0].format, pool, batch=size, fine=fine)
            for start in range(0, len(frames), size):
                batch = frames[start : start + size]
                grids = Reducer(batch[0].format, pool, batch=size).reduce(batch)
                stage.refine(masks[start : start + size], batch, grids)
        return [frame.planes.alpha for frame in frames]

    alone = mattes(1, 1)
    assert [alpha[36, 577] for alpha in alone] == [0, 255, 255, 255, 255, 0, 255, 0]
    for lanes, size in ((3, 3), (8, 8), (1, 3), (1, 8), (2, 5)):
        np.testing.assert_array_equal(mattes(lanes, size), alone)


@pytest.mark.parametrize("fine", [False, True])
def test_ten_bits_give_the_matte_of_eight(fine: bool) -> None:
    rng = np.random.default_rng(6)
    luma = rng.integers(16, 236, (239, 427))  # as large as its grid: ten bits keep fractions
    mask = discs((256, 256), PERSON)
    eight, ten = (
        run(mask, frame=blank_frame(427, 239, luma=luma, layout=layout), fine=fine)
        for layout in (PixelLayout.NV12, PixelLayout.P010)
    )
    assert np.array_equal(eight, ten)


def test_results_go_to_the_same_arrays_every_time() -> None:
    """OpenCV must have used every ``dst`` it was given, so nothing is allocated."""
    frame = blank_frame(1280, 720)
    stage = matte_stage(MatteConfig(expand_pct=0.7, feather_pct=1), frame.format)
    mask = discs((256, 256), PERSON)
    given = (mask, np.zeros_like(mask), mask, np.zeros_like(mask))
    planes = [stage.refine([each], [frame], [reduce(frame)])[0].reduced for each in given]
    assert planes[0] is planes[2]
    assert planes[1] is planes[3]
    assert not planes[3].any()


def test_a_fine_edge_is_steady_where_the_picture_stands_still() -> None:
    def changes(temporal: float, brighter: int) -> int:
        """Largest share of another mask that opacity follows when the picture changes so."""
        config = MatteConfig(temporal=temporal, threshold=None, smooth=0, min_area=0)
        first, second = blank_frame(640, 480), blank_frame(640, 480)
        second.luma[:] += np.uint8(brighter)
        stage = matte_stage(config, first.format, fine=True)
        alphas = []
        for frame, opacity in ((first, 0.5), (second, 0.6)):
            mask = np.full((480, 640), opacity, np.float32)
            matte = stage.refine([mask], [frame], [reduce(frame)])[0]
            alphas.append(matte.alpha.astype(int))
        return int(np.abs(alphas[1] - alphas[0]).max())

    moved = changes(0.7, 20)
    assert moved >= 25
    assert moved == changes(0, 0)
    # The mask is smoothed first: its step of 26 codes becomes 8, of which the edge follows 2.
    assert changes(0.7, 0) <= 3
