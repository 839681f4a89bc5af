"""Chapters, covers, attachments, tags and flags: kept, or reported as left out."""

from __future__ import annotations

import base64
from fractions import Fraction
from pathlib import Path

import av
import pytest
from av.container import OutputContainer
from av.stream import Disposition, Stream

from bgsoft.media.pyav import TAG_OPTIONS
from tests.marks import crossed
from tests.movies import CHAPTERS, film, payloads, remux, rerender, told
from tests.outside import ffmpeg
from tests.synthetic import SoundSpec, write_movie, write_video


@pytest.mark.parametrize("extension", [".mp4", ".mov", ".mkv", ".ts"])
def test_mp4_chapters(tmp_path: Path, extension: str) -> None:
    """MP4 keeps titles in a track, which is neither copied nor reported as missing."""
    source = tmp_path / "in.mp4"
    write_movie(source, film(), chapters=CHAPTERS)
    target = tmp_path / f"out{extension}"
    _, events = rerender(source, target)
    assert len(events) == (1 if extension == ".ts" else 0)
    with av.open(str(target), mode="r") as container:
        titles = [chapter["metadata"]["title"] for chapter in container.chapters()]
        kinds = [stream.type for stream in container.streams]
    assert titles == ([] if extension == ".ts" else ["opening", "middle", "end"])
    assert kinds.count("data") == (1 if extension in (".mp4", ".mov") else 0)


@pytest.mark.parametrize(
    ("extension", "title"), [(".mp4", "Chapter 2"), (".mov", "Chapter 2"), (".mkv", None)]
)
def test_an_untitled_chapter_does_not_take_the_title_of_the_next_one(
    tmp_path: Path, extension: str, title: str | None
) -> None:
    titled, source, target = (tmp_path / name for name in ("a.mkv", "b.mkv", f"c{extension}"))
    write_movie(titled, film(), chapters=CHAPTERS)
    ffmpeg("-i", titled, "-c", "copy", "-metadata:c:1", "title=", source)
    rerender(source, target)
    with av.open(str(target), mode="r") as container:
        chapters = container.chapters()
    assert [each["metadata"].get("title") for each in chapters] == ["opening", title, "end"]
    ends = [float(each["end"] * each["time_base"]) for each in chapters]
    assert ends == pytest.approx([0.5, 1.5, 2.0], abs=0.01)


@pytest.mark.parametrize(
    ("extension", "lacking"), [(".mp4", ""), (".mkv", ""), (".webm", "WebM"), (".mov", "QuickTime")]
)
def test_cover_art(tmp_path: Path, extension: str, lacking: str) -> None:
    source = tmp_path / "in.mp4"
    write_movie(source, film(1), [SoundSpec()], cover=True)
    (picture,) = payloads(source, "video", 1)
    target = tmp_path / f"out{extension}"
    _, events = rerender(source, target)
    with av.open(str(target), mode="r") as container:
        covers = [s for s in container.streams.video if s.disposition & Disposition.attached_pic]
        if lacking:
            assert covers == []
            assert f"cover picture left out: {lacking} cannot hold it" in told(events)
            return
        (cover,) = covers
        (data,) = [bytes(p) for p in container.demux(cover) if p.size]
    assert data == picture


def test_attachments_are_kept_in_matroska(tmp_path: Path) -> None:
    font = ("serif.ttf", "font/ttf", b"not really a font")
    source = remux(
        write_video(tmp_path / "clip.mkv", film(1)),
        tmp_path / "in.mkv",
        lambda _, output: output.add_attachment(*font),
    )
    target = tmp_path / "out.mkv"
    _, events = rerender(source, target)
    assert events == []
    with av.open(str(target), mode="r") as container:
        (kept,) = [s for s in container.streams if s.type == "attachment"]
        assert (kept.name, kept.mimetype, kept.data) == font
    _, events = rerender(source, tmp_path / "out.mp4")
    assert [event.message for event in events if "serif.ttf" in event.message]


def test_attachments_but_fonts_may_be_left_out(tmp_path: Path) -> None:
    """Attachments may show hidden places, whatever their names are."""
    attached = {
        "serif.ttf": ("font/ttf", b"\0\1\0\0..."),
        "sans.otf": ("application/vnd.ms-opentype", b"OTTO..."),
        "still.webp": ("image/webp", b"not really a picture"),
        "still.jpg": ("application/octet-stream", b"\xff\xd8\xff..."),
        "STILL.JPG": ("IMAGE/JPEG", b"\xff\xd8\xff..."),
        "source.mp4": ("video/mp4", b"....ftypisom"),
        "picture.ttf": ("font/ttf", b"\xff\xd8\xff..."),
        "unnamed": ("application/octet-stream", b"OTTO..."),
    }

    def attach(_: object, output: OutputContainer) -> None:
        for name, (declared, data) in attached.items():
            output.add_attachment(name, declared, data)

    source = remux(write_video(tmp_path / "clip.mkv", film(1)), tmp_path / "in.mkv", attach)
    for pictures, names in ((True, [*attached]), (False, ["serif.ttf", "sans.otf"])):
        target = tmp_path / "out.mkv"
        _, events = rerender(source, target, pictures=pictures)
        with av.open(str(target), mode="r") as container:
            assert [s.metadata["filename"] for s in container.streams if s.index > 0] == names
        left_out = [name for name in attached if name not in names]
        reason = "left out: nothing is hidden or replaced in it"
        assert [event.message for event in events] == [
            f"attachment {name} {reason}" for name in left_out
        ]


