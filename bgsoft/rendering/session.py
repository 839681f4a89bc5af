"""One render: probe, open what is written, build the stages, run, verify, publish, report."""

from __future__ import annotations

import dataclasses
import sys
import threading
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from bgsoft.cuda.driver import cuda_number
from bgsoft.cuda.monitor import GpuWatch
from bgsoft.decode.base import Decoder, DecodeSettings
from bgsoft.errors import RenderCancelledError
from bgsoft.infer.providers import require_runtime
from bgsoft.media.info import VideoInfo
from bgsoft.media.pipe import PipeInput
from bgsoft.models.catalog import ResolvedModel, resolve
from bgsoft.outputs import made_folders, stamp
from bgsoft.pipeline.metrics import ProgressMeter
from bgsoft.pipeline.runner import FrameSink, Pipeline, PipelineResult, check_pts
from bgsoft.pipes import PipeOutput, is_input_pipe
from bgsoft.records import NamedTuple
from bgsoft.rendering.backends import may_use_gpu
from bgsoft.rendering.chunk import Chunk, ChunkResult
from bgsoft.rendering.report import RenderLog, skipped_report
from bgsoft.rendering.target import (
    Sink,
    Target,
    check_outputs,
    commit,
    keeps_chroma,
    keeps_profile,
    lost_chroma,
    open_faces,
    open_targets,
    probe_input,
)
from bgsoft.rendering.unfinished import written_paths
from bgsoft.report import Event, Progress, RenderReport
from bgsoft.settings.config import RenderConfig
from bgsoft.startup import StartupPool, logged, span
from bgsoft.workers import lower_priority

if TYPE_CHECKING:
    from bgsoft.encode.base import Taker
    from bgsoft.face.data import FaceDataWriter
    from bgsoft.pipeline.picture import PictureStages
    from bgsoft.rendering.build import StageBuilder


_unclosed_stacks: list[ExitStack] = []
"""Resources that a stage which never came back may still be using, until the process ends."""


def render_config(
    config: RenderConfig,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    on_event: Callable[[Event], None] | None = None,
    cancel: threading.Event | None = None,
    info: VideoInfo | None = None,
    events: Sequence[Event] = (),
) -> RenderReport:
    """Render one video, in one go; what is not said here is as in
    :func:`bgsoft.chunks.run.render_config`.

    Args:
        config: The settings.
        on_progress, on_event, cancel: As there.
        info: The input, where it has been probed.
        events: Reported first.

    Raises:
        ConfigError: A setting fits neither input nor output.
        BackendUnavailableError: A named backend cannot run here.
        ModelError: The model is missing or damaged.
        OpenError: The input cannot be read.
        UnsupportedFormatError: There is no path for the input or to the output.
        OutputError: The output cannot be written.
        DecodeError, EncodeError, InferenceError, VerificationError: The render failed part-way.
        StallError: A stage stands still. What it has open stays so: it may not be safe to render
            more in this process.
        RenderCancelledError: ``cancel`` was set.

    Nothing is left behind where it raises.
    """
    if not check_outputs(config):
        return skipped_report(config)
    return _Session(config, info, None, on_event).run(on_progress, cancel, events).report


def render_chunk(
    config: RenderConfig,
    info: VideoInfo,
    chunk: Chunk,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    on_event: Callable[[Event], None] | None = None,
    cancel: threading.Event | None = None,
) -> ChunkResult:
    """Render one chunk of a video, without the tracks that are copied.

    Args and errors as :func:`render_config`; of the settings, the output is the chunk's, start and
    duration count no more, and events of frames outside the chunk are not reported.
    """
    return _Session(config, info, chunk, on_event).run(on_progress, cancel)


def hand_over_frames(
    config: RenderConfig,
    taker: Taker,
    *,
    chunk: Chunk | None = None,
    info: VideoInfo | None = None,
    on_event: Callable[[Event], None] | None = None,
    cancel: threading.Event | None = None,
) -> RenderReport:
    """Render one video, or a chunk of it, but give its frames to ``taker``; nothing is written.

    The output of the settings is not looked at; all else is as for :func:`render_config`.
    """
    return _Session(config, info, chunk, on_event, taker).run(None, cancel).report


