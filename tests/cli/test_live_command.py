"""``bgsoft live``: rejected flags, printed lines and the end of a stream."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bgsoft.errors import OutputError
from bgsoft.live.base import LiveFrame
from bgsoft.live.encoded import EncodedSink, _LiveMuxer
from tests.cli.conftest import Run
from tests.live_threads import no_thread_is_left
from tests.marks import slow
from tests.outside import shown_by_ffmpeg
from tests.processes import run_python
from tests.synthetic import VideoSpec, regular_times, write_video

__all__ = ["no_thread_is_left"]


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = VideoSpec(times=regular_times(10, 25))
    return write_video(tmp_path_factory.mktemp("clip") / "clip.mkv", spec)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a SOURCE"),
        (["CLIP"], "add --realtime or --loop"),
        (["CLIP", "--loop"], "add --to, --share or --preview"),
        (["CLIP", "--loop", "--to", "a.doc"], "its suffix must be .mkv, .mp4, .mov or .ts"),
        (
            ["CLIP", "--loop", "--to", "-"],
            "cannot record to -: its suffix must be .mkv, .mp4, .mov or .ts",
        ),
        (["CLIP", "--loop", "--to", "a.ts", "--to", "./a.ts"], "--to ./a.ts must be given once"),
        (
            ["CLIP", "--loop", "--share", "x", "--codec", "hevc"],
            "cannot use --codec or its options",
        ),
        (
            ["CLIP", "--loop", "--to", "a.ts", "--hide", "0,0,9,9@1-2"],
            "cannot use --hide 0,0,9,9@1-2 with --loop",
        ),
        (["CLIP", "--loop", "--to", "a.ts", "--size", "1x1"], "cannot use --size with"),
        (
            ["CLIP", "--loop", "--to", "a.ts", "--quality", "99"],
            "--quality of H.264 (libx264) must be",
        ),
        (["CLIP", "--loop", "--to", "a.mkv", "--speed", "warp"], "--speed of H.264 (libx264)"),
        (["CLIP", "--loop", "--to", "a.ts", "--encoder-option", "nosuch=1"], "does not know it"),
        (["CLIP", "--loop", "--share", "x", "-y"], "cannot use --overwrite"),
        (["CLIP", "--config", "c.toml"], "cannot combine SOURCE and --config"),
        (["--loop", "--config", "c.toml"], "cannot combine --loop and --config"),
        (["--config", "none.toml"], "cannot read none.toml"),
        (["CLIP", "--loop", "--to", "a.ts", "--strength", "900"], "--strength must be"),
        (["CLIP", "--loop", "--to", "a.ts", "--preset", "nope"], "unknown preset 'nope'"),
        (["ftp://h/a", "--to", "a.ts"], "or an address of"),
    ],
)
def test_what_makes_no_sense_is_refused(
    run: Run, clip: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(clip.parent)
    outcome = run("live", *(clip.name if each == "CLIP" else each for each in arguments))
    assert outcome.code == 2 or "container" in message
    assert message in outcome.error_line
    assert [each.name for each in clip.parent.iterdir()] == [clip.name]


def test_a_file_that_is_not_there_is_no_file(run: Run) -> None:
    outcome = run("live", "nonexist.mp4", "--to", "out.ts")
    assert (outcome.code, outcome.error_line) == (
        3,
        "cannot stream nonexist.mp4: it does not exist",
    )


def test_verbose_adds_the_traceback(run: Run, tmp_path: Path) -> None:
    outcome = run("live", "/dev/video987", "--to", tmp_path / "out.ts", "--preset", "fast", "-v")
    assert "Traceback (most recent call last)" in outcome.err
    assert "OpenError: cannot open /dev/video987: it does not exist" in outcome.err


def test_a_source_that_is_not_there_is_said_once(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out.ts"
    outcome = run("live", "/dev/video987", "--to", out, "--preset", "fast")
    assert (outcome.code, outcome.error_line) == (
        3,
        "cannot open /dev/video987: it does not exist; list cameras with ls /dev/video*",
    )
    outcome = run("live", tmp_path / "no.mp4", "--loop", "--to", out, "--preset", "fast")
    assert (outcome.code, outcome.error_line) == (
        3,
        f"cannot read {tmp_path}/no.mp4: it does not exist",
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--model", "selfie-genral"), 2, "unknown model 'selfie-genral'"),
        (("--model", "rvm-mobilenetv3"), 4, "it is not downloaded"),
        (("--background", "none.jpg"), 2, "--background none.jpg: it does not exist"),
        (("--hide", "9999,0,1,1"), 2, "--hide 9999,0,1,1: it lies outside the frame"),
    ],
)
def test_stages_that_cannot_be_end_their_source(
    run: Run, clip: Path, tmp_path: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    outcome = run("live", clip, "--realtime", "--to", tmp_path / "out.ts", *arguments)
    assert outcome.code == code
    assert message in outcome.error_line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("quiet", [(), ("--quiet",)])
def test_each_failure_is_printed_once(
    run: Run, clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: tuple[str, ...]
) -> None:
    publish = EncodedSink.publish

    def failing(self: EncodedSink, frame: LiveFrame) -> None:
        if "a.ts" in self.name:
            raise OutputError("cannot write a.ts: the disk is full")
        publish(self, frame)

    def full(_muxer: object) -> None:
        raise OutputError("the disk is full")

    monkeypatch.setattr(EncodedSink, "publish", failing)
    monkeypatch.setattr(_LiveMuxer, "finish", full)
    paths = [tmp_path / name for name in ("a.ts", "b.ts", "c.ts")]
    to = [each for path in paths for each in ("--to", path)]
    outcome = run("live", clip, "--realtime", "--preset", "fast", *to, *quiet)
    assert outcome.code == 5
    kept = [
        f"bgsoft: error: the disk is full; what was written is kept as {tmp_path}/{name}.partial.ts"
        for name in "bc"
    ]
    first = "cannot write a.ts: the disk is full"
    said = f"bgsoft: error: {first}" if quiet else f"{clip}: {first}; its other sinks continue"
    assert outcome.err.splitlines() == [said, *kept]


def test_a_recording_that_exists_is_kept(run: Run, clip: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.ts"
    out.write_text("mine")
    outcome = run("live", clip, "--loop", "--to", out)
    assert outcome.code == 5
    assert "exists" in outcome.error_line
    assert out.read_text() == "mine"


def test_two_recordings_are_two_files(run: Run, clip: Path, tmp_path: Path) -> None:
    """Otherwise one recording would replace the other."""
    (tmp_path / "link.ts").symlink_to("a.ts")
    tables = [
        f'[[source]]\nname = "{name}"\nsource = "{clip}"\nrealtime = true\nto = "{to}"\n'
        for name, to in (("one", tmp_path / "a.ts"), ("other", tmp_path / "link.ts"))
    ]
    cameras = tmp_path / "cameras.toml"
    cameras.write_text("".join(tables))
    outcome = run("live", "--config", cameras)
    assert (outcome.code, outcome.error_line) == (2, f"--to {tmp_path}/link.ts must be given once")
    assert not (tmp_path / "a.ts").exists()


@pytest.mark.parametrize("part", ["source", "background"])
def test_a_recording_replaces_no_other_input(
    run: Run, clip: Path, tmp_path: Path, part: str
) -> None:
    other, preset = tmp_path / "other.ts", tmp_path / "preset.toml"
    shutil.copy(clip, other)
    preset.write_text(f'[effect]\nkind = "video"\nbackground = "{other}"\n')
    source = f'source = "{other}"\n'
    if part == "background":
        source = f'source = "{clip}"\npreset = "{preset}"\n'
    cameras = tmp_path / "cameras.toml"
    cameras.write_text(
        f'[[source]]\nname = "one"\n{source}realtime = true\nto = "{tmp_path}/a.ts"\n'
        f'[[source]]\nname = "two"\nsource = "{clip}"\nrealtime = true\nto = "{other}"\n'
    )
    outcome = run("live", "--config", cameras, "--overwrite")
    assert (outcome.code, outcome.error_line) == (
        5,
        f"cannot write output {other}: it is the same file as {other}; name another",
    )
    assert other.read_bytes() == clip.read_bytes()
    assert not (tmp_path / "a.ts").exists()


def test_a_trace_that_exists_is_kept(run: Run, clip: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text("mine")
    arguments = ("--realtime", "--preset", "fast", "--to", tmp_path / "a.ts", "--trace", trace)
    outcome = run("live", clip, *arguments)
    assert (outcome.code, "exists; use --overwrite" in outcome.error_line) == (5, True)
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [(trace.name, "mine")]
    outcome = run("live", clip, *arguments, "-y", "--quiet")
    assert (outcome.code, outcome.err) == (0, "")
    assert trace.read_text() != "mine"


def test_a_trace_that_appears_meanwhile_is_kept(
    run: Run, clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, trace = tmp_path / "a.ts", tmp_path / "trace.json"
    monkeypatch.setattr("bgsoft.live.engine.Engine.run", lambda *_: trace.write_text("mine"))
    outcome = run("live", clip, "--realtime", "--preset", "fast", "--to", out, "--trace", trace)
    assert (outcome.code, trace.read_text()) == (5, "mine")


def test_missing_folders_are_made_with_a_notice(run: Run, clip: Path, tmp_path: Path) -> None:
    out, trace = tmp_path / "out" / "a.ts", tmp_path / "new" / "trace.json"
    arguments = ("--realtime", "--preset", "fast", "--to", out, "--trace", trace)
    outcome = run("live", clip, *arguments)
    assert outcome.code == 0
    made = [f"notice: created folder {each.parent}" for each in (out, trace)]
    assert unexpected(outcome.err)[:-1] == made
    assert (out.is_file(), trace.is_file()) == (True, True)


def test_a_trace_replaces_no_recording(run: Run, clip: Path, tmp_path: Path) -> None:
    (tmp_path / "trace.json").symlink_to("a.ts")
    for trace in ("a.ts", "trace.json"):
        arguments = ("--to", tmp_path / "a.ts", "--trace", tmp_path / trace)
        outcome = run("live", clip, "--realtime", "--preset", "fast", *arguments)
        assert (outcome.code, "same file" in outcome.error_line) == (5, True)
    assert not (tmp_path / "a.ts").exists()


def test_a_file_is_never_written_over_itself(run: Run, clip: Path, tmp_path: Path) -> None:
    before = clip.read_bytes()
    outcome = run("live", clip, "--loop", "--to", clip, "-y")
    assert (outcome.code, "same file" in outcome.error_line) == (5, True)
    outcome = run("live", clip, "--loop", "--to", tmp_path / "a.ts", "--trace", clip)
    assert (outcome.code, "same file" in outcome.error_line) == (5, True)
    assert clip.read_bytes() == before


def test_a_file_that_ends_is_a_success_with_its_figures(
    run: Run, clip: Path, tmp_path: Path
) -> None:
    out, trace = tmp_path / "out.mkv", tmp_path / "trace.json"
    arguments = ("--realtime", "--preset", "fast", "--to", out, "--trace", trace)
    outcome = run("live", clip, *arguments, "--stats", "json")
    assert outcome.code == 0
    (figures,) = [json.loads(line) for line in outcome.out.splitlines()]
    assert (figures["type"], figures["source"], figures["state"]) == ("stats", str(clip), "ended")
    assert figures["frames_in"] == 10 == figures["frames_out"] + figures["dropped"]
    assert set(figures["latency_ms"]) == {"p50", "p95", "p99"}
    lost = figures["sinks"][0]["dropped"]
    assert len(shown_by_ffmpeg(out)) == figures["frames_out"] - lost
    assert len(unexpected(outcome.err)) == 1
    assert_summary(outcome.err, out, figures["dropped"] + lost)
    names = {event["name"] for event in json.loads(trace.read_text())["traceEvents"]}
    assert {"decode", "convert", "segment", "matte", "composite", "publish"} <= names


def test_stats_may_stand_alone(run: Run, clip: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.mkv"
    outcome = run("live", "--stats", clip, "--realtime", "--preset", "fast", "--to", out)
    assert (outcome.code, outcome.out) == (0, "")
    assert f"{clip}: ended | in 10 out " in outcome.err


def unexpected(err: str) -> list[str]:
    """Return all lines but those about quality, which depend on the load of the machine."""
    return [line for line in err.splitlines() if " quality from now on: " not in line]


def assert_summary(err: str, path: Path, dropped: int | None = None) -> None:
    """The last line has a recording's frames and length, and the losses on the way."""
    *_, line = unexpected(err)
    form = r"(\d+) frames in ([\d.]+) s: ([\d.]+) frames/s(?:, (\d+) dropped)?"
    found = re.fullmatch(f"{re.escape(str(path))}: {form}", line)
    assert found is not None, line
    shown = shown_by_ffmpeg(path)
    seconds = float(shown[-1] - shown[0])
    assert int(found[1]) == len(shown)
    assert float(found[2]) == pytest.approx(seconds, abs=0.06)
    assert float(found[3]) == pytest.approx((len(shown) - 1) / seconds, rel=0.05)
    assert dropped is None or int(found[4] or 0) == dropped


