"""VMAF, scored by an ffmpeg with libvmaf.

The pictures go to ffmpeg through a pipe, as raw samples. So ffmpeg gets no file name of the user,
and opens no file but its own log. It scores the same frames as the other measures, paired by
number, not by timestamp.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from bgsoft.closing import Closing
from bgsoft.errors import BackendUnavailableError, translated
from bgsoft.records import dataclass

VMAF_MODEL = "vmaf_v0.6.1"
"""Netflix's model for a 1080p television at three picture heights; libvmaf's own default."""
_INSTALL = "pip install '.[quality]'"

_LOG = "vmaf.json"
_PROBE_SECONDS = 30
_FINISH_SECONDS = 600

PlanarPicture = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
"""(luma, Cb, Cr): (H, W) and twice (⌈H/2⌉, ⌈W/2⌉); uint8 or uint16 code values."""


@dataclass(frozen=True, slots=True)
class Ffmpeg:
    """An executable with the libvmaf filter."""

    path: str
    version: str
    """First line of its version, e.g. ``ffmpeg version 9.0``."""


def ffmpeg_executables() -> list[str]:
    """Return the available executables: that of the ``quality`` extra, then the system's."""
    found: list[str] = []
    try:
        import imageio_ffmpeg

        found.append(imageio_ffmpeg.get_ffmpeg_exe())
    except (ImportError, RuntimeError):  # RuntimeError: installed without a binary
        pass
    system = shutil.which("ffmpeg")
    if system is not None:
        found.append(system)
    return found


