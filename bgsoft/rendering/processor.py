"""Single pictures as arrays, composited with models that stay loaded."""

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
from bgsoft.rendering.picture_options import PictureOptions
from bgsoft.report import Event
from bgsoft.settings.config import EffectKind, RenderConfig
from bgsoft.settings.keywords import PictureSettings
from bgsoft.settings.main import MainPlace, parse_main
from bgsoft.settings.options import DEFAULT_PRESET, errors_in_keywords

Rgb = NDArray[np.uint8]
"""(H, W, 3), red first."""
_SIZES = 2
"""Number of picture sizes whose stages are kept."""
_BT709 = 1


def _info(width: int, height: int) -> VideoInfo:
    """Describe a picture as a video of one frame."""
    # Limited range: swscale rounds to it, but truncates to full range.
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
    """The stages of a render for pictures of one size."""

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
            config, info, model, Metrics(), PictureOptions(began=Fraction(0))
        )
        self._pictures = OneByOne(builder, self._stages, info, keeps_source=True)
        try:
            self._stages.start()
        except BaseException:
            self.close()
            raise

    def run(self, image: Rgb) -> tuple[Rgb, Rgb, NDArray[np.uint8]]:
        """Return a picture decoded and composited, both through 4:2:0, and its alpha."""
        self._stages.restart()
        frame = self._pictures.process(VideoFrame.from_ndarray(image, format="rgb24"))
        source = self._pictures.source
        assert source is not None
        decoded = self._rgb.picture(replace(frame, planes=source))
        return decoded, self._rgb.picture(frame), frame.planes.alpha.copy()

    def close(self) -> None:
        self._pictures.close()


class Processor(Closing):
    """Compositor of single pictures, with models that stay loaded.

        with bgsoft.Processor(effect="bokeh") as processor:
            for image in images:
                show(processor.process(image))

    Stages for the last two picture sizes are kept; on a GPU, so are models for these sizes. Several
    threads may use it, one after another; a forked process may not.

    Args:
        preset: A preset's name or TOML file; None: the defaults only.
        on_event: Called for each notice and fallback.
        **settings: Those of :func:`bgsoft.render`, except settings of videos and of files.

    Raises:
        ConfigError: A value is out of range, or needs a video.
        TypeError: A setting is unknown, or does not apply to pictures.
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
            timed = [region.name for region in config.all_regions if region.is_timed]
            main = map(parse_main, config.face.main)
            timed += [f"--main {x.text}" for x in main if isinstance(x, MainPlace) and x.seconds]
            if timed:
                raise ConfigError(f"cannot use {timed[0]}: a picture has no time")
            require_runtime()
            self._config = replace(config, backends=replace(config.backends, batch=1))
            self._model = resolve(config.segment.model)
            self._builder = StageBuilder(
                self._config.backends,
                on_event or (lambda _event: None),
                user=ModelUser(SharedModels()),
            )
        # Frees models even without close().
        self._free = weakref.finalize(self, _free, self._sizes, self._builder, self._process)

    def process(self, image: Rgb) -> NDArray[np.uint8]:
        """Composite one picture.

        Where the matte is 255, the result is the picture, bit for bit. Where it is 0, the result is
        the background. Values between mix both. The background passes through 4:2:0. If faces or
        places are hidden, the whole picture does.

        Args:
            image: (H, W, 3) uint8, R'G'B', red first; in any memory order.

        Returns:
            (H, W, 3) uint8; with effect alpha (H, W, 4), straight alpha last.

        Raises:
            ConfigError: The image is not such an array, or the Processor was closed.
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
        """Return the matte of one picture, (H, W) uint8, 255 = person; see :meth:`process`."""
        return self._run(image)[2]

    def _run(self, image: Rgb) -> tuple[Rgb, Rgb, NDArray[np.uint8]]:
        check_image(image)
        if self._process != os.getpid():
            raise ConfigError("cannot use a Processor in a forked process; make one in it")
        with self._lock, errors_in_keywords():
            if not self._free.alive:
                raise ConfigError("cannot use this Processor: it was closed")
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
        if self._process == os.getpid():  # in a fork, a lost thread may hold the lock
            with self._lock:
                self._free()


def _free(
    sizes: OrderedDict[tuple[int, int], _Stages], builder: StageBuilder, process: int
) -> None:
    """Close a processor's stages, unless in a fork, which lacks their threads."""
    if process != os.getpid():
        return
    while sizes:
        sizes.popitem()[1].close()
    builder.close()


def check_image(image: Any) -> None:
    """Check that an image can be processed; raise ConfigError if not."""
    if not isinstance(image, np.ndarray):
        found = f"a {type(image).__name__}"
    elif image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        found = f"an array {image.shape} of {image.dtype}"
    elif not image.size:
        found = f"an empty array {image.shape}"
    else:
        return
    raise ConfigError(f"the image must be a NumPy array (H, W, 3) of uint8, red first, not {found}")
