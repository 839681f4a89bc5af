"""Files with more than pictures: captions, and boxes with declarations."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import av
from av.packet import PacketSideData
from av.sidedata.sidedata import Type
from av.video.frame import VideoFrame

_CC_DATA = 23  # AV_PKT_DATA_A53_CC
_SIZE = (64, 48)
_CHILDREN = {b"stsd": 16, b"avc1": 86}
"""Bytes of a box before those that are inside it."""
TRACK = (b"moov", b"trak")
SAMPLE_ENTRY = (*TRACK, b"mdia", b"minf", b"stbl", b"stsd", b"avc1")


def caption(index: int) -> bytes:
    """The closed captions of a frame: one pair of bytes, of its own."""
    return bytes((0xFC, 0x80 | index % 32, 0x80 | index // 32))


def write_captioned(path: Path, encoder: str, frames: int = 12, every: int = 1) -> Path:
    """Write a video whose captions FFmpeg's encoder put in: packets of raw video hand them over.

    Args:
        path: The file.
        encoder: ``libx264`` or ``mpeg2video``.
        frames: How many.
        every: Only every so many have captions.
    """
    raw = av.CodecContext.create("rawvideo", "r")
    raw.width, raw.height = _SIZE
    raw.pix_fmt = "yuv420p"
    with av.open(str(path), "w") as output:
        stream = output.add_stream(encoder, rate=25, width=_SIZE[0], height=_SIZE[1])
        for index in range(frames):
            packet = av.Packet(bytes((index * 7 % 256,)) * (_SIZE[0] * _SIZE[1] * 3 // 2))
            if index % every == 0:
                data = PacketSideData(_CC_DATA, 3)
                data.update(caption(index))
                packet.set_sidedata(data)
            (frame,) = raw.decode(packet)
            assert isinstance(frame, VideoFrame)
            frame.pts, frame.time_base = index, Fraction(1, 25)
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return path


def captions_of(path: Path) -> list[bytes]:
    """The captions of each frame that FFmpeg's decoder finds some in, in order of presentation."""
    with av.open(str(path)) as source:
        found = [frame.side_data.get(Type.A53_CC) for frame in source.decode(video=0)]
        return [bytes(each) for each in found if each is not None]


def box(kind: bytes, *content: bytes) -> bytes:
    """A box of MP4 and QuickTime."""
    data = b"".join(content)
    return struct.pack(">I", 8 + len(data)) + kind + data


def insert_box(path: Path, place: Iterable[bytes], new: bytes) -> Path:
    """Append a box to the first one of a path of boxes; the movie's must be the file's last."""
    data = bytearray(path.read_bytes())
    start, end, around = 0, len(data), []
    for wanted in place:
        at = start
        while data[at + 4 : at + 8] != wanted:
            at += int.from_bytes(data[at : at + 4], "big")
            assert at < end, f"there is no {wanted!r}"
        around.append(at)
        start = at + _CHILDREN.get(wanted, 8)
        end = at + int.from_bytes(data[at : at + 4], "big")
    data[end:end] = new
    for at in around:
        size = int.from_bytes(data[at : at + 4], "big") + len(new)
        data[at : at + 4] = size.to_bytes(4, "big")
    path.write_bytes(data)
    return path


def clean_aperture(size: tuple[int, int], left: int, top: int, right: int, bottom: int) -> bytes:
    """A ``clap`` box (ISO/IEC 14496-12, 12.1.4) for a picture of (width, height)."""
    shown = (size[0] - left - right, 1), (size[1] - top - bottom, 1)
    offsets = (left - right, 2), (top - bottom, 2)
    return box(b"clap", *(struct.pack(">ii", *each) for each in (*shown, *offsets)))


def _boxes(data: bytes, begin: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """(kind, begin, end) of the MP4 boxes in a stretch of bytes."""
    while begin < end:
        size = int.from_bytes(data[begin : begin + 4], "big")
        yield data[begin + 4 : begin + 8], begin, begin + size
        begin += size


def set_edits(path: Path, edits: Sequence[tuple[int, int | None]], track: int = 0) -> None:
    """Give a track of an MP4 another edit list: (length, start or None), milliseconds."""
    with av.open(str(path)) as source:
        tick = source.streams[track].time_base or Fraction(1)
    data = bytearray(path.read_bytes())
    place, inside = [], (0, len(data))
    for kind, number in ((b"moov", 0), (b"trak", track), (b"edts", 0)):
        inside = [box[1:] for box in _boxes(data, *inside) if box[0] == kind][number]
        place.append(inside)
        inside = (inside[0] + 8, inside[1])
    starts = [-1 if start is None else round(start / 1000 / tick) for _, start in edits]
    body = b"".join(
        struct.pack(">Iihh", length, start, 1, 0)
        for (length, _), start in zip(edits, starts, strict=True)
    )
    body = struct.pack(">I4sII", 16 + len(body), b"elst", 0, len(edits)) + body
    begin, end = place.pop()
    data[begin:end] = struct.pack(">I4s", 8 + len(body), b"edts") + body
    grown = 8 + len(body) - (end - begin)
    for begin, end in place:
        data[begin : begin + 4] = struct.pack(">I", end - begin + grown)
    path.write_bytes(data)
