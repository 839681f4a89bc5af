"""A virtual camera: a v4l2loopback device that other programs see as a webcam."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bgsoft.errors import BackendUnavailableError, ConfigError, OutputError, translated
from bgsoft.frame import Frame, FrameFormat, PixelLayout
from bgsoft.live.queued import Fitter, QueuedSink
from bgsoft.media.info import VideoInfo
from bgsoft.settings.config import EffectKind, RenderConfig


class VirtualCamera(QueuedSink):
    """Writes NV12 frames of an even size to a device; see :class:`bgsoft.live.base.Sink`.

    Raises:
        BackendUnavailableError: pyvirtualcam is not installed.
        ConfigError: A camera cannot show the effect.
    """

    def __init__(
        self, device: str, config: RenderConfig, info: Callable[[], VideoInfo | None]
    ) -> None:
        if config.effect.kind is EffectKind.ALPHA:
            raise ConfigError(
                f"cannot use --effect alpha with --to {device}: a camera has no alpha channel"
            )
        with translated(
            ImportError,
            to=lambda exc: BackendUnavailableError(
                f"cannot write to {device}: pyvirtualcam is missing ({exc}); pip install '.[live]'"
            ),
        ):
            import pyvirtualcam
        self._library = pyvirtualcam
        self._info = info
        self._camera: Any = None
        super().__init__(device)

    def _write(self, frame: Frame) -> None:
        if self._camera is None:
            self._begin(frame)
        fitted = self._fitter.fit(frame)
        height = fitted.format.height
        np.copyto(self._picture[:height], fitted.luma)
        np.copyto(self._picture[height:], fitted.chroma.reshape(height // 2, -1))
        self._camera.send(self._picture.reshape(-1))

    def _begin(self, frame: Frame) -> None:
        info = self._info()
        assert info is not None  # a frame has come
        width, height = (max(2, side & ~1) for side in (frame.format.width, frame.format.height))
        color = replace(frame.format.color, full_range=False)  # programs expect limited range
        format = FrameFormat(width=width, height=height, layout=PixelLayout.NV12, color=color)
        self._fitter = Fitter(replace(info, format=format))
        self._picture: NDArray[np.uint8] = np.empty((height * 3 // 2, width), np.uint8)
        with translated(
            RuntimeError, OSError, to=lambda exc: OutputError(f"cannot open {self.name}: {exc}")
        ):
            self._camera = self._library.Camera(
                width=width,
                height=height,
                fps=float(info.nominal_rate),
                fmt=self._library.PixelFormat.NV12,
                device=self.name,
            )

    def _finish(self) -> None:
        if self._camera is not None:
            self._camera.close()

    def _abandon(self) -> str:
        self._finish()
        return ""
