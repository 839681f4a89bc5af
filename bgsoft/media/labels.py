"""Tags, flags and pictures beside the film: what a container was given, and what it has kept.

FFmpeg's muxers pass over in silence what their container has no place for; reading the finished
header back tells, whatever the container.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from av.container import InputContainer, OutputContainer
from av.stream import AttachmentStream, Disposition, Stream

from bgsoft.media.metadata import file_tags, said_tags, stream_tags

__all__ = ["Labels", "is_picture"]

_TOLD_KINDS = ("video", "audio", "subtitle")
_UNTOLD_TAGS = frozenset({"handler_name"})
_UNTOLD_FLAGS = Disposition.default | Disposition.attached_pic
"""Containers without a default flag play the first track, and pictures are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """What a file says of itself and its tracks."""

    tags: Mapping[str, str]
    tracks: Mapping[str, tuple[Mapping[str, str], Disposition]]
    """By name, such as ``audio track 0``: tags and flags."""
    pictures: int
    """Covers and attachments."""

    @classmethod
    def of(cls, container: InputContainer | OutputContainer) -> Self:
        """The labels of an open file."""
        counts = dict.fromkeys(_TOLD_KINDS, 0)
        tracks = {}
        pictures = 0
        for stream in container.streams:
            if is_picture(stream):
                pictures += 1
            elif stream.type in counts:
                name = f"{stream.type} track {counts[stream.type]}"
                counts[stream.type] += 1
                tracks[name] = (said_tags(stream_tags(stream.metadata)), stream.disposition)
        return cls(tags=said_tags(file_tags(container.metadata)), tracks=tracks, pictures=pictures)

    def lost_in(self, kept: Labels) -> list[str]:
        """What a file lacks of these, in words for a message."""
        keys = [key for key in self.tags if key not in kept.tags]
        lost = [f"the tag{'s' if len(keys) > 1 else ''} {', '.join(keys)}"] if keys else []
        for name, (tags, flags) in self.tracks.items():
            kept_tags, kept_flags = kept.tracks.get(name, ({}, flags))
            lost += [
                f"the {key} {value!r} of {name}" if key == "language" else f"the {key} of {name}"
                for key, value in tags.items()
                if key not in _UNTOLD_TAGS
                and (key not in kept_tags or (key == "language" and kept_tags[key] != value))
            ]
            missing = flags & ~kept_flags & ~_UNTOLD_FLAGS
            lost += [f"the {flag.name} flag of {name}" for flag in Disposition if flag & missing]
        if self.pictures > kept.pictures:
            lost.append(f"{self.pictures - kept.pictures} of {self.pictures} pictures")
        return lost


def is_picture(stream: Stream) -> bool:
    """Whether a stream is cover art or an attachment."""
    return isinstance(stream, AttachmentStream) or bool(
        stream.disposition & Disposition.attached_pic
    )
