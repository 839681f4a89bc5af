"""Whole and close passes: their schedule and weights; batches change nothing."""

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
from bgsoft.frame import Frame, PixelLayout
from bgsoft.infer.loading import NetworkLoader
from bgsoft.models.catalog import resolve
from bgsoft.segment.boxes import CELL, Box, Cells, cell_shape
from bgsoft.segment.factory import HostSegmenterFactory
from bgsoft.segment.planes import MOVED, STILL, ZoomPlanes
from bgsoft.segment.zoomed import TURN, ZoomedSegmenter
from bgsoft.settings.config import MatteQuality
from bgsoft.threads import LanePool
from tests.marks import crossed, slow
from tests.pictures import flat_frame, frame_format, frame_of, random_frame
from tests.rendering import read_back

SAMPLE = Path(__file__).parents[3] / "samples" / "person.mp4"
GRID = (160, 240)
CELLS = cell_shape(GRID)


def cells(value: float = 0.0) -> Cells:
    return np.full(CELLS, value, np.float32)


class Fake:
    """A network with scripted people, which records its requests."""

    name = "fake"

    def __init__(self, shape: tuple[int, int], masks: dict[int, np.ndarray[Any, Any]]) -> None:
        self.shape, self.masks = shape, masks
        self.asked: list[int] = []
        self.started = self.closed = False

    def start(self) -> None:
        self.started = True

    def shown(self, frames: Any, reduced: Any) -> Any:
        return reduced

    def run(self, frames: Any, shown: Any, coarse: Any = None) -> Any:
        self.asked += [frame.index for frame in frames]
        nobody = np.zeros(self.shape, np.float32)
        return [self.masks.get(frame.index, nobody) for frame in frames]

    def find(self, frames: Any, reduced: Any) -> Any:
        self.asked += [frame.index for frame in frames]
        return [self.masks.get(frame.index, []) for frame in frames]

    def close(self) -> None:
        self.closed = True


class Scene:
    """Frames of one luma, segmented by fakes; the grid is the whole frame."""

    def __init__(self, luma: Any = lambda index: 100, **others: Any) -> None:
        self.luma = luma
        format = frame_format((GRID[1], GRID[0]))
        self.general, self.landscape, self.near = (Fake(GRID, {}) for _ in range(3))
        self.reducer = Reducer(format, batch=16)
        planes = ZoomPlanes(format, (256, 256), LanePool(), batch=16)
        fakes: Any = self.general, self.landscape, self.near
        self.segmenter = ZoomedSegmenter(*fakes, planes, **others)

    def masks(self, indices: Any) -> list[np.ndarray[Any, Any]]:
        frames = []
        for index in indices:
            image = np.full((*GRID, 3), self.luma(index), np.uint8)
            frames.append(frame_of(image, index))
        made = self.segmenter.masks(frames, self.reducer.reduce(frames))
        return [mask.copy() for mask in made]

    def taken(self) -> tuple[list[int], list[int], list[int]]:
        """Return the frames that each network was asked for since the last call."""
        asked = tuple(each.asked for each in (self.general, self.landscape, self.near))
        self.general.asked, self.landscape.asked, self.near.asked = [], [], []
        return asked  # type: ignore[return-value]


def seen(rows: slice = slice(40, 120), columns: slice = slice(80, 160)) -> np.ndarray[Any, Any]:
    mask = np.zeros(GRID, np.float32)
    mask[rows, columns] = 1
    return mask


def everywhere(mask: np.ndarray[Any, Any]) -> dict[int, np.ndarray[Any, Any]]:
    return dict.fromkeys(range(40), mask)


def test_whole_passes_begin_a_turn() -> None:
    scene = Scene()
    for fake in (scene.general, scene.landscape):
        fake.masks = everywhere(seen())
    for indices, wanted in (
        (range(10), [0, 4, 8]),
        ([10, 11], []),
        ([12, 20, 21], [12, 20]),
    ):
        scene.masks(indices)
        general, landscape, near = scene.taken()
        assert general == landscape == wanted
        assert near == [*indices], "each frame has a close pass"
    scene.segmenter.reset()
    scene.masks([22, 23, 24])
    assert scene.taken()[0] == [22, 24], "a scene begins"
    assert TURN == 4


def test_a_whole_pass_counts_where_the_picture_stands_still() -> None:
    """Nobody moves, but the light changes by a number of code values; a weight follows."""
    for change, weight in ((0, 1.0), (1, 1.0), (2, 0.6), (4, 0.01), (-9, 0.01)):
        scene = Scene(lambda index, change=change: 100 + change * (index > 0))
        scene.general.masks = scene.landscape.masks = everywhere(seen())
        _, mask = scene.masks([0, 1])
        whole = 2 * weight
        # The close pass shows nobody. It counts twice, and fades in at its borders.
        assert mask[80, 120] == pytest.approx(whole / (whole + 2), abs=2e-3), change
        assert mask[80, 200] == 0


