"""One report of many chunks'."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from bgsoft.chunks.faces import joined_ids
from bgsoft.face.step import MAX_LISTED
from bgsoft.rendering.chunk import ChunkResult
from bgsoft.rendering.report import damage_text, plain_settings
from bgsoft.report import ChunkReport, Event, RenderReport
from bgsoft.settings.config import RenderConfig


def joined_report(
    config: RenderConfig,
    chunks: Sequence[ChunkResult],
    reused: Sequence[bool],
    events: Sequence[Event],
    length: Fraction,
    wall_seconds: float,
) -> RenderReport:
    """The report of a render whose chunks were joined.

    Args:
        config: The render's settings.
        chunks: What is known of each.
        reused: Which had been finished before this run.
        events: What was reported while they were joined.
        length: From the first chunk's first frame to the last chunk's, seconds.
        wall_seconds: How long this run took.
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
    settings = {key: first.settings[key] for key in ("width", "height")}
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
        settings=plain_settings(config) | settings,
        stages=stages,
        h2d_bytes=mean(report.h2d_bytes for report in reports),
        d2h_bytes=mean(report.d2h_bytes for report in reports),
        faces=_joined_faces(chunks),
        events=_joined_events(chunks, events),
        peak_rss_bytes=max(report.peak_rss_bytes for report in reports),
        peak_vram_bytes=max(vram, default=None),
        parts=[
            ChunkReport(
                frames=chunk.report.frames_encoded,
                lead_frames=len(chunk.pre_roll),
                wall_s=chunk.report.wall_s,
                device=chunk.report.stages["composite"].device,
                reused=done,
            )
            for chunk, done in zip(chunks, reused, strict=True)
        ],
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
    summaries = [chunk.report.faces for chunk in chunks]
    if None in summaries:
        return None
    tables = joined_ids(chunks)
    missed: list[dict[str, Any]] = []
    contested: list[dict[str, Any]] = []
    for numbers, summary in zip(tables, summaries, strict=True):
        assert summary is not None
        for entry in summary["missed"] or []:
            pct = {str(numbers[int(id)]): value for id, value in entry["missed_pct"].items()}
            missed.append({**entry, "missed_pct": pct})
        contested += (
            {**entry, "ids": [numbers[id] for id in entry["ids"]]} for entry in summary["contested"]
        )
    first = summaries[0]
    assert first is not None
    measures = first["missed_frames"] is not None
    sums = {
        key: sum(summary[key] or 0 for summary in summaries if summary)
        for key in ("frames_with_faces", "missed_frames", "shared_frames", "contested_frames")
    }
    return {
        **first,
        **sums,
        "tracks": len({number for numbers in tables for number in numbers.values()}),
        "most_faces": max(summary["most_faces"] for summary in summaries if summary),
        "missed_frames": sums["missed_frames"] if measures else None,
        "missed": missed[:MAX_LISTED] if measures else None,
        "contested": contested[:MAX_LISTED],
    }
