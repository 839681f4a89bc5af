"""One report of many chunks', and one numbering of their faces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from bgsoft.face.base import Box, box_overlap
from bgsoft.face.step import MAX_LISTED
from bgsoft.rendering.chunk import ChunkResult
from bgsoft.rendering.report import damage_text, plain_settings
from bgsoft.report import ChunkReport, Event, RenderReport
from bgsoft.settings.config import RenderConfig

_SAME_FACE = 0.5
"""Faces of one frame, found on the way from two places, are the same from this overlap on."""


def joined_report(
    config: RenderConfig,
    chunks: Sequence[ChunkResult],
    reused: Sequence[bool],
    events: Sequence[Event],
    length: Fraction,
    wall_seconds: float,
) -> RenderReport:
    """The report of a render whose chunks were joined.

    ``reused`` says which chunks had been finished before this run, ``events`` what was reported
    while they were joined, ``length`` the seconds from the first chunk's first frame to the last
    chunk's.
    """
    reports = [chunk.report for chunk in chunks]
    first = reports[0]
    frames = sum(report.frames_encoded for report in reports)

    def mean(values: Iterable[float]) -> float:
        """Over all frames, of means over the frames of each chunk."""
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
        events=_joined_events(chunks, events),
        peak_rss_bytes=max(report.peak_rss_bytes for report in reports),
        peak_vram_bytes=max(vram, default=None),
        parts=list(map(_chunk_report, chunks, reused)),
    )


def _chunk_report(chunk: ChunkResult, reused: bool) -> ChunkReport:
    report = chunk.report
    return ChunkReport(
        frames=report.frames_encoded,
        lead_frames=len(chunk.pre_roll),
        wall_s=report.wall_s,
        device=report.stages["composite"].device,
        reused=reused,
    )


def _joined_events(chunks: Sequence[ChunkResult], last: Sequence[Event]) -> list[Event]:
    """Each event once; what belongs to no frame is reported by every chunk."""
    damage = damage_text(
        sum(chunk.report.concealed_frames for chunk in chunks),
        sum(chunk.corrupt_packets for chunk in chunks),
    )
    every = [event for chunk in chunks for event in chunk.report.events]
    if damage is not None:
        every.append(Event(kind="repair", message=damage, stage="decode"))
    return list(dict.fromkeys([*every, *last]))


def _joined_faces(chunks: Sequence[ChunkResult]) -> dict[str, Any] | None:
    """The chunks' face summaries as one."""
    summaries = [chunk.report.faces for chunk in chunks if chunk.report.faces is not None]
    if len(summaries) < len(chunks):
        return None
    tables = joined_ids(chunks)
    missed: list[dict[str, Any]] = []
    contested: list[dict[str, Any]] = []
    for numbers, summary in zip(tables, summaries, strict=True):
        for entry in summary["missed"] or []:
            pct = {str(numbers[int(id)]): value for id, value in entry["missed_pct"].items()}
            missed.append({**entry, "missed_pct": pct})
        contested += (
            {**entry, "ids": [numbers[id] for id in entry["ids"]]} for entry in summary["contested"]
        )
    measures = summaries[0]["missed_frames"] is not None
    sums = {
        key: sum(summary[key] or 0 for summary in summaries)
        for key in ("frames_with_faces", "missed_frames", "shared_frames", "contested_frames")
    }
    return {
        **summaries[0],
        **sums,
        "tracks": len({number for numbers in tables for number in numbers.values()}),
        "most_faces": max(summary["most_faces"] for summary in summaries),
        "missed_frames": sums["missed_frames"] if measures else None,
        "missed": missed[:MAX_LISTED] if measures else None,
        "contested": contested[:MAX_LISTED],
    }


def joined_ids(chunks: Sequence[ChunkResult]) -> list[dict[int, int]]:
    """For each chunk, a table from its face ids to those of the whole video.

    Tracks go on from chunk to chunk by place.
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
    """Of the faces of one frame: which number those have that are known."""
    numbers: dict[int, int] = {}
    for id, box in found.items():
        free = [number for number in known if number not in numbers.values()]
        best = max(free, key=lambda number: box_overlap(box, known[number]), default=None)
        if best is not None and box_overlap(box, known[best]) >= _SAME_FACE:
            numbers[id] = best
    return numbers
