"""The GPU that is named is used, and no other."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from bgsoft.diagnose.clips import CLIPS, write_clip
from bgsoft.diagnose.stages import decode_clip, difference
from tests.processes import run_python

pytestmark = pytest.mark.gpu

CONTEXT_BYTES = 64 << 20
"""Less than any context takes, more than the driver's own bookkeeping."""
FROM_PYTHON = """
import sys, bgsoft
from pathlib import Path
report = bgsoft.render(sys.argv[1], sys.argv[2], gpu=int(sys.argv[3]), encode="cpu")
report.write_json(Path(sys.argv[4]))
"""


@pytest.fixture
def first_gpu(gpu: Any) -> Any:
    """NVML's handle of GPU 0, where there is a second one."""
    import cupy

    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("there is one GPU")
    if "PYTEST_XDIST_WORKER" in os.environ:
        pytest.skip("other tests use GPU 0 at this moment")
    nvml = pytest.importorskip("pynvml")
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByPciBusId(gpu.bus_id)
    yield lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).used)
    nvml.nvmlShutdown()


def render(clip: Path, target: Path, number: int, way: str) -> dict[str, Any]:
    report = target.with_suffix(".json")
    if way == "command":
        command = ["-m", "bgsoft", "render", clip, target, "--report", report]
        command += ["--gpu", number, "--encode", "cpu", "--progress", "none"]
    else:
        command = ["-c", FROM_PYTHON, clip, target, number, report]
    done = run_python(*command)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(report.read_text())
    return found


@pytest.mark.gpu(devices=2)
@pytest.mark.parametrize("way", ["command", "python"])
def test_the_other_gpu_is_not_touched(
    first_gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setenv("BGSOFT_CACHE", str(tmp_path / "cache"))  # nothing is known yet
    clip = write_clip(tmp_path, CLIPS[0])
    before, most, ended = first_gpu(), [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            most[0] = max(most[0], first_gpu())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        report = render(clip, tmp_path / "second.mkv", 1, way)
    finally:
        ended.set()
        watcher.join()
    assert most[0] - before < CONTEXT_BYTES
    for stage in ("decode", "segment", "matte", "composite"):
        assert report["stages"][stage]["device"].startswith("cuda:1 "), stage


@pytest.mark.gpu(devices=2)
@pytest.mark.usefixtures("first_gpu")
def test_both_gpus_render_the_same(tmp_path: Path) -> None:
    clip = write_clip(tmp_path, CLIPS[0])
    targets = [tmp_path / f"{number}.mkv" for number in (0, 1)]
    for number, target in enumerate(targets):
        render(clip, target, number, "command")
    first, second = (decode_clip(target)[0] for target in targets)
    assert difference(first, second) is None


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("command", ["render", "doctor"])
def test_a_gpu_that_is_not_there_is_an_error(command: str, tmp_path: Path) -> None:
    target = tmp_path / "out.mp4"
    files = [write_clip(tmp_path, CLIPS[0]), target] if command == "render" else []
    done = run_python("-m", "bgsoft", command, *files, "--gpu", "63")
    assert done.returncode == 4
    assert done.stderr == "bgsoft: error: cannot use --gpu 63: there is no GPU 63 here\n"
    assert not target.exists()
