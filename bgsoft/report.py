"""Events, progress and report of a render, as values and as JSON with stable names."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from bgsoft.outputs import write_whole
from bgsoft.records import dataclass

PICTURE_STAGES = ("segment", "face", "matte", "composite")
"""Stages that share one thread; on a GPU, its stream."""
STAGE_NAMES = ("decode", *PICTURE_STAGES, "encode")
"""All stages in the order of the data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageReport:
    """One stage of the render."""

    backend: str
    """Backend that ran, e.g. ``cpu``; ``off`` where the stage had no work."""
    device: str
    """e.g. ``cpu`` or ``cuda:0 (NVIDIA H100)``."""
    ms_per_frame: float
    """Wall time inside the stage over frames rendered; stages overlap, so these don't add up."""
    fallback_reason: str | None = None
    """Why a better backend was not used; None where none was wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReport:
    """The segmentation model that ran."""

    name: str
    sha256: str
    licence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioReport:
    """Treatment of one audio track."""

    track: int
    """Position among the input's audio tracks, from 0."""
    codec: str
    """Codec in the output."""
    action: str
    """``copied``, ``transcoded`` or ``dropped``."""
    reason: str | None = None
    """Why it was not copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something reported while a video is rendered."""

    kind: str
    """``notice``, ``fallback``, ``retry``, ``scene-cut``, or, where the result must be checked,
    ``warning``, ``repair`` or ``fault``."""
    message: str
    stage: str | None = None
    frame: int | None = None
    """Frame index, where it concerns one."""
    pts: int | None = None


class Phase(StrEnum):
    """Part of a render that is running."""

    SEARCH = "search"
    """Its main people are searched for; nothing is written yet."""
    RENDER = "render"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A snapshot of a running render, given to the ``on_progress`` callback."""

    phase: Phase = Phase.RENDER
    """Numbers and times are those of this phase."""
    frames: int
    """Frames encoded so far, or searched."""
    total: int | None
    """Frames expected, from the header; None where unknown."""
    elapsed_seconds: float
    fps: float
    """Frames a second over the last seconds."""
    eta_seconds: float | None
    load: dict[str, float]
    """Share of wall time each stage was busy over the last seconds, 0–1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkReport:
    """One chunk of a render in chunks."""

    frames: int
    lead_frames: int
    """Frames that were rendered before the chunk, so that it equals a whole render, and dropped."""
    wall_s: float
    device: str
    """Device that composited it."""
    reused: bool
    """An earlier run had finished it."""


@dataclass(slots=True, kw_only=True)
class HiddenRun:
    """A place that was hidden in consecutive frames; it may move."""

    source: str
    """``network`` for a face that was found, ``hand`` for one of a file of faces, ``region`` for a
    region of a flag or file, ``detector`` for what a detector found."""
    region: str | None = None
    """The region: its flag, or its number in the file. Of a detector the class."""
    first_frame: int
    last_frame: int
    first_s: float
    """Time of the first frame, seconds."""
    last_s: float
    boxes: list[tuple[int, int, int, int, int]]
    """Frame, left, top, right, bottom, half-open, in pixels of the upright frame; nothing was
    changed outside. Of the first and the last frame; and of every
    :data:`bgsoft.hide.record.KEY_FRAMES`-th of the video between them, where it is not the box
    before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Figures of each frame, in order."""

    matte_area_pct: list[float]
    """Share of the frame that its matte covers; soft parts count by their opacity."""
    faces: list[int] | None
    """Faces in it, found or expected; None if faces were not detected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """A file that the render read or wrote."""

    role: str
    """``input``, ``background``, ``regions``, ``matte in``, ``faces``, ``detector``, ``detector
    sidecar``, ``model``, ``output``, ``matte`` or ``face data``."""
    name: str
    """Its path; of a model, its name."""
    sha256: str | None
    """Hash of its bytes; of a sequence's pictures, of all their bytes in order. None: it was a
    pipe, or changed during the render."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderReport:
    """The whole render. Field names are part of the public interface."""

    bgsoft_version: str
    input: str
    output: str
    skipped: bool = False
    """True where the output existed and ``skip_existing`` was asked."""
    frames_decoded: int = 0
    frames_encoded: int = 0
    concealed_frames: int = 0
    duration_s: float = 0.0
    """Length of the rendered video: last pts plus duration minus first pts."""
    wall_s: float = 0.0
    fps: float = 0.0
    """Frames encoded over wall time."""
    first_frame_s: float | None = None
    """Time from the start of the render to the first frame handed to the encoder."""
    process_s: float | None = None
    """How long the process had lived when the render began: where it does nothing else, the time
    that the interpreter and all imports take."""
    pixel_format: str | None = None
    """FFmpeg's name of the output's samples, e.g. ``yuv422p10le``; ``yuv420p`` in both
    ranges, never ``yuvj420p``. None for pictures."""
    settings: dict[str, Any]
    model: ModelReport | None = None
    stages: dict[str, StageReport] = field(default_factory=dict)
    """Keys: decode, segment, face, matte, composite, encode."""
    h2d_bytes: float = 0.0
    """Frame data that went from host to GPU memory, bytes a frame."""
    d2h_bytes: float = 0.0
    """Frame data that went back, bytes a frame; 0 on an all-GPU path, but for the thumbnails."""
    faces: dict[str, Any] | None = None
    """See :meth:`bgsoft.face.step.FaceJournal.summary`; None if faces were not detected."""
    detector: dict[str, Any] | None = None
    """See :meth:`bgsoft.detect.step.DetectorStep.summary`; None where there was no detector."""
    hidden: list[HiddenRun] = field(default_factory=list)
    """Everything that was made unrecognisable, by its first frame."""
    timeline: Timeline | None = None
    """None without a report file, unless the video was divided."""
    files: list[FileReport] = field(default_factory=list)
    """Empty where no report file was asked for."""
    events: list[Event] = field(default_factory=list)
    audio: list[AudioReport] = field(default_factory=list)
    parts: list[ChunkReport] = field(default_factory=list)
    """Chunks of the render, in order; stages' times are means over all of them. Empty if it was
    rendered whole."""
    peak_rss_bytes: int
    peak_vram_bytes: int | None = None
    """Most GPU memory seen in use while frames ran: this process's, or where the driver does not
    report that, all of the GPU's (``gpu["memory_of"]``); None on the CPU."""
    gpu: dict[str, Any] | None = None
    """Load, power and temperature of the GPU; see :class:`bgsoft.cuda.monitor.GpuWatch`. None
    on the CPU."""
    versions: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON types."""
        return asdict(self)

    def write_json(self, path: Path) -> None:
        """Write the report; OutputError where that fails."""
        text = json.dumps(self.to_dict(), indent=2, default=str)
        # Each list of numbers on one line. No string has a line break, so only lists match.
        text = re.sub(r"\[\n[-\d.,\s]+\]", lambda m: " ".join(m[0].split()), text)
        write_whole(path, "report", text + "\n")
