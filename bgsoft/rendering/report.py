"""Events and clocks of a render, and its report."""

from __future__ import annotations

import dataclasses
import threading
import time
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bgsoft import __version__
from bgsoft.decode.base import DecodeStats
from bgsoft.frame import Frame
from bgsoft.media.info import VideoInfo
from bgsoft.outputs import made_folders
from bgsoft.pipeline.metrics import Metrics, peak_rss_bytes
from bgsoft.rendering.backends import STAGES, Choice
from bgsoft.rendering.chunk import Chunk
from bgsoft.rendering.outcome import PipelineOutcome, RenderStages
from bgsoft.report import Event, ModelReport, RenderReport, StageReport, Timeline
from bgsoft.settings.config import DEFAULT_STRENGTH_PCT, FaceMode, RenderConfig
from bgsoft.settings.regions import RegionAction
from bgsoft.startup import process_start_ns
from bgsoft.versions import library_versions

if TYPE_CHECKING:
    from bgsoft.pipeline.trace import TraceRecorder


class RenderLog:
    """Clocks and events of a render, from which its report is made.

    Events are passed on one at a time, from any thread.

    Args:
        config: Settings of the render.
        on_event: Called for each event.
        chunk: Chunk whose frames' events are reported; None: the whole video.
    """

    def __init__(
        self, config: RenderConfig, on_event: Callable[[Event], None], chunk: Chunk | None
    ) -> None:
        self.recorder: TraceRecorder | None = None
        if config.trace is not None:
            from bgsoft.pipeline.trace import TraceRecorder

            self.recorder = TraceRecorder()
        self.metrics = Metrics(self.recorder)
        self.started = time.perf_counter()
        self._config = config
        self._events: list[Event] = []
        self._on_event = on_event
        self._chunk = chunk
        self._lock = threading.Lock()

    def report(self, event: Event) -> None:
        """Keep an event, and pass it on."""
        chunk = self._chunk
        if chunk is not None and event.pts is not None:
            end = chunk.frames.end
            if event.pts < chunk.trim_start or (end is not None and event.pts >= end):
                return
        with self._lock:
            self._events.append(event)
            if self.recorder is not None:
                self.recorder.instant(f"{event.kind}: {event.message}")
            self._on_event(event)

    def add(self, kind: str, message: str, **more: Any) -> None:
        """Report an event with these fields."""
        self.report(Event(kind=kind, message=message, **more))

    def scene_cut(self, frame: Frame) -> None:
        """Report the first frame of a new scene."""
        text = f"new scene at {frame.time_seconds:.2f} s"
        self.add("scene-cut", text, stage="segment", frame=frame.index, pts=frame.pts)

    def fallbacks(self, choices: dict[str, Choice]) -> None:
        """Report every stage without its best backend, each reason once."""
        by_reason: dict[str, dict[str, list[str]]] = {}
        for stage in filter(choices.__contains__, STAGES):
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
            self.add("fallback", f"{what}: {reason}")

    def damage(self, concealed: int, stats: DecodeStats) -> None:
        """Report repairs during decoding."""
        text = damage_text(concealed, stats.corrupt_packets)
        if text is not None:
            self.add("repair", text, stage="decode")
        if stats.repaired_pts:
            text = f"{stats.repaired_pts} missing or decreasing timestamps repaired"
            self.add("repair", text, stage="decode")

    def render_report(
        self, stages: RenderStages, outcome: PipelineOutcome, kept: array[int]
    ) -> RenderReport:
        """Return the report of a finished render.

        Args:
            stages: The stages of the render.
            outcome: The outcome of the pipeline.
            kept: pts of the frames that were written, in order.
        """
        config, frames, info, builder = self._config, len(kept), stages.info, stages.builder
        wall = time.perf_counter() - self.started
        first = outcome.result.first_frame_seconds
        ticks = kept[-1] - kept[0] + outcome.result.last_duration
        device, pictures = builder.used_device, stages.pictures
        faces, areas = pictures.faces, pictures.areas
        hiding = faces, pictures.regions, pictures.detector
        timeline = None
        if areas is not None and areas.of_all:
            counts = None if faces is None else faces.counts.tolist()
            timeline = Timeline(matte_area_pct=areas.percent(), faces=counts)
        spec = stages.model.spec
        # A file with a provider's own operators has the same network, but may not have run.
        loaded = stages.model.for_provider(
            builder.choices["infer"].backend, config.backends.precision, replays=False
        )
        return RenderReport(
            bgsoft_version=__version__,
            input=str(config.input),
            output=str(config.output),
            frames_decoded=frames,
            frames_encoded=frames,
            concealed_frames=outcome.sink.concealed,
            duration_s=float(ticks * info.time_base),
            wall_s=wall,
            fps=frames / wall,
            first_frame_s=None if first is None else outcome.setup_seconds + first,
            process_s=self.started - process_start_ns() / 1e9,
            pixel_format=next((t.encoder.pixel_format for t in stages.outputs), "") or None,
            settings=plain_settings(config, info),
            model=(
                ModelReport(name=stages.pictures.segmenter.name, sha256="", licence="")
                if self._config.segment.replaces_matte
                else ModelReport(name=spec.name, sha256=loaded.sha256, licence=spec.licence)
            ),
            stages=self._stage_reports(stages, frames),
            h2d_bytes=device.copies.h2d_bytes / frames if device else 0.0,
            d2h_bytes=device.copies.d2h_bytes / frames if device else 0.0,
            faces=None if faces is None else faces.summary(),
            detector=None if pictures.detector is None else pictures.detector.summary(),
            hidden=[run for step in hiding if step for run in step.record.runs],
            timeline=timeline,
            events=list(self._events),
            audio=[track for output in stages.outputs for track in output.writer.audio],
            peak_rss_bytes=peak_rss_bytes(),
            peak_vram_bytes=outcome.watch.peak_bytes,
            gpu=outcome.watch.summary,
            versions=library_versions(),
        )

    def _stage_reports(self, stages: RenderStages, frames: int) -> dict[str, StageReport]:
        choices, used, faces = (
            stages.builder.choices,
            stages.builder.used_device,
            stages.pictures.faces,
        )
        device = "cpu" if used is None else used.label
        reports = {}
        for stage in ("decode", "segment", "matte", "composite", "encode"):
            choice = choices.get(_FOLLOWED.get(stage, stage))
            if choice is None:  # nothing is encoded
                continue
            reports[stage] = StageReport(
                backend=choice.backend,
                device="cpu" if choice.backend == "cpu" else device,
                ms_per_frame=self._ms_per(stage, frames),
                fallback_reason=choice.fallback_reason,
            )
        reason = None
        if faces is not None and faces.backend == "cpu" and choices["infer"].backend != "cpu":
            reason = "frames are composited on the CPU, so faces are detected there, too"
        reports["face"] = StageReport(
            backend="off" if faces is None else faces.backend,
            device="cpu" if faces is None else faces.device,
            ms_per_frame=self._ms_per("face", frames),
            fallback_reason=reason,
        )
        return reports

    def _ms_per(self, stage: str, frames: int) -> float:
        """Return the mean milliseconds per frame that a stage's threads were busy."""
        return self.metrics.busy()[stage] / 1e6 / frames if frames else 0.0


