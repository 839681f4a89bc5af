"""Kinds of sources by their names, and files that list several."""

from __future__ import annotations

from pathlib import Path

import pytest

from bgsoft.errors import ConfigError, OpenError
from bgsoft.live.cameras import read_cameras
from bgsoft.live.source import SourceKind, parse_source


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("/dev/video0", SourceKind.CAMERA),
        ("rtsp://h/x", SourceKind.NETWORK),
        ("srt://h:1", SourceKind.NETWORK),
        ("udp://127.0.0.1:5000", SourceKind.NETWORK),
        ("rtmp://h/live", SourceKind.NETWORK),
    ],
)
def test_a_name_says_what_kind_of_source_it_is(name: str, kind: SourceKind) -> None:
    assert parse_source(name).kind is kind


def test_a_file_has_to_be_played(tmp_path: Path) -> None:
    assert parse_source("a.mp4", realtime=True).kind is SourceKind.FILE
    assert parse_source("a.mp4", loop=True).loop
    clip = tmp_path / "a.mp4"
    clip.touch()
    with pytest.raises(ConfigError, match="--realtime or --loop, or use render"):
        parse_source(str(clip))
    with pytest.raises(OpenError, match="it does not exist"):
        parse_source("concat:a|b")


@pytest.mark.parametrize(
    ("name", "flags", "message"),
    [
        ("http://h/a.mp4", {}, "or an address of rtsp"),
        ("udp://h:1", {"loop": True}, "cannot use --loop with udp://h:1: it needs a file"),
        ("a.mp4", {"loop": True, "size": "1x1"}, "cannot use --size with a.mp4"),
        ("udp://h:1", {"rate": 30.0}, "cannot use --rate with"),
        ("/dev/video0", {"size": "0x10"}, "WIDTHxHEIGHT"),
        ("/dev/video0", {"size": "wide"}, "WIDTHxHEIGHT"),
        ("/dev/video0", {"rate": 0.0}, "between 1 and 1000"),
        ("/dev/video0", {"input_format": "h264"}, "mjpeg or yuyv"),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, flags: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_source(name, **flags)  # type: ignore[arg-type]


def test_a_file_of_sources(tmp_path: Path) -> None:
    path = tmp_path / "cameras.toml"
    path.write_text(
        '[[source]]\nname = "door"\nsource = "udp://h:1"\nto = "door.mkv"\nshare = "door"\n'
        '[[source]]\nsource = "/dev/video0"\nto = ["a.ts", "b.ts"]\nrate = 30\npreview = 8001\n'
        'preset = "fast"\n'
    )
    door, other = read_cameras(path, preset="studio")
    assert (door.name, door.to, door.share, door.preset) == (
        "door",
        ("door.mkv",),
        "door",
        "studio",
    )
    assert (other.name, other.to, other.rate) == ("/dev/video0", ("a.ts", "b.ts"), 30.0)
    assert (other.preview, other.preset) == (8001, "fast")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must have a"),
        ("x = 1", "no|unknown key 'x'"),
        ('source = "a"', "must have a"),
        ('[[source]]\nto = "a.mkv"', "must have a source"),
        ('[[source]]\nsource = "a"\nshre = "x"', "did you mean share"),
        ('[[source]]\nsource = "a"\nrate = "fast"', "rate cannot be 'fast'"),
        ('[[source]]\nsource = "a"\nto = [1]', "to must be a text"),
        ('[[source]]\nsource = "a"\n[[source]]\nsource = "a"', "called 'a'"),
        (
            '[[source]]\nsource = "a"\nto="x.ts"\n[[source]]\nsource = "b"\nto="x.ts"',
            "two sources go to 'x.ts'",
        ),
        ("[[source", "cameras.toml"),
    ],
)
def test_a_file_that_makes_no_sense(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "cameras.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_cameras(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        read_cameras(tmp_path / "none.toml")
