"""Writes the messages of frames (captions, HDR10+, …) into the packets of these frames."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from av.packet import Packet

from bgsoft.media.inventory import CARRIED, Kind
from bgsoft.media.messages import REGISTERED_DATA, START, UNITS
from bgsoft.settings.config import Codec

_SEI_HEADERS = {Codec.H264: b"\x06", Codec.HEVC: b"\x4e\x01"}
"""Header of a prefix SEI unit (ITU-T H.264, 7.3.1; H.265, 7.3.1.2)."""
_NEEDS_ESCAPE = re.compile(rb"\0\0(?=[\0-\3])")


class MessageWriter:
    """Passes messages from a frame to its packet.

    Args:
        codec: The output's codec. Its packets are Annex B.
        written: Counts the messages that are passed on, by kind.
    """

    def __init__(self, codec: Codec, written: Counter[str]) -> None:
        self._written = written
        self._codec = codec
        self._takes = CARRIED.get(codec, frozenset[Kind]())
        self._waiting: dict[int, list[tuple[str, bytes]]] = {}
        """Messages of the frames inside the encoder, by output timestamp."""

    def enter(self, pts: int, messages: Sequence[tuple[str, bytes]]) -> None:
        """Remember the messages of a frame that goes into the encoder."""
        taken = [each for each in messages if each[0] in self._takes and each[1]]
        if taken:
            self._waiting[pts] = taken

    def written(self, data: bytes, pts: int) -> bytes:
        """Return a coded picture with its messages."""
        messages = self._waiting.pop(pts, None)
        if messages is None:
            return data
        self._written.update(kind for kind, _ in messages)
        return with_messages(data, self._codec, [payload for _, payload in messages])

    def with_messages(self, packet: Packet[Any]) -> Packet[Any]:
        """Return a packet with its messages; the same packet if there are none."""
        if packet.pts not in self._waiting:
            return packet
        made: Packet[Any] = Packet(self.written(bytes(packet), packet.pts))
        made.stream, made.time_base = packet.stream, packet.time_base
        made.pts, made.dts, made.duration = packet.pts, packet.dts, packet.duration
        made.is_keyframe = packet.is_keyframe
        return made


def with_messages(data: bytes, codec: Codec, payloads: Sequence[bytes]) -> bytes:
    """Insert an SEI unit before the first slice of a coded picture.

    Args:
        data: One picture, Annex B.
        codec: H.264 or HEVC.
        payloads: Messages per ITU-T T.35, starting with the country code.
    """
    sei = b"".join(
        bytes((REGISTERED_DATA, *[0xFF] * (len(payload) // 0xFF), len(payload) % 0xFF)) + payload
        for payload in payloads
    )
    unit = START + _SEI_HEADERS[codec] + _NEEDS_ESCAPE.sub(b"\0\0\3", sei + b"\x80")
    layout, at = UNITS[codec], data.find(START)
    while layout.kind(data, at + len(START)) not in layout.pictures:
        at = data.find(START, at + len(START))
    at -= data[at - 1 : at] == b"\0"  # a start code may have a fourth byte
    return data[:at] + b"\0" + unit + data[at:]
