"""Faces united with the matte."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from bgsoft.analysis.base import analysis_factor, analysis_shape
from bgsoft.face.base import FACE_OVAL, Face, hiding_ellipse, oval_points
from bgsoft.face.geometry import Roi, box_overlap
from bgsoft.face.guard import (
    EXPECTED_SAMPLES,
    FILLED_SHARE,
    MISSED_SHARE,
    OUTLINE,
    Guard,
    MatteEditor,
    lay_outlines,
)
from bgsoft.face.journal import FaceJournal
from bgsoft.frame import FrameFormat, Matte
from bgsoft.ops.placement import HOST
from tests.marks import crossed
from tests.pictures import SIZES, disc_mask, flat_frame, frame_format, matte_from
from tests.unit.face.shapes import box_in, make_face

HD = frame_format((1280, 720))


def empty_matte(format: FrameFormat, value: int = 0) -> Matte:
    grid = analysis_shape(format.width, format.height)
    return Matte(
        alpha=np.full(format.luma_shape, value, np.uint8),
        reduced=np.full(grid, value, np.uint8),
    )


def laid(
    faces: Sequence[tuple[Face, float]], format: FrameFormat = HD
) -> tuple[NDArray[np.void], list[int]]:
    """Outlines of faces on the grid, and the ids of the measured ones."""
    factor = analysis_factor(format.width, format.height)
    return lay_outlines(faces, 1 / factor, analysis_shape(format.width, format.height))


def inside_outline(face: Face, format: FrameFormat) -> NDArray[np.bool_]:
    """Pixels whose centres are inside the face's outline."""
    points = oval_points(face).T.astype(np.float64)
    (left, top), (right, bottom) = points.min(axis=0).astype(int), points.max(axis=0).astype(int)
    drawn = np.zeros(format.luma_shape, np.bool_)
    box = np.s_[max(top, 0) : bottom + 1, max(left, 0) : right + 1]
    inside = drawn[box]
    y, x = np.mgrid[box][:, : inside.shape[0], : inside.shape[1]] + 0.5
    for (x0, y0), (x1, y1) in zip(points, np.roll(points, -1, axis=0), strict=True):
        if y0 != y1:
            inside ^= ((y0 > y) != (y1 > y)) & (x < x0 + (y - y0) * (x1 - x0) / (y1 - y0))
    return drawn


def filled(share: NDArray[np.uint8], strength: float = 1.0) -> NDArray[np.uint8]:
    """Return the opacity of a fill for an enclosed share."""
    return np.rint(np.clip((2.0 * share - 255) * strength, 0, 255)).astype(np.uint8)


def enclosed_share(outline: np.void, row: int, column: int) -> float:
    """Return the share of the square around a cell that its outline encloses, 0–1.

    The outline is clipped to the square, one edge after the other.
    """
    side = int(outline["side"])
    corner = np.array([column, row]) + (1 - side) / 2
    polygon = outline["points"].T.astype(float) * outline["scale"] + outline["shift"] - corner
    for axis, sign, bound in ((0, 1, 0), (0, -1, side), (1, 1, 0), (1, -1, side)):
        inside = sign * (polygon[:, axis] - bound)
        after, following = np.roll(inside, -1), np.roll(polygon, -1, axis=0)
        crosses = inside * after < 0
        part = inside / np.where(crosses, inside - after, 1.0)
        pairs = np.stack([polygon, polygon + part[:, None] * (following - polygon)], axis=1)
        polygon = pairs[np.stack([inside >= 0, crosses], axis=1)]
    x, y = polygon.T
    return abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2 / side**2


def painted(outline: np.void, format: FrameFormat) -> NDArray[np.uint8]:
    """Return the enclosed share around each cell of a box, as covers are measured by it."""
    grid = analysis_shape(format.width, format.height)
    shares, seen = np.zeros((2, *grid), np.uint8)
    found = shares, np.empty(1, np.int32), np.empty(1, np.float32)
    outlines = np.array([outline], OUTLINE)
    measure = HOST.operation("face", "measure_covers")
    measure((1, 1), seen, None, outlines, *found, *grid, 1, 0, 0.0, 1.0)
    left, top, right, bottom = outline["box"]
    rows, columns = bottom - top, right - left
    return shares.ravel()[: rows * columns].reshape(rows, columns)


def plane_of(outline: np.void, format: FrameFormat) -> NDArray[np.uint8]:
    plane = np.zeros(analysis_shape(format.width, format.height), np.uint8)
    left, top, right, bottom = outline["box"]
    plane[top:bottom, left:right] = painted(outline, format)
    return plane


