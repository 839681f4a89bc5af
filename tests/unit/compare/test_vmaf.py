"""Scoring through an ffmpeg with libvmaf: what it is given, and what happens without one."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from bgsoft.compare import vmaf
from bgsoft.compare.vmaf import Ffmpeg, PlanarPicture, VmafScorer, find_ffmpeg
from bgsoft.errors import BackendUnavailableError

try:
    FOUND: Ffmpeg | None = find_ffmpeg()
except BackendUnavailableError:
    FOUND = None
needs_vmaf = pytest.mark.skipif(FOUND is None, reason="no ffmpeg with libvmaf here")


def picture(width: int, height: int, depth: int, noise: int) -> PlanarPicture:
    rng = np.random.default_rng(3)
    dtype = np.uint8 if depth == 8 else np.uint16
    planes = []
    for rows, columns in [(height, width)] + [((height + 1) // 2, (width + 1) // 2)] * 2:
        ramp = np.add.outer(np.arange(rows), np.arange(columns)) % 200 + 20
        rough = np.clip(ramp + rng.integers(-noise, noise + 1, ramp.shape), 0, 255)
        planes.append((rough << (depth - 8)).astype(dtype))
    return planes[0], planes[1], planes[2]


@needs_vmaf
@pytest.mark.parametrize("depth", [8, 10])
@pytest.mark.parametrize(("width", "height"), [(160, 120), (161, 121)])
def test_scores_fall_with_noise_and_come_in_order(depth: int, width: int, height: int) -> None:
    assert FOUND is not None
    clean = picture(width, height, depth, 0)
    with VmafScorer(FOUND, width, height, depth, threads=2) as scorer:
        for noise in (0, 0, 60, 0, 12):
            scorer.push(clean, picture(width, height, depth, noise))
        scores = scorer.finish()
    assert len(scores) == 5
    # An odd height is padded and cut again: were it cut wrongly, equal pictures would differ.
    assert min(scores[0], scores[1], scores[3]) > 95
    assert scores[2] < scores[4] < scores[3]


@needs_vmaf
def test_a_failing_ffmpeg_is_reported() -> None:
    assert FOUND is not None
    with (
        VmafScorer(Ffmpeg(sys.executable, "python"), 64, 64, 8) as scorer,
        pytest.raises(BackendUnavailableError, match="cannot score VMAF"),
    ):
        for _ in range(1000):
            scorer.push(picture(64, 64, 8, 0), picture(64, 64, 8, 0))
        scorer.finish()


@needs_vmaf
def test_incomplete_results_are_reported(tmp_path: Path) -> None:
    """On a full disk libvmaf writes a part, and ffmpeg succeeds."""
    part = tmp_path / "ffmpeg"
    part.write_text("""#!/bin/sh\ncat >/dev/null; printf '{"frames": [' >vmaf.json\n""")
    part.chmod(0o755)
    with (
        VmafScorer(Ffmpeg(str(part), "a part"), 64, 64, 8) as scorer,
        pytest.raises(BackendUnavailableError, match="incomplete; is the disk full"),
    ):
        scorer.finish()


def children() -> set[str]:
    lists = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    return {pid for each in lists for pid in each.split()}


@needs_vmaf
def test_nothing_is_left_when_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert FOUND is not None
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = children()
    with VmafScorer(FOUND, 64, 64, 8) as scorer:
        scorer.push(picture(64, 64, 8, 0), picture(64, 64, 8, 0))
        assert list(tmp_path.iterdir())
        assert children() - before
    assert not list(tmp_path.iterdir())
    assert children() <= before


def script(path: Path, filters: str) -> str:
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{filters}\nEND\n")
    path.chmod(0o755)
    return str(path)


def test_an_ffmpeg_is_chosen_by_what_it_can(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # The filter vmafmotion has the letters, and is no libvmaf.
    without = script(tmp_path / "a", " ... vmafmotion V->V Motion score of libvmaf.")
    having = script(tmp_path / "b", " .. libvmaf VV->V Calculate the VMAF.")
    every = [str(tmp_path / "gone"), without, having]
    monkeypatch.setattr(vmaf, "ffmpeg_executables", lambda: every)
    assert find_ffmpeg().path == having
    monkeypatch.setattr(vmaf, "ffmpeg_executables", lambda: [without])
    with pytest.raises(BackendUnavailableError, match=r"has no libvmaf; pip install '\.\[quality"):
        find_ffmpeg()
    monkeypatch.setattr(vmaf, "ffmpeg_executables", list)
    with pytest.raises(BackendUnavailableError, match=r"no ffmpeg was found; pip install"):
        find_ffmpeg()


def test_without_ffmpeg_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    having = script(tmp_path / "b", " .. libvmaf VV->V Calculate the VMAF.")
    monkeypatch.setitem(sys.modules, "ffmpeg", None)
    monkeypatch.setattr(vmaf, "ffmpeg_executables", lambda: [having])
    with pytest.raises(BackendUnavailableError, match=r"ffmpeg-python is missing; pip"):
        find_ffmpeg()
    # Where there is no libvmaf, that is what has to be mended.
    without = script(tmp_path / "a", " ... vmafmotion V->V Motion score of libvmaf.")
    monkeypatch.setattr(vmaf, "ffmpeg_executables", lambda: [without])
    with pytest.raises(BackendUnavailableError, match="has no libvmaf"):
        find_ffmpeg()
