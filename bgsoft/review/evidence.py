"""Evidence of a render, from its report and face data or from its videos alone."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import BadZipFile

import numpy as np

from bgsoft.analysis.reduce import Reducer
from bgsoft.analysis.scenes import LumaProbe
from bgsoft.errors import ConfigError, os_errors_as, translated
from bgsoft.face.create import finder_settings
from bgsoft.face.finder import FaceFinder
from bgsoft.face.geometry import Box
from bgsoft.face.journal import FaceJournal
from bgsoft.face.networks import FaceNetworks
from bgsoft.frame import Frame, FrameFormat
from bgsoft.records import NamedTuple, dataclass
from bgsoft.rendering.files import hash_files
from bgsoft.review.videos import ReviewVideo, frame_pairs
from bgsoft.settings.config import FaceConfig
from bgsoft.untrusted import parse_json

CHANGED = 8
"""Difference of luma, 8 bits, from which on a sample was changed: encoding stays below, mostly."""

_DAMAGED = (
    *(ArithmeticError, EOFError, LookupError, RuntimeError, TypeError, ValueError),
    *(BadZipFile, zlib.error),
)
"""Errors of face data of another form."""


class SeenFace(NamedTuple):
    """A face of one frame."""

    id: int
    score: float
    box: Box
    detected: bool


@dataclass(slots=True, kw_only=True)
class Evidence:
    """Figures and lists of frames; frames are counted from 0."""

    area_name: str
    """Name of :attr:`area`, for people."""
    area: list[float]
    """Percent of each frame."""
    person_shrinks: bool
    """True: a part of a person is lost where the area falls. False: where it rises."""
    cuts: list[int]
    faces: list[int] | None
    """Number in each frame; None: they were not detected."""
    lists: dict[str, list[dict[str, Any]]]
    """Lists of the report's ``faces``."""
    hidden: list[dict[str, Any]] = field(default_factory=list)
    """See :class:`bgsoft.report.HiddenRun`."""
    hides: bool = False
    """Faces were to be hidden."""
    seen: dict[int, list[SeenFace]] = field(default_factory=dict)
    """Faces by frame, from the face data."""


def read_start(path: Path) -> float | None:
    """Return the start of a rendered part in seconds, from its report; None: the whole video.

    Raises:
        ConfigError: The report cannot be read.
    """
    with os_errors_as(ConfigError, f"cannot read the report {path}", path=path):
        data = path.read_bytes()
    try:
        settings = parse_json(data)["settings"]
        is_part = settings["start_seconds"] or settings["duration_seconds"] is not None
        return float(settings["start_seconds"]) if is_part else None
    except (ValueError, KeyError, TypeError):
        return None  # read_report has the reason


def read_report(path: Path, source: ReviewVideo, result: ReviewVideo | None) -> Evidence:
    """Read the evidence in the report of a render; ``result`` is not needed.

    Raises:
        ConfigError: It cannot be read, or is that of another render.
    """

    def fault(reason: str, advice: str) -> ConfigError:
        return ConfigError(f"cannot use the report {path}: {reason}; {advice}", path=path)

    with os_errors_as(ConfigError, f"cannot read the report {path}", path=path):
        data = path.read_bytes()
    again = "render with --report once more, or leave --report out"
    try:
        report = parse_json(data)
        hashes = {entry["role"]: entry["sha256"] for entry in report["files"]}
        area, faces = report["timeline"]["matte_area_pct"], report["timeline"]["faces"]
        events, found, hidden = report["events"], report["faces"] or {}, report["hidden"]
        cuts = [int(event["frame"]) for event in events if event["kind"] == "scene-cut"]
        lists = {name: each for name, each in found.items() if isinstance(each, list)}
        hides = found.get("mode") == "anonymize"
        area = [float(value) for value in area]
        frames = [int(entry["frame"]) for each in lists.values() for entry in each]
        frames += [int(box[0]) for run in hidden for box in run["boxes"]]
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise fault("it lacks files or a timeline", again) from exc
    for role, video in (("input", source), ("output", result)):
        if video is not None and hashes.get(role) != hash_files([video.path]):
            raise fault(f"{video.path} is not the {role} that it describes", again)
    count = len(source.pts)
    if len(area) != count or any(not 0 <= frame < count for frame in (*frames, *cuts)):
        raise fault(f"its frames are not the {count} of {source.path}", again)
    return Evidence(
        area_name="Matte area",
        area=area,
        person_shrinks=True,
        cuts=cuts,
        faces=faces,
        lists=lists,
        hidden=hidden,
        hides=hides,
    )


