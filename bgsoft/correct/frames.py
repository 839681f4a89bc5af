"""Single frames of a video: unchanged, and rendered with some regions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.closing import Closing
from bgsoft.encode.rgb import RgbPictures
from bgsoft.errors import DecodeError
from bgsoft.frame import Frame, Planes
from bgsoft.models.catalog import resolve
from bgsoft.pipeline.metrics import Metrics
from bgsoft.pipeline.picture import PictureStages
from bgsoft.records import NamedTuple
from bgsoft.regions.places import place_regions
from bgsoft.rendering.build import StageBuilder
from bgsoft.rendering.host import host_planes
from bgsoft.rendering.picture_options import PictureOptions
from bgsoft.rendering.preview import WARM_UP_FRAMES, show_result
from bgsoft.report import Event
from bgsoft.review.videos import ReviewVideo
from bgsoft.settings.config import BackendConfig, RenderConfig
from bgsoft.settings.regions import Region, RegionConfig

MAX_WIDTH_PX = 1600
"""Pictures of wider videos are reduced."""
_QUALITY = 88
_KEPT_BYTES = 256 << 20
"""Of decoded frames before the shown one: up to as many again as warm the stages up, so that not
each step back begins at a key frame."""
_NEAR_FRAMES = 48
"""A later frame this near is decoded without seeking, which costs about as much."""
_RUN_FRAMES = 4096
"""Frames that a decoder is opened for; a list of them is made."""
_NO_ALPHA = np.empty((0, 0), np.uint8)


class FrameWindow(Closing):
    """Frames around a place in a video, decoded when they are asked for.

    Args:
        video: The video.
    """

    def __init__(self, video: ReviewVideo) -> None:
        self._video = video
        self._decoded: Iterator[Frame] = iter(())
        self._kept: dict[int, Frame] = {}
        self._first = self._next = self._end = 0
        """Kept are frames from the first one on that decode, up to the next one; the decoder stops
        at the end."""
        size = video.info.format.bytes_per_sample * np.prod(video.info.format.luma_shape) * 1.5
        more = int(_KEPT_BYTES / size) - WARM_UP_FRAMES
        self._before = WARM_UP_FRAMES + min(max(more, 0), WARM_UP_FRAMES)

    def until(self, number: int) -> list[Frame]:
        """Return a frame and those before it that warm the stages up; they must not be changed.

        Raises:
            DecodeError: The frame does not decode.
        """
        first = max(0, number - WARM_UP_FRAMES)
        if first < self._first or number >= min(self._next + _NEAR_FRAMES, self._end):
            self._seek(max(0, number - self._before))
        while self._next <= number:
            frame = next(self._decoded, None)
            if frame is None:
                break
            self._kept[frame.index] = _copy(frame)
            self._next = frame.index + 1
            self._first = max(self._first, self._next - self._before - 1)
            for old in [at for at in self._kept if at < self._first]:
                del self._kept[old]
        if number not in self._kept:
            raise DecodeError(f"cannot decode frame {number}", path=self._video.path)
        return [self._kept[at] for at in range(first, number + 1) if at in self._kept]

    def close(self) -> None:
        """End the decoder."""
        self._seek(0)

    def _seek(self, first: int) -> None:
        close = getattr(self._decoded, "close", None)
        if close is not None:
            close()
        self._kept.clear()
        self._first = self._next = first
        self._end = min(first + _RUN_FRAMES, len(self._video.pts))
        self._decoded = self._video.frames(range(first, self._end))


class Result(NamedTuple):
    """A frame of a render."""

    picture: bytes
    """JPEG: what is encoded; on a checkerboard where it is transparent."""
    matte: bytes
    """JPEG."""
    notices: tuple[str, ...]
    """About its regions."""


class FrameRenderer(Closing):
    """Renders single frames of a video with regions that change, on the CPU.

    Faces are detected in this frame and earlier ones; a render also inspects later ones. Followed
    regions stay where they were drawn.

    Args:
        config: Settings of a render. Its regions do not count.
        video: The video.

    Raises:
        ConfigError, ModelError: The settings cannot be used.
    """

    def __init__(self, config: RenderConfig, video: ReviewVideo) -> None:
        self._config, self._video = config, video
        self._notices: list[str] = []
        self._window = FrameWindow(video)
        format = video.info.format
        self._show = RgbPictures(format, blue_first=True)
        self._planes = host_planes(format, 0)
        self._builder = StageBuilder(BackendConfig(batch=1).on_cpu(), self._note)
        self._stages = self._make_stages()

    def source(self, number: int) -> bytes:
        """Return a frame of the video as a JPEG.

        Raises:
            DecodeError: It does not decode.
        """
        return _encode(self._show.picture(self._window.until(number)[-1]))

    def result(self, number: int, regions: Sequence[Region]) -> Result:
        """Render a frame.

        Raises:
            ConfigError: A region cannot be used.
            DecodeError: The frame does not decode.
            InferenceError: A model failed on it.
        """
        frames = self._window.until(number)
        self._notices.clear()
        resting = [replace(region, follow=False) for region in regions]
        step = self._builder.make_regions(resting, self._config, self._video.info)
        if self._config.segment.matte_in is not None:
            # A file of mattes is only read forwards.
            self._stages.close()
            self._stages = self._make_stages()
        self._stages.restart()
        self._stages.regions = step
        for frame in frames:
            np.copyto(self._planes.luma, frame.luma)
            np.copyto(self._planes.chroma, frame.chroma)
            shown = replace(frame, planes=self._planes)
            self._stages.process_batch([shown])
            self._stages.flush()
        picture = show_result(self._config.effect.kind, shown, self._show)
        return Result(_encode(picture), _encode(self._planes.alpha), tuple(self._notices))

    def check(self, regions: Sequence[Region]) -> None:
        """Raise ConfigError if regions cannot be used on this video."""
        place_regions(regions, self._config, self._video.info)

    def close(self) -> None:
        """Free the decoder and the stages."""
        self._window.close()
        self._stages.close()

    def _make_stages(self) -> PictureStages:
        config, info = self._config, self._video.info
        alone = replace(config, regions=RegionConfig(), hide=replace(config.hide, regions=()))
        model = resolve(config.segment.model)
        options = PictureOptions(began=info.start_seconds)
        return self._builder.make_picture_stages(alone, info, model, Metrics(), options)

    def _note(self, event: Event) -> None:
        self._notices.append(event.message)


def _copy(frame: Frame) -> Frame:
    planes = Planes(0, frame.luma.copy(), frame.chroma.copy(), _NO_ALPHA)
    return replace(frame, planes=planes)


def _encode(picture: NDArray[np.uint8]) -> bytes:
    height, width = picture.shape[:2]
    if width > MAX_WIDTH_PX:
        size = MAX_WIDTH_PX, max(1, round(height * MAX_WIDTH_PX / width))
        picture = np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), np.uint8)
    _, data = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
    return bytes(data)
