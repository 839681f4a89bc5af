"""Corrections by hand in chunks: given mattes, detectors and followed regions.

The video is the same as in one piece.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

import bgsoft
from bgsoft.chunks.prepare import WholeRender
from bgsoft.errors import ConfigError, DecodeError
from bgsoft.report import RenderReport
from tests.detectors import write_detector
from tests.marks import slow
from tests.outside import frame_hashes
from tests.rendering import LOSSLESS
from tests.synthetic import damage, made_once, write_frames
from tests.unit.chunks.short_chunks import (
    _short_chunks,
    plan_for,
    render_in_chunks,
    settings,
)

pytestmark = pytest.mark.usefixtures(_short_chunks.__name__)

FRAMES, RATE, SIZE = 88, 25, (256, 144)
LOOK: dict[str, Any] = {**LOSSLESS, "face": "off", "effect": "color", "background": "#00b140"}
QUICK: dict[str, Any] = {"matte": "fast", "mask_every": 16, "temporal": 0.0}


def encode(path: Path, picture: Any, count: int, rate: Fraction, pixels: str = "yuv420p") -> Path:
    """Write pictures without loss, with a key frame every 11 frames."""
    options = {"qp": "0", "preset": "ultrafast", "g": "11", "bf": "2"}
    given: dict[str, Any] = {"pixels": pixels, "rate": rate, "codec": "libx264", "options": options}
    return write_frames(path, map(picture, range(count)), **given)


def place(number: int) -> tuple[int, int]:
    """Left and top of a square whose speed changes."""
    return round(30 + 1.7 * number + 14 * np.sin(number / 3)), round(50 + 30 * np.sin(number / 11))


def scene(number: int) -> NDArray[np.uint8]:
    """Rough ground with a red square, often grey, and a flickering one; RGB."""
    rng = np.random.default_rng(3)
    ground = cv2.resize(rng.integers(60, 200, (18, 32), np.uint8), SIZE)
    image = np.repeat(ground[..., None], 3, axis=2)
    x, y = place(number)
    is_seen = number % 5 > 1 and not 43 <= number < 52
    image[y : y + 24, x : x + 24] = (255, 0, 0) if is_seen else 128
    if number % 16 == 0:  # seldom, so that its speed is remembered for long
        x, y = 180 + round(16 * np.sin(number)), 10
        image[y : y + 40, x : x + 50] = (255, 0, 0)
    return image


def patch(number: int) -> NDArray[np.uint8]:
    """Rough ground, over which a patch moves and turns; another scene from frame 66 on; RGB."""
    rng = np.random.default_rng(3)
    ground, fine = (
        cv2.resize(rng.integers(60, 200, size, np.uint8), SIZE) for size in ((18, 32), (36, 64))
    )
    if number >= 66:
        ground = ground[::-1, ::-1] // 2
    turn = cv2.getRotationMatrix2D((50, 60), 0.8 * number, 1 + 0.002 * number)
    turn[:, 2] += 1.3 * number, 0.4 * number
    mask = np.zeros_like(ground)
    mask[35:85, 25:75] = 255
    moved, inside = cv2.warpAffine(fine, turn, SIZE), cv2.warpAffine(mask, turn, SIZE) > 127
    return np.repeat(np.where(inside, moved, ground)[..., None], 3, axis=2)


def matte(number: int) -> NDArray[np.uint8]:
    disc = np.zeros(SIZE[::-1], np.uint8)
    x, y = place(number)
    cv2.circle(disc, (x, y), 30, 255, cv2.FILLED, cv2.LINE_AA)
    return disc


@made_once
def write_scene(path: Path, *, rate: int = RATE) -> Path:
    return encode(path, scene, FRAMES, Fraction(rate))


@made_once
def write_patch(path: Path) -> Path:
    return encode(path, patch, FRAMES, Fraction(RATE))


@made_once
def write_mattes(path: Path, *, count: int = FRAMES, rate: int = RATE) -> Path:
    return encode(path, matte, count, Fraction(rate))


def plain(report: RenderReport) -> dict[str, Any]:
    """Return a report as its file stores it."""
    read: dict[str, Any] = json.loads(json.dumps(report.to_dict()))
    return read


def both_ways(clip: Path, folder: Path, **given: Any) -> tuple[RenderReport, RenderReport]:
    """Render in one piece and in chunks; all frames must be the same, by FFmpeg's hashes."""
    whole, chunks = folder / "whole.mkv", folder / "chunks.mkv"
    first = bgsoft.render_config(settings(clip, whole, chunks=1, **{**LOOK, **given}))
    report = render_in_chunks(settings(clip, chunks, chunks=3, **{**LOOK, **given}))
    assert len(report.parts) == 3
    assert first.parts == []
    hashes = frame_hashes(whole)
    assert hashes == frame_hashes(chunks)
    assert len(hashes) == report.frames_encoded
    for key in ("hidden", "detector"):
        assert plain(report)[key] == plain(first)[key]
    told = [[event.message for event in each.events] for each in (first, report)]
    assert sorted(told[0]) == sorted(told[1])
    return first, report


