"""Messages in packets of video: captions, HDR10+ metadata, user data and others.

They are read from the packets, not from decoded frames: that is the same for every decoder, and
FFmpeg's own structures lose what a message was. A message that is passed on is one of ITU-T T.35:
a country, a provider, and what that defines. H.264, HEVC and VVC have it as an SEI message, AV1 as
a metadata OBU, MPEG-2 as user data, which leave out the country.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from av.packet import Packet

from bgsoft.media.inventory import Kind
from bgsoft.records import NamedTuple

_AMERICAN = b"\xb5\x00\x31"
"""Country and provider (ATSC) of MPEG-2's user data (ATSC A/53-4, 6.2.3)."""
_REGISTERED = (
    (_AMERICAN + b"GA94\x03", Kind.CAPTIONS),
    (_AMERICAN + b"DTG1", Kind.ACTIVE_FORMAT),
    (b"\xb5\x00\x3c\x00\x01\x04", Kind.HDR10_PLUS),  # SMPTE ST 2094-40
    (b"\x26\x00\x04\x00\x05", Kind.HDR_VIVID),  # CUVA 005.1
    (b"\xb5\x00\x3b", Kind.DOLBY_VISION),
    (b"\xb4\x00\x50", Kind.LCEVC),
)
"""First bytes of each kind of message."""
REGISTERED_DATA, _UNREGISTERED_DATA, _TIME_CODE = 4, 5, 136  # SEI payload types
_ENCODERS = (
    bytes.fromhex("dc45e9bde6d948b7962cd820d923eeef"),
    bytes.fromhex("2ca2de09b51747dbbb55a4fe7fc2fc4e"),
)
"""x264's and x265's own user data, which describe the old coding."""
START = b"\0\0\1"
_SLICES, _USER_DATA = range(1, 0xB0), 0xB2  # start codes of MPEG-2
_LINE_21 = (b"CC\x01\xf8", b"\x03\x01", b"\x03\x81")
"""Captions in MPEG-2 that are no A/53: a DVD's, and those of SCTE 20."""
_OBU_METADATA, _OBU_FRAMES = 5, (3, 4, 6)
_METADATA_T35, _METADATA_TIMECODE = 4, 5


class UnitLayout(NamedTuple):
    """Headers of the units of a codec."""

    header_bytes: int
    byte: int
    shift: int
    mask: int
    """Bits of a unit's header that are its type."""
    sei: int
    """Type of those that hold SEI messages before a picture."""
    pictures: range
    """Types of those that hold pictures."""

    def kind(self, data: bytes, begin: int) -> int:
        """The type of the unit that begins at a place."""
        return data[begin + self.byte] >> self.shift & self.mask


UNITS = {
    "h264": UnitLayout(1, 0, 0, 31, sei=6, pictures=range(1, 6)),  # ITU-T H.264, table 7-1
    "hevc": UnitLayout(2, 0, 1, 63, sei=39, pictures=range(32)),  # ITU-T H.265, table 7-1
    "vvc": UnitLayout(2, 1, 3, 31, sei=23, pictures=range(12)),  # ITU-T H.266, table 5
}
MESSAGE_CODECS = frozenset({*UNITS, "av1", "mpeg1video", "mpeg2video"})
"""Codecs whose messages are read."""


class Message(NamedTuple):
    """A message that comes with a picture."""

    kind: Kind
    payload: bytes = b""
    """Message from its T.35 country on; empty if it has another form and cannot be passed on."""


class MessageReader:
    """Reads the messages in a stream's packets, each of which is a picture.

    Args:
        codec: FFmpeg's name, one of :data:`MESSAGE_CODECS`, or any other: it has none.
        extradata: The stream's description, which tells how units are divided.
        fields: A packet may hold two fields, each with messages before it.
    """

    def __init__(self, codec: str, extradata: bytes | None, *, fields: bool = False) -> None:
        self._codec = codec
        self._prefix = _prefix_bytes(codec, extradata or b"")
        self._fields = fields

    def read(self, packet: Packet[Any]) -> tuple[Message, ...]:
        """The messages of a packet; those of a damaged one may be missing."""
        found: list[Message] = []
        if self._codec in MESSAGE_CODECS:
            with suppress(IndexError):
                found.extend(self._messages(bytes(packet)))
        if packet.has_sidedata("dynamic_hdr10_plus"):  # of VP9 in Matroska
            found.append(Message(Kind.HDR10_PLUS))
        return tuple(found)

    def _messages(self, data: bytes) -> Iterator[Message]:
        if self._codec in UNITS:
            return _sei_of(data, self._prefix, UNITS[self._codec], fields=self._fields)
        return _obus(data) if self._codec == "av1" else _mpeg_user_data(data, fields=self._fields)


