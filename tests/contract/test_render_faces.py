"""Whole renders with faces: guarded, chosen, hidden, written down."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import bgsoft
from bgsoft.decode.base import DecodeSettings
from bgsoft.decode.cpu import CpuDecoder
from bgsoft.errors import ConfigError, OutputError, RenderCancelledError, VerificationError
from bgsoft.report import Progress
from bgsoft.ring import FrameRing
from tests.face_clips import FACE, HALF_FACE, SAMPLE, write_cut, write_late_face, write_two_people
from tests.fakes import host_planes
from tests.marks import slow
from tests.processes import ROOT
from tests.synthetic import VideoSpec, regular_times, write_video

FRAMES = 8
UNCHANGED: dict[str, Any] = {"effect": "dim", "strength": 0.0, "matte": "fast", "mask_every": 25}
LEFT_FACE, RIGHT_FACE = np.s_[240:380, 410:530], np.s_[380:480, 845:925]
"""Areas inside the faces of the two people who touch, in every frame."""


@pytest.fixture(scope="module")
def touching(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_two_people(tmp_path_factory.mktemp("faces") / "two.mp4", FRAMES, apart=False)


def all_luma(path: Path) -> Iterator[NDArray[np.uint8]]:
    with CpuDecoder(path, DecodeSettings()) as decoder:
        ring = FrameRing(2, lambda slot: host_planes(decoder.info.format, slot))
        for frame in decoder.frames(ring):
            yield frame.luma.copy()
            ring.release(frame)


def last_luma(path: Path) -> NDArray[np.uint8]:
    (picture,) = deque(all_luma(path), maxlen=1)
    return picture


def detail(luma: NDArray[np.uint8]) -> float:
    """Return the mean difference of neighbours, which blurring reduces."""
    return float(np.abs(np.diff(luma.astype(int), axis=1)).mean())


def render(clip: Path, target: Path, **options: object) -> bgsoft.RenderReport:
    return bgsoft.render(clip, target, speed="ultrafast", quality=8, **options)


def test_guard_reports_faces_and_leaves_them_sharp(touching: Path, tmp_path: Path) -> None:
    report = render(touching, tmp_path / "out.mp4", face="guard", small_faces=True)
    assert report.stages["face"].backend == "cpu"
    busy_s = report.stages["face"].ms_per_frame * report.frames_encoded / 1000
    assert 0 < busy_s < 2 * report.wall_s  # two threads have a part in it
    faces = report.faces
    assert faces is not None
    assert faces["mode"] == "guard"
    assert faces["frames_with_faces"] == FRAMES
    assert faces["most_faces"] >= 2
    assert (faces["missed_frames"], faces["missed"]) == (0, [])
    source, result = last_luma(touching), last_luma(tmp_path / "out.mp4")
    for face in (LEFT_FACE, RIGHT_FACE):
        assert detail(result[face]) > 0.9 * detail(source[face])


def test_guard_keeps_a_face_that_the_mask_misses(touching: Path, tmp_path: Path) -> None:
    """The mask is dropped here, since ``min_area`` is the whole frame."""
    blind = {"min_area": 1.0}
    plain, guarded = tmp_path / "plain.mp4", tmp_path / "guarded.mp4"
    render(touching, plain, face="off", **blind)
    report = render(touching, guarded, face="guard", **blind)
    source = detail(last_luma(touching)[LEFT_FACE])
    assert detail(last_luma(plain)[LEFT_FACE]) < 0.5 * source
    assert detail(last_luma(guarded)[LEFT_FACE]) > 0.9 * source
    assert report.faces is not None
    assert report.faces["missed_frames"] == FRAMES
    first = report.faces["missed"][0]
    assert (first["frame"], first["pts"]) == (0, 0)
    assert max(first["missed_pct"].values()) > 90


def test_main_softens_the_other_person_and_says_that_they_touch(
    touching: Path, tmp_path: Path
) -> None:
    report = render(touching, tmp_path / "out.mp4", face="main")
    source, result = last_luma(touching), last_luma(tmp_path / "out.mp4")
    assert detail(result[LEFT_FACE]) > 0.9 * detail(source[LEFT_FACE])
    assert detail(result[RIGHT_FACE]) < 0.5 * detail(source[RIGHT_FACE])
    told = [event for event in report.events if event.stage == "face"]
    assert len(told) == 1
    assert "touch" in told[0].message
    assert report.faces is not None
    assert report.faces["shared_frames"] > 0.8 * FRAMES


@pytest.mark.slow
def test_main_knows_who_is_apart(tmp_path: Path) -> None:
    clip = write_two_people(tmp_path / "apart.mp4", 12)
    report = render(clip, tmp_path / "out.mp4", face="main")
    result, source = last_luma(tmp_path / "out.mp4"), last_luma(clip)
    left, right = np.s_[240:380, 335:455], np.s_[380:480, 938:1018]
    assert detail(result[left]) > 0.9 * detail(source[left])
    assert detail(result[right]) < 0.5 * detail(source[right])
    assert not [event for event in report.events if event.stage == "face"]


@pytest.mark.slow
def test_two_subjects_both_stay_sharp(touching: Path, tmp_path: Path) -> None:
    report = render(touching, tmp_path / "out.mp4", face="main", subjects=2)
    source, result = last_luma(touching), last_luma(tmp_path / "out.mp4")
    for face in (LEFT_FACE, RIGHT_FACE):
        assert detail(result[face]) > 0.9 * detail(source[face])
    assert not [event for event in report.events if event.stage == "face"]


@pytest.mark.parametrize("subjects", [slow(0), 1])
def test_anonymize_hides_the_others(touching: Path, tmp_path: Path, subjects: int) -> None:
    """In every frame; here no background is changed."""
    target = tmp_path / "out.mp4"
    render(touching, target, face="anonymize", subjects=subjects, **UNCHANGED)
    source = last_luma(touching)
    for luma in all_luma(target):
        assert detail(luma[RIGHT_FACE]) < 0.35 * detail(source[RIGHT_FACE])
        hidden = detail(luma[LEFT_FACE]) < 0.35 * detail(source[LEFT_FACE])
        assert hidden == (subjects == 0)


@pytest.mark.parametrize("backends", ["", slow("[backends]\nring_slots = 4")])
def test_anonymize_hides_a_face_before_it_is_found(tmp_path: Path, backends: str) -> None:
    """In the 8 frames before, even if the user allows fewer frames in memory."""
    clip = write_late_face(tmp_path / "in.mp4", frames=11, first=9)
    target, told = tmp_path / "out.mp4", tmp_path / "faces.jsonl"
    preset = tmp_path / "dim.toml"
    preset.write_text(backends)
    given = {"face": "anonymize", "subjects": 0, "face_data": told, "preset": str(preset)}
    report = render(clip, target, **given, **UNCHANGED)
    found = [len(json.loads(line)["faces"]) for line in told.read_text().splitlines()]
    assert found == [0] * 9 + [1] * 2
    assert report.frames_encoded == 11
    pairs = zip(all_luma(clip), all_luma(target), strict=True)
    hidden = [detail(out[HALF_FACE]) < 0.35 * detail(luma[HALF_FACE]) for luma, out in pairs]
    assert hidden == [False] + [True] * 10


@pytest.mark.parametrize(
    ("cut", "right", "down", "is_far"),
    [slow(11, -60, 60, True), slow(8, 70, 0, False), slow(13, 0, 90, False)],
)
def test_anonymize_hides_a_face_after_a_cut_that_nobody_sees(
    tmp_path: Path, cut: int, right: int, down: int, is_far: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scene detection misses the cut, so the face tracks alone decide."""

    def blind(_probe: object, reduced: Sequence[object]) -> list[bool]:
        return [False] * len(reduced)

    monkeypatch.setattr("bgsoft.analysis.scenes.LumaProbe.cuts", blind)
    clip = write_cut(tmp_path / "in.mp4", 24, cut, right, down)
    target, told = tmp_path / "out.mp4", tmp_path / "faces.jsonl"
    render(clip, target, face="anonymize", subjects=0, face_data=told, **UNCHANGED)
    rows, columns = FACE
    moved = np.s_[
        rows.start + down : rows.stop + down, columns.start + right : columns.stop + right
    ]
    for at, (luma, hidden) in enumerate(zip(all_luma(clip), all_luma(target), strict=True)):
        face = FACE if at < cut else moved
        assert detail(hidden[face]) < 0.35 * detail(luma[face]), at
    lines = [json.loads(line)["faces"] for line in told.read_text().splitlines()]
    for at, faces in enumerate(lines):
        way = (right, down) if at >= cut else (0, 0)
        for face in faces:
            left, top, far, bottom = face["box"]
            middle = (left + far) / 2 - way[0], (top + bottom) / 2 - way[1]
            assert not face["detected"] or np.hypot(middle[0] - 640, middle[1] - 310) < 40, at
    ids = [[face["id"] for face in faces if face["detected"]] for faces in lines]
    assert ids[cut - 1] == [0]
    assert len(ids[cut]) == 1
    assert not is_far or ids[cut] != [0]


