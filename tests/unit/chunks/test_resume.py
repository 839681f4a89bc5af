"""A stopped render in chunks resumes, and never uses chunks of other settings."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

import bgsoft
from bgsoft.chunks import folder as folders
from bgsoft.chunks.folder import WorkFolder, _read_sealed, _write_sealed
from bgsoft.chunks.prepare import ChunkedRender
from bgsoft.errors import DecodeError, OutputError, RenderCancelledError, VerificationError
from bgsoft.media.probe import probe
from bgsoft.pipeline.refresh import REFRESH_INTERVAL
from bgsoft.report import Event
from bgsoft.settings.config import RegionConfig, RenderConfig
from tests.detectors import write_detector
from tests.marks import slow
from tests.outside import ffmpeg
from tests.outside_models import write_mixed
from tests.processes import wait_until
from tests.synthetic import SoundSpec, VideoSpec, regular_times, write_movie
from tests.unit.chunks.short_chunks import (
    _short_chunks,
    context,
    joined,
    plan_for,
    planned,
    settings,
)

LOOK: dict[str, Any] = {"effect": "dim", "strength": 30.0, "face": "off", "matte": "fast"}
LOOK |= {"mask_every": 8, "temporal": 0.0}
SECONDS = 60


def make_clip(path: Path, frames: int = 112) -> Path:
    options = {"preset": "ultrafast", "crf": "12", "g": "12", "threads": "1"}
    video = VideoSpec(times=regular_times(frames), options=options)
    return write_movie(path, video, [SoundSpec(seconds=frames / 25)])


@pytest.fixture
def config(tmp_path: Path) -> RenderConfig:
    return settings(make_clip(tmp_path / "in.mp4"), tmp_path / "out.mkv", chunks=3, **LOOK)


def pictures(path: Path) -> str:
    """Time and checksum of every decoded picture, and of every packet of sound."""
    video = ffmpeg("-i", path, "-map", "0:v", "-f", "framecrc", "-")
    return video + ffmpeg("-i", path, "-map", "0:a", "-c", "copy", "-f", "framecrc", "-")


def is_there(config: RenderConfig) -> object:
    return planned(config).tasks()[0].run(context())


def test_what_another_render_left_is_reported(config: RenderConfig, tmp_path: Path) -> None:
    other = WorkFolder(tmp_path / "it's another.mp4")
    other.prepare(replace(config, output=tmp_path / "it's another.mp4"), [])
    (text,) = folders.leftovers([WorkFolder(config.output)])
    assert str(other.path) in text
    command = text.partition("rm -r ")[2].removesuffix(" removes them")
    with other.used():
        assert not folders.leftovers([WorkFolder(config.output)]), "it is being rendered now"
    assert not folders.leftovers(
        [WorkFolder(config.output), WorkFolder(tmp_path / "it's another.mp4")]
    ), "its own"
    events: list[Event] = []
    look = replace(config, chunks=1, duration_seconds=0.2)
    bgsoft.render_config(look, on_event=events.append)
    assert text in [event.message for event in events]
    subprocess.run(["sh", "-c", f"rm -r {command}"], check=True)
    assert not other.path.exists()
    assert not folders.leftovers([WorkFolder(config.output)])


@pytest.mark.usefixtures(_short_chunks.__name__)
class TestChunks:
    def test_a_finished_chunk_is_not_rendered_twice(self, config: RenderConfig) -> None:
        first = planned(config)
        assert first.tasks()[1].run(context()) is False
        report = joined(planned(config))
        assert [chunk.reused for chunk in report.parts] == [False, True, False]
        told = [event.message for event in report.events if "nobody" in event.message]
        assert told == ["nobody was found in 112 frames, so the whole picture is background"]
        assert not WorkFolder(config.output).path.exists()
        again = replace(config, output=config.output.with_name("again.mkv"))
        joined(planned(again))
        assert pictures(again.output) == pictures(config.output)

    def test_a_chunk_without_a_note_is_not_finished(self, config: RenderConfig) -> None:
        assert is_there(config) is False
        assert is_there(config) is True
        WorkFolder(config.output).manifest(0).unlink()
        assert is_there(config) is False

    def test_a_chunk_that_was_cut_is_rendered_again(self, config: RenderConfig) -> None:
        plan = planned(config)
        for task in plan.tasks():
            task.run(context())
        file = WorkFolder(config.output).video(1, config.output, 0)
        os.truncate(file, file.stat().st_size // 2)
        report = joined(planned(config))
        assert [chunk.reused for chunk in report.parts] == [True, False, True]
        assert report.frames_encoded == 112

    def test_a_chunk_of_another_plan_is_rendered_again(self, config: RenderConfig) -> None:
        late = planned(config).tasks()[0]
        other = planned(settings(config.input, config.output, chunks=3, **LOOK | {"strength": 31}))
        assert late.run(context()) is False
        assert other.tasks()[0].run(context()) is False

    def test_the_number_of_chunks_stays_where_it_is_left_open(self, config: RenderConfig) -> None:
        planned(config).tasks()[0].run(context())
        folder = WorkFolder(config.output)
        known = folder.prepare(config, [])  # as where the settings say another number
        assert known == []
        planned(config).tasks()[0].run(context())
        open_number = replace(config, chunks=None)
        assert len(folder.prepare(open_number, [])) == 3
        assert folder.finished(0) is not None

    @pytest.mark.parametrize(
        "change",
        [
            *("look", "input", "contents", "faces", "mattes"),
            *map(slow, ("codec", "number", "sidecar")),
        ],
    )
    def test_chunks_of_another_render_are_not_used(
        self, change: str, config: RenderConfig, tmp_path: Path
    ) -> None:
        own, faces = write_mixed(tmp_path / "own.onnx"), tmp_path / "faces.jsonl"
        if change == "faces":
            size = [*probe(config.input).format.luma_shape[::-1]]
            faces.write_text(json.dumps({"faces_of": "in.mp4", "frame": size}) + "\n")
            look = {**LOOK, "face": "guard", "faces": str(faces)}
            config = settings(config.input, config.output, chunks=3, **look)
        if change == "mattes":
            matte = tmp_path / "%03d.png"
            ffmpeg("-i", config.input, "-vf", "format=gray", matte)
            look = {"effect": "dim", "strength": 30.0, "face": "off", "matte_in": str(matte)}
            config = settings(config.input, config.output, chunks=3, **look)
        if change == "sidecar":
            look = {**LOOK, "model": str(own)}
            del look["matte"]
            config = settings(config.input, config.output, chunks=3, **look)
        planned(config).tasks()[0].run(context())
        match change:
            case "sidecar":
                sidecar = own.with_suffix(".toml")
                sidecar.write_text(sidecar.read_text() + 'divide_by = "maximum"\n')
            case "look":
                config = settings(config.input, config.output, chunks=3, **LOOK | {"strength": 31})
            case "faces":
                track = {"id": 0, "faces": [[0, 5, 5, 15, 15]]}
                faces.write_text(faces.read_text() + json.dumps(track))
            case "mattes":
                os.utime(tmp_path / "112.png", ns=(1, 1))
            case "input":
                os.utime(config.input, ns=(1, 1))
            case "contents":  # another video of the same size and time, as of a recorder
                known = config.input.stat()
                data = bytearray(config.input.read_bytes())
                data[-1] ^= 1
                config.input.write_bytes(data)
                os.utime(config.input, ns=(known.st_atime_ns, known.st_mtime_ns))
            case "codec":
                config = settings(config.input, config.output, chunks=3, codec="ffv1", **LOOK)
            case "number":
                config = replace(config, chunks=2)
        assert is_there(config) is False

    def test_chunks_of_other_weights_of_a_detector_are_not_used(
        self, config: RenderConfig, tmp_path: Path
    ) -> None:
        file, weights = write_detector(tmp_path / "own.onnx"), tmp_path / "own.data"
        outside = {"save_as_external_data": True, "size_threshold": 100}
        onnx.save(onnx.load(file), file, location=weights.name, **outside)
        look = {**LOOK, "detector": str(file)}
        plan = planned(settings(config.input, config.output, chunks=3, **look))
        plan.folder.check_sources(plan.request.config)
        weights.write_bytes(bytes(weights.stat().st_size))
        with pytest.raises(VerificationError, match="changed during the render"):
            plan.folder.check_sources(plan.request.config)

    def test_another_render_that_has_finished_the_output_is_named(
        self, config: RenderConfig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = WorkFolder(config.output)

        def take_lock(*_: object) -> bool:
            folder.remove()
            return True

        monkeypatch.setattr(folders, "take_lock", take_lock)
        with pytest.raises(OutputError, match=r"another render that has finished .*out\.mkv"):
            folder.prepare(config, [])

    def test_the_file_that_has_changed_is_named(self, config: RenderConfig, tmp_path: Path) -> None:
        regions = tmp_path / "own.toml"
        regions.write_text("[[region]]\naction = 'keep'\nbox = '0,0,9,9'\n")
        plan = planned(replace(config, regions=RegionConfig(file=str(regions))))
        os.utime(regions, ns=(1, 1))
        with pytest.raises(VerificationError, match=r"^own\.toml changed during the render"):
            plan.folder.check_sources(plan.request.config)

    def test_chunks_of_two_inputs_are_not_joined(self, config: RenderConfig) -> None:
        plan = planned(config)
        assert plan.tasks()[0].run(context()) is False
        config.input.write_bytes(config.input.read_bytes())  # as long, at another time
        with pytest.raises(VerificationError, match="changed during the render"):
            joined(plan)
        assert not config.output.exists()

    def test_where_settings_change_no_picture_chunks_are_used(self, config: RenderConfig) -> None:
        planned(config).tasks()[0].run(context())
        other = replace(config, overwrite=True, report=config.output.with_name("report.json"))
        assert is_there(other) is True

    def test_two_at_once_do_not_disturb_each_other(self, config: RenderConfig) -> None:
        plan = planned(config)
        other = replace(config, effect=replace(config.effect, strength=1.0))
        with WorkFolder(config.output).used():
            with pytest.raises(OutputError, match="another render uses"):
                WorkFolder(config.output, wait_seconds=0.1).prepare(other, [*plan.chunks])
            joined(plan)
        assert config.output.exists()

    @pytest.mark.parametrize(
        ("error", "kept"),
        [(RenderCancelledError("stop"), True), (DecodeError("bad"), False), (OSError(), True)],
    )
    def test_chunks_are_kept_where_another_run_may_get_further(
        self, error: BaseException, kept: bool, config: RenderConfig
    ) -> None:
        planned(config).tasks()[0].run(context())
        folder = WorkFolder(config.output)
        note = folder.keep_or_remove(error)
        assert folder.path.exists() is kept
        assert (note is not None and str(folder.path) in note) is kept

    def test_nothing_is_left_to_continue_once_the_output_is_there(
        self, config: RenderConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise OutputError("the disk is full")

        monkeypatch.setattr("bgsoft.report.RenderReport.write_json", fail)
        plan = planned(replace(config, report=tmp_path / "report.json"))
        with pytest.raises(OutputError, match="full") as caught:
            joined(plan)
        assert config.output.exists()
        assert plan.folder.keep_or_remove(caught.value) is None
        assert not plan.folder.path.exists()

    @pytest.mark.parametrize("name", ["report", "face_data"])
    def test_no_output_appears_and_chunks_stay_if_another_file_cannot(
        self, name: str, config: RenderConfig, tmp_path: Path
    ) -> None:
        path = tmp_path / "mine.jsonl"
        plan = planned(replace(config, **{name: path}))
        for task in plan.tasks():
            task.run(context())
        path.write_text("somebody's")
        with pytest.raises(OutputError, match=r"exists|appeared") as caught:
            joined(plan)
        assert not config.output.exists()
        assert plan.folder.keep_or_remove(caught.value) is not None

    def test_what_was_begun_is_finished_where_nothing_is_said(self, config: RenderConfig) -> None:
        planned(config).tasks()[0].run(context())
        assert isinstance(plan_for(replace(config, chunks=None)), ChunkedRender)

    def test_a_whole_render_leaves_no_chunks_of_a_stopped_one(self, config: RenderConfig) -> None:
        planned(config).tasks()[0].run(context())
        bgsoft.render_config(replace(config, chunks=1))
        assert sorted(path.name for path in config.output.parent.iterdir()) == ["in.mp4", "out.mkv"]

    def test_nothing_is_left_where_no_chunk_was_finished(self, config: RenderConfig) -> None:
        planned(config)
        assert WorkFolder(config.output).keep_or_remove(RenderCancelledError("stop")) is None
        assert not WorkFolder(config.output).path.exists()

    @pytest.mark.parametrize("name", ["00001-0.mkv", "00001-faces.npz"])
    def test_a_damaged_chunk_of_the_same_size_is_noticed(
        self, name: str, config: RenderConfig
    ) -> None:
        plan = planned(replace(config, face_data=config.output.with_suffix(".jsonl")))
        for task in plan.tasks():
            task.run(context())
        file = plan.folder.path / name
        file.write_bytes(bytes(file.stat().st_size))
        report = joined(plan)
        assert report.events[0].message == "rendered whole: chunk 2 is damaged"
        names = ["in.mp4", "out.jsonl", "out.mkv"]
        assert sorted(path.name for path in config.output.parent.iterdir()) == names

    def test_a_lost_frame_where_chunks_meet_is_noticed(self, config: RenderConfig) -> None:
        plan = planned(config)
        for task in plan.tasks():
            task.run(context())
        folder = plan.folder
        known = folder.finished(1)
        assert known is not None
        del known.pre_roll[-1]
        folder.finish(1, known)
        told: list[Any] = []
        report = joined(plan, told)
        reason = "rendered whole: decoding from the middle gives different frames"
        assert sum(isinstance(each, Event) and each.message == reason for each in told) == 1
        assert report.events[0].message == reason
        assert report.parts == []
        assert not WorkFolder(config.output).path.exists()


COMMAND = [sys.executable, "-m", "bgsoft", "render", "--progress", "none", "-y", "--chunks", "3"]
FLAGS = ["--effect", "dim", "--strength", "30", "--face", "off", "--matte", "fast"]


def start(source: Path, target: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *FLAGS, "--threads", "1", *more, str(source), str(target)],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_chunks(folder: Path, count: int) -> None:
    wait_until(lambda: sum(path.stem.isdigit() for path in folder.glob("*.json")) >= count)


@pytest.fixture(scope="module")
def long_clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_clip(tmp_path_factory.mktemp("long") / "in.mp4", 5 * REFRESH_INTERVAL)


@pytest.fixture(scope="module")
def expected(long_clip: Path) -> str:
    target = long_clip.with_name("expected.mkv")
    done = start(long_clip, target)
    _, err = done.communicate(timeout=SECONDS)
    assert done.returncode == 0, err
    assert sorted(path.name for path in long_clip.parent.iterdir()) == ["expected.mkv", "in.mp4"]
    return pictures(target)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 130)])
def test_a_render_that_was_stopped_continues(
    number: signal.Signals, code: int, long_clip: Path, expected: str, tmp_path: Path
) -> None:
    target, report = tmp_path / "out.mkv", tmp_path / "report.json"
    folder = tmp_path / ".out.mkv.chunks"
    process = start(long_clip, target)
    wait_for_chunks(folder, 1)
    process.send_signal(number)
    _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == code
    assert not target.exists()
    if number is signal.SIGINT:
        notice, error = err.splitlines()[-2:]
        assert notice.startswith("notice: finished chunks are kept in ")
        assert error == "bgsoft: error: interrupted; no output was written"
    stamps = {path: path.stat().st_mtime_ns for path in folder.glob("0*.json")}
    assert stamps
    again = start(long_clip, target, "--report", str(report))
    _, err = again.communicate(timeout=SECONDS)
    assert again.returncode == 0, err
    reused = [chunk["reused"] for chunk in json.loads(report.read_text())["parts"]]
    assert sum(reused) >= len(stamps)
    assert not all(reused)
    assert pictures(target) == expected
    assert not folder.exists()


def test_long_names_that_begin_alike_have_folders_of_their_own(tmp_path: Path) -> None:
    longest = "ü" * 123 + "é"  # 248 bytes: one too many for a folder with the whole name
    one, other = (WorkFolder(tmp_path / f"{longest}{end}.mkv").path for end in "12")
    assert one != other
    one.mkdir()
    assert WorkFolder(tmp_path / f"{longest}1.mkv").path == one


def test_a_folder_that_is_not_ours_is_left_alone(config: RenderConfig) -> None:
    folder = WorkFolder(config.output)
    folder.path.mkdir()
    notes = folder.path / "notes.txt"
    notes.write_text("mine")
    with pytest.raises(OutputError, match="not made by bgsoft"):
        folder.prepare(config, [])
    folder.remove_unused()
    bgsoft.render_config(replace(config, chunks=1, duration_seconds=0.2))
    assert notes.read_text() == "mine"
    assert list(folder.path.iterdir()) == [notes]


@pytest.mark.parametrize(
    "text", ["[1, 2]", "{}", "nonsense", '{"sha256": "", "text": 3}', "[" * 100_000]
)
def test_a_damaged_plan_is_made_again(config: RenderConfig, text: str) -> None:
    folder = WorkFolder(config.output)
    folder.prepare(config, [])
    plan = folder.path / "plan.json"
    whole = plan.read_text()
    plan.write_text(text)
    folder.prepare(config, [])
    assert plan.read_text() == whole


@pytest.mark.parametrize("at", [0, 20, 90, 200, -2])
def test_a_damaged_note_is_none(config: RenderConfig, at: int) -> None:
    folder = WorkFolder(config.output)
    folder.path.mkdir()
    manifest = folder.manifest(0)
    _write_sealed(manifest, {"kept": list(range(90))})
    assert _read_sealed(manifest) is not None
    data = bytearray(manifest.read_bytes())
    data[at] ^= 1
    manifest.write_bytes(data)
    assert folder.finished(0) is None
