"""Single pictures sent through the picture stages, one at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from av.video.frame import VideoFrame

from bgsoft.clock import StageClock
from bgsoft.closing import Closing
from bgsoft.decode.base import DecodeStats
from bgsoft.decode.convert import PlaneWriter
from bgsoft.encode.base import PictureKind
from bgsoft.frame import Frame, Planes
from bgsoft.media.info import VideoInfo
from bgsoft.pipeline.picture import PictureStages
from bgsoft.rendering.build import StageBuilder
from bgsoft.rendering.host import host_planes
from bgsoft.report import Event
from bgsoft.ring import FrameRing


class _GivenPicture(Closing):
    """A :class:`bgsoft.decode.base.Decoder` of given pictures, one for each frame.

    Args:
        info: Size and format of all pictures.
        keeps_source: Keep each picture unprocessed, in 4:2:0.
    """

    def __init__(self, info: VideoInfo, *, keeps_source: bool) -> None:
        self.info = info
        self.stats = DecodeStats()
        self.events: list[Event] = []
        self.source = host_planes(info.format, 0) if keeps_source else None
        """The last picture, unprocessed."""
        self._writer = PlaneWriter(info)

    def give(self, picture: VideoFrame, index: int, pts: int) -> None:
        """Set the picture of the next frame."""
        self._next = picture, index, pts

    def frames(self, ring: FrameRing) -> Iterator[Frame]:
        while True:
            picture, index, pts = self._next
            planes = ring.acquire()
            try:
                self._writer.write(picture, planes)
            except BaseException:
                ring.release(planes)
                raise
            if self.source is not None:
                np.copyto(self.source.luma, planes.luma)
                np.copyto(self.source.chroma, planes.chroma)
            yield Frame(planes, self.info.format, index, pts, self.info.time_base)

    def close(self) -> None:
        """Nothing to free."""


class _TakenFrame:
    """An :class:`bgsoft.encode.base.Encoder` that keeps the last frame, on the host."""

    name, pixel_format = "none", ""

    def __init__(self) -> None:
        self.frames = 0
        self.frame: Frame

    def encode(self, frame: Frame) -> None:
        self.frame = frame

    def finish(self) -> None:
        """Do nothing: the frame is complete."""

    def close(self) -> None:
        """Nothing to free."""


class OneByOne(Closing):
    """Picture stages, on host or device, for pictures of one size without delay.

    Args:
        builder: Maker of the stages.
        stages: The stages; closed with this object.
        info: Size and format of the pictures.
        keeps_source: Keep each picture unprocessed, in 4:2:0.
        converting: Clock of the conversion to 4:2:0.
    """

    def __init__(
        self,
        builder: StageBuilder,
        stages: PictureStages,
        info: VideoInfo,
        *,
        keeps_source: bool = False,
        converting: StageClock | None = None,
    ) -> None:
        self._stages = stages
        self._given, self._taken = _GivenPicture(info, keeps_source=keeps_source), _TakenFrame()
        self._from = builder.adapt_decoder(self._given, on_device=False)
        self._to = builder.adapt_encoder(
            self._taken, info.format, PictureKind.COLOR_ALPHA, on_device=False
        )
        self._ring = builder.make_ring(info.format)
        self._frames = self._from.frames(self._ring)
        self._converting = converting or StageClock()

    @property
    def source(self) -> Planes | None:
        """The last picture, unprocessed, if it is kept."""
        return self._given.source

    def process(self, picture: VideoFrame, index: int = 0, pts: int = 0) -> Frame:
        """Return the finished frame, on the host; its planes are valid until the next call.

        Raises:
            DecodeError: There is no conversion from the picture's pixel format.
            InferenceError: A model failed.
        """
        self._given.give(picture, index, pts)
        try:
            with self._converting:
                frame = next(self._frames)
        except BaseException:
            self._frames = self._from.frames(self._ring)  # a generator ends when it raises
            raise
        try:
            for done in [*self._stages.process_batch([frame]), *self._stages.flush()]:
                self._to.encode(done)
            self._to.finish()
        except BaseException:
            self._stages.restart(goes_on=True)
            raise
        finally:
            self._ring.release(frame)  # its slot is not used again before the next call
        return self._taken.frame

    def close(self) -> None:
        self._to.close()
        self._stages.close()
