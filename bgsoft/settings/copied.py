"""Settings of the sound, tracks and metadata that an output keeps."""

from __future__ import annotations

from enum import StrEnum

from bgsoft.records import dataclass
from bgsoft.settings.setting import Span, parse_span, setting

_FORM = "T0-T1 in seconds or HH:MM:SS, e.g. 1:05-1:20, 5- or -3"


class Audio(StrEnum):
    """Treatment of the input's sound."""

    KEEP = "keep"
    NONE = "none"


class Metadata(StrEnum):
    """Treatment of tags and tracks that identify people or places."""

    AUTO = "auto"
    """Strip where something is hidden, else keep."""
    KEEP = "keep"
    STRIP = "strip"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyConfig:
    """Data that are copied from the input besides the picture."""

    audio: Audio = setting(
        Audio.KEEP, "Sound tracks of the input; none: leave them out.", without_effect=("no sound",)
    )
    mute: tuple[str, ...] = setting(
        (),
        "Silence all sound in this time span, in seconds or HH:MM:SS from the first frame:"
        " 1:05-1:20, 5- or -3. Repeatable.",
        metavar="T0-T1",
        without_effect=("no sound", "sound left out"),
    )
    metadata: Metadata = setting(
        Metadata.AUTO,
        "Tags, data tracks and subtitles that identify people, places, times or devices. auto:"
        " strip if faces or places are hidden, otherwise keep.",
    )

    def __post_init__(self) -> None:
        self.muted_spans()

    def muted_spans(self) -> tuple[Span, ...]:
        """Return the spans of ``mute``; raises ConfigError where one is malformed."""
        return tuple(parse_span(text, text, "--mute", _FORM) for text in self.mute)