def test_a_close_pass_of_the_whole_frame_stands_for_a_whole_one() -> None:
    scene = Scene()
    full = np.ones(GRID, np.float32)
    scene.general.masks, scene.landscape.masks = everywhere(full), everywhere(0.7 * full)
    scene.near.masks = everywhere(0.5 * full)
    (mask,) = scene.masks([0])
    np.testing.assert_allclose(mask, (0.7 + 0.5) / 2, atol=1e-5)


@pytest.mark.parametrize("parts", [[range(8)], [range(4), range(4, 8)], [range(6), [6, 7]]])
def test_the_mask_says_where_people_are_as_well(parts: Any) -> None:
    """A person whom the mask shows stays, even if whole passes miss them."""
    scene = Scene()
    scene.general.masks = scene.landscape.masks = {0: seen()}
    scene.near.masks = everywhere(np.ones(GRID, np.float32))
    masks = [mask for part in parts for mask in scene.masks(part)]
    assert scene.taken()[2] == [*range(8)]
    assert masks[7][80, 120] > 0.4


def test_the_frame_is_searched_where_nobody_is_seen() -> None:
    scene = Scene()
    scene.general.masks = scene.landscape.masks = {8: seen()}
    scene.masks(range(10))
    # Six tiles at the first frame of each turn.
    assert scene.taken()[2] == [*[0] * 6, *[4] * 6, 8, 9]
    for sure, found in ((0.9, True), (0.7, False)):
        scene = Scene()
        scene.near.masks = everywhere(np.full(GRID, sure, np.float32))
        mask = scene.masks([0])[0]
        assert (len(scene.taken()[2]) == 7) is found
        assert bool(mask.max() > 0.4) is found


def test_best_looks_round_faces_and_people() -> None:
    face = (110.0, 50.0, 130.0, 70.0)
    refiner, faces = Fake((256, 256), {}), Fake(GRID, {})
    faces.masks = {0: [face], 4: [face]}  # type: ignore[dict-item]
    refiner.masks = everywhere(np.ones((256, 256), np.float32))
    scene = Scene(refiner=refiner, faces=faces)
    scene.segmenter.start()
    assert refiner.started
    assert faces.started
    # The passes see nobody at all.
    masks = scene.masks(range(6))
    assert faces.asked == [0, 4]
    assert refiner.asked == [*range(6)]
    near = scene.taken()[2]
    # Round the person, and at head and shoulders.
    assert [near.count(index) for index in range(6)] == [2] * 6
    # The mean of the close passes, which show nobody, and of the refined mask.
    assert all(mask[60, 120] == pytest.approx(0.5) for mask in masks)
    scene.segmenter.close()
    assert refiner.closed
    assert faces.closed


@crossed(layout=list(PixelLayout), size=[(641, 359), (320, 240), (7, 5), (1, 1)])
def test_what_is_watched(size: tuple[int, int], layout: PixelLayout) -> None:
    """Means over cells: of a kept mask, and of luma, by which older passes lose weight."""
    format = frame_format(size, layout)
    planes = ZoomPlanes(format, (256, 256), LanePool())
    mask = np.random.default_rng(4).random(planes.grid, np.float32)
    (found,) = planes.read([planes.on_grid(mask)])()
    assert found.shape == cell_shape(planes.grid)
    for row, column in itertools.product(*map(range, found.shape)):
        part = mask[CELL * row : CELL * (row + 1), CELL * column : CELL * (column + 1)]
        assert found[row, column] == pytest.approx(part.mean(), rel=1e-5)
    frames = [random_frame(format, np.random.default_rng(seed)) for seed in (3, 4)]
    planes = ZoomPlanes(format, (256, 256), LanePool(), batch=2)
    grids = Reducer(format, batch=2).reduce(frames)
    lumas = [grid.luma / (1 if layout is PixelLayout.NV12 else 256) for grid in grids]
    planes.watch(grids)
    whole = planes.whole(0, [np.ones_like(mask)])
    # Of the second frame only a bit of the first one's passes is left, as its luma is another.
    close = np.zeros((256, 256), np.float32)
    box = Box(0, 0, *planes.grid[::-1])
    made = planes.masks[1]
    planes.blend([made], [1], whole, box, [close])
    change = np.abs(cell_means(lumas[0]) - cell_means(lumas[1]))
    weights = np.clip((MOVED - change) / (MOVED - STILL), 0.01, 1)
    wanted = cv2.resize(weights, (CELL * found.shape[1], CELL * found.shape[0]))
    wanted = wanted[: mask.shape[0], : mask.shape[1]]
    np.testing.assert_allclose(made, wanted / (wanted + 1), atol=2e-3)


