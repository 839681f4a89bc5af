"""One render: settings to stages, stages to pipeline, pipeline to report.

The module is not called ``render`` because that is the name of the public function.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from bgsoft import __version__
from bgsoft.analysis.cpu import CpuReducer
from bgsoft.analysis.scenes import CpuSceneProbe
from bgsoft.backends import Choice, choose_all
from bgsoft.composite.cpu import CpuCompositor
from bgsoft.config import BackendConfig, EffectKind, Precision, RenderConfig
from bgsoft.decode.base import DecodeSettings, DecodeStats
from bgsoft.decode.cpu import CpuDecoder
from bgsoft.encode.base import Encoder, PictureKind
from bgsoft.encode.codecs import choose_encoder
from bgsoft.encode.cpu import CpuEncoder
from bgsoft.errors import BackendUnavailableError, ConfigError, VerificationError
from bgsoft.frame import Frame, FrameFormat, Planes
from bgsoft.infer.cpu import CpuNetwork
from bgsoft.matte.create import create_matter
from bgsoft.media.containers import container_for
from bgsoft.media.info import VideoInfo
from bgsoft.media.mux import Muxer
from bgsoft.media.output import AtomicOutput
from bgsoft.memory import peak_rss_bytes
from bgsoft.models.catalog import ResolvedModel, resolve
from bgsoft.pipeline.metrics import Metrics
from bgsoft.pipeline.picture import MaskSchedule, PictureStages
from bgsoft.pipeline.progress import ProgressMeter
from bgsoft.pipeline.ring import FrameRing
from bgsoft.pipeline.runner import Pipeline, PipelineResult
from bgsoft.report import Event, ModelReport, Progress, RenderReport, StageReport
from bgsoft.segment.single import SingleShotSegmenter, network_shapes
from bgsoft.versions import library_versions

__all__ = ["build_picture_stages", "host_planes", "render"]

_HOST_RING_SLOTS = 8
"""Enough for each of the three threads to be a frame or two ahead; more only costs memory."""

_PICTURE_KINDS = {
    EffectKind.ALPHA: PictureKind.COLOR_ALPHA,
    EffectKind.MATTE: PictureKind.MATTE,
}


def render(
    config: RenderConfig,
    *,
    skip_existing: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
    on_event: Callable[[Event], None] | None = None,
    cancel: threading.Event | None = None,
) -> RenderReport:
    """Render one file.

    Args:
        config: What to do.
        skip_existing: Where the output exists, do nothing and say so in the report.
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
        RenderCancelledError: ``cancel`` was set.

    Nothing is left behind where it raises.
    """
    if skip_existing and config.output.exists():
        return _skipped(config)
    with _Render(config, on_event) as job:
        return job.run(on_progress, cancel)


def build_picture_stages(
    config: RenderConfig,
    info: VideoInfo,
    *,
    model: ResolvedModel | None = None,
    metrics: Metrics | None = None,
    on_cut: Callable[[Frame], None] | None = None,
) -> PictureStages:
    """The stages between decoder and encoder, on the CPU.

    Args:
        config: The look and the model.
        info: The video that they will be given.
        model: The model, where it has been resolved already.
        metrics: Where to keep the clocks; None: nowhere.
        on_cut: Told of each frame that begins a new scene.

    Raises:
        ConfigError, ModelError, BackendUnavailableError: As :func:`render`.
    """
    model = model or resolve(config.segment.model, families=("single-shot",))
    network = CpuNetwork(model.path, network_shapes(model.spec))
    return PictureStages(
        reducer=CpuReducer(info.format),
        scenes=CpuSceneProbe(info.format),
        schedule=MaskSchedule(config.segment.mask_every, config.segment.similarity_db),
        segmenter=SingleShotSegmenter(model.spec, network, info.format),
        matter=create_matter(config.matte, info.format),
        compositor=CpuCompositor(config.effect, info.format),
        metrics=metrics or Metrics(),
        on_cut=on_cut or (lambda _frame: None),
    )


def host_planes(format: FrameFormat, slot: int) -> Planes:
    """The buffers of one ring slot in host memory."""
    return Planes(
        slot=slot,
        luma=np.empty(format.luma_shape, format.dtype),
        chroma=np.empty(format.chroma_shape, format.dtype),
        alpha=np.zeros(format.luma_shape, np.uint8),
    )


class _Target:
    """One file being written: temporary file, muxer and encoder."""

    def __init__(
        self,
        path: Path,
        kind: PictureKind,
        config: RenderConfig,
        info: VideoInfo,
        stack: ExitStack,
        on_event: Callable[[Event], None],
        *,
        main: bool,
    ) -> None:
        container = container_for(path)
        settings = config.encode if main else dataclasses.replace(config.encode, speed=None)
        choice = choose_encoder(settings, container, info, kind)
        for notice in choice.notices:
            on_event(Event(kind="notice", stage="encode", message=notice))
        inputs = [config.input]
        if config.effect.kind in (EffectKind.IMAGE, EffectKind.VIDEO) and config.effect.background:
            inputs.append(Path(config.effect.background))
        self.file = stack.enter_context(
            AtomicOutput(path, overwrite=config.overwrite, inputs=inputs)
        )
        self.muxer = stack.enter_context(
            Muxer(
                self.file.temporary,
                container,
                info,
                copy_tracks=main,
                start_seconds=config.start_seconds,
                duration_seconds=config.duration_seconds,
                output_path=path,
                on_event=on_event,
            )
        )
        self.encoder: Encoder = CpuEncoder(self.muxer, choice, info.format, info, kind)
        stack.callback(self.encoder.close)

    def finish(self) -> None:
        """Drain the encoder and complete the temporary file."""
        self.encoder.finish()
        self.muxer.finish()


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
            target.finish()


class _Render:
    """Everything that lives as long as one render."""

    def __init__(self, config: RenderConfig, on_event: Callable[[Event], None] | None) -> None:
        self._config = config
        self._listener = on_event
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._metrics = Metrics()
        self._stack = ExitStack()
        self._started = time.perf_counter()

    def __enter__(self) -> _Render:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def _emit(self, event: Event) -> None:
        with self._lock:
            self._events.append(event)
            if self._listener is not None:
                self._listener(event)

    def run(
        self, on_progress: Callable[[Progress], None] | None, cancel: threading.Event | None
    ) -> RenderReport:
        """Set up, render, verify, publish, report."""
        config, stack = self._config, self._stack
        # Each stage has a thread of its own; OpenCV's pool would fight with the codecs' threads.
        cv2.setNumThreads(1)
        choices = choose_all(config.backends)
        _check_cpu_limits(config.backends)
        self._report_fallbacks(choices)
        model = resolve(config.segment.model, families=("single-shot",))
        decoder = stack.enter_context(
            CpuDecoder(
                config.input,
                DecodeSettings(
                    start_seconds=config.start_seconds, duration_seconds=config.duration_seconds
                ),
            )
        )
        info = decoder.info
        for notice in info.notices:
            self._emit(Event(kind="notice", stage="decode", message=notice))
        stages = build_picture_stages(
            config, info, model=model, metrics=self._metrics, on_cut=self._scene_cut
        )
        stack.callback(stages.close)
        targets = self._open_targets(info)
        slots = config.backends.ring_slots or _HOST_RING_SLOTS
        meter = ProgressMeter(
            _expected_frames(info, config), self._metrics, on_progress or (lambda _progress: None)
        )
        setup_seconds = time.perf_counter() - self._started
        pipeline = Pipeline(
            decoder=decoder,
            stage=stages,
            sink=_Sink(targets),
            ring=FrameRing(slots, lambda slot: host_planes(info.format, slot)),
            metrics=self._metrics,
            on_tick=meter.tick,
            cancel=cancel,
        )
        result = pipeline.run()
        for event in decoder.events:
            self._emit(event)
        self._report_damage(decoder.stats)
        for target in targets:
            _verify(target.muxer, result)
        for target in targets:
            target.file.commit()
        meter.finish(len(result.encoded_pts))
        return self._report(info, model, choices, targets[0], decoder.stats, result, setup_seconds)

    def _open_targets(self, info: VideoInfo) -> list[_Target]:
        config = self._config
        kind = _PICTURE_KINDS.get(config.effect.kind, PictureKind.COLOR)
        targets = [_Target(config.output, kind, config, info, self._stack, self._emit, main=True)]
        if config.matte_out is not None:
            if config.matte_out.absolute() == config.output.absolute():
                raise ConfigError("--matte-out and the output are the same file")
            targets.append(
                _Target(
                    *(config.matte_out, PictureKind.MATTE, config, info, self._stack, self._emit),
                    main=False,
                )
            )
        return targets

    def _scene_cut(self, frame: Frame) -> None:
        self._emit(
            Event(
                kind="scene-cut",
                stage="segment",
                message=f"new scene at {frame.time_seconds:.2f} s",
                frame=frame.index,
                pts=frame.pts,
            )
        )

    def _report_fallbacks(self, choices: dict[str, Choice]) -> None:
        """Tell of every stage that could not have its best backend, each reason once."""
        by_reason: dict[str, list[str]] = {}
        for stage, choice in choices.items():
            for candidate in choice.rejected:
                stages = by_reason.setdefault(candidate.explanation, [])
                if stage not in stages:
                    stages.append(stage)
        for reason, stages in by_reason.items():
            what = "every stage runs" if len(stages) == len(choices) else ", ".join(stages) + " run"
            self._emit(Event(kind="fallback", message=f"{what} on the CPU: {reason}"))

    def _report_damage(self, stats: DecodeStats) -> None:
        if stats.concealed_frames or stats.corrupt_packets:
            self._emit(
                Event(
                    kind="repair",
                    stage="decode",
                    message=(
                        f"the input is damaged: {stats.concealed_frames} frames concealed, "
                        f"{stats.corrupt_packets} packets unreadable"
                    ),
                )
            )
        if stats.repaired_pts:
            self._emit(
                Event(
                    kind="repair",
                    stage="decode",
                    message=f"{stats.repaired_pts} missing or falling timestamps repaired",
                )
            )

    def _report(
        self,
        info: VideoInfo,
        model: ResolvedModel,
        choices: dict[str, Choice],
        target: _Target,
        stats: DecodeStats,
        result: PipelineResult,
        setup_seconds: float,
    ) -> RenderReport:
        frames = len(result.encoded_pts)
        first = result.first_frame_seconds
        wall = time.perf_counter() - self._started
        ticks = result.encoded_pts[-1] - result.encoded_pts[0] + result.last_duration
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
            settings=_settings(self._config, info),
            model=ModelReport(
                name=model.spec.name, sha256=model.sha256, licence=model.spec.licence
            ),
            stages=_stage_reports(choices, self._metrics, frames),
            events=list(self._events),
            audio=target.muxer.audio,
            peak_rss_bytes=peak_rss_bytes(),
            versions=library_versions(),
        )


def _check_cpu_limits(config: BackendConfig) -> None:
    """Raise where a setting asks for what only GPU inference has."""
    if config.precision is not Precision.FP32:
        raise BackendUnavailableError(
            f"--precision {config.precision} needs GPU inference; the CPU runs fp32",
            stage="infer",
        )
    if config.batch not in (None, 1):
        raise BackendUnavailableError(
            f"--batch {config.batch} needs GPU inference; the CPU runs one frame at a time",
            stage="infer",
        )


def _expected_frames(info: VideoInfo, config: RenderConfig) -> int | None:
    """Frames to expect for the part that is rendered; for display only."""
    total = info.estimated_frames
    if total is None or (config.start_seconds == 0 and config.duration_seconds is None):
        return total
    if not info.frame_rate:
        return None
    rest = max(0, total - round(config.start_seconds * info.frame_rate))
    if config.duration_seconds is None:
        return rest
    return min(rest, round(config.duration_seconds * info.frame_rate))


def _verify(muxer: Muxer, result: PipelineResult) -> None:
    """Raise VerificationError unless the file holds each decoded frame once, at its time."""
    written = sorted(muxer.video_pts)
    expected = list(result.decoded_pts)
    if written == expected:
        return
    if len(written) != len(expected):
        raise VerificationError(
            f"{len(expected)} frames were decoded but {len(written)} written", stage="encode"
        )
    at = next(i for i, (a, b) in enumerate(zip(expected, written, strict=True)) if a != b)
    raise VerificationError(
        f"frame {at} changed its time: pts {expected[at]} was written as {written[at]}",
        stage="encode",
        pts=expected[at],
    )


def _stage_reports(
    choices: dict[str, Choice], metrics: Metrics, frames: int
) -> dict[str, StageReport]:
    """One report a stage; matte follows composite's backend."""
    followed = {
        "decode": "decode",
        "segment": "infer",
        "matte": "composite",
        "composite": "composite",
        "encode": "encode",
    }
    reports = {
        stage: StageReport(
            backend=choices[choice].backend,
            device=choices[choice].device,
            ms_per_frame=metrics.stage(stage).ms_per(frames),
            fallback_reason=choices[choice].fallback_reason,
        )
        for stage, choice in followed.items()
    }
    reports["face"] = StageReport(backend="off", device="cpu", ms_per_frame=0.0)
    return reports


def _settings(config: RenderConfig, info: VideoInfo | None = None) -> dict[str, Any]:
    """The settings as plain JSON types, without the file names that the report has anyway.

    With ``info``, the frame size in pixels is added, of whose height lengths are percentages.
    """
    plain = dataclasses.asdict(config)
    del plain["input"], plain["output"]
    plain["matte_out"] = None if config.matte_out is None else str(config.matte_out)
    plain["effect"]["strength"] = config.effect.effective_strength
    if info is not None:
        plain["width"], plain["height"] = info.format.width, info.format.height
    return plain


def _skipped(config: RenderConfig) -> RenderReport:
    """The report of a render that was not needed."""
    return RenderReport(
        bgsoft_version=__version__,
        input=str(config.input),
        output=str(config.output),
        skipped=True,
        frames_decoded=0,
        frames_encoded=0,
        duration_s=0.0,
        wall_s=0.0,
        fps=0.0,
        settings=_settings(config),
        model=None,
        stages={},
        peak_rss_bytes=peak_rss_bytes(),
        versions=library_versions(),
    )