@crossed(width=[20, 60, 150, 400, 900], place=[(640, 360), (3, 350), (1275, 717)])
def test_a_cover_is_the_enclosed_share_of_a_square_around_each_cell(
    place: tuple[float, float], width: float
) -> None:
    rng = np.random.default_rng(int(width))
    for roll in (0.0, 0.7, -2.0):
        face = make_face(*place, width, roll=roll)
        # No ellipse: dents, as in the outline of a face that is turned away.
        face.landmarks[list(FACE_OVAL), :2] += rng.normal(0, 0.01 * width, (36, 2))
        ((outline,), _) = laid([(face, 1.0)])
        left, top, right, bottom = outline["box"].tolist()
        shares = painted(outline, HD)
        some = rng.permutation(np.argwhere(shares % 255 > 0))[:100].tolist()
        some += [[0, 0], [bottom - top - 1, right - left - 1], *np.argwhere(shares == 255)[:50:7]]
        expected = [255 * enclosed_share(outline, top + row, left + column) for row, column in some]
        np.testing.assert_allclose([shares[*cell] for cell in some], expected, atol=0.51)


@pytest.mark.parametrize("width", [4, 30, 90, 300])
def test_the_outermost_cells_of_a_box_are_free_but_at_the_edge_of_the_grid(width: float) -> None:
    for x in np.linspace(600, 604, 9):
        for roll in (0.0, 1.0):
            outlines, _ = laid([(make_face(x, 360 + x / 7, width, roll=roll), 1.0)])
            shares = painted(outlines[0], HD)
            assert shares.max() == 255 or width < 30
            assert not shares[[0, -1]].any()
            assert not shares[:, [0, -1]].any()
    outlines, _ = laid([(make_face(0, 0, 300), 1.0)])
    assert outlines[0]["box"][:2].tolist() == [0, 0]
    assert painted(outlines[0], HD)[0, 0] == 255


def test_fills_fade_evenly() -> None:
    face = make_face(640, 360, 200)
    full, half = empty_matte(HD), empty_matte(HD)
    for matte, opacity in ((full, 1.0), (half, 0.5)):
        assert laid([(face, opacity)])[1] == ([0] if opacity == 1 else [])  # no fading ones
        MatteEditor(HD).apply(matte, [(face, opacity)], None, None)
    assert full.alpha.max() == 255
    assert np.abs(half.alpha - full.alpha / 2.0).max() <= 0.5


@pytest.mark.parametrize("roll", [0.0, 0.6, -1.4])
@pytest.mark.parametrize("place", [(640, 300), (20, 360), (1270, 715), (500, 5)])
def test_a_missed_face_is_filled_in_and_nothing_outside_of_it_changes(
    place: tuple[float, float], roll: float
) -> None:
    face = make_face(*place, 160, roll=roll)
    matte = empty_matte(HD)
    seen: list[list[float]] = []
    MatteEditor(HD).apply(matte, [(face, 1.0)], None, lambda _, shares: seen.append([*shares]))
    inside = inside_outline(face, HD)
    assert not matte.alpha[~inside].any()
    well_inside = inside_outline(
        make_face(*place, 160 - 2 * 20, height=208 - 2 * 20, roll=roll), HD
    )
    assert matte.alpha[well_inside].min() >= 250
    assert seen == [[0.0]]
    factor = analysis_factor(1280, 720)
    cells = cv2.resize(
        matte.alpha, None, fx=1 / factor, fy=1 / factor, interpolation=cv2.INTER_AREA
    )
    assert np.abs(cells.astype(int) - matte.reduced).mean() < 1


@crossed(width=[6, 12, 20, 45, 300], size=[(1280, 720), (1920, 1080), (640, 360)])
def test_no_face_is_filled_in_beyond_its_outline(size: tuple[int, int], width: float) -> None:
    rng = np.random.default_rng(width)
    format = frame_format(size)
    for roll in rng.uniform(-3, 3, 4):
        x, y = rng.uniform(0.3, 0.7, 2) * size
        face = make_face(x, y, width, roll=roll)
        face.landmarks[list(FACE_OVAL), :2] += rng.normal(0, 0.01 * width, (36, 2))
        matte = empty_matte(format)
        MatteEditor(format).apply(matte, [(face, 1.0)], None, None)
        inside = inside_outline(face, format)
        assert not matte.alpha[~inside].any()
        assert matte.alpha[inside].max() >= 250 or width < 12
        assert matte.alpha[inside].mean() > 0.7 * 255 or width < 20 * analysis_factor(*size)


