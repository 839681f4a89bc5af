"""Names of pipes, and the bytes sent into one."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bgsoft.errors import OutputError, RenderCancelledError, UnsupportedFormatError
from bgsoft.media.endpoints import EndpointKind, destination_for, source_for
from bgsoft.pipes import DEV_STDIN, DEV_STDOUT, PipeOutput, input_name, output_name
from bgsoft.settings.config import OutputFormat

PIPE = Path("/dev/stdout")


@pytest.fixture
def stdin() -> Iterator[Path]:
    """Standard input is put back after the test."""
    saved = os.dup(0)
    yield DEV_STDIN
    os.dup2(saved, 0)
    os.close(saved)


def test_a_file_as_stdin_has_its_own_name_while_it_is_whole(tmp_path: Path, stdin: Path) -> None:
    file = tmp_path / "in.mkv"
    file.write_bytes(b"video")
    with file.open("rb") as opened:
        os.dup2(opened.fileno(), 0)
    assert input_name(Path("-")) == input_name(stdin) == file
    assert source_for(file).kind is EndpointKind.FILE
    os.read(0, 1)  # somebody has begun it: only the rest is meant
    assert input_name(Path("-")) == DEV_STDIN
    os.lseek(0, 0, os.SEEK_SET)
    file.unlink()
    assert input_name(Path("-")) == DEV_STDIN
    assert source_for(DEV_STDIN).kind is EndpointKind.PIPE
    assert input_name(tmp_path / "other") == tmp_path / "other"


def test_names_of_outputs(tmp_path: Path) -> None:
    assert output_name(Path("-")) == DEV_STDOUT
    assert output_name(tmp_path / "-") == tmp_path / "-"
    os.mkfifo(tmp_path / "pipe")
    for pipe in (DEV_STDOUT, tmp_path / "pipe"):
        assert destination_for(pipe).kind is EndpointKind.PIPE
    for file in (tmp_path, tmp_path / ("long" * 99)):
        assert destination_for(file).kind is EndpointKind.FILE


@pytest.mark.parametrize(
    ("name", "format", "muxer"),
    [
        (str(PIPE), OutputFormat.AUTO, "matroska"),
        (str(PIPE), OutputFormat.NUT, "nut"),
        (str(PIPE), OutputFormat.TS, "mpegts"),
        ("out.mp4", OutputFormat.AUTO, "mp4"),
        ("out.bin", OutputFormat.Y4M, "yuv4mpegpipe"),
    ],
)
def test_the_format_is_named_or_follows_from_the_name(
    name: str, format: OutputFormat, muxer: str
) -> None:
    assert destination_for(Path(name), format).container.muxer == muxer


@pytest.mark.parametrize(
    ("name", "format", "muxer"),
    [
        ("a.Y4M", OutputFormat.AUTO, "yuv4mpegpipe"),
        ("a.ts", OutputFormat.AUTO, "mpegts"),
        ("a.ts", OutputFormat.NUT, "nut"),
        ("a.mp4", OutputFormat.AUTO, "matroska"),
        ("a.png", OutputFormat.AUTO, "matroska"),
    ],
)
def test_the_extension_of_a_named_pipe_counts_if_it_can_be_streamed(
    tmp_path: Path, name: str, format: OutputFormat, muxer: str
) -> None:
    os.mkfifo(tmp_path / name)
    assert destination_for(tmp_path / name, format).container.muxer == muxer


@pytest.mark.parametrize("format", [OutputFormat.MP4, OutputFormat.MOV, OutputFormat.AVI])
def test_what_is_completed_at_its_end_goes_through_no_pipe(format: OutputFormat) -> None:
    with pytest.raises(UnsupportedFormatError, match="--format mkv, webm, ts, nut, y4m"):
        _ = destination_for(PIPE, format).container
    assert destination_for(Path("out"), format).container.muxer == str(format)


def test_what_else_is_printed_goes_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with PipeOutput(DEV_STDOUT) as output:
        os.write(1, b"printed by a library\n")
        output.write(b"video\n")
        output.check()
    os.write(1, b"afterwards\n")
    out, err = capfd.readouterr()
    assert out == "video\nafterwards\n"
    assert err == "printed by a library\n"


def test_a_reader_that_has_gone_is_noticed_without_writing(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with PipeOutput(path) as output:
        output.write(b"video")
        output.check()
        assert os.read(reader, 10) == b"video"
        os.close(reader)
        with pytest.raises(OutputError, match="cannot write pipe: its reader has closed it"):
            output.check()
        with pytest.raises(BrokenPipeError):
            output.write(b"more")
        assert output.write(b"told once") == 9


@pytest.mark.parametrize("reader", [False, True], ids=["nobody reads", "the reader is full"])
def test_waiting_for_a_reader_ends_with_the_render(tmp_path: Path, reader: bool) -> None:
    path, cancel = tmp_path / "pipe", threading.Event()
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK) if reader else -1
    threading.Timer(0.3, cancel.set).start()
    with pytest.raises(RenderCancelledError), PipeOutput(path, cancel.is_set) as output:
        output.write(bytes(8 << 20))
    if reader:
        os.close(descriptor)