def compute_evidence(source: ReviewVideo, result: ReviewVideo) -> Evidence:
    """Gather evidence from the two videos alone; decodes both whole.

    The area is that of changed samples. Faces are those of the source.

    Raises:
        MediaError: A video cannot be decoded.
        InferenceError, ModelError: The face detector failed.
    """
    format = source.info.format
    reducers = Reducer(format), Reducer(result.info.format)
    probe = LumaProbe(format)
    journal = FaceJournal(format, measures=False, hides=True)
    cuts: list[int] = []
    measured: dict[int, tuple[float, int]] = {}
    with make_finder(format) as finder:
        finder.start()
        for frame, after in frame_pairs(source, result):
            (before,), (changed,) = reducers[0].reduce([frame]), reducers[1].reduce([after])
            (cut,) = probe.cuts([before])
            if cut:
                cuts.append(frame.index)
                finder.reset()
                journal.cut()
            (faces,) = finder.find([frame], [before])
            journal.add(frame, faces, finder.doubts[0])
            difference = changed_samples(before.luma, format, changed.luma, result.info.format)
            measured[frame.index] = 100 * float(np.mean(difference)), len(faces)
    found, last = journal.summary(), (0.0, 0)
    # Frames that do not decode count as those before them.
    rows = [last := measured.get(number, last) for number in range(len(source.pts))]
    return Evidence(
        area_name="Changed area",
        area=[area for area, _ in rows],
        person_shrinks=False,
        cuts=cuts,
        faces=[count for _, count in rows],
        lists={name: each for name, each in found.items() if isinstance(each, list)},
    )


def changed_samples(one: Any, format: FrameFormat, other: Any, other_format: FrameFormat) -> Any:
    """Mark the samples in which two luma planes differ: bool, of their shape."""
    eight = [
        plane.astype(np.int16) if each.bytes_per_sample == 1 else (plane >> 8).astype(np.int16)
        for plane, each in ((one, format), (other, other_format))
    ]
    return np.abs(eight[0] - eight[1]) >= CHANGED


def make_finder(format: FrameFormat) -> FaceFinder:
    """Make a finder for faces that a person would see, on the CPU."""
    settings = finder_settings(FaceConfig(small_faces=True), format, writes_data=False)
    return FaceFinder(format, FaceNetworks(format, settings.canvases(format)), settings)


def read_face_data(path: Path, count: int) -> dict[int, list[SeenFace]]:
    """Read the faces of ``--face-data``, JSON lines or arrays, by frame.

    Raises:
        ConfigError: It cannot be read, or has other frames.
    """
    problem = f"cannot read the face data {path}"
    seen: dict[int, list[SeenFace]] = {}
    foreign = ConfigError(f"{problem}: a render did not write it", path=path)
    with (
        os_errors_as(ConfigError, problem, path=path),
        translated(*_DAMAGED, to=lambda _: foreign),
        path.open("rb") as file,
    ):
        seen.update(_arrays(file) if path.suffix.lower() == ".npz" else _lines(file))
    if len(seen) != count or (seen and max(seen) >= count):
        raise ConfigError(
            f"{problem}: it has {len(seen)} frames, and the video has {count}; name the face data"
            " of this render",
            path=path,
        )
    return seen


def _lines(file: BinaryIO) -> Iterator[tuple[int, list[SeenFace]]]:
    for line in file:
        frame = parse_json(line)
        faces = [
            SeenFace(int(face["id"]), float(face["score"]), _box(face["box"]), face["detected"])
            for face in frame["faces"]
        ]
        yield int(frame["index"]), faces


def _arrays(file: BinaryIO) -> Iterator[tuple[int, list[SeenFace]]]:
    with np.load(file) as known:
        columns = [known[name].tolist() for name in ("id", "score", "box", "detected")]
        rows = zip(*columns, strict=True)
        faces = [SeenFace(id, score, _box(box), bool(seen)) for id, score, box, seen in rows]
        first = known["first"].tolist()
        for at, index in enumerate(known["index"].tolist()):
            yield index, faces[first[at] : first[at + 1]]


def _box(sides: Any) -> Box:
    left, top, right, bottom = map(float, sides)
    return left, top, right, bottom


def faces_in(frame: Frame, finder: FaceFinder, reducer: Reducer) -> list[Box]:
    """Detect the faces of one frame by itself, largest first."""
    finder.reset()
    (faces,) = finder.find([frame], reducer.reduce([frame]))
    return [face.box_xyxy for face in faces]
