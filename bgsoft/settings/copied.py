"""Settings of the tags and tracks that are copied from the input."""

from __future__ import annotations

from enum import StrEnum

from bgsoft.records import dataclass
from bgsoft.settings.setting import setting


class Metadata(StrEnum):
    """Treatment of tags and tracks that identify people or places."""

    AUTO = "auto"
    """Strip where faces or places are hidden, else keep."""
    KEEP = "keep"
    STRIP = "strip"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyConfig:
    """Tags and tracks that are copied from the input."""

    metadata: Metadata = setting(
        Metadata.AUTO,
        "Tags, data tracks and subtitles that identify people, places, times or devices. auto:"
        " strip if faces or places are hidden, otherwise keep.",
    )
