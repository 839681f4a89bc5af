"""Whole and close passes: when they run, how they count, and that batches change nothing."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import bgsoft
from bgsoft.analysis.base import analysis_factor, analysis_shape
from bgsoft.analysis.reduce import Reducer
from bgsoft.errors import ConfigError
from bgsoft.frame import Frame, FrameFormat, PixelLayout
from bgsoft.infer.loading import NetworkLoader
from bgsoft.models.catalog import resolve
from bgsoft.segment.planes import ZoomPlanes
from bgsoft.segment.schedule import (
    CELL,
    GENERAL,
    LANDSCAPE,
    MOVED,
    STILL,
    BlendWeights,
    Box,
    Cells,
    PassScheduler,
    WholePass,
    cell_shape,
    find_box,
    tiles,
)
from bgsoft.segment.sides import HostSide
from bgsoft.settings.config import MatteQuality
from bgsoft.workers import Workers
from tests.marks import crossed, slow
from tests.pictures import frame_format, frame_of, random_frame
from tests.rendering import read_back

SAMPLE = Path(__file__).parents[3] / "samples" / "person.mp4"
GRID = (160, 240)
CELLS = cell_shape(GRID)


def cells(value: float = 0.0) -> Cells:
    return np.full(CELLS, value, np.float32)


def weight(whole: WholePass, luma: Cells, limits: tuple[float, float]) -> Cells:
    """How much a whole pass counts in a picture."""
    share = (MOVED - np.abs(luma - whole.luma)) / (MOVED - STILL)
    return np.clip(share, *limits).astype(np.float32)


def person(rows: slice = slice(10, 30), columns: slice = slice(20, 40)) -> Cells:
    mask = cells()
    mask[rows, columns] = 1
    return mask


def begun() -> PassScheduler:
    """After the first frame."""
    scheduler = PassScheduler(GRID)
    scheduler.add_pass(GENERAL, 0, cells(100.0), person())
    scheduler.add_pass(LANDSCAPE, 0, cells(100.0), person())
    scheduler.next(0, cells(100.0))
    return scheduler


def test_whole_passes_take_turns() -> None:
    scheduler = PassScheduler(GRID)
    both, first, second = (GENERAL, LANDSCAPE), (GENERAL,), (LANDSCAPE,)
    due = scheduler.due(range(13))
    assert due == [both, *[()] * 3, first, *[()] * 3, second, *[()] * 3, first]
    # By places in the video, wherever a scene or a part of it begins.
    assert scheduler.due(range(6, 13)) == [both, *due[7:]]
    assert begun().due([3, 6, 9]) == [(), first, second]
    scheduler = begun()
    scheduler.reset()
    assert scheduler.due([1]) == [both]


def test_a_pass_counts_less_where_the_picture_has_moved() -> None:
    scheduler = begun()
    luma = cells(100)
    luma[0, :4] = [101, 102.25, 103.5, 90]
    weights = scheduler.next(1, luma)
    general, landscape = (
        weight(each, weights.luma, limits)
        for each, limits in zip(weights.passes, weights.limits, strict=True)
    )
    np.testing.assert_allclose(general[0, :5], [1, 0.5, 0, 0, 1])
    # Something has to count, where nothing else does.
    np.testing.assert_allclose(landscape[0, :5], [1, 0.5, 0.01, 0.01, 1])


def test_who_comes_in_is_looked_for() -> None:
    inside, outside, dim = cells(100), cells(100), cells(100)
    inside[15:25, 25:35] = 150
    outside[:2, 50:] = 150
    dim[:2, 50:] = 103
    for luma, wanted in ((inside, False), (dim, False), (outside, True)):
        scheduler = begun()
        assert not scheduler.wants_pass(outside), "never right after a pass"
        scheduler.next(1, cells(100))
        assert scheduler.wants_pass(luma) is wanted
    scheduler.add_pass(GENERAL, 1, outside, person(slice(0, 30), slice(20, 60)))
    weights = scheduler.next(2, outside)
    assert [each.slot for each in weights.passes] == [1, 0]
    assert weights.box is not None
    assert (weights.box.top, weights.box.right) == (0, GRID[1])


def box_of(mask: Cells, either: Cells | None = None) -> Box | None:
    return find_box(mask, mask if either is None else either, GRID)


def test_the_box() -> None:
    whole, alone = Box(0, 0, 240, 160), Box(70, 30, 170, 130)
    assert box_of(cells()) is None
    assert box_of(cells(0.3)) is None
    speck = person(slice(0, 2), slice(0, 2))  # a sixth of a percent
    assert box_of(speck) is None
    assert box_of(person() + speck) == box_of(person()) == alone
    near, far = person(slice(32, 35), slice(42, 48)), person(slice(30, 40), slice(55, 60))
    assert box_of(person() + near) == Box(66, 28, 206, 152)
    assert box_of(person() + far) == whole
    assert box_of(person(slice(8, 40), slice(20, 60))) == Box(60, 16, 240, 160), "one person"
    assert box_of(cells(0.6)) == whole
    assert box_of(person(slice(1, 40), slice(0, 60))) == whole
    # What one model alone sees counts where it belongs to a person.
    faint = 0.45 * person()
    assert box_of(cells(), faint) is None
    other = person(slice(30, 35), slice(50, 55))
    assert box_of(other, other + faint) == box_of(other)
    head = person(slice(5, 10), slice(28, 32))
    assert box_of(person(), person() + 0.35 * head) == box_of(person() + head)
    assert box_of(person(), person() + 0.25 * head) == alone


def test_masks_are_fed_back() -> None:
    """A pass that misses somebody whom the mask has does not make the box smaller."""
    scheduler = begun()
    assert not scheduler.wants_mask(7)
    assert scheduler.wants_mask(8)
    assert scheduler.wants_mask(20)
    assert scheduler.groups(range(3, 8)) == [(0, 5)]
    assert scheduler.groups(range(4, 17)) == [(0, 4), (4, 12), (12, 13)]
    assert scheduler.groups([5, 10, 15, 20]) == [(0, 1), (1, 3), (3, 4)]
    scheduler.add_mask(person(slice(0, 30)))
    scheduler.add_pass(LANDSCAPE, 1, cells(100), cells())
    box = scheduler.next(8, cells(100)).box
    assert box is not None
    assert (box.top, box.left) == (0, 70)


def test_the_frame_is_searched_where_nobody_is_seen() -> None:
    scheduler = PassScheduler(GRID)

    def add(mask: Cells) -> None:
        for network in (GENERAL, LANDSCAPE):
            scheduler.add_pass(network, 0, cells(100), mask)

    add(person())
    assert not scheduler.wants_scan(0, cells(100))
    add(cells())
    assert scheduler.wants_scan(0, cells(100))
    figure = slice(30, 34), slice(10, 13)
    scheduler.add_scan(0.6 * person(*figure))
    assert scheduler.next(0, cells(100)).box is None, "not sure enough"
    assert not scheduler.wants_scan(1, cells(100))
    assert not scheduler.wants_scan(4, cells(100))
    add(cells())
    assert scheduler.wants_scan(8, cells(100))
    scheduler.add_scan(0.9 * person(*figure))
    box = scheduler.next(8, cells(100)).box
    assert box == box_of(person(*figure))
    # Until the next search, passes that miss the figure change nothing.
    add(cells())
    assert scheduler.next(12, cells(100)).box == box


@pytest.mark.parametrize("grid", [(160, 240), (240, 160), (135, 240), (1, 1)])
def test_tiles_cover_the_frame(grid: tuple[int, int]) -> None:
    seen = np.zeros(grid, bool)
    for tile in tiles(grid):
        seen[tile.top : tile.bottom, tile.left : tile.right] = True
        assert 0 <= tile.top < tile.bottom <= grid[0]
        assert 0 <= tile.left < tile.right <= grid[1]
    assert seen.all()


def test_the_box_is_steady() -> None:
    scheduler = begun()
    for mask, moved in ((person(slice(11, 31)), False), (person(slice(13, 33)), True)):
        scheduler.add_pass(GENERAL, 1, cells(100), mask)
        scheduler.add_pass(LANDSCAPE, 1, cells(100), mask)
        box = scheduler.next(4, cells(100)).box
        assert (box == box_of(person())) is not moved
        assert (box == box_of(mask)) is moved


@pytest.mark.parametrize("size", [(2, 64), (64, 2), (2, 2), (3, 3), (1, 5), (4, 7)])
def test_no_part_of_a_small_frame_is_empty(size: tuple[int, int]) -> None:
    format = FrameFormat(width=size[0], height=size[1])
    for box in tiles(analysis_shape(*size)):
        left, top, right, bottom = box.in_pixels(format)
        assert 0 <= left < right <= size[0]
        assert 0 <= top < bottom <= size[1]
        assert left % 2 == top % 2 == 0


@pytest.mark.parametrize("size", [(1920, 1080), (1366, 767), (641, 359), (33, 21), (1, 1)])
def test_a_box_in_pixels(size: tuple[int, int]) -> None:
    format = FrameFormat(width=size[0], height=size[1])
    rows, columns = analysis_shape(*size)
    assert Box(0, 0, columns, rows).in_pixels(format) == (0, 0, *size)
    box = Box(columns // 3, rows // 4, columns // 2 + 1, rows // 2 + 1)
    left, top, right, bottom = box.in_pixels(format)
    assert left % 2 == top % 2 == 0
    assert left < right <= size[0]
    assert top < bottom <= size[1]
    for at, edge, count, side in (
        (left, box.left, columns, size[0]),
        (bottom, box.bottom, rows, size[1]),
    ):
        assert abs(at - edge * side / count) <= 1


@crossed(layout=list(PixelLayout), size=[(641, 359), (320, 240), (7, 5), (1, 1)])
def test_what_is_watched(size: tuple[int, int], layout: PixelLayout) -> None:
    format = frame_format(size, layout)
    frame = random_frame(format, np.random.default_rng(3))
    (grid,) = Reducer(format).reduce([frame])
    side = ZoomPlanes(format, (256, 256), Workers())
    rows, columns = grid.luma.shape
    mask = np.random.default_rng(4).random((rows, columns), np.float32)
    side.watch([grid])
    luma, kept = side.read([side.keep(LANDSCAPE, 1, 0, mask)], lumas=1)()
    codes = grid.luma / (1 if layout is PixelLayout.NV12 else 256)
    for found, plane in ((luma, codes), (kept, mask)):
        assert found.shape == cell_shape((rows, columns))
        for row, column in itertools.product(*map(range, found.shape)):
            part = plane[CELL * row : CELL * (row + 1), CELL * column : CELL * (column + 1)]
            assert found[row, column] == pytest.approx(part.mean(), rel=1e-5)


@pytest.mark.parametrize("layout", list(PixelLayout))
def test_crops_are_cut_from_the_frame(layout: PixelLayout) -> None:
    format = frame_format((1281, 719), layout)
    side = ZoomPlanes(format, (256, 256), Workers(2))
    frames = [random_frame(format, np.random.default_rng(seed)) for seed in (1, 2)]
    rows, columns = analysis_shape(1281, 719)
    small, large = Box(40, 20, 160, 100), Box(columns - 200, 0, columns, rows)
    grids = Reducer(format, Workers(2)).reduce(frames)
    near, far = side.crops(frames, grids, [small, large])
    left, top, right, bottom = small.in_pixels(format)
    assert near.factor == 1
    np.testing.assert_array_equal(near.luma, frames[0].luma[top:bottom, left:right])
    chroma = frames[0].chroma[top // 2 : bottom // 2, left // 2 : right // 2]
    np.testing.assert_array_equal(near.chroma, chroma)
    left, top, right, bottom = large.in_pixels(format)
    assert (far.factor, right, bottom) == (2, 1281, 719)
    whole = frames[1].luma[top:bottom, left:right]
    assert far.luma.shape == (-(-whole.shape[0] // 2), -(-whole.shape[1] // 2))
    assert far.luma[3, 5] == pytest.approx(whole[6:8, 10:12].mean(), abs=1)
    assert far.luma[-1, -1] == pytest.approx(whole[718:, -1:].mean(), abs=1)
    np.testing.assert_array_equal(far.chroma, frames[1].chroma[:, left // 2 :])


def test_the_mean_of_all_passes() -> None:
    format = frame_format((240, 160))
    side = ZoomPlanes(format, (256, 256), Workers(2))
    side.keep(GENERAL, 0, 0, np.full((256, 256), 0.4, np.float32))
    side.keep(LANDSCAPE, 2, 0, np.full((144, 256), 0.8, np.float32))
    close = np.full((256, 256), 1.0, np.float32)
    assert analysis_factor(240, 160) == 1
    box = Box(60, 0, 180, 80)
    luma = cells(100)
    moved = cells(100)
    moved[:, :30] = 110
    general, landscape = WholePass(0, luma, cells()), WholePass(2, luma, cells())
    most = ((0.0, 1.0), (0.0, 1.0))
    mixed = BlendWeights(luma, (general, WholePass(2, moved, cells())), most, box)
    nobody = BlendWeights(luma, (general, landscape), most, None)
    mask, whole = (mask.copy() for mask in side.blend(0, [mixed, nobody], [close, None]))
    np.testing.assert_allclose(whole, 0.6, atol=1e-6)
    assert mask.shape == GRID
    assert mask[120, 20] == pytest.approx(0.4)
    assert mask[120, 220] == pytest.approx(0.6)
    # At the frame's border at once, at others from a 12th of the box on.
    assert mask[0, 150] == mask[40, 150] == pytest.approx((0.4 + 0.8 + 2) / 4)
    assert mask[40, 100] == pytest.approx((0.4 + 2) / 3)
    rise = mask[40, 180:168:-1]
    assert (np.diff(rise[1:10]) > 0).all()
    assert mask[79, 150] < mask[76, 150] < mask[70, 150]
    frame = Box(0, 0, 240, 160)
    once = BlendWeights(luma, (general, landscape), ((0.0, 0.0), (0.0, 1.0)), frame)
    (mask,) = side.blend(1, [once], [close])
    np.testing.assert_allclose(mask, 0.9, atol=1e-6)


def test_people_who_stand_apart_have_boxes_of_their_own() -> None:
    scheduler = PassScheduler(GRID)
    left, right, speck = slice(4, 14), slice(40, 50), slice(30, 31)
    mask = person(slice(10, 30), left)
    mask[10:30, right] = 1
    mask[2:3, speck] = 1
    for network in (GENERAL, LANDSCAPE):
        scheduler.add_pass(network, 0, cells(100.0), mask)
    people = scheduler.next(0, cells(100.0)).people
    # A margin of an eighth: 10 of 80 rows, 5 of 40 columns.
    assert people == (Box(11, 30, 61, 130), Box(155, 30, 205, 130))
    close = person(slice(10, 30), slice(4, 14))
    close[10:30, slice(16, 26)] = 1
    scheduler.reset()
    for network in (GENERAL, LANDSCAPE):
        scheduler.add_pass(network, 0, cells(100.0), close)
    # Their boxes overlap, so they share one.
    assert scheduler.next(0, cells(100.0)).people == (Box(11, 30, 109, 130),)


@pytest.mark.parametrize("size", [(1281, 719), (320, 240), (33, 21), (7, 5), (1, 1)])
def test_masks_are_blended_by_enlarged_weights(size: tuple[int, int]) -> None:
    """As OpenCV enlarges cells, with a box in the middle of the frame, and without one."""
    format, rng = frame_format(size), np.random.default_rng(9)
    side = ZoomPlanes(format, (256, 256), Workers(2))
    rows, columns = side.grid
    slots = ((GENERAL, 1), (LANDSCAPE, 0))
    kept = [side.keep(*slot, 0, rng.random((50, 60), np.float32)).copy() for slot in slots]
    shape = cell_shape(side.grid)
    luma, *seen = (100 + 3 * rng.random((3, *shape))).astype(np.float32)
    passes = WholePass(1, seen[0], cells()), WholePass(0, seen[1], cells())
    limits = (0.0, 1.0), (0.01, 0.8)
    box = Box(columns // 3, rows // 4, columns, max(rows // 4 + 1, rows - 2))
    close = np.full((256, 256), 0.3, np.float32)
    blends = [BlendWeights(luma, passes, limits, each) for each in (box, None)]
    near, whole = (mask.copy() for mask in side.blend(0, blends, [close, None]))
    enlarged = (CELL * shape[1], CELL * shape[0])
    first, second = (
        cv2.resize(weight(each, luma, own), enlarged)[:rows, :columns]
        for each, own in zip(passes, limits, strict=True)
    )
    total = first + second
    expected = (kept[0] * first + kept[1] * second) / total
    np.testing.assert_allclose(whole, expected, atol=1e-6)
    inside = slice(box.top, box.bottom), slice(box.left, box.right)
    beside = np.ones(side.grid, bool)
    beside[inside] = False
    np.testing.assert_array_equal(near[beside], whole[beside])
    shares = (near - expected)[inside] * total[inside] / (0.3 - near[inside])
    assert shares.min() > 0
    middle = shares[shares.shape[0] // 2, -1]
    if min(box.shape) > 20:
        assert middle == pytest.approx(box.weight(side.grid), rel=1e-3)


def shown(count: int) -> list[np.ndarray[Any, Any]]:
    """(H, W, 3) BGR frames of the sample."""
    video = cv2.VideoCapture(str(SAMPLE))
    return [video.read()[1] for _ in range(count)]


def segment(
    frames: list[Frame],
    quality: MatteQuality,
    batch: int,
    cuts: tuple[int, ...] = (),
    begins: bool = True,
) -> list[np.ndarray[Any, Any]]:
    format = frames[0].format
    workers = Workers(batch)
    loader = NetworkLoader(resolve("selfie-general"))
    made = HostSide("cpu", format, workers).create(loader, quality)
    made.start()
    reducer = Reducer(format, workers)
    masks = []
    for first in range(0, len(frames), batch):
        part = frames[first : first + batch]
        reduced = reducer.reduce(part)
        if begins:
            made.begin(part, reduced)
        inner = [cut - first for cut in cuts if first <= cut < first + len(part)]
        for start, stop in itertools.pairwise(sorted({0, *inner, len(part)})):
            if start in inner:
                made.reset()
            masks += [mask.copy() for mask in made.masks(part[start:stop], reduced[start:stop])]
    made.close()
    workers.close()
    return masks


@pytest.mark.parametrize("quality", [MatteQuality.STANDARD, slow(MatteQuality.BEST)])
def test_masks_are_the_same_for_any_batch(quality: MatteQuality) -> None:
    images = shown(12)
    images[6:9] = [np.roll(image, 80, axis=1) for image in images[6:9]]  # somebody jumps
    frames = [frame_of(image[::2, ::2], index) for index, image in enumerate(images)]
    one, *others = (segment(frames, quality, batch, (10,)) for batch in (1, 2, 3, 8))
    for masks in others:
        for mask, same in zip(masks, one, strict=True):
            np.testing.assert_array_equal(mask, same)
    assert one[0].shape == analysis_shape(frames[0].format.width, frames[0].format.height)
    for mask, same in zip(segment(frames, quality, 3, (10,), begins=False), one, strict=True):
        np.testing.assert_array_equal(mask, same)
    # A new scene begins as a render does.
    np.testing.assert_array_equal(segment(frames[10:], quality, 2)[0], one[10])


@pytest.mark.parametrize("quality", [MatteQuality.STANDARD, slow(MatteQuality.BEST)])
def test_a_figure_that_no_whole_pass_shows_is_searched_for(quality: MatteQuality) -> None:
    frames = []
    for index, image in enumerate(shown(10)):
        height, width = image.shape[0] // 10, image.shape[1] // 10
        place = np.s_[5 * height : 6 * height, 3 * width : 4 * width]
        far = np.full_like(image, 90)
        far[place] = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
        frames.append(frame_of(far, index))

    def share(mask: np.ndarray[Any, Any]) -> float:
        """Of the figure's picture; hardly any but in it."""
        found = cv2.resize(mask, image.shape[1::-1]) > 0.5
        assert found.sum() <= 1.05 * found[place].sum()
        return float(found[place].mean())

    one, *others = (segment(frames, quality, batch) for batch in (1, 4, 8))
    for masks in others:
        for mask, same in zip(masks, one, strict=True):
            np.testing.assert_array_equal(mask, same)
    # Of the whole picture the person is a quarter.
    assert all(0.2 < share(mask) < 0.3 for mask in one)
    assert not any(0.2 < share(mask) < 0.3 for mask in segment(frames, MatteQuality.FAST, 1))


