"""How much faster a batch renders short clips than a shell loop does.

    python scripts/measure_batch.py CLIP [--count 20] [--seconds 3] [--height 720] [--rounds 3]

Cuts the clips from CLIP with ffmpeg, renders them by ``bgsoft render`` one after another, by four
of them at a time (``xargs -P4``) and by ``bgsoft batch`` with several ``--jobs``, in turns, and
prints the median of each and how many times the loop's speed that is. Close other programs first.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

BGSOFT = f"{sys.executable} -m bgsoft"


def cut(clip: Path, folder: Path, count: int, seconds: float, height: int) -> None:
    """Clips from all over a file."""
    length = float(
        subprocess.run(
            ["ffprobe", "-v", "error", "-show_entries", "format=duration", "-of", "csv=p=0", clip],
            check=True,
            capture_output=True,
        ).stdout
    )
    for number in range(count):
        start = (length - seconds) * number / max(1, count - 1)
        command = ["ffmpeg", "-v", "error", "-ss", str(start), "-t", str(seconds), "-i", str(clip)]
        command += ["-vf", f"scale=-2:{height}", "-c:v", "libx264", "-preset", "veryfast"]
        command += ["-crf", "20", "-c:a", "aac", str(folder / f"clip{number:02}.mp4")]
        subprocess.run(command, check=True)


def shell(command: str) -> Callable[[Path, Path], None]:
    """A way to render a folder, by a line of shell that has both as variables."""

    def run(source: Path, target: Path) -> None:
        variables = {"SOURCE": str(source), "TARGET": str(target)}
        subprocess.run(["bash", "-euc", command], check=True, env={**os.environ, **variables})

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("clip", type=Path)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--height", type=int, default=720)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", default="1,2,3,4", help="numbers to try, beside the default")
    parser.add_argument("--xargs", action="store_true", help="also four renders at a time")
    options = parser.parse_args()
    one = f'{BGSOFT} render -q "$1" "$TARGET/${{1##*/}}"'
    ways = {
        "shell loop": shell(
            f'for f in "$SOURCE"/*; do {BGSOFT} render -q "$f" "$TARGET/${{f##*/}}"; done'
        ),
        "batch": shell(f'{BGSOFT} batch -q "$SOURCE" "$TARGET"'),
    }
    for jobs in filter(None, options.jobs.split(",")):
        ways[f"batch --jobs {jobs}"] = shell(f'{BGSOFT} batch -q --jobs {jobs} "$SOURCE" "$TARGET"')
    if options.xargs:
        ways["xargs -P4"] = shell(
            f"printf '%s\\0' \"$SOURCE\"/* | xargs -0 -P4 -I@ bash -c '{one}' - @"
        )
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch, "in")
        source.mkdir()
        cut(options.clip, source, options.count, options.seconds, options.height)
        for _ in range(options.rounds):
            for name, way in ways.items():
                target = Path(scratch, "out")
                target.mkdir()
                started = time.perf_counter()
                way(source, target)
                seconds[name].append(time.perf_counter() - started)
                assert len(list(target.glob("*.mp4"))) == options.count
                shutil.rmtree(target)
    loop = statistics.median(seconds["shell loop"])
    for name, all_of in seconds.items():
        median = statistics.median(all_of)
        shown = " ".join(f"{value:.1f}" for value in all_of)
        print(f"{name:<16} {median:6.1f} s  {loop / median:4.2f} x  ({shown})")


if __name__ == "__main__":
    main()
