"""Kills batches at random moments, and checks the files that remain."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bgsoft.batch.state import STATE_NAME
from tests.outside import ffmpeg


def frames_of(path: Path) -> int:
    options = ("-map", "0", "-fps_mode", "passthrough", "-f", "framecrc", "-")
    lines = ffmpeg("-xerror", "-i", path, *options).splitlines()
    return sum(not line.startswith("#") for line in lines)


def batch_command(source: Path, target: Path, *flags: str) -> list[str]:
    start = [sys.executable, "-m", "bgsoft", "batch", str(source), str(target)]
    return [*start, "--resume", "-q", *flags]


def kill_and_resume(
    source: Path,
    target: Path,
    frames: int,
    *,
    kills: int,
    longest_seconds: float,
    flags: Sequence[str] = (),
    seed: int = 1,
    tell: Callable[[str], None] = lambda _text: None,
) -> int:
    """Kill a batch so often, then let it end; every file at its destination is whole at any time.

    Args:
        source: Folder of videos, all of them sound.
        target: Where they go.
        frames: Frames of each.
        kills: How often it is killed; less often where it is done before.
        longest_seconds: It is killed this long after its start at the latest.
        flags: More for the command line.
        seed: Of the moments.
        tell: Takes a line for each kill.

    Returns:
        How often it was killed before it was done.

    Raises:
        AssertionError: A file is not whole, or missing at the end, or something else is left.
    """
    moments = random.Random(seed)
    killed = 0
    while killed < kills:
        process = subprocess.Popen(batch_command(source, target, *flags), start_new_session=True)
        time.sleep(moments.uniform(0.2, longest_seconds))
        done = process.poll()
        # Either the parent alone, whose workers then end by themselves, or all of them.
        if moments.random() < 0.5:
            process.kill()
        else:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                assert done is not None
        process.wait()
        whole = [path for path in target.rglob("*.mp4") if not path.name.startswith(".")]
        for path in whole:
            assert frames_of(path) == frames, path
        if done is not None:
            assert done == 0, done
            break
        killed += 1
        tell(f"kill {killed}: {len(whole)} files whole")
    subprocess.run(batch_command(source, target, *flags), check=True)
    names = {path.relative_to(source) for path in source.rglob("*.mp4")}
    left = {path.relative_to(target) for path in target.rglob("*") if path.is_file()}
    assert left == names | {Path(STATE_NAME)}, left
    for name in names:
        assert frames_of(target / name) == frames, name
    return killed