@pytest.mark.slow
def test_anonymize_leaves_mattes_in_step(tmp_path: Path) -> None:
    """Frames that wait to be hidden keep their own mattes."""
    plain, hidden = tmp_path / "plain.mkv", tmp_path / "hidden.mkv"
    for target, faces in ((plain, {"face": "off"}), (hidden, {"subjects": 0})):
        report = render(
            SAMPLE,
            tmp_path / "out.mp4",
            duration=0.7,
            matte_out=target,
            overwrite=True,
            matte="fast",
            **faces,
        )
        assert report.frames_encoded == 21
    mattes = list(all_luma(plain))
    assert len(mattes) == 21
    assert (mattes[0] != mattes[-1]).any()
    np.testing.assert_array_equal(list(all_luma(hidden)), mattes)


def test_face_data_next_to_the_render(tmp_path: Path) -> None:
    lines, arrays = tmp_path / "faces.jsonl", tmp_path / "faces.npz"
    for target in (lines, arrays):
        report = render(
            SAMPLE,
            tmp_path / "out.mp4",
            duration=0.2,
            face="off",
            face_data=target,
            overwrite=True,
            **UNCHANGED,
        )
        assert report.faces is not None
        assert report.faces["mode"] == "off"
        assert report.faces["missed_frames"] is None
    written = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [line["index"] for line in written] == list(range(6))
    assert all(len(line["faces"]) == 1 for line in written)
    left, top, right, bottom = written[5]["faces"][0]["box"]
    assert 520 < left < 640 < right < 800
    assert 150 < top < 300 < bottom < 460
    with np.load(arrays) as data:
        assert data["pts"].tolist() == [line["pts"] for line in written]
        np.testing.assert_allclose(
            data["landmarks"][5], written[5]["faces"][0]["landmarks"], atol=0.01
        )


