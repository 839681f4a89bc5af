"""The picture stages of one stream, from a decoded picture to the finished frame on the host.

They keep their state from frame to frame, and keep no frame back.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from av.video.frame import VideoFrame

from bgsoft.closing import Closing
from bgsoft.encode.pictures import matte_table
from bgsoft.face.base import Face
from bgsoft.frame import Frame, Planes
from bgsoft.live.policy import Quality
from bgsoft.media.info import VideoInfo
from bgsoft.models.catalog import resolve
from bgsoft.pipeline.metrics import Metrics
from bgsoft.rendering.build import StageBuilder
from bgsoft.rendering.given import OneByOne
from bgsoft.rendering.host import host_planes
from bgsoft.rendering.picture_options import PictureOptions
from bgsoft.settings.config import EffectKind, RenderConfig

_DIMMED = 0.4
"""Share of light in the last frame while the source is away."""


class _Faces:
    """Keeps the faces of the last frame."""

    wants_landmarks = True

    def __init__(self) -> None:
        self.now: Sequence[Face] = ()

    def write(self, _frame: Frame, faces: Sequence[Face]) -> None:
        self.now = faces


def _look(info: VideoInfo) -> tuple[object, ...]:
    """Return the properties of a source on which its stages depend."""
    size = info.coded_width, info.coded_height
    return info.format, size, info.crop, info.orientation, info.sample_aspect_ratio


class LiveStages(Closing):
    """The stages of one stream, for pictures of one size. Made in any thread, used in one.

    Args:
        builder: The stream's builder.
        config: The settings.
        info: The source.
        metrics: Holds the clocks of the stages, and of the conversion to 4:2:0.
        keeps_source: Also keep the picture as it arrived.
        takes_faces: Also return faces with landmarks, if they are detected.
        drawn_in: See :attr:`bgsoft.rendering.picture_options.PictureOptions.drawn_in`.

    Raises:
        BgsoftError: As :meth:`bgsoft.rendering.build.StageBuilder.make_picture_stages`.
    """

    def __init__(
        self,
        builder: StageBuilder,
        config: RenderConfig,
        info: VideoInfo,
        metrics: Metrics,
        *,
        keeps_source: bool = False,
        takes_faces: bool = False,
        drawn_in: tuple[int, int] | None = None,
    ) -> None:
        self.info, self.config = info, config
        self._faces = _Faces()
        self._stages = builder.make_picture_stages(
            config,
            info,
            resolve(config.segment.model),
            metrics,
            PictureOptions(
                began=Fraction(0),
                face_data=self._faces if takes_faces else None,
                drawn_in=drawn_in,
            ),
        )
        self._pictures = OneByOne(
            builder, self._stages, info, keeps_source=keeps_source, converting=metrics.converting
        )
        self._count = 0
        self._shows_matte = config.effect.kind is EffectKind.MATTE

    def start(self) -> None:
        """Run the models once, in the thread that will process frames."""
        self._stages.start()

    def fits(self, info: VideoInfo) -> bool:
        """Return whether pictures of a source fit these stages: their size, colours and turn."""
        return _look(self.info) == _look(info)

    def follow(self, earlier: LiveStages, *, is_left: bool) -> None:
        """Continue after earlier stages, perhaps those of another size or settings.

        Args:
            earlier: The stages; nobody will use them again.
            is_left: They hang in another thread, so their state cannot be used.
        """
        now, before = self._stages, earlier._stages
        is_alike = self.fits(earlier.info) and not is_left
        if now.faces is not None and before.faces is not None:
            now.faces.follow(before.faces, is_alike=is_alike)
        if now.regions is not None and before.regions is not None:
            now.regions.follow(before.regions, is_alike=is_alike)

    def set_quality(self, quality: Quality) -> None:
        """Apply a reduction of quality from the next frame on."""
        self._stages.schedule.every = self.config.segment.mask_every * quality.masks_every
        if self._stages.faces is not None:
            self._stages.faces.every = quality.faces_every

    @property
    def source(self) -> Planes | None:
        """The last picture as it arrived, if it is kept."""
        return self._pictures.source

    @property
    def faces(self) -> Sequence[Face]:
        """The faces of the last frame."""
        return self._faces.now

    def process(self, picture: VideoFrame, pts: int) -> Frame:
        """Return the finished frame of a picture; the next call overwrites its planes.

        Raises:
            DecodeError: Its pixel format cannot be converted.
            InferenceError: A model failed.
        """
        frame = self._pictures.process(picture, self._count, pts)
        self._count += 1
        if self._shows_matte:
            _show_matte(frame)
        return frame

    def close(self) -> None:
        self._pictures.close()


def _show_matte(frame: Frame) -> None:
    """Replace the picture by the matte, as grey."""
    format = frame.format
    table = matte_table(format.color, format.bit_depth) << format.shift
    np.take(table, frame.planes.alpha, out=frame.luma)
    frame.chroma.fill(frame.format.chroma_neutral)


def dimmed(frame: Frame) -> Frame:
    """Return a dimmed copy of a frame."""
    planes = host_planes(frame.format, 0)
    black, neutral = frame.format.luma_range[0], frame.format.chroma_neutral
    for source, target, zero in (
        (frame.luma, planes.luma, black),
        (frame.chroma, planes.chroma, neutral),
    ):
        np.copyto(target, zero + (source.astype(np.float32) - zero) * _DIMMED, casting="unsafe")
    np.copyto(planes.alpha, frame.planes.alpha)
    return Frame(planes, frame.format, frame.index, frame.pts, frame.time_base)