class Built(NamedTuple):
    """The stages that frames go through, and what they were built for."""

    info: VideoInfo
    model: ResolvedModel
    builder: StageBuilder
    decoder: Decoder
    stages: PictureStages
    targets: list[Target]
    takers: Sequence[FrameSink]
    """What frames go to: the targets, or who takes them instead."""


class PipelineOutcome(NamedTuple):
    """How the frames went through."""

    result: PipelineResult
    sink: Sink
    meter: ProgressMeter
    ring_slots: int
    watch: GpuWatch
    """Over the GPU while frames went through."""
    setup_seconds: float
    """From the beginning of the render to that of the pipeline."""


class _Session:
    """Everything that lives as long as one render."""

    def __init__(
        self,
        config: RenderConfig,
        info: VideoInfo | None,
        chunk: Chunk | None,
        on_event: Callable[[Event], None] | None,
        taker: Taker | None = None,
    ) -> None:
        self._config = config
        self._taker = taker
        self._info = info
        self._chunk = chunk
        self._trim_start = None if chunk is None else chunk.trim_start
        self._log = RenderLog(config, on_event, chunk)
        self._pipe: PipeInput | None = None
        self._input_stamp = stamp(config.input)
        self._files = ExitStack()
        """The files that are written; closed in any case."""
        self._stack = ExitStack()
        """Everything else; a stage that does not come back keeps it open."""
        self._face_data: FaceDataWriter | None = None

    def run(
        self,
        on_progress: Callable[[Progress], None] | None,
        cancel: threading.Event | None,
        events: Sequence[Event] = (),
    ) -> ChunkResult:
        """Render; nothing stays open, and nothing is left behind where it fails."""
        require_runtime()
        for event in events:
            self._log.report(event)
        try:
            with self._files, self._stack:
                return self._render(on_progress, cancel or threading.Event())
        except BaseException as exc:
            data = self._face_data
            if data is not None and data.kept is not None and self._chunk is None:
                exc.add_note(f"the faces of the first {data.frames} frames are in {data.kept}")
            raise
        finally:
            device = sys.modules.get("bgsoft.cuda.device")
            if device is not None and not _unclosed_stacks:
                device.free_unused()

    def _render(
        self, on_progress: Callable[[Progress], None] | None, cancel: threading.Event
    ) -> ChunkResult:
        # Apart from run: what lives on a device has to be gone when that gives its memory back.
        built = self._build(cancel)
        if cancel.is_set():
            raise RenderCancelledError("interrupted")
        outcome = self._run_pipeline(built, on_progress, cancel)
        pre_roll, kept = self._verify(built, outcome)
        self._publish(built)
        outcome.meter.finish(len(kept))
        return self._report(built, outcome, pre_roll, kept)

    def _build(self, cancel: threading.Event) -> Built:
        """Probe the input, open what is written, and make the stages, beside each other."""
        config, chunk, log, stack = self._config, self._chunk, self._log, self._stack
        spans = self._files.enter_context(logged())
        if is_input_pipe(config.input):
            self._pipe = stack.enter_context(PipeInput(config.input, cancel))
        failed = threading.Event()

        def wait_no_more() -> None:
            failed.set()
            if self._pipe is not None:
                self._pipe.stop()

        def stops() -> bool:
            return failed.is_set() or cancel.is_set()

        with StartupPool(wait_no_more) as pool:
            building = pool.submit("backends", partial(self._make_builder, pool))
            probing = pool.submit("probe", lambda: self._info or probe_input(config, self._pipe))
            model = resolve(config.segment.model)
            info, builder = probing.result(), building.result()
            stack.callback(builder.close)
            self._open_side_files()
            keeps = self._taker is None and keeps_chroma(config, info)
            lost = info.lost_chroma if self._taker is not None else lost_chroma(config, info)
            for notice in (*info.notices, *(() if keeps else lost)):
                log.tell("notice", notice, stage="decode")
            settings = DecodeSettings(
                start_seconds=config.start_seconds,
                duration_seconds=config.duration_seconds,
                range=None if chunk is None else chunk.frames,
                keeps_chroma=keeps,
                keeps_profile=self._taker is None and keeps_profile(config),
            )
            make_stages = partial(
                builder.make_picture_stages,
                config,
                info,
                model,
                log.metrics,
                log.scene_cut,
                self._face_data,
                trim_start=self._trim_start,
                began=None if chunk is None else chunk.began * info.time_base,
            )
            open_decoder = partial(builder.open_decoder, config.input, settings, info)
            decoding = pool.submit("decoder", open_decoder)
            making = pool.submit("picture stages", make_stages)
            opening = pool.submit("output", partial(self._open_outputs, info, builder, stops))
        decoder, stages = decoding.result(), making.result()
        targets, takers = opening.result()
        stack.callback(decoder.close)
        stack.callback(stages.close)
        log.fallbacks(builder.choices)
        if log.recorder is not None:
            log.recorder.add_start(spans)
        return Built(
            info=info,
            model=model,
            builder=builder,
            decoder=decoder,
            stages=stages,
            targets=targets,
            takers=takers,
        )

    def _open_outputs(
        self, info: VideoInfo, builder: StageBuilder, stops: Callable[[], bool]
    ) -> tuple[list[Target], Sequence[FrameSink]]:
        """Begin the videos that are written, if any are, and say what frames go to."""
        lower_priority()  # before encoders start threads of their own
        if (taker := self._taker) is not None:
            taker.open(info)
            place = False if taker.on_host_only else builder.on_device
            return [], [builder.adapt_encoder(taker, place, info.format, taker.kind)]
        targets = open_targets(
            self._config,
            info,
            builder,
            self._files,
            self._stack,
            self._log.report,
            copy_tracks=self._chunk is None,
            stops=stops,
        )
        return targets, targets

    def _make_builder(self, pool: StartupPool) -> StageBuilder:
        # Imported here, while the input is looked at: most of a short start is imports.
        with span("imports for the stages"):
            import cv2

            from bgsoft.rendering.build import StageBuilder

        # Each stage has a thread of its own; OpenCV's pool would fight with the codecs' threads.
        cv2.setNumThreads(1)
        config = self._config.backends
        if config.infer != "cpu" and may_use_gpu(config):
            from bgsoft.infer.sessions import open_provider

            pool.submit("CUDA provider", partial(open_provider, cuda_number(config.gpu or 0)))
        return StageBuilder(config, self._log.report)

    def _open_side_files(self) -> None:
        """Begin the file of faces, and make the folders of all files."""
        config, chunk = self._config, self._chunk
        if chunk is not None and config.face_data is None:
            return
        self._face_data = open_faces(config, exact=chunk is not None)
        paths = written_paths(config)
        self._files.enter_context(made_folders(paths, partial(self._log.tell, "notice")))
        if self._face_data is not None:
            self._files.enter_context(self._face_data)

    def _run_pipeline(
        self,
        built: Built,
        on_progress: Callable[[Progress], None] | None,
        cancel: threading.Event,
    ) -> PipelineOutcome:
        """Let all frames through."""
        config, chunk, log = self._config, self._chunk, self._log
        meter = ProgressMeter(
            _expected_frames(built.info, config) if chunk is None else chunk.length,
            log.metrics,
            on_progress or (lambda _progress: None),
        )
        ring = built.builder.make_ring(built.info.format, built.stages.held)
        setup_seconds = time.perf_counter() - log.started
        sink = Sink(built.takers, built.decoder.stats, self._trim_start)
        sent = [target.file for target in built.targets if isinstance(target.file, PipeOutput)]
        pipes: list[PipeInput | PipeOutput] = [*sent, *filter(None, [self._pipe])]

        def tick() -> None:
            meter.tick(sink.frames)
            for output in sent:
                output.check()

        def stop() -> None:
            for pipe in pipes:
                pipe.stop()

        pipeline = Pipeline(
            decoder=built.decoder,
            stage=built.stages,
            sink=sink,
            ring=ring,
            metrics=log.metrics,
            on_tick=tick,
            on_failure=stop,
            outside=lambda: sum(end.waits for end in (*pipes, *filter(None, [self._taker]))),
            cancel=cancel,
            stall_seconds=config.backends.stall_seconds,
        )
        on_value = None if log.recorder is None else log.recorder.counter
        with GpuWatch(built.builder.used_device, on_value) as watch:
            try:
                result = pipeline.run()
            finally:
                if pipeline.stuck:
                    _unclosed_stacks.append(self._stack.pop_all())
        built.stages.close()  # on a GPU, the last clocks are read now
        return PipelineOutcome(
            result=result,
            sink=sink,
            meter=meter,
            ring_slots=ring.size,
            watch=watch,
            setup_seconds=setup_seconds,
        )

    def _verify(self, built: Built, outcome: PipelineOutcome) -> tuple[array[int], array[int]]:
        """Compare what was written with what was decoded, frame for frame.

        Returns:
            pts of the frames of the pre-roll, and of those that were kept.
        """
        for event in built.decoder.events:
            self._log.report(event)
        if self._chunk is None:
            self._log.damage(outcome.sink.concealed, built.decoder.stats)
            is_file = self._pipe is None and not built.info.stills
            if is_file and stamp(self._config.input) not in (self._input_stamp, ""):
                self._log.tell("notice", "the input changed while it was rendered", stage="decode")
        if built.targets:
            lost = outcome.sink.messages - built.targets[0].muxer.messages
            for kind in lost:
                self._log.tell("notice", f"{kind} left out", stage="encode")
        pre_roll, kept = array("q"), outcome.result.decoded_pts
        if self._trim_start is not None:
            first = bisect_left(kept, self._trim_start)
            pre_roll, kept = kept[:first], kept[first:]
        for target in built.targets:
            check_pts(kept, sorted(target.muxer.video_pts), "written", "was written as")
        return pre_roll, kept

    def _publish(self, built: Built) -> None:
        """Let what was written take its names."""
        if self._face_data is not None:
            self._face_data.finish()
        commit([target.file for target in built.targets])
        if self._face_data is not None:
            self._face_data.publish()

    def _report(
        self, built: Built, outcome: PipelineOutcome, pre_roll: array[int], kept: array[int]
    ) -> ChunkResult:
        """Say what was done, also in the files that were asked for."""
        config, stats, faces = self._config, built.decoder.stats, built.stages.faces
        for text in [] if faces is None else faces.notices():
            self._log.tell("notice", text, stage="face")
        report = self._log.render_report(built, outcome, kept)
        if self._log.recorder is not None and config.trace is not None:
            stages = {name: dataclasses.asdict(stage) for name, stage in report.stages.items()}
            self._log.recorder.write(
                config.trace, ring_slots=outcome.ring_slots, stages=stages, versions=report.versions
            )
        if config.report is not None:
            report.write_json(config.report)
        irregular = "its clock or picture size changes" if stats.irregular else None
        if stats.repaired_pts:
            irregular = "timestamps had to be repaired"
        if outcome.sink.damage_before:
            irregular = "it is damaged where chunks meet"
        return ChunkResult(
            report=report,
            pre_roll=pre_roll,
            kept=kept,
            packets=[(t.muxer.video_pts, t.muxer.video_durations) for t in built.targets],
            corrupt_packets=stats.corrupt_packets,
            irregular=irregular,
            faces=None if faces is None else faces.boundary(),
        )


def _expected_frames(info: VideoInfo, config: RenderConfig) -> int | None:
    """Frames to expect for the part that is rendered; for display only."""
    total, rate = info.estimated_frames, info.frame_rate
    if total is None or (config.start_seconds == 0 and config.duration_seconds is None):
        return total
    if not rate:
        return None
    rest = max(0, total - round(config.start_seconds * rate))
    seconds = config.duration_seconds
    return rest if seconds is None else min(rest, round(seconds * rate))
