"""Contents of a file besides its pictures."""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import field, replace
from fractions import Fraction
from pathlib import Path

import av
from av.container import InputContainer
from av.stream import AttachmentStream, Disposition

from bgsoft.media.identifying import MARKUP, has_coordinates, identifies
from bgsoft.media.info import VideoInfo
from bgsoft.media.messages import MessageReader
from bgsoft.media.probe import probe
from bgsoft.media.pyav import exact
from bgsoft.media.source import open_input
from bgsoft.media.tags import as_video_tag, file_tags, is_picture, said_tags, stream_tags
from bgsoft.media.transcode import READABLE
from bgsoft.records import dataclass

TRACK_KINDS = ("video", "audio", "subtitle")
EARLY_PACKETS = 4
"""More packets than the delay of any encoder takes."""


@dataclass(slots=True, kw_only=True)
class TrackFacts:
    """One stream of a file."""

    kind: str
    """``video``, ``audio`` or ``subtitle``."""
    codec: str
    time_base: Fraction
    tags: dict[str, str]
    """Tags without those that muxers add; keys in lower case."""
    disposition: str
    digests: list[bytes] = field(default_factory=list)
    """SHA-256 of each packet's bytes, in order; empty for video."""
    has_coordinates: bool = False
    """Whether the text of subtitles contains coordinates."""
    early_seconds: list[Fraction | None] = field(default_factory=list)
    """pts of the first packets, up to :data:`EARLY_PACKETS`."""
    lines: list[tuple[Fraction, Fraction]] = field(default_factory=list)
    """Begin and end, in seconds, of the lines of a text subtitle that show something."""


@dataclass(slots=True, kw_only=True)
class FileFacts:
    """The contents of one file."""

    path: Path
    info: VideoInfo
    tags: Mapping[str, str]
    chapters: list[tuple[Fraction, Fraction, str]]
    """(start, end, title), seconds."""
    tracks: list[TrackFacts] = field(default_factory=list)
    """Tracks without cover art; the rendered video track first, the others as in the file."""
    pictures: dict[str, str] = field(default_factory=dict)
    """Covers and attachments: SHA-256 of their bytes by name, such as ``cover 0``."""

    carried: Counter[str] = field(default_factory=Counter)
    """Number of pictures with each kind of message, such as closed captions."""

    def of_kind(self, kind: str) -> list[TrackFacts]:
        return [track for track in self.tracks if track.kind == kind]

    def identifying(self) -> list[str]:
        """Names of tags and tracks that identify people or places."""
        tables = [self.tags, *(track.tags for track in self.tracks)]
        tags = [k for table in tables for k, v in table.items() if identifies(k, v)]
        tracks = [
            f"subtitle track {number}"
            for number, track in enumerate(self.of_kind("subtitle"))
            if track.has_coordinates
        ]
        return [*dict.fromkeys(tags), *tracks]

    def anonymous(self) -> FileFacts:
        """Return the facts without these."""
        tracks = [
            replace(track, tags=_without(track.tags))
            for track in self.tracks
            if not track.has_coordinates
        ]
        return replace(self, tags=_without(self.tags), tracks=tracks)


def _without(tags: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in tags.items() if not identifies(key, value)}


def read_facts(path: Path) -> FileFacts:
    """Read a file's header, and the bytes of its sound and subtitles; nothing is decoded.

    Raises:
        MediaError: The file cannot be read.
    """
    info = probe(path)
    with open_input(path) as container:
        chapters = []
        for chapter in container.chapters():
            tick = chapter["time_base"] or Fraction(0)
            title = chapter["metadata"].get("title", "")
            chapters.append((chapter["start"] * tick, chapter["end"] * tick, title))
        tags = said_tags(file_tags(container.metadata))
        facts = FileFacts(path=path, info=info, tags=tags, chapters=chapters)
        tracks, covers = _read_headers(container, facts)
        _read_packets(container, facts, tracks, covers)
    facts.tracks = [tracks[i] for i in sorted(tracks, key=lambda i: (i != info.stream_index, i))]
    as_video_tag(tags, facts.tracks[0].tags)
    return facts


def _read_headers(
    container: InputContainer, facts: FileFacts
) -> tuple[dict[int, TrackFacts], dict[int, str]]:
    """Return tracks, and names of cover art, by their index in the file; record attachments."""
    tracks: dict[int, TrackFacts] = {}
    covers: dict[int, str] = {}
    for stream in container.streams:
        if isinstance(stream, AttachmentStream):
            name = f"attachment {stream.name or stream.index}"
            facts.pictures[name] = hashlib.sha256(stream.data or b"").hexdigest()
        elif is_picture(stream):
            covers[stream.index] = f"cover {len(covers)}"
        elif stream.type in TRACK_KINDS:
            codec = stream.codec_context
            tracks[stream.index] = TrackFacts(
                kind=stream.type,
                codec=codec.codec.canonical_name if codec else "unknown",
                time_base=exact(stream.time_base) or Fraction(1, 1_000_000),
                tags=said_tags(stream_tags(stream.metadata)),
                disposition=_disposition(stream.disposition),
            )
    return tracks, covers


def _read_packets(
    container: InputContainer,
    facts: FileFacts,
    tracks: dict[int, TrackFacts],
    covers: dict[int, str],
) -> None:
    info = facts.info
    extradata = container.streams[info.stream_index].codec_context.extradata
    reader = MessageReader(info.codec, extradata, fields=info.interlaced)
    # In a truncated file, everything before is compared, and the decoder reports the end.
    with contextlib.suppress(av.FFmpegError):
        for packet in container.demux():
            index = packet.stream.index
            if packet.size and index in covers:
                facts.pictures[covers[index]] = hashlib.sha256(bytes(packet)).hexdigest()
            if packet.size and index == info.stream_index:
                facts.carried.update({message.kind for message in reader.read(packet)})
            track = tracks.get(index)
            if track is None or track.kind == "video" or not packet.size:
                continue
            data = bytes(packet)
            track.digests.append(hashlib.sha256(data).digest())
            track.has_coordinates |= track.kind == "subtitle" and has_coordinates(data)
            pts, tick = packet.pts, exact(packet.time_base)
            is_line = track.codec in READABLE and not packet.is_discard
            if is_line and pts is not None and tick and _shows_text(track.codec, data):
                track.lines.append((pts * tick, (pts + (packet.duration or 0)) * tick))
            if len(track.early_seconds) < EARLY_PACKETS:
                track.early_seconds.append(None if pts is None or not tick else pts * tick)


def _shows_text(codec: str, data: bytes) -> bool:
    """Return whether a line of subtitles has more than markup such as ``<i>`` and ``{\\an8}``."""
    if codec == "mov_text":
        text = data[2:]
    else:
        text = data.split(b",", 8)[-1] if codec in ("ass", "ssa") else data
    return bool(MARKUP.sub("", text.decode(errors="replace")).strip())


def _disposition(flags: Disposition) -> str:
    """Return the names of the flags, e.g. ``default+forced``; ``none`` without any."""
    names = [flag.name for flag in Disposition if flag.name and flag in flags and flag.value]
    return "+".join(sorted(names)) or "none"
