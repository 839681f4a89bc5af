"""Writing of picture files, one for each frame: what a muxer is to videos."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bgsoft.errors import EncodeError
from bgsoft.media.containers import Container
from bgsoft.media.info import VideoInfo
from bgsoft.media.source import open_input
from bgsoft.media.writer import CopyOptions, Writer
from bgsoft.outputs import writing
from bgsoft.report import Event


class StillFiles(Writer):
    """Writes encoded pictures as files.

    Args:
        file: Returns where to write a picture, by its number from 1.
        container, info, output_path, on_event: As for :class:`Writer`.
        copied: With ``tracks``, tracks that pictures cannot hold are reported.
    """

    def __init__(
        self,
        file: Callable[[int], Path],
        container: Container,
        info: VideoInfo,
        copied: CopyOptions,
        *,
        output_path: Path,
        on_event: Callable[[Event], None] = lambda _event: None,
    ) -> None:
        super().__init__(container, info, output_path, on_event)
        self._file = file
        if copied.tracks and not info.stills:
            with open_input(info.path) as source:
                others = len(source.streams) - 1
            if others:
                text = f"pictures hold no sound and subtitles: tracks left out: {others}"
                self.report("notice", text)

    def write(self, data: bytes, pts: int, duration: int) -> None:
        """Write the next picture.

        Raises:
            OutputError: It could not be written.
        """
        self.video_pts.append(pts)
        self.video_durations.append(duration)
        with writing(self._path):
            self._file(len(self.video_pts)).write_bytes(data)

    def finish(self) -> None:
        if not self.video_pts:
            raise EncodeError(
                "cannot write pictures: no frame was encoded", path=self._path, stage="encode"
            )

    def close(self) -> None:
        """Nothing to free: what is not committed is removed with its file or folder."""
