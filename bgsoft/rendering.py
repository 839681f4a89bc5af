"""One render: settings to stages, stages to pipeline, pipeline to report."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bgsoft import __version__
from bgsoft.backends import STAGES, Choice, may_use_gpu
from bgsoft.config import EffectKind, RenderConfig
from bgsoft.cuda.driver import cuda_number
from bgsoft.cuda.monitor import Watch, watched
from bgsoft.decode.base import Decoder, DecodeSettings, DecodeStats
from bgsoft.encode.base import Encoder, PictureKind
from bgsoft.errors import ConfigError, RenderCancelledError
from bgsoft.face.data import FaceDataWriter, open_face_data
from bgsoft.frame import Frame
from bgsoft.infer.providers import require_runtime
from bgsoft.machine import library_versions
from bgsoft.media.containers import container_for
from bgsoft.media.info import VideoInfo
from bgsoft.media.mux import Muxer
from bgsoft.media.probe import probe
from bgsoft.models.catalog import ResolvedModel, resolve
from bgsoft.outputs import AtomicOutput, check_target, made_folders
from bgsoft.pipeline.metrics import Metrics, ProgressMeter, peak_rss_bytes
from bgsoft.pipeline.runner import Pipeline, PipelineResult, check_pts
from bgsoft.pipeline.trace import TraceRecorder, profiler_ranges
from bgsoft.report import Event, ModelReport, Progress, RenderReport, StageReport
from bgsoft.startup import Parts, logged, process_start_ns, span

if TYPE_CHECKING:
    from bgsoft.pipeline.picture import PictureStages
    from bgsoft.stages import StageBuilder


_PICTURE_KINDS = {
    EffectKind.ALPHA: PictureKind.COLOR_ALPHA,
    EffectKind.MATTE: PictureKind.MATTE,
}


_abandoned: list[ExitStack] = []
"""What a stage that never came back may still be using: kept until the process ends."""


def render_config(
    config: RenderConfig,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    on_event: Callable[[Event], None] | None = None,
    cancel: threading.Event | None = None,
) -> RenderReport:
    """Render one video by settings that are already made; :func:`bgsoft.render` makes them.

    Args:
        config: What to do.
        on_progress: Called about ten times a second, from the calling thread.
        on_event: Called once for each notice, fallback, repair and scene cut, from any thread,
            never from two at a time.
        cancel: Set it, from any thread, to stop the render.

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
    for path in config.videos:
        container_for(path)
    if config.skip_existing and config.output.exists():
        return _skip(config)
    _check_beside(config)
    require_runtime()
    return _Render(config, on_event).run(on_progress, cancel)


def _check_beside(config: RenderConfig) -> None:
    """Raise OutputError where trace or report could not be written."""
    taken = [config.input, *config.videos, *filter(None, [config.face_data])]
    for path, what in ((config.trace, "trace"), (config.report, "report")):
        if path is not None:
            check_target(path, what, overwrite=config.overwrite, others=taken)
            taken.append(path)


class _Target:
    """One file being written: temporary file, muxer and encoder."""

    def __init__(
        self,
        path: Path,
        config: RenderConfig,
        info: VideoInfo,
        builder: StageBuilder,
        files: ExitStack,
        stack: ExitStack,
        on_event: Callable[[Event], None],
    ) -> None:
        main = path is config.output
        inputs = [config.input]
        if config.effect.kind in (EffectKind.IMAGE, EffectKind.VIDEO) and config.effect.background:
            inputs.append(Path(config.effect.background))
        self.file = files.enter_context(
            AtomicOutput(path, overwrite=config.overwrite, inputs=inputs)
        )
        self.muxer = stack.enter_context(
            Muxer(
                self.file.temporary,
                container_for(path),
                info,
                copy_tracks=main,
                start_seconds=config.start_seconds,
                duration_seconds=config.duration_seconds,
                output_path=path,
                on_event=on_event,
            )
        )
        self.encoder: Encoder
        if main:
            kind = _PICTURE_KINDS.get(config.effect.kind, PictureKind.COLOR)
            self.encoder = builder.open_encoder(self.muxer, config.encode, info, kind)
        else:
            self.encoder = builder.open_matte_encoder(self.muxer, info)
        stack.callback(self.encoder.close)


