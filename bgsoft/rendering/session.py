"""One render: settings to stages, stages to pipeline, pipeline to report."""

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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bgsoft import __version__
from bgsoft.cuda.driver import cuda_number
from bgsoft.cuda.monitor import Watch, watched
from bgsoft.decode.base import Decoder, DecodeSettings, DecodeStats
from bgsoft.encode.base import Encoder, PictureKind
from bgsoft.errors import ConfigError, RenderCancelledError
from bgsoft.face.data import FaceDataWriter, open_face_data
from bgsoft.frame import Frame
from bgsoft.infer.providers import require_runtime
from bgsoft.media.containers import container_for
from bgsoft.media.info import VideoInfo
from bgsoft.media.mux import Muxer
from bgsoft.media.probe import probe
from bgsoft.models.catalog import ResolvedModel, resolve
from bgsoft.outputs import AtomicOutput, check_target, made_folders
from bgsoft.pipeline.metrics import Metrics, ProgressMeter, peak_rss_bytes
from bgsoft.pipeline.runner import Pipeline, PipelineResult, check_pts
from bgsoft.pipeline.trace import TraceRecorder
from bgsoft.rendering.backends import STAGES, Choice, may_use_gpu
from bgsoft.rendering.part import Part, PartResult
from bgsoft.report import AudioReport, Event, ModelReport, Progress, RenderReport, StageReport
from bgsoft.settings.config import EffectKind, RenderConfig
from bgsoft.startup import Parts, logged, process_start_ns, span
from bgsoft.versions import library_versions

if TYPE_CHECKING:
    from bgsoft.pipeline.picture import PictureStages
    from bgsoft.rendering.build import StageBuilder


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
    for path in config.videos:
        container_for(path)
    if config.skip_existing and config.output.exists():
        return _skip(config)
    check_beside(config)
    require_runtime()
    render = _Render(config, on_event)
    for event in events:
        render.report(event)
    return render.run(on_progress, cancel)


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
    render = _Render(config, on_event, part)
    report = render.run(on_progress, cancel)
    return PartResult(
        report=report,
        lead=render.lead,
        kept=render.kept,
        packets=render.packets,
        corrupt_packets=render.corrupt_packets,
        irregular=render.irregular,
        faces=render.face_seam,
    )


def check_beside(config: RenderConfig) -> None:
    """Raise OutputError where trace or report could not be written."""
    taken = [config.input, *config.videos, *filter(None, [config.face_data])]
    for path, what in ((config.trace, "trace"), (config.report, "report")):
        if path is not None:
            check_target(path, what, overwrite=config.overwrite, others=taken)
            taken.append(path)


def open_target(
    path: Path,
    config: RenderConfig,
    info: VideoInfo,
    files: ExitStack,
    stack: ExitStack,
    on_event: Callable[[Event], None],
    *,
    copy_tracks: bool,
) -> tuple[AtomicOutput, Muxer]:
    """Begin one of the videos that are written: its file, which appears when it is whole and is
    closed with ``files``, and its muxer, which is closed with ``stack``."""
    file = files.enter_context(
        AtomicOutput(path, overwrite=config.overwrite, inputs=config.inputs, receipt=config.receipt)
    )
    muxer = stack.enter_context(
        Muxer(
            file.temporary,
            container_for(path),
            info,
            copy_tracks=copy_tracks,
            copy_pictures=not config.hides,
            start_seconds=config.start_seconds,
            duration_seconds=config.duration_seconds,
            output_path=path,
            on_event=on_event,
        )
    )
    return file, muxer


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
        *,
        copy_tracks: bool,
    ) -> None:
        main = path is config.output
        self.file, self.muxer = open_target(
            path, config, info, files, stack, on_event, copy_tracks=main and copy_tracks
        )
        self.encoder: Encoder
        if main:
            kind = _PICTURE_KINDS.get(config.effect.kind, PictureKind.COLOR)
            self.encoder = builder.open_encoder(self.muxer, config.encode, info, kind)
        else:
            self.encoder = builder.open_matte_encoder(self.muxer, info)
        stack.callback(self.encoder.close)


class _Sink:
    """Gives every finished frame to each target, but those before a pts."""

    def __init__(self, targets: list[_Target], stats: DecodeStats, kept_from: int | None) -> None:
        self._targets = targets
        self._stats = stats
        self._kept_from = kept_from
        self.frames = 0
        """Those that were taken."""
        self.concealed = 0
        """Damaged frames among those that were taken."""
        self.damage_before = 0
        """Packets that were unreadable by the time of the first frame that was taken."""

    def encode(self, frame: Frame) -> None:
        if self._kept_from is not None and frame.pts < self._kept_from:
            self.damage_before = self._stats.corrupt_packets
            return
        self.frames += 1
        self.concealed += frame.concealed
        for target in self._targets:
            target.encoder.encode(frame)

    def finish(self) -> None:
        if self.frames == 0:
            raise ConfigError("no frame lies in the part that --start and --duration ask for")
        for target in self._targets:
            target.encoder.finish()
            target.muxer.finish()


