"""Faces united with the matte."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from bgsoft.analysis.base import grid_factor, grid_shape
from bgsoft.face.base import Face
from bgsoft.face.journal import FaceJournal
from bgsoft.face.oval import box_overlap, face_outline, hiding_ellipse
from bgsoft.face.protect import CoverDrawer, CpuMatteEditor, Guard
from bgsoft.frame import FrameFormat, Matte
from tests.pictures import SIZES, frame_format
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
    seen: list[list[float]] = []
    CpuMatteEditor(HD).apply(
        matte, CoverDrawer(HD).draw([(face, 1.0)]), None, lambda shares: seen.append(list(shares))
    )
    assert matte.alpha.min() == 255
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
    editor.apply(matte, drawer.draw(faces), None, lambda _shares: None)
    assert matte.alpha[height // 2, width // 2] > 200
    assert drawer.draw(faces[3:]) is None  # out of sight
    assert drawer.draw([]) is None
    # Nothing is left of what was drawn before.
    tiny = drawer.draw([(make_face(width / 2, height / 2, 1.0), 1.0)])
    assert tiny is not None
    left, top, right, bottom = tiny.box
    outside = tiny.plane.copy()
    outside[top:bottom, left:right] = 0
    assert outside.max() == 0


def test_faces_that_are_not_numbers_are_left_out() -> None:
    face = make_face(640, 360, 200)
    face.landmarks[:] = np.nan
    assert CoverDrawer(HD).draw([(face, 1.0)]) is None


def test_thirty_faces() -> None:
    faces = [(make_face(40 * n, 300, 30, id=n), 1.0) for n in range(1, 40)]
    cover = CoverDrawer(HD).draw(faces)
    assert cover is not None
    assert len(cover.faces) == len(cover.face_boxes) == 32
    matte = empty_matte(HD)
    CpuMatteEditor(HD).apply(matte, cover, None, None)
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
