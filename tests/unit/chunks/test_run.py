"""A render in chunks from Python: worker processes, progress, events and the report."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import bgsoft
from bgsoft.analysis.base import REACH
from bgsoft.chunks import plan
from bgsoft.chunks.prepare import WholeRender
from bgsoft.chunks.renders import ChunksProgress, Renders
from bgsoft.errors import ConfigError, OpenError, OutputError, RenderCancelledError
from bgsoft.frame import FrameFormat
from bgsoft.jobs.driver import Driver
from bgsoft.jobs.task import Finished
from bgsoft.media.info import VideoInfo
from bgsoft.media.probe import probe
from bgsoft.pipeline.refresh import REFRESH_INTERVAL
from bgsoft.rendering.request import Request
from bgsoft.report import Event, Progress, RenderReport
from tests.outside_models import write_mixed
from tests.processes import run_python
from tests.synthetic import VideoSpec, regular_times, write_video
from tests.unit.chunks.short_chunks import Here, _short_chunks, plan_for, settings

LOOK = {"effect": "dim", "strength": 30.0, "face": "off", "matte": "fast", "mask_every": 16}
LOOK |= {"temporal": 0.0}
FRAMES = 3 * REFRESH_INTERVAL


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    options = {"preset": "ultrafast", "g": "30", "threads": "1"}
    spec = VideoSpec(times=regular_times(FRAMES), options=options, pixel_format="yuv422p")
    return write_video(tmp_path_factory.mktemp("run") / "in.mkv", spec)


def test_progress_and_events_are_those_of_one_render(clip: Path, tmp_path: Path) -> None:
    seen: list[Progress] = []
    events: list[Event] = []
    target, saved = tmp_path / "new" / "out.mp4", tmp_path / "report.json"
    report = bgsoft.render(
        clip,
        target,
        preset=None,
        chunks=2,
        threads=2,
        report=saved,
        on_progress=seen.append,
        on_event=events.append,
        **LOOK,  # type: ignore[arg-type]
    )
    assert [path.name for path in target.parent.iterdir()] == ["out.mp4"]
    assert sum(chunk.frames for chunk in report.parts) == report.frames_encoded == FRAMES
    assert [chunk.lead_frames for chunk in report.parts] == [0, 32 + REACH]
    assert seen[-1].frames == FRAMES
    assert {progress.total for progress in seen} == {FRAMES}
    assert sum("4:2:2" in event.message for event in events) == 1
    assert sum("4:2:2" in event.message for event in report.events) == 1
    assert len(set(events)) == len(events)
    assert report.output == str(target)
    assert report.settings["chunks"] == 2
    assert json.loads(saved.read_text()) == json.loads(json.dumps(report.to_dict()))


def test_errors_come_before_any_work(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bgsoft.jobs.pool.Pool", lambda *_, **__: Here())
    target = tmp_path / "out.mp4"
    target.write_bytes(b"mine")
    with pytest.raises(OutputError, match="exists"):
        bgsoft.render(clip, target, chunks=2)
    assert target.read_bytes() == b"mine"
    with pytest.raises(ConfigError, match="cannot combine"):
        bgsoft.render(clip, tmp_path / "other.mp4", chunks=2, trace=tmp_path / "trace.json")
    with pytest.raises(ConfigError, match="must be between 0"):
        bgsoft.render(clip, tmp_path / "other.mp4", chunks=2, quality=99)
    assert [path.name for path in tmp_path.iterdir()] == ["out.mp4"]


@pytest.mark.usefixtures(_short_chunks.__name__)
def test_files_are_planned_and_rendered_whole_where_that_needs_no_chunks(
    clip: Path, tmp_path: Path
) -> None:
    short = settings(clip, tmp_path / "short.mp4", chunks=2, duration=0.5, **LOOK)
    long = settings(clip, tmp_path / "long.mp4", chunks=2, **LOOK)
    missing = settings(tmp_path / "missing.mkv", tmp_path / "missing.mp4", chunks=2, **LOOK)
    ends: dict[int, Finished] = {}
    with Renders(Driver(Here())) as renders:
        files = [renders.submit(each) for each in (short, long, missing)]
        while len(ends) < 3:
            ends |= {u.task_id: u for u in renders.poll(1.0) if isinstance(u, Finished)}
    reports = [ends[file].result for file in files[:2]]
    assert isinstance(reports[0], RenderReport)
    assert isinstance(reports[1], RenderReport)
    assert reports[0].events[0].message == "rendered whole, not in 2 chunks: it is too short"
    assert [len(report.parts) for report in reports] == [0, 2]
    assert isinstance(ends[files[2]].error, OpenError)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["long.mp4", "short.mp4"]


def test_a_video_that_is_not_divided_is_probed_once(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probed = []

    def once(path: Path) -> VideoInfo:
        probed.append(path)
        return probe(path)

    monkeypatch.setattr("bgsoft.media.probe.probe", once)
    monkeypatch.setattr("bgsoft.jobs.pool.Pool", lambda *_, **__: Here())
    config = settings(clip, tmp_path / "out.mp4", chunks=2, duration=0.5, **LOOK)
    assert bgsoft.render_config(config).parts == []
    assert probed == [clip]


def test_a_file_whose_planning_was_cancelled_leaves_nothing(clip: Path, tmp_path: Path) -> None:
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(RenderCancelledError):
        plan_for(settings(clip, tmp_path / "out.mp4", chunks=2, **LOOK), cancel=cancel)
    assert list(tmp_path.iterdir()) == []


def test_a_short_video_is_not_divided_by_itself(clip: Path, tmp_path: Path) -> None:
    config = settings(clip, tmp_path / "out.mp4", threads=16, **LOOK)
    assert isinstance(plan_for(config, None), WholeRender)


@pytest.mark.slow
def test_a_batch_divides_its_files_where_that_is_asked_for(clip: Path, tmp_path: Path) -> None:
    source, target, saved = tmp_path / "in", tmp_path / "out", tmp_path / "report.json"
    source.mkdir()
    (source / "long.mkv").symlink_to(clip)
    times = regular_times(12)
    write_video(source / "short.mkv", VideoSpec(times=times, options={"preset": "ultrafast"}))
    command = ["-m", "bgsoft", "batch", source, target, "--jobs", "2"]
    flags = ["--chunks", "2", "--face", "off", "--matte", "fast", "--report", str(saved)]
    done = run_python(*command, *flags)
    assert done.returncode == 0, done.stderr
    reports = [file["report"] for file in json.loads(saved.read_text())["files"]]
    assert [len(report["parts"]) for report in reports] == [2, 0]
    assert [report["frames_encoded"] for report in reports] == [FRAMES, 12]
    assert not [path for path in target.iterdir() if path.name.endswith(".chunks")]


def test_chunks_that_were_finished_before_count_as_done_and_not_as_fast() -> None:
    seen: list[Progress] = []
    meter = ChunksProgress([100, 50], seen.append)

    def progress(frames: int, total: int) -> Progress:
        load = {"encode": 0.5}
        return Progress(
            frames=frames, total=total, elapsed_seconds=1, fps=1, eta_seconds=1, load=load
        )

    meter.update(0, progress(100, 100))
    assert (seen[-1].frames, seen[-1].total, seen[-1].fps) == (100, 150, 0.0)
    meter.update(1, progress(10, 50))
    assert seen[-1].frames == 110
    assert seen[-1].fps > 0
    assert seen[-1].load == {"encode": 0.5}


@pytest.fixture
def _seven_gigabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9000000 kB\nMemAvailable: 6850000 kB\n")
    monkeypatch.setattr(plan, "Path", {"/proc/meminfo": meminfo}.__getitem__)


@pytest.mark.usefixtures("_seven_gigabytes")
def test_colour_that_is_kept_leaves_memory_for_fewer_chunks(clip: Path, tmp_path: Path) -> None:
    info = replace(probe(clip), format=FrameFormat(width=3840, height=2160))
    target = tmp_path / "out.mkv"
    plain, kept = (
        settings(clip, target, threads=16, infer="cpu", codec=codec, **LOOK)
        for codec in ("h264", "ffv1")
    )
    assert plan.workers_for(Request(plain), info) == 3
    assert plan.workers_for(Request(kept), info) == 2
    assert plan.workers_for(Request(kept), replace(info, sampling="4:2:0")) == 3


@pytest.mark.usefixtures("_seven_gigabytes")
def test_a_large_model_leaves_memory_for_fewer_chunks(clip: Path, tmp_path: Path) -> None:
    info = probe(clip)
    own = write_mixed(tmp_path / "own.onnx", 1024)
    small, large = (
        settings(clip, tmp_path / "out.mkv", threads=16, infer="cpu", **look)
        for look in (LOOK, {**LOOK, "matte": None, "model": str(own)})
    )
    assert plan.workers_for(Request(small), info) == 8
    assert plan.workers_for(Request(large), info) == 2


@pytest.mark.parametrize(
    ("gpu", "threads", "encode", "chunks"),
    [
        (False, 16, "cpu", 8),
        (True, 16, "auto", 1),
        (True, 16, "cpu", 4),
        (True, 8, "cpu", 1),  # one encoder keeps them busy
    ],
)
def test_a_render_is_divided_where_that_pays(
    clip: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gpu: bool,
    threads: int,
    encode: str,
    chunks: int,
) -> None:
    monkeypatch.setattr(plan, "_on_gpu", lambda _config: gpu)
    monkeypatch.setattr(plan, "_free_bytes", lambda: 64e9)
    info = replace(probe(clip), num_frames_from_header=3000)
    config = settings(clip, tmp_path / "out.mkv", threads=threads, encode=encode, **LOOK)
    workers = plan.workers_for(Request(config), info)
    assert plan.pays(config, info, workers) == (chunks > 1)
    assert plan._chunk_count(config, 3000, workers) == chunks


def test_chunks_check_what_they_write_before_they_read_as_a_whole_render_does(
    tmp_path: Path,
) -> None:
    for chunks in (1, 2):
        with pytest.raises(OutputError, match="the report"):
            bgsoft.render(
                tmp_path / "missing.mkv",
                tmp_path / "out.mkv",
                chunks=chunks,
                report=tmp_path / "out.mkv",
            )