def test_the_edge_is_soft() -> None:
    face = make_face(640, 360, 200)
    matte = empty_matte(HD)
    MatteEditor(HD).apply(matte, [(face, 1.0)], None, None)
    row = matte.alpha[360, 640:].astype(int)
    assert row[0] == 255
    assert row[-1] == 0
    assert np.diff(row).max() == 0  # falls, and never rises
    assert 8 <= np.count_nonzero((row > 5) & (row < 250)) <= 40


def with_a_hole(face: Face, format: FrameFormat, share: float) -> Matte:
    """Return a matte without this share of a face, across its middle."""
    matte = empty_matte(format, 255)
    cells = plane_of(laid([(face, 1.0)], format)[0][0], format)
    rows = np.cumsum(filled(cells).sum(axis=1, dtype=np.int64))
    first, last = (int(np.searchsorted(rows, x * rows[-1])) for x in (0.5, 0.5 + share))
    matte.reduced[first:last] = 0
    factor = analysis_factor(format.width, format.height)
    matte.alpha[first * factor : last * factor] = 0
    return matte


@pytest.mark.parametrize("missing", [0.0, 0.03])
def test_a_matte_that_has_the_face_keeps_what_it_has(missing: float) -> None:
    face = make_face(640, 360, 500)
    matte = with_a_hole(face, HD, missing)
    own, alpha, reduced = matte.reduced, matte.alpha.copy(), matte.reduced.copy()
    seen: list[list[float]] = []
    MatteEditor(HD).apply(matte, [(face, 1.0)], None, lambda _, shares: seen.append([*shares]))
    np.testing.assert_array_equal(matte.alpha, alpha)
    np.testing.assert_array_equal(matte.reduced, reduced)
    assert matte.reduced is own
    assert seen[0][0] == pytest.approx(1 - missing, abs=0.01)


def test_the_more_of_a_face_is_missing_the_more_it_is_filled_in() -> None:
    """The rise is even, so a mask that wavers about the limit does not flicker."""
    face = make_face(640, 360, 400)
    shares, strengths = [], []
    for missing in np.linspace(0.02, 0.3, 29):
        matte = with_a_hole(face, HD, missing)
        MatteEditor(HD).apply(matte, [(face, 1.0)], None, lambda _, each: shares.extend(each))
        strengths.append(matte.reduced[90, 160] / 255)
    expected = (1 - np.array(shares) - MISSED_SHARE) / (FILLED_SHARE - MISSED_SHARE)
    np.testing.assert_allclose(strengths, np.clip(expected, 0, 1), atol=0.01)
    assert (strengths[0], strengths[-1]) == (0, 1)
    assert np.diff(strengths).max() < 0.3


