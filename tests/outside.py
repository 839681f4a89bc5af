"""ffmpeg's own program as a witness: what it shows does not depend on any of our code."""

from __future__ import annotations

import subprocess
from fractions import Fraction
from pathlib import Path

import pytest

__all__ = [
    "described_by_ffmpeg",
    "ffmpeg",
    "ffmpeg_program",
    "frame_hashes",
    "lines_by_ffmpeg",
    "shown_by_ffmpeg",
]


def ffmpeg_program() -> str:
    """The ffmpeg that the ``quality`` extra brings."""
    program: str = pytest.importorskip("imageio_ffmpeg").get_ffmpeg_exe()
    return program


def ffmpeg(*arguments: str | Path, check: bool = True) -> str:
    executable = ffmpeg_program()
    done = subprocess.run(
        [executable, "-nostdin", "-v", "error", "-y", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stdout


def shown_by_ffmpeg(path: Path) -> list[Fraction]:
    """Seconds of every frame that ffmpeg shows of a file's video, damaged ones included."""
    options = ("-fps_mode", "passthrough", "-enc_time_base", "demux", "-f", "framecrc", "-")
    lines = ffmpeg("-copyts", "-i", path, "-map", "0:v:0", *options, check=False).splitlines()
    tick = next(Fraction(line.split()[-1]) for line in lines if line.startswith("#tb 0:"))
    return [int(line.split(",")[2]) * tick for line in lines if not line.startswith("#")]


def frame_hashes(path: Path) -> list[str]:
    """Time and hash of every frame of a file's video, as ffmpeg decodes it."""
    lines = ffmpeg("-i", path, "-map", "0:v:0", "-fps_mode", "passthrough", "-f", "framemd5", "-")
    return [line for line in lines.splitlines() if not line.startswith("#")]


def described_by_ffmpeg(path: Path) -> str:
    command = [ffmpeg_program(), "-nostdin", "-hide_banner", "-v", "verbose", "-i", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def lines_by_ffmpeg(path: Path) -> list[tuple[Fraction, Fraction, str]]:
    """(start, end, text) of each line of a file's first subtitle track, as SubRip."""

    def seconds(clock: str) -> Fraction:
        hours, minutes, rest = clock.replace(",", ".").split(":")
        return 3600 * int(hours) + 60 * int(minutes) + Fraction(rest)

    lines = []
    text = ffmpeg("-copyts", "-i", path, "-map", "0:s:0", "-f", "srt", "-")
    for block in text.strip().split("\n\n"):
        _, times, *words = block.splitlines()
        start, _, end = times.partition(" --> ")
        lines.append((seconds(start), seconds(end), "\n".join(words)))
    return lines
