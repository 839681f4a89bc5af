"""Whole renders with regions that are kept, dropped, hidden and followed, judged by value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

import bgsoft
from bgsoft.errors import ConfigError
from tests.contract.test_render_hide import AS_IT_IS, QUICK, lossless, pictures, write_noise
from tests.rendering import read_back

MATTE: dict[str, Any] = {"preset": None, "face": "off", "effect": "matte", "codec": "ffv1", **QUICK}
TRIANGLE = [(80, 20), (240, 30), (150, 160)]
POLYGON = " ".join(f"{x},{y}" for x, y in TRIANGLE)


def inside(corners: list[tuple[int, int]], grow: int = 0) -> NDArray[np.bool_]:
    """Samples inside a polygon of a frame of 320x180, made larger or smaller by pixels."""
    drawn = np.zeros((180, 320), np.uint8)
    cv2.fillPoly(drawn, [np.array(corners, np.int32)], 1)
    kernel = np.ones((2 * abs(grow) + 1,) * 2, np.uint8)
    return np.asarray((cv2.dilate if grow > 0 else cv2.erode)(drawn, kernel), np.bool_)


def write_regions(path: Path, *regions: str) -> str:
    path.write_text("".join(f"[[region]]\n{region}\n" for region in regions))
    return str(path)


def mattes(path: Path) -> list[NDArray[Any]]:
    return [frame.planes[0] for frame in read_back(path)]


@pytest.mark.parametrize("style", ["obs", None])
def test_regions_are_person_or_background(tmp_path: Path, style: str | None) -> None:
    clip = write_noise(tmp_path / "in.mkv")
    file = write_regions(
        tmp_path / "r.toml",
        f'action = "keep"\npolygon = "{POLYGON}"',
        'action = "drop"\nellipse = "100,60,40,40"',
    )
    given = {**MATTE, "preset": style, "regions": file}
    bgsoft.render(clip, tmp_path / "out.mkv", drop="0,0,320,180", **given)
    xs, ys = np.meshgrid(np.arange(320) + 0.5, np.arange(180) + 0.5)
    distance = np.hypot(xs - 120, ys - 80)
    for matte in mattes(tmp_path / "out.mkv"):
        assert (matte[~inside(TRIANGLE, 2)] <= 16).all()
        assert (matte[inside(TRIANGLE, -2) & (distance > 22)] >= 235).all()
        assert (matte[distance < 18] <= 16).all()


def test_key_frames_are_interpolated(tmp_path: Path) -> None:
    clip = write_noise(tmp_path / "in.mkv")  # 25 frames a second
    file = write_regions(
        tmp_path / "r.toml",
        'action = "keep"\nfrom = 0.04\nto = 0.2\nkeys = ['
        '{ at = 0.04, box = "10,10,40,40" }, { at = 0.12, box = "110,50,80,40" }]',
    )
    bgsoft.render(clip, tmp_path / "out.mkv", drop="0,0,320,180", regions=file, **MATTE)
    found = []
    for matte in mattes(tmp_path / "out.mkv"):
        ys, xs = np.nonzero(matte > 125)
        found.append((xs.min(), ys.min(), xs.max() + 1, ys.max() + 1) if len(xs) else None)
    halfway, last = (60, 30, 120, 70), (110, 50, 190, 90)
    assert found == [None, (10, 10, 50, 50), halfway, last, last, None]


@pytest.mark.parametrize("layout", ["yuv420p", "yuv420p10le"])
def test_all_that_a_polygon_touches_is_hidden(tmp_path: Path, layout: str) -> None:
    clip = write_noise(tmp_path / "in.mkv", layout)
    file = write_regions(tmp_path / "r.toml", f'action = "hide"\npolygon = "{POLYGON}"')
    given = {**AS_IT_IS, "anonymize_style": "solid", "regions": file}
    bgsoft.render(clip, tmp_path / "out.mkv", **given, **lossless("ffv1"))
    black = 16 if layout == "yuv420p" else 64
    outside = ~inside(TRIANGLE, 5)
    for before, after in zip(pictures(clip), pictures(tmp_path / "out.mkv"), strict=True):
        assert (after[0][inside(TRIANGLE, -1)] == black).all()
        np.testing.assert_array_equal(after[0][outside], before[0][outside])
        for plane, source in zip(after[1:3], before[1:3], strict=True):
            assert (plane[inside(TRIANGLE, -1)[::2, ::2]] == 8 * black).all()
            np.testing.assert_array_equal(plane[outside[::2, ::2]], source[outside[::2, ::2]])


@pytest.mark.parametrize(
    ("region", "is_told"),
    [
        ('to = 0.1\nkeys = [{ at = 0.1, box = "320,0,9,9" }, { at = 0.2, box = "0,0,9,9" }]', True),
        ('polygon = "10,20 90,20 50,20"', True),
        ('polygon = "300,200 400,150 400,200"', True),
        ('keys = [{ at = 0, box = "320,0,9,9" }, { at = 0.2, box = "300,0,9,9" }]', False),
    ],
)
@pytest.mark.parametrize("action", ["hide", "keep"])
def test_a_region_without_area_in_the_frame_is_reported(
    tmp_path: Path, action: str, region: str, is_told: bool
) -> None:
    clip = write_noise(tmp_path / "in.mkv")
    file = write_regions(tmp_path / "r.toml", f'action = "{action}"\n{region}')
    report = bgsoft.render(clip, tmp_path / "out.mkv", regions=file, **AS_IT_IS)
    told = [event.message for event in report.events if "nothing" in event.message]
    message = f"region 1 of r.toml {action}s nothing: it has no area in the frame then"
    assert told == ([message] if is_told else [])


def test_crossing_sides_leave_no_hole(tmp_path: Path) -> None:
    star = "160,10 220,170 60,70 260,70 100,170"
    clip = write_noise(tmp_path / "in.mkv")
    file = write_regions(tmp_path / "r.toml", f'action = "hide"\npolygon = "{star}"')
    given = {**AS_IT_IS, "anonymize_style": "solid", "regions": file}
    bgsoft.render(clip, tmp_path / "out.mkv", codec="ffv1", **given)
    assert (pictures(tmp_path / "out.mkv")[0][0][90:110, 150:170] == 16).all()


def test_invert_turns_the_matte_over(tmp_path: Path) -> None:
    clip = write_noise(tmp_path / "in.mkv")
    given = {**MATTE, "keep": "50,50,100,100"}
    bgsoft.render(clip, tmp_path / "one.mkv", **given)
    bgsoft.render(clip, tmp_path / "other.mkv", invert=True, **given)
    one, other = (mattes(tmp_path / name)[0].astype(int) for name in ("one.mkv", "other.mkv"))
    assert np.abs(one + other - 251).max() <= 1  # limited range: 16 + 235
    bgsoft.render(clip, tmp_path / "out.mkv", **{**AS_IT_IS, "strength": 100}, keep="50,50,100,100",
                  drop="0,0,40,180", invert=True, codec="ffv1")  # fmt: skip
    before, after = pictures(clip)[0][0], pictures(tmp_path / "out.mkv")[0][0]
    np.testing.assert_array_equal(after[:, :39], before[:, :39])
    assert (after[52:148, 52:148] == 16).all()


@pytest.mark.parametrize(
    ("region", "settings", "message"),
    [
        ('action = "hide"\nbox = "320,0,5,5"', {}, "region 1 of r.toml: it lies outside the frame"),
        (
            'action = "keep"\npolygon = "50%,200% 60%,200% 55%,300%"',
            {},
            "region 1 of r.toml: it lies outside the frame of 320x180",
        ),
        (
            'action = "hide"\nbox = "0,0,5,5"\nfollow = true',
            {"start": 0.1},
            "cannot follow region 1 of r.toml: it begins at 0 s, before the rendered part",
        ),
        (
            'action = "hide"\nbox = "0,0,5,5"',
            {"effect": "matte"},
            r"cannot use .*r\.toml with effect matte: all its regions are hidden",
        ),
    ],
)
def test_a_region_that_cannot_be_used(
    tmp_path: Path, region: str, settings: dict[str, Any], message: str
) -> None:
    clip, target = write_noise(tmp_path / "in.mkv"), tmp_path / "out.mkv"
    file = write_regions(tmp_path / "r.toml", region)
    with pytest.raises(ConfigError, match=message):
        bgsoft.render(clip, target, regions=file, **{**AS_IT_IS, "strength": None, **settings})
    assert not target.exists()


def test_a_file_may_not_be_the_output(tmp_path: Path) -> None:
    clip = write_noise(tmp_path / "in.mkv")
    file = write_regions(tmp_path / "r.toml", 'action = "keep"\nbox = "0,0,5,5"')
    with pytest.raises(bgsoft.BgsoftError, match=r"r\.toml"):
        bgsoft.render(clip, file, regions=file, overwrite=True, format="mkv", **AS_IT_IS)
    assert "keep" in Path(file).read_text()
