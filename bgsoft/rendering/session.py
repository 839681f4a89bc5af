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
from bgsoft.face.data import FaceDataWriter
from bgsoft.infer.providers import require_runtime
from bgsoft.media.info import VideoInfo
from bgsoft.media.probe import probe
from bgsoft.models.catalog import ResolvedModel, resolve
from bgsoft.pipeline.metrics import Metrics, ProgressMeter
from bgsoft.pipeline.runner import Pipeline, check_pts
from bgsoft.pipeline.trace import TraceRecorder
from bgsoft.rendering.backends import may_use_gpu
from bgsoft.rendering.part import Part, PartResult
from bgsoft.rendering.report import Built, EventLog, Ran, render_report, skipped_report
from bgsoft.rendering.target import Sink, Target, all_folders, check_outputs, open_faces
from bgsoft.report import Event, Progress, RenderReport
from bgsoft.settings.config import RenderConfig
from bgsoft.startup import Parts, Span, logged, process_start_ns, span

if TYPE_CHECKING:
    from bgsoft.pipeline.picture import PictureStages
    from bgsoft.rendering.build import StageBuilder


_abandoned: list[ExitStack] = []
"""What a stage that never came back may still be using: kept until the process ends."""


def render_config(
    config: RenderConfig,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    on_event: Callable[[Event], None] | None = None,
    cancel: threading.Event | None = None,
    events: Sequence[Event] = (),
) -> RenderReport:
    """Render one video by settings that are already made; :func:`bgsoft.render` makes them.

    Args:
        config: What to do.
        on_progress: Called about ten times a second, from the calling thread.
        on_event: Called once for each notice, fallback, repair and scene cut, from any thread,
            never from two at a time.
        cancel: Set it, from any thread, to stop the render.
        events: What is known beforehand; reported first.

    Returns:
        What was done.

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
    require_runtime()
    session = _Session(config, on_event)
    for event in events:
        session.log.report(event)
    return session.run(on_progress, cancel).report


def render_part(
    config: RenderConfig,
    part: Part,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    on_event: Callable[[Event], None] | None = None,
    cancel: threading.Event | None = None,
) -> PartResult:
    """Render a part of a video, without the tracks that are copied.

    Args:
        config: Its output is the part's; start and duration count no more.
        part: Which frames.
        on_progress: As :func:`render_config`.
        on_event: Likewise; what concerns frames outside the part is not reported.
        cancel: Likewise.

    Raises:
        BgsoftError: As :func:`render_config`.
    """
    require_runtime()
    return _Session(config, on_event, part).run(on_progress, cancel)


class _Session:
    """Everything that lives as long as one render."""

    def __init__(
        self,
        config: RenderConfig,
        on_event: Callable[[Event], None] | None,
        part: Part | None = None,
    ) -> None:
        self._config = config
        self._part = part
        self._kept_from = None if part is None else part.kept_from
        self._recorder = None if config.trace is None else TraceRecorder()
        self.log = EventLog(on_event, part, self._recorder)
        self._metrics = Metrics(self._recorder)
        self._files = ExitStack()
        """What is written; closed in any case."""
        self._stack = ExitStack()
        """Everything else; a stage that does not come back keeps it open."""
        self._face_data: FaceDataWriter | None = None
        self._spans: list[Span] = []
        """What took how long while it was set up."""
        self._started = time.perf_counter()
        self._process_seconds = self._started - process_start_ns() / 1e9

    def run(
        self, on_progress: Callable[[Progress], None] | None, cancel: threading.Event | None
    ) -> PartResult:
        """Render; nothing stays open, and nothing is left behind where it fails."""
        try:
            with self._files, self._stack:
                return self._render(on_progress, cancel)
        except BaseException as exc:
            data = self._face_data
            if data is not None and data.kept is not None and self._part is None:
                exc.add_note(f"the faces of the first {data.frames} frames are in {data.kept}")
            raise
        finally:
            device = sys.modules.get("bgsoft.cuda.device")
            if device is not None and not _abandoned:
                device.free_unused()

    def _render(
        self, on_progress: Callable[[Progress], None] | None, cancel: threading.Event | None
    ) -> PartResult:
        # Apart from run: what lives on a device has to be gone when that gives its memory back.
        built = self._build()
        self.log.fallbacks(built.builder.choices)
        if cancel is not None and cancel.is_set():
            raise RenderCancelledError("interrupted")
        ran = self._run_pipeline(built, on_progress, cancel)
        lead, kept = self._verify(built, ran)
        self._publish(built)
        ran.meter.finish(len(kept))
        return self._report(built, ran, lead, kept)

    def _build(self) -> Built:
        """Probe the input, open what is written, and make the stages, beside each other."""
        config, stack = self._config, self._stack
        self._spans = stack.enter_context(logged())
        with Parts() as parts:
            building = parts.begin("backends", partial(self._make_builder, parts))
            with span("probe"):
                info = probe(config.input)
            builder = building.result()
            stack.callback(builder.close)
            model = resolve(config.segment.model)
            self._open_side_files()
            for notice in info.notices:
                self.log.tell("notice", notice, stage="decode")
            # Decoder and picture stages are made beside each other, and beside what follows.
            decoding = parts.begin("decoder", partial(self._open_decoder, builder, info))
            making = parts.begin("picture stages", partial(self._make_stages, builder, info, model))
            with span("output"):
                targets = self._open_targets(builder, info)
        decoder, stages = decoding.result(), making.result()
        stack.callback(decoder.close)
        stack.callback(stages.close)
        return Built(
            info=info,
            model=model,
            builder=builder,
            decoder=decoder,
            stages=stages,
            targets=targets,
        )

    def _make_builder(self, parts: Parts) -> StageBuilder:
        # Imported here, while the input is looked at: most of a short start is imports.
        with span("imports for the stages"):
            import cv2

            from bgsoft.rendering.build import StageBuilder

        # Each stage has a thread of its own; OpenCV's pool would fight with the codecs' threads.
        cv2.setNumThreads(1)
        config = self._config.backends
        if config.infer != "cpu" and may_use_gpu(config):
            from bgsoft.infer.sessions import open_provider

            parts.begin("CUDA provider", partial(open_provider, cuda_number(config.gpu or 0)))
        return StageBuilder(config, self.log.report)

    def _open_side_files(self) -> None:
        """Begin what is written beside the videos, and make the folders of all."""
        config, part = self._config, self._part
        if part is not None and config.face_data is None:
            return
        self._face_data = open_faces(config, exact=part is not None)
        self._files.enter_context(all_folders(config, partial(self.log.tell, "notice")))
        if self._face_data is not None:
            self._files.enter_context(self._face_data)

    def _open_targets(self, builder: StageBuilder, info: VideoInfo) -> list[Target]:
        return [
            Target(
                path,
                self._config,
                info,
                builder,
                self._files,
                self._stack,
                self.log.report,
                copy_tracks=self._part is None,
            )
            for path in self._config.videos
        ]

    def _open_decoder(self, builder: StageBuilder, info: VideoInfo) -> Decoder:
        config = self._config
        settings = DecodeSettings(
            start_seconds=config.start_seconds,
            duration_seconds=config.duration_seconds,
            range=None if self._part is None else self._part.frames,
        )
        return builder.open_decoder(config.input, settings, info)

    def _make_stages(
        self, builder: StageBuilder, info: VideoInfo, model: ResolvedModel
    ) -> PictureStages:
        part = self._part
        return builder.make_picture_stages(
            self._config,
            info,
            model,
            self._metrics,
            self.log.scene_cut,
            self._face_data,
            kept_from=self._kept_from,
            began=None if part is None else part.began * info.time_base,
        )

    def _run_pipeline(
        self,
        built: Built,
        on_progress: Callable[[Progress], None] | None,
        cancel: threading.Event | None,
    ) -> Ran:
        """Let all frames through."""
        config, part, recorder = self._config, self._part, self._recorder
        meter = ProgressMeter(
            _expected_frames(built.info, config) if part is None else part.length,
            self._metrics,
            on_progress or (lambda _progress: None),
        )
        with span("ring"):
            ring = built.builder.make_ring(built.info.format, built.stages.held)
        if recorder is not None:
            recorder.add_start(self._spans)
        setup_seconds = time.perf_counter() - self._started
        sink = Sink(built.targets, built.decoder.stats, self._kept_from)
        pipeline = Pipeline(
            decoder=built.decoder,
            stage=built.stages,
            sink=sink,
            ring=ring,
            metrics=self._metrics,
            on_tick=lambda _frames: meter.tick(sink.frames),
            cancel=cancel,
            stall_seconds=config.backends.stall_seconds,
        )
        on_value = None if recorder is None else recorder.counter
        with GpuWatch(built.builder.used_device, on_value) as watch:
            try:
                result = pipeline.run()
            finally:
                if pipeline.stuck:
                    _abandoned.append(self._stack.pop_all())
        built.stages.close()  # on a GPU, the last clocks are read now
        return Ran(
            result=result,
            sink=sink,
            meter=meter,
            ring_slots=ring.size,
            watch=watch,
            setup_seconds=setup_seconds,
        )

    def _verify(self, built: Built, ran: Ran) -> tuple[array[int], array[int]]:
        """Compare what was written with what was decoded, frame for frame.

        Returns:
            pts of the frames that only led up to the part, and of those that were kept.
        """
        for event in built.decoder.events:
            self.log.report(event)
        if self._part is None:
            self.log.damage(ran.sink.concealed, built.decoder.stats)
        lead, kept = array("q"), ran.result.decoded_pts
        if self._kept_from is not None:
            first = bisect_left(kept, self._kept_from)
            lead, kept = kept[:first], kept[first:]
        for target in built.targets:
            check_pts(kept, sorted(target.muxer.video_pts), "written", "was written as")
        return lead, kept

    def _publish(self, built: Built) -> None:
        """Let what was written take its names."""
        if self._face_data is not None:
            self._face_data.finish()
        for target in built.targets:
            target.file.commit()
        if self._face_data is not None:
            self._face_data.publish()

    def _report(self, built: Built, ran: Ran, lead: array[int], kept: array[int]) -> PartResult:
        """Say what was done, also in the files that were asked for."""
        config, stats, faces = self._config, built.decoder.stats, built.builder.faces
        report = render_report(
            config,
            built,
            ran,
            kept,
            self._metrics,
            self.log.events,
            self._started,
            self._process_seconds,
        )
        seam = None if faces is None else faces.seam()
        if self._recorder is not None and config.trace is not None:
            stages_run = {name: dataclasses.asdict(stage) for name, stage in report.stages.items()}
            self._recorder.write(
                config.trace, ring_slots=ran.ring_slots, stages=stages_run, versions=report.versions
            )
        if config.report is not None:
            report.write_json(config.report)
        irregular = "its clock or picture size changes" if stats.irregular else None
        if stats.repaired_pts:
            irregular = "timestamps had to be repaired"
        if ran.sink.damage_before:
            irregular = "it is damaged where parts meet"
        return PartResult(
            report=report,
            lead=lead,
            kept=kept,
            packets=[(t.muxer.video_pts, t.muxer.video_durations) for t in built.targets],
            corrupt_packets=stats.corrupt_packets,
            irregular=irregular,
            faces=seam,
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
