"""Faces united with the matte."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from bgsoft.analysis.base import grid_factor, grid_shape
from bgsoft.face.base import Face
from bgsoft.face.journal import FaceJournal
from bgsoft.face.oval import FACE_OVAL, box_overlap, face_outline, hiding_ellipse, oval_points
from bgsoft.face.protect import Cover, CoverDrawer, CpuMatteEditor, Guard, Outline, paint
from bgsoft.frame import FrameFormat, Matte
from tests.pictures import SIZES, disc_mask, frame_format, matte_from
from tests.unit.face_shapes import make_face

HD = frame_format((1280, 720))


def empty_matte(format: FrameFormat, value: int = 0) -> Matte:
    grid = grid_shape(format.width, format.height)
    return Matte(
        alpha=np.full(format.luma_shape, value, np.uint8),
        reduced=np.full(grid, value, np.uint8),
    )


def inside_outline(face: Face, format: FrameFormat) -> NDArray[np.bool_]:
    """Pixels inside the face's outline, drawn on the full frame."""
    drawn = np.zeros(format.luma_shape, np.uint8)
    cv2.fillPoly(drawn, [np.rint(face_outline(face) - 0.5).astype(np.int32)], 255)
    return drawn > 0


def enclosed_shares(outline: Outline) -> NDArray[np.float64]:
    """What defines a cover: how much of the square around each cell its outline encloses, 0–1."""
    left, top, right, bottom = outline.box
    fine = 16
    side = outline.side * fine
    margin = side // 2
    shape = ((bottom - top) * fine + 2 * margin, (right - left) * fine + 2 * margin)
    drawn = np.zeros(shape, np.uint8)
    corner = (left - margin / fine, top - margin / fine)
    points = outline.points.T * outline.scale + outline.shift
    corners = (points - corner) * fine - 0.5
    cv2.fillPoly(drawn, [np.rint(corners * 16).astype(np.int32)], 1, shift=4)
    sums = cv2.integral(drawn)
    inside = sums[side:, side:] - sums[:-side, side:] - sums[side:, :-side] + sums[:-side, :-side]
    return inside[fine // 2 :: fine, fine // 2 :: fine] / side**2


def plane_of(cover: Cover, format: FrameFormat) -> NDArray[np.uint8]:
    """The whole cover on the grid."""
    plane = np.zeros(grid_shape(format.width, format.height), np.uint8)
    for outline in cover.outlines:
        left, top, right, bottom = outline.box
        part = plane[top:bottom, left:right]
        np.maximum(part, paint(outline), out=part)
    return plane


@pytest.mark.parametrize("width", [20, 60, 150, 400, 900])
@pytest.mark.parametrize("place", [(640, 360), (3, 350), (1275, 717)])
def test_a_cover_is_the_enclosed_share_of_a_square_around_each_cell(
    place: tuple[float, float], width: float
) -> None:
    rng = np.random.default_rng(int(width))
    for roll in (0.0, 0.7, -2.0):
        face = make_face(*place, width, roll=roll)
        # No ellipse: dents, as in the outline of a face that is turned away.
        face.landmarks[list(FACE_OVAL), :2] += rng.normal(0, 0.01 * width, (36, 2))
        cover = CoverDrawer(HD).draw([(face, 1.0)])
        assert cover is not None
        (outline,) = cover.outlines
        shares, painted = enclosed_shares(outline), paint(outline).astype(float)
        assert painted.shape == shares.shape
        assert np.abs(painted - 255 * shares).max() <= 20
        soft = (shares > 0.01) & (shares < 0.99)
        assert np.abs(painted - 255 * shares)[soft].mean() < 5


@pytest.mark.parametrize("width", [4, 30, 90, 300])
def test_the_outermost_cells_of_a_box_are_free_but_at_the_edge_of_the_grid(width: float) -> None:
    for x in np.linspace(600, 604, 9):
        for roll in (0.0, 1.0):
            cover = CoverDrawer(HD).draw([(make_face(x, 360 + x / 7, width, roll=roll), 1.0)])
            assert cover is not None
            painted = paint(cover.outlines[0])
            assert painted.max() == 255
            assert not painted[[0, -1]].any()
            assert not painted[:, [0, -1]].any()
    cover = CoverDrawer(HD).draw([(make_face(0, 0, 300), 1.0)])
    assert cover is not None
    assert cover.outlines[0].box[:2] == (0, 0)
    assert paint(cover.outlines[0])[0, 0] == 255


def test_covers_fade_evenly() -> None:
    face = make_face(640, 360, 200)
    full, half = (CoverDrawer(HD).draw([(face, opacity)]) for opacity in (1.0, 0.5))
    assert full is not None
    assert half is not None
    assert half.faces == []  # not measured
    expected = paint(full.outlines[0]) / 2.0
    assert np.abs(paint(half.outlines[0]) - expected).max() <= 0.5


@pytest.mark.parametrize("roll", [0.0, 0.6, -1.4])
@pytest.mark.parametrize("place", [(640, 300), (20, 360), (1270, 715), (500, 5)])
def test_a_missed_face_becomes_opaque_and_nothing_far_from_it_changes(
    place: tuple[float, float], roll: float
) -> None:
    face = make_face(*place, 160, roll=roll)
    matte = empty_matte(HD)
    cover = CoverDrawer(HD).draw([(face, 1.0)])
    assert cover is not None
    seen: list[list[float]] = []
    CpuMatteEditor(HD).apply(matte, cover, None, lambda shares: seen.append(list(shares)))
    inside = inside_outline(face, HD)
    assert matte.alpha[inside].min() >= 235
    far = cv2.dilate(inside.astype(np.uint8), np.ones((81, 81), np.uint8)) == 0
    assert matte.alpha[far].max() == 0
    assert seen == [[0.0]]
    factor = grid_factor(1280, 720)
    cells = cv2.resize(
        matte.alpha, None, fx=1 / factor, fy=1 / factor, interpolation=cv2.INTER_AREA
    )
    assert np.abs(cells.astype(int) - matte.reduced).mean() < 1


def test_the_edge_is_soft() -> None:
    face = make_face(640, 360, 200)
    matte = empty_matte(HD)
    CpuMatteEditor(HD).apply(matte, CoverDrawer(HD).draw([(face, 1.0)]), None, None)
    row = matte.alpha[360, 640:].astype(int)
    assert row[0] == 255
    assert row[-1] == 0
    assert np.diff(row).max() == 0  # falls, and never rises
    assert 8 <= np.count_nonzero((row > 5) & (row < 250)) <= 40


def test_a_matte_that_has_the_face_keeps_what_it_has() -> None:
    face = make_face(640, 360, 200)
    matte = empty_matte(HD, 255)
    own = matte.reduced
    seen: list[list[float]] = []
    CpuMatteEditor(HD).apply(
        matte, CoverDrawer(HD).draw([(face, 1.0)]), None, lambda shares: seen.append(list(shares))
    )
    assert matte.alpha.min() == 255
    assert matte.reduced is own
    assert seen == [[1.0]]


def test_what_the_mask_had_missed_is_measured_before_uniting() -> None:
    face = make_face(640, 360, 200)
    matte = empty_matte(HD)
    matte.reduced[:, : matte.reduced.shape[1] // 2] = 255  # half of the face
    seen: list[list[float]] = []
    editor, drawer = CpuMatteEditor(HD), CoverDrawer(HD)
    editor.apply(matte, drawer.draw([(face, 1.0)]), None, lambda shares: seen.append(list(shares)))
    assert seen[0][0] == pytest.approx(0.5, abs=0.03)


def test_the_stage_that_made_the_matte_keeps_its_own_plane() -> None:
    matte = empty_matte(HD)
    own = matte.reduced
    CpuMatteEditor(HD).apply(
        matte, CoverDrawer(HD).draw([(make_face(640, 360, 200), 1.0)]), None, None
    )
    assert own.max() == 0
    assert matte.reduced is not own
    assert matte.reduced.max() == 255


def test_a_limit_cuts_first_and_covers_win_over_it() -> None:
    matte = empty_matte(HD, 200)
    limit = np.zeros(matte.reduced.shape, np.uint8)
    limit[:, 400:] = 255
    face = make_face(200, 360, 150)
    CpuMatteEditor(HD).apply(matte, CoverDrawer(HD).draw([(face, 1.0)]), limit, None)
    assert matte.alpha[360, 200] == 255
    assert matte.alpha[50, 50] == 0
    assert matte.alpha[360, 1200] == 200


@pytest.mark.parametrize("size", SIZES)
def test_every_size_with_faces_anywhere(size: tuple[int, int]) -> None:
    format = frame_format(size)
    width, height = size
    drawer, editor = CoverDrawer(format), CpuMatteEditor(format)
    faces = [
        (make_face(width * x, height * y, max(1.5, width * 0.4), id=index), 1.0)
        for index, (x, y) in enumerate([(0.5, 0.5), (0, 0), (1, 1), (-30, 0.5), (0.5, 90)])
    ]
    matte = empty_matte(format)
    cover = drawer.draw(faces)
    assert cover is not None
    assert cover.faces == [0, 1, 2]
    editor.apply(matte, cover, None, lambda _shares: None)
    assert matte.alpha[height // 2, width // 2] > 200
    assert drawer.draw(faces[3:]) is None  # out of sight
    assert drawer.draw([]) is None


@pytest.mark.parametrize("limits", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_the_matte_rises_to_the_enlarged_cover_wherever_it_is_not_opaque(
    size: tuple[int, int], limits: bool
) -> None:
    """Though only what can rise is looked at."""
    format = frame_format(size)
    rng = np.random.default_rng(5)
    factor, (rows, columns) = grid_factor(*size), grid_shape(*size)
    editor, drawer = CpuMatteEditor(format), CoverDrawer(format)
    for radius in (0.1, 0.3, 0.6):
        x, y = rng.uniform(0, 1, 2) * size
        faces = [(make_face(x, y, max(2.0, 0.3 * size[0]), roll=0.4), 1.0)]
        faces += [(make_face(size[0] - x, size[1] - y, max(2.0, 0.1 * size[0]), id=1), 0.5)]
        cover = drawer.draw(faces)
        assert cover is not None
        matte = matte_from(format, disc_mask(format, radius))
        limit = rng.integers(0, 256, (rows, columns), np.uint8) if limits else None
        alpha, reduced = matte.alpha.copy(), matte.reduced.copy()
        enlarged = [
            cv2.resize(
                plane, (columns * factor, rows * factor), interpolation=cv2.INTER_LINEAR
            ).reshape(rows * factor, columns * factor)[: size[1], : size[0]]
            for outline in cover.outlines
            for plane in [plane_of(Cover([outline], []), format)]
        ]
        if limit is not None:
            reduced = np.minimum(reduced, limit)
            most = cv2.resize(limit, (columns * factor, rows * factor)).reshape(-1)
            most = most.reshape(rows * factor, columns * factor)[: size[1], : size[0]]
            alpha = np.minimum(alpha, most)
        editor.apply(matte, cover, limit, None)
        np.testing.assert_array_equal(matte.reduced, np.maximum(reduced, plane_of(cover, format)))
        np.testing.assert_array_equal(matte.alpha, np.maximum.reduce([alpha, *enlarged]))


def test_faces_that_are_not_numbers_are_left_out() -> None:
    face = make_face(640, 360, 200)
    face.landmarks[:] = np.nan
    assert CoverDrawer(HD).draw([(face, 1.0)]) is None


def test_thirty_faces() -> None:
    faces = [(make_face(40 * n, 300, 30, id=n), 1.0) for n in range(1, 40)]
    cover = CoverDrawer(HD).draw([(faces[0][0], 0.25), *faces])
    assert cover is not None
    assert cover.faces == list(range(1, 33))  # the last are out of sight
    assert [outline.opacity for outline in cover.outlines] == [1.0] * 32 + [0.25]
    matte = empty_matte(HD)
    seen: list[list[float]] = []
    CpuMatteEditor(HD).apply(matte, cover, None, lambda shares: seen.append(list(shares)))
    assert seen == [[0.0] * 32]
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
    journal = FaceJournal(measures=True)
    journal.add([make_face(1, 1, 1, id=3), make_face(2, 2, 1, id=4)])
    journal.add([])
    journal.add_coverage(0, 900, 0.5, [3, 4], [0.81, 0.5])
    journal.add_coverage(1, 1800, 1.0, [3], [0.80])
    summary = journal.summary()
    assert summary["tracks"] == summary["most_faces"] == 2
    assert summary["frames_with_faces"] == 1
    assert summary["missed_frames"] == 1
    assert summary["missed"] == [{"frame": 0, "pts": 900, "time_s": 0.5, "missed_pct": {"4": 50.0}}]
    assert FaceJournal(measures=False).summary()["missed_frames"] is None


def test_the_outline_and_the_hiding_ellipse_follow_the_roll() -> None:
    for roll in (0.0, 0.7, -2.0):
        face = make_face(500, 400, 100, roll=roll)
        outline = face_outline(face)
        assert outline.shape == (36, 2)
        np.testing.assert_array_equal(outline, face.landmarks[list(FACE_OVAL), :2])
        np.testing.assert_array_equal(oval_points(face), outline.T)
        grown = face_outline(face, 1.5)
        assert np.ptp(grown[:, 0]) == pytest.approx(1.5 * np.ptp(outline[:, 0]), rel=1e-3)
        ellipse = hiding_ellipse(face)
        assert (ellipse.x, ellipse.y) == pytest.approx((500, 400), abs=0.5)
        dx, dy = outline[:, 0] - ellipse.x, outline[:, 1] - ellipse.y
        u = (dx * ellipse.cos + dy * ellipse.sin) / ellipse.across
        v = (dy * ellipse.cos - dx * ellipse.sin) / ellipse.along
        assert np.hypot(u, v).max() < 0.85  # with margin


def test_box_overlap_is_of_the_smaller_box() -> None:
    assert box_overlap((0, 0, 10, 10), (5, 5, 7, 7)) == 1.0
    assert box_overlap((0, 0, 10, 10), (5, 0, 15, 10)) == 0.5
    assert box_overlap((0, 0, 10, 10), (10, 0, 15, 10)) == 0.0
    assert box_overlap((0, 0, 0, 0), (0, 0, 15, 10)) == 0.0
