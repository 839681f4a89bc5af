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
from pathlib import Path
from typing import TYPE_CHECKING

from bgsoft.cuda.driver import cuda_number
from bgsoft.cuda.monitor import GpuWatch
from bgsoft.decode.base import DecodeSettings
from bgsoft.errors import RenderCancelledError, VerificationError
from bgsoft.hide.record import join_runs
from bgsoft.infer.providers import require_runtime
from bgsoft.media.endpoints import EndpointKind
from bgsoft.media.info import VideoInfo
from bgsoft.media.pipe import PipeInput
from bgsoft.models.catalog import resolve
from bgsoft.outputs import OutputFile, made_folders
from bgsoft.pipeline.metrics import ProgressMeter
from bgsoft.pipeline.runner import FrameSink, Pipeline, RunOptions, check_pts
from bgsoft.rendering.backends import matte_out_encoder, may_use_gpu
from bgsoft.rendering.chunk import Chunk, ChunkResult
from bgsoft.rendering.files import file_reports
from bgsoft.rendering.listener import Listener
from bgsoft.rendering.outcome import (
    EncodedOutput,
    PipelineOutcome,
    RenderStages,
    TrimmingSink,
    commit,
)
from bgsoft.rendering.picture_options import PictureOptions
from bgsoft.rendering.report import RenderLog, nobody_text, skipped_report
from bgsoft.rendering.request import Request
from bgsoft.report import Event, RenderReport
from bgsoft.settings.config import FaceMode, RenderConfig
from bgsoft.startup import StartupPool, logged, span
from bgsoft.threads import any_thread_holds, lower_priority

if TYPE_CHECKING:
    from bgsoft.encode.base import FrameTaker
    from bgsoft.face.base import FaceTaker
    from bgsoft.face.data import FaceDataWriter
    from bgsoft.face.faces_file import KnownFaces
    from bgsoft.pipeline.picture import PictureStages
    from bgsoft.rendering.build import StageBuilder

_FIRST_FRAMES_DECIDE = (
    "the first frames of each scene decide who is shown, as a pipe cannot be read twice; render a"
    " file, or name people by --main"
)


def render_whole(
    request: Request,
    listener: Listener,
    *,
    info: VideoInfo | None = None,
    events: Sequence[Event] = (),
) -> RenderReport:
    """Render one video in one go.

    Args:
        request: The render, checked.
        listener: Whom to report to.
        info: The input, where it has been probed.
        events: Reported first.

    Raises:
        ConfigError: A setting does not fit input or output.
        BackendUnavailableError: A named backend cannot run here.
        ModelError: The model is missing or damaged.
        OpenError: The input cannot be read.
        UnsupportedFormatError: There is no path for the input or to the output.
        OutputError: The output cannot be written.
        DecodeError, EncodeError, InferenceError, VerificationError: The render failed part-way.
        StallError: A stage stands still. Its files stay open, and further renders in this process
            may not be safe.
        RenderCancelledError: The listener stopped it.

    Nothing is left behind where it raises.
    """
    if request.is_skipped:
        return skipped_report(request.config)
    return _Session(request, listener, info=info).run(events).report


def render_chunk(
    request: Request, info: VideoInfo, chunk: Chunk, listener: Listener
) -> ChunkResult:
    """Render one chunk of a video, without the tracks that are copied.

    Args and errors as :func:`render_whole`; of the settings, the output is the chunk's, start and
    duration count no more, and events of frames outside the chunk are not reported.
    """
    return _Session(request, listener, info=info, chunk=chunk).run()


def hand_over_frames(
    config: RenderConfig,
    taker: FrameTaker,
    listener: Listener | None = None,
    *,
    faces: FaceTaker | None = None,
    chunk: Chunk | None = None,
    info: VideoInfo | None = None,
) -> RenderReport:
    """Render one video, or a chunk of it, but give its frames to ``taker``; nothing is written.

    The faces of every frame go to ``faces``.
    The output of the settings is ignored; all else is as for :func:`render_whole`.
    """
    request, listener = Request(config, writes=False), listener or Listener()
    session = _Session(request, listener, info=info, chunk=chunk, taker=taker, faces=faces)
    return session.run().report