_FOLLOWED = {"segment": "infer", "matte": "composite"}
"""Stage of the report → stage whose backend it uses."""


def damage_text(concealed: int, corrupt_packets: int) -> str | None:
    """Return a message about a damaged input; None if it is intact."""
    if not concealed and not corrupt_packets:
        return None
    return (
        f"the input is damaged: {concealed} frames concealed, {corrupt_packets} packets unreadable"
    )


def nobody_text(config: RenderConfig, frames: int) -> str | None:
    """Return a warning that all mattes are empty; None where that is as the user wants it.

    That is where the picture stays as it is, or the user keeps or drops regions, or gives mattes.
    """
    effect = config.effect
    changes = effect.kind not in DEFAULT_STRENGTH_PCT or effect.effective_strength > 0
    corrected = any(each.action is not RegionAction.HIDE for each in config.all_regions)
    if corrected or config.segment.replaces_matte or not (changes or config.matte_out):
        return None
    who = "no main person" if config.face.mode is FaceMode.MAIN else "nobody"
    where = f" in {frames} frames" if frames > 1 else ""
    return f"{who} was found{where}, so the whole picture is background"


def plain_settings(config: RenderConfig, info: VideoInfo | None = None) -> dict[str, Any]:
    """Return the settings as plain JSON types, without file names that the report has elsewhere.

    With ``info``, the frame size in pixels is added; lengths are percentages of its height.
    """
    plain = dataclasses.asdict(config)
    moved = "input", "output", "skip_existing", "report", "trace", "receipt", "preset_file"
    for name in (*moved, "left_out"):
        del plain[name]
    for name in ("matte_out", "face_data", "config_file"):
        plain[name] = None if plain[name] is None else str(plain[name])
    plain["effect"]["strength"] = config.effect.effective_strength
    plain["hide"]["style"] = config.hide_style
    if info is not None:
        plain["width"], plain["height"] = info.format.width, info.format.height
    return plain


def skipped_report(config: RenderConfig) -> RenderReport:
    """Return the report of a skipped render; an existing report file is not replaced."""
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
