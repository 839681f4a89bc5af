"""Main people in whole renders that hide everybody else."""

from __future__ import annotations

import os
import threading
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bgsoft
from bgsoft.errors import OutputError, VerificationError
from bgsoft.report import Event, Phase, Progress
from tests.contract.test_render_faces import UNCHANGED, all_luma, detail
from tests.face_clips import FACE, GUEST_FACE, write_guest_first, write_late_face
from tests.outside import ffmpeg

FRAMES, FIRST = 13, 9
"""Of the clip, and the first one that shows the main person's face."""
HIDES: dict[str, Any] = {
    "face": "anonymize",
    "anonymize_style": "solid",
    "speed": "ultrafast",
    "quality": 8,
    **UNCHANGED,
}


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_guest_first(tmp_path_factory.mktemp("people") / "in.mp4", FRAMES, FIRST)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four frames of a quarter of the others' area."""
    return write_late_face(tmp_path_factory.mktemp("people") / "in.mp4", 4, 0)


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six frames; the last three show the main person's face."""
    return write_guest_first(tmp_path_factory.mktemp("people") / "in.mp4", 6, 3)


def hidden(source: Path, target: Path) -> list[tuple[bool, bool]]:
    """Whether the faces of the main person and the guest are hidden in each frame."""
    pairs = zip(all_luma(source), all_luma(target), strict=True)
    return [
        (
            detail(after[FACE]) < 0.5 * detail(before[FACE]),
            detail(after[GUEST_FACE]) < 0.5 * detail(before[GUEST_FACE]),
        )
        for before, after in pairs
    ]


def test_a_guest_who_is_seen_first_is_hidden_in_every_frame(clip: Path, tmp_path: Path) -> None:
    seen: list[Progress] = []
    target, report = tmp_path / "out.mp4", tmp_path / "report.json"
    given = {**HIDES, "report": report, "chunks": 3}
    result = bgsoft.render(clip, target, on_progress=seen.append, **given)
    found = hidden(clip, target)
    assert found[FIRST:] == [(False, True)] * (FRAMES - FIRST)
    assert all(guest for _, guest in found)
    phases = [phase for phase, _ in groupby(progress.phase for progress in seen)]
    assert phases == [Phase.SEARCH, Phase.RENDER]
    assert [max(p.frames for p in seen if p.phase is phase) for phase in phases] == [FRAMES] * 2
    assert result.faces is not None
    assert result.faces["main_changes"] == []
    # Doubts of the search, about stripes, are reported by the render.
    assert len(result.faces["doubtful"]) == result.faces["doubtful_frames"] > 0
    told = [event.message for event in result.events if event.stage == "face"]
    assert not any("first frames" in text for text in told)


@pytest.mark.slow
def test_frames_for_python_are_searched_before_the_first_one(clip: Path, tmp_path: Path) -> None:
    bgsoft.render(clip, tmp_path / "out.mkv", codec="ffv1", preset=None, **_without_rate(HIDES))
    expected = [int(np.median(luma[GUEST_FACE])) for luma in all_luma(tmp_path / "out.mkv")]
    with bgsoft.frames(clip, **_without_rate(HIDES)) as frames:
        pictures = [frame.picture[GUEST_FACE] for frame in frames]
    assert len(pictures) == FRAMES
    assert all(value <= 16 for value in expected)
    assert all(np.median(picture) == 0 for picture in pictures)


def _without_rate(settings: dict[str, Any]) -> dict[str, Any]:
    return {key: each for key, each in settings.items() if key not in ("speed", "quality")}


def test_of_a_pipe_the_first_frames_decide_with_a_notice(short: Path, tmp_path: Path) -> None:
    pipe, target = tmp_path / "pipe", tmp_path / "out.mp4"
    os.mkfifo(pipe)
    sent = tmp_path / "sent.mkv"
    ffmpeg("-i", short, "-c", "copy", sent)
    sender = threading.Thread(target=lambda: pipe.write_bytes(sent.read_bytes()))
    sender.start()
    told: list[Event] = []
    bgsoft.render(pipe, target, on_event=told.append, **HIDES)
    sender.join()
    assert all(person for person, _ in hidden(short, target)[3:])
    assert [event.message for event in told if "first frames" in event.message] == [
        "the first frames of each scene decide who is shown, as a pipe cannot be read twice; render"
        " a file, or name people by --main"
    ]


def test_what_cannot_be_written_is_reported_before_the_search(clip: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.mp4"
    target.write_bytes(b"mine")
    seen: list[Progress] = []
    with pytest.raises(OutputError, match="exists"):
        bgsoft.render(clip, target, on_progress=seen.append, **HIDES)
    assert seen == []
    assert target.read_bytes() == b"mine"
    assert list(tmp_path.iterdir()) == [target]


def test_faces_of_one_file_are_not_used_for_another(small: Path, tmp_path: Path) -> None:
    source, target, other = tmp_path / "in.mp4", tmp_path / "out.mp4", tmp_path / "other.mp4"
    source.write_bytes(small.read_bytes())
    ffmpeg("-i", small, "-vf", "hflip", "-c:v", "libx264", "-preset", "veryfast", other)

    def replace(progress: Progress) -> None:
        if progress.phase is Phase.SEARCH and progress.frames == 4 and other.exists():
            other.replace(source)

    with pytest.raises(VerificationError, match="the input changed"):
        bgsoft.render(source, target, on_progress=replace, **HIDES)
    assert list(tmp_path.iterdir()) == [source]


def test_an_input_that_changes_after_the_search_is_an_error(small: Path, tmp_path: Path) -> None:
    source = tmp_path / "in.mp4"
    source.write_bytes(small.read_bytes())
    with bgsoft.frames(source, **_without_rate(HIDES)) as frames:
        next(frames)
        source.write_bytes(small.read_bytes() + b"more")
        with pytest.raises(VerificationError, match="the input changed"):
            list(frames)


def test_a_picture_that_is_replaced_after_the_search_is_an_error(
    small: Path, tmp_path: Path
) -> None:
    ffmpeg("-i", small, "-s", "320x180", tmp_path / "%02d.png")
    with bgsoft.frames(tmp_path, **_without_rate(HIDES)) as frames:
        next(frames)
        (tmp_path / "01.png").write_bytes((tmp_path / "04.png").read_bytes())
        with pytest.raises(VerificationError, match="the input changed"):
            list(frames)
