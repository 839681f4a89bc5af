"""What the stage measurements share: frames of the clip, the model, the GPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bgsoft import backends
from bgsoft.config import (
    BackendConfig,
    CompositeBackend,
    DecodeBackend,
    EncodeBackend,
    InferBackend,
    Precision,
    RenderConfig,
)
from bgsoft.decode.base import DecodeSettings
from bgsoft.errors import BackendUnavailableError
from bgsoft.frame import Frame
from bgsoft.infer.loading import NetworkLoader
from bgsoft.media.info import VideoInfo
from bgsoft.models.catalog import ResolvedModel, resolve
from bgsoft.pipeline.metrics import Metrics
from bgsoft.pipeline.ring import FrameRing
from bgsoft.stages import StageBuilder, host_planes

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice

__all__ = ["BenchContext"]

_FRAME_BYTES = 256 << 20
"""Most memory that the kept frames may take."""


def _cpu_backends(config: BackendConfig) -> BackendConfig:
    """The same settings with every stage on the CPU."""
    return replace(
        config,
        decode=DecodeBackend.CPU,
        infer=InferBackend.CPU,
        composite=CompositeBackend.CPU,
        encode=EncodeBackend.CPU,
        require_gpu=False,
        batch=None,
        precision=Precision.FP32,
    )


class BenchContext:
    """Made once for all cases.

    Args:
        config: Of the render that is taken apart; its input is the clip.
        info: Of the clip.
        folder: For files.
        frames: To keep in memory, for the stages after the decoder.
        seconds: That a case may take in one round.
        tell: Told of long preparations.

    Raises:
        BgsoftError: The clip cannot be decoded, or the model is not there.
    """

    def __init__(
        self,
        config: RenderConfig,
        info: VideoInfo,
        folder: Path,
        *,
        frames: int,
        seconds: float,
        tell: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self.tell = tell
        self.config = replace(config, backends=_cpu_backends(config.backends))
        """All on the CPU."""
        self.gpu = backends.chosen_gpu(config.backends.gpu)
        self.info = info
        self.folder = folder
        self.seconds = seconds
        self.model: ResolvedModel = resolve(config.segment.model)
        format = info.format
        frame_bytes = format.width * format.height * (1.5 * format.bytes_per_sample + 1)
        self._count = max(2, min(frames, int(_FRAME_BYTES / frame_bytes)))
        self.frames = self._decode()
        """The clip's first frames, on the host, as decoded."""

    def _decode(self) -> list[Frame]:
        format = self.info.format
        ring = FrameRing(self._count + 1, lambda slot: host_planes(format, slot))
        kept: list[Frame] = []
        with self._builder().open_decoder(self.config.input, DecodeSettings()) as decoder:
            frames = decoder.frames(ring)
            for frame in frames:
                kept.append(frame)
                if len(kept) == self._count:
                    break
        return kept

    def _builder(self) -> StageBuilder:
        # Renders of the same settings tell of every event.
        return StageBuilder(self.config.backends, lambda _event: None, alone=True)

    def loader(self, model: ResolvedModel, precision: Precision = Precision.FP32) -> NetworkLoader:
        """Loads a model, and tells where that takes long."""
        return NetworkLoader(model, precision, lambda text: self.tell(f"{model.spec.name}: {text}"))

    @functools.cached_property
    def composited(self) -> list[Frame]:
        """The same frames, kept apart, as a render gives them to its encoder."""
        from bgsoft.selftest.parity import HostSide

        stages = self._builder().make_picture_stages(
            self.config, self.info, self.model, Metrics(), lambda _frame: None
        )
        place = HostSide().place
        made = []
        for frame in self.frames:
            copy = place(frame)
            copy.duration = frame.duration
            stages.process(copy)
            made.append(copy)
        stages.close()
        return made

    @functools.cached_property
    def mask(self) -> NDArray[np.float32]:
        """The model's mask of the first frame."""
        from bgsoft.selftest.stages import run_model

        return run_model(self.model, self.frames[0], runs=1).values

    @functools.cached_property
    def _device(self) -> CudaDevice:
        from bgsoft.cuda.device import CudaDevice

        return CudaDevice(self.gpu)

    def device(self) -> CudaDevice:
        """The GPU.

        Raises:
            BackendUnavailableError: There is none; the message is the reason.
        """
        reason = self.missing("composite", "cuda")
        if reason is not None:
            raise BackendUnavailableError(reason)
        return self._device

    @functools.cached_property
    def _candidates(self) -> dict[str, list[backends.Candidate]]:
        return backends.probe_all(self.gpu)

    def missing(self, stage: str, backend: str) -> str | None:
        """Why a backend cannot run here; None where nothing speaks against it."""
        for candidate in self._candidates[stage]:
            if candidate.name == backend and not candidate.available:
                return candidate.explanation
        return None
