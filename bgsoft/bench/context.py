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
from bgsoft.config import Precision, RenderConfig
from bgsoft.decode.base import DecodeSettings
from bgsoft.errors import BackendUnavailableError
from bgsoft.frame import Frame
from bgsoft.infer.loading import NetworkLoader
from bgsoft.media.info import VideoInfo
from bgsoft.models.catalog import ResolvedModel, resolve
from bgsoft.pipeline.metrics import Metrics
from bgsoft.pipeline.ring import FrameRing
from bgsoft.selftest.parity import HostSide
from bgsoft.selftest.stages import run_model
from bgsoft.stages import StageBuilder, host_planes

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice


_FRAME_BYTES = 256 << 20
"""Most memory that the kept frames may take."""


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
        tell: Callable[[str], None],
    ) -> None:
        alone = replace(
            config.backends.on_cpu(), require_gpu=False, batch=None, precision=Precision.FP32
        )
        self.config = replace(config, backends=alone)
        """All on the CPU."""
        self._gpu = backends.chosen_gpu(config.backends.gpu)
        self.info = info
        self.folder = folder
        self.seconds = seconds
        self.model = resolve(config.segment.model)
        self.frames: list[Frame] = []
        """The clip's first frames, on the host, as decoded."""
        self._tell = tell
        format = info.format
        frame_bytes = format.width * format.height * (1.5 * format.bytes_per_sample + 1)
        count = max(2, min(frames, int(_FRAME_BYTES / frame_bytes)))
        ring = FrameRing(count + 1, lambda slot: host_planes(format, slot))
        with self._builder().open_decoder(config.input, DecodeSettings()) as decoder:
            for frame in decoder.frames(ring):
                self.frames.append(frame)
                if len(self.frames) == count:
                    break

    def _builder(self) -> StageBuilder:
        # Renders of the same settings tell of every event.
        return StageBuilder(self.config.backends, lambda _event: None, alone=True)

    def loader(self, model: ResolvedModel, precision: Precision = Precision.FP32) -> NetworkLoader:
        """Loads a model, and tells where that takes long."""
        name = model.spec.name
        return NetworkLoader(model, precision, lambda text: self._tell(f"{name}: {text}"))

    @functools.cached_property
    def composited(self) -> list[Frame]:
        """The same frames, kept apart, as a render gives them to its encoder."""
        stages = self._builder().make_picture_stages(
            self.config, self.info, self.model, Metrics(), lambda _frame: None
        )
        made = []
        for frame in self.frames:
            copy = HostSide().place(frame)
            stages.process(copy)
            made.append(copy)
        stages.close()
        return made

    @functools.cached_property
    def mask(self) -> NDArray[np.float32]:
        """The model's mask of the first frame."""
        return run_model(self.model, self.frames[0], runs=1).values

    @functools.cached_property
    def device(self) -> CudaDevice:
        """The GPU; BackendUnavailableError with the reason where there is none."""
        reason = self.missing("composite", "cuda")
        if reason is not None:
            raise BackendUnavailableError(reason)
        from bgsoft.cuda.device import CudaDevice

        return CudaDevice(self._gpu)

    @functools.cached_property
    def _candidates(self) -> dict[str, list[backends.Candidate]]:
        return backends.probe_all(self._gpu)

    def missing(self, stage: str, backend: str) -> str | None:
        """Why a backend cannot run here; None where nothing speaks against it."""
        candidate = next(c for c in self._candidates[stage] if c.name == backend)
        return None if candidate.available else candidate.explanation
