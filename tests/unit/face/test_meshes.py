"""Landmarks over time: smoothing, and where it restarts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from bgsoft.face.base import Face
from bgsoft.face.geometry import Roi
from bgsoft.face.meshes import MeshMaker
from bgsoft.face.networks import FramePair, Landmarks
from bgsoft.frame import AnalysisFrame
from tests.pictures import flat_frame, frame_format
from tests.unit.face import shapes

FORMAT = frame_format((64, 64))
GRID = AnalysisFrame(1, np.zeros((1, 1)), np.zeros((1, 1, 2)))


class Script:
    """Landmarks of faces by the middle of their squares; implements ``FaceNetworks.landmarks``."""

    def __init__(self) -> None:
        self.presence = True
        self.calls: list[int] = []

    def landmarks(self, asked: Sequence[tuple[FramePair, Roi]]) -> list[Landmarks | None]:
        self.calls.append(len(asked))
        points = [shapes.mesh(roi.x, roi.y, roi.side) for _, roi in asked]
        return shapes.meshes(points, [self.presence] * len(asked))


class Scene:
    def __init__(self) -> None:
        self.script = Script()
        self.maker = MeshMaker(self.script)

    def step(self, ms: int, *faces: Face) -> list[Face]:
        (made,) = self.maker.make([pair(ms)], [faces])
        return made


def pair(ms: int) -> FramePair:
    frame = flat_frame(FORMAT, 16, 128, 128)
    frame.pts = ms
    return frame, GRID


def face_at(x: float, id: int = 0) -> Face:
    face = shapes.make_face(x, 50, 100, id=id)
    return replace(face, landmarks=face.landmarks[:0], square=Roi(x, 50, 100, 0))


def raw(x: float) -> np.ndarray:
    return shapes.mesh(x, 50).astype(np.float32)


def test_the_first_landmarks_are_as_the_model_gives_them() -> None:
    (face,) = Scene().step(0, face_at(50))
    assert face.landmarks.dtype == np.float32
    assert face.landmarks.flags.c_contiguous
    np.testing.assert_allclose(face.landmarks, raw(50), atol=1e-4)


def test_the_next_ones_are_smoothed_and_follow() -> None:
    scene = Scene()
    scene.step(0, face_at(50))
    (face,) = scene.step(33, face_at(52))
    shift = (face.landmarks - raw(50))[:, 0].mean()
    assert 0 < shift < 2


@pytest.mark.parametrize("why", ["another", "late", "reset"])
def test_smoothing_begins_again(why: str) -> None:
    """For another face, after a gap, and in a new scene."""
    scene = Scene()
    scene.step(0, face_at(50))
    face, ms = face_at(52), 33
    if why == "another":
        face = replace(face, id=1)
    elif why == "late":
        ms = 200
    else:
        scene.maker.reset()
    np.testing.assert_allclose(scene.step(ms, face)[0].landmarks, raw(52), atol=1e-4)


def test_without_a_face_in_the_square_there_are_no_landmarks() -> None:
    scene = Scene()
    scene.script.presence = False
    (face,) = scene.step(0, face_at(50))
    assert not face.has_landmarks


def test_landmarks_that_are_no_numbers_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    points = shapes.mesh(50, 50)
    points[7, 0] = np.nan
    monkeypatch.setattr(scene.script, "landmarks", lambda _: shapes.meshes([points], [True]))
    (face,) = scene.step(0, face_at(50))
    assert not face.has_landmarks


def test_faces_of_several_frames_are_made_at_once_and_each_has_its_own() -> None:
    scene = Scene()
    rows = [[face_at(50), face_at(300, 1)], [], [face_at(300, 1)]]
    made = scene.maker.make([pair(33 * at) for at in range(3)], rows)
    assert scene.script.calls == [3]
    assert [[face.id for face in faces] for faces in made] == [[0, 1], [], [1]]
    np.testing.assert_allclose(made[2][0].landmarks, raw(300), atol=1e-3)


def test_what_small_faces_have_of_noise_is_smoothed_more() -> None:
    left = []
    for side in (40.0, 200.0):
        scene, rng, seen = Scene(), np.random.default_rng(0), []
        for at in range(40):
            x = 50 + side * 0.003 * rng.standard_normal()
            face = replace(face_at(50), square=Roi(x, 50, side, 0))
            seen.append(scene.step(33 * at, face)[0].landmarks[:, 0].mean() / side)
        left.append(np.std(seen[20:]))
    assert left[0] < 0.7 * left[1]