@crossed(
    everywhere=[True, False],
    picture=[
        ("METADATA_BLOCK_PICTURE", "AAAA"),
        ("COVERARTMIME", "image/jpeg"),
        ("NOTE", base64.b64encode(b"\xff\xd8\xff\xe0" + bytes(100)).decode()),
        ("NOTE", "data:image/gif;base64," + base64.b64encode(b"GIF89a" + bytes(100)).decode()),
        ("NOTE", base64.b64encode(b"\0\0\0\3\0\0\0\x0aimage/jpeg" + bytes(100)).decode()),
    ],
)
def test_tags_that_are_pictures_may_be_left_out(
    tmp_path: Path, picture: tuple[str, str], everywhere: bool
) -> None:
    key, value = picture
    others = {"ARTIST": "somebody", "URL": "https://example.org/" + 60 * "a"}

    def tag(_: object, output: OutputContainer) -> None:
        for labelled in (output, *output.streams):
            labelled.metadata.update({**others, key: value} if everywhere else others)
        tags = {"title": "a part", key: value}
        chapter = {"id": 1, "start": 0, "end": 500, "time_base": Fraction(1, 1000)}
        output.set_chapters([{**chapter, "metadata": tags}])  # type: ignore[typeddict-item]

    clip = write_movie(tmp_path / "clip.mkv", film(1), [SoundSpec()])
    source, target = remux(clip, tmp_path / "in.mkv", tag), tmp_path / "out.mkv"
    for pictures in (True, False):
        _, events = rerender(source, target, pictures=pictures)
        with av.open(str(target), mode="r") as container:
            chapters = [chapter["metadata"] for chapter in container.chapters()]
            labelled = [container.metadata, *(stream.metadata for stream in container.streams)]
        assert all(others.items() <= tags.items() for tags in labelled)
        found = {tags.get(key) for tags in (chapters[0], *(labelled if everywhere else ()))}
        assert found == {value if pictures else None}
        left_out = [] if pictures else [f"tag {key} left out: nothing is hidden or replaced in it"]
        assert [event.message for event in events] == left_out


def test_tags_of_the_old_file_are_not_copied(tmp_path: Path) -> None:
    source = tmp_path / "in.mp4"
    tags = {"title": "t", "creation_time": "2024-05-06T07:08:09.000000Z"}
    write_movie(source, film(1), metadata=tags)
    target = tmp_path / "out.mkv"
    rerender(source, target)
    with av.open(str(target), mode="r") as container:
        metadata = {key.lower(): value for key, value in container.metadata.items()}
    assert metadata["title"] == "t"
    assert metadata["creation_time"].startswith("2024-05-06T07:08:09")
    assert not {"major_brand", "compatible_brands", "minor_version"} & metadata.keys()


def test_a_phone_s_tags_are_kept(tmp_path: Path) -> None:
    source = tmp_path / "in.mov"
    tags = {"com.apple.quicktime.make": "Maker", "com.apple.quicktime.model": "Model 7"}
    write_movie(source, film(1), metadata=tags, options={"movflags": "use_metadata_tags"})
    target = tmp_path / "out.mov"
    rerender(source, target)
    with av.open(str(target), mode="r") as container:
        assert tags.items() <= container.metadata.items()


@pytest.mark.parametrize(
    ("suffix", "lost"),
    [
        (".mp4", ""),
        (".mov", ""),
        (".ts", "the default flag of audio track 1"),
        (".avi", "the default flag of audio track 1"),
    ],
)
@pytest.mark.parametrize("shown", [True, False])
def test_default_is_kept_or_reported(tmp_path: Path, suffix: str, lost: str, shown: bool) -> None:
    plain, source = tmp_path / "plain.mkv", tmp_path / "in.mkv"
    write_movie(plain, film(1), [SoundSpec(), SoundSpec()], subtitles=True)
    wanted = [True, shown, not shown, shown]

    def change(streams: list[Stream], _output: OutputContainer) -> None:
        for stream, is_default in zip(streams, wanted, strict=True):
            stream.disposition = Disposition.default if is_default else Disposition(0)

    remux(plain, source, change)
    target = tmp_path / f"out{suffix}"
    _, events = rerender(source, target)
    assert (lost in told(events)) is (not shown or not lost)
    if not lost:
        with av.open(str(target), mode="r") as container:
            found = [bool(stream.disposition & Disposition.default) for stream in container.streams]
        assert found == wanted
        text = ffmpeg("-i", target, "-map", "0:s:0", "-f", "srt", "-")
        assert len(text.split("-->")) == 3


