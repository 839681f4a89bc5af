"""Description of an input, as probed before its first frame is rendered."""

from __future__ import annotations

import math
from dataclasses import field
from fractions import Fraction
from pathlib import Path

from bgsoft.frame import ContentLight, FrameFormat, MasteringDisplay
from bgsoft.media.pipe import PipeInput
from bgsoft.records import NamedTuple, dataclass

UNTIMED = "avi"
"""The demuxer of files that store no presentation times."""
STILLS = "stills"
"""Name in place of a demuxer's: the input is picture files."""
BACKWARD_SECONDS = 1
"""A clock that steps back by this much has been restarted; less is jitter."""
FORWARD_SECONDS = 12 * 3600
"""A clock that leaps ahead by this much has been restarted, too. The 33 bits of a broadcast clock
are 26.5 hours, and FFmpeg takes a restart for an overflow."""
_FALLBACK_RATE = Fraction(25)
"""Nominal frame rate where the header gives none; timestamps don't depend on it."""
_MAX_RATE = Fraction(1000)
_SHORTAGE, _SHORTAGE_FRAMES = 0.1, 10
"""Share and number of the header's frames that may be missing without a notice. Some headers count
frames before the first key frame, or after the last shown frame."""

_EARLY_SECONDS, _EARLY_SHARE = 1.0, 0.05


def ends_early(seconds: float, declared: float) -> bool:
    """Return whether a track ends so far before its header says that the file may be cut off.

    That is by more than a second, and by more than a twentieth of its length.
    """
    return declared - seconds > max(_EARLY_SECONDS, _EARLY_SHARE * declared)


class Orientation(NamedTuple):
    """Turn of a stored picture that makes it upright: first mirrored, then rotated."""

    mirror: bool = False
    """Left and right change places."""
    rotation: int = 0
    """Clockwise degrees: 0, 90, 180 or 270."""

    @property
    def swaps_axes(self) -> bool:
        return self.rotation in (90, 270)

    @property
    def is_identity(self) -> bool:
        return not self.mirror and self.rotation == 0


class Crop(NamedTuple):
    """Pixels of a stored picture that are not shown at each side."""

    left: int = 0
    top: int = 0
    right: int = 0
    bottom: int = 0

    def size(self, width: int, height: int) -> tuple[int, int]:
        """The shown part of a (width, height)."""
        return width - self.left - self.right, height - self.top - self.bottom


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoInfo:
    """The video stream that will be rendered."""

    path: Path
    container: str
    """FFmpeg's demuxer name, e.g. ``mov,mp4,m4a,3gp,3g2,mj2``."""
    stream_index: int
    codec: str
    """FFmpeg's decoder-independent codec name, e.g. ``h264``."""
    pixel_format: str
    """FFmpeg's name, before conversion."""
    sampling: str = "4:2:0"
    """Chroma sampling, upright; RGB is 4:4:4, and grey pictures have no chroma to lose: 4:2:0."""
    coded_width: int
    coded_height: int
    """Picture size as stored, before cropping and rotation, pixels."""
    crop: Crop = Crop()
    """Edges that the container hides of the stored picture, at whole chroma samples."""
    format: FrameFormat
    """Every frame as the pipeline sees it: cropped, upright, converted to 4:2:0."""
    orientation: Orientation = field(default_factory=Orientation)
    time_base: Fraction
    """Seconds per pts unit of the stream."""
    frame_rate: Fraction
    """Nominal frames per second, FFmpeg's guess; a hint, never used for timestamps."""
    start_pts: int | None
    """pts of the first frame shown, in ``time_base``; None where it carries none."""
    duration_seconds: float | None
    """Duration in the header; None where unknown."""
    num_frames_from_header: int | None
    """None where the header does not say; never trusted for correctness."""
    sample_aspect_ratio: Fraction = Fraction(1)
    """Pixel width over height, upright."""
    interlaced: bool = False
    """True where frames are deinterlaced on decode."""
    parity: str | None = None
    """Order of fields in all frames, ``tff`` or ``bff``; None: each frame has its own, or none."""
    mastering_display: MasteringDisplay | None = None
    content_light: ContentLight | None = None
    side_data: tuple[str, ...] = ()
    """Kinds of data that the stream or its first pictures carry and no output has, as notices name
    them."""
    stills: tuple[Path, ...] = ()
    """The picture files that its frames are, in order; none: it is a video."""
    notices: tuple[str, ...] = ()
    """Conversions the user should know of, e.g. «alpha channel dropped»."""
    pipe: PipeInput | None = None
    """Pipe that is read once; None: a file, which can be opened again."""

    @property
    def lost_chroma(self) -> tuple[str, ...]:
        """Notice if the pipeline's 4:2:0 loses chroma; picture files keep all of it for people."""
        if self.sampling == "4:2:0" or self.stills:
            return ()
        return (f"{self.sampling} converted to 4:2:0",)

    @property
    def start_seconds(self) -> Fraction:
        """Return the time of the first frame shown; 0 where it carries none."""
        return (self.start_pts or 0) * self.time_base

    @property
    def source(self) -> Path | PipeInput:
        """Return what to open to read its beginning; a file also beyond that."""
        return self.pipe or self.path

    @property
    def is_broadcast(self) -> bool:
        """The clock starts anywhere; 26-hour offsets are normal."""
        return self.container in ("mpegts", "mpeg")

    @property
    def is_mov(self) -> bool:
        """The container is MP4 or QuickTime's MOV."""
        return self.container.startswith("mov")

    @property
    def is_untimed(self) -> bool:
        """The container stores no presentation times."""
        return self.container == UNTIMED

    @property
    def nominal_rate(self) -> Fraction:
        """Frames per second for rate control and headers: within reason, whatever is declared."""
        return self.frame_rate if 0 < self.frame_rate <= _MAX_RATE else _FALLBACK_RATE

    @property
    def nominal_ticks(self) -> int:
        """Nominal duration of a frame, in ``time_base`` units."""
        return max(1, round(1 / (self.nominal_rate * self.time_base)))

    def pts_at(self, seconds: Fraction) -> int:
        """The first pts at or after a time counted from the first frame."""
        return (self.start_pts or 0) + math.ceil(seconds / self.time_base)

    def shortage(self, frames: int) -> str | None:
        """Return a notice if far fewer frames were decoded than the header counts, else None.

        The header also counts frames that an edit list hides. So the shown time limits the expected
        number, unless the file has less than half of the counted frames. In MP4 that time may
        include one before the first frame. AVI also counts repetitions of a frame.
        """
        if self.container == "avi":
            return None
        counted = declared = self.num_frames_from_header or 0
        if self.duration_seconds and self.frame_rate:
            late = max(Fraction(0), self.start_seconds) if self.is_mov else Fraction(0)
            shown_seconds = Fraction(self.duration_seconds) - late
            declared = min(declared, math.ceil(shown_seconds * self.frame_rate))
        if declared - frames <= max(_SHORTAGE_FRAMES, _SHORTAGE * declared):
            from bgsoft.media.source import indexed_frames

            half = counted / 2 - _SHORTAGE_FRAMES
            if frames > half:
                return None
            if self.pipe is None and indexed_frames(self.path, self.stream_index) > half:
                return None
            declared = counted
        return f"the header says {declared} frames, but only {frames} could be decoded"

    @property
    def estimated_frames(self) -> int | None:
        """Frames to expect, for progress display only."""
        if self.num_frames_from_header:
            return self.num_frames_from_header
        if self.duration_seconds and self.frame_rate:
            return max(1, round(self.duration_seconds * float(self.frame_rate)))
        return None
