"""Metadata that count as identifying people or places."""

from __future__ import annotations

import struct

import pytest

from bgsoft.media.identifying import MetadataFilter, anonymous_header, has_coordinates, identifies


@pytest.mark.parametrize(
    "text",
    [
        "[iso : 100] [latitude: 48.8584] [longitude: 2.2945] [rel_alt: 1.1]",
        "[latitude : 48.9] [longtitude : -2.3]",
        "GPS(113.9421,22.5312,19) BAROMETER:1.2",
        "F/2.8, SS 206, ISO 150, GPS (2.2945, 48.8584, 16), D 24.26m",
        "HOME(149.0251,-20.2532) 2017.08.05 14:11:51",
        "GPS (E: 8.6, N: 47.3, 400m)",
        "N:48.8584 E:2.2945 31 km/h",
        "48.8584N 2.2945E",
        "48°51′30.2″N 2°17′40.2″E",
        "48.8584° N, 2.2945° E",
        "Lat: 48.8584 Lon: 2.2945",
        '{"lat": 48.8584, "lng": 2.2945}',
        "{\\b1}48.8584{\\b0}, <i>2.2945</i>",
        "$GPRMC,123519,A,4807.038,N,01131.000,E,022.4,084.4,230394,003.1,W",
        "+48.8584+002.2945/",
        "+4851+00217/",
        "geo:48.85,2.29",
        "31U DQ 48251 11932",
        "48,8584; 2,2945",
        "latitude: 48.85".encode("utf-16-be"),
    ],
)
def test_coordinates_are_seen(text: str | bytes) -> None:
    assert has_coordinates(text)


@pytest.mark.parametrize(
    "text",
    [
        "Hello, it's 10:30. Where are you?",
        "How long? 5 minutes.",
        "Mam 25 lat. 3 dni temu...",
        "It cost 1,000, 2,000 or 3,500 dollars",
        "home, 3.30 in the morning",
        "Pi is 3.14159",
        "The GPS is broken.",
        "It was 35° in the shade.",
        "Call 555-1234-5678/9",
        "S01E02 N. 5, E. 3",
        "Das Haus: 12.5 m x 30.2 m",
        b"\0\x05words",
        '<font size="28">2024.05.06 07:08:09</font>',
    ],
)
def test_ordinary_words_are_no_coordinates(text: str | bytes) -> None:
    assert not has_coordinates(text)


def test_unknown_tags_identify() -> None:
    for key in ("title", "TITLE", "title-eng", "language", "genre"):
        assert not identifies(key, "a film")
    for key in ("location", "com.apple.quicktime.make", "creation_time", "artist", "x-new-camera"):
        assert identifies(key, "a film")
    assert identifies("title", "Filmed at 48.8584, 2.2945")
    assert not identifies("handler_name", "SoundHandler")
    assert identifies("handler_name", "GoPro AVC")


def test_a_filter_names_everything_once() -> None:
    strict, lax = MetadataFilter(strips=True), MetadataFilter(strips=False)
    tags = {"title": "t", "make": "m", "model": "x"}
    for _ in range(2):
        assert strict.tags(tags) == {"title": "t"}
        strict.leave_out("data track 2 (gpmd)")
    assert lax.tags(tags) == tags
    assert lax.notice is None
    assert (strict.notice or "").startswith("tags make, model, data track 2 (gpmd) left out: ")


def vorbis(comments: list[bytes], laced: bool) -> bytes:
    """Vorbis's three headers, as Matroska or as Ogg's reader of FFmpeg has them."""
    listed = b"".join(struct.pack("<I", len(text)) + text for text in comments)
    vendor = b"Xiph"
    comment = b"\x03vorbis" + struct.pack("<I", len(vendor)) + vendor
    comment += struct.pack("<I", len(comments)) + listed + b"\x01"
    parts = [b"\x01vorbis".ljust(30, b"i"), comment, b"\x05vorbis" + bytes(300)]
    if not laced:
        return b"".join(struct.pack(">H", len(part)) + part for part in parts)
    sizes = b"".join(b"\xff" * (len(p) // 255) + bytes([len(p) % 255]) for p in parts[:2])
    return b"\x02" + sizes + b"".join(parts)


@pytest.mark.parametrize("laced", [True, False])
def test_vorbis_headers_lose_their_comments(laced: bool) -> None:
    header = vorbis([b"ARTIST=Jane Doe" + 300 * b"e", b"LOCATION=48.8584"], laced)
    cleaned = anonymous_header("vorbis", header)
    assert b"Jane" not in cleaned
    assert b"48.8584" not in cleaned
    empty = b"\x03vorbis" + bytes(8) + b"\x01"
    parts = [b"\x01vorbis".ljust(30, b"i"), empty, b"\x05vorbis" + bytes(300)]
    assert cleaned == bytes([2, 30, len(empty)]) + b"".join(parts)
    plain = vorbis([b"encoder=Lavc60 libvorbis"], laced)
    assert anonymous_header("vorbis", plain) == plain


def test_scripts_lose_authors_comments_and_file_names() -> None:
    header = (
        b"[Script Info]\r\n; by Jane\r\nTitle: t\r\nOriginal Script: Jane Doe\r\nPlayResX: 384\r\n"
        b"[Aegisub Project Garbage]\r\nAudio File: /home/jane/a.wav\r\n"
        b"[V4+ Styles]\r\n; Jane's\r\nFormat: Name, Fontname\r\nStyle: Default,Arial\r\n"
        b"[Fonts]\r\nfontname: arial_0.ttf\r\n[\"AB'C]D\r\nEF[]#\r\n"
        b"[Events]\r\nFormat: Layer, Start\r\n"
        b"Comment: 0,0:00:01.00,0:00:02.00,Default,Jane,0,0,0,,filmed by Jane\r\n"
    )
    assert anonymous_header("ass", header).decode() == (
        "[Script Info]\r\nTitle: t\r\nPlayResX: 384\r\n"
        "[V4+ Styles]\r\nFormat: Name, Fontname\r\nStyle: Default,Arial\r\n"
        "[Fonts]\r\nfontname: arial_0.ttf\r\n[\"AB'C]D\r\nEF[]#\r\n"
        "[Events]\r\nFormat: Layer, Start\r\n"
    )
    assert anonymous_header("subrip", header) == header


def test_webvtt_headers_lose_titles_and_notes() -> None:
    style = b"STYLE\n::cue {\n  color: red\n}"
    header = b"\xef\xbb\xbfWEBVTT - by Jane\r\n\r\nNOTE\r\nfilmed by Jane\r\n\r\n" + style
    assert anonymous_header("webvtt", header) == b"WEBVTT\n\n" + style
    assert anonymous_header("webvtt", b"WEBVTT\nRegion: id=Jane") == b"WEBVTT"
    assert anonymous_header("webvtt", b"WEBVTT") == b"WEBVTT"
