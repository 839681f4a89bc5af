"""A render on a machine that sees none of the files."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bgsoft.batch.carry import render_elsewhere
from bgsoft.errors import BgsoftError, DiskFullError, OpenError, WorkerDiedError
from bgsoft.jobs.link import Home, Link, Look, Request, Write
from bgsoft.jobs.task import TaskContext
from bgsoft.models.catalog import find_spec, spec_path
from bgsoft.outputs import write_error
from bgsoft.report import Event, RenderReport
from bgsoft.settings.config import RenderConfig, SegmentConfig
from tests.outside import shown_by_ffmpeg

SAMPLE = Path(__file__).parents[3] / "samples/person.mp4"
SIDECAR = """
family = "single-shot"
[input]
name = "image"
width = 256
height = 256
[[outputs]]
name = "mask"
"""
Answer = Callable[[Home, Request], object]


@pytest.fixture(autouse=True)
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the other machine has its copies."""
    folder = tmp_path / "copies"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def rendered(
    config: RenderConfig, said: list[object], answer: Answer = Home.answer
) -> RenderReport:
    with Home() as home:

        def ask(request: Request) -> object:
            found = answer(home, request)
            if isinstance(found, BgsoftError):
                raise found
            if isinstance(request, Look):
                return home.answer(request)._replace(mtime_ns=-1)  # type: ignore[attr-defined]
            return found

        context = TaskContext(tell=said.append, cancel=threading.Event(), threads=1, gpu=None)
        report = render_elsewhere(config, Link(ask, said.append, None), context)
        home.commit()
    assert isinstance(report, RenderReport)
    return report


def test_reports_name_the_files_at_home(tmp_path: Path, copies: Path) -> None:
    model = tmp_path / "own.onnx"
    model.write_bytes(spec_path(find_spec("selfie-general")).read_bytes())
    sidecar = tmp_path / "own.toml"
    sidecar.write_text(SIDECAR)
    config = RenderConfig(
        input=SAMPLE,
        output=tmp_path / "out.mp4",
        matte_out=tmp_path / "matte.mp4",
        duration_seconds=0.5,
        segment=SegmentConfig(model=str(model)),
    )
    said: list[object] = []
    report = rendered(config, said)
    assert (report.input, report.output) == (str(SAMPLE), str(config.output))
    assert report.settings["segment"]["model"] == str(model)
    assert str(copies) not in repr(report) + repr(said)
    assert any(isinstance(each, str) and str(sidecar) in each for each in said)
    assert not any(isinstance(each, Event) and "made the folder" in each.message for each in said)
    assert len(shown_by_ffmpeg(config.output)) == report.frames_encoded
    assert len(shown_by_ffmpeg(tmp_path / "matte.mp4")) == report.frames_encoded
    assert list(copies.iterdir()) == []


def test_errors_name_the_files_at_home(tmp_path: Path, copies: Path) -> None:
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video")
    with pytest.raises(OpenError) as caught:
        rendered(RenderConfig(input=broken, output=tmp_path / "out.mp4"), [])
    assert str(copies) not in str(caught.value) + str(caught.value.path)
    assert caught.value.path == str(broken)
    assert list(copies.iterdir()) == []


def test_a_full_disk_here_is_not_one_at_home(
    tmp_path: Path, copies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = RenderConfig(input=SAMPLE, output=tmp_path / "out.mp4", duration_seconds=0.2)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def at_home(home: Home, request: Request) -> object:
        is_write = isinstance(request, Write)
        return write_error(full, request.path) if is_write else home.answer(request)

    with pytest.raises(DiskFullError, match=r"cannot write out\.mp4: disk full"):
        rendered(config, [], at_home)

    def fetch(_link: Link, path: Path, here: Path) -> None:
        raise write_error(full, here)

    monkeypatch.setattr(Link, "fetch", fetch)
    with pytest.raises(WorkerDiedError, match=r"no room for copies of files: .*disk full"):
        rendered(config, [])
    assert [path.name for path in tmp_path.iterdir()] == [copies.name]
    assert list(copies.iterdir()) == []
