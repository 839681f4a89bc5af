"""Protocol of decoders, with their settings and counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from bgsoft.frame import Frame
from bgsoft.media.info import VideoInfo
from bgsoft.records import dataclass
from bgsoft.report import Event
from bgsoft.ring import FrameRing


@dataclass(frozen=True, slots=True)
class PtsRange:
    """A range of frames by their exact times, in the video's time base."""

    first: int | None
    """None: from the beginning."""
    end: int | None
    """Exclusive; None: to the end."""
    index: int
    """Index of the first frame among all that are rendered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeSettings:
    """Part of the input to decode, and the decoder's threads."""

    start_seconds: float = 0.0
    """Frames shown before this time, counted from the stream's first frame, are left out."""
    duration_seconds: float | None = None
    """Frames at or after ``start_seconds + duration_seconds`` are left out."""
    range: PtsRange | None = None
    """Exactly these frames; start and duration are ignored."""
    threads: int = 0
    """Decoder threads; 0: the codec library's choice."""
    keeps_chroma: bool = False
    """Attach :class:`bgsoft.frame.OriginalChroma` to each frame."""
    keeps_profile: bool = False
    """Keep the colours of a still's profile, which is attached; otherwise convert them to sRGB."""


@dataclass(slots=True)
class DecodeStats:
    """Counts kept while decoding."""

    frames: int = 0
    passed_over: int = 0
    """Frames before the wanted part."""
    concealed_frames: int = 0
    """Frames among ``frames`` that the decoder marked as damaged."""
    corrupt_packets: int = 0
    """Packets that the decoder rejected."""
    repaired_pts: int = 0
    """Frames whose pts was missing or not later than the one before; it was set from the
    duration."""
    irregular: bool = False
    """Times or sizes of frames depend on earlier frames: the clock was restarted, or the picture
    size changed."""


class Decoder(AbstractContextManager["Decoder", None], Protocol):
    """Decodes one video stream. The constructor opens it and sets :attr:`info`."""

    info: VideoInfo
    stats: DecodeStats
    events: list[Event]
    """Notices and faults that were found while decoding."""

    def frames(self, ring: FrameRing) -> Iterator[Frame]:
        """Decode in presentation order, each frame into a slot of ``ring``.

        Each call starts again. The caller releases each frame's slot. Timestamps rise strictly.

        Raises:
            DecodeError: Nothing can be read; damaged packets alone are counted.
            ConfigError: The settings ask for a part past the end.
            RingClosedError: The ring was closed while decoding.
        """
        ...

    def close(self) -> None:
        """Free the decoder; safe to call twice."""
        ...