@pytest.mark.parametrize("quality", [MatteQuality.STANDARD, MatteQuality.BEST])
def test_a_small_figure_is_seen_much_better(quality: MatteQuality) -> None:
    (image,) = shown(1)
    (wanted,) = segment([frame_of(image)], MatteQuality.BEST, 1)
    size = image.shape[1] // 3, image.shape[0] // 3
    far = np.full_like(image, 90)
    far[size[1] : 2 * size[1], size[0] : 2 * size[0]] = cv2.resize(
        image, size, interpolation=cv2.INTER_AREA
    )

    def score(quality: MatteQuality) -> float:
        (mask,) = segment([frame_of(far)], quality, 1)
        found = cv2.resize(mask, image.shape[1::-1]) > 0.5
        truth = np.zeros(found.shape, bool)
        truth[size[1] : 2 * size[1], size[0] : 2 * size[0]] = cv2.resize(wanted, size) > 0.5
        return float((found & truth).sum() / (found | truth).sum())

    assert score(quality) > score(MatteQuality.FAST) + 0.15


@pytest.mark.parametrize("quality", list(MatteQuality))
def test_people_side_by_side_in_a_wide_frame(quality: MatteQuality) -> None:
    (image,) = shown(1)
    (wanted,) = segment([frame_of(image)], MatteQuality.BEST, 1)
    rows, columns = image.shape[:2]
    truth = cv2.resize(wanted, (columns, rows)) > 0.5
    part = slice(columns // 2 - 2 * rows // 3, columns // 2 + 2 * rows // 3)
    wide, truth = (np.hstack([each[:, part]] * 2) for each in (image, truth))
    (mask,) = segment([frame_of(wide)], quality, 1)
    found = cv2.resize(mask, truth.shape[::-1]) > 0.5
    assert (found & truth).sum() / (found | truth).sum() > 0.93


@pytest.mark.slow
def test_a_render_takes_it(tmp_path: Path) -> None:
    outputs = []
    for index, (quality, batch) in enumerate((("standard", 1), ("standard", 4), ("best", 4))):
        target = tmp_path / f"{index}.mkv"
        bgsoft.render(
            SAMPLE,
            target,
            matte=quality,
            batch=batch,
            effect="matte",
            codec="ffv1",
            face="off",
            duration=0.3,
            mask_every=2,
        )
        outputs.append([frame.planes[0] for frame in read_back(target)])
    for one, other in zip(*outputs[:2], strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.array_equal(outputs[1][0], outputs[2][0])


def test_other_models_have_one_pass(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"matte has no effect beside model selfie-landscape"):
        bgsoft.render(SAMPLE, tmp_path / "o.mkv", model="selfie-landscape", matte="best")


def test_close_passes_see_parts_of_small_frames_too() -> None:
    """Of frames with fewer rows than the model's input, it is shown all otherwise."""
    (image,) = shown(1)
    small = frame_of(cv2.resize(image, (426, 240), interpolation=cv2.INTER_AREA))
    (mask,), (fast,) = (
        segment([small], MatteQuality.STANDARD, 1),
        segment([small], MatteQuality.FAST, 1),
    )
    one, other = mask > 0.5, cv2.resize(fast, mask.shape[::-1]) > 0.5
    assert (one & other).sum() / (one | other).sum() > 0.9