def test_an_interrupted_render_leaves_its_face_data(tmp_path: Path) -> None:
    cancel = threading.Event()

    def stop(progress: Progress) -> None:
        if progress.frames > 3:
            cancel.set()

    partial = tmp_path / "faces.partial.jsonl"
    with pytest.raises(RenderCancelledError) as caught:
        render(
            SAMPLE,
            tmp_path / "out.mp4",
            face_data=tmp_path / "faces.jsonl",
            on_progress=stop,
            cancel=cancel,
        )
    written = [json.loads(line)["index"] for line in partial.read_text().splitlines()]
    assert len(written) > 3
    assert written == list(range(len(written)))
    assert list(tmp_path.iterdir()) == [partial]
    told = f"the faces of the first {len(written)} frames are in {partial}"
    assert caught.value.__notes__ == [told]


def test_a_folder_for_face_data_goes_where_nothing_is_written(tmp_path: Path) -> None:
    cancel = threading.Event()
    cancel.set()
    target, told = tmp_path / "out.mp4", tmp_path / "new" / "faces.jsonl"
    with pytest.raises(RenderCancelledError):
        render(SAMPLE, target, face_data=told, cancel=cancel)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", ["faces.jsonl", "faces.npz"])
def test_a_signal_keeps_the_old_faces_and_the_new(
    tmp_path: Path, name: str, number: signal.Signals
) -> None:
    old = tmp_path / name
    old.write_text("before")
    command = [sys.executable, "-m", "bgsoft", "render", str(SAMPLE), str(tmp_path / "out.mp4")]
    command += ["-y", "--face-data", str(old), "--progress", "json"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line).get("frames"):
                process.send_signal(number)
                break
        out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number, err
    partial = old.with_name(f"faces.partial{old.suffix}")
    assert sorted(tmp_path.iterdir()) == [old, partial]
    assert old.read_text() == "before"
    (note,) = json.loads(out.splitlines()[-1])["notes"]
    if old.suffix == ".npz":
        with np.load(partial) as data:
            count = len(data["index"])
    else:
        count = len(partial.read_text().splitlines())
    assert note == f"the faces of the first {count} frames are in {partial}"
    assert count > 0


