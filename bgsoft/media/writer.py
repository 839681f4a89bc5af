"""The base of what takes encoded pictures and writes them."""

from __future__ import annotations

from abc import abstractmethod
from array import array
from collections import Counter

from bgsoft.closing import Closing
from bgsoft.media.containers import Container
from bgsoft.media.info import VideoInfo
from bgsoft.report import AudioReport


class Writer(Closing):
    """Writes one video, or the pictures of one.

    Args:
        container: What is written.
        info: The video that is rendered.
    """

    def __init__(self, container: Container, info: VideoInfo) -> None:
        self.container = container
        self.info = info
        self.video_pts: array[int] = array("q")
        """Source pts of every picture written, in decoding order, in ``info.time_base``."""
        self.video_durations: array[int] = array("q")
        """Their durations; 0 where unknown."""
        self.messages: Counter[str] = Counter()
        """Messages of frames that were written, by kind."""

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
