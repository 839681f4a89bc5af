"""bgsoft between two other programs: complete streams, and the death of either program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import IO, Any

import pytest

from bgsoft.cli.main import main
from tests.marks import slow
from tests.outside import ffmpeg, ffmpeg_program, frame_hashes
from tests.processes import ROOT, run_python
from tests.synthetic import SoundSpec, VideoSpec, regular_times, write_movie, write_video

ON_CPU = [f"--{stage}=cpu" for stage in ("decode", "infer", "composite", "encode")]
QUICK = ["--effect=dim", "--matte=fast", "--face=off", "--mask-every=25", "--preset=soft", *ON_CPU]
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def spawn() -> Iterator[Start]:
    """Starts programs, which are gone after the test."""
    all_of_them = []

    def begin(*command: object, **streams: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, **streams)
        all_of_them.append(process)
        return process

    yield begin
    for process in all_of_them:
        process.kill()
        process.wait()
        for pipe in filter(None, (process.stdin, process.stdout, process.stderr)):
            with suppress(OSError):
                pipe.close()


@pytest.fixture
def start(spawn: Start) -> Start:
    def begin(*argv: object, stdin: Any = subprocess.PIPE) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = (sys.executable, "-m", "bgsoft", "render", *argv, *QUICK)
        return spawn(*command, stdin=stdin, stderr=subprocess.PIPE, env=environment)

    return begin


@pytest.fixture(scope="module")
def movie(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = VideoSpec(times=regular_times(60), width=192, height=144)
    path = tmp_path_factory.mktemp("movie") / "in.mkv"
    return write_movie(path, spec, [SoundSpec(seconds=2.4), SoundSpec(pitch=880)], subtitles=True)


def ended(process: subprocess.Popen[bytes]) -> tuple[int, list[str]]:
    """Exit code, and the lines on stderr; it has ended within 90 seconds."""
    code = process.wait(90)
    assert process.stderr is not None
    return code, process.stderr.read().decode().splitlines()


def render_here(source: Path, target: Path) -> None:
    """Render between files, in this process."""
    assert main(["render", str(source), str(target), "-q", *QUICK]) == 0


def shown(path: Path | str, stdin: IO[bytes] | None = None) -> list[list[str]]:
    """Track, times, duration, size and MD5 of each frame that ffmpeg reads of all tracks."""
    command = [ffmpeg_program(), "-v", "error", "-copyts", "-i", str(path), "-map", "0"]
    command += ["-fps_mode", "passthrough", "-c:s", "copy", "-f", "framemd5", "-"]
    done = subprocess.run(command, stdin=stdin, capture_output=True, text=True, check=True)
    lines = (line.split(",") for line in done.stdout.splitlines() if not line.startswith("#"))
    return sorted([field.strip() for field in line] for line in lines)


@pytest.mark.parametrize(
    ("into", "out"),
    [
        slow("mkv", "mkv"),
        slow("ts", "nut"),
        slow("nut", "ts"),
        ("y4m", "y4m"),
        slow("mkv", "nut"),
        slow("ts", "mkv"),
        slow("ts", "ts"),
        slow("mkv", "y4m"),
        slow("nut", "nut"),
        slow("y4m", "mkv"),
    ],
)
def test_between_two_ffmpegs_all_is_as_between_files(
    tmp_path: Path, movie: Path, spawn: Start, start: Start, into: str, out: str
) -> None:
    coded = ["-c:v", "rawvideo", "-c:a", "pcm_s16le"] if into == "nut" else ["-c", "copy"]
    tracks = ["-map", "0"] if into == "mkv" else ["-map", "0:v", "-map", "0:a"]
    if into == "y4m":
        coded, tracks = [], ["-map", "0:v"]
    muxer = {"mkv": "matroska", "ts": "mpegts", "y4m": "yuv4mpegpipe"}.get(into, into)
    file, target = tmp_path / f"in.{into}", tmp_path / f"out.{out}"
    ffmpeg("-i", movie, *tracks, *coded, "-f", muxer, file)
    render_here(file, target)

    sender = spawn("cat", file)
    render = start("-", "-", "--format", out, "-q", stdin=sender.stdout)
    assert sender.stdout is not None
    sender.stdout.close()
    got, wanted = shown("-", render.stdout), shown(target)
    assert ended(render) == (0, [])
    assert sender.wait() == 0
    assert len(got) >= 60
    if into == "ts":  # FFmpeg itself gives its sound other last digits where it cannot seek
        got, wanted = ([line for line in lines if line[0] == "0"] for lines in (got, wanted))
    assert got == wanted


@pytest.mark.parametrize(("times", "hidden"), [("1-2", [2]), ("7-9", [])])
def test_a_place_is_hidden_in_the_frame_that_is_shown_then(
    tmp_path: Path, start: Start, times: str, hidden: list[int]
) -> None:
    """The third frame is shown from 0.3 to 2.3 s."""
    tenths = [Fraction(number, 10) for number in (0, 1, 3, 23, 24)]
    clip, plain = write_video(tmp_path / "in.ts", VideoSpec(times=tenths)), tmp_path / "plain.mkv"
    assert main(["render", str(clip), str(plain), "--codec=ffv1", *QUICK]) == 0
    hide = f"--hide 0,0,40,40@{times}"
    with subprocess.Popen(["cat", clip], stdout=subprocess.PIPE) as sender:
        target = tmp_path / "out.mkv"
        flags = ["--codec=ffv1", "--anonymize-style=solid", *hide.split()]
        render = start("-", target, *flags, stdin=sender.stdout)
        code, lines = ended(render)
    warning = f"/dev/stdin: warning: {hide} hides nothing: no frame is shown then"
    assert (code, warning in lines) == (0, not hidden)
    pairs = zip(frame_hashes(plain), frame_hashes(target), strict=True)
    assert [n for n, (before, after) in enumerate(pairs) if before != after] == hidden


@pytest.mark.slow
def test_a_broadcast_keeps_its_sound_in_matroska(
    tmp_path: Path, movie: Path, spawn: Start, start: Start
) -> None:
    """MPEG-TS describes AAC in each packet, Matroska in the header, which is already sent."""
    file = tmp_path / "in.ts"
    ffmpeg("-i", movie, "-map", "0:v", "-map", "0:a", "-c", "copy", file)
    with file.open("rb") as again:  # a file as stdin is opened like any other
        renders = [start("-", "-", "-q", stdin=each) for each in (again, spawn("cat", file).stdout)]
    streams = [shown("-", render.stdout) for render in renders]
    assert [ended(render) for render in renders] == [(0, []), (0, [])]
    data = [sorted(line[0] + line[-1] for line in lines) for lines in streams]
    assert data[0] == data[1]
    assert {line[0] for line in streams[1]} == {"0", "1", "2"}


@pytest.mark.parametrize("out", ["mkv", slow("y4m")])
def test_the_pixel_aspect_goes_with_the_header(
    tmp_path: Path, movie: Path, start: Start, out: str
) -> None:
    file = tmp_path / "in.mkv"
    ffmpeg("-i", movie, "-map", "0:v", "-c", "copy", "-aspect", "2:1", file)
    target = tmp_path / f"out.{out}"
    render = start(file, "-", "-q", "--format", out)
    assert render.stdout is not None
    target.write_bytes(render.stdout.read())
    assert ended(render)[0] == 0
    by_name = tmp_path / f"file.{out}"
    render_here(file, by_name)
    for path in (target, by_name):
        described = subprocess.run(
            [ffmpeg_program(), "-i", path], capture_output=True, text=True, check=False
        )
        assert "SAR 3:2 DAR 2:1" in described.stderr


def test_named_pipes_wait_for_their_other_ends(tmp_path: Path, movie: Path, start: Start) -> None:
    into, out = tmp_path / "in", tmp_path / "out"
    os.mkfifo(into)
    os.mkfifo(out)
    render = start(into, out, "--format", "nut", "-q")
    with into.open("wb") as pipe:
        sender = threading.Thread(target=lambda: (pipe.write(movie.read_bytes()), pipe.close()))
        sender.start()
        frames = shown(out)
        sender.join()
    assert ended(render) == (0, [])
    assert sum(line[0] == "0" for line in frames) == 60
    assert sorted(tmp_path.iterdir()) == [into, out]


def half(movie: Path) -> bytes:
    data = movie.read_bytes()
    return data[: len(data) // 2]


def send(render: subprocess.Popen[bytes], data: bytes) -> None:
    assert render.stdin is not None
    render.stdin.write(data)
    render.stdin.flush()


def test_a_killed_reader_ends_the_render_at_once(movie: Path, spawn: Start, start: Start) -> None:
    render = start("-", "-", "-q", "--format", "nut")
    assert render.stdout is not None
    reader = spawn("cat", stdin=render.stdout)
    render.stdout.close()
    send(render, half(movie))
    assert reader.stdout is not None
    assert reader.stdout.read(1)
    reader.kill()  # no more comes in, so nothing more is written
    code, lines = ended(render)
    assert (code, lines) == (5, ["bgsoft: error: cannot write stdout: its reader has closed it"])


def test_a_reader_that_has_enough_is_no_crash(movie: Path, start: Start) -> None:
    render = start(movie, "-", "--format", "y4m", "-q")
    assert render.stdout is not None
    header = render.stdout.read(1000).split(b"\n")[0]
    assert header.startswith(b"YUV4MPEG2 W192 H144 F25:1 ")
    assert b" C420mpeg2 " in header  # where H.264 has its chroma
    render.stdout.close()
    code, lines = ended(render)
    assert (code, lines) == (5, ["bgsoft: error: cannot write stdout: its reader has closed it"])


def test_what_a_killed_writer_has_sent_is_finished(
    tmp_path: Path, movie: Path, start: Start
) -> None:
    render = start("-", tmp_path / "out.mkv")
    assert render.stdin is not None
    render.stdin.write(half(movie))
    render.stdin.close()
    code, lines = ended(render)
    assert code == 0
    assert "may have been cut off" in "".join(lines)
    pictures = [line for line in shown(tmp_path / "out.mkv") if line[0] == "0"]
    assert 10 < len(pictures) < 60


def test_ctrl_c_does_not_wait_for_the_first_byte(tmp_path: Path, start: Start) -> None:
    render = start("-", tmp_path / "out.mkv", "--progress", "json")
    assert render.stdout is not None
    assert b'"start"' in render.stdout.readline()
    render.send_signal(signal.SIGINT)
    code, lines = ended(render)
    assert (code, lines) == (130, ["bgsoft: error: interrupted; no output was written"])
    assert not list(tmp_path.iterdir())


def test_ctrl_c_does_not_wait_for_the_next_byte(movie: Path, start: Start) -> None:
    render = start("-", "-", "-q", "--format", "nut")
    send(render, half(movie))
    assert render.stdout is not None
    assert render.stdout.read(1)
    render.send_signal(signal.SIGINT)
    code, lines = ended(render)
    assert (code, lines) == (130, ["bgsoft: error: interrupted; the output is incomplete"])


@pytest.mark.slow
def test_pauses_at_either_end_are_no_standstill(spawn: Start, start: Start) -> None:
    """The sender has to wait meanwhile, so that memory does not grow."""
    raw = [ffmpeg_program(), "-v", "error", "-f", "lavfi", "-i", "testsrc2=s=320x240"]
    raw += ["-f", "lavfi", "-i", "sine", "-c:v", "rawvideo", "-pix_fmt", "yuv420p"]
    sender = spawn(*raw, "-f", "nut", "-")
    render = start("-", "-", "-q", "--stall", "1", "--format", "nut")
    assert sender.stdout is not None
    assert render.stdin is not None
    assert render.stdout is not None
    os.set_blocking(render.stdin.fileno(), False)
    sent, waited = 0, 0.0
    while waited < 4:  # the reader takes nothing
        chunk = sender.stdout.read(1 << 16)
        while chunk:
            try:
                written = os.write(render.stdin.fileno(), chunk)
                sent, chunk, waited = sent + written, chunk[written:], 0.0
            except BlockingIOError:
                time.sleep(0.1)
                waited += 0.1
                if waited >= 4:
                    break
    sender.kill()
    assert 1 << 20 < sent < 24 << 20  # some 115 kB each: the ring, both pipes, the encoder
    render.stdin.close()
    assert len(render.stdout.read()) > 1 << 20
    assert ended(render)[0] == 0


def test_an_mp4_with_its_index_last_needs_a_file(
    tmp_path: Path, movie: Path, spawn: Start, start: Start
) -> None:
    file = tmp_path / "in.mp4"
    ffmpeg("-i", movie, "-map", "0:v", "-c", "copy", file)
    code, lines = ended(start("-", tmp_path / "out.mkv", stdin=spawn("cat", file).stdout))
    assert code == 3
    assert len(lines) == 1
    assert "whose index comes last" in lines[0]
    assert "+faststart" in lines[0]
    with file.open("rb") as stdin:
        assert ended(start("-", tmp_path / "out.mkv", "-q", stdin=stdin)) == (0, [])
    assert len(shown(tmp_path / "out.mkv")) == 60
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.mp4", "out.mkv"]


@pytest.mark.parametrize(
    ("data", "argv", "code", "words"),
    [
        (b"", [], 3, "/dev/stdin: it is empty"),
        slow(b"no video" * 999, [], 3, "/dev/stdin: it is not a media file"),
        slow(
            b"\x89PNG\r\n\x1a\n" * 99,
            [],
            3,
            "a picture (PNG) cannot be read from a pipe; name a file",
        ),
        (None, ["--start", "1"], 2, "cannot use --start with a pipe"),
        slow(None, ["--model", "nosuch"], 2, "unknown model"),
    ],
)
def test_what_a_pipe_cannot_be_is_one_clear_line(
    tmp_path: Path, start: Start, data: bytes | None, argv: Sequence[str], code: int, words: str
) -> None:
    render = start("-", tmp_path / "out.mkv", *argv)
    if data is not None:  # else nobody writes, and nobody closes
        assert render.stdin is not None
        render.stdin.write(data)
        render.stdin.close()
    got, lines = ended(render)
    assert (got, len(lines)) == (code, 1)
    assert words in lines[0]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("argv", "words"), [(["-", "out.mkv"], "stdin: it is"), (["in.mkv", "-"], "stdout: it is")]
)
def test_a_terminal_is_no_pipe(tmp_path: Path, argv: list[str], words: str) -> None:
    inner, outer = os.openpty()
    program = "import sys; from bgsoft.cli.main import main; sys.exit(main(sys.argv[1:]))"
    done = run_python("-c", program, "render", *argv, stdin=outer, stdout=outer, cwd=tmp_path)
    os.close(inner)
    os.close(outer)
    assert done.returncode == 2
    assert f"{words} a terminal" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_report_counts_what_went_through(tmp_path: Path, movie: Path, start: Start) -> None:
    render = start("-", "-", "-q", "--report", tmp_path / "r.json", "--duration", "1")
    assert render.communicate(movie.read_bytes(), timeout=90)[0]
    assert render.returncode == 0
    report = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert (report["input"], report["output"]) == ("/dev/stdin", "/dev/stdout")
    assert report["frames_decoded"] == report["frames_encoded"] == 25
