"""Joining of finished chunks into one file with one report, by copying packets.

Packets are not held in memory, only the times of the whole video.
"""

from __future__ import annotations

import threading
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile

from av.packet import Packet
from av.video.stream import VideoStream

from bgsoft.chunks.folder import WorkFolder
from bgsoft.chunks.prepare import ChunkedRender
from bgsoft.errors import (
    OpenError,
    RenderCancelledError,
    UnsupportedFormatError,
    VerificationError,
    translated,
)
from bgsoft.face.data import read_faces
from bgsoft.face.faces_file import read_faces_file
from bgsoft.face.geometry import Box, box_overlap
from bgsoft.face.journal import joined_summary
from bgsoft.hide.record import join_runs
from bgsoft.media.info import VideoInfo
from bgsoft.media.mux import Muxer
from bgsoft.media.source import open_input, read_packets
from bgsoft.outputs import AtomicOutput, OutputFile, made_folders
from bgsoft.pipeline.runner import check_pts
from bgsoft.rendering.chunk import ChunkResult, JoinError
from bgsoft.rendering.files import file_reports
from bgsoft.rendering.outcome import commit
from bgsoft.rendering.report import damage_text, nobody_text, plain_settings
from bgsoft.rendering.request import Request
from bgsoft.report import AudioReport, ChunkReport, Event, RenderReport, Timeline
from bgsoft.settings.config import RenderConfig

_SAME_FACE = 0.5
"""Minimum overlap of a face in the frame before a chunk with a face of the chunk before."""


def join(
    plan: ChunkedRender,
    reused: Sequence[bool],
    *,
    on_event: Callable[[Event], None],
    cancel: threading.Event,
) -> RenderReport:
    """Write the videos of a render from its chunks in the working folder, and remove the folder.

    ``reused`` is True for each chunk that an earlier run had finished. The report is written if
    the settings name a file for it.

    Raises:
        JoinError: The chunks do not make one video; nothing was written.
        VerificationError: A chunk is missing, or the sources of the chunks have changed.
        OutputError: The output cannot be written.
        RenderCancelledError: ``cancel`` was set.
    """
    request, info, folder = plan.request, plan.info, plan.folder
    config = request.config
    chunks = _load(folder, len(plan.chunks), config)
    pts = check_chunks(chunks)
    events: list[Event] = []

    def note(event: Event) -> None:
        events.append(event)
        on_event(event)

    audio: list[AudioReport] = []
    with ExitStack() as stack:
        opened = []
        for output in request.outputs:
            opened.append(request.open_output(output, info, note))
            stack.enter_context(opened[-1].file)
            stack.enter_context(opened[-1].writer)
        for index, (path, (_, muxer)) in enumerate(zip(config.videos, opened, strict=True)):
            sources = [folder.video(number, path, index) for number in range(len(chunks))]
            assert isinstance(muxer, Muxer)  # other outputs are not divided
            _copy(muxer, info, sources, [chunk.packets[index] for chunk in chunks], pts, cancel)
            muxer.finish()
            check_pts(pts, sorted(muxer.video_pts), "written", "was written as")
            audio += muxer.audio
        files: list[OutputFile] = [each.file for each in opened]
        files += _write_faces(request, folder, chunks, stack)
        folder.check_sources(config)
        request.check_reports()
        commit(files)
        folder.remove()  # nothing is left to continue, even if the report cannot be written
    if config.face.file is not None and chunks[0].report.faces is not None:
        known = read_faces_file(Path(config.face.file))
        known.require_video(info)
        for text in known.warnings(pts, is_part=config.is_part):
            note(Event(kind="warning", message=text, stage="face"))
    nobody = nobody_text(config, len(pts))
    if nobody is not None and not any(map(_shows_people, chunks)):
        note(Event(kind="warning", message=nobody, stage="segment"))
    for name in chunks[0].unused:
        if all(name in chunk.unused for chunk in chunks):
            _, text = max(chunk.unused[name] for chunk in chunks)
            note(Event(kind="warning", message=text, stage="composite"))
    detector = _joined_detector(chunks, note)
    length = (min(chunks[-1].packets[0][0]) - pts[0]) * info.time_base
    seconds = time.monotonic() - plan.started
    report = joined_report(config, chunks, reused, events, length, seconds)
    report = replace(report, audio=audio, detector=detector)
    if config.report is not None:
        report = replace(report, files=file_reports(request, report))
        report.write_json(config.report)
    return report


def _load(folder: WorkFolder, count: int, config: RenderConfig) -> list[ChunkResult]:
    chunks = []
    for number in range(count):
        chunk = folder.finished(number)
        if chunk is None:
            raise VerificationError(
                f"cannot join {config.output.name}: chunk {number + 1} is missing or damaged; run"
                " the command again"
            )
        chunks.append(chunk)
    return chunks