class _Render:
    """Everything that lives as long as one render."""

    def __init__(
        self,
        config: RenderConfig,
        on_event: Callable[[Event], None] | None,
        part: Part | None = None,
    ) -> None:
        self._config = config
        self._part = part
        self._listener = on_event
        self.lead: array[int] = array("q")
        self.packets: list[tuple[array[int], array[int]]] = []
        self.corrupt_packets = 0
        self.irregular: str | None = None
        self.face_seam: dict[str, Any] | None = None
        """As in :class:`PartResult`, once it has run."""
        self.kept: array[int] = array("q")
        """pts of the frames that were kept, in order; likewise."""
        self._recorder = None if config.trace is None else TraceRecorder()
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._metrics = Metrics(self._recorder)
        self._files = ExitStack()
        """What is written; closed in any case."""
        self._stack = ExitStack()
        """Everything else; a stage that does not come back keeps it open."""
        self._face_data: FaceDataWriter | None = None
        self._started = time.perf_counter()
        self._process_seconds = self._started - process_start_ns() / 1e9

    def _tell(self, kind: str, message: str, **more: Any) -> None:
        self.report(Event(kind=kind, message=message, **more))

    def report(self, event: Event) -> None:
        """Keep an event, and pass it on."""
        part = self._part
        if part is not None and event.pts is not None:
            end = part.frames.end
            if event.pts < part.kept_from or (end is not None and event.pts >= end):
                return
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
            if data is not None and data.kept is not None and self._part is None:
                exc.add_note(f"the faces of the first {data.frames} frames are in {data.kept}")
            raise
        finally:
            device = sys.modules.get("bgsoft.cuda.device")
            if device is not None and not _abandoned:
                device.free_unused()

    def _run(
        self, on_progress: Callable[[Progress], None] | None, cancel: threading.Event | None
    ) -> RenderReport:
        config, stack, part = self._config, self._stack, self._part
        kept_from = None if part is None else part.kept_from
        spans = stack.enter_context(logged())
        with Parts() as parts:
            building = parts.begin("backends", partial(self._make_builder, parts))
            with span("probe"):
                info = probe(config.input)
            builder = building.result()
            stack.callback(builder.close)
            model = resolve(config.segment.model)
            if part is None or config.face_data is not None:
                self._open_others()
            for notice in info.notices:
                self._tell("notice", notice, stage="decode")
            # Decoder and picture stages are made beside each other, and beside what follows.
            decoding = parts.begin("decoder", partial(self._open_decoder, builder, info))
            making = parts.begin("picture stages", partial(self._make_stages, builder, info, model))
            with span("output"):
                targets = [
                    _Target(
                        path,
                        config,
                        info,
                        builder,
                        self._files,
                        stack,
                        self.report,
                        copy_tracks=part is None,
                    )
                    for path in config.videos
                ]
        decoder, stages = decoding.result(), making.result()
        stack.callback(decoder.close)
        stack.callback(stages.close)
        self._report_fallbacks(builder.choices)
        if cancel is not None and cancel.is_set():
            raise RenderCancelledError("interrupted")
        meter = ProgressMeter(
            _expected_frames(info, config) if part is None else part.length,
            self._metrics,
            on_progress or (lambda _progress: None),
        )
        with span("ring"):
            ring = builder.make_ring(info.format, stages.held)
        if self._recorder is not None:
            self._recorder.add_start(spans)
        setup_seconds = time.perf_counter() - self._started
        sink = _Sink(targets, decoder.stats, kept_from)
        pipeline = Pipeline(
            decoder=decoder,
            stage=stages,
            sink=sink,
            ring=ring,
            metrics=self._metrics,
            on_tick=lambda _frames: meter.tick(sink.frames),
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
            self.report(event)
        if part is None:
            self._report_damage(sink.concealed, decoder.stats)
        kept = result.decoded_pts
        if kept_from is not None:
            first = bisect_left(kept, kept_from)
            self.lead, kept = kept[:first], kept[first:]
        for target in targets:
            check_pts(kept, sorted(target.muxer.video_pts), "written", "was written as")
            self.packets.append((target.muxer.video_pts, target.muxer.video_durations))
        self.kept = kept
        self.irregular = _irregularity(decoder.stats, sink.damage_before)
        self.corrupt_packets = decoder.stats.corrupt_packets
        if self._face_data is not None:
            self._face_data.finish()
        for target in targets:
            target.file.commit()
        if self._face_data is not None:
            self._face_data.publish()
        meter.finish(len(kept))
        audio = [track for target in targets for track in target.muxer.audio]
        report = self._report(
            info, model, builder, audio, sink.concealed, result, kept, setup_seconds, watch
        )
        if builder.faces is not None:
            self.face_seam = builder.faces.seam()
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

            from bgsoft.rendering.build import StageBuilder

        # Each stage has a thread of its own; OpenCV's pool would fight with the codecs' threads.
        cv2.setNumThreads(1)
        config = self._config.backends
        if config.infer != "cpu" and may_use_gpu(config):
            from bgsoft.infer.sessions import open_provider

            parts.begin("CUDA provider", partial(open_provider, cuda_number(config.gpu or 0)))
        return StageBuilder(config, self.report)

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
        kept_from = None if part is None else part.kept_from
        stages = builder.make_picture_stages(
            self._config,
            info,
            model,
            self._metrics,
            self._scene_cut,
            self._face_data,
            kept_from=kept_from,
            began=None if part is None else part.began * info.time_base,
        )
        if builder.faces is not None:
            builder.faces.kept_from = kept_from
        return stages

    def _open_others(self) -> None:
        """Begin what is written beside the videos, and make the folders of all."""
        config = self._config
        if config.face_data is not None:
            self._face_data = open_face_data(
                config.face_data,
                overwrite=config.overwrite,
                others=[config.input, *config.videos],
                exact=self._part is not None,
                receipt=config.receipt,
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

    def _report_damage(self, concealed: int, stats: DecodeStats) -> None:
        text = damage_text(concealed, stats.corrupt_packets)
        if text is not None:
            self._tell("repair", text, stage="decode")
        if stats.repaired_pts:
            text = f"{stats.repaired_pts} missing or falling timestamps repaired"
            self._tell("repair", text, stage="decode")

    def _report(
        self,
        info: VideoInfo,
        model: ResolvedModel,
        builder: StageBuilder,
        audio: list[AudioReport],
        concealed: int,
        result: PipelineResult,
        kept: array[int],
        setup_seconds: float,
        watch: Watch,
    ) -> RenderReport:
        frames = len(kept)
        first = result.first_frame_seconds
        wall = time.perf_counter() - self._started
        ticks = kept[-1] - kept[0] + result.last_duration
        device = builder.used_device
        loaded = model.for_provider(
            builder.choices["infer"].backend, self._config.backends.precision
        )
        return RenderReport(
            bgsoft_version=__version__,
            input=str(self._config.input),
            output=str(self._config.output),
            frames_decoded=frames,
            frames_encoded=frames,
            concealed_frames=concealed,
            duration_s=float(ticks * info.time_base),
            wall_s=wall,
            fps=frames / wall,
            first_frame_s=None if first is None else setup_seconds + first,
            process_s=self._process_seconds,
            settings=plain_settings(self._config, info),
            model=ModelReport(
                name=model.spec.name, sha256=loaded.sha256, licence=model.spec.licence
            ),
            stages=_stage_reports(builder, self._metrics, frames),
            h2d_bytes=device.copies.h2d_bytes / frames if device else 0.0,
            d2h_bytes=device.copies.d2h_bytes / frames if device else 0.0,
            faces=None if builder.faces is None else builder.faces.summary(),
            events=list(self._events),
            audio=audio,
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


def damage_text(concealed: int, corrupt_packets: int) -> str | None:
    """What to report of a damaged input; None where it is whole."""
    if not concealed and not corrupt_packets:
        return None
    return (
        f"the input is damaged: {concealed} frames concealed, {corrupt_packets} packets unreadable"
    )


def _irregularity(stats: DecodeStats, damage_before: int) -> str | None:
    """What makes a part's frames depend on frames long before them; None: nothing."""
    if damage_before:
        return "it is damaged where parts meet"
    if stats.repaired_pts:
        return "timestamps had to be repaired"
    return "its clock or picture size changes" if stats.irregular else None


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


def plain_settings(config: RenderConfig, info: VideoInfo | None = None) -> dict[str, Any]:
    """The settings as plain JSON types, without the file names that the report has anyway.

    With ``info``, the frame size in pixels is added, of whose height lengths are percentages.
    """
    plain = dataclasses.asdict(config)
    for name in ("input", "output", "skip_existing", "report", "trace", "receipt"):
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
        settings=plain_settings(config),
        peak_rss_bytes=peak_rss_bytes(),
        versions=library_versions(),
    )
    if config.report is not None and not config.report.exists():
        with made_folders([config.report], lambda _text: None):
            report.write_json(config.report)
    return report
