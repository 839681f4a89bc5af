"""The face step as the pipeline drives it, with a finder that is told what to find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from bgsoft.analysis.base import analysis_shape
from bgsoft.analysis.reduce import Reducer
from bgsoft.errors import OutputError
from bgsoft.face.base import NO_LANDMARKS, Face
from bgsoft.face.create import make_picker
from bgsoft.face.detect import Detection
from bgsoft.face.geometry import Roi
from bgsoft.face.guard import MatteEditor
from bgsoft.face.step import FaceStep
from bgsoft.frame import AnalysisFrame, Frame, Matte
from bgsoft.hide.hider import Hider
from bgsoft.hide.plan import HidePlan
from bgsoft.settings.config import FaceConfig, FaceMode
from tests.pictures import frame_format, random_frame
from tests.rendering import video_info
from tests.unit.face.shapes import box_in, make_face

HD = frame_format((640, 360))
MAIN, OTHER = make_face(160, 120, 90, id=1), make_face(480, 120, 70, id=2)


class FakeFinder:
    """Finds what it is told to, by frame index."""

    def __init__(self, faces: Sequence[Sequence[Face]]) -> None:
        self.faces = faces
        self.calls: list[Any] = []
        self.doubts: list[list[Detection]] = []

    def start(self) -> None:
        self.calls.append("start")

    def warnings(self) -> list[str]:
        return []

    def find(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> list[list[Face]]:
        self.calls += [frame.index for frame in frames]
        self.doubts = [[] for _ in frames]
        return [list(self.faces[frame.index]) for frame in frames]

    def reset(self) -> None:
        self.calls.append("reset")

    def cut(self) -> None:
        self.calls.append("cut")

    def close(self) -> None:
        self.calls.append("close")


class FakeData:
    wants_landmarks = True

    def __init__(self, error: Exception | None = None) -> None:
        self.written: list[tuple[int, list[int]]] = []
        self.error = error

    def write(self, frame: Frame, faces: Sequence[Face]) -> None:
        if self.error is not None:
            raise self.error
        self.written.append((frame.index, [face.id for face in faces]))


def frames_of(count: int) -> list[Frame]:
    rng = np.random.default_rng(9)
    frames = [random_frame(HD, rng) for _ in range(count)]
    for index, frame in enumerate(frames):
        frame.index, frame.pts, frame.time_base = index, 40 * index, Fraction(1, 1000)
    return frames


def make_step(
    finder: FakeFinder, mode: FaceMode, data: FakeData | None = None, **config: Any
) -> FaceStep:
    settings = FaceConfig(mode=mode, **config)
    return FaceStep(
        config=settings,
        format=HD,
        finder=finder,
        picker=make_picker(settings, video_info(HD), None),
        editor=MatteEditor(HD),
        hider=Hider(HidePlan(format=HD)),
        data=data,
    )


def matte_of(value: int) -> Matte:
    return Matte(
        alpha=np.full(HD.luma_shape, value, np.uint8),
        reduced=np.full(analysis_shape(640, 360), value, np.uint8),
    )


def run(
    step: FaceStep, frames: Sequence[Frame], value: int, cuts: Sequence[int] = ()
) -> list[list[int]]:
    """Return the frames that each call finishes, and finally the flushed ones."""
    reducer = Reducer(HD)
    finished = []
    for frame in frames:
        if frame.index in cuts:
            step.cut()
        reduced = reducer.reduce([frame])
        found = step.find([frame], reduced)
        mattes = [matte_of(value)]
        step.inspect([frame], reduced, mattes, found)
        step.edit_mattes([frame], mattes, found)
        finished.append([each.index for each in step.finish([frame], found)])
    return [*finished, [each.index for each in step.flush()]]


def test_missed_faces_are_counted_with_their_frames() -> None:
    step = make_step(FakeFinder([[MAIN], [], [MAIN]]), FaceMode.GUARD)
    run(step, frames_of(3), 0)
    summary = step.summary()
    assert summary["frames_with_faces"] == 2
    # In the frame between, the face was lost: its cover fades, and nothing is measured.
    assert [entry["frame"] for entry in summary["missed"]] == [0, 2]
    assert summary["missed"][1]["pts"] == 80
    assert step.warnings() == []


def test_a_face_that_takes_the_place_of_a_shown_one_is_hidden_and_so_is_that() -> None:
    new = make_face(190, 140, 90, id=3, age=0)
    faces = [*[[MAIN]] * 12, *[[new]] * 13]
    step = make_step(FakeFinder(faces), FaceMode.ANONYMIZE, subjects=1)
    frames = frames_of(len(faces))
    before = [frame.luma.copy() for frame in frames]
    run(step, frames, 255)
    for at, frame in enumerate(frames):
        is_hidden = bool(
            (frame.luma[120:160, 170:210] != before[at][120:160, 170:210]).mean() > 0.9
        )
        assert is_hidden == (at >= 12), at


def test_frames_in_which_people_touch_are_listed() -> None:
    together, alone = [MAIN, OTHER], [MAIN]
    faces = [*[together] * 5, *[alone] * 3, *[together] * 5]
    step = make_step(FakeFinder(faces), FaceMode.MAIN)
    run(step, frames_of(len(faces)), 255)
    shared = step.summary()["shared"]
    assert [each["frame"] for each in shared] == [*range(5), *range(8, 13)]
    assert step.summary()["shared_frames"] == 10
    (notice,) = step.warnings()
    assert notice.startswith("people touch in 10 frames and are separated by nearness, first at 0")


def test_what_comes_decides_who_is_shown_in_the_first_frames() -> None:
    """A larger face found a little later is main from the first frame on."""
    small, large = make_face(560, 60, 40, id=2), make_face(250, 200, 200, id=3, age=0)
    faces = [*[[small]] * 3, *[[small, large]] * 20]
    step = make_step(FakeFinder(faces), FaceMode.ANONYMIZE, subjects=1)
    frames = frames_of(len(faces))
    before = [frame.luma.copy() for frame in frames]
    run(step, frames, 255)
    place = np.s_[50:70, 550:570]
    for at, frame in enumerate(frames):
        assert (frame.luma[place] != before[at][place]).mean() > 0.9, at


@pytest.mark.parametrize(("mode", "call"), [(FaceMode.ANONYMIZE, "cut"), (FaceMode.MAIN, "reset")])
def test_at_a_cut_tracks_continue_only_where_faces_are_hidden(mode: FaceMode, call: str) -> None:
    finder = FakeFinder([[MAIN], [MAIN]])
    run(make_step(finder, mode, subjects=1), frames_of(2), 255, cuts=(1,))
    assert finder.calls == [0, call, 1]


def test_a_cut_resets_everything() -> None:
    finder = FakeFinder([[MAIN], [MAIN], [OTHER]])
    step = make_step(finder, FaceMode.ANONYMIZE)
    frames = frames_of(3)
    before = [frame.luma.copy() for frame in frames]
    run(step, frames, 255, cuts=(2,))
    step.close()
    assert finder.calls == [0, 1, "cut", 2, "close"]
    # Who is alone in the new scene is main: nobody is hidden.
    for frame, luma in zip(frames, before, strict=True):
        np.testing.assert_array_equal(frame.luma, luma)


def test_frames_wait_for_the_faces_of_the_next_ones() -> None:
    finder = FakeFinder([[]] * 5 + [[MAIN]] * 10)
    step = make_step(finder, FaceMode.ANONYMIZE, subjects=0)
    frames = frames_of(15)
    before = [frame.luma.copy() for frame in frames]
    finished = run(step, frames, 255)
    assert finished == [[]] * 8 + [[at] for at in range(7)] + [list(range(7, 15))]
    assert step.held == 8
    x, y = 160, 120
    for frame, luma in zip(frames, before, strict=True):
        assert frame.luma[y - 20 : y + 20, x - 20 : x + 20].std() < 10 < luma.std()
        np.testing.assert_array_equal(frame.luma[:, 320:], luma[:, 320:])


def test_a_frame_that_is_flushed_at_once_is_hidden_by_what_is_known() -> None:
    step = make_step(FakeFinder([[], [MAIN], []]), FaceMode.ANONYMIZE, subjects=0)
    frames = frames_of(3)
    before = [frame.luma.copy() for frame in frames]
    for frame in frames:
        assert run(step, [frame], 255) == [[], [frame.index]]
    changed = [(f.luma != luma).any() for f, luma in zip(frames, before, strict=True)]
    assert changed == [False, True, True]


@pytest.mark.parametrize(
    ("mode", "looked_at"),
    [
        (FaceMode.GUARD, [0, 3, 4, "reset", 5, 8]),
        (FaceMode.ANONYMIZE, [0, 1, 2, 3, 4, "cut", *range(5, 10)]),
    ],
)
def test_faces_may_be_searched_for_more_seldom_but_where_they_are_hidden(
    mode: FaceMode, looked_at: list[Any]
) -> None:
    finder, data = FakeFinder([[MAIN]] * 10), FakeData()
    step = make_step(finder, mode, data)
    step.every = 3
    frames = frames_of(10)
    run(step, frames[:4], 255)
    step.every = 1
    run(step, frames[4:5], 255)
    step.every = 3
    found = run(step, frames[5:], 255, cuts=[5])
    assert finder.calls == looked_at
    assert [frame for finished in found for frame in finished] == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("mode", [FaceMode.OFF, FaceMode.GUARD, FaceMode.MAIN])
def test_only_hiding_keeps_frames_back(mode: FaceMode) -> None:
    step = make_step(FakeFinder([[MAIN]] * 3), mode)
    assert run(step, frames_of(3), 255) == [[0], [1], [2], []]
    assert step.held == 0


def test_the_mattes_of_each_scene_are_divided_by_themselves() -> None:
    finder = FakeFinder([[MAIN]] * 5)
    data = FakeData()
    step = make_step(finder, FaceMode.MAIN, data)
    frames = frames_of(5)
    reduced = [Reducer(HD).reduce([frame])[0] for frame in frames]
    found = step.find(frames[:2], reduced[:2])
    step.reset()
    found += step.find(frames[2:], reduced[2:])
    assert finder.calls == [0, 1, "reset", 2, 3, 4]
    first, second, third, *others = [each.separator for each in found]
    assert first is second is not third
    assert all(each is third for each in others)
    assert data.written == [(index, [1]) for index in range(5)]


def test_before_anybody_is_main_everything_stays() -> None:
    frames, mattes = frames_of(2), [matte_of(200), matte_of(200)]
    step = make_step(FakeFinder([[], [MAIN]]), FaceMode.MAIN)
    reduced = [Reducer(HD).reduce([frame])[0] for frame in frames]
    found = step.find(frames, reduced)
    step.inspect(frames, reduced, mattes, found)
    assert found[0].limit is None
    assert found[1].limit is not None


def test_before_a_named_person_comes_and_after_a_cut_nobody_stays() -> None:
    frames, mattes = frames_of(4), [matte_of(200) for _ in range(4)]
    named = ("160,120@0.08",)
    step = make_step(FakeFinder([[MAIN, OTHER]] * 3 + [[OTHER]]), FaceMode.MAIN, main=named)
    reduced = [Reducer(HD).reduce([frame])[0] for frame in frames]
    found = step.find(frames[:3], reduced[:3])
    step.reset()
    found += step.find(frames[3:], reduced[3:])
    step.inspect(frames, reduced, mattes, found)
    kept = [each.limit is None or each.limit.any() for each in found]
    assert kept == [False, False, True, False]


def test_mattes_of_a_batch_are_inspected_first() -> None:
    """Each matte uses its own faces; a cut inside the batch clears what was kept."""
    left, right = np.s_[40:, 80:240], np.s_[40:, 400:560]
    shown = [(left, right), (right,), (left, right), (left,)]
    step = make_step(FakeFinder([[MAIN, OTHER]] * 2 + [[OTHER]] * 2), FaceMode.MAIN)
    mattes = []
    for people in shown:
        matte = matte_of(0)
        for person in people:
            matte.alpha[person] = 255
        matte.reduced[:] = matte.alpha[::2, ::2]
        mattes.append(matte)
    frames = frames_of(4)
    reduced = [Reducer(HD).reduce([frame])[0] for frame in frames]
    for scene in (slice(0, 2), slice(2, 4)):
        if scene.start:
            step.reset()
        found = step.find(frames[scene], reduced[scene])
        step.inspect(frames[scene], reduced[scene], mattes[scene], found)
        step.edit_mattes(frames[scene], mattes[scene], found)
    seen = [(int(matte.alpha[300, 160]), int(matte.alpha[300, 480])) for matte in mattes]
    assert seen == [(255, 0), (0, 0), (0, 255), (0, 0)]


def test_data_that_cannot_be_written_stops_the_render() -> None:
    finder, data = FakeFinder([[MAIN]]), FakeData(OutputError("disk full"))
    step = make_step(finder, FaceMode.GUARD, data)
    with pytest.raises(OutputError, match="disk full"):
        run(step, frames_of(1), 0)
    step.close()
    assert finder.calls[-1] == "close"


def test_a_face_without_landmarks_is_hidden_but_not_written() -> None:
    square = Roi(320.0, 180.0, 200.0, 0.0)
    dim = replace(OTHER, id=7, landmarks=NO_LANDMARKS, square=square, box_xyxy=box_in(square))
    data, frames = FakeData(), frames_of(12)
    before = [frame.luma.copy() for frame in frames]
    step = make_step(FakeFinder([[dim, OTHER]] * 12), FaceMode.ANONYMIZE, data, subjects=0)
    run(step, frames, 255)
    assert [ids for _, ids in data.written] == [[2]] * 12
    for frame, luma in zip(frames, before, strict=True):
        changed = frame.luma != luma
        assert changed[160:200, 300:340].mean() > 0.9
        assert changed[100:140, 460:500].mean() > 0.9


def test_landmarks_are_asked_for_where_the_mask_may_have_missed_a_face() -> None:
    """The mask has one face and misses another; a third thing is not a face."""

    class CloseUpFinder(FakeFinder):
        def close_up(
            self, frame: Frame, reduced: AnalysisFrame, faces: Sequence[Face]
        ) -> list[Face]:
            self.calls.append([face.id for face in faces])
            return [MAIN for face in faces if face.id == MAIN.id]

    plain = [
        replace(face, landmarks=face.landmarks[:0], square=Roi(x, 120, 130, 0))
        for face, x in ((MAIN, 160), (OTHER, 480), (replace(OTHER, id=3), 320))
    ]
    finder = CloseUpFinder([plain] * 2)
    step = make_step(finder, FaceMode.GUARD)
    frames = frames_of(2)
    reduced = [Reducer(HD).reduce([frame])[0] for frame in frames]
    mattes = [matte_of(0), matte_of(255)]
    mattes[0].alpha[:, 400:] = mattes[0].reduced[:, 200:] = 255
    found = step.find(frames, reduced)
    step.inspect(frames, reduced, mattes, found)
    step.edit_mattes(frames, mattes, found)
    assert finder.calls == [0, 1, [1, 3]]
    assert mattes[0].alpha[120, [160, 320]].tolist() == [255, 0]
    assert [entry["missed_pct"] for entry in step.summary()["missed"]] == [{"1": 100.0}]


@pytest.mark.parametrize(
    ("places", "columns", "asked"),
    [
        # The square is off, so a part of it is not face.
        ([175] * 6, [210, 210, 210, 150, 150, 210], [0, 3, 4, 5]),
        # The first one lies beside the face, where the matte is empty.
        ([230, 160, 160], [240, 240, 175], [0, 2]),
    ],
    ids=["more", "much at first"],
)
def test_landmarks_of_a_face_that_the_mask_has_are_made_again_once_it_lacks_more(
    places: list[int], columns: list[int], asked: list[int]
) -> None:
    made: list[int] = []

    class CloseUpFinder(FakeFinder):
        def close_up(
            self, frame: Frame, reduced: AnalysisFrame, faces: Sequence[Face]
        ) -> list[Face]:
            made.append(frame.index)
            return [MAIN]

    plain = replace(MAIN, landmarks=NO_LANDMARKS)
    finder = CloseUpFinder([[replace(plain, square=Roi(x, 120, 130, 0))] for x in places])
    step = make_step(finder, FaceMode.GUARD)
    for frame, column in zip(frames_of(len(places)), columns, strict=True):
        reduced, matte = Reducer(HD).reduce([frame]), matte_of(255)
        matte.alpha[:, column:] = matte.reduced[:, column // 2 :] = 0
        found = step.find([frame], reduced)
        step.inspect([frame], reduced, [matte], found)
    assert made == asked