def check_chunks(chunks: Sequence[ChunkResult]) -> array[int]:
    """Return the times of all frames, in order.

    A chunk's pre-roll must equal the last frames before the chunk. Then no frame is missing or
    repeated at a boundary.

    Raises:
        JoinError: A pre-roll differs, or a chunk reports that it may differ from a whole render.
    """
    pts = array("q")
    for chunk in chunks:
        if chunk.irregular is not None:
            raise JoinError(chunk.irregular)
        before = pts[max(0, len(pts) - len(chunk.pre_roll)) :]
        if before != chunk.pre_roll or bool(pts) != bool(chunk.pre_roll):
            raise JoinError("decoding from the middle gives different frames")
        pts.extend(chunk.kept)
    if any(after <= before for before, after in pairwise(pts)):
        raise JoinError("the times of its frames are not increasing")
    return pts


def _damaged(index: int) -> JoinError:
    return JoinError(f"chunk {index + 1} is damaged")


def _reading(index: int) -> AbstractContextManager[None]:
    """Turn errors of a chunk's damaged files into JoinError."""
    ours = OpenError, UnsupportedFormatError
    theirs = BadZipFile, TokenError, KeyError, OSError, RuntimeError, ValueError
    return translated(*ours, *theirs, to=lambda _: _damaged(index))


def _write_faces(
    request: Request, folder: WorkFolder, chunks: Sequence[ChunkResult], stack: ExitStack
) -> list[AtomicOutput]:
    """Write the faces of all frames to a temporary file, if requested, and return it."""
    path = request.config.face_data
    if path is None:
        return []
    stack.enter_context(made_folders([path], lambda _text: None))
    data = request.open_faces()
    assert data is not None
    stack.enter_context(data)
    data.file.keeps = False  # as long as the chunks have the faces
    for chunk, numbers in enumerate(joined_ids(chunks)):
        with _reading(chunk):
            for time_of_frame, faces in read_faces(folder.faces(chunk)):
                for face in faces:
                    face.id = numbers[face.id]
                data.add(time_of_frame, faces)
    return data.finish()


def _copy(
    muxer: Muxer,
    info: VideoInfo,
    sources: Sequence[Path],
    known: Sequence[tuple[array[int], array[int]]],
    pts: array[int],
    cancel: threading.Event,
) -> None:
    """Copy the packets of finished files, one file after another.

    ``known`` contains pts and durations of each file's packets, in decoding order. ``pts`` contains
    the pts of all frames, in order.
    """
    stream: Any = None
    extradata: bytes | None = None
    decoding = _decoding_times(pts, max(map(_delay, (times for times, _ in known))))
    shift, after = 0, dict(pairwise(pts))
    for index, (path, (times, lengths)) in enumerate(zip(sources, known, strict=True)):
        with _reading(index), open_input(path) as source:
            (video,) = source.streams.video
            assert isinstance(video, VideoStream)
            own, number = video.codec_context.extradata, video.index
            if stream is None:
                stream, extradata = muxer.add_copy(video), own
                shift = pts[0] - muxer.timestamp(pts[0])
            elif own != extradata:
                raise JoinError("its encoder wrote different headers for chunks")
        packets: Iterator[Packet[Any]] = read_packets(path, number)
        for pts_of_packet, length in zip(times, lengths, strict=True):
            packet = next(packets, None)
            if packet is None:
                raise _damaged(index)
            packet.pts, packet.dts = muxer.timestamp(pts_of_packet), next(decoding) - shift
            shown = after.get(pts_of_packet, pts_of_packet + length) - pts_of_packet
            packet.duration, packet.time_base = min(length, shown), info.time_base
            packet.stream = stream
            muxer.write_video([packet])
            if cancel.is_set():
                raise RenderCancelledError("interrupted")
        if next(packets, None) is not None:
            raise _damaged(index)


def _delay(times: array[int]) -> int:
    """Return the number of packets by which decoding must precede presentation."""
    shown = sorted(times)
    return max(place - bisect_left(shown, time) for place, time in enumerate(times))


def _decoding_times(pts: array[int], delay: int) -> Iterator[int]:
    """Yield decoding times for packets with these presentation times, in decoding order.

    They are the presentation times, delayed by ``delay`` packets. Those of the first packets are
    before the first presentation time, like x264's.
    """
    delay = min(delay, len(pts) - 1)
    ahead = pts[delay] - pts[0]
    yield from (time - ahead for time in pts[:delay])
    yield from pts[: len(pts) - delay]