class _Sink:
    """Gives every finished frame to each target."""

    def __init__(self, targets: list[_Target]) -> None:
        self._targets = targets

    def encode(self, frame: Frame) -> None:
        for target in self._targets:
            target.encoder.encode(frame)

    def finish(self) -> None:
        if self._targets[0].encoder.frames == 0:
            raise ConfigError("no frame lies in the part that --start and --duration ask for")
        for target in self._targets:
            target.encoder.finish()
            target.muxer.finish()


class _Render:
    """Everything that lives as long as one render."""

    def __init__(self, config: RenderConfig, on_event: Callable[[Event], None] | None) -> None:
        self._config = config
        self._listener = on_event
        ranges = profiler_ranges()
        self._recorder = None if config.trace is None else TraceRecorder(ranges)
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._metrics = Metrics(self._recorder or ranges)
        self._files = ExitStack()
        """What is written; closed in any case."""
        self._stack = ExitStack()
        """Everything else; a stage that does not come back keeps it open."""
        self._face_data: FaceDataWriter | None = None
        self._started = time.perf_counter()
        self._process_seconds = self._started - process_start_ns() / 1e9

    def _tell(self, kind: str, message: str, **more: Any) -> None:
        self._emit(Event(kind=kind, message=message, **more))

    def _emit(self, event: Event) -> None:
        with self._lock:
            self._events.append(event)
            if self._recorder is not None:
                self._recorder.instant(f"{event.kind}: {event.message}")
            if self._listener is not None:
                self._listener(event)

    def run(
        self, on_progress: Callable[[Progress], None] | None, cancel: threading.Event | None
    ) -> RenderReport:
        """Set up, render, verify, publish, report."""
        try:
            with self._files, self._stack:
                return self._run(on_progress, cancel)
        except BaseException as exc:
            data = self._face_data
            if data is not None and data.kept is not None:
                exc.add_note(f"the faces of the first {data.frames} frames are in {data.kept}")
            raise

    def _run(
        self, on_progress: Callable[[Progress], None] | None, cancel: threading.Event | None
    ) -> RenderReport:
        config, stack = self._config, self._stack
        spans = stack.enter_context(logged())
        with Parts() as parts:
            building = parts.begin("backends", partial(self._make_builder, parts))
            with span("probe"):
                info = probe(config.input)
            builder = building.result()
            stack.callback(builder.close)
            model = resolve(config.segment.model)
            self._open_others()
            for notice in info.notices:
                self._tell("notice", notice, stage="decode")
            # Decoder and picture stages are made beside each other, and beside what follows.
            decoding = parts.begin("decoder", partial(self._open_decoder, builder, info))
            making = parts.begin("picture stages", partial(self._make_stages, builder, info, model))
            with span("output"):
                targets = [
                    _Target(path, config, info, builder, self._files, stack, self._emit)
                    for path in config.videos
                ]
        decoder, stages = decoding.result(), making.result()
        stack.callback(decoder.close)
        stack.callback(stages.close)
        self._report_fallbacks(builder.choices)
        if cancel is not None and cancel.is_set():
            raise RenderCancelledError("interrupted")
        meter = ProgressMeter(
            _expected_frames(info, config), self._metrics, on_progress or (lambda _progress: None)
        )
        with span("ring"):
            ring = builder.make_ring(info.format, stages.held)
        if self._recorder is not None:
            self._recorder.add_start(spans)
        setup_seconds = time.perf_counter() - self._started
        pipeline = Pipeline(
            decoder=decoder,
            stage=stages,
            sink=_Sink(targets),
            ring=ring,
            metrics=self._metrics,
            on_tick=meter.tick,
            cancel=cancel,
            stall_seconds=config.backends.stall_seconds,
        )
        on_value = None if self._recorder is None else self._recorder.counter
        with watched(builder.used_device, on_value) as watch:
            try:
                result = pipeline.run()
            finally:
                if pipeline.stuck:
                    _abandoned.append(stack.pop_all())
        stages.close()  # on a GPU, the last clocks are read now
        for event in decoder.events:
            self._emit(event)
        self._report_damage(decoder.stats)
        for target in targets:
            check_pts(result, sorted(target.muxer.video_pts), "written", "was written as")
        if self._face_data is not None:
            self._face_data.finish()
        for target in targets:
            target.file.commit()
        if self._face_data is not None:
            self._face_data.publish()
        meter.finish(len(result.encoded_pts))
        report = self._report(
            info, model, builder, targets[0], decoder.stats, result, setup_seconds, watch
        )
        if self._recorder is not None and config.trace is not None:
            stages_run = {name: dataclasses.asdict(stage) for name, stage in report.stages.items()}
            self._recorder.write(
                config.trace, ring_slots=ring.size, stages=stages_run, versions=report.versions
            )
        if config.report is not None:
            report.write_json(config.report)
        return report

    def _make_builder(self, parts: Parts) -> StageBuilder:
        # Imported here, while the input is looked at: most of a short start is imports.
        with span("imports for the stages"):
            import cv2

            from bgsoft.stages import StageBuilder

        # Each stage has a thread of its own; OpenCV's pool would fight with the codecs' threads.
        cv2.setNumThreads(1)
        config = self._config.backends
        if config.infer != "cpu" and may_use_gpu(config):
            from bgsoft.infer.sessions import open_provider

            parts.begin("CUDA provider", partial(open_provider, cuda_number(config.gpu or 0)))
        return StageBuilder(config, self._emit)

    def _open_decoder(self, builder: StageBuilder, info: VideoInfo) -> Decoder:
        config = self._config
        settings = DecodeSettings(
            start_seconds=config.start_seconds, duration_seconds=config.duration_seconds
        )
        return builder.open_decoder(config.input, settings, info)

    def _make_stages(
        self, builder: StageBuilder, info: VideoInfo, model: ResolvedModel
    ) -> PictureStages:
        return builder.make_picture_stages(
            self._config, info, model, self._metrics, self._scene_cut, self._face_data
        )

    def _open_others(self) -> None:
        """Begin what is written beside the videos, and make the folders of all."""
        config = self._config
        if config.face_data is not None:
            self._face_data = open_face_data(
                config.face_data,
                overwrite=config.overwrite,
                others=[config.input, *config.videos],
            )
        others = filter(None, (config.face_data, config.trace, config.report))
        self._files.enter_context(
            made_folders([*config.videos, *others], partial(self._tell, "notice"))
        )
        if self._face_data is not None:
            self._files.enter_context(self._face_data)

    def _scene_cut(self, frame: Frame) -> None:
        text = f"new scene at {frame.time_seconds:.2f} s"
        self._tell("scene-cut", text, stage="segment", frame=frame.index, pts=frame.pts)

    def _report_fallbacks(self, choices: dict[str, Choice]) -> None:
        """Report every stage that could not have its best backend, each reason once."""
        by_reason: dict[str, dict[str, list[str]]] = {}
        for stage in STAGES:
            for candidate in choices[stage].rejected:
                stages = by_reason.setdefault(candidate.explanation, {})
                stages.setdefault(stage, []).append(candidate.name)
        for reason, stages in by_reason.items():
            if len(stages) == len(choices):
                what = "every stage runs on the CPU"
            else:
                what = ", ".join(
                    f"{stage} runs on {choices[stage].backend}, not {' or '.join(names)}"
                    for stage, names in stages.items()
                )
            self._tell("fallback", f"{what}: {reason}")

    def _report_damage(self, stats: DecodeStats) -> None:
        if stats.concealed_frames or stats.corrupt_packets:
            text = (
                f"the input is damaged: {stats.concealed_frames} frames concealed, "
                f"{stats.corrupt_packets} packets unreadable"
            )
            self._tell("repair", text, stage="decode")
        if stats.repaired_pts:
            text = f"{stats.repaired_pts} missing or falling timestamps repaired"
            self._tell("repair", text, stage="decode")

    def _report(
        self,
        info: VideoInfo,
        model: ResolvedModel,
        builder: StageBuilder,
        target: _Target,
        stats: DecodeStats,
        result: PipelineResult,
        setup_seconds: float,
        watch: Watch,
    ) -> RenderReport:
        frames = len(result.encoded_pts)
        first = result.first_frame_seconds
        wall = time.perf_counter() - self._started
        ticks = result.encoded_pts[-1] - result.encoded_pts[0] + result.last_duration
        device = builder.used_device
        loaded = model.for_provider(
            builder.choices["infer"].backend, self._config.backends.precision
        )
        return RenderReport(
            bgsoft_version=__version__,
            input=str(self._config.input),
            output=str(self._config.output),
            frames_decoded=len(result.decoded_pts),
            frames_encoded=frames,
            concealed_frames=stats.concealed_frames,
            duration_s=float(ticks * info.time_base),
            wall_s=wall,
            fps=frames / wall,
            first_frame_s=None if first is None else setup_seconds + first,
            process_s=self._process_seconds,
            settings=_settings(self._config, info),
            model=ModelReport(
                name=model.spec.name, sha256=loaded.sha256, licence=model.spec.licence
            ),
            stages=_stage_reports(builder, self._metrics, frames),
            h2d_bytes=device.copies.h2d_bytes / frames if device else 0.0,
            d2h_bytes=device.copies.d2h_bytes / frames if device else 0.0,
            faces=None if builder.faces is None else builder.faces.summary(),
            events=list(self._events),
            audio=target.muxer.audio,
            peak_rss_bytes=peak_rss_bytes(),
            peak_vram_bytes=watch.peak_bytes,
            gpu=watch.summary,
            versions=library_versions(),
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


_FOLLOWED = {"segment": "infer", "matte": "composite"}
"""Stage of the report → the choice that decides where it runs, if not its own."""


def _stage_reports(builder: StageBuilder, metrics: Metrics, frames: int) -> dict[str, StageReport]:
    reports = {}
    device = "cpu" if builder.used_device is None else builder.used_device.label
    for stage in ("decode", "segment", "matte", "composite", "encode"):
        choice = builder.choices[_FOLLOWED.get(stage, stage)]
        reports[stage] = StageReport(
            backend=choice.backend,
            device="cpu" if choice.backend == "cpu" else device,
            ms_per_frame=metrics.stage(stage).ms_per(frames),
            fallback_reason=choice.fallback_reason,
        )
    faces, reason = builder.faces, None
    if faces is None:
        reports["face"] = StageReport(backend="off", device="cpu", ms_per_frame=0.0)
        return reports
    if faces.backend == "cpu" and builder.choices["infer"].backend != "cpu":
        reason = "frames are composited on the CPU, and faces are looked for in the same place"
    reports["face"] = StageReport(
        backend=faces.backend,
        device=faces.device,
        ms_per_frame=metrics.stage("face").ms_per(frames),
        fallback_reason=reason,
    )
    return reports


def _settings(config: RenderConfig, info: VideoInfo | None = None) -> dict[str, Any]:
    """The settings as plain JSON types, without the file names that the report has anyway.

    With ``info``, the frame size in pixels is added, of whose height lengths are percentages.
    """
    plain = dataclasses.asdict(config)
    for name in ("input", "output", "skip_existing", "report", "trace"):
        del plain[name]
    for name in ("matte_out", "face_data"):
        plain[name] = None if plain[name] is None else str(plain[name])
    plain["effect"]["strength"] = config.effect.effective_strength
    if info is not None:
        plain["width"], plain["height"] = info.format.width, info.format.height
    return plain


def _skip(config: RenderConfig) -> RenderReport:
    """The report of a render that was not needed; one that is there already is left alone."""
    report = RenderReport(
        bgsoft_version=__version__,
        input=str(config.input),
        output=str(config.output),
        skipped=True,
        settings=_settings(config),
        peak_rss_bytes=peak_rss_bytes(),
        versions=library_versions(),
    )
    if config.report is not None and not config.report.exists():
        with made_folders([config.report], lambda _text: None):
            report.write_json(config.report)
    return report