def cell_means(plane: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    rows, columns = cell_shape(plane.shape)  # type: ignore[arg-type]
    means = np.empty((rows, columns), np.float32)
    for row, column in itertools.product(range(rows), range(columns)):
        part = plane[CELL * row : CELL * (row + 1), CELL * column : CELL * (column + 1)]
        means[row, column] = part.mean()
    return means


@pytest.mark.parametrize("layout", list(PixelLayout))
def test_crops_are_cut_from_the_frame(layout: PixelLayout) -> None:
    format = frame_format((1281, 719), layout)
    side = ZoomPlanes(format, (256, 256), LanePool(2))
    frames = [random_frame(format, np.random.default_rng(seed)) for seed in (1, 2)]
    rows, columns = analysis_shape(1281, 719)
    small, large = Box(40, 20, 160, 100), Box(columns - 200, 0, columns, rows)
    grids = Reducer(format, LanePool(2)).reduce(frames)
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
    planes = ZoomPlanes(format, (256, 256), LanePool(2))
    general = planes.on_grid(np.full((256, 256), 0.4, np.float32))
    landscape = planes.on_grid(np.full((144, 256), 0.8, np.float32))
    both = planes.whole(0, [general, landscape])
    close = np.full((256, 256), 1.0, np.float32)
    assert analysis_factor(240, 160) == 1
    box, (mask, whole) = Box(60, 0, 180, 80), planes.masks
    planes.blend([mask], [0], both, box, [close])
    planes.blend([whole], [0], both, None, [None])
    np.testing.assert_allclose(whole, 0.6, atol=1e-6)
    assert mask.shape == GRID
    assert mask[120, 20] == mask[120, 220] == pytest.approx(0.6)
    # At the frame's border at once, at others from a 12th of the box on.
    assert mask[0, 150] == mask[40, 100] == pytest.approx((0.4 + 0.8 + 2) / 4)
    rise = mask[40, 180:168:-1]
    assert (np.diff(rise[1:10]) > 0).all()
    assert mask[79, 150] < mask[76, 150] < mask[70, 150]
    frame = Box(0, 0, 240, 160)
    planes.blend([mask], [0], planes.whole(0, [landscape]), frame, [close])
    np.testing.assert_allclose(mask, 0.9, atol=1e-6)


@pytest.mark.parametrize("size", [(1281, 719), (320, 240), (33, 21), (7, 5), (1, 1)])
def test_masks_are_blended_by_enlarged_weights(size: tuple[int, int]) -> None:
    """Enlarged as OpenCV does, with and without a box in the middle of the frame."""
    format, rng = frame_format(size), np.random.default_rng(9)
    planes = ZoomPlanes(format, (256, 256), LanePool(2))
    rows, columns = planes.grid
    kept = [planes.on_grid(rng.random((50, 60), np.float32)) for _ in range(2)]
    frames = [flat_frame(format, level, 128, 128) for level in (100, 102)]
    planes.watch(Reducer(format, batch=2).reduce(frames))
    passes = planes.whole(1, kept)
    share = (MOVED - 2) / (MOVED - STILL)
    box = Box(columns // 3, rows // 4, columns, max(rows // 4 + 1, rows - 2))
    close = np.full((256, 256), 0.3, np.float32)
    near, whole = planes.masks
    planes.blend([near], [0], passes, box, [close])
    planes.blend([whole], [0], passes, None, [None])
    expected = (kept[0] + kept[1]) / 2
    np.testing.assert_allclose(whole, expected, atol=1e-6)
    inside = slice(box.top, box.bottom), slice(box.left, box.right)
    beside = np.ones(planes.grid, bool)
    beside[inside] = False
    np.testing.assert_array_equal(near[beside], whole[beside])
    shares = (near - expected)[inside] * 2 * share / (0.3 - near[inside])
    assert shares.min() > 0
    middle = shares[shares.shape[0] // 2, -1]
    if min(box.shape) > 20:
        assert middle == pytest.approx(box.weight(planes.grid), rel=1e-3)


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
    pool = LanePool(batch)
    loader = NetworkLoader(resolve("selfie-general"))
    made = HostSegmenterFactory("cpu", format, pool).create(loader, quality)
    made.start()
    reducer = Reducer(format, pool)
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
    pool.close()
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
        """Share of the figure's picture; nearly none outside it."""
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
    with pytest.raises(ConfigError, match=r"matte with model selfie-landscape"):
        bgsoft.render(SAMPLE, tmp_path / "o.mkv", model="selfie-landscape", matte="best")


def test_close_passes_see_parts_of_small_frames_too() -> None:
    """Otherwise a frame with fewer rows than the model's input is shown whole."""
    (image,) = shown(1)
    small = frame_of(cv2.resize(image, (426, 240), interpolation=cv2.INTER_AREA))
    (mask,), (fast,) = (
        segment([small], MatteQuality.STANDARD, 1),
        segment([small], MatteQuality.FAST, 1),
    )
    one, other = mask > 0.5, cv2.resize(fast, mask.shape[::-1]) > 0.5
    assert (one & other).sum() / (one | other).sum() > 0.9
