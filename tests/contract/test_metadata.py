"""Metadata that identify people or places are left out where something is hidden, byte by byte."""

from __future__ import annotations

import io
import os
import re
import threading
from pathlib import Path
from typing import Any

import av
import pytest
from PIL import Image

import bgsoft
from bgsoft.compare.compare import Limits, compare
from bgsoft.report import RenderReport
from tests.marks import slow
from tests.outside import described_by_ffmpeg, ffmpeg
from tests.stills import colourful
from tests.synthetic import SoundSpec, VideoSpec, regular_times, write_movie
from tests.unit.chunks.short_chunks import _short_chunks, render_in_chunks, settings

PLACE = "+48.8584+002.2945/"
MARKS = (b"48.8584", b"SECRET")
"""Bytes in everything that must be left out."""
TAGS = {
    "title": "A film",
    "genre": "Documentary",
    "location": PLACE,
    "artist": "SECRET artist",
    "com.apple.quicktime.location.ISO6709": PLACE,
    "comment": "SECRET comment",
    "com.apple.quicktime.model": "SECRET 7",
    "x-serial": "SECRET 0815",
}
AS_IT_IS: dict[str, Any] = {"preset": None, "face": "off", "effect": "dim", "strength": 0}
AS_IT_IS |= {"matte": "fast", "mask_every": 25, "speed": "ultrafast"}
HIDE: dict[str, Any] = {"hide": "0,0,20%,20%"}
FAST = {"preset": "ultrafast", "crf": "30", "threads": "1", "g": "12"}
SECONDS = 1
DRONE = "[iso: 100] [latitude: 48.8584{n}] [longitude: 2.2945{n}]"
WORDS = "Words {n}"
SCRIPT = """[Script Info]
Original Script: SECRET author
ScriptType: v4.00+

[V4+ Styles]
Format: Name, Fontname, Fontsize
Style: Default,Arial,16

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
Dialogue: 0,0:00:00.00,0:00:00.80,Default,,0,0,0,,Words of a script
"""


def marks_in(path: Path) -> list[bytes]:
    data = path.read_bytes()
    return [mark for mark in MARKS if mark in data]


def notices(report: RenderReport) -> list[str]:
    return [event.message for event in report.events if "--metadata keep" in event.message]