@pytest.mark.parametrize(
    "given",
    [
        {},
        slow({"matte_match": "time", "start": 0.42}),
        slow({"matte_match": "time", "rate": 10}),
        slow({"matte_mode": "max", **QUICK}),
        slow({"pictures": True}),
        slow({"pictures": True, "matte_match": "time"}),
    ],
    ids=str,
)
def test_given_mattes(given: dict[str, Any], tmp_path: Path) -> None:
    clip, given = write_scene(tmp_path / "in.mkv"), dict(given)
    file = write_mattes(tmp_path / "m.mkv", rate=given.pop("rate", RATE))
    if given.pop("pictures", False):
        (tmp_path / "m").mkdir()
        for number in range(FRAMES):
            cv2.imwrite(str(tmp_path / "m" / f"{number:03d}.png"), matte(number))
        file = tmp_path / "m" / "%03d.png"
    both_ways(clip, tmp_path, matte_in=str(file), **given)


@pytest.mark.parametrize("count", [FRAMES - 3, slow(30), slow(FRAMES + 2)])
def test_mattes_that_are_missing_or_left_over(count: int, tmp_path: Path) -> None:
    clip, file = write_scene(tmp_path / "in.mkv"), write_mattes(tmp_path / "m.mkv", count=count)
    given = {**LOOK, "matte_in": str(file)}
    text = rf"contains {count} mattes, but the video .*{FRAMES} frames"
    with pytest.raises(DecodeError, match=text):
        render_in_chunks(settings(clip, tmp_path / "out.mkv", chunks=3, **given))
    assert not (tmp_path / "out.mkv").exists()


def test_a_detector(tmp_path: Path) -> None:
    """Boxes are held for 25 frames, longer than any other state."""
    clip, file = write_scene(tmp_path / "in.mkv", rate=50), write_detector(tmp_path / "own.onnx")
    first, _ = both_ways(clip, tmp_path, detector=str(file), **QUICK)
    assert first.detector is not None
    assert first.detector["classes"]["red"]["held"] > FRAMES // 4


def test_a_detector_that_finds_nothing_is_reported_once(tmp_path: Path) -> None:
    clip = write_scene(tmp_path / "in.mkv")
    file = write_detector(tmp_path / "own.onnx", keys='hide = ["blue"]')
    given = {**LOOK, **QUICK, "detector": str(file)}
    report = render_in_chunks(settings(clip, tmp_path / "out.mkv", chunks=3, **given))
    assert len(report.parts) == 3
    assert sum("found nothing to hide" in event.message for event in report.events) == 1


