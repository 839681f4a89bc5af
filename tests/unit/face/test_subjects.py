"""The main people, and their parts of the matte."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from bgsoft.analysis.base import analysis_shape
from bgsoft.errors import ConfigError
from bgsoft.face.base import Face
from bgsoft.face.subjects import MatteSeparator, SubjectPicker
from bgsoft.settings.config import FaceConfig, FaceMode
from tests.pictures import SIZES, frame_format
from tests.unit.face.shapes import make_face
from tests.unit.matte.scenes import discs

HD = frame_format((1280, 720))
GRID = analysis_shape(1280, 720)
FPS = 30
HEAD = 0.14
"""Its radius, as a part of the height."""


def run(picker: SubjectPicker, faces: Sequence[Face], frames: int, start: float) -> list[set[int]]:
    return [{*picker.update(faces, start + frame / FPS)} for frame in range(frames)]


def test_the_largest_is_main_then_the_most_central() -> None:
    large, small = make_face(300, 360, 200, id=1), make_face(640, 360, 120, id=2)
    assert {*SubjectPicker(1, HD).update([small, large], 0.0)} == {1}
    side, middle = make_face(1200, 360, 150, id=3), make_face(640, 360, 140, id=4)
    assert {*SubjectPicker(1, HD).update([side, middle], 0.0)} == {4}


def test_who_stays_longest_is_main() -> None:
    picker = SubjectPicker(1, HD)
    stays, passes = make_face(500, 360, 150, id=1), make_face(640, 360, 400, id=2)
    run(picker, [stays], 60, 0.0)
    assert all(main == {1} for main in run(picker, [stays, passes], 15, 2.0))


def test_a_lasting_lead_changes_the_main_person_once() -> None:
    picker = SubjectPicker(1, HD)
    one, other = make_face(500, 360, 120, id=1), make_face(700, 360, 300, id=2)
    run(picker, [one], 30, 0.0)
    history = run(picker, [one, other], 150, 1.0)
    assert history[0] == {1}
    assert history[-1] == {2}
    changes = sum(a != b for a, b in pairwise(history))
    assert changes == 1


def test_two_who_are_alike_never_flip() -> None:
    picker = SubjectPicker(1, HD)
    rng = np.random.default_rng(5)
    seen = set()
    for frame in range(300):
        a, b = (float(rng.normal(0, 12)) for _ in range(2))
        faces = [make_face(540, 360, 150 + a, id=1), make_face(740, 360, 150 + b, id=2)]
        seen |= {*picker.update(faces, frame / FPS)}
    assert len(seen) == 1


def test_a_main_person_who_turns_away_keeps_the_place_and_comes_back_under_a_new_id() -> None:
    picker = SubjectPicker(1, HD)
    main, other = make_face(500, 360, 200, id=1), make_face(900, 360, 160, id=2)
    run(picker, [main, other], 60, 0.0)
    assert all(ids == {1} for ids in run(picker, [other], 40, 2.0))
    assert picker.update([other], 3.3) == {1: main}
    again = make_face(520, 360, 200, id=7, age=0)
    assert all(ids == {7} for ids in run(picker, [other, again], 30, 3.4))


def test_a_face_of_another_size_in_the_same_place_is_somebody_else() -> None:
    picker = SubjectPicker(1, HD)
    run(picker, [make_face(500, 360, 200, id=1)], 60, 0.0)
    passer = make_face(500, 360, 80, id=2)
    assert all(ids == {1} for ids in run(picker, [passer], 60, 2.0))


def test_a_main_person_who_left_is_replaced() -> None:
    picker = SubjectPicker(1, HD)
    main, other = make_face(500, 360, 200, id=1), make_face(900, 360, 160, id=2)
    run(picker, [main, other], 60, 0.0)
    assert run(picker, [other], 150, 2.0)[-1] == {2}


def test_several_subjects_and_nobody() -> None:
    faces = [make_face(200 * n, 360, 20 + 40 * n, id=n) for n in range(1, 6)]
    assert {*SubjectPicker(2, HD).update(faces, 0.0)} == {4, 5}
    assert len(SubjectPicker(9, HD).update(faces, 0.0)) == 5
    assert {*SubjectPicker(0, HD).update(faces, 0.0)} == set()
    assert {*SubjectPicker(3, HD).update([], 0.0)} == set()


def test_a_cut_resets_the_filter() -> None:
    picker = SubjectPicker(1, HD)
    run(picker, [make_face(500, 360, 200, id=1)], 60, 0.0)
    picker.reset()
    assert {*picker.update([make_face(500, 360, 100, id=2, age=0)], 2.0)} == {2}


def test_nobody_is_main_only_where_everybody_is_hidden() -> None:
    assert FaceConfig(mode=FaceMode.ANONYMIZE, subjects=0).subjects == 0
    with pytest.raises(ConfigError, match="--subjects"):
        FaceConfig(mode=FaceMode.MAIN, subjects=0)
    with pytest.raises(ConfigError, match="--subjects"):
        FaceConfig(subjects=-1)
    with pytest.raises(ConfigError, match="--face-every"):
        FaceConfig(detect_every=0)


def test_a_detector_that_runs_too_seldom_to_hide_faces_is_rejected() -> None:
    assert FaceConfig(detect_every=30).detect_every == 30
    assert FaceConfig(mode=FaceMode.ANONYMIZE, detect_every=8).detect_every == 8
    with pytest.raises(ConfigError, match=r"cannot use --face-every 9 .*use at most 8"):
        FaceConfig(mode=FaceMode.ANONYMIZE, detect_every=9)


def person(x: float) -> NDArray[np.uint8]:
    """A head and shoulders on the grid, at a part of the width."""
    mask = discs(GRID, (x, 0.42, HEAD), (x, 0.6, HEAD / 2), (x, 1.0, 2.4 * HEAD))
    drawn: NDArray[np.uint8] = (255 * mask).astype(np.uint8)
    return drawn


def face_at(x: float, id: int) -> Face:
    return make_face(1280 * x, 0.42 * 720, 1.4 * HEAD * 720, id=id)


def kept(
    separator: MatteSeparator,
    matte: NDArray[np.uint8],
    main: Sequence[Face],
    others: Sequence[Face],
) -> NDArray[np.uint8]:
    limit, _ = separator.separate(matte, main, others)
    return np.minimum(matte, limit)


def test_apart_the_other_goes_and_the_main_person_stays_whole() -> None:
    one, two = person(0.3), person(0.75)
    both = np.maximum(one, two)
    limit, is_shared = MatteSeparator(HD).separate(both, [face_at(0.3, 1)], [face_at(0.75, 2)])
    left = np.minimum(both, limit)
    assert not is_shared
    np.testing.assert_array_equal(left[one > 0], one[one > 0])
    assert left[:, int(GRID[1] * 0.6) :].max() == 0


def test_touching_people_are_cut_between_them() -> None:
    one, two = person(0.35), person(0.65)
    both = np.maximum(one, two)
    limit, is_shared = MatteSeparator(HD).separate(both, [face_at(0.35, 1)], [face_at(0.65, 2)])
    left = np.minimum(both, limit)
    assert is_shared
    columns = np.arange(GRID[1]) / GRID[1]
    assert (left[:, columns < 0.47] == both[:, columns < 0.47]).all()
    assert left[:, columns > 0.53].max() == 0


def test_a_main_person_without_a_face_in_sight_is_kept_from_frame_to_frame() -> None:
    separator = MatteSeparator(HD)
    other = face_at(0.8, 2)
    both = np.maximum(person(0.3), person(0.8))
    separator.separate(both, [face_at(0.3, 1)], [other])
    for step in range(20):
        x = 0.3 + 0.005 * step
        both = np.maximum(person(x), person(0.8))
        left = kept(separator, both, [], [other])
        assert left[:, : int(GRID[1] * 0.6)].sum() > 0.98 * person(x).sum()
        assert left[:, int(GRID[1] * 0.62) :].max() == 0


def test_what_hangs_below_the_main_face_stays_and_a_stranger_without_a_face_goes() -> None:
    main, stranger = person(0.4), person(0.85)
    matte = np.maximum(main, stranger)
    collar = np.s_[int(GRID[0] * 0.66) : int(GRID[0] * 0.7)]  # which the mask has missed
    matte[collar] = 0
    left = kept(MatteSeparator(HD), matte, [face_at(0.4, 1)], [])
    below = np.s_[int(GRID[0] * 0.75) :, : int(GRID[1] * 0.7)]
    np.testing.assert_array_equal(left[below][main[below] > 127], main[below][main[below] > 127])
    assert left[:, int(GRID[1] * 0.75) :].max() == 0


def test_somebody_who_comes_in_never_shows() -> None:
    separator = MatteSeparator(HD)
    separator.separate(person(0.3), [face_at(0.3, 1)], [])
    both = np.maximum(person(0.3), person(0.8))
    left = kept(separator, both, [face_at(0.3, 1)], [face_at(0.8, 2)])
    assert left[:, int(GRID[1] * 0.62) :].max() == 0


def test_who_loses_the_place_fades() -> None:
    separator = MatteSeparator(HD)
    both = np.maximum(person(0.3), person(0.8))
    one, two = face_at(0.3, 1), face_at(0.8, 2)
    separator.separate(both, [one, two], [])
    values = [int(kept(separator, both, [one], [two])[150, int(GRID[1] * 0.8)]) for _ in range(5)]
    assert values == sorted(values, reverse=True)
    assert 0 < values[0] < 255
    assert values[-1] == 0


@pytest.mark.parametrize("place", [(0.5, 0.5), (0.01, 0.99), (0.99, 0.02), (0.5, 0.0)])
def test_soft_alpha_around_the_main_person_stays(place: tuple[float, float]) -> None:
    """As far as the skirt reaches, for any place and any earlier frame."""
    separator = MatteSeparator(HD)
    before = (255 * discs(GRID, (0.2, 0.3, 0.2))).astype(np.uint8)
    separator.separate(before, [make_face(1280 * 0.2, 720 * 0.3, 80, id=1)], [])
    matte = (255 * discs(GRID, (*place, 0.15))).astype(np.uint8)
    face = make_face(1280 * place[0], 720 * place[1], 80, id=1)
    for _ in range(4):  # what was kept before fades
        limit, _ = separator.separate(matte, [face], [])
    rows, columns = GRID
    small = cv2.resize(matte, (columns // 2, rows // 2), interpolation=cv2.INTER_AREA)
    kept = (small > 127).astype(np.uint8) * 255
    radius = round(4 / 135 * rows / 2)
    side = 2 * radius + 1
    skirt = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (side, side))
    near = cv2.blur(cv2.dilate(kept, skirt), (3, 3))
    np.testing.assert_array_equal(limit, cv2.resize(near, (columns, rows)))


@pytest.mark.parametrize("size", SIZES)
def test_every_size(size: tuple[int, int]) -> None:
    format = frame_format(size)
    grid = analysis_shape(*size)
    separator = MatteSeparator(format)
    main = make_face(size[0] / 4, size[1] / 2, max(1.0, size[0] / 5), id=1)
    other = make_face(size[0], size[1], max(1.0, size[0] / 5), id=2)
    for matte in (np.full(grid, 255, np.uint8), np.zeros(grid, np.uint8)):
        limit, _ = separator.separate(matte, [main], [other])
        assert limit.shape == grid