def text_file(path: Path, cue: str) -> Path:
    cues = (
        f"{n + 1}\n00:00:00,{400 * n:03}\x20--> 00:00:00,{400 * n + 350:03}\n{cue.format(n=n)}\n"
        for n in range(2)
    )
    path.write_text("\n".join(cues))
    return path


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plain one, with keyframes."""
    path = tmp_path_factory.mktemp("clip") / "clip.mp4"
    video = VideoSpec(times=regular_times(25 * SECONDS), options=FAST)
    return write_movie(path, video, [SoundSpec(seconds=SECONDS)])


def phone(clip: Path, target: Path) -> Path:
    """A file as phones write them: keys of their own, names of the device in the tracks, a
    timecode."""
    options = [x for key, value in TAGS.items() for x in ("-metadata", f"{key}={value}")]
    options += ["-metadata:s:v", "handler_name=SECRET camera"]
    options += ["-metadata", "creation_time=2021-02-03T04:05:06Z", "-timecode", "13:14:15:16"]
    ffmpeg("-i", clip, "-c", "copy", "-movflags", "use_metadata_tags", *options, target)
    return target


def drone(clip: Path, target: Path) -> Path:
    """Two text tracks, the first of which has coordinates; chapters with authors."""
    tags = target.with_suffix(".txt")
    chapters = "".join(
        f"[CHAPTER]\nTIMEBASE=1/1000\nSTART={400 * n}\nEND={400 * n + 400}\ntitle=Part {n}\n"
        "ARTIST=SECRET speaker\n"
        for n in range(2)
    )
    tags.write_text(f";FFMETADATA1\ntitle=A film\nartist=SECRET pilot\n{chapters}")
    texts = [
        text_file(target.with_name("drone.srt"), DRONE),
        text_file(target.with_name("words.srt"), WORDS),
    ]
    if target.suffix == ".mkv":
        texts.append(target.with_name("script.ass"))
        texts[-1].write_text(SCRIPT)
    inputs = [x for text in texts for x in ("-i", text)]
    maps = [x for number in range(len(texts) + 1) for x in ("-map", str(number))]
    codec = "copy" if target.suffix == ".mkv" else "mov_text"
    meta = ["-i", tags, "-map_metadata", str(len(texts) + 1)]
    meta += ["-metadata:s:s:1", "language=ger", "-metadata:s:a", "title=Original"]
    ffmpeg("-i", clip, *inputs, *meta, *maps, "-c", "copy", "-c:s", codec, target)
    return target


def telemetry(clip: Path, target: Path) -> Path:
    """A data track of coordinates, beside chapters."""
    made = drone(clip, target.with_name("drone.mp4"))
    ffmpeg("-i", made, "-map", "0:v", "-map", "0:a", "-map", "0:s:0", "-c", "copy", target)
    data = target.read_bytes()
    target.write_bytes(data.replace(b"tx3g", b"gpmd").replace(b"sbtl", b"meta"))
    return target


SOURCES = {
    "phone": (phone, ".mov", "com.apple.quicktime.location.ISO6709"),
    "drone": (drone, ".mkv", "subtitle track 2 (coordinates)"),
    "telemetry": (telemetry, ".mp4", "data track 2 (bin_data)"),
}


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest, clip: Path, tmp_path: Path) -> tuple[Path, str]:
    make, suffix, named = SOURCES[request.param]
    path = make(clip, tmp_path / f"in{suffix}")
    assert b"48.8584" in path.read_bytes()
    return path, named


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", *map(slow, (".mov", ".webm", ".ts", ".avi"))])
def test_nothing_that_identifies_is_in_the_output(
    source: tuple[Path, str], suffix: str, tmp_path: Path
) -> None:
    path, named = source
    target = tmp_path / f"out{suffix}"
    codec = "vp9" if suffix == ".webm" else "auto"
    given = AS_IT_IS | {"codec": codec} | ({"speed": None} if codec == "vp9" else {})
    report = bgsoft.render(path, target, **given, **HIDE)
    assert marks_in(target) == []
    (notice,) = notices(report)
    assert named in notice
    if suffix in (".mp4", ".mkv"):
        described = described_by_ffmpeg(target)
        assert re.search(r"(?i)title +: A film", described)
        if path.suffix == ".mkv":
            assert re.search(r"(?i)title +: Part 1", described)
            assert re.search(r"\((ger|deu)\).*: Subtitle", described)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, True),
        slow({"metadata": "keep"}, True),
        ({"metadata": "keep", **HIDE}, True),
        ({"metadata": "strip"}, False),
        slow({"face": "anonymize"}, False),
        ({"subjects": 0, "face": "anonymize"}, False),
    ],
)
def test_a_setting_decides(given: dict[str, Any], kept: bool, clip: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.mov"
    report = bgsoft.render(phone(clip, tmp_path / "in.mov"), target, **AS_IT_IS | given)
    assert (set(marks_in(target)) == set(MARKS)) is kept
    assert (notices(report) == []) is kept


def test_attachments_and_covers_go_with_the_rest(clip: Path, tmp_path: Path) -> None:
    attached = tmp_path / "track.gpx"
    attached.write_bytes(b"SECRET gpx")
    source, target = tmp_path / "in.mkv", tmp_path / "out.mkv"
    mime = ("-metadata:s:t", "mimetype=application/gpx+xml")
    ffmpeg("-i", clip, "-c", "copy", "-attach", attached, *mime, source)
    report = bgsoft.render(source, target, metadata="strip", **AS_IT_IS)
    assert marks_in(target) == []
    (notice,) = notices(report)
    assert "attachment track.gpx" in notice


def test_a_matte_has_no_tags(clip: Path, tmp_path: Path) -> None:
    matte = tmp_path / "matte.mov"
    source = phone(clip, tmp_path / "in.mov")
    bgsoft.render(source, tmp_path / "out.mov", matte_out=matte, **AS_IT_IS)
    assert marks_in(matte) == []


@pytest.mark.usefixtures(_short_chunks.__name__)
def test_chunks_leave_out_what_the_whole_does(tmp_path: Path) -> None:
    video = VideoSpec(times=regular_times(72), options=FAST)
    long = write_movie(tmp_path / "long.mp4", video, [SoundSpec(seconds=2)])
    source, target = phone(long, tmp_path / "in.mov"), tmp_path / "out.mov"
    given = {"effect": "dim", "strength": 0.0, "face": "off", "matte": "fast", "temporal": 0.0}
    report = render_in_chunks(settings(source, target, chunks=3, mask_every=16, **given, **HIDE))
    assert report.parts is not None
    assert len(report.parts) > 1
    assert marks_in(target) == []
    (notice,) = notices(report)
    whole = bgsoft.render(source, tmp_path / "whole.mov", chunks=1, **AS_IT_IS | HIDE)
    assert notices(whole) == [notice]


@pytest.mark.parametrize("suffix", [".mkv", ".nut"])
def test_text_of_a_pipe_ends_where_coordinates_begin(
    clip: Path, tmp_path: Path, suffix: str
) -> None:
    source, target = drone(clip, tmp_path / "in.mkv"), tmp_path / f"out{suffix}"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    sender = threading.Thread(target=lambda: pipe.write_bytes(source.read_bytes()))
    sender.start()
    given = AS_IT_IS if suffix == ".mkv" else {k: v for k, v in AS_IT_IS.items() if k != "speed"}
    report = bgsoft.render(pipe, target, **given, **HIDE)
    sender.join()
    assert marks_in(target) == []
    told = [event.message for event in report.events]
    if suffix == ".mkv":
        assert "subtitle track 2 ends where coordinates begin" in told
        assert b"Words 1" in target.read_bytes()
    (notice,) = notices(report)
    assert "ARTIST" in notice


def test_comparisons_know_what_was_left_out(source: tuple[Path, str], tmp_path: Path) -> None:
    path, _ = source
    target = tmp_path / f"out{path.suffix}"
    bgsoft.render(path, target, metadata="strip", **AS_IT_IS)
    result = compare(path, target, vmaf=False, limits=Limits(strict=True))
    assert [check for check in result.checks if not check.ok] == []
    (check,) = [check for check in result.checks if check.name == "identifying metadata"]
    assert path.suffix == ".mp4" or "artist" in check.detail
    # A file that lost some of it has not been stripped.
    some = tmp_path / f"some{path.suffix}"
    ffmpeg("-i", target, "-map", "0", "-c", "copy", "-metadata", "comment=other", some)
    if path.suffix == ".mov":
        result = compare(path, some, vmaf=False, limits=Limits(strict=True))
        assert "file tags" in {check.name for check in result.checks if not check.ok}


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".tif", ".mp4"])
@pytest.mark.parametrize("kind", ["jpg", *map(slow, ("png", "webp", "tif"))])
def test_pictures_are_written_without(kind: str, suffix: str, tmp_path: Path) -> None:
    thumbnail = io.BytesIO()
    Image.new("RGB", (8, 8)).save(thumbnail, "JPEG", comment=b"SECRET thumbnail")
    exif = Image.Exif()
    exif[271], exif[272], exif[315] = "SECRET make", "SECRET model", "SECRET owner"
    exif.get_ifd(0x8825)[29] = "48.8584"
    exif.get_ifd(0x8769)[42033] = "SECRET serial"
    source, target = tmp_path / f"in.{kind}", tmp_path / f"out{suffix}"
    more: dict[str, Any] = {} if kind == "png" else {"xmp": b"<x>SECRET xmp</x>"}
    if kind == "jpg":
        more["comment"] = b"SECRET comment"
    if kind == "tif":
        more = {}
    Image.fromarray(colourful()).save(source, exif=exif, **more)
    placed = kind != "tif"  # Pillow writes no further directories into it
    assert set(marks_in(source)) == {*MARKS[not placed :]}
    given = {k: v for k, v in AS_IT_IS.items() if k != "speed"}
    report = bgsoft.render(source, target, **given, **HIDE)
    assert marks_in(target) == []
    (notice,) = [e.message for e in report.events if "metadata of pictures" in e.message]
    wanted = {"make", "model", "artist", *(("GPS", "EXIF") if placed else ())}
    assert wanted <= {*notice.split(" left out")[0].split(", ")}
    if more:
        assert "XMP" in notice


def test_upright_pictures_are_no_news(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[274] = 1
    Image.fromarray(colourful()).save(tmp_path / "in.jpg", exif=exif)
    given = {k: v for k, v in AS_IT_IS.items() if k != "speed"}
    report = bgsoft.render(tmp_path / "in.jpg", tmp_path / "out.png", **given)
    assert not [event for event in report.events if event.kind == "notice"]


def test_chapter_titles_do_not_hide_a_data_track(clip: Path, tmp_path: Path) -> None:
    """MP4 keeps chapters in a data track, which the muxer writes; other data tracks are copied."""
    source = telemetry(clip, tmp_path / "in.mp4")
    target = tmp_path / "out.mp4"
    bgsoft.render(source, target, **AS_IT_IS)
    assert b"48.8584" in target.read_bytes()
    with av.open(str(target)) as file:
        assert len(file.chapters()) == 2
        assert [stream.type for stream in file.streams].count("data") == 2
