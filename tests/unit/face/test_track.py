"""Following faces: births, deaths, ids; and the whole finder on real and on hard pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import cv2
import numpy as np
import pytest

from bgsoft.analysis.reduce import Reducer
from bgsoft.decode.cpu import CpuDecoder
from bgsoft.face.base import Face, box_overlap
from bgsoft.face.detect import Detection
from bgsoft.face.finder import FaceFinder, FinderSettings
from bgsoft.face.geometry import box_iou
from bgsoft.face.landmarks import Mesh
from bgsoft.face.networks import FaceNetworks
from bgsoft.face.track import MAX_MISSES, Tracker
from bgsoft.face.warp import FrameRoi
from bgsoft.frame import Frame, FrameFormat, PixelLayout
from bgsoft.ring import FrameRing
from tests.fakes import host_planes
from tests.pictures import codes, flat_frame, frame_format, make_frame, random_frame
from tests.unit.face.shapes import mesh, meshes, seen

SAMPLE = Path(__file__).parents[3] / "samples" / "person.mp4"
LONGEST_FALSE_LIFE = 3


class Scene:
    """A tracker whose landmark model sees faces at given places."""

    def __init__(self) -> None:
        self.tracker = Tracker(max_faces=8)
        self.time = 0.0

    def step(
        self, found: list[Detection] | None, *faces: tuple[float, float], presence: float = 1.0
    ) -> list[Face]:
        tracks = self.tracker.propose(found)
        points, sure = [], []
        for track in tracks:
            roi = track.roi
            near = [f for f in faces if np.hypot(f[0] - roi.x, f[1] - roi.y) < roi.side / 2]
            points.append(mesh(*(near[0] if near else (roi.x, roi.y))))
            sure.append(presence if near else 0.0)
        self.time += 1 / 30
        return self.tracker.update(tracks, meshes(points, sure), self.time)


def test_a_detection_without_a_face_is_none() -> None:
    scene = Scene()
    assert scene.step(seen((200, 200))) == []
    assert scene.tracker.wants_detection


def test_what_is_detected_once_lives_for_at_most_three_frames() -> None:
    scene = Scene()
    lives = [bool(scene.step(seen((200, 200)), (200, 200)))]
    lives += [bool(scene.step(seen(), (200, 200))) for _ in range(10)]
    assert lives[0]
    assert sum(lives) <= LONGEST_FALSE_LIFE
    assert not any(lives[LONGEST_FALSE_LIFE:])


def test_what_the_models_are_not_sure_of_any_more_ends() -> None:
    scene = Scene()
    for _ in range(5):
        scene.step(seen((200, 200)), (200, 200))
    lives = []
    for _ in range(10):
        found = seen() if scene.tracker.wants_detection else None
        lives.append(bool(scene.step(found, (200, 200), presence=0.95)))
    assert not any(lives[LONGEST_FALSE_LIFE:])


def test_a_face_from_the_side_lives_without_the_detector() -> None:
    scene = Scene()
    for _ in range(3):
        scene.step(seen((200, 200)), (200, 200))
    for _ in range(30):
        assert len(scene.step(seen(), (200, 200), presence=0.99999)) == 1


def test_short_gaps_are_bridged_and_long_ones_end_the_track() -> None:
    scene = Scene()
    place = (200.0, 200.0)
    for _ in range(4):
        scene.step(seen(place), place)
    for _ in range(MAX_MISSES):
        faces = scene.step(seen())
        assert [(face.id, face.detected) for face in faces] == [(0, False)]
        assert scene.tracker.wants_detection
    assert [face.id for face in scene.step(seen(place), place)] == [0]
    for _ in range(MAX_MISSES + 1):
        faces = scene.step(seen())
    assert faces == []
    assert [face.id for face in scene.step(seen(place), place)] == [1]


def test_landmarks_that_are_no_numbers_are_a_gap() -> None:
    scene = Scene()
    for _ in range(3):
        scene.step(seen((200, 200)), (200, 200))
    tracks = scene.tracker.propose(None)
    faces = scene.tracker.update(tracks, meshes([np.full((468, 3), np.nan)], [1.0]), 1.0)
    assert np.isfinite(faces[0].landmarks).all()
    assert not faces[0].detected


def test_time_that_stands_still_is_no_fault() -> None:
    scene = Scene()
    for _ in range(5):
        scene.time = 0.5
        faces = scene.step(seen((200, 200)), (200, 200))
    assert np.isfinite(faces[0].landmarks).all()


class Stubborn(Scene):
    """The landmark model sees a face wherever it looks beside one, and says so."""

    def step(
        self, found: list[Detection] | None, *faces: tuple[float, float], presence: float = 1.0
    ) -> list[Face]:
        tracks = self.tracker.propose(found)
        points = []
        for track in tracks:
            roi = track.roi
            (x, y), *_ = sorted(faces, key=lambda f: np.hypot(f[0] - roi.x, f[1] - roi.y))
            at = (x, y) if np.hypot(x - roi.x, y - roi.y) < 10 else (roi.x, roi.y)
            points.append(mesh(*at))
        self.time += 1 / 30
        sure = [presence] * len(tracks)
        return self.tracker.update(tracks, meshes(points, sure), self.time)


@pytest.mark.parametrize("way", [(40, 0), (0, 45), (60, 30)])
def test_a_track_that_the_detector_contradicts_begins_anew_where_it_sees_the_face(
    way: tuple[int, int],
) -> None:
    scene = Stubborn()
    old, new = (200.0, 200.0), (200.0 + way[0], 200.0 + way[1])
    for _ in range(6):
        (face,) = scene.step(seen(old), old)
        assert (face.id, face.contested) == (0, False)
    (face,) = scene.step(seen(new, score=0.8), new)
    assert (face.id, face.age_frames, face.contested, face.detected) == (1, 0, True, True)
    assert face.score == pytest.approx(0.8)
    assert np.hypot(*np.subtract(centre(face), new)) < 3
    for _ in range(6):
        (face,) = scene.step(seen(new), new)
        assert (face.id, face.contested) == (1, False)


def test_a_face_that_moves_fast_is_the_same_where_the_landmarks_find_it_too() -> None:
    scene = Scene()
    for _ in range(4):
        scene.step(seen((200, 200)), (200, 200))
    (face,) = scene.step(seen((235, 200)), (235, 200))
    assert (face.id, face.detected) == (0, True)
    assert face.contested  # for all that it is told of


def test_what_the_landmarks_call_no_face_ends_no_track() -> None:
    scene = Scene()
    for _ in range(4):
        scene.step(seen((200, 200)), (200, 200))
    (face,) = scene.step(seen((200, 280), size=160), (200, 200), presence=0.9)
    assert (face.id, face.detected, face.contested) == (0, False, True)
    assert face.score < 0.5


def test_landmarks_of_another_shape_are_another_face() -> None:
    scene = Scene()
    place = (200.0, 200.0)
    for _ in range(4):
        scene.step(seen(place), place)
    for stretch, expected in ((1.01, 0), (1.2, 1)):
        points = mesh(*place)
        points[:, 1] = 200 + (points[:, 1] - 200) * stretch
        tracks = scene.tracker.propose(seen(place))
        (face,) = scene.tracker.update(tracks, meshes([points], [1.0]), scene.time)
        assert (face.id, face.contested) == (expected, expected == 1)


def test_scores_are_those_of_the_last_detection() -> None:
    scene = Scene()
    for score in (0.95, 0.6, 0.7):
        (face,) = scene.step(seen((200, 200), score=score), (200, 200))
        assert face.score == pytest.approx(score)


def test_what_is_followed_is_checked_in_one_frame_of_three() -> None:
    scene = Scene()
    checked = []
    for at in range(30):
        tracker = scene.tracker
        checked.append(at == 0 or tracker.wants_detection or tracker.wants_check)
        scene.step(seen((200, 200)) if checked[-1] else None, (200, 200))
    assert checked[3:] == [at % 3 == 1 for at in range(3, 30)]


def test_after_a_refresh_faces_move_as_they_are_seen_to_from_there_on() -> None:
    """So a part of a video that is rendered alone has the faces of the whole."""
    ways = []
    for before in (-30, 5):
        tracker, time = Tracker(max_faces=8, by_landmarks=False), 0.0
        for at in range(12):
            if at == 6:
                tracker.refresh()
            x = 300 + (at - 6) * (before if at < 6 else 20)
            tracker.propose(seen((x, 200)) if at % 2 == 0 else None)
            time += 1 / 30
            faces = tracker.update([], [], time)
            if at >= 6:
                ways.append([face.box_xyxy for face in faces])
    assert len(ways[0]) == 1
    assert ways[:6] == ways[6:]


def centre(face: Face) -> tuple[float, float]:
    left, top, right, bottom = face.box_xyxy
    return (left + right) / 2, (top + bottom) / 2


# The finder with its models.


def sample_frames() -> Iterator[Frame]:
    with CpuDecoder(SAMPLE) as decoder:
        ring = FrameRing(2, lambda slot: host_planes(decoder.info.format, slot))
        for frame in decoder.frames(ring):
            yield frame
            ring.release(frame)


def sample_picture() -> tuple[FrameFormat, np.ndarray, np.ndarray]:
    frame = next(sample_frames())
    return frame.format, frame.luma.copy(), frame.chroma.copy()


def finder_of(format: FrameFormat, settings: FinderSettings | None = None) -> FaceFinder:
    return FaceFinder(format, FaceNetworks(format), settings)


def find(finder: FaceFinder, frame: Frame) -> list[Face]:
    (faces,) = finder.find([frame], Reducer(frame.format).reduce([frame]))
    for face in faces:
        assert np.isfinite(face.landmarks).all()
        assert face.landmarks.shape == (468 * face.has_landmarks, 3)
        assert face.landmarks.dtype == np.float32
        assert np.isfinite(face.box_xyxy).all()
        assert 0 <= face.score <= 1
    return faces


@pytest.mark.slow
def test_every_frame_of_the_sample_has_its_face() -> None:
    ids, widths = set(), []
    finder = None
    for frame in sample_frames():
        finder = finder or finder_of(frame.format)
        faces = find(finder, frame)
        assert len(faces) == 1
        ids.add(faces[0].id)
        assert faces[0].age_frames == frame.index
        widths.append(faces[0].box_xyxy[2] - faces[0].box_xyxy[0])
    assert ids == {0}
    assert np.ptp(widths) < 0.3 * np.mean(widths)
    assert finder is not None
    finder.close()
    finder.close()


def test_a_batch_gives_the_faces_of_single_frames() -> None:
    """To the bit, whatever is looked at ahead of time."""
    frames: list[Frame] = []
    for frame in sample_frames():
        planes = frame.luma.copy(), frame.chroma.copy()
        frames.append(make_frame(frame.format, *planes, frame.index * 33))
        if len(frames) == 20:
            break
    format = frames[0].format
    with finder_of(format) as finder:
        singles = [find(finder, frame) for frame in frames]
    networks = FaceNetworks(format)
    networks.looks_per_run = 8
    reduced = [Reducer(format).reduce([frame])[0] for frame in frames]
    with FaceFinder(format, networks) as finder:
        found = finder.find(frames[:8], reduced[:8]) + finder.find(frames[8:], reduced[8:])
        assert finder.find([], []) == []
    for (face,), (single,) in zip(found, singles, strict=True):
        np.testing.assert_array_equal(face.landmarks, single.landmarks)
        assert (face.id, face.score, face.box_xyxy) == (single.id, single.score, single.box_xyxy)
        assert (face.detected, face.age_frames) == (single.detected, single.age_frames)


def placed(size: tuple[int, int], scale: float, at: tuple[int, int]) -> tuple[Frame, Frame]:
    """The sample shrunk into an otherwise grey frame, and the sample."""
    format, luma, chroma = sample_picture()
    sample = make_frame(format, luma, chroma)
    target = FrameFormat(width=size[0], height=size[1], color=format.color)
    frame = flat_frame(target, 120, 128, 128)
    width, height = (round(side * scale) // 2 * 2 for side in (format.width, format.height))
    small = cv2.resize(luma, (width, height), interpolation=cv2.INTER_AREA)
    halves = cv2.resize(chroma, (width // 2, height // 2), interpolation=cv2.INTER_AREA)
    x, y = at
    frame.luma[y : y + height, x : x + width] = small
    frame.chroma[y // 2 : (y + height) // 2, x // 2 : (x + width) // 2] = halves
    return frame, sample


@pytest.mark.parametrize("at", [(100, 100), (1400, 700), (740, 420)])
def test_small_faces_are_found_when_asked_for(at: tuple[int, int]) -> None:
    format, luma, chroma = sample_picture()
    whole = find(finder_of(format), make_frame(format, luma, chroma))[0]
    scale = 40 / (whole.box_xyxy[3] - whole.box_xyxy[1])
    frame, _ = placed((1920, 1080), scale, at)
    faces = find(finder_of(frame.format, FinderSettings(small_faces=True)), frame)
    expected = np.array(whole.box_xyxy) * scale + np.tile(at, 2)
    assert len(faces) == 1
    assert box_iou(faces[0].box_xyxy, expected) > 0.5


@pytest.mark.parametrize("turns", [0, 1, 3])
def test_lying_faces_land_where_the_upright_one_does(turns: int) -> None:
    format, luma, chroma = sample_picture()
    upright = find(finder_of(format), make_frame(format, luma, chroma))[0]
    turned = [np.ascontiguousarray(np.rot90(plane, turns)) for plane in (luma, chroma)]
    height, width = turned[0].shape
    frame = make_frame(FrameFormat(width=width, height=height, color=format.color), *turned)
    (face,) = find(finder_of(frame.format), frame)
    x, y = upright.landmarks[:, 0], upright.landmarks[:, 1]
    for _ in range(turns):  # np.rot90 turns counter-clockwise
        x, y = y, (format.width if _ % 2 == 0 else format.height) - x
    face_width = upright.box_xyxy[2] - upright.box_xyxy[0]
    off = np.hypot(face.landmarks[:, 0] - x, face.landmarks[:, 1] - y)
    assert np.median(off) < 0.06 * face_width


def test_ten_bit_frames_give_the_same_face() -> None:
    format, luma, chroma = sample_picture()
    (eight,) = find(finder_of(format), make_frame(format, luma, chroma))
    deep = FrameFormat(
        width=format.width, height=format.height, layout=PixelLayout.P010, color=format.color
    )
    planes = [codes(deep, plane.astype(np.uint16) * 4) for plane in (luma, chroma)]
    (ten,) = find(finder_of(deep), make_frame(deep, *planes))
    assert np.abs(ten.landmarks - eight.landmarks).max() < 1.0


def test_a_wall_of_faces() -> None:
    """Thirty of them: as many as there are, none twice."""
    format, luma, chroma = sample_picture()
    box = find(finder_of(format), make_frame(format, luma, chroma))[0].box_xyxy
    centre = [int((box[i] + box[i + 2]) / 2) // 2 * 2 for i in (0, 1)]
    reach = int((box[3] - box[1]) * 0.9) // 2 * 2
    y, x = (slice(max(0, c - reach), c + reach) for c in (centre[1], centre[0]))
    half_y, half_x = (slice(s.start // 2, s.stop // 2) for s in (y, x))
    frame = flat_frame(FrameFormat(width=1920, height=1080, color=format.color), 120, 128, 128)
    for index in range(30):
        row, column = divmod(index, 6)
        top, left = row * 216, column * 320
        frame.luma[top : top + 200, left : left + 200] = cv2.resize(luma[y, x], (200, 200))
        frame.chroma[top // 2 : top // 2 + 100, left // 2 : left // 2 + 100] = cv2.resize(
            chroma[half_y, half_x], (100, 100)
        )
    finder = finder_of(frame.format, FinderSettings(small_faces=True))
    for _ in range(2):
        faces = find(finder, frame)
        assert 25 <= len(faces) <= 30
        for one, other in combinations(faces, 2):
            assert box_iou(one.box_xyxy, other.box_xyxy) < 0.3


@pytest.mark.parametrize("frames", [10, 11])
def test_a_face_that_goes_is_gone_after_three_frames(frames: int) -> None:
    format, luma, chroma = sample_picture()
    finder = finder_of(format)
    for pts in range(frames):
        assert find(finder, make_frame(format, luma, chroma, pts * 33))
    low, high = format.luma_range
    rng = np.random.default_rng(0)
    empty = np.clip(rng.normal((low + high) / 2, 4, luma.shape), low, high).astype(luma.dtype)
    grey = np.full_like(chroma, format.chroma_neutral)
    lives = [bool(find(finder, make_frame(format, empty, grey, 363 + 33 * i))) for i in range(8)]
    assert not any(lives[LONGEST_FALSE_LIFE:])


def test_a_blur_where_a_face_was_is_none() -> None:
    format, luma, chroma = sample_picture()
    finder = finder_of(format)
    for pts in range(10):
        assert find(finder, make_frame(format, luma, chroma, pts * 33))
    blurred = cv2.GaussianBlur(luma, (0, 0), format.height / 16)
    chroma = cv2.GaussianBlur(chroma, (0, 0), format.height / 32)
    lives = [
        bool(find(finder, make_frame(format, blurred, chroma, 330 + 33 * i))) for i in range(8)
    ]
    assert not any(lives[LONGEST_FALSE_LIFE:])


class CountingNetworks(FaceNetworks):
    """Notes how many squares the landmark model is shown, of each call."""

    def __init__(self, format: FrameFormat) -> None:
        super().__init__(format)
        self.counts: list[int] = []

    def landmarks(self, asked: Sequence[FrameRoi]) -> list[Mesh]:
        self.counts.append(len(asked))
        return super().landmarks(asked)


def test_without_landmarks_a_face_takes_a_detection_now_and_then() -> None:
    format, luma, chroma = sample_picture()
    networks = CountingNetworks(format)
    finder = FaceFinder(format, networks, FinderSettings(by_landmarks=False))
    (known,) = find(finder_of(format), make_frame(format, luma, chroma))
    for pts in range(16):
        frame = make_frame(format, luma, chroma, 33 * pts)
        (face,) = find(finder, frame)
        assert (face.id, face.has_landmarks) == (0, False)
        assert box_overlap(face.box_xyxy, known.box_xyxy) > 0.85
    assert networks.counts == []


def test_landmarks_are_made_where_they_are_asked_for() -> None:
    """Once more in the first frame, to find out where to look."""
    format, luma, chroma = sample_picture()
    networks = CountingNetworks(format)
    finder = FaceFinder(format, networks, FinderSettings(by_landmarks=False))
    settled = finder_of(format)
    for pts in range(8):
        frame = make_frame(format, luma, chroma, 33 * pts)
        frame.index = pts
        (reduced,) = Reducer(format).reduce([frame])
        (face,) = finder.close_up(frame, reduced, find(finder, frame))
        (known,) = find(settled, frame)
        size = known.box_xyxy[2] - known.box_xyxy[0]
        assert np.abs(face.landmarks - known.landmarks)[:, :2].mean() < 0.02 * size
    assert sum(networks.counts) == 9
    # Where there is none, there are no landmarks.
    frame.luma[:], frame.chroma[:] = format.luma_range[0], format.chroma_neutral
    (reduced,) = Reducer(format).reduce([frame])
    finder.reset()
    assert finder.close_up(frame, reduced, [replace(face, landmarks=face.landmarks[:0])]) == []


@pytest.mark.parametrize("layout", list(PixelLayout))
@pytest.mark.parametrize("size", [(1, 1), (2, 200), (64, 64), (65, 47), (641, 359)])
def test_noise_and_tiny_frames_are_no_fault(size: tuple[int, int], layout: PixelLayout) -> None:
    format = frame_format(size, layout)
    rng = np.random.default_rng(1)
    with finder_of(format, FinderSettings(small_faces=True)) as finder:
        for pts in range(3):
            assert find(finder, random_frame(format, rng, pts)) == []


def test_a_face_across_the_edge() -> None:
    """As much of it as the frame shows; its box may reach over the edge, and says so."""
    format, luma, chroma = sample_picture()
    box = find(finder_of(format), make_frame(format, luma, chroma))[0].box_xyxy
    cut = int(box[0] + 0.2 * (box[2] - box[0])) // 2 * 2
    part = FrameFormat(width=format.width - cut, height=format.height, color=format.color)
    frame = make_frame(
        part, np.ascontiguousarray(luma[:, cut:]), np.ascontiguousarray(chroma[:, cut // 2 :])
    )
    for face in find(finder_of(part), frame):
        left, top, right, bottom = face.box_xyxy
        side = max(right - left, bottom - top)
        assert left > -side
        assert right < part.width + side
        assert right > left
        assert bottom > top