def test_default_and_forced_are_kept(tmp_path: Path) -> None:
    plain, source = tmp_path / "plain.mkv", tmp_path / "in.mkv"
    write_movie(plain, film(1), [SoundSpec(), SoundSpec()], subtitles=True)
    wanted = [Disposition.default, Disposition(0), Disposition.default, Disposition.forced]

    def change(streams: list[Stream], _output: OutputContainer) -> None:
        for stream, disposition in zip(streams, wanted, strict=True):
            stream.disposition = disposition
            stream.metadata["title"] = f"track {stream.index}"

    remux(plain, source, change)
    target = tmp_path / "out.mkv"
    rerender(source, target)
    with av.open(str(target), mode="r") as container:
        assert [stream.disposition for stream in container.streams] == wanted
        assert [stream.metadata["title"] for stream in container.streams] == [
            f"track {index}" for index in range(4)
        ]


def test_tags_that_are_no_utf8_pass_through(tmp_path: Path) -> None:
    source, target = tmp_path / "in.mkv", tmp_path / "out.mkv"
    title = b"caf\xe9".decode("utf-8", "surrogateescape")  # as written in the days of Latin-1
    with av.open(str(source), "w", **TAG_OPTIONS) as output:
        output.metadata["title"] = title
        stream = output.add_stream("libx264", rate=25)
        stream.width = stream.height = 64
        for frame in (av.VideoFrame(64, 64, "yuv420p"), None):
            output.mux(stream.encode(frame))
    rerender(source, target)
    assert b"caf\xe9" in target.read_bytes()


@pytest.mark.parametrize("suffix", [".mov", ".mp4", ".mkv"])
def test_languages_are_kept(tmp_path: Path, suffix: str) -> None:
    source, target = tmp_path / "in.mp4", tmp_path / f"out{suffix}"
    languages = ["deu", "fra", "fre", "swe", "eng"]
    write_movie(source, film(1), [SoundSpec(seconds=0.2, language=name) for name in languages])
    _, events = rerender(source, target)
    assert events == []
    with av.open(str(target), mode="r") as container:
        assert [stream.language for stream in container.streams.audio] == languages


@pytest.mark.parametrize("suffix", [".mp4", ".mov", ".mkv"])
def test_an_mp4_s_own_keys_are_kept(tmp_path: Path, suffix: str) -> None:
    tags = {"title": "a film", "com.android.version": "15", "mood": "blue"}
    options = {"movflags": "use_metadata_tags"}
    source = write_movie(tmp_path / "in.mp4", film(1), metadata=tags, options=options)
    target = tmp_path / f"out{suffix}"
    _, events = rerender(source, target)
    assert events == []
    with av.open(str(target), mode="r") as container:
        found = {key.lower(): value for key, value in container.metadata.items()}
    assert tags.items() <= found.items()


def test_keys_make_no_room_for_themselves_where_a_cover_is(tmp_path: Path) -> None:
    # MP4's box for any key replaces the one that has the cover.
    plain, source = tmp_path / "plain.mkv", tmp_path / "in.mp4"
    write_movie(source, film(1), metadata={"title": "a film"}, cover=True)
    write_movie(plain, film(1), metadata={"title": "a film", "mood": "blue"})
    for path, words in ((source, ""), (plain, "MP4 cannot hold the tag mood: left out")):
        _, events = rerender(path, tmp_path / "out.mp4")
        assert told(events) == words
        with av.open(str(tmp_path / "out.mp4"), mode="r") as container:
            assert container.metadata["title"] == "a film"


@pytest.mark.parametrize(
    ("suffix", "words"),
    [
        (".mov", ["the tag mood", "the forced flag of subtitle track 0"]),
        (".ts", ["the tags title, mood", "the title of audio track 0"]),
        (".avi", ["the tag mood", "the language 'deu' of audio track 0"]),
    ],
)
def test_what_a_container_passes_over_in_silence_is_reported(
    tmp_path: Path, suffix: str, words: list[str]
) -> None:
    plain, source = tmp_path / "plain.mkv", tmp_path / "in.mkv"
    tags = {"title": "a film", "mood": "blue"}
    sounds = [SoundSpec(codec="ac3", language="deu")]
    write_movie(plain, film(1), sounds, subtitles=True, metadata=tags)

    def change(streams: list[Stream], output: OutputContainer) -> None:
        output.metadata.update(tags)
        streams[1].metadata.update(title="a voice", language="deu")
        streams[2].disposition = Disposition.forced

    remux(plain, source, change)
    _, events = rerender(source, tmp_path / f"out{suffix}")
    (message,) = [event.message for event in events if " cannot hold the " in event.message]
    for word in words:
        assert word in message
