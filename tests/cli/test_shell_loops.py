"""``bgsoft render`` in the loops that people write, several at a time, from an empty cache."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.marks import slow
from tests.processes import ROOT
from tests.synthetic import VideoSpec, regular_times, write_video
from tests.unit.batch.kill import frames_of

FRAMES = 6
RENDER = 'bgsoft render "$1" "out/${1##*/}" --skip-existing --matte fast --face off'
LOOPS = {
    "while": 'while read -r f; do set -- "$f"; ' + RENDER + " || bad=1; done < list",
    "xargs": "xargs -P4 -I@ bash -c '" + RENDER + "' - @ < list || bad=1",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for number in (1, 4):
        spec = VideoSpec(times=regular_times(FRAMES))
        write_video(tmp_path / "in" / f"{number} clip.mp4", spec)
    (tmp_path / "in" / "3 broken.mp4").write_bytes(b"no video")
    names = sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "in").iterdir())
    (tmp_path / "list").write_text("".join(f"{name}\n" for name in names))
    return tmp_path


def run(loop: str, folder: Path) -> tuple[int, list[str]]:
    script = f'bgsoft() {{ "{sys.executable}" -m bgsoft "$@"; }}; export -f bgsoft; {LOOPS[loop]}'
    done = subprocess.run(
        ["bash", "-c", script + "; exit ${bad:-0}"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "BGSOFT_CACHE": str(folder / "cache")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == ""
    return done.returncode, sorted(done.stderr.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["while", "xargs"])
def test_every_file_has_a_line_and_one_that_fails_stops_nothing(loop: str, folder: Path) -> None:
    code, lines = run(loop, folder)
    assert code == 1
    for kind in ("notice", "warning", "fallback"):
        lines = [line for line in lines if f": {kind}: " not in line]
    assert [line.split(":")[0] for line in lines] == [
        "bgsoft",
        *(f"out/{number} clip.mp4" for number in (1, 4)),
    ]
    assert "3 broken.mp4" in lines[0]
    names = sorted(path.name for path in (folder / "out").iterdir())
    assert names == [f"{number} clip.mp4" for number in (1, 4)]
    assert [frames_of(folder / "out" / name) for name in names] == [FRAMES] * 2
    code, lines = run(loop, folder)
    assert code == 1
    assert [line.endswith(": exists, skipped") for line in lines] == [False, True, True]


def _threads_of_child(pid: int) -> list[Path]:
    """Return the threads of the process that a command starts."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [each for child in children for each in Path(f"/proc/{child}/task").iterdir()]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such policy")
@pytest.mark.parametrize(
    ("cores", "given", "becomes"),
    [
        (2, "SCHED_OTHER", "SCHED_BATCH"),
        slow(2, "SCHED_IDLE", "SCHED_IDLE"),
        (3, "SCHED_OTHER", "SCHED_OTHER"),
    ],
)
def test_a_render_on_few_cores_interrupts_nobody(
    tmp_path: Path, cores: int, given: str, becomes: str
) -> None:
    """All threads use batch scheduling, unless the user has set a policy."""
    program = (
        f"import os; os.sched_setscheduler(0, os.{given}, os.sched_param(0)); "
        f"os.sched_getaffinity = lambda _: set(range({cores})); "
        "from bgsoft.cli.main import run; run()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, "render", "-", tmp_path / "out.mp4"],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + 60
        while len(threads := _threads_of_child(process.pid)) < 2:
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
        policies = set()
        for thread in threads:
            with suppress(ProcessLookupError):  # it has ended meanwhile
                policies.add(os.sched_getscheduler(int(thread.name)))
        assert policies == {getattr(os, becomes)}
    finally:
        process.kill()
        process.communicate()
