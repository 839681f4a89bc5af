"""Closed captions, croppings and other side data, through whole renders."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import cv2
import pytest

import bgsoft
from bgsoft.compare.compare import Limits, compare
from bgsoft.report import RenderReport
from tests.carried import (
    SAMPLE_ENTRY,
    caption,
    captions_of,
    clean_aperture,
    insert_box,
    write_captioned,
)
from tests.marks import slow
from tests.rendering import read_back
from tests.synthetic import VideoSpec, regular_times, write_video

QUICK = {"face": "off", "matte": "fast", "mask_every": 25, "effect": "dim", "preset": None}
ALL = [caption(index) for index in range(12)]


def notices(report: RenderReport) -> list[str]:
    return [event.message for event in report.events if event.kind == "notice"]


@pytest.mark.parametrize(
    ("source", "encoder", "target", "codec"),
    [
        ("a.mkv", "libx264", "out.mp4", "h264"),
        ("a.ts", "mpeg2video", "out.mkv", "hevc"),
        slow("a.ts", "libx264", "out.ts", "h264"),
        slow("a.h264", "libx264", "out.avi", "h264"),
        slow("a.avi", "libx264", "out.ts", "hevc"),
    ],
)
def test_captions_stay_with_their_pictures(
    tmp_path: Path, source: str, encoder: str, target: str, codec: str
) -> None:
    path = write_captioned(tmp_path / source, encoder)
    assert captions_of(path) == ALL
    report = bgsoft.render(path, tmp_path / target, codec=codec, **QUICK)
    assert captions_of(tmp_path / target) == ALL
    assert not any("captions" in notice for notice in notices(report))


@pytest.mark.slow
def test_captions_of_hevc_are_read(tmp_path: Path) -> None:
    path = write_captioned(tmp_path / "a.mkv", "libx264")
    bgsoft.render(path, tmp_path / "b.mp4", codec="hevc", **QUICK)
    bgsoft.render(tmp_path / "b.mp4", tmp_path / "out.mkv", codec="h264", **QUICK)
    assert captions_of(tmp_path / "out.mkv") == ALL


def test_a_part_has_the_captions_of_its_pictures(tmp_path: Path) -> None:
    path = write_captioned(tmp_path / "a.mp4", "libx264", every=2)
    bgsoft.render(path, tmp_path / "out.mp4", start=0.16, duration=0.2, **QUICK)
    assert captions_of(tmp_path / "out.mp4") == [caption(4), caption(6), caption(8)]


@pytest.mark.slow
def test_captions_pass_through_pipes(tmp_path: Path) -> None:
    path = write_captioned(tmp_path / "a.ts", "libx264")
    command = [sys.executable, "-m", "bgsoft", "render", "-", "-", "--face", "off"]
    with path.open("rb") as source, (tmp_path / "out.mkv").open("wb") as target:
        subprocess.run(command, stdin=source, stdout=target, check=True, capture_output=False)
    assert captions_of(tmp_path / "out.mkv") == ALL


@pytest.mark.slow
def test_captions_pass_through_chunks(tmp_path: Path) -> None:
    path = write_captioned(tmp_path / "a.mp4", "libx264", frames=300)
    bgsoft.render(path, tmp_path / "out.mp4", chunks=2, **QUICK)
    assert captions_of(tmp_path / "out.mp4") == [caption(index) for index in range(300)]


def test_captions_that_a_codec_does_not_take_are_named(tmp_path: Path) -> None:
    path = write_captioned(tmp_path / "a.mp4", "libx264")
    target = tmp_path / "out.mkv"
    report = bgsoft.render(path, target, codec="ffv1", **QUICK)
    assert [each for each in notices(report) if "captions" in each] == ["closed captions left out"]
    result = compare(path, target, vmaf=False, limits=Limits(strict=True))
    checks = {check.name: (check.ok, check.detail) for check in result.checks}
    assert checks["closed captions"] == (False, "A has 12, B 0")
    assert "closed captions" in "".join(result.failures)


def test_hidden_places_are_those_of_the_cropped_picture(tmp_path: Path) -> None:
    spec = VideoSpec(times=regular_times(3), width=320, height=180)
    path = write_video(tmp_path / "a.mov", spec)
    insert_box(path, SAMPLE_ENTRY, clean_aperture((320, 180), 80, 40, 40, 20))
    target = tmp_path / "out.mkv"
    hidden = {"hide": ("100,0,50,60",), "anonymize_style": "solid", "strength": 0.0}
    bgsoft.render(path, target, codec="ffv1", **{**QUICK, **hidden})
    luma = read_back(target)[0].planes[0]
    assert luma.shape == (120, 200)
    black = cv2.boundingRect(cv2.inRange(luma, 0, 16))
    assert black == (100, 0, 50, 60)
    result = compare(path, target, vmaf=False)
    assert {"cropping", "picture size"} <= {check.name for check in result.checks if check.ok}
