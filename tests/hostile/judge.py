"""Runs hostile cases in one process and judges them from outside."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import random
import resource
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import av
import onnx
from imageio_ffmpeg import get_ffmpeg_exe

from bgsoft.closing import Closing
from bgsoft.exitcodes import ExitCode
from tests.hostile import data, media, models
from tests.hostile.case import NEVER_OPENED, OUTPUT, REPORT, Case, Stock
from tests.synthetic import SoundSpec, VideoSpec, regular_times, write_movie

MAX_BYTES = 2 * 1024**3
"""Limit of memory while a case runs."""
MAKERS = {**media.MAKERS, **data.MAKERS, **models.MAKERS}
_TOLD = ("notice", "warning", "repair", "fault", "fallback")
"""Kinds of events that say that something was lost or changed."""
_CLIPS = {
    "h264.mp4": ("libx264", "yuv420p", True, {}),
    "fragments.mp4": ("libx264", "yuv420p", True, {"movflags": "frag_keyframe+empty_moov"}),
    "hevc.mp4": ("libx265", "yuv420p", False, {}),
    "prores.mov": ("prores_ks", "yuv422p10le", False, {}),
    "h264.mkv": ("libx264", "yuv420p", True, {}),
    "ffv1.mkv": ("ffv1", "yuv420p", False, {}),
    "vp9.webm": ("libvpx-vp9", "yuv420p", False, {}),
    "vp8.ivf": ("libvpx", "yuv420p", False, {}),
    "mpeg4.avi": ("mpeg4", "yuv420p", False, {}),
    "raw.avi": ("rawvideo", "yuv420p", False, {}),
    "raw.mkv": ("ffv1", "gray", False, {}),
    "h264.ts": ("libx264", "yuv420p", True, {}),
    "mpeg2.mpg": ("mpeg2video", "yuv420p", False, {}),
    "mpeg2.mxf": ("mpeg2video", "yuv420p", False, {}),
    "flv1.flv": ("flv1", "yuv420p", False, {}),
    "wmv2.asf": ("wmv2", "yuv420p", False, {}),
    "raw.nut": ("rawvideo", "yuv420p", False, {}),
    "raw.y4m": ("wrapped_avframe", "yuv420p", False, {}),
    "gif.gif": ("gif", "rgb8", False, {}),
    "base.h264": ("libx264", "yuv420p", False, {}),
    "hevc.hevc": ("libx265", "yuv420p", False, {}),
}


def make_stock(folder: Path, port: int) -> Stock:
    """Write what all cases are made from."""
    clips = []
    for name, (codec, pixels, sound, options) in _CLIPS.items():
        base = {"profile": "baseline", "x264-params": "scenecut=0"} if name == "base.h264" else {}
        quiet = {"x265-params": "log-level=none"} if codec == "libx265" else {}
        spec = VideoSpec(
            codec=codec,
            pixel_format=pixels,
            width=64,
            height=48,
            times=regular_times(6),
            time_base=Fraction(1, 25),
            options={**({"g": "3"} if "264" in codec else {}), **base, **quiet},
        )
        sounds = [SoundSpec(seconds=0.24)] if sound else []
        clips.append(write_movie(folder / name, spec, sounds, options=options))
    ones = folder / "ones.onnx"
    onnx.save(models.ones(), str(ones))
    ones.with_suffix(".toml").write_text(data.SIDECAR)
    secret = folder / NEVER_OPENED
    shutil.copy(clips[0], secret)
    return Stock(clips=clips, ones=ones, secret=secret, port=port)


@dataclass
class Verdict:
    number: int
    maker: str
    what: str
    code: int | None = None
    seconds: float = 0.0
    bytes: int = 0
    """Most memory in use, beyond what earlier tests have left in use."""
    problems: list[str] = field(default_factory=list)
    stdout: str = ""
    stderr: str = ""


class Judge(Closing):
    """Makes cases from seeds, runs them in this process, and judges them.

    Args:
        folder: Empty; cases have folders in it, and nothing else may change in it.
        seed: Of all cases.
    """

    def __init__(self, folder: Path, seed: int = 1) -> None:
        self._seed = seed
        self._top = folder
        self._home = folder / "home"
        self._home.mkdir()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        (folder / "stock").mkdir()
        self.stock = make_stock(folder / "stock", self._listener.getsockname()[1])
        os.environ.update(
            HOME=str(self._home),
            XDG_CONFIG_HOME=str(self._home / "config"),
            BGSOFT_CACHE=str(self._home / "cache"),
            CUDA_VISIBLE_DEVICES="",
        )
        os.utime(self.stock.secret, ns=(0, time.time_ns()))
        self._counts = list(MAKERS.values())
        self.judge(-1, "sidecar")  # loads what is loaded once

    def case(self, number: int, maker: str | None = None) -> tuple[str, Case, Path]:
        """Make a case in a folder of its own; the same number makes the same."""
        rng = random.Random(f"{self._seed} {number}")
        makers = list(MAKERS)
        if maker is not None:
            chosen = next(each for each in makers if each.__name__ == maker)
        else:
            (chosen,) = rng.choices(makers, self._counts)
        folder = self._top / "case"
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "out").mkdir(parents=True)
        return (
            f"{chosen.__module__.rpartition('.')[2]}.{chosen.__name__}",
            chosen(rng, folder, self.stock),
            folder,
        )

    def judge(self, number: int, maker: str | None = None) -> Verdict:
        """Run a case; a verdict without problems is good."""
        name, case, folder = self.case(number, maker)
        verdict = Verdict(number, name, case.what)
        before, threads = self._files(), threading.active_count()
        descriptors = _open_files()
        Path("/proc/self/clear_refs").write_text("5")
        resident = _peak_bytes()
        started = time.perf_counter()
        with _printed() as told:
            try:
                verdict.code = case.run()
            except BaseException as exc:
                verdict.problems.append(f"{type(exc).__name__}: {exc}")
        verdict.seconds = time.perf_counter() - started
        verdict.bytes = _peak_bytes() - resident
        verdict.stdout, verdict.stderr = told
        problems = verdict.problems
        changed = {name for name, _ in before.items() ^ self._files().items()}
        if changed:
            problems.append(f"written outside the output: {sorted(changed)}")
        until = time.monotonic() + 2
        while threading.active_count() > threads and time.monotonic() < until:
            time.sleep(0.01)
        if threading.active_count() > threads:
            problems.append(f"threads are left: {threading.enumerate()}")
        gc.collect()  # what an exception has held
        if _open_files() > descriptors:
            problems.append("a file is left open")
        if verdict.bytes > MAX_BYTES:
            problems.append(f"{verdict.bytes / 1e9:.1f} GB of memory")
        with suppress(BlockingIOError):
            self._listener.accept()[0].close()
            problems.append("an address was opened")
        if self.stock.secret.stat().st_atime_ns:
            problems.append("another file was read")
            os.utime(self.stock.secret, ns=(0, time.time_ns()))
        problems += _said(case, verdict)
        problems += _left(case, verdict, folder)
        if not problems and verdict.code == 0 and case.source is not None:
            problems += lost(case.source, folder)
        return verdict

    def close(self) -> None:
        self._listener.close()

    def _files(self) -> dict[str, tuple[int, int]]:
        """Everything that no case may change, by name."""
        found = {}
        for root, folders, names in os.walk(self._top):
            place = Path(root)
            if place == self._top / "case":
                folders[:] = [name for name in folders if name != "out"]
            if place == self._home:
                folders[:] = [name for name in folders if name != "cache"]
            for name in names:
                stat = (place / name).lstat()
                found[str(place / name)] = stat.st_size, stat.st_mtime_ns
        return found


def _said(case: Case, verdict: Verdict) -> list[str]:
    code, lines = verdict.code, verdict.stderr.splitlines()
    if code is None:
        return []
    if code not in set(ExitCode):
        return [f"exit code {code} is not documented"]
    if case.codes is not None and code not in case.codes:
        return [f"exit code {code}, not one of {sorted(map(int, case.codes))}"]
    if any(word in verdict.stderr for word in ("Traceback", "internal error", "out of memory")):
        return ["a bare exception"]
    errors = [line for line in lines if line.startswith("bgsoft: error: ")]
    if len(errors) != (code != 0) and not case.speaks:
        return ["not one line that says why"]
    # libpng, inside of OpenCV, prints what it finds wrong with a picture; nobody can keep it.
    lines = [line for line in lines if not line.startswith("libpng ")]
    if (lines != errors or verdict.stdout) and not case.speaks:
        return ["other words than errors"]
    return []


def _left(case: Case, verdict: Verdict, folder: Path) -> list[str]:
    names = {path.name for path in (folder / "out").iterdir()}
    if case.leaves is None:
        names = {name for name in names if ".part" in name or name.endswith(".new")}
    expected = set(case.leaves or ()) if verdict.code == 0 else set()
    return [] if names == expected else [f"left behind: {sorted(names)}"]


def lost(source: Path, folder: Path) -> list[str]:
    """Return the frames of the source that the output lacks without a report, by ffmpeg."""
    events = json.loads((folder / REPORT).read_text())["events"]
    if any(event["kind"] in _TOLD for event in events):
        return []
    theirs, ours = frames(source), frames(folder / OUTPUT)
    if len(theirs) != len(ours):
        return [f"ffmpeg shows {len(theirs)} frames of the input, {len(ours)} of the output"]
    wrong = [at for at, (one, other) in enumerate(zip(theirs, ours, strict=True)) if one != other]
    if wrong:
        # Decoders conceal damage differently with each version, thread count and run.
        others = {*frames(source, "-threads", "1"), *_plainly_decoded(source)}
        wrong = [at for at in wrong if ours[at] not in others]
    return [f"frames {wrong} of {len(ours)} are not those of the input"] if wrong else []


def frames(path: Path, *options: str) -> list[str]:
    """A hash of each frame that ffmpeg shows of a file's video."""
    command = [
        *(get_ffmpeg_exe(), "-v", "quiet", "-nostdin", *options, "-i", f"file:{path}"),
        *("-map", "0:V:0", "-fps_mode", "passthrough", "-pix_fmt", "yuv420p"),
        *("-f", "framehash", "-hash", "md5", "-"),
    ]
    made = subprocess.run(command, capture_output=True, text=True, timeout=60)
    lines = [line for line in made.stdout.splitlines() if line and line[0] != "#"]
    return [line.split(",")[-1].strip() for line in lines]


def _plainly_decoded(path: Path) -> Iterator[str]:
    """Return each frame as PyAV's libraries decode it in one thread."""
    with suppress(av.FFmpegError, ValueError), av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.thread_type = "NONE"
        for packet in container.demux(stream):
            with suppress(av.FFmpegError):
                for frame in stream.codec_context.decode(packet if packet.size else None):
                    yield hashlib.md5(frame.to_ndarray(format="yuv420p").tobytes()).hexdigest()


@contextmanager
def _printed() -> Iterator[list[str]]:
    """Text on standard output and error during the block, also by libraries."""
    told: list[str] = []
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        places = ((1, out), (2, err))
        saved = [os.dup(number) for number, _ in places]
        for number, file in places:
            os.dup2(file.fileno(), number)
        try:
            with (
                open(1, "w", closefd=False) as to_out,
                open(2, "w", closefd=False) as to_err,
                redirect_stdout(to_out),
                redirect_stderr(to_err),
            ):
                yield told
        finally:
            for (number, file), before in zip(places, saved, strict=True):
                os.dup2(before, number)
                os.close(before)
                file.seek(0)
                told.append(file.read().decode(errors="replace"))


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _peak_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
