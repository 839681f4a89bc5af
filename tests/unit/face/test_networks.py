"""The finder with its networks, on the sample's person and on hard pictures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from bgsoft.analysis.reduce import Reducer
from bgsoft.decode.cpu import CpuDecoder
from bgsoft.face.base import Face
from bgsoft.face.create import finder_settings
from bgsoft.face.finder import FaceFinder
from bgsoft.face.geometry import Roi, box_iou
from bgsoft.face.networks import FaceGlance, FaceNetworks, FramePair, Landmarks
from bgsoft.frame import Frame, FrameFormat, PixelLayout
from bgsoft.ring import FrameRing
from bgsoft.settings.config import FaceConfig, FaceMode
from tests.fakes import host_planes
from tests.marks import crossed, slow
from tests.pictures import (
    codes,
    copy_frame,
    flat_frame,
    frame_format,
    frame_of,
    make_frame,
    random_frame,
)

SAMPLE = Path(__file__).parents[3] / "samples" / "person.mp4"
GUARD, MAIN, HIDE = FaceMode.GUARD, FaceMode.MAIN, FaceMode.ANONYMIZE
Picture = np.ndarray[Any, Any]


def sample_frames() -> Iterator[Frame]:
    with CpuDecoder(SAMPLE) as decoder:
        ring = FrameRing(2, lambda slot: host_planes(decoder.info.format, slot))
        for frame in decoder.frames(ring):
            yield frame
            ring.release(frame)


@cache
def sample_frame() -> Frame:
    return copy_frame(next(sample_frames()))


@cache
def portrait() -> Picture:
    """The head and shoulders of the sample's person, (400, 400, 3) BGR; the face in the middle."""
    frame = sample_frame()
    matrix = cv2.COLOR_YUV2BGR_NV12
    planes = np.vstack([frame.luma, frame.chroma.reshape(len(frame.luma) // 2, -1)])
    x, y = (round(sum(ends) / 2) for ends in zip(*_corners(), strict=True))
    picture: Picture = cv2.cvtColor(planes, matrix)[y - 200 : y + 200, x - 200 : x + 200]
    assert picture.shape == (400, 400, 3)
    return picture


@cache
def _corners() -> tuple[tuple[float, float], tuple[float, float]]:
    left, top, right, bottom = sample_face().box_xyxy
    return (left, top), (right, bottom)


@cache
def sample_face() -> Face:
    """Return the largest face; the frame's lower edge cuts a pocket that may pass for one."""
    return find_once(sample_frame(), MAIN)[0]


@cache
def face_size() -> float:
    """Height of the portrait's face."""
    _, top, _, bottom = sample_face().box_xyxy
    return bottom - top


def on_grey(
    size: tuple[int, int], at: tuple[float, float], height: float, turn: float = 0.0
) -> Frame:
    """The portrait in a grey frame: where its face's middle is, and how high that is, in pixels.

    Args:
        size: Of the frame.
        at: May lie outside.
        height: Of the face.
        turn: Radians, clockwise.
    """
    scale = height / face_size()
    cos, sin = scale * math.cos(turn), scale * math.sin(turn)
    x, y = at[0] - 200 * (cos - sin), at[1] - 200 * (sin + cos)
    way = np.array([[cos, -sin, x], [sin, cos, y]])
    source = portrait()
    if scale < 0.5:  # nothing is left out between samples
        source = cv2.resize(source, None, fx=2 * scale, fy=2 * scale, interpolation=cv2.INTER_AREA)
        way[:, :2] *= 400 / len(source)
    picture = cv2.warpAffine(source, way, size, borderValue=(120, 120, 120))
    return frame_of(np.asarray(picture, np.uint8))


def finder_of(format: FrameFormat, mode: FaceMode = GUARD, **config: Any) -> FaceFinder:
    settings = finder_settings(FaceConfig(mode=mode, **config), format, writes_data=False)
    return FaceFinder(format, FaceNetworks(format, settings.canvases(format)), settings)


def find(finder: FaceFinder, frame: Frame) -> list[Face]:
    (faces,) = finder.find([frame], Reducer(frame.format).reduce([frame]))
    for face in faces:
        assert np.isfinite(face.box_xyxy).all()
        assert 0 <= face.score <= 1
    return faces


def find_once(frame: Frame, mode: FaceMode, **config: Any) -> list[Face]:
    with finder_of(frame.format, mode, **config) as finder:
        return find(finder, frame)


def is_at(face: Face, at: tuple[float, float], height: float) -> bool:
    left, top, right, bottom = face.box_xyxy
    away = math.hypot((left + right) / 2 - at[0], (top + bottom) / 2 - at[1])
    return away < 0.25 * height and 0.6 < math.sqrt((right - left) * (bottom - top)) / height < 1.3


@pytest.mark.slow
@pytest.mark.parametrize("mode", [GUARD, HIDE])
def test_every_frame_of_the_sample_has_its_face(mode: FaceMode) -> None:
    ids, widths = set(), []
    with finder_of(sample_frame().format, mode) as finder:
        for frame in sample_frames():
            face, *_ = find(finder, frame)
            ids.add(face.id)
            assert face.age_frames == frame.index
            widths.append(face.box_xyxy[2] - face.box_xyxy[0])
        finder.close()
    assert ids == {0}
    assert np.ptp(widths) < 0.3 * np.mean(widths)


@pytest.mark.parametrize("mode", [GUARD, HIDE])
def test_a_batch_gives_the_faces_of_single_frames(mode: FaceMode) -> None:
    """Bit-equal, whatever is inspected ahead of time."""
    frames: list[Frame] = []
    for frame in sample_frames():
        if len(frames) == 4:
            break
        frames.append(copy_frame(frame))
        frames[-1].pts = 33 * frame.index
    format = frames[0].format
    reduced = [Reducer(format).reduce([frame])[0] for frame in frames]
    with finder_of(format, mode) as finder:
        singles = [find(finder, frame) for frame in frames]
    with finder_of(format, mode) as finder:
        finder._networks.views_per_run = 2
        found = finder.find(frames[:3], reduced[:3]) + finder.find(frames[3:], reduced[3:])
        assert finder.find([], []) == []
    assert all(faces for faces in found)
    for faces, known in zip(found, singles, strict=True):
        said = [
            [(face.id, face.score, face.box_xyxy, face.detected, face.angle) for face in each]
            for each in (faces, known)
        ]
        assert said[0] == said[1]


@pytest.mark.parametrize(
    ("mode", "size", "at", "height"),
    [
        (HIDE, (1280, 720), (110, 90), 28),
        (HIDE, (1280, 720), (1213, 655), 32),
        (HIDE, (640, 360), (301, 40), 24),
        (MAIN, (1280, 720), (1213, 655), 48),
        (MAIN, (640, 360), (301, 40), 40),
    ],
)
def test_small_faces_are_found_where_they_matter(
    mode: FaceMode, size: tuple[int, int], at: tuple[int, int], height: float
) -> None:
    found = find_once(on_grey(size, at, height), mode)
    assert any(is_at(face, at, height) for face in found)
    assert mode is HIDE or len(found) == 1  # where faces are hidden, specks may be, too


def test_small_faces_are_found_when_asked_for() -> None:
    frame = on_grey((1920, 1080), (700, 400), 64)
    assert find_once(frame, GUARD) == []
    (face,) = find_once(frame, GUARD, small_faces=True)
    assert is_at(face, (700, 400), 64)


@crossed(inside=[-0.1, 0.0, 0.2], edge=["left", "right", "top", "bottom"])
def test_a_face_that_an_edge_cuts_is_found(edge: str, inside: float) -> None:
    """Its middle is so many face heights inside; the detector's border mirrors the rest."""
    (width, height), side = (640, 360), 140.0
    x, y = {
        "left": (inside * side, 180),
        "right": (width - inside * side, 180),
        "top": (320, inside * side),
        "bottom": (320, height - inside * side),
    }[edge]
    (face,) = find_once(on_grey((width, height), (x, y), side), HIDE)
    left, top = max(x - 0.35 * side, 0), max(y - 0.45 * side, 0)
    right, bottom = min(x + 0.35 * side, width), min(y + 0.45 * side, height)
    across = min(right, face.box_xyxy[2]) - max(left, face.box_xyxy[0])
    down = min(bottom, face.box_xyxy[3]) - max(top, face.box_xyxy[1])
    assert across * down > 0.8 * (right - left) * (bottom - top)


@pytest.mark.parametrize("degrees", [0, 60, 90, 150, 180, 270])
def test_turned_faces_are_found_while_hiding(degrees: int) -> None:
    turn, at = math.radians(degrees), (330.0, 170.0)
    (face,) = find_once(on_grey((640, 360), at, 90, turn), HIDE)
    assert is_at(face, at, 90)
    assert abs(math.remainder(face.angle - turn, math.tau)) < math.radians(25)


def test_a_rotated_clip_is_found_as_the_upright_one() -> None:
    """Turned by quarters, the detector gets the same picture."""
    for turns in range(4):
        frame = on_grey((640, 360), (330, 170), 90)
        planes = [np.ascontiguousarray(np.rot90(p, -turns)) for p in (frame.luma, frame.chroma)]
        height, width = planes[0].shape
        format = replace(frame.format, width=width, height=height)
        (face,) = find_once(make_frame(format, *planes), HIDE)
        place = (330, 170), (360 - 170, 330), (640 - 330, 360 - 170), (170, 640 - 330)
        assert is_at(face, place[turns], 90)
        assert abs(math.remainder(face.angle - turns * math.pi / 2, math.tau)) < 0.15


def test_ten_bit_frames_give_the_same_face() -> None:
    frame = sample_frame()
    deep = replace(frame.format, layout=PixelLayout.P010)
    planes = [codes(deep, plane.astype(np.uint16) * 4) for plane in (frame.luma, frame.chroma)]
    ten, *_ = find_once(make_frame(deep, *planes), MAIN)
    assert box_iou(ten.box_xyxy, sample_face().box_xyxy) > 0.98


def wall(columns: int, rows: int, face: float) -> Frame:
    side = round(face * 400 / face_size() * 0.6) // 2 * 2
    part = cv2.resize(portrait()[80:320, 80:320], (side, side), interpolation=cv2.INTER_AREA)
    return frame_of(np.tile(part, (rows, columns, 1)))


@pytest.mark.parametrize("mode", [MAIN, slow(HIDE)])
def test_a_wall_of_a_hundred_faces(mode: FaceMode) -> None:
    """Each face is found once, although they exceed the first buffer."""
    frame = wall(12, 9, 50)
    faces = find_once(frame, mode)
    side = frame.format.width / 12
    for row in range(9):
        for column in range(12):
            at = (column + 0.5) * side, (row + 0.5) * side
            assert sum(is_at(face, at, 50) for face in faces) == 1
    for one, other in combinations(faces, 2):
        assert box_iou(one.box_xyxy, other.box_xyxy) < 0.3


@pytest.mark.parametrize("mode", [GUARD, HIDE])
def test_a_face_that_goes_is_gone_after_three_frames(mode: FaceMode) -> None:
    frame = on_grey((640, 360), (330, 170), 90)
    rng = np.random.default_rng(0)
    with finder_of(frame.format, mode) as finder:
        for at in range(4):
            frame.pts = 33 * at
            assert len(find(finder, frame)) == 1
        lives = []
        frame.chroma[:] = 128
        for at in range(4, 13):
            frame.pts = 33 * at
            frame.luma[:] = np.clip(rng.normal(120, 4, frame.luma.shape), 0, 255)
            lives.append(bool(find(finder, frame)))
    # Frames until the next look, and those that have to agree.
    assert not any(lives[6:])


class CountingNetworks(FaceNetworks):
    """Count the squares of each call of the landmark model."""

    counts: list[int]

    def landmarks(self, asked: Sequence[tuple[FramePair, Roi]]) -> list[Landmarks | None]:
        self.counts.append(len(asked))
        return super().landmarks(asked)


def test_landmarks_are_made_where_they_are_asked_for() -> None:
    """Eyes, nose and mouth lie where they are in the frame."""
    frame = copy_frame(sample_frame())
    format = frame.format
    settings = finder_settings(FaceConfig(), format, writes_data=False)
    networks = CountingNetworks(format, settings.canvases(format))
    networks.counts = []
    (reduced,) = Reducer(format).reduce([frame])
    with FaceFinder(format, networks, settings) as finder:
        faces = find(finder, frame)
        assert not faces[0].has_landmarks
        (face,) = finder.close_up(frame, reduced, faces)
        assert networks.counts == [1]
        left, top, right, bottom = face.box_xyxy
        assert face.landmarks.shape == (468, 3)
        assert face.landmarks.dtype == np.float32
        x, y = face.landmarks[[33, 263, 13], :2].T  # outer corners of the eyes, and the lips
        assert left < x[0] < x[2] < x[1] < right
        assert top < y[:2].max() < y[2] < bottom
        # Where there is none, there are no landmarks.
        frame.luma[:], frame.chroma[:] = format.luma_range[0], format.chroma_neutral
        (reduced,) = Reducer(format).reduce([frame])
        finder.reset()
        assert finder.close_up(frame, reduced, [replace(face, landmarks=face.landmarks[:0])]) == []


@crossed(layout=list(PixelLayout), size=[(1, 1), (2, 200), (700, 1), (64, 64), (65, 47)])
def test_noise_and_tiny_frames_are_no_fault(size: tuple[int, int], layout: PixelLayout) -> None:
    format = frame_format(size, layout)
    rng = np.random.default_rng(1)
    with finder_of(format, HIDE) as finder:
        for pts in range(2):
            found = find(finder, random_frame(format, rng, pts))
            assert not any(face.is_proven for face in found)


def test_a_grey_frame_has_no_faces_and_no_doubts() -> None:
    frame = flat_frame(frame_format((640, 360)), 120, 128, 128)
    with finder_of(frame.format, HIDE) as finder:
        assert find(finder, frame) == []
        assert finder.doubts == [[]]


def test_a_glance_shows_where_faces_are() -> None:
    """One frame has two faces at known places, the other none."""
    size, places = (640, 360), ((160, 120), (480, 200))
    two, nobody = on_grey(size, places[0], 80), flat_frame(frame_format(size), 120, 128, 128)
    right = on_grey(size, places[1], 80)
    two.planes.luma[:, 320:] = right.planes.luma[:, 320:]
    two.planes.chroma[:, 160:] = right.planes.chroma[:, 160:]
    reduced = Reducer(two.format, batch=2).reduce([two, nobody])
    with closing(FaceGlance(two.format)) as glance:
        glance.start()
        faces, others = glance.find([two, nobody], reduced)
    assert others == []
    for (left, top, right_, bottom), at in zip(sorted(faces), places, strict=True):
        assert math.hypot((left + right_) / 2 - at[0], (top + bottom) / 2 - at[1]) < 20
        assert 50 < bottom - top < 110


@pytest.mark.parametrize("x", [20, 30])
def test_a_glance_shows_a_face_at_the_edge_once(x: int) -> None:
    """The border mirrors it; the detector may see either face, or both."""
    for at in (x, 640 - x):
        frame = on_grey((640, 360), (at, 180), 60)
        with closing(FaceGlance(frame.format)) as glance:
            ((face,),) = glance.find([frame], Reducer(frame.format).reduce([frame]))
        assert abs((face[0] + face[2]) / 2 - at) < 15
