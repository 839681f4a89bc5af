"""Tags and chapters that travel from the input to the output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

from bgsoft.media.timeline import Timeline

if TYPE_CHECKING:
    from av.container.core import Chapter

__all__ = ["chapters_in", "file_tags", "said_tags", "stream_tags"]

_FILE_TAGS_DROPPED = frozenset(
    {"encoder", "major_brand", "minor_version", "compatible_brands", "duration"}
)
"""They describe the old file, not its content; muxers write their own."""

_STREAM_TAGS_DROPPED = frozenset(
    {"encoder", "vendor_id", "rotate", "duration", "alpha_mode", "filename", "mimetype"}
)
_STATISTICS = ("BPS", "NUMBER_OF_", "SOURCE_ID", "_STATISTICS_")
"""Prefixes of the statistics that mkvmerge writes as tags."""
_DEFAULT_HANDLERS = frozenset({"videohandler", "soundhandler", "subtitlehandler", "datahandler"})
"""Names that muxers give to tracks without one (``handler_name`` of MP4 and MOV)."""


def file_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags of a container that stay true after rendering.

    FFmpeg gives a QuickTime tag in a language twice, once as ``location-eng``.
    """
    return {
        key: value
        for key, value in tags.items()
        if key.lower() not in _FILE_TAGS_DROPPED
        and not (key[-4:-3] == "-" and tags.get(key[:-4]) == value)
    }


def stream_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags of a stream that stay true after rendering: language, title, handler, …"""
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
    """Tags for comparison: keys in lower case, without what stands for «nothing said»."""
    kept: dict[str, str] = {}
    for key, value in tags.items():
        name = key.lower()
        if name == "language" and value == "und":
            continue
        if name == "handler_name" and value.lower() in _DEFAULT_HANDLERS | {""}:
            continue
        kept[name] = value
    return kept


def chapters_in(chapters: Iterable[Chapter], timeline: Timeline) -> list[Chapter]:
    """Chapters on the output's clock, clipped to the kept part; those outside are left out."""
    kept: list[Chapter] = []
    for chapter in chapters:
        tick = chapter["time_base"]
        if not tick:
            continue
        start, end = chapter["start"] * tick, chapter["end"] * tick
        if timeline.begin is not None:
            start = max(start, timeline.begin)
        if timeline.end is not None:
            end = min(end, timeline.end)
        if end <= start:
            continue
        kept.append(
            {
                "id": chapter["id"],
                "start": _ticks(start - timeline.origin, tick),
                "end": _ticks(end - timeline.origin, tick),
                "time_base": tick,
                "metadata": dict(chapter["metadata"]),
            }
        )
    return kept


def _ticks(seconds: Fraction, tick: Fraction) -> int:
    return max(0, round(seconds / tick))
