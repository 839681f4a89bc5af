"""Measure how long a frame takes from a camera's side to a reader of shared memory.

::

    python scripts/measure_live.py [CLIP] [--size 1280x720] [--fps 30] [--seconds 30] [-- FLAGS]

Draws the present time into each frame of CLIP as black and white bars, and encodes the frames with
ffmpeg. Sends them over UDP at their own pace to ``bgsoft live --share``, with FLAGS, and reads its
frames like any other program. The bars are large enough to be read through the background's blur.

A frame shows the time at which it was handed over to ffmpeg, so the first figure is the whole way:
encoding (x264, zerolatency), UDP, decoding, the picture stages, shared memory, waking the reader. A
receiver of MPEG-TS knows that a frame has ended when the next begins, unless it knows the frame's
length (``--lengths``). The second figure is bgsoft's part, from the packet's arrival on. Frames
that were sent and not read were dropped on the way, by bgsoft or by the network. Those without a
valid time were damaged.

Sender, encoder and reader run on the same machine, and take a part of it.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
from numpy.typing import NDArray

from bgsoft.live import Reader

BITS, CHECK_BITS, ROWS = 24, 8, 2
TICK_NS = 250_000
"""Of the clock that is drawn; it starts again after 70 minutes."""
ROW_SHARE = 12
"""A row of bars has this part of the frame's height."""
FRAMES = 90
"""Of the clip, forwards and backwards."""
SAMPLE = Path(__file__).parents[1] / "samples" / "person.mp4"


def with_check(ticks: int) -> int:
    """A clock's value with bits that tell whether it was read rightly."""
    check = (ticks * 0x9E3779B1 >> 16) % (1 << CHECK_BITS)
    return ticks << CHECK_BITS | check