def ask_ffmpeg(executable: str, argument: str) -> str | None:
    """Return the output of an ffmpeg for one flag, e.g. ``-version``; None if it does not run."""
    try:
        done = subprocess.run(
            [executable, "-hide_banner", argument],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace")


@cache
def _has_libvmaf(executable: str) -> bool:
    filters = ask_ffmpeg(executable, "-filters") or ""
    return any(line.split()[1:2] == ["libvmaf"] for line in filters.splitlines())


def find_ffmpeg() -> Ffmpeg:
    """Return the first ffmpeg with libvmaf.

    Raises:
        BackendUnavailableError: There is none, or the Python package ``ffmpeg`` is missing; the
            message says how to install it.
    """
    tried = ffmpeg_executables()
    chosen = next((executable for executable in tried if _has_libvmaf(executable)), None)
    if chosen is None:
        reason = f"{', '.join(tried)} has no libvmaf" if tried else "no ffmpeg was found"
        raise BackendUnavailableError(f"cannot score VMAF: {reason}; {_INSTALL}")
    try:
        import ffmpeg
    except ImportError as exc:
        raise BackendUnavailableError(
            f"cannot score VMAF: ffmpeg-python is missing; {_INSTALL}"
        ) from exc
    if not hasattr(ffmpeg, "filter_multi_output"):
        # The package python-ffmpeg has the same import name.
        raise BackendUnavailableError(
            "cannot score VMAF: the package «ffmpeg» is not ffmpeg-python; uninstall it, then "
            f"{_INSTALL}"
        )
    lines = (ask_ffmpeg(chosen, "-version") or "").splitlines()
    return Ffmpeg(chosen, " ".join(lines[0].split()[:3]) if lines else "unknown")


class VmafScorer(Closing):
    """Scores pairs of pictures, one after another.

    A single pipe carries reference and distorted pictures in turn, so that neither waits for the
    other.

    Args:
        ffmpeg: From :func:`find_ffmpeg`.
        width: Luma width, pixels.
        height: Luma height, pixels.
        bit_depth: 8 or 10.
        threads: For libvmaf; 0: one for each core.
    """

    def __init__(
        self, ffmpeg: Ffmpeg, width: int, height: int, bit_depth: int, threads: int = 0
    ) -> None:
        self._pushed = 0
        self._broken = False
        self._folder = tempfile.TemporaryDirectory(prefix="bgsoft-vmaf-")
        folder = Path(self._folder.name)
        self._messages: IO[bytes] = (folder / "stderr.txt").open("w+b")
        self._log = folder / _LOG
        self._process = subprocess.Popen(
            _command(ffmpeg.path, width, height, bit_depth, threads or os.cpu_count() or 1),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._messages,
            cwd=folder,  # so that the log's name in the filter needs no escaping
        )
        assert self._process.stdin is not None
        self._pipe: IO[bytes] = self._process.stdin

    def push(self, reference: PlanarPicture, distorted: PlanarPicture) -> None:
        """Send the next pair. If ffmpeg has failed, :meth:`finish` raises the error."""
        if self._broken:
            return
        self._pushed += 1
        try:
            for plane in (*reference, *distorted):
                self._pipe.write(np.ascontiguousarray(plane).data)
        except OSError:  # a broken pipe
            self._broken = True

    def finish(self) -> list[float]:
        """Return the score of each pair, 0–100, in the order they were sent.

        Raises:
            BackendUnavailableError: ffmpeg failed, and the message contains its own; or its results
                are incomplete.
        """
        if self._broken:
            raise self._failure()
        with translated(OSError, subprocess.TimeoutExpired, to=lambda _: self._failure()):
            self._pipe.close()
            self._process.wait(_FINISH_SECONDS)
        if self._process.returncode != 0 or not self._log.exists():
            raise self._failure()
        incomplete = BackendUnavailableError(
            f"cannot score VMAF: its results in {tempfile.gettempdir()} are incomplete; is the"
            " disk full?"
        )
        with translated(ValueError, to=lambda _: incomplete):
            frames = json.loads(self._log.read_text(encoding="utf-8"))["frames"]
        frames.sort(key=lambda frame: frame["frameNum"])
        scores = [float(frame["metrics"]["vmaf"]) for frame in frames]
        if len(scores) != self._pushed:
            raise BackendUnavailableError(
                f"cannot score VMAF: ffmpeg scored {len(scores)} of {self._pushed} frames"
            )
        if not all(math.isfinite(score) for score in scores):
            raise BackendUnavailableError("cannot score VMAF: libvmaf returned no numbers")
        return scores

    def close(self) -> None:
        self._process.kill()
        with contextlib.suppress(OSError):  # the buffered rest has no reader
            self._pipe.close()
        self._process.wait()
        self._messages.close()
        self._folder.cleanup()

    def _failure(self) -> BackendUnavailableError:
        """Return ffmpeg's own message, in one line. libvmaf crashes on pictures of a few pixels."""
        self._process.kill()
        code = self._process.wait()
        self._messages.seek(0)
        lines = self._messages.read().decode("utf-8", "replace").split("\n")
        said = " | ".join(line.strip() for line in lines if line.strip())
        reason = said[:400] or f"it ended with {f'signal {-code}' if code < 0 else f'exit {code}'}"
        return BackendUnavailableError(f"cannot score VMAF: {reason}")


def _command(executable: str, width: int, height: int, bit_depth: int, threads: int) -> list[str]:
    """Return the command that scores the pictures on its stdin."""
    import ffmpeg

    source = ffmpeg.input(
        "pipe:0",
        protocol_whitelist="pipe",
        format="rawvideo",
        pixel_format="yuv420p" if bit_depth == 8 else "yuv420p10le",
        video_size=(width, height),
        framerate=25,  # any value: pictures are already paired
    )
    halves = source.video.filter_multi_output("split")
    reference, distorted = (
        halves[odd].filter("select", f"eq(mod(n,2),{odd})").filter("setpts", "N/(25*TB)")
        for odd in (0, 1)
    )
    scored = ffmpeg.filter(
        [distorted, reference],
        "libvmaf",
        model=f"version={VMAF_MODEL}",
        log_fmt="json",
        log_path=_LOG,
        n_threads=threads,
    )
    output = ffmpeg.output(scored, "-", format="null").global_args(
        "-nostdin", "-hide_banner", "-loglevel", "error"
    )
    command: list[str] = ffmpeg.compile(output, cmd=executable)
    return command