def joined_report(
    config: RenderConfig,
    chunks: Sequence[ChunkResult],
    reused: Sequence[bool],
    events: Sequence[Event],
    length: Fraction,
    wall_seconds: float,
) -> RenderReport:
    """Return the report of a render whose chunks were joined.

    Args:
        config: Settings of the render.
        chunks: Results of the chunks.
        reused: True for each chunk that was finished before this run.
        events: Events while chunks were joined.
        length: Seconds from the first frame of the first chunk to that of the last chunk.
        wall_seconds: Duration of the render.
    """
    reports = [chunk.report for chunk in chunks]
    first = reports[0]
    frames = sum(report.frames_encoded for report in reports)

    def mean(values: Iterable[float]) -> float:
        """Return the mean over all frames, from means over the frames of each chunk."""
        pairs = zip(values, reports, strict=True)
        return sum(value * report.frames_encoded for value, report in pairs) / frames

    times = [report.first_frame_s for report in reports if report.first_frame_s is not None]
    vram = [report.peak_vram_bytes for report in reports if report.peak_vram_bytes is not None]
    stages = {
        name: replace(stage, ms_per_frame=mean(r.stages[name].ms_per_frame for r in reports))
        for name, stage in first.stages.items()
    }
    size = {key: first.settings[key] for key in ("width", "height")}
    return replace(
        first,
        input=str(config.input),
        output=str(config.output),
        frames_decoded=frames,
        frames_encoded=frames,
        concealed_frames=sum(report.concealed_frames for report in reports),
        duration_s=float(length) + reports[-1].duration_s,
        wall_s=wall_seconds,
        fps=frames / wall_seconds,
        first_frame_s=min(times, default=None),
        settings=plain_settings(config) | size,
        stages=stages,
        h2d_bytes=mean(report.h2d_bytes for report in reports),
        d2h_bytes=mean(report.d2h_bytes for report in reports),
        faces=_joined_faces(chunks),
        hidden=join_runs(report.hidden for report in reports),
        timeline=_joined_timeline(reports),
        events=_joined_events(chunks, events),
        peak_rss_bytes=max(report.peak_rss_bytes for report in reports),
        peak_vram_bytes=max(vram, default=None),
        parts=[
            ChunkReport(
                frames=chunk.report.frames_encoded,
                lead_frames=len(chunk.pre_roll),
                wall_s=chunk.report.wall_s,
                device=chunk.report.stages["composite"].device,
                reused=is_reused,
            )
            for chunk, is_reused in zip(chunks, reused, strict=True)
        ],
    )


def _joined_events(chunks: Sequence[ChunkResult], last: Sequence[Event]) -> list[Event]:
    """Return each event once, although every chunk reports those that belong to no frame."""
    damage = damage_text(
        sum(chunk.report.concealed_frames for chunk in chunks),
        sum(chunk.corrupt_packets for chunk in chunks),
    )
    every = [event for chunk in chunks for event in chunk.report.events]
    if damage is not None:
        every.append(Event(kind="repair", message=damage, stage="decode"))
    return list(dict.fromkeys([*every, *last]))


def _shows_people(chunk: ChunkResult) -> bool:
    timeline = chunk.report.timeline
    return timeline is None or any(timeline.matte_area_pct)


def _joined_timeline(reports: Sequence[RenderReport]) -> Timeline:
    parts = [report.timeline for report in reports if report.timeline is not None]
    counts = [part.faces for part in parts if part.faces is not None]
    return Timeline(
        matte_area_pct=[area for part in parts for area in part.matte_area_pct],
        faces=[count for part in counts for count in part] if counts else None,
    )


def _joined_faces(chunks: Sequence[ChunkResult]) -> dict[str, Any] | None:
    """Return the chunks' face summaries as one."""
    summaries = [chunk.report.faces for chunk in chunks if chunk.report.faces is not None]
    return joined_summary(summaries, joined_ids(chunks)) if summaries else None


def _joined_detector(
    chunks: Sequence[ChunkResult], note: Callable[[Event], None]
) -> dict[str, Any] | None:
    """Return the chunks' summaries of a detector as one, and report what it missed."""
    summaries = [chunk.report.detector for chunk in chunks if chunk.report.detector is not None]
    if not summaries:
        return None
    from bgsoft.detect.step import joined_summary, warnings

    summary = joined_summary(summaries)
    for text in warnings(summary):
        note(Event(kind="warning", message=text, stage="segment"))
    return summary


def joined_ids(chunks: Sequence[ChunkResult]) -> list[dict[int, int]]:
    """Return, for each chunk, a table from its face ids to those of the whole video.

    A track continues in the next chunk if its face is in the same place.
    """
    known = 0
    last: dict[int, Box] = {}
    tables = []
    for chunk in chunks:
        assert chunk.faces is not None
        numbers = _same_faces(_boxes(chunk.faces["before"]), last)
        for id in chunk.faces["ids"]:
            if id not in numbers:
                numbers[id] = known
                known += 1
        last = {numbers[id]: box for id, box in _boxes(chunk.faces["last"]).items()}
        tables.append(numbers)
    return tables


def _boxes(faces: Sequence[Sequence[float]]) -> dict[int, Box]:
    return {int(id): (left, top, right, bottom) for id, left, top, right, bottom in faces}


def _same_faces(found: dict[int, Box], known: dict[int, Box]) -> dict[int, int]:
    """Return the known number of each face of a frame that overlaps a known face."""
    numbers: dict[int, int] = {}
    for id, box in found.items():
        free = [number for number in known if number not in numbers.values()]
        best = max(free, key=lambda number: box_overlap(box, known[number]), default=None)
        if best is not None and box_overlap(box, known[best]) >= _SAME_FACE:
            numbers[id] = best
    return numbers
