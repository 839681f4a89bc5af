"""Measure a render in chunks against one in one go, and against plain ffmpeg.

::

    python scripts/measure_chunks.py CLIP [--chunks 1 2 4 8] [--loop N] [--runs 3]
    python scripts/measure_chunks.py CLIP --no-encode [--gpus 0,1] [--chunks 1 4 7]
    python scripts/measure_chunks.py CLIP --hwaccel cuda -- --matte fast --threads 32

Every run is a process of its own, timed by a stopwatch from its start to its exit. Runs alternate,
so that a machine that slows down slows all alike; the best of each is shown, and the middle one.
What follows ``--`` goes to ``bgsoft render`` as it is; ``--threads`` is for all chunks together.

With ``--no-encode`` frames are thrown away after compositing: so many worker processes as there are
chunks each render one, on the GPUs that are named in turn.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bgsoft.chunks.plan import divide, pre_roll_frames, read_frames
from bgsoft.jobs.driver import Driver
from bgsoft.jobs.pool import Pool, worker_environment
from bgsoft.jobs.task import Finished, TaskContext
from bgsoft.media.info import VideoInfo
from bgsoft.media.probe import probe
from bgsoft.rendering.ahead import make_ready
from bgsoft.rendering.chunk import Chunk
from bgsoft.rendering.configure import build_config
from bgsoft.settings.config import RenderConfig


@dataclass(frozen=True)
class ThrownAway:
    """Renders a chunk and keeps nothing; a task."""

    config: RenderConfig
    info: VideoInfo
    chunk: Chunk | None

    def run(self, context: TaskContext) -> object:
        from bgsoft.bench.floor import render_picture  # which a worker alone needs

        backends = replace(self.config.backends, threads=context.threads, gpu=context.gpu)
        return render_picture(replace(self.config, backends=backends), self.chunk, self.info)


def throw_away(clip: Path, chunks: int, gpus: Sequence[int]) -> dict[str, Any]:
    """Render all chunks side by side."""
    config = build_config(clip, Path("nothing.mp4"), preset="soft")
    ahead = partial(make_ready, config.backends)
    environment = worker_environment(config.backends, chunks, len(gpus), print)
    pool = Pool(chunks, gpus=gpus, environment=environment, ahead=ahead)
    with Driver(pool) as driver:
        pool.start()
        info = probe(clip)
        frames = read_frames(config, info, threading.Event())
        parts: Sequence[Chunk | None] = [None]
        if chunks > 1:
            parts = divide(frames, chunks, pre_roll_frames(config))
        driver.submit([ThrownAway(config, info, each) for each in parts])
        while True:
            for update in driver.poll(1.0):
                if isinstance(update, Finished):
                    if update.error is not None:
                        raise update.error
                    return {"frames": len(frames.pts), "chunks": update.result}


def timed(command: Sequence[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def looped(clip: Path, times: int, folder: Path) -> Path:
    """The clip several times over, its packets copied."""
    if times == 1:
        return clip
    target = folder / f"looped{clip.suffix}"
    loop = ["-stream_loop", str(times - 1), "-i", str(clip), "-c", "copy", str(target)]
    timed([_ffmpeg(), "-v", "error", "-y", *loop])
    return target


def _ffmpeg() -> str:
    found = shutil.which("ffmpeg")
    if found is None:
        import imageio_ffmpeg

        found = str(imageio_ffmpeg.get_ffmpeg_exe())
    return found


def main(argv: Sequence[str]) -> None:
    """Measure, and print a table."""
    argv, more = (list(argv), []) if "--" not in argv else _split(list(argv))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("clip", type=Path)
    parser.add_argument("--chunks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--loop", type=int, default=1, help="play the clip so many times")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--no-encode", action="store_true")
    parser.add_argument("--gpus", default="", help="with --no-encode: e.g. 0,1")
    parser.add_argument("--hwaccel", help="of plain ffmpeg, e.g. cuda")
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    gpus = [int(number) for number in given.gpus.split(",") if number]
    if given.only is not None:
        print(json.dumps(throw_away(given.clip, given.only, gpus)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clip = looped(given.clip, given.loop, folder)
        config = build_config(clip, folder / "o.mp4", preset="soft")
        frames = len(read_frames(config, probe(clip), threading.Event()).pts)
        rows: dict[str, Callable[[], float]] = {}
        for chunks in given.chunks:
            if given.no_encode:
                own = [sys.executable, __file__, str(clip), "--only", str(chunks)]
                command = [*own, "--gpus", given.gpus]
            else:
                render = [sys.executable, "-m", "bgsoft", "render", str(clip), f"{name}/o.mp4"]
                command = [*render, "-y", "-q", "--chunks", str(chunks), *more]
            rows[f"{chunks} chunks"] = partial(timed, command)
        if not given.no_encode:
            decode = ["-hwaccel", given.hwaccel] if given.hwaccel else []
            plain = [_ffmpeg(), "-nostdin", "-v", "error", "-y", *decode, "-i", str(clip)]
            encode = ["-c:v", "libx264", "-preset", "veryfast", "-crf", "18", "-c:a", "copy"]
            rows["ffmpeg"] = partial(timed, [*plain, *encode, f"{name}/f.mp4"])
        seconds: dict[str, list[float]] = {row: [] for row in rows}
        for _ in range(given.runs):
            for row, run in rows.items():
                seconds[row].append(run())
    print(f"{frames} frames, {given.runs} runs each, from start to exit")
    for row, taken in seconds.items():
        best, middle = min(taken), statistics.median(taken)
        print(
            f"{row:>10}  best {best:7.2f} s {frames / best:7.1f} frames/s   "
            f"middle {middle:7.2f} s {frames / middle:7.1f} frames/s"
        )


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    at = argv.index("--")
    return argv[:at], argv[at + 1 :]


if __name__ == "__main__":
    import measure_chunks  # its tasks are found by workers under this name

    measure_chunks.main(sys.argv[1:])
