"""The stages of a render, and its outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bgsoft.cuda.monitor import GpuWatch
from bgsoft.decode.base import Decoder, DecodeStats
from bgsoft.encode.base import Encoder
from bgsoft.errors import ConfigError
from bgsoft.frame import Frame
from bgsoft.media.info import VideoInfo
from bgsoft.media.writer import Writer
from bgsoft.models.catalog import ResolvedModel
from bgsoft.outputs import OutputFile
from bgsoft.pipeline.metrics import ProgressMeter
from bgsoft.pipeline.runner import FrameSink, PipelineResult
from bgsoft.records import NamedTuple

if TYPE_CHECKING:
    from bgsoft.pipeline.picture import PictureStages
    from bgsoft.rendering.build import StageBuilder


class EncodedOutput(NamedTuple):
    """A video that is being encoded and written."""

    file: OutputFile
    writer: Writer
    encoder: Encoder

    def encode(self, frame: Frame) -> None:
        """See :class:`bgsoft.pipeline.runner.FrameSink`."""
        self.encoder.encode(frame)

    def finish(self) -> None:
        """See :class:`bgsoft.pipeline.runner.FrameSink`."""
        self.encoder.finish()
        self.writer.finish()


def commit(files: Sequence[OutputFile]) -> None:
    """Rename files to their final names: all of them, or none if one cannot be written."""
    if len(files) > 1:
        for file in files:
            file.prepare_commit()
    for file in files:
        file.commit()


class TrimmingSink:
    """A sink that passes finished frames on to several sinks, except those before a pts."""

    def __init__(
        self, takers: Sequence[FrameSink], stats: DecodeStats, trim_start: int | None
    ) -> None:
        self._takers = takers
        self._stats = stats
        self._trim_start = trim_start
        self.frames = 0
        """Number of frames passed on."""
        self.concealed = 0
        """Number of damaged frames among them."""
        self.damage_before = 0
        """Number of unreadable packets before the first of them."""
        self.messages: Counter[str] = Counter()
        """Number of messages in these frames, by kind."""

    def encode(self, frame: Frame) -> None:
        if self._trim_start is not None and frame.pts < self._trim_start:
            self.damage_before = self._stats.corrupt_packets
            return
        self.frames += 1
        self.concealed += frame.concealed
        if frame.messages:
            self.messages.update(kind for kind, _ in frame.messages)
        for taker in self._takers:
            taker.encode(frame)

    def finish(self) -> None:
        if self.frames == 0:
            raise ConfigError(
                "cannot render the part of --start and --duration: no frame is in it;"
                " choose a longer one"
            )
        for taker in self._takers:
            taker.finish()


class RenderStages(NamedTuple):
    """The stages of a render, with its video and model."""

    info: VideoInfo
    model: ResolvedModel
    builder: StageBuilder
    decoder: Decoder
    pictures: PictureStages
    outputs: list[EncodedOutput]
    takers: Sequence[FrameSink]
    """The sinks of frames: the outputs, or those in their place."""


class PipelineOutcome(NamedTuple):
    """The outcome of a finished pipeline."""

    result: PipelineResult
    sink: TrimmingSink
    meter: ProgressMeter
    ring_slots: int
    watch: GpuWatch
    """Measurements of the GPU during the pipeline."""
    setup_seconds: float
    """Time from the start of the render to the start of the pipeline."""
