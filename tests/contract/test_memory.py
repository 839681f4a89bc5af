"""Memory stays where it is, in a long render and over many files.

The last third of a run may take at most 5 % more than the first third after the start (means of
resident memory): the process that renders, each worker of a batch, and each GPU. Within each file
of a batch, memory rises and falls by a sixth. So a third holds many files and samples: in eight
batches, means of two thirds differed by 2.4 % at most, medians by 3.3 %.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.endurance import Endurance
from tests.outside import ffmpeg

MAX_GROWTH = 1.05
START_SHARE = 0.25
"""Share of the samples in which models are loaded and buffers are first touched."""
MIN_SAMPLES = 40
SAMPLE_SECONDS = 0.03
FRAMES, FILES = 3_000, 120
"""At ``--size 1``."""


def family(pid: int) -> Iterator[int]:
    yield pid
    children = Path(f"/proc/{pid}/task/{pid}/children")
    if children.exists():
        for child in children.read_text().split():
            yield from family(int(child))


def resident(pid: int) -> int:
    """Bytes; 0 if the process is gone."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def gpu_memory() -> list[int]:
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        made = subprocess.run(query, capture_output=True, text=True)
    except FileNotFoundError:
        return []
    return [int(line) << 20 for line in made.stdout.split()]


def sampled(*arguments: str | Path) -> dict[str, list[int]]:
    """Run bgsoft; bytes in use over time, by process or GPU."""
    command = [sys.executable, "-m", "bgsoft", *map(str, arguments), "-q"]
    samples: dict[str, list[int]] = defaultdict(list)
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
        while process.poll() is None:
            for pid in family(process.pid):
                if used := resident(pid):
                    samples[f"process {pid}"].append(used)
            for number, used in enumerate(gpu_memory()):
                samples[f"GPU {number}"].append(used)
            time.sleep(SAMPLE_SECONDS)
    assert process.returncode == 0
    return samples


def growth(samples: list[int]) -> float:
    """The last third over the first third after the start."""
    rest = samples[int(len(samples) * START_SHARE) :]
    third = max(1, len(rest) // 3)
    return statistics.mean(rest[-third:]) / statistics.mean(rest[:third])


def assert_flat(samples: dict[str, list[int]]) -> None:
    # Processes that lived for a part of the run only are not judged.
    least = max(MIN_SAMPLES, max(map(len, samples.values())) / 2)
    found = {name: growth(each) for name, each in samples.items() if len(each) >= least}
    assert found, "the run was too short to be judged"
    assert max(found.values()) <= MAX_GROWTH, found


def make_clip(path: Path, frames: int) -> Path:
    inputs = ("-f", "lavfi", "-i", "testsrc2=s=320x180:r=30", "-f", "lavfi", "-i", "sine")
    encode = ("-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p")
    ffmpeg(*inputs, "-frames:v", str(frames), "-shortest", *encode, path)
    return path


@pytest.mark.slow
def test_a_long_render_does_not_grow(tmp_path: Path, endurance: Endurance) -> None:
    clip = make_clip(tmp_path / "long.mp4", endurance.times(FRAMES))
    assert_flat(sampled("render", clip, tmp_path / "out.mp4", "--chunks", "1"))


@pytest.mark.slow
def test_a_large_batch_does_not_grow(tmp_path: Path, endurance: Endurance) -> None:
    (tmp_path / "in").mkdir()
    clip = make_clip(tmp_path / "in" / "0.mp4", 12)
    for number in range(1, endurance.times(FILES)):
        (tmp_path / "in" / f"{number}.mp4").hardlink_to(clip)
    assert_flat(sampled("batch", tmp_path / "in", tmp_path / "out"))


def test_growth_is_noticed() -> None:
    level, start = [100] * 90, [10, 50, 90] * 10
    assert_flat({"process 1": start + level})
    with pytest.raises(AssertionError, match="process 2"):
        assert_flat({"process 1": start + level, "process 2": start + list(range(100, 190))})
    with pytest.raises(AssertionError, match="too short"):
        assert_flat({"process 1": level[:30]})
