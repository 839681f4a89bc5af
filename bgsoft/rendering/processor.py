"""Single pictures as arrays, composited with models that stay loaded from one to the next."""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from bgsoft.closing import Closing
from bgsoft.encode.original import give_back, samples
from bgsoft.encode.rgb import EXACT, RgbPictures
from bgsoft.errors import ConfigError
from bgsoft.frame import ColorInfo, FrameFormat
from bgsoft.infer.providers import require_runtime
from bgsoft.infer.shared import ModelUser, SharedModels
from bgsoft.media.info import VideoInfo
from bgsoft.models.catalog import ResolvedModel, resolve
from bgsoft.pipeline.metrics import Metrics
from bgsoft.rendering.build import StageBuilder
from bgsoft.rendering.configure import config_from_keywords
from bgsoft.rendering.given import OneByOne
from bgsoft.report import Event
from bgsoft.settings.config import EffectKind, RenderConfig
from bgsoft.settings.keywords import PictureSettings
from bgsoft.settings.options import DEFAULT_PRESET, errors_in_keywords

Rgb = NDArray[np.uint8]
"""(H, W, 3), red first."""
_SIZES = 2
"""Sizes of pictures whose stages are kept."""
_BT709 = 1


def _info(width: int, height: int) -> VideoInfo:
    """A picture as a video of one frame."""
    # Limited range, as swscale rounds to it: towards full range it cuts.
    color = ColorInfo(matrix=_BT709, range_specified=True)
    return VideoInfo(
        path=Path("picture"),
        container="",
        stream_index=0,
        codec="rawvideo",
        pixel_format="rgb24",
        coded_width=width,
        coded_height=height,
        format=FrameFormat(width=width, height=height, color=color),
        time_base=Fraction(1),
        frame_rate=Fraction(1),
        start_pts=0,
        duration_seconds=None,
        num_frames_from_header=1,
    )


class _Stages(Closing):
    """The stages of pictures of one size: one frame's way through a render, as often as asked."""

    def __init__(
        self,
        builder: StageBuilder,
        config: RenderConfig,
        model: ResolvedModel,
        size: tuple[int, int],
    ) -> None:
        info = _info(*size)
        self._rgb = RgbPictures(info.format, interpolation=EXACT)
        self._stages = builder.make_picture_stages(
            config, info, model, Metrics(), lambda _frame: None, began=Fraction(0)
        )
        self._pictures = OneByOne(builder, self._stages, info, keeps_source=True)
        try:
            self._stages.start()
        except BaseException:
            self.close()
            raise

    def run(self, image: Rgb) -> tuple[Rgb, Rgb, NDArray[np.uint8]]:
        """(decoded, composited, alpha) of a picture, the first two by way of 4:2:0."""
        self._stages.restart()
        frame = self._pictures.process(VideoFrame.from_ndarray(image, format="rgb24"))
        source = self._pictures.source
        assert source is not None
        decoded = self._rgb.picture(replace(frame, planes=source))
        return decoded, self._rgb.picture(frame), frame.planes.alpha.copy()

    def close(self) -> None:
        self._pictures.close()