@pytest.mark.parametrize("name", ["faces.jsonl", "faces.npz"])
def test_a_late_failure_keeps_the_old_faces(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / name
    old.write_text("before")

    def fail(*_: object) -> None:
        raise VerificationError("a frame was lost")

    monkeypatch.setattr("bgsoft.rendering.session.check_pts", fail)
    with pytest.raises(VerificationError):
        render(SAMPLE, tmp_path / "out.mp4", face_data=old, overwrite=True, duration=0.1)
    assert old.read_text() == "before"
    partial = f"faces.partial{old.suffix}"
    assert sorted(path.name for path in tmp_path.iterdir()) == [name, partial]


def test_no_output_appears_if_the_face_data_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "faces.jsonl"
    monkeypatch.setattr(
        "bgsoft.rendering.session.check_pts", lambda *_: data.write_text("somebody's")
    )
    with pytest.raises(OutputError, match="it has appeared during the render"):
        render(SAMPLE, tmp_path / "out.mp4", face_data=data, duration=0.1)
    assert data.read_text() == "somebody's"
    assert sorted(tmp_path.iterdir()) == [data, tmp_path / "faces.partial.jsonl"]


def test_bad_face_data_names_are_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.jsonl or \.npz"):
        render(SAMPLE, tmp_path / "out.mp4", face_data=tmp_path / "faces.txt")
    (tmp_path / "faces.npz").write_text("mine")
    with pytest.raises(OutputError, match="exists"):
        render(SAMPLE, tmp_path / "out.mp4", face_data=tmp_path / "faces.npz")
    assert (tmp_path / "faces.npz").read_text() == "mine"


@pytest.mark.parametrize(
    ("size", "frames"), [((66, 46), 3), slow((64, 64), 3), slow((320, 180), 1)]
)
def test_without_a_face_nothing_is_different(
    tmp_path: Path, size: tuple[int, int], frames: int
) -> None:
    clip = write_video(
        tmp_path / "in.mkv", VideoSpec(width=size[0], height=size[1], times=regular_times(frames))
    )
    plain = tmp_path / "plain.mkv"
    render(clip, plain)
    for mode in ("guard", "main", "anonymize"):
        other = tmp_path / f"{mode}.mkv"
        report = render(clip, other, face=mode)
        assert report.frames_encoded == frames
        assert report.faces is not None
        assert report.faces["frames_with_faces"] == 0
        np.testing.assert_array_equal(last_luma(other), last_luma(plain))


def test_off_does_nothing(tmp_path: Path) -> None:
    report = render(SAMPLE, tmp_path / "out.mp4", duration=0.1, face="off")
    assert report.faces is None
    assert report.stages["face"].backend == "off"
