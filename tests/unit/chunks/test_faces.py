"""Faces of renders in chunks: the same as in one go."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bgsoft
from bgsoft.chunks.prepare import WholeRender
from bgsoft.errors import OutputError
from tests.face_clips import write_two_people
from tests.outside import ffmpeg
from tests.synthetic import VideoSpec, regular_times, write_video
from tests.unit.chunks.short_chunks import (
    _short_chunks,
    plan_for,
    reason,
    render_in_chunks,
    settings,
)
from tests.unit.chunks.test_boundaries import MIN_DB, min_psnr

LOOK: dict[str, Any] = {"effect": "dim", "matte": "fast", "codec": "ffv1"}

pytestmark = pytest.mark.usefixtures(_short_chunks.__name__)


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two people; from frame 40 on the picture is mirrored, which is a new scene.

    The larger face is covered at first, and once more where a chunk begins.
    """
    folder = tmp_path_factory.mktemp("people")
    large = write_two_people(folder / "large.mkv", 64, cut=40)
    path = folder / "people.mkv"
    when = "enable='between(n,0,9)+between(n,20,26)'"
    hide = f"scale=640:360,drawbox=x=130:y=75:w=105:h=140:t=fill:c=gray:{when}"
    ffmpeg("-i", large, "-vf", hide, "-an", "-c:v", "libx264", "-crf", "10", "-g", "12", path)
    return path


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = VideoSpec(times=regular_times(64), options={"g": "12"})
    return write_video(tmp_path_factory.mktemp("clip") / "in.mkv", spec)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_faces_are_those_of_a_whole_render(people: Path, tmp_path: Path) -> None:
    reports = []
    for name, chunks in (("whole", 1), ("chunks", 3)):
        own = {"face_data": tmp_path / f"{name}.jsonl", "chunks": chunks, **LOOK}
        config = settings(people, tmp_path / f"{name}.mkv", **own)
        reports.append(render_in_chunks(config) if chunks > 1 else bgsoft.render_config(config))
    whole, chunks = reports
    assert [chunk.frames for chunk in chunks.parts] == [24, 16, 24]
    cuts = [[e.frame for e in r.events if e.kind == "scene-cut"] for r in reports]
    assert cuts[0] == cuts[1] == [40]
    assert min_psnr(tmp_path / "whole.mkv", tmp_path / "chunks.mkv") >= MIN_DB
    expected, found = lines(tmp_path / "whole.jsonl"), lines(tmp_path / "chunks.jsonl")
    assert found == expected
    assert {len(line["faces"]) for line in expected} >= {1, 2}
    assert chunks.faces == whole.faces
    assert not list(tmp_path.glob(".*"))


@pytest.mark.slow
def test_face_data_as_arrays_are_those_of_a_whole_render(people: Path, tmp_path: Path) -> None:
    one, other = tmp_path / "whole.npz", tmp_path / "chunks.npz"
    own = {**LOOK, "face": "off", "duration": 1.8}
    bgsoft.render_config(settings(people, tmp_path / "whole.mkv", face_data=one, **own, chunks=1))
    render_in_chunks(settings(people, tmp_path / "chunks.mkv", face_data=other, **own, chunks=2))
    with np.load(one) as expected, np.load(other) as found:
        assert list(found) == list(expected)
        for name in expected:
            assert found[name].dtype == expected[name].dtype
            assert np.array_equal(found[name], expected[name]), name


@pytest.mark.parametrize("mode", ["main", "anonymize"])
def test_who_is_who_is_not_decided_in_chunks(mode: str, clip: Path, tmp_path: Path) -> None:
    config = settings(clip, tmp_path / "out.mkv", face=mode, chunks=2, **LOOK)
    why = "faces to keep or hide are followed through the whole video"
    assert reason(config) == f"rendered whole, not in 2 chunks: {why}"
    assert plan_for(replace(config, chunks=None)) == WholeRender()
    assert list(tmp_path.iterdir()) == []


def test_face_data_that_is_there_is_seen_before_work(clip: Path, tmp_path: Path) -> None:
    there = tmp_path / "faces.jsonl"
    there.write_text("mine")
    config = settings(clip, tmp_path / "out.mkv", face_data=there, chunks=2)
    with pytest.raises(OutputError, match="exists"):
        plan_for(config)
    assert list(tmp_path.iterdir()) == [there]
    assert there.read_text() == "mine"