@pytest.mark.parametrize("number", [signal.SIGINT, slow(signal.SIGTERM)])
def test_whoever_ends_it_has_a_whole_recording(
    clip: Path, tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "out.mp4"
    command = [sys.executable, "-m", "bgsoft", "live", str(clip), "--loop", "--preset", "fast"]
    process = subprocess.Popen(
        [*command, "--to", str(out)], stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
    )
    until = time.monotonic() + 60
    while not any(each.stat().st_size > 1000 for each in tmp_path.iterdir()):
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, len(unexpected(err))) == (0, 1)
    assert_summary(err, out)
    assert [each.name for each in tmp_path.iterdir()] == ["out.mp4"]


def test_a_disk_that_fills_up_ends_that_recording_only(clip: Path, tmp_path: Path) -> None:
    """A limit on file sizes simulates the full disk."""
    small, other = tmp_path / "small.ts", tmp_path / "other.ts"
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)); "
    program = limit + "from bgsoft.cli.main import run; run()"
    # Without -B Python would leave bytecode that is cut off in the package's folder.
    flags = ("--loop", "--preset", "fast", "--to", small, "--to", other)
    process = run_python("-B", "-c", program, "live", clip, *flags, stdin=subprocess.DEVNULL)
    # A busy machine may also report that it cannot keep up.
    lines = [line for line in process.stderr.splitlines() if "cannot write" in line]
    assert process.returncode == 5, process.stderr
    assert len(lines) == 2
    assert lines[0].endswith("its other sinks continue")
    assert lines[1].startswith("bgsoft: error: cannot write")
    assert {each.name for each in tmp_path.iterdir()} == {"small.partial.ts", "other.partial.ts"}
