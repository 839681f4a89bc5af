"""Render for long in one process, and many files in one batch: memory must stay where it is.

    python scripts/soak.py [--frames 100000] [--files 500] [--size 320x180] [FLAGS...]

The last tenth of the time may take at most 5 % more memory than the first tenth that came after the
start (medians): of the process that renders, of each worker of the batch and of the GPU. Exit code
1: something grows.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path

from imageio_ffmpeg import get_ffmpeg_exe

_GROWTH = 1.05
_EVERY_SECONDS = 0.25
_START_SHARE = 0.25
"""Of the samples, in which models are loaded and buffers are first touched."""


class Watch:
    """Samples the resident memory of a process and of all below it, and of the GPU."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.samples: dict[str, list[int]] = defaultdict(list)
        """Bytes, by process or GPU."""
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while self._process.poll() is None:
            for pid in _family(self._process.pid):
                if (found := _resident(pid)) is not None:
                    self.samples[f"process {pid}"].append(found)
            for number, used in enumerate(_gpu_memory()):
                self.samples[f"GPU {number}"].append(used)
            time.sleep(_EVERY_SECONDS)

    def verdict(self) -> bool:
        """Print what was seen; whether nothing grows."""
        self._thread.join()
        longest = max(map(len, self.samples.values()))
        flat = True
        for name, samples in self.samples.items():
            if len(samples) < longest / 2 or len(samples) < 40:
                continue  # not there for long
            rest = samples[int(len(samples) * _START_SHARE) :]
            tenth = max(1, len(rest) // 10)
            first, last = statistics.median(rest[:tenth]), statistics.median(rest[-tenth:])
            grows = last > first * _GROWTH
            flat = flat and not grows
            change = f"{first / 1e6:.0f} -> {last / 1e6:.0f} MB ({last / first - 1:+.1%})"
            print(f"  {name}: {change}, most {max(samples) / 1e6:.0f}{' GROWS' * grows}")
        return flat


def _family(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        children = Path(f"/proc/{parent}/task/{parent}/children")
        if children.exists():
            found += map(int, children.read_text().split())
    return found


def _resident(pid: int) -> int | None:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (OSError, ValueError):
        return None
    found = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(found[0]) * 1024 if found else None


def _gpu_memory() -> list[int]:
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        made = subprocess.run(query, capture_output=True, text=True)
    except FileNotFoundError:
        return []
    return [int(line) << 20 for line in made.stdout.split()]


def make_clip(path: Path, frames: int, size: str) -> None:
    """A moving test picture with some sound."""
    made = [get_ffmpeg_exe(), "-v", "error", "-f", "lavfi", "-i", f"testsrc2=s={size}:r=30"]
    made += ["-f", "lavfi", "-i", "sine", "-frames:v", str(frames), "-shortest"]
    made += ["-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", str(path)]
    subprocess.run(made, check=True)


def run(what: str, argv: list[str]) -> bool:
    """Run the program and watch it; whether it succeeds and nothing grows."""
    print(what, flush=True)
    started = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "bgsoft", *argv], stdin=subprocess.DEVNULL)
    flat = Watch(process).verdict()
    print(f"  exit code {process.returncode} after {time.monotonic() - started:.0f} s", flush=True)
    return flat and process.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--size", default="320x180")
    options, flags = parser.parse_known_args()
    right = True
    with tempfile.TemporaryDirectory() as scratch:
        top = Path(scratch)
        if options.frames:
            make_clip(top / "long.mp4", options.frames, options.size)
            argv = ["render", str(top / "long.mp4"), str(top / "out.mp4"), "--chunks", "1", "-q"]
            right = run(f"{options.frames} frames in one process", [*argv, *flags])
        if options.files:
            (top / "in").mkdir()
            make_clip(top / "in" / "0.mp4", 12, options.size)
            for number in range(1, options.files):
                (top / "in" / f"{number}.mp4").hardlink_to(top / "in" / "0.mp4")
            argv = ["batch", str(top / "in"), str(top / "out"), "-q"]
            right = run(f"{options.files} files in one batch", [*argv, *flags]) and right
    sys.exit(not right)


if __name__ == "__main__":
    main()
