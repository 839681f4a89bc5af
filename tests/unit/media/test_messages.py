"""Messages in packets, from FFmpeg's encoders and written by hand."""

from __future__ import annotations

from pathlib import Path

import av
import pytest

from bgsoft.encode.messages import with_messages
from bgsoft.media.inventory import Kind
from bgsoft.media.messages import Message, MessageReader
from bgsoft.media.source import read_packets
from bgsoft.settings.config import Codec
from tests.carried import write_captioned
from tests.outside import ffmpeg
from tests.synthetic import VideoSpec, regular_times, write_video

CAPTIONS = b"\xb5\x00\x31GA94\x03\x41\xff\xfc\x80\x80\xff"
HDR10_PLUS = b"\xb5\x00\x3c\x00\x01\x04\x01\x40\0\0\0\0\1"
SLICE = b"\0\0\1"


def read(codec: str, data: bytes, *, fields: bool = False) -> tuple[Message, ...]:
    return MessageReader(codec, None, fields=fields).read(av.Packet(data))


def kinds_in(path: Path) -> list[list[Kind]]:
    with av.open(str(path)) as source:
        context = source.streams.video[0].codec_context
        reader = MessageReader(context.codec.canonical_name, context.extradata)
    return [[each.kind for each in reader.read(packet)] for packet in read_packets(path, 0)]


@pytest.mark.parametrize("ending", [".mp4", ".mkv", ".ts", ".h264"])
def test_user_data_is_found_and_x264_s_own_is_none(tmp_path: Path, ending: str) -> None:
    options = {"preset": "ultrafast", "bf": "0"}
    plain = write_video(tmp_path / "a.mp4", VideoSpec(times=regular_times(12), options=options))
    assert kinds_in(plain) == [[]] * 12
    path = tmp_path / f"b{ending}"
    added = "h264_metadata=sei_user_data='086f3693-b7b3-4f2c-9653-21492feee5b8+hello'"
    ffmpeg("-i", plain, "-c", "copy", "-bsf:v", added, path)
    assert kinds_in(path) == [[Kind.USER_DATA], *[[]] * 11]


def test_captions_of_mpeg_2(tmp_path: Path) -> None:
    path = write_captioned(tmp_path / "a.ts", "mpeg2video", frames=12, every=3)
    assert sorted(kinds_in(path)) == [*[[]] * 8, *[[Kind.CAPTIONS]] * 4]


@pytest.mark.parametrize("begin", [b"CC\x01\xf8", b"\x03\x01", b"\x03\x81"])
def test_other_captions_of_mpeg_2_are_found_without_being_passed_on(begin: bytes) -> None:
    data = b"\0\0\1\0head\0\0\1\xb2" + begin + b"rest\0\0\1\1slice\0\0\1\2slice"
    assert read("mpeg2video", data) == (Message(Kind.CAPTIONS),)


@pytest.mark.parametrize("codec", [Codec.H264, Codec.HEVC])
@pytest.mark.parametrize("begin", [b"\0\0\1", b"\0\0\0\1"])
def test_written_messages_are_read(codec: Codec, begin: bytes) -> None:
    units = {Codec.H264: (b"\x67", b"\x65"), Codec.HEVC: (b"\x42\x01", b"\x26\x01")}[codec]
    picture = b"".join(begin + unit + b"abc" for unit in units)
    long = HDR10_PLUS + b"\0\0\3\0" * 100
    data = with_messages(picture, codec, [CAPTIONS, long])
    assert read(str(codec), data) == (
        Message(Kind.CAPTIONS, CAPTIONS),
        Message(Kind.HDR10_PLUS, long),
    )
    assert data.startswith(begin + units[0] + b"abc")
    assert data.endswith(begin + units[1] + b"abc")
    assert b"\0\0\0\0" not in data


def test_both_fields_have_messages() -> None:
    field = with_messages(SLICE + b"\x41abc", Codec.H264, [CAPTIONS])
    assert len(read("h264", field * 2)) == 1
    assert read("h264", field * 2, fields=True) == (Message(Kind.CAPTIONS, CAPTIONS),) * 2


def test_metadata_of_av1() -> None:
    # AV1 bitstream specification, 5.3.1 and 5.8.1: type 5 with a size, ITU-T T.35 is 4.
    body = b"\x04" + CAPTIONS + b"\x80"
    data = b"\x12\0" + bytes((5 << 3 | 2, len(body))) + body + bytes((6 << 3 | 2, 3)) + b"abc"
    assert read("av1", data) == (Message(Kind.CAPTIONS, CAPTIONS),)


@pytest.mark.parametrize("codec", ["h264", "hevc", "vvc", "av1", "mpeg2video", "prores"])
@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\1", b"\0\0\1\x06\x04\xff", b"\xff" * 40])
def test_damaged_packets_are_no_fault(codec: str, data: bytes) -> None:
    assert read(codec, data) == ()
    assert MessageReader(codec, b"\1" * 30).read(av.Packet(data)) == ()