def test_a_file_of_faces_with_a_time_of_no_frame(tmp_path: Path) -> None:
    clip, file = write_scene(tmp_path / "in.mkv"), tmp_path / "f.jsonl"
    header = {"faces_of": "in.mkv", "frame": SIZE, "time_base": "1/1000"}
    box, square = [100, 40, 140, 90], [120, 65, 60]
    faces = [[40 * number, *box, 0, 0.9, 1, number, *square] for number in range(FRAMES)]
    track = {"id": 3, "faces": [*faces, [7, *box, 0, 0.9, 1, 0, *square]]}
    file.write_text(f"{json.dumps(header)}\n{json.dumps(track)}\n")
    first, _ = both_ways(clip, tmp_path, face="guard", faces=str(file), **QUICK)
    assert first.faces is not None
    assert first.faces["frames_with_faces"] == FRAMES
    told = [event.message for event in first.events]
    assert f"{file}: 1 of {FRAMES + 1} times match no rendered frame" in told


REGIONS = """
[[region]]
action = "hide"
box = "25,35,50,50"
follow = true

[[region]]
action = "keep"
ellipse = "40,50,50,40"
from = 0.6
to = 2.64  # where the other scene begins
follow = true
"""


@pytest.mark.parametrize("given", [{}, slow({"start": 0.08, "duration": 3.2})], ids=str)
def test_followed_regions(given: dict[str, Any], tmp_path: Path) -> None:
    clip, file = write_patch(tmp_path / "in.mkv"), tmp_path / "r.toml"
    begin = given.get("start", 0)
    file.write_text(REGIONS.replace("follow", f"from = {begin}\nfollow", 1))
    first, _ = both_ways(clip, tmp_path, regions=str(file), **QUICK, **given)
    lost = [event.message for event in first.events if "was lost" in event.message]
    assert lost == ["region 1 of r.toml was lost at a cut; from then on it stays in place"]
    assert len({tuple(sides) for run in first.hidden for _, *sides in run.boxes}) > 2


def test_frames_that_are_missing_before_a_followed_region(tmp_path: Path) -> None:
    """It begins in the frame before them, in which only a whole render finds it."""
    drawn = map(patch, range(FRAMES))
    clip = write_frames(tmp_path / "in.mkv", drawn, codec="mjpeg", pixels="yuvj420p")
    damage(clip, range(12, 30), whole=True)
    file = tmp_path / "r.toml"
    file.write_text(REGIONS.replace("follow", "from = 1.16\nfollow", 1))
    planned = plan_for(settings(clip, tmp_path / "out.mkv", chunks=3, regions=str(file), **LOOK))
    assert isinstance(planned, WholeRender)
    (event,) = planned.notices
    assert event.message.endswith("frames are missing where a region is followed")


def test_a_region_that_applies_in_no_frame_is_reported_once(tmp_path: Path) -> None:
    clip = write_scene(tmp_path / "in.mkv")
    late, between = (f"0,0,20,20@{times}" for times in ("3.6-", "1.0395-1.0399"))
    file = tmp_path / "r.toml"
    file.write_text('[[region]]\naction="hide"\npolygon="10,20 90,20 50,20"\nto=1.0\n')
    hide = [late, between, "0,0,20,20@3.5-"]
    report = both_ways(clip, tmp_path, hide=hide, regions=str(file))[1]
    told = [event.message for event in report.events if "hide" in event.message]
    assert told == [
        f"--hide {late} hides nothing: the video ends at 3.52 s",
        f"--hide {between} hides nothing: no frame is shown then",
        "region 1 of r.toml hides nothing: it has no area in the frame then",
    ]


def test_a_region_that_cannot_be_followed_leaves_nothing(tmp_path: Path) -> None:
    clip, file = write_patch(tmp_path / "in.mkv"), tmp_path / "r.toml"
    file.write_text(REGIONS)
    given = {**LOOK, **QUICK, "regions": str(file), "start": 0.2}
    with pytest.raises(ConfigError, match="cannot follow region 1"):
        render_in_chunks(settings(clip, tmp_path / "out.mkv", chunks=3, **given))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.mkv", "r.toml"]
