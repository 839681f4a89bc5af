#!/usr/bin/env python3
"""How fast is bgsoft beside a plain transcode, and beside MediaPipe + OpenCV scripts?

    python scripts/benchmark_transcode.py CLIP.mp4 [--rounds 5] [--preset soft] [--json FILE]

All candidates run in turn, round after round, on the same clip, so that a machine whose speed
drifts slows all of them alike; ratios are taken within a round and their median is reported. Each
candidate is a process of its own, timed from start to exit, and writes H.264 by libx264 with the
same preset and CRF.

Needs bgsoft with its ``cpu`` extra and an ffmpeg executable with libx264 (``--ffmpeg``; else the
one on the PATH, else imageio-ffmpeg's). With ``--mediapipe-python`` (an interpreter that has
``mediapipe`` and ``opencv-python``), two scripts of a page are measured too. They read with OpenCV
and pipe to ffmpeg, and differ in the picture:

- ``as in tutorials``: a kernel of 55 pixels, and a hard mask;
- ``same look``: bgsoft's blur (sigma 2.5 % of the height, at full size) and a soft mask, in floats.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

SPEED, CRF = "veryfast", 18

MEDIAPIPE_SCRIPT = """
import subprocess, sys
import cv2, mediapipe, numpy
source, target, ffmpeg, speed, crf = sys.argv[1:]
capture = cv2.VideoCapture(source)
width, height = int(capture.get(3)), int(capture.get(4))
encoder = subprocess.Popen(
    [ffmpeg, "-v", "error", "-y", "-f", "rawvideo", "-pix_fmt", "bgr24",
     "-s", f"{width}x{height}", "-r", str(capture.get(5)), "-i", "-",
     "-c:v", "libx264", "-preset", speed, "-crf", crf, "-pix_fmt", "yuv420p", target],
    stdin=subprocess.PIPE)
with mediapipe.solutions.selfie_segmentation.SelfieSegmentation(model_selection=0) as model:
    while True:
        ok, frame = capture.read()
        if not ok:
            break
        mask = model.process(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB)).segmentation_mask
        PICTURE
        encoder.stdin.write(picture.tobytes())
encoder.stdin.close()
sys.exit(encoder.wait())
"""
MEDIAPIPE_PICTURES = {
    "as in tutorials": """
        person = numpy.stack((mask,) * 3, axis=-1) > 0.5
        picture = numpy.where(person, frame, cv2.GaussianBlur(frame, (55, 55), 0))
""",
    "same look": """
        blurred = cv2.GaussianBlur(frame, (0, 0), 0.025 * height)
        opacity = mask[..., None]
        picture = (frame * opacity + blurred * (1 - opacity)).astype(numpy.uint8)
""",
}


@dataclass
class Run:
    """One timed process."""

    candidate: str
    wall_s: float
    cpu_s: float
    output_bytes: int


def find_ffmpeg(given: str | None) -> str:
    found = given or shutil.which("ffmpeg")
    if found:
        return found
    try:
        import imageio_ffmpeg
    except ImportError:
        sys.exit("no ffmpeg found: name one with --ffmpeg, or pip install imageio-ffmpeg")
    return str(imageio_ffmpeg.get_ffmpeg_exe())


def measure(candidate: str, command: list[str], output: Path) -> Run:
    """Run a command to its end; its CPU time includes its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{candidate} failed: {done.stderr.strip() or done.stdout.strip()}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    size = output.stat().st_size
    output.unlink()
    return Run(candidate, wall, cpu, size)


def count_frames(ffmpeg: str, clip: Path) -> int:
    done = subprocess.run(
        [ffmpeg, "-i", str(clip), "-map", "0:v:0", "-c", "copy", "-f", "null", "-"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    counts = re.findall(r"frame=\s*(\d+)", done.stderr)
    if not counts:
        sys.exit(f"cannot count the frames of {clip}")
    return int(counts[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clip", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--preset", action="append", help="bgsoft preset; may be given often")
    parser.add_argument("--ffmpeg")
    parser.add_argument("--mediapipe-python")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    ffmpeg = find_ffmpeg(options.ffmpeg)
    frames = count_frames(ffmpeg, options.clip)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "out.mp4"
        transcode = [ffmpeg, "-v", "error", "-y", "-i", str(options.clip), "-c:a", "copy"]
        transcode += ["-c:v", "libx264", "-preset", SPEED, "-crf", str(CRF), str(output)]
        candidates = {"ffmpeg transcode": transcode}
        for preset in options.preset or ["soft"]:
            candidates[f"bgsoft {preset}"] = [
                *(sys.executable, "-m", "bgsoft", "render", str(options.clip), str(output)),
                *("--preset", preset, "--codec", "h264", "--speed", SPEED),
                *("--quality", str(CRF), "--progress", "none", "-q"),
            ]
        if options.mediapipe_python:
            for name, picture in MEDIAPIPE_PICTURES.items():
                script = MEDIAPIPE_SCRIPT.replace("PICTURE", picture.strip())
                candidates[f"MediaPipe, {name}"] = [
                    *(options.mediapipe_python, "-c", script),
                    *(str(options.clip), str(output), ffmpeg, SPEED, str(CRF)),
                ]
        rounds = []
        for number in range(options.rounds):
            # Every other round backwards, so that no candidate always follows the same one.
            order = list(candidates.items())[:: 1 if number % 2 == 0 else -1]
            rounds.append({name: measure(name, command, output) for name, command in order})
            print(
                f"round {number + 1}: "
                + ", ".join(f"{n} {frames / r.wall_s:.1f}" for n, r in rounds[-1].items()),
                file=sys.stderr,
            )

    print(f"{options.clip.name}: {frames} frames, {os.cpu_count()} cores, {platform.machine()}")
    header = f"{'':28}{'frames/s':>10}{'x transcode':>13}{'CPU ms/frame':>14}{'MB':>8}"
    print(header)
    for name in candidates:
        runs = [r[name] for r in rounds]
        ratios = [r["ffmpeg transcode"].wall_s / r[name].wall_s for r in rounds]
        print(
            f"{name:28}{statistics.median(frames / r.wall_s for r in runs):10.1f}"
            f"{statistics.median(ratios):13.2f}"
            f"{statistics.median(r.cpu_s for r in runs) * 1000 / frames:14.1f}"
            f"{runs[0].output_bytes / 1e6:8.2f}"
        )
    if options.json:
        record = {"clip": options.clip.name, "frames": frames, "cores": os.cpu_count()}
        raw = [{name: asdict(run) for name, run in r.items()} for r in rounds]
        options.json.write_text(json.dumps({**record, "rounds": raw}, indent=2) + "\n")


if __name__ == "__main__":
    main()