def test_what_the_mask_had_missed_is_measured_before_it_is_filled_in() -> None:
    face = make_face(640, 360, 200)
    matte = empty_matte(HD)
    matte.reduced[:, : matte.reduced.shape[1] // 2] = 255  # half of the face
    seen: list[list[float]] = []
    MatteEditor(HD).apply(matte, [(face, 1.0)], None, lambda _, shares: seen.append([*shares]))
    assert seen[0][0] == pytest.approx(0.5, abs=0.03)


def test_a_limit_cuts_first_and_covers_win_over_it() -> None:
    matte = empty_matte(HD, 200)
    limit = np.zeros(matte.reduced.shape, np.uint8)
    limit[:, limit.shape[1] // 2 :] = 255
    face = make_face(200, 360, 150)
    MatteEditor(HD).apply(matte, [(face, 1.0)], limit, None)
    assert matte.alpha[360, 200] == 255
    assert matte.alpha[50, 50] == 0
    assert matte.alpha[360, 1200] == 200


@pytest.mark.parametrize("size", SIZES)
def test_every_size_with_faces_anywhere(size: tuple[int, int]) -> None:
    format = frame_format(size)
    width, height = size
    faces = [
        (make_face(width * x, height * y, max(1.5, width * 0.4), id=index), 1.0)
        for index, (x, y) in enumerate([(0.5, 0.5), (0, 0), (1, 1), (-30, 0.5), (0.5, 90)])
    ]
    matte = empty_matte(format)
    assert laid(faces, format)[1] == [0, 1, 2]
    MatteEditor(format).apply(matte, faces, None, None)
    assert matte.alpha[height // 2, width // 2] > 200 or min(size) < 8
    assert laid(faces[3:], format)[1] == laid([])[1] == []  # out of sight


@crossed(limits=[False, True], size=SIZES)
def test_the_matte_rises_to_the_enlarged_fills(size: tuple[int, int], limits: bool) -> None:
    format = frame_format(size)
    rng = np.random.default_rng(5)
    factor, (rows, columns) = analysis_factor(*size), analysis_shape(*size)
    editor = MatteEditor(format)

    def enlarge(plane: NDArray[np.uint8]) -> NDArray[np.uint8]:
        whole = (columns * factor, rows * factor)
        large = cv2.resize(plane, whole, interpolation=cv2.INTER_LINEAR).reshape(whole[::-1])
        return large[: size[1], : size[0]]

    for radius in (0.1, 0.3, 0.6):
        x, y = rng.uniform(0, 1, 2) * size
        faces = [(make_face(x, y, max(2.0, 0.3 * size[0]), roll=0.4), 1.0)]
        faces += [(make_face(size[0] - x, size[1] - y, max(2.0, 0.1 * size[0]), id=1), 0.5)]
        matte = matte_from(format, disc_mask(format, radius))
        limit = rng.integers(0, 256, (rows, columns), np.uint8) if limits else None
        alpha, reduced = matte.alpha.copy(), matte.reduced.copy()
        if limit is not None:
            alpha, reduced = np.minimum(alpha, enlarge(limit)), np.minimum(reduced, limit)
        expected, expected_reduced = alpha, reduced
        for outline in laid(faces, format)[0]:
            share = plane_of(outline, format)
            inside = filled(share).astype(float)
            has = (inside * reduced).sum() / (255 * inside.sum()) if inside.any() else 1.0
            missing = (1 - has - MISSED_SHARE) / (FILLED_SHARE - MISSED_SHARE)
            strength = outline["opacity"] * min(max(missing, 0.0), 1.0)
            expected = np.maximum(expected, filled(enlarge(share), strength))
            expected_reduced = np.maximum(expected_reduced, filled(share, strength))
        editor.apply(matte, faces, limit, None)
        np.testing.assert_allclose(matte.reduced.astype(int), expected_reduced, atol=1)
        np.testing.assert_allclose(matte.alpha.astype(int), expected, atol=1)


def test_faces_that_are_not_numbers_are_left_out() -> None:
    face = make_face(640, 360, 200)
    face.landmarks[:] = np.nan
    assert len(laid([(face, 1.0)])[0]) == 0


def test_thirty_faces() -> None:
    faces = [(make_face(40 * n, 300, 30, id=n), 1.0) for n in range(1, 40)]
    faces = [(faces[0][0], 0.25), *faces]
    outlines, _ = laid(faces)
    assert outlines["opacity"].tolist() == [1.0] * 32 + [0.25]
    matte = empty_matte(HD)
    seen: list[tuple[int, float]] = []
    MatteEditor(HD).apply(matte, faces, None, lambda *each: seen.extend(zip(*each, strict=True)))
    assert seen == [(id, 0.0) for id in range(1, 33)]  # the last are out of sight
    assert all(matte.alpha[300, 40 * n] == 255 for n in range(1, 32))


def test_the_first_faces_of_a_scene_are_guarded_at_once_and_later_ones_come_gently() -> None:
    guard = Guard()
    first, second = make_face(300, 300, 100, id=1), make_face(800, 300, 100, id=2)
    assert [opacity for _, opacity in guard.faces([first])] == [1.0]
    rising = [{f.id: o for f, o in guard.faces([first, second])}[2] for _ in range(5)]
    assert rising == [0.25, 0.5, 0.75, 1.0, 1.0]
    falling = [{f.id: o for f, o in guard.faces([first])}.get(2) for _ in range(4)]
    assert falling == [0.75, 0.5, 0.25, None]
    guard.reset()
    assert [opacity for _, opacity in guard.faces([second])] == [1.0]


def test_the_journal_lists_missed_frames_with_the_faces() -> None:
    journal = FaceJournal(HD, measures=True, hides=False)
    frame = flat_frame(HD, 16, 128, 128)
    journal.add(frame, [make_face(1, 1, 1, id=3), make_face(2, 2, 1, id=4)])
    journal.add(frame, [])
    entry = {"frame": 0, "pts": 900, "time_s": 0.5}
    journal.add_coverage(entry, [3, 4], [0.96, 0.5])
    journal.add_coverage({**entry, "frame": 1}, [3], [0.951])
    summary = journal.summary()
    assert summary["tracks"] == summary["most_faces"] == 2
    assert summary["frames_with_faces"] == 1
    assert summary["missed_frames"] == 1
    assert summary["missed"] == [{**entry, "missed_pct": {"4": 50.0}}]
    assert FaceJournal(HD, measures=False, hides=False).summary()["missed_frames"] is None


def test_the_outline_and_the_hiding_ellipse_follow_the_roll() -> None:
    for roll in (0.0, 0.7, -2.0):
        face = make_face(500, 400, 100, roll=roll)
        outline = oval_points(face).T
        assert outline.shape == (36, 2)
        np.testing.assert_array_equal(outline, face.landmarks[list(FACE_OVAL), :2])
        np.testing.assert_array_equal(oval_points(face), outline.T)
        ellipse = hiding_ellipse(face)
        assert (ellipse.x, ellipse.y) == pytest.approx((500, 400), abs=0.5)
        dx, dy = outline[:, 0] - ellipse.x, outline[:, 1] - ellipse.y
        cos, sin = math.cos(ellipse.angle), math.sin(ellipse.angle)
        u, v = (dx * cos + dy * sin) / ellipse.across, (dy * cos - dx * sin) / ellipse.along
        assert np.hypot(u, v).max() < 0.85  # with margin


def test_box_overlap_is_of_the_smaller_box() -> None:
    assert box_overlap((0, 0, 10, 10), (5, 5, 7, 7)) == 1.0
    assert box_overlap((0, 0, 10, 10), (5, 0, 15, 10)) == 0.5
    assert box_overlap((0, 0, 10, 10), (10, 0, 15, 10)) == 0.0
    assert box_overlap((0, 0, 0, 0), (0, 0, 15, 10)) == 0.0


def test_what_a_matte_misses_of_expected_faces() -> None:
    editor, square = MatteEditor(HD), Roi(500.0, 300.0, 300.0, 0.4)
    left, top, right, bottom = box_in(square)
    whole = empty_matte(HD, 255)
    factor = analysis_factor(1280, 720)
    box = np.s_[int(top) // factor : int(bottom) // factor, int(left) // factor :][:2]
    around = empty_matte(HD)
    around.reduced[box][:, : int(right - left) // factor + 1] = 255
    half = empty_matte(HD, 255)
    half.reduced[:, : 500 // factor] = 0
    # Beyond the frame nothing is missing, and nothing counts.
    edge, beyond = Roi(0.0, 300.0, 300.0, 0.0), Roi(-900.0, 0.0, 90.0, 0.0)
    asked = [(whole, square), (around, square), (half, square)]
    asked += [(empty_matte(HD, 51), edge), (empty_matte(HD), beyond)]
    assert editor.missing(asked) == pytest.approx([0.0, 0.0, 0.5, 0.8, 0.0], abs=0.03)


@pytest.mark.parametrize("size", SIZES)
def test_the_cells_in_which_a_face_is_expected(size: tuple[int, int]) -> None:
    """Each cell against the definition, with more faces than one batch."""
    rng = np.random.default_rng(3)
    format, grid, factor = frame_format(size), analysis_shape(*size), analysis_factor(*size)
    asked, expected = [], []
    for _ in range(70):
        x, y = rng.uniform(-0.2, 1.2, 2) * size
        square = Roi(x, y, rng.uniform(0.02, 1) * size[1], rng.uniform(-3, 3))
        matte = Matte(np.empty(0), rng.integers(0, 256, grid, np.uint8))
        across = square.side * np.exp(1j * square.angle)
        places = (x + 1j * y + across * (EXPECTED_SAMPLES[0] + 1j * EXPECTED_SAMPLES[1])) / factor
        seen = [
            255.0 - matte.reduced[int(place.imag), int(place.real)]
            for place in places
            if 0 <= place.real < grid[1] and 0 <= place.imag < grid[0]
        ]
        asked.append((matte, square))
        expected.append(sum(seen) / 255 / max(len(seen), 1))
    assert MatteEditor(format).missing(asked) == pytest.approx(expected, abs=1e-9)


def test_mattes_may_be_inspected_while_others_are_changed() -> None:
    editor, face = MatteEditor(HD), make_face(640, 360, 400)
    seen = [(empty_matte(HD, value), Roi(500.0, 300.0, 300.0, 0.4)) for value in (0, 51, 255)]
    changed = [empty_matte(HD) for _ in range(40)]
    with ThreadPoolExecutor(1) as pool:
        done = pool.map(lambda matte: editor.apply(matte, [(face, 1.0)], None, None), changed)
        for _ in range(100):
            assert editor.missing(seen) == pytest.approx([1.0, 0.8, 0.0])
            assert editor.read(seen[1][0]).max() == 51
        list(done)
    for matte in changed[1:]:
        np.testing.assert_array_equal(matte.alpha, changed[0].alpha)
