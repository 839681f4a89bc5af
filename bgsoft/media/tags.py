"""Tags, flags, chapters and pictures beside the video: those copied, and those an output lost.

FFmpeg's muxers pass over in silence what their container has no place for; reading the finished
header back tells, whatever the container.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Self

import av
from av.container import InputContainer, OutputContainer
from av.stream import AttachmentStream, Disposition, Stream

from bgsoft.media.identifying import DEFAULT_HANDLERS
from bgsoft.media.source import begins_picture
from bgsoft.media.timeline import Timeline
from bgsoft.records import NamedTuple

if TYPE_CHECKING:
    from av.container.core import Chapter

_FILE_TAGS_DROPPED = frozenset(
    {"encoder", "major_brand", "minor_version", "compatible_brands", "duration"}
)
"""Tags that describe the old file, not its content; muxers write their own."""

_STREAM_TAGS_DROPPED = frozenset(
    {"encoder", "vendor_id", "rotate", "duration", "alpha_mode", "filename", "mimetype"}
)
_STATISTICS = ("BPS", "NUMBER_OF_", "SOURCE_ID", "_STATISTICS_")
"""Prefixes of the statistics that mkvmerge writes as tags."""
_REPORTED_KINDS = ("video", "audio", "subtitle")
_VIDEO = "video track 0"
_UNREPORTED_TAGS = frozenset({"handler_name"})
_UNREPORTED_FLAGS = Disposition.attached_pic
"""Pictures are counted."""

_PICTURE_TAGS = ("metadata_block_picture", "coverart")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{40,}")


def is_picture_tag(key: str, value: str) -> bool:
    """Return whether a tag carries a picture: by its name, or in base64, as text has it."""
    return key.lower().startswith(_PICTURE_TAGS) or any(
        begins_picture(head) or b"image/" in head
        for run in _BASE64.findall(value)
        if (head := base64.b64decode(run[:40], b"-_" if {*"-_"} & {*run} else None))
    )


def file_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags of a container that stay true after rendering."""
    return {
        key: value
        for key, value in tags.items()
        if key.lower() not in _FILE_TAGS_DROPPED
        # FFmpeg gives a QuickTime tag in a language twice, once as ``location-eng``.
        and not (key[-4:-3] == "-" and tags.get(key[:-4]) == value)
    }


def stream_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags of a stream that stay true after rendering, like its language."""
    kept = {
        key: value
        for key, value in tags.items()
        if key.lower() not in _STREAM_TAGS_DROPPED
        and not key.upper().startswith(_STATISTICS)
        and not key.lower().startswith("duration-")
    }
    if "name" in kept and "title" not in kept:
        kept["title"] = kept.pop("name")  # as FFmpeg calls the title of an MP4's track on reading
    return kept


def said_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags for comparison: keys in lower case, without values that mean «unspecified»."""
    said = {key.lower(): value for key, value in tags.items()}
    if said.get("language") == "und":
        del said["language"]
    if said.get("handler_name", "").lower() in DEFAULT_HANDLERS:
        said.pop("handler_name", None)
    return said


def chapters_in(chapters: Iterable[Chapter], timeline: Timeline) -> list[Chapter]:
    """Chapters on the output's clock, clipped to the kept part; those outside are left out."""
    kept: list[Chapter] = []
    for chapter in chapters:
        tick = chapter["time_base"] or Fraction(1, av.time_base)
        start, end = timeline.clip(chapter["start"] * tick, chapter["end"] * tick)
        if start < end:
            first, last = (max(0, round((time - timeline.origin) / tick)) for time in (start, end))
            kept.append({**chapter, "start": first, "end": last})
    return kept


def as_video_tag(tags: dict[str, str], video: dict[str, str]) -> None:
    """Move a file's timecode to its video, for comparison: MP4 and MOV have it there only.

    One that differs from the video's stays.
    """
    timecode = tags.get("timecode")
    if timecode is not None and video.setdefault("timecode", timecode) == timecode:
        del tags["timecode"]


class Labels(NamedTuple):
    """Tags, flags and number of pictures of a file."""

    tags: Mapping[str, str]
    tracks: Mapping[str, tuple[Mapping[str, str], Disposition]]
    """Tags and flags of tracks, by name, such as ``audio track 0``."""
    pictures: int
    """Covers and attachments."""

    @classmethod
    def of(cls, container: InputContainer | OutputContainer) -> Self:
        """The labels of an open file."""
        others = [stream for stream in container.streams if not is_picture(stream)]
        tracks = {
            f"{kind} track {number}": (said_tags(stream_tags(stream.metadata)), stream.disposition)
            for kind in _REPORTED_KINDS
            for number, stream in enumerate(s for s in others if s.type == kind)
        }
        tags = said_tags(file_tags(container.metadata))
        if _VIDEO in tracks:
            as_video_tag(tags, tracks[_VIDEO][0])
        return cls(tags=tags, tracks=tracks, pictures=len(container.streams) - len(others))

    def lost_in(self, kept: Labels) -> list[str]:
        """Labels that a file lacks, in words for a message."""
        keys = [key for key in self.tags if key not in kept.tags]
        lost = [f"the tag{'s' if len(keys) > 1 else ''} {', '.join(keys)}"] if keys else []
        for name, (tags, flags) in self.tracks.items():
            kept_tags, kept_flags = kept.tracks.get(name, ({}, flags))
            lost += [
                f"the {key} {value!r} of {name}" if key == "language" else f"the {key} of {name}"
                for key, value in tags.items()
                if key not in _UNREPORTED_TAGS
                and (key not in kept_tags or (key == "language" and kept_tags[key] != value))
            ]
            missing = flags & ~kept_flags & ~_UNREPORTED_FLAGS
            if self._is_played_anyway(name):
                missing &= ~Disposition.default
            lost += [f"the {flag.name} flag of {name}" for flag in Disposition if flag & missing]
        if self.pictures > kept.pictures:
            lost.append(f"{self.pictures - kept.pictures} of {self.pictures} pictures")
        return lost

    def _is_played_anyway(self, name: str) -> bool:
        """Return whether a track's default flag changes nothing.

        Of tracks without one, players take the first picture and sound, and no subtitles.
        """
        first = f"{name.split()[0]} track 0"
        return not name.startswith("subtitle") and bool(self.tracks[first][1] & Disposition.default)


def is_picture(stream: Stream) -> bool:
    """Return whether a stream is cover art or an attachment."""
    return isinstance(stream, AttachmentStream) or bool(
        stream.disposition & Disposition.attached_pic
    )
