"""Faces drawn into pictures, and the preview that does it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from bgsoft.face.base import NO_LANDMARKS
from bgsoft.rendering.configure import build_config
from bgsoft.rendering.preview import draw_faces, write_preview
from tests.face_clips import SAMPLE
from tests.unit.face.shapes import make_face


def test_drawn_is_what_lies_in_the_box_and_its_label() -> None:
    picture = np.zeros((400, 600, 3), np.uint8)
    draw_faces(picture, [make_face(300, 220, 120, id=1)])
    rows, columns = np.nonzero(picture.any(axis=-1))
    assert 235 <= columns.min() <= 242
    assert 290 <= rows.max() <= 300
    assert picture[220, 240].any()
    assert picture[:100].max() == 0


def test_a_face_shows_between_its_landmarks() -> None:
    picture = np.full((200, 200, 3), 100, np.uint8)
    face = make_face(100, 100, 40)
    draw_faces(picture, [face])
    changed = (picture[90:110, 90:110] != 100).any(axis=-1)
    assert 0 < changed.mean() < 0.1


def test_faces_out_of_sight_or_without_a_size_do_no_harm() -> None:
    picture = np.zeros((64, 64, 3), np.uint8)
    lost = make_face(32, 32, 20)
    lost.landmarks[:] = 5.0
    draw_faces(picture, [make_face(-500, 30, 100), make_face(64, 64, 60), lost])
    assert picture.any()


def test_of_a_face_without_landmarks_there_is_the_box() -> None:
    picture = np.zeros((200, 200, 3), np.uint8)
    draw_faces(picture, [replace(make_face(100, 100, 40), landmarks=NO_LANDMARKS)])
    assert picture[80:120, 80].all(axis=-1).any()
    assert not picture[90:110, 90:110].any()


@pytest.mark.slow
def test_a_preview_shows_the_face(tmp_path: Path) -> None:
    plain, drawn = tmp_path / "plain.png", tmp_path / "drawn.png"
    for target, faces in ((plain, False), (drawn, True)):
        write_preview(build_config(SAMPLE, target), 0.2, faces=faces)
    before, after = cv2.imread(str(plain)), cv2.imread(str(drawn))
    assert before is not None
    assert after is not None
    changed = (before != after).any(axis=-1)
    assert changed[200:400, 590:760].mean() > 0.03
    assert not changed[:, 1280:].any()  # matte and result stay
    assert not changed[:, :500].any()