class _Session:
    """Everything that lives as long as one render."""

    def __init__(
        self,
        request: Request,
        listener: Listener,
        *,
        info: VideoInfo | None = None,
        chunk: Chunk | None = None,
        taker: FrameTaker | None = None,
        faces: FaceTaker | None = None,
    ) -> None:
        self._request = request
        self._listener = listener
        self._config = request.config
        self._taker, self._faces = taker, faces
        self._info = info
        self._chunk = chunk
        self._stamps = request.stamps() if chunk is None else {}
        self._changed: list[Path] = []
        """Files that changed during the render."""
        self._trim_start = None if chunk is None else chunk.trim_start
        self._log = RenderLog(request.config, listener.event, chunk)
        self._pipe: PipeInput | None = None
        self._files = ExitStack()
        """The files that are written; closed in any case."""
        self._stack = ExitStack()
        """Everything else; a hanging stage keeps it open."""
        self._face_data: FaceDataWriter | None = None
        self._is_published = False
        self._known: KnownFaces | None = None

    def run(self, events: Sequence[Event] = ()) -> ChunkResult:
        """Render; nothing stays open, and nothing is left behind where it fails."""
        require_runtime()
        for event in events:
            self._log.report(event)
        try:
            with self._files, self._stack:
                return self._render()
        except BaseException as exc:
            data = self._face_data
            if data is not None and data.file.kept is not None and self._chunk is None:
                exc.add_note(f"the faces of the first {data.frames} frames are in {data.file.kept}")
            if self._is_published:
                exc.add_note(f"{self._config.output} is complete")
            raise
        finally:
            device = sys.modules.get("bgsoft.cuda.device")
            if device is not None and not any_thread_holds():
                device.free_unused()

    def _render(self) -> ChunkResult:
        # Apart from run: what lives on a device has to be gone when that gives its memory back.
        self._known = self._know_faces()
        stages = self._build()
        if self._listener.cancel.is_set():
            raise RenderCancelledError("interrupted")
        outcome = self._run_pipeline(stages)
        pre_roll, kept = self._verify(stages, outcome)
        self._publish(stages)
        outcome.meter.finish(len(kept))
        return self._report(stages, outcome, pre_roll, kept)

    def _know_faces(self) -> KnownFaces | None:
        """Return the faces of a file, or of a search for main people; None: neither is needed."""
        config, source = self._config, self._request.source
        if config.face.mode is not FaceMode.ANONYMIZE:
            return None
        from bgsoft.face.create import read_known_faces
        from bgsoft.rendering.people import needs_search, search_faces

        known = read_known_faces(config.face)
        if not needs_search(config, known):
            return known
        if source.kind is EndpointKind.PIPE:
            self._log.add("notice", _FIRST_FRAMES_DECIDE, stage="face")
            return known
        if len(source.pictures) == 1:
            return known
        # Errors that would stop the render, stop it before a long search.
        resolve(config.segment.model)
        self._info = self._info or source.probe(rate=config.fps)
        if not self._request.passes_through_pipe:
            with made_folders(self._request.written_paths, lambda _text: None):
                self._request.check_writable(self._info)
        if known is not None:
            known.require_video(self._info)
        inner = Listener(self._listener.progress, cancel=self._listener.cancel)
        known, _ = search_faces(config, inner, hand_over_frames, known)
        self._require_searched_files()
        return known

    def _require_searched_files(self) -> None:
        """Raise VerificationError if the files are not those in which faces were found."""
        if self._request.source.has_changed():
            raise VerificationError(
                "cannot hide faces: the input changed after the search; render it again",
                path=self._request.source.path,
                stage="face",
            )

    def _build(self) -> RenderStages:
        """Probe the input, open the outputs, and make the stages, in parallel."""
        request, config, chunk = self._request, self._config, self._chunk
        log, stack, source = self._log, self._stack, self._request.source
        spans = self._files.enter_context(logged())
        pipe = self._pipe = source.open_pipe(self._listener.cancel)
        if pipe is not None:
            stack.enter_context(pipe)
        failed = threading.Event()

        def wait_no_more() -> None:
            failed.set()
            if pipe is not None:
                pipe.stop()

        def stops() -> bool:
            return failed.is_set() or self._listener.cancel.is_set()

        with StartupPool(wait_no_more) as pool:
            building = pool.submit("backends", partial(self._make_builder, pool))
            probing = pool.submit("probe", lambda: self._info or source.probe(pipe, config.fps))
            model = resolve(config.segment.model)
            info, builder = probing.result(), building.result()
            stack.callback(builder.close)
            self._open_side_files()
            for notice in (*info.notices, *request.chroma_notices(info)):
                log.add("notice", notice, stage="decode")
            if config.left_out:
                log.add("notice", config.left_out, stage="encode")
            settings = DecodeSettings(
                start_seconds=config.start_seconds,
                duration_seconds=config.duration_seconds,
                range=None if chunk is None else chunk.frames,
                keeps_chroma=request.keeps_chroma(info),
                keeps_profile=request.keeps_profile,
            )
            make_stages = partial(
                builder.make_picture_stages,
                config,
                info,
                model,
                log.metrics,
                PictureOptions(
                    on_cut=log.scene_cut,
                    face_data=self._faces or self._face_data,
                    known=self._known,
                    trim_start=self._trim_start,
                    began=None if chunk is None else chunk.began * info.time_base,
                    followed=None if chunk is None else chunk.followed,
                    # Nobody knows yet whether the render that joins the chunks writes a report.
                    measures=config.report is not None or chunk is not None,
                ),
            )
            open_decoder = partial(builder.open_decoder, source.path, settings, info)
            decoding = pool.submit("decoder", open_decoder)
            making = pool.submit("picture stages", make_stages)
            opening = pool.submit("output", partial(self._open_outputs, info, builder, stops))
        decoder, pictures = decoding.result(), making.result()
        outputs, takers = opening.result()
        stack.callback(decoder.close)
        stack.callback(pictures.close)
        log.fallbacks(builder.choices)
        if log.recorder is not None:
            log.recorder.add_start(spans)
        return RenderStages(
            info=info,
            model=model,
            builder=builder,
            decoder=decoder,
            pictures=pictures,
            outputs=outputs,
            takers=takers,
        )

    def _open_outputs(
        self, info: VideoInfo, builder: StageBuilder, stops: Callable[[], bool]
    ) -> tuple[list[EncodedOutput], Sequence[FrameSink]]:
        """Begin the videos that are written, if any; return them and who gets the frames."""
        lower_priority()  # before encoders start threads of their own
        if (taker := self._taker) is not None:
            taker.open(info)
            place = False if taker.on_host_only else builder.on_device
            return [], [builder.adapt_encoder(taker, info.format, taker.kind, on_device=place)]
        outputs = []
        for output in self._request.outputs:
            file, writer = self._request.open_output(
                output, info, self._log.report, copies_tracks=self._chunk is None, stops=stops
            )
            self._files.enter_context(file)
            self._stack.enter_context(writer)
            if output.is_main:
                encoder = builder.open_encoder(writer, output.encode, info, output.kind)
            else:
                backend = matte_out_encoder()
                encoder = builder.make_encoder(backend, writer, output.encode, info, output.kind)
            self._stack.callback(encoder.close)
            outputs.append(EncodedOutput(file, writer, encoder))
        return outputs, outputs

    def _make_builder(self, pool: StartupPool) -> StageBuilder:
        # Imported here, while the input is probed: most of a short start is imports.
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
        if self._chunk is not None and self._config.face_data is None:
            return
        paths = self._request.written_paths
        self._files.enter_context(made_folders(paths, partial(self._log.add, "notice")))
        self._face_data = self._request.open_faces()
        if self._face_data is not None:
            self._files.enter_context(self._face_data)

    def _run_pipeline(self, stages: RenderStages) -> PipelineOutcome:
        """Let all frames pass."""
        config, chunk, log = self._config, self._chunk, self._log
        takers = [] if self._taker is None else [self._taker]
        meter = ProgressMeter(
            _expected_frames(stages.info, config) if chunk is None else chunk.length,
            log.metrics,
            self._listener.progress,
        )
        ring = stages.builder.make_ring(stages.info.format, stages.pictures.held)
        setup_seconds = time.perf_counter() - log.started
        sink = TrimmingSink(stages.takers, stages.decoder.stats, self._trim_start)
        files = [output.file for output in stages.outputs]
        ends: list[PipeInput | OutputFile] = [*files, *filter(None, [self._pipe])]

        def tick() -> None:
            meter.tick(sink.frames)
            for file in files:
                file.check()

        def stop() -> None:
            for end in ends:
                end.stop()

        pipeline = Pipeline(
            decoder=stages.decoder,
            stage=stages.pictures,
            sink=sink,
            ring=ring,
            metrics=log.metrics,
            options=RunOptions(
                on_tick=tick,
                on_failure=stop,
                outside=lambda: sum(end.waits for end in [*ends, *takers]),
                cancel=self._listener.cancel,
                stall_seconds=config.backends.stall_seconds,
            ),
        )
        on_value = None if log.recorder is None else log.recorder.counter
        with GpuWatch(stages.builder.used_device, on_value) as watch:
            try:
                result = pipeline.run()
            finally:
                if pipeline.stuck:
                    resources = self._stack.pop_all()
                    for thread in pipeline.stuck:
                        thread.hold(resources)
        reader, part = stages.pictures.reader, None if chunk is None else chunk.frames
        is_last = config.duration_seconds is None and (part is None or part.end is None)
        if reader is not None and is_last:
            reader.check_end((0 if part is None else part.index) + len(result.decoded_pts))
        stages.pictures.close()  # on a GPU, the last clocks are read now
        return PipelineOutcome(
            result=result,
            sink=sink,
            meter=meter,
            ring_slots=ring.size,
            watch=watch,
            setup_seconds=setup_seconds,
        )

    def _verify(
        self, stages: RenderStages, outcome: PipelineOutcome
    ) -> tuple[array[int], array[int]]:
        """Compare what was written with what was decoded, frame for frame.

        Returns:
            pts of the frames of the pre-roll, and of those that were kept.
        """
        for event in stages.decoder.events:
            self._log.report(event)
        if self._known is not None and self._known.frames:
            self._require_searched_files()
        if self._chunk is None:
            self._log.damage(outcome.sink.concealed, stages.decoder.stats)
            self._report_changed()
        if stages.outputs:
            lost = outcome.sink.messages - stages.outputs[0].writer.messages
            for kind in lost:
                self._log.add("notice", f"{kind} left out", stage="encode")
        pre_roll, kept = array("q"), outcome.result.decoded_pts
        if self._trim_start is not None:
            first = bisect_left(kept, self._trim_start)
            pre_roll, kept = kept[:first], kept[first:]
        for output in stages.outputs:
            check_pts(kept, sorted(output.writer.video_pts), "written", "was written as")
        if self._known is not None:
            self._known.require_frames(kept, is_part=self._config.is_part)
        return pre_roll, kept

    def _report_changed(self) -> None:
        """Report files that are not those of the beginning."""
        if self._request.source.has_changed():
            self._changed.append(self._config.input)
            self._log.add("warning", "the input changed while it was rendered", stage="decode")
        for path, now in self._request.stamps().items():
            if now != self._stamps[path]:
                self._changed.append(path)
                self._log.add("warning", f"{path} changed while the video was rendered")

    def _publish(self, stages: RenderStages) -> None:
        """Let what was written take its names."""
        files = [output.file for output in stages.outputs]
        if self._face_data is not None:
            files += self._face_data.finish()
        if self._chunk is None:
            self._request.check_reports()
        commit(files)
        self._is_published = bool(stages.outputs)

    def _report(
        self, stages: RenderStages, outcome: PipelineOutcome, pre_roll: array[int], kept: array[int]
    ) -> ChunkResult:
        """Say what was done, also in the files that were asked for."""
        config, stats, faces = self._config, stages.decoder.stats, stages.pictures.faces
        regions = stages.pictures.regions
        unused = {} if regions is None else regions.unused()
        if self._chunk is None:
            texts = [text for _, text in unused.values()]
            self._report_missed(stages.pictures, texts, len(kept))
        report = self._log.render_report(stages, outcome, kept)
        if self._chunk is None:
            hidden = join_runs([report.hidden])
            files = []
            if config.report is not None:
                files = file_reports(self._request, report, self._changed)
            report = dataclasses.replace(report, hidden=hidden, files=files)
        if self._log.recorder is not None and config.trace is not None:
            clocks = {name: dataclasses.asdict(stage) for name, stage in report.stages.items()}
            self._log.recorder.write(
                config.trace, ring_slots=outcome.ring_slots, stages=clocks, versions=report.versions
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
            packets=[
                (each.writer.video_pts, each.writer.video_durations) for each in stages.outputs
            ],
            corrupt_packets=stats.corrupt_packets,
            irregular=irregular,
            faces=None if faces is None else faces.boundary(),
            unused=unused,
        )

    def _report_missed(self, pictures: PictureStages, unused: Sequence[str], frames: int) -> None:
        """Report what segmentation, faces, detector and regions of a whole video missed."""
        nobody = nobody_text(self._config, frames)
        if nobody is not None and pictures.areas is not None and pictures.areas.are_empty():
            self._log.add("warning", nobody, stage="segment")
        for text in [] if pictures.faces is None else pictures.faces.warnings():
            self._log.add("warning", text, stage="face")
        if pictures.detector is not None:
            from bgsoft.detect.step import warnings

            for text in warnings(pictures.detector.summary()):
                self._log.add("warning", text, stage="segment")
        for text in unused:
            self._log.add("warning", text, stage="composite")


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
