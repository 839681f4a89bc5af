"""PSNR and SSIM against the definitions, and against FFmpeg's own filters."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from bgsoft.compare.measure import mean_squared_error, psnr, structural_similarity
from bgsoft.compare.pictures import compare_pictures
from tests.synthetic import VideoSpec, regular_times, write_video


def noisy(depth: int, height: int = 41, width: int = 67) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    dtype = np.uint8 if depth == 8 else np.uint16
    a = rng.integers(0, 1 << depth, (height, width))
    b = np.clip(a + rng.integers(-30, 31, a.shape), 0, (1 << depth) - 1)
    return a.astype(dtype), b.astype(dtype)


def slow_ssim(a: np.ndarray, b: np.ndarray, depth: int, region: np.ndarray | None) -> float:
    """The formula, window by window, in the textbook's means and variances."""
    peak = (1 << depth) - 1
    values = []
    rows, columns = a.shape[0] // 4, a.shape[1] // 4
    for row in range(rows - 1):
        for column in range(columns - 1):
            window = np.s_[4 * row : 4 * row + 8, 4 * column : 4 * column + 8]
            if region is not None and not region[window].all():
                continue
            x, y = a[window].astype(float).ravel(), b[window].astype(float).ravel()
            c1, c2 = (0.01 * peak) ** 2, (0.03 * peak) ** 2
            covariance = np.cov(x, y, ddof=1)
            value = (2 * x.mean() * y.mean() + c1) * (2 * covariance[0, 1] + c2)
            value /= x.mean() ** 2 + y.mean() ** 2 + c1
            values.append(value / (covariance[0, 0] + covariance[1, 1] + c2))
    return float(np.mean(values))


@pytest.mark.parametrize("depth", [8, 10])
@pytest.mark.parametrize("masked", [False, True])
def test_measures_follow_their_definitions(depth: int, masked: bool) -> None:
    a, b = noisy(depth)
    region = None
    if masked:
        region = np.zeros(a.shape, bool)
        region[5:33, 10:50] = True
    difference = (a.astype(float) - b.astype(float)) ** 2
    expected = difference.mean() if region is None else difference[region].mean()
    assert mean_squared_error(a, b, region) == pytest.approx(expected, rel=1e-9)
    # FFmpeg's integer constants differ from the textbook's in the last places.
    found = structural_similarity(a, b, depth, region)
    assert found == pytest.approx(slow_ssim(a, b, depth, region), abs=2e-5)


@pytest.mark.parametrize("depth", [8, 10])
def test_equal_planes(depth: int) -> None:
    a, _ = noisy(depth)
    assert mean_squared_error(a, a) == 0
    assert psnr(0.0, depth) == math.inf
    assert structural_similarity(a, a, depth) == pytest.approx(1.0, abs=1e-12)


def test_psnr_of_one_step() -> None:
    assert psnr(1.0, 8) == pytest.approx(20 * math.log10(255))
    assert psnr(16.0, 10) == pytest.approx(20 * math.log10(1023 / 4))


def test_nothing_to_measure() -> None:
    a, b = noisy(8)
    nowhere = np.zeros(a.shape, bool)
    assert mean_squared_error(a, b, nowhere) is None
    assert structural_similarity(a, b, 8, nowhere) is None
    assert structural_similarity(a[:7], b[:7], 8) is None  # no window fits
    assert structural_similarity(a[:1, :1], b[:1, :1], 8) is None


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="no ffmpeg on the PATH")
@pytest.mark.parametrize("pixel_format", ["yuv420p", "yuv420p10le"])
def test_figures_are_those_of_ffmpeg(tmp_path: Path, pixel_format: str) -> None:
    codec = "libx264" if pixel_format == "yuv420p" else "libx265"
    quiet = {} if codec == "libx264" else {"x265-params": "log-level=none"}
    clips = []
    for name, crf in (("a", "4"), ("b", "44")):
        spec = VideoSpec(
            codec=codec,
            pixel_format=pixel_format,
            times=regular_times(6),
            options={"crf": crf, **quiet},
        )
        clips.append(write_video(tmp_path / f"{name}.mp4", spec))
    found = compare_pictures(*clips).pictures
    filters = ["-lavfi", "[0:v][1:v]psnr;[0:v][1:v]ssim", "-f", "null", "-"]
    said = subprocess.run(
        ["ffmpeg", "-nostdin", "-hide_banner", "-i", clips[1], "-i", clips[0], *filters],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    psnr_line = re.search(r"PSNR y:(\S+) u:(\S+) v:(\S+) average:(\S+) min:(\S+)", said)
    ssim_line = re.search(r"SSIM Y:(\S+) \S+ U:(\S+) \S+ V:(\S+) \S+ All:(\S+)", said)
    assert psnr_line is not None
    assert ssim_line is not None
    for plane, theirs in zip(("y", "cb", "cr", "all"), psnr_line.groups(), strict=False):
        ours = found.statistic("psnr", plane)
        assert ours is not None
        assert ours.mean == pytest.approx(float(theirs), abs=2e-5)
    worst = found.statistic("psnr", "all")
    assert worst is not None
    assert worst.worst == pytest.approx(float(psnr_line[5]), abs=2e-5)
    for plane, theirs in zip(("y", "cb", "cr", "all"), ssim_line.groups(), strict=True):
        ours = found.statistic("ssim", plane)
        assert ours is not None
        assert ours.mean == pytest.approx(float(theirs), abs=2e-6)
