"""Tags and chapters that travel from the input to the output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

from bgsoft.media.timeline import Timeline

if TYPE_CHECKING:
    from av.container.core import Chapter

__all__ = ["QUICKTIME_PREFIX", "chapters_in", "file_tags", "quicktime_language", "stream_tags"]

QUICKTIME_PREFIX = "com.apple.quicktime."
"""Tags of phone recordings (place, make, model) that MP4 and MOV keep in a box of their own."""

_FILE_TAGS_DROPPED = frozenset(
    {"encoder", "major_brand", "minor_version", "compatible_brands", "duration"}
)
"""They describe the old file, not its content; muxers write their own."""

_STREAM_TAGS_DROPPED = frozenset(
    {"encoder", "vendor_id", "rotate", "duration", "alpha_mode", "filename", "mimetype"}
)
_STATISTICS = ("BPS", "NUMBER_OF_", "SOURCE_ID", "_STATISTICS_")
"""Prefixes of the statistics that mkvmerge writes as tags."""


_BIBLIOGRAPHIC = {
    "bod": "tib", "ces": "cze", "cym": "wel", "deu": "ger", "ell": "gre", "eus": "baq",
    "fas": "per", "fra": "fre", "hye": "arm", "isl": "ice", "kat": "geo", "mkd": "mac",
    "mri": "mao", "msa": "may", "mya": "bur", "nld": "dut", "ron": "rum", "slk": "slo",
    "sqi": "alb", "zho": "chi",
}  # fmt: skip
"""The languages for which ISO 639-2 has two codes: terminological to bibliographic."""


def quicktime_language(code: str) -> str:
    """The code of a language that FFmpeg's QuickTime muxer knows; others are lost on it."""
    return _BIBLIOGRAPHIC.get(code, code)


def file_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags of a container that stay true after rendering."""
    return {key: value for key, value in tags.items() if key.lower() not in _FILE_TAGS_DROPPED}


def stream_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags of a stream that stay true after rendering: language, title, handler, …"""
    return {
        key: value
        for key, value in tags.items()
        if key.lower() not in _STREAM_TAGS_DROPPED
        and not key.upper().startswith(_STATISTICS)
        and not key.lower().startswith("duration-")
    }


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