def bars(height: int, width: int) -> Iterator[tuple[slice, slice]]:
    """Where each bit is, the lowest first."""
    tall, columns = height // ROW_SHARE, (BITS + CHECK_BITS) // ROWS
    edges = [width * column // columns for column in range(columns + 1)]
    for row in range(ROWS):
        for left, right in itertools.pairwise(edges):
            yield slice(row * tall, (row + 1) * tall), slice(left, right)


def draw(luma: NDArray[np.uint8], ticks: int) -> None:
    """Draw a clock's value."""
    value = with_check(ticks)
    for bit, (rows, columns) in enumerate(bars(*luma.shape)):
        luma[rows, columns] = 235 if value >> bit & 1 else 16


def read(luma: NDArray[np.uint8]) -> int | None:
    """The clock's value that a frame shows; None: none that can be read."""
    levels = []
    for rows, columns in bars(*luma.shape):
        bar = luma[rows, columns]
        tall, wide = bar.shape
        levels.append(float(bar[tall // 3 : -tall // 3, wide // 3 : -wide // 3].mean()))
    middle = (min(levels) + max(levels)) / 2
    value = sum(1 << bit for bit, level in enumerate(levels) if level > middle)
    ticks = value >> CHECK_BITS
    return ticks if with_check(ticks) == value else None


def pictures(clip: Path, width: int, height: int) -> list[NDArray[np.uint8]]:
    """The first frames of a clip, as I420 in one array each."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", str(clip)]
    command += ["-vf", f"scale={width}:{height}", "-frames:v", str(FRAMES)]
    command += ["-pix_fmt", "yuv420p", "-f", "rawvideo", "-"]
    data = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    frames = np.frombuffer(data, np.uint8).reshape(-1, width * height * 3 // 2)
    return [frame.copy() for frame in (*frames, *frames[-2:0:-1])]


class Sender(threading.Thread):
    """Sends frames until it is stopped."""

    def __init__(
        self,
        frames: list[NDArray[np.uint8]],
        size: tuple[int, int],
        fps: float,
        to: str,
        *,
        lengths: bool,
    ) -> None:
        super().__init__(daemon=True)
        self._frames, self._size, self._fps = frames, size, fps
        self.sent: list[int] = []
        """Clock values."""
        self.stop = threading.Event()
        command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-f", "rawvideo"]
        command += ["-pix_fmt", "yuv420p", "-s", f"{size[0]}x{size[1]}", "-r", str(fps), "-i", "-"]
        command += ["-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency", "-crf", "20"]
        command += ["-g", str(round(fps)), "-f", "mpegts", "-flush_packets", "1"]
        command += ["-omit_video_pes_length", "0" if lengths else "1", to]
        self._ffmpeg = subprocess.Popen(command, stdin=subprocess.PIPE)

    def run(self) -> None:
        width, height = self._size
        assert self._ffmpeg.stdin is not None
        begun, number = time.monotonic(), 0
        with contextlib.suppress(BrokenPipeError), self._ffmpeg.stdin as pipe:
            while not self.stop.wait(max(0.0, begun + number / self._fps - time.monotonic())):
                frame = self._frames[number % len(self._frames)]
                ticks = time.monotonic_ns() // TICK_NS % (1 << BITS)
                draw(frame[: width * height].reshape(height, width), ticks)
                pipe.write(frame.data)
                self.sent.append(ticks)
                number += 1
        self._ffmpeg.wait(20)


def receive(reader: Reader, seconds: float, warm_up: float) -> dict[str, Any]:
    """Read frames for some time after the first one."""
    total: dict[int, float] = {}
    inside: list[float] = []
    damaged = 0
    if not reader.wait(60):
        raise SystemExit("no frame came within a minute")
    begun = time.monotonic()
    while time.monotonic() < begun + warm_up + seconds and reader.wait(2):
        now = time.monotonic_ns()
        frame = reader.copy()
        if frame is None or time.monotonic() < begun + warm_up or frame.stale:
            continue
        ticks = read(frame.picture[0])
        if ticks is None:
            damaged += 1
            continue
        total[ticks] = ((now // TICK_NS - ticks) % (1 << BITS)) * TICK_NS / 1e6
        inside.append((frame.published_ns - frame.captured_ns) / 1e6)
    return {"total": total, "inside": inside, "damaged": damaged, "torn": reader.torn}


def show(name: str, values: list[float]) -> None:
    p50, p95, p99 = np.percentile(values, (50, 95, 99))
    print(f"{name:<24} p50 {p50:7.2f}  p95 {p95:7.2f}  p99 {p99:7.2f}  max {max(values):7.2f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clip", type=Path, nargs="?", default=SAMPLE)
    parser.add_argument("--size", default="1280x720")
    parser.add_argument("--fps", type=float, default=30.0)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--lengths", action="store_true", help="send the length of each frame")
    parser.add_argument("--warm-up", type=float, default=5.0, help="seconds that do not count")
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    options, flags = parser.parse_args(words[:end]), words[end + 1 :]
    width, height = map(int, options.size.split("x"))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        address = f"udp://127.0.0.1:{free.getsockname()[1]}"
    frames = pictures(options.clip, width, height)
    name = f"measure-{os.getpid()}"
    command = [sys.executable, "-m", "bgsoft", "live", address, "--share", name]
    command += ["--stats", "json", *flags]
    live = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    to, size = f"{address}?pkt_size=1316", (width, height)
    sender = Sender(frames, size, options.fps, to, lengths=options.lengths)
    try:
        sender.start()
        with Reader(name) as reader:
            found = receive(reader, options.seconds, options.warm_up)
    finally:
        live.send_signal(signal.SIGTERM)
        lines, _ = live.communicate(timeout=30)
        sender.stop.set()
        sender.join(30)
    total = found["total"]
    if not total:
        raise SystemExit("no frame showed a time that could be read")
    clocks = list(total)
    first, last = sender.sent.index(clocks[0]), sender.sent.index(clocks[-1])
    sent = last - first + 1
    show("drawn to read", list(total.values()))
    show("arrived to published", found["inside"])
    lost = sent - len(total)
    print(f"sent {sent}, read {len(total)}, not read {lost} ({100 * lost / sent:.2f} %), of these")
    print(f"damaged {found['damaged']}; copies made again {found['torn']}")
    stats = [json.loads(line) for line in lines.splitlines() if '"stats"' in line]
    if stats:
        print("bgsoft's own:", json.dumps(stats[-1]))


if __name__ == "__main__":
    main()