def _prefix_bytes(codec: str, extradata: bytes) -> int:
    """Bytes of the length before each unit; 0: start codes are between them (Annex B)."""
    at = {"h264": 4, "hevc": 21, "vvc": 0}.get(codec)
    if at is None or len(extradata) <= at or extradata.startswith((START, b"\0" + START)):
        return 0
    field = extradata[at] >> 1 if codec == "vvc" else extradata[at]
    return 1 + (field & 3)


def _units(data: bytes, prefix: int) -> Iterator[tuple[int, int]]:
    """(begin, end) of the units of H.264, HEVC and VVC."""
    if prefix:
        at = 0
        while at + prefix < len(data):
            begin = at + prefix
            at = begin + int.from_bytes(data[at:begin], "big")
            yield begin, at
        return
    begin = data.find(START) + 3
    while begin >= 3:
        # The end is searched for only if the unit is read: a picture's is long.
        yield begin, -1
        begin = data.find(START, begin) + 3


def _sei_of(data: bytes, prefix: int, layout: UnitLayout, *, fields: bool) -> Iterator[Message]:
    for begin, end in _units(data, prefix):
        kind = layout.kind(data, begin)
        if kind == layout.sei:
            end = data.find(START, begin) if end < 0 else end
            unit = data[begin + layout.header_bytes : end if end >= 0 else len(data)]
            yield from _messages_of(unit.replace(b"\0\0\3", b"\0\0"))
        elif kind in layout.pictures and not fields:
            return  # messages stand before their picture


def _messages_of(sei: bytes) -> Iterator[Message]:
    """The messages of an SEI unit (ITU-T H.264, 7.3.2.3.1)."""
    at = 0
    while at + 2 < len(sei):  # the last byte ends it
        numbers = []
        for _ in range(2):
            number = 0
            while sei[at] == 0xFF:
                number, at = number + 0xFF, at + 1
            numbers.append(number + sei[at])
            at += 1
        kind, size = numbers
        payload, at = sei[at : at + size], at + size
        if kind == REGISTERED_DATA:
            yield _registered(payload)
        elif kind == _TIME_CODE:
            yield Message(Kind.TIMECODES)
        elif kind == _UNREGISTERED_DATA and not payload.startswith(_ENCODERS):
            yield Message(Kind.USER_DATA)


def _registered(payload: bytes) -> Message:
    for begin, kind in _REGISTERED:
        if payload.startswith(begin):
            return Message(kind, payload)
    return Message(Kind.USER_DATA)


def _mpeg_user_data(data: bytes, *, fields: bool) -> Iterator[Message]:
    """User data of MPEG-1 and MPEG-2, which have a start code of their own before the slices."""
    at = data.find(START)
    while at >= 0 and (fields or data[at + 3] not in _SLICES):
        following = data.find(START, at + 3)
        if data[at + 3] == _USER_DATA:
            body = data[at + 4 : following if following >= 0 else len(data)]
            message = _registered(_AMERICAN + body)
            if body.startswith(_LINE_21):
                message = Message(Kind.CAPTIONS)
            if message.kind is not Kind.USER_DATA:
                yield message
        at = following


def _obus(data: bytes) -> Iterator[Message]:
    """Metadata of AV1 (its specification, 5.8)."""
    at = 0
    while at < len(data):
        head = data[at]
        at += 1 + (head >> 2 & 1)
        size, at = _leb128(data, at) if head & 2 else (len(data) - at, at)
        kind, body, at = head >> 3 & 15, data[at : at + size], at + size
        if kind in _OBU_FRAMES:
            return
        if kind == _OBU_METADATA:
            metadata, begin = _leb128(body, 0)
            if metadata == _METADATA_T35:
                yield _registered(body[begin:].rstrip(b"\0").removesuffix(b"\x80"))
            elif metadata == _METADATA_TIMECODE:
                yield Message(Kind.TIMECODES)


def _leb128(data: bytes, at: int) -> tuple[int, int]:
    """A number of AV1's, and where it ends."""
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not data[at - 1] & 0x80:
            return value, at
