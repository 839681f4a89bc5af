"""Pairs of pictures: statistics, regions, depths and remarks about VMAF."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from av.video.frame import VideoFrame

from bgsoft.cli.compare_tables import write_comparison_plot
from bgsoft.compare.compare import compare
from bgsoft.compare.pictures import Region, compare_pictures
from bgsoft.compare.vmaf import find_ffmpeg
from bgsoft.errors import BackendUnavailableError, ConfigError
from tests.synthetic import VideoSpec, regular_times, write_video

LOSSLESS = VideoSpec(codec="ffv1", times=regular_times(10))


def paint(frame: VideoFrame, columns: slice, change: int) -> None:
    plane = frame.planes[0]
    rows = np.frombuffer(memoryview(plane), np.uint8).reshape(plane.height, plane.line_size)
    rows[:, columns] += np.uint8(change)


def brighter_left(frame: VideoFrame, index: int) -> None:
    if index == 4:
        paint(frame, slice(0, 48), 20)
    else:
        paint(frame, slice(0, 48), 5)


def white_left(frame: VideoFrame, index: int) -> None:
    plane = frame.planes[0]
    rows = np.frombuffer(memoryview(plane), np.uint8).reshape(plane.height, plane.line_size)
    rows[:] = 16
    rows[:, :48] = 235


@pytest.fixture
def a(tmp_path: Path) -> Path:
    return write_video(tmp_path / "a.mkv", LOSSLESS)


@pytest.fixture
def b(tmp_path: Path) -> Path:
    return write_video(tmp_path / "b.mkv", replace(LOSSLESS, touch=brighter_left))


@pytest.fixture
def mask(tmp_path: Path) -> Path:
    return write_video(tmp_path / "mask.mkv", replace(LOSSLESS, touch=white_left))


def test_statistics(a: Path, b: Path) -> None:
    pictures = compare_pictures(a, b).pictures
    luma = pictures.statistic("psnr", "y")
    assert luma is not None
    errors = [400 / 2 if index == 4 else 25 / 2 for index in range(10)]
    assert luma.mean == pytest.approx(10 * math.log10(255**2 / np.mean(errors)))
    assert luma.worst == luma.p1 == pytest.approx(10 * math.log10(255**2 / 200))
    assert (luma.worst_frame, luma.worst_seconds, luma.frames) == (4, pytest.approx(0.16), 10)
    chroma = pictures.statistic("psnr", "cb")
    assert chroma is not None
    assert math.isinf(chroma.mean)
    overall = pictures.statistic("psnr", "all")
    assert overall is not None
    # Luma has two thirds of a 4:2:0 picture's samples.
    assert overall.worst == pytest.approx(10 * math.log10(255**2 / (200 * 2 / 3)))


def test_first_percentile_is_a_frame_of_its_own(tmp_path: Path) -> None:
    """For 300 frames it is the third worst."""
    errors = {100: 10, 150: 20, 200: 30}

    def spoilt(frame: VideoFrame, index: int) -> None:
        paint(frame, slice(0, 96), errors.get(index, 1))

    spec = replace(LOSSLESS, times=regular_times(300))
    one = write_video(tmp_path / "a.mkv", spec)
    other = write_video(tmp_path / "b.mkv", replace(spec, touch=spoilt))
    found = compare_pictures(one, other).pictures.statistic("psnr", "y")
    assert found is not None
    assert found.worst == pytest.approx(20 * math.log10(255 / 30))
    assert found.p1 == pytest.approx(20 * math.log10(255 / 10))


def test_regions(a: Path, b: Path, mask: Path) -> None:
    left = compare_pictures(a, b, mask=mask, region=Region.FOREGROUND).pictures
    right = compare_pictures(a, b, mask=mask, region=Region.BACKGROUND).pictures
    assert left.region_share == right.region_share == pytest.approx(0.5)
    changed, same = left.statistic("psnr", "y"), right.statistic("psnr", "y")
    assert changed is not None
    assert same is not None
    assert changed.worst == pytest.approx(10 * math.log10(255**2 / 400))
    assert math.isinf(same.worst)
    for pictures, expected in ((left, False), (right, True)):
        ssim = pictures.statistic("ssim", "y")
        assert ssim is not None
        assert (ssim.worst > 1 - 1e-12) is expected


def test_region_that_is_empty_has_no_figures(tmp_path: Path, a: Path, b: Path) -> None:
    def black(frame: VideoFrame, index: int) -> None:
        white_left(frame, index)
        paint(frame, slice(0, 48), -219 % 256)

    nowhere = write_video(tmp_path / "black.mkv", replace(LOSSLESS, touch=black))
    pictures = compare_pictures(a, b, mask=nowhere).pictures
    assert pictures.region_share == 0
    assert all(curve.statistic is None for curve in pictures.curves)


def test_mask_that_does_not_fit(tmp_path: Path, a: Path, b: Path) -> None:
    short = write_video(tmp_path / "s.mkv", replace(LOSSLESS, times=regular_times(4)))
    with pytest.raises(ConfigError, match="cannot use the mask: it ends after 4 frames"):
        compare_pictures(a, b, mask=short)
    small = write_video(tmp_path / "w.mkv", replace(LOSSLESS, width=64))
    with pytest.raises(ConfigError, match="it is 64x72, the pictures are 96x72"):
        compare_pictures(a, b, mask=small)


def test_depths_meet_at_ten_bits(tmp_path: Path, a: Path) -> None:
    ten = write_video(tmp_path / "t.mkv", replace(LOSSLESS, pixel_format="yuv420p10le"))
    for pair in ((a, ten), (ten, a)):
        found = compare_pictures(*pair)
        assert found.pictures.bit_depth == 10
        statistic = found.pictures.statistic("psnr", "all")
        assert statistic is not None
        assert math.isinf(statistic.mean)
        assert any("compared at 10" in notice for notice in found.notices)


def test_vmaf_of_a_region_ignores_the_rest(a: Path, b: Path, mask: Path) -> None:
    try:
        ffmpeg = find_ffmpeg()
    except BackendUnavailableError as exc:
        pytest.skip(str(exc))
    scores = {}
    for region in Region:
        pictures = compare_pictures(a, b, mask=mask, region=region, ffmpeg=ffmpeg).pictures
        assert pictures.vmaf_reason is None
        assert "replaced by A's" in str(pictures.vmaf_region)
        scores[region] = pictures.statistic("vmaf", "y")
    same = compare_pictures(a, a, ffmpeg=ffmpeg).pictures.statistic("vmaf", "y")
    assert same is not None
    assert scores[Region.BACKGROUND] == same
    assert scores[Region.FOREGROUND] != same


def test_json_has_no_infinities(a: Path, b: Path) -> None:
    found = compare(a, b, vmaf=False).to_dict()
    json.dumps(found, allow_nan=False)
    assert found["schema"] == "bgsoft-compare/1"
    curves = {(c["metric"], c["plane"]): c for c in found["pictures"]["curves"]}
    equal = curves["psnr", "cb"]
    assert equal["statistic"]["identical"] is True
    assert equal["statistic"]["mean"] is None
    assert equal["values"] == [None] * 10
    assert curves["psnr", "y"]["statistic"]["identical"] is False
    assert len(curves["psnr", "y"]["values"]) == 10


@pytest.mark.parametrize("equal", [False, True])
def test_plot_draws_each_measure(a: Path, b: Path, tmp_path: Path, equal: bool) -> None:
    pytest.importorskip("matplotlib")
    result = compare(a, a if equal else b, vmaf=False)
    assert result.pictures is not None
    write_comparison_plot(result, tmp_path / "p.svg")
    text = (tmp_path / "p.svg").read_text()
    titles = ("PSNR", "SSIM") if equal else ("PSNR, worst in frame 4", "SSIM, worst in frame 4")
    for words in (*titles, "Cb"):
        assert f"<!-- {words} -->" in text
