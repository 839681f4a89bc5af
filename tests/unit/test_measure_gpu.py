"""``scripts/measure_gpu.py`` where there is no GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_without_a_gpu_it_says_so_in_a_line() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/measure_gpu.py", "samples/person.mp4"],
        cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("this measures the GPU path; decode cannot run there: no NVIDIA ")