class Processor(Closing):
    """Composites pictures, each by itself, with models that stay loaded.

        with bgsoft.Processor(effect="bokeh") as processor:
            for image in images:
                show(processor.process(image))

    Models stay loaded (on a GPU, as all that goes by the size of the pictures, for the last two
    sizes). It may be used by several threads, which take turns, but not in a forked process.

    Args:
        preset: A preset's name or TOML file; None: the bare defaults.
        on_event: Called for each notice and fallback.
        **settings: As for :func:`bgsoft.render`, but for those of videos and of files.

    Raises:
        ConfigError: A value is out of range, or needs a video.
        TypeError: There is no such setting, or it means nothing here.
        BackendUnavailableError: A named backend cannot run here.
        ModelError: The model is missing or damaged.
    """

    def __init__(
        self,
        *,
        preset: str | None = DEFAULT_PRESET,
        on_event: Callable[[Event], None] | None = None,
        **settings: Unpack[PictureSettings],
    ) -> None:
        self._sizes: OrderedDict[tuple[int, int], _Stages] = OrderedDict()
        self._lock = threading.Lock()
        self._process = os.getpid()
        with errors_in_keywords():
            config = config_from_keywords(
                "Processor", PictureSettings.__optional_keys__, settings, preset=preset
            )
            config.check_for_arrays()
            timed = next((region for region in config.all_regions if region.is_timed), None)
            if timed is not None:
                raise ConfigError(f"{timed.name}: a picture has no time")
            require_runtime()
            self._config = replace(config, backends=replace(config.backends, batch=1))
            self._model = resolve(config.segment.model)
            self._builder = StageBuilder(
                self._config.backends,
                on_event or (lambda _event: None),
                user=ModelUser(SharedModels()),
            )
        # Also where nobody closes it.
        self._free = weakref.finalize(self, _free, self._sizes, self._builder, self._process)

    def process(self, image: Rgb) -> NDArray[np.uint8]:
        """Composite one picture.

        Where the matte is 255, the result is the picture bit for bit; where it is 0, the
        background; what lies between is mixed of both. The background comes by way of 4:2:0, and
        where faces or places are hidden, the whole picture does.

        Args:
            image: (H, W, 3) uint8, R'G'B', red first; in any memory order.

        Returns:
            (H, W, 3) uint8; with effect alpha (H, W, 4), straight alpha last.

        Raises:
            ConfigError: It is no such array, or this was closed.
            InferenceError: The model failed.
        """
        decoded, composited, alpha = self._run(image)
        kind = self._config.effect.kind
        if kind is EffectKind.MATTE:
            return np.repeat(alpha[..., None], 3, axis=2)
        if not self._config.hides:
            give_back(composited, image, lambda at: samples(decoded)[at], alpha)
        return np.dstack([composited, alpha]) if kind is EffectKind.ALPHA else composited

    def matte(self, image: Rgb) -> NDArray[np.uint8]:
        """The matte of one picture, (H, W) uint8, 255 = person; the rest as :meth:`process`."""
        return self._run(image)[2]

    def _run(self, image: Rgb) -> tuple[Rgb, Rgb, NDArray[np.uint8]]:
        check_image(image)
        if self._process != os.getpid():
            raise ConfigError("this Processor is of the process that was forked: make one here")
        with self._lock, errors_in_keywords():
            if not self._free.alive:
                raise ConfigError("this Processor was closed")
            height, width = image.shape[:2]
            stages = self._sizes.pop((width, height), None)
            if stages is None:
                while len(self._sizes) >= _SIZES:
                    self._sizes.popitem(last=False)[1].close()
                stages = _Stages(self._builder, self._config, self._model, (width, height))
            self._sizes[width, height] = stages
            return stages.run(np.ascontiguousarray(image))

    def close(self) -> None:
        """Free the models; safe to call twice."""
        if self._process == os.getpid():  # or the lock may be a lost thread's
            with self._lock:
                self._free()


def _free(
    sizes: OrderedDict[tuple[int, int], _Stages], builder: StageBuilder, process: int
) -> None:
    """Close what a processor has made; a fork of its process has none of the threads behind it."""
    if process != os.getpid():
        return
    while sizes:
        sizes.popitem()[1].close()
    builder.close()


def check_image(image: Any) -> None:
    """Raise ConfigError where something is no picture that can be processed."""
    if not isinstance(image, np.ndarray):
        found = f"a {type(image).__name__}"
    elif image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        found = f"an array {image.shape} of {image.dtype}"
    elif not image.size:
        found = f"an empty one {image.shape}"
    else:
        return
    raise ConfigError(f"the image must be a NumPy array (H, W, 3) of uint8, red first, not {found}")
