"""The base class of writers of encoded pictures."""

from __future__ import annotations

from abc import abstractmethod
from array import array
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bgsoft.closing import Closing
from bgsoft.media.containers import Container
from bgsoft.records import dataclass
from bgsoft.report import AudioReport, Event
from bgsoft.settings.setting import Span

if TYPE_CHECKING:
    from bgsoft.media.info import VideoInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOptions:
    """Parts of the input that an output keeps besides the picture."""

    tracks: bool = True
    """Sound, subtitles, attachments, chapters and tags."""
    sound: bool = True
    """Among these, sound."""
    muted: tuple[Span, ...] = ()
    """When sound is silent."""
    pictures: bool = True
    """Among these, what is or may hold a picture: covers, attached files other than fonts, tags."""
    identifying: bool = True
    """Among these, what tells who, where, when or with which device."""
    start_seconds: float = 0.0
    """Begin of the rendered part, from the video's first frame."""
    duration_seconds: float | None = None
    """Length of that part; None: to the end."""


COPY_ALL, COPY_NOTHING = CopyOptions(), CopyOptions(tracks=False)


class Writer(Closing):
    """Writes one video, or the pictures of one.

    Args:
        container: Container to write.
        info: The video that is rendered.
        output_path: The name to give in errors.
        on_event: Called for conversions, and for tracks that cannot be kept.
    """

    def __init__(
        self,
        container: Container,
        info: VideoInfo,
        output_path: Path,
        on_event: Callable[[Event], None],
    ) -> None:
        self.container = container
        self.info = info
        self._path = output_path
        self._on_event = on_event
        self.video_pts: array[int] = array("q")
        """Source pts of every picture written, in decoding order, in ``info.time_base``."""
        self.video_durations: array[int] = array("q")
        """Durations of the frames; 0 where unknown."""
        self.messages: Counter[str] = Counter()
        """Messages of frames that were written, by kind."""

    def report(self, kind: str, message: str) -> None:
        """Report a conversion, or what cannot be kept."""
        self._on_event(Event(kind=kind, message=message, stage="mux"))

    @property
    def audio(self) -> list[AudioReport]:
        """Outcome of each audio track."""
        return []

    @abstractmethod
    def finish(self) -> None:
        """Complete what is written.

        Raises:
            EncodeError: No picture has been written.
            OutputError: It could not be completed.
        """
