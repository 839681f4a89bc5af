"""Finished chunks become one file: their packets are copied, and everything else is as ever.

Packets stream through; of the whole video only its times are held.
"""

from __future__ import annotations

import threading
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from av.packet import Packet
from av.video.stream import VideoStream

from bgsoft.chunks.folder import WorkFolder
from bgsoft.chunks.prepare import Plan
from bgsoft.chunks.report import joined_ids, joined_report
from bgsoft.errors import RenderCancelledError, VerificationError
from bgsoft.face.data import FaceDataWriter, read_faces
from bgsoft.media.info import VideoInfo
from bgsoft.media.mux import Muxer
from bgsoft.media.source import open_input, read_packets
from bgsoft.outputs import made_folders
from bgsoft.pipeline.runner import check_pts
from bgsoft.rendering.chunk import ChunkResult, JoinError
from bgsoft.rendering.target import open_faces, open_target
from bgsoft.report import AudioReport, Event, RenderReport
from bgsoft.settings.config import RenderConfig


def join(
    plan: Plan,
    reused: Sequence[bool],
    *,
    on_event: Callable[[Event], None],
    cancel: threading.Event,
) -> RenderReport:
    """Write the videos of a render from its chunks, which are in the working folder.

    ``reused`` says of each chunk whether an earlier run had finished it. The report is written
    where the settings ask for it.

    Raises:
        JoinError: The chunks do not make one video; nothing was written.
        OutputError: The output cannot be written.
        RenderCancelledError: ``cancel`` was set.
    """
    config, info, folder = plan.config, plan.info, WorkFolder(plan.config.output)
    chunks = _load(folder, len(plan.chunks), config)
    pts = check_chunks(chunks)
    events: list[Event] = []

    def note(event: Event) -> None:
        events.append(event)
        on_event(event)

    audio: list[AudioReport] = []
    with ExitStack() as stack:
        targets = [
            open_target(path, config, info, stack, stack, note, copy_tracks=path is config.output)
            for path in config.videos
        ]
        for index, (path, (_, muxer)) in enumerate(zip(config.videos, targets, strict=True)):
            sources = [folder.video(number, path, index) for number in range(len(chunks))]
            _copy(muxer, info, sources, [chunk.packets[index] for chunk in chunks], pts, cancel)
            muxer.finish()
            check_pts(pts, sorted(muxer.video_pts), "written", "was written as")
            audio += muxer.audio
        data = _write_faces(config, folder, chunks, stack)
        for file, _ in targets:
            file.commit()
        if data is not None:
            data.publish()
    if config.start_seconds == 0 and config.duration_seconds is None:
        short = info.shortage(len(pts))
        if short is not None:
            note(Event(kind="notice", message=short, stage="decode"))
    length = (min(chunks[-1].packets[0][0]) - pts[0]) * info.time_base
    seconds = time.time() - plan.started
    report = joined_report(config, chunks, reused, events, length, seconds)
    report = replace(report, audio=audio)
    if config.report is not None:
        report.write_json(config.report)
    return report


def _load(folder: WorkFolder, count: int, config: RenderConfig) -> list[ChunkResult]:
    chunks = []
    for number in range(count):
        chunk = folder.finished(number)
        if chunk is None:
            raise VerificationError(f"chunk {number + 1} of {config.output.name} is gone")
        chunks.append(chunk)
    return chunks


def check_chunks(chunks: Sequence[ChunkResult]) -> array[int]:
    """The times of all frames, in order.

    A chunk's pre-roll is the end of the chunks before it, frame for frame: so none is missing or
    there twice at a boundary.

    Raises:
        JoinError: It is not, or a chunk says that it may differ.
    """
    pts = array("q")
    for chunk in chunks:
        if chunk.irregular is not None:
            raise JoinError(chunk.irregular)
        before = pts[max(0, len(pts) - len(chunk.pre_roll)) :]
        if before != chunk.pre_roll or bool(pts) != bool(chunk.pre_roll):
            raise JoinError("its frames differ with where decoding begins")
        pts.extend(chunk.kept)
    if any(after <= before for before, after in pairwise(pts)):
        raise JoinError("the times of its frames fall")
    return pts


def _write_faces(
    config: RenderConfig, folder: WorkFolder, chunks: Sequence[ChunkResult], stack: ExitStack
) -> FaceDataWriter | None:
    """Write the faces of all frames to a temporary file; None where nobody asks for them."""
    if config.face_data is None:
        return None
    stack.enter_context(made_folders([config.face_data], lambda _text: None))
    data = open_faces(config)
    assert data is not None
    stack.enter_context(data)
    for chunk, numbers in enumerate(joined_ids(chunks)):
        for frame in read_faces(folder.faces(chunk)):
            for face in frame.faces:
                face.id = numbers[face.id]
            data.write(frame, frame.faces)
    data.finish()
    return data


def _copy(
    muxer: Muxer,
    info: VideoInfo,
    sources: Sequence[Path],
    known: Sequence[tuple[array[int], array[int]]],
    pts: array[int],
    cancel: threading.Event,
) -> None:
    """Copy the packets of finished files, one after the other.

    ``known`` has pts and duration of each file's packets, in decoding order; ``pts`` are all, in
    order.
    """
    stream: Any = None
    extradata: bytes | None = None
    decoding = _decoding_times(pts, max(map(_delay, (times for times, _ in known))))
    shift = 0
    for path, (times, lengths) in zip(sources, known, strict=True):
        with open_input(path) as source:
            (video,) = source.streams.video
            assert isinstance(video, VideoStream)
            own, number = video.codec_context.extradata, video.index
            if stream is None:
                stream, extradata = muxer.add_copy(video), own
                shift = pts[0] - muxer.timestamp(pts[0])
            elif own != extradata:
                raise JoinError("its encoder describes chunks differently")
        packets: Iterator[Packet[Any]] = read_packets(path, number)
        for pts_of_packet, length in zip(times, lengths, strict=True):
            packet = next(packets, None)
            if packet is None:
                raise JoinError(f"{path.name} lacks packets")
            packet.pts, packet.dts = muxer.timestamp(pts_of_packet), next(decoding) - shift
            packet.duration, packet.time_base = length, info.time_base
            packet.stream = stream
            muxer.write_video([packet])
            if cancel.is_set():
                raise RenderCancelledError("interrupted")
        if next(packets, None) is not None:
            raise JoinError(f"{path.name} has packets too many")


def _delay(times: array[int]) -> int:
    """By how many packets decoding has to be ahead for a chunk's packets to come in time."""
    shown = sorted(times)
    return max(place - bisect_left(shown, time) for place, time in enumerate(times))


def _decoding_times(pts: array[int], delay: int) -> Iterator[int]:
    """Decoding times for packets shown at these times, in order of decoding.

    They are the times themselves, put off by as many packets as are reordered over; those of the
    first packets lie before, as x264 has them.
    """
    delay = min(delay, len(pts) - 1)
    ahead = pts[delay] - pts[0]
    yield from (time - ahead for time in pts[:delay])
    yield from pts[: len(pts) - delay]
