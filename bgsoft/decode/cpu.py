"""Decoding on the CPU with FFmpeg's libraries, through PyAV."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from av.video.frame import VideoFrame

from bgsoft.closing import Closing
from bgsoft.decode.base import DecodeSettings, DecodeStats
from bgsoft.decode.convert import PlaneWriter
from bgsoft.decode.deinterlace import Deinterlacer
from bgsoft.decode.presentation import Presentation
from bgsoft.decode.reader import FrameReader
from bgsoft.frame import Frame
from bgsoft.media.info import VideoInfo
from bgsoft.media.probe import probe
from bgsoft.pipeline.ring import FrameRing
from bgsoft.report import Event

__all__ = ["CpuDecoder"]


class _Picture(NamedTuple):
    """A progressive picture, and the decoded frame that it was made from."""

    frame: VideoFrame
    origin: VideoFrame
    """Has the pts, duration and damage mark; the same frame unless deinterlaced."""


class CpuDecoder(Closing):
    """Decodes a file's video stream into ring slots on the host.

    Args:
        path: A local video file.
        settings: What part of it, and with how many threads.
        info: The file, where it has been probed already.

    Raises:
        OpenError: The file cannot be opened or has no decodable video.
        UnsupportedFormatError: It is no video, or no decoder exists for it.
    """

    def __init__(
        self, path: Path, settings: DecodeSettings | None = None, *, info: VideoInfo | None = None
    ) -> None:
        self.info = info or probe(path)
        self.stats = DecodeStats()
        self.events: list[Event] = []
        """Repairs that the user should know of, such as a file that ends early."""
        self._pixel_aspects: dict[tuple[int, int], Fraction] = {}
        """Of picture sizes that differ from the first: how much wider pixels are shown."""
        settings = settings or DecodeSettings()
        self._reader = FrameReader(self.info, settings.threads)
        self._presentation = Presentation[_Picture](
            self.info, settings, lambda picture: picture.origin, self.events
        )

    def frames(self, ring: FrameRing) -> Iterator[Frame]:
        """See :meth:`bgsoft.decode.base.Decoder.frames`; each call starts anew, and adds to stats.

        Raises:
            DecodeError: No frame lies in the wanted stretch of time.
        """
        writer = PlaneWriter(self.info)
        corrupt_before = self.stats.corrupt_packets
        wanted = self._presentation.wanted(
            self._progressive(self._presentation.start_pts), lambda: self._reader.read_error
        )
        for index, shown in enumerate(wanted):
            self.stats.corrupt_packets = corrupt_before + self._reader.corrupt_packets
            planes = ring.acquire()
            try:
                picture = shown.item.frame
                aspect = self._pixel_aspects.get((picture.width, picture.height))
                writer.write(picture, planes, aspect)
                frame = Frame(
                    planes=planes,
                    format=self.info.format,
                    index=index,
                    pts=shown.pts,
                    time_base=self.info.time_base,
                    duration=shown.item.origin.duration,
                    concealed=shown.item.origin.is_corrupt,
                )
            except BaseException:
                ring.release(planes)
                raise
            self.stats.frames += 1
            self.stats.concealed_frames += frame.concealed
            self.stats.repaired_pts += shown.repaired
            yield frame
        self.stats.corrupt_packets = corrupt_before + self._reader.corrupt_packets

    def _progressive(self, from_pts: int | None) -> Iterator[_Picture]:
        """Deinterlaced where needed, as decoded otherwise."""
        deinterlacer: Deinterlacer | None = None
        own = size = (self.info.coded_width, self.info.coded_height)
        aspect: Fraction | None = None
        for frame in self._reader.frames(from_pts):
            aspect = aspect or self._reader.pixel_aspect
            if (frame.width, frame.height) != size:
                size = (frame.width, frame.height)
                self._pixel_aspects[size] = self._reader.pixel_aspect / aspect
                said = f"picture size changes to {size[0]}x{size[1]}"
                if size != own:
                    said += f": fitted into {own[0]}x{own[1]}"
                self._presentation.tell("notice", said, frame.pts)
            if deinterlacer is None and frame.interlaced_frame:
                deinterlacer = Deinterlacer(self.info.time_base)
            if deinterlacer is None:
                yield _Picture(frame, frame)
            else:
                for picture, origin in deinterlacer.push(frame):
                    yield _Picture(picture, origin)
        if deinterlacer is not None:
            for picture, origin in deinterlacer.flush():
                yield _Picture(picture, origin)

    def close(self) -> None:
        self._reader.close()
