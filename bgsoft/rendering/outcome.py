"""The stages of a render, and the outcome of their work."""

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
    """Let files appear under their names: all of them or, where one cannot be written, none."""
    if len(files) > 1:
        for file in files:
            file.prepare_commit()
    for file in files:
        file.commit()


class TrimmingSink:
    """Gives every finished frame to each taker, except those before a pts."""

    def __init__(
        self, takers: Sequence[FrameSink], stats: DecodeStats, trim_start: int | None
    ) -> None:
        self._takers = takers
        self._stats = stats
        self._trim_start = trim_start
        self.frames = 0
        """Frames that were taken."""
        self.concealed = 0
        """Damaged frames among those that were taken."""
        self.damage_before = 0
        """Packets that were unreadable by the time of the first frame that was taken."""
        self.messages: Counter[str] = Counter()
        """Messages of the frames that were taken, by kind."""

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
            raise ConfigError("no frame lies in the part that --start and --duration ask for")
        for taker in self._takers:
            taker.finish()


class RenderStages(NamedTuple):
    """The stages that frames pass through, and what they were built for."""

    info: VideoInfo
    model: ResolvedModel
    builder: StageBuilder
    decoder: Decoder
    pictures: PictureStages
    outputs: list[EncodedOutput]
    takers: Sequence[FrameSink]
    """Who gets the frames: the outputs, or who takes them in their place."""


class PipelineOutcome(NamedTuple):
    """The outcome of a pipeline through which all frames have passed."""

    result: PipelineResult
    sink: TrimmingSink
    meter: ProgressMeter
    ring_slots: int
    watch: GpuWatch
    """Over the GPU while frames passed."""
    setup_seconds: float
    """From the beginning of the render to that of the pipeline."""
