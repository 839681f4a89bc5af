"""Files of face tracks that a user may edit: JSON lines, one for the video, then one per track.

A track is ``{"id": 3, "faces": [[pts, left, top, right, bottom, …], …]}``. These numbers may follow
the box: the angle, the score, 1 if the detector saw the face or 0 if it is only expected, and the
track's age in frames. The last three are the square for landmarks: x, y and side. A track may have
``"main": true``, ``"hide": false`` or ``"interpolate": true``.
"""

from __future__ import annotations

import json
import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from bgsoft.errors import ConfigError, InferenceError, os_errors_as
from bgsoft.face.base import Face
from bgsoft.face.finder import FaceFinder, FinderSettings
from bgsoft.face.geometry import Roi, face_size
from bgsoft.face.landmarks import square_of
from bgsoft.face.networks import FaceNetworks
from bgsoft.frame import Frame, FrameFormat
from bgsoft.media.info import VideoInfo
from bgsoft.records import dataclass
from bgsoft.suggestions import did_you_mean

_KEYS = ("id", "main", "hide", "interpolate", "faces")
_NUMBERS = (5, 12)
"""Fewest and most numbers of a face."""
_RECORDED = 13
"""Numbers of a face in memory."""
_OLD = 1000
"""Age in frames of a face that a user added, so that it counts at once."""


@dataclass(slots=True, kw_only=True)
class SavedTrack:
    """One track of a file."""

    id: int
    main: bool = False
    """The track is of a main person."""
    hide: bool = True
    """False: the face is never hidden."""
    interpolate: bool = False
    """Faces are interpolated between the listed ones."""
    faces: dict[int, tuple[float, ...]] = field(default_factory=dict)
    """pts → the numbers that follow it in the file, in order of pts."""

    def face(self, pts: int) -> Face | None:
        """Return the track's face at a time, or None."""
        numbers = self.faces.get(pts)
        if numbers is None and self.interpolate:
            numbers = self._between(pts)
        if numbers is None:
            return None
        box = (numbers[0], numbers[1], numbers[2], numbers[3])
        defaults = (0.0, 1.0, 1.0, float(_OLD))
        angle, score, seen, age = (*numbers[4:8], *defaults[len(numbers[4:8]) :])
        square = square_of(box, angle)
        if len(numbers) == _NUMBERS[1] - 1:
            x, y, side = numbers[8:]
            square = Roi(x, y, side, angle)
        return Face(
            id=self.id,
            score=score,
            box_xyxy=box,
            angle=angle,
            square=square,
            detected=bool(seen),
            age_frames=int(age),
        )

    def _between(self, pts: int) -> tuple[float, ...] | None:
        times = [*self.faces]
        after = bisect_right(times, pts)
        if not 0 < after < len(times):
            return None
        begin, end = times[after - 1 : after + 1]
        share = (pts - begin) / (end - begin)
        pairs = zip(self.faces[begin][:5], self.faces[end][:5], strict=False)
        return tuple(a + share * (b - a) for a, b in pairs)


@dataclass(slots=True, kw_only=True)
class FacesFile:
    """The tracks of a file."""

    path: Path
    width: int
    height: int
    """Size of the video's frames."""
    tracks: list[SavedTrack]

    @property
    def main(self) -> frozenset[int]:
        """Ids of the tracks that are main."""
        return frozenset(track.id for track in self.tracks if track.main)

    @property
    def shown(self) -> frozenset[int]:
        """Ids of the tracks that are never hidden."""
        return frozenset(track.id for track in self.tracks if not track.hide)

    def notices(self, rendered: Collection[int], *, is_part: bool) -> list[str]:
        """Return notices about faces that belong to no frame of the rendered part.

        Args:
            rendered: pts of all frames, in any order.
            is_part: They are a part of the video; other faces may belong to its other frames.
        """
        entries = {pts for track in self.tracks for pts in track.faces}
        if is_part:
            first, last = min(rendered), max(rendered)
            entries = {pts for pts in entries if first <= pts <= last}
        unused = len(entries.difference(rendered))
        if not unused:
            return []
        return [f"{self.path}: {unused} of {len(entries)} times match no rendered frame"]


def read_faces_file(path: Path) -> FacesFile:
    """Read a file of tracks.

    Raises:
        ConfigError: It cannot be read, or is malformed; the message names the line.
    """
    with os_errors_as(ConfigError, f"cannot read face file {path}", path=path):
        data = path.read_bytes()
    header: dict[str, Any] | None = None
    tracks: list[SavedTrack] = []
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            table = json.loads(line)
            if not isinstance(table, dict):
                raise ConfigError("it is not a JSON object")
            if header is None:
                header = _header(table)
            else:
                tracks.append(_track(table, {track.id for track in tracks}))
        except (ValueError, RecursionError) as exc:
            text = str(exc) or "it is nested too deeply"
            raise ConfigError(
                f"cannot read face file {path}: line {number}: {text}", path=path
            ) from exc
    if header is None:
        raise ConfigError(
            f"cannot read face file {path}: it is empty; make one with bgsoft faces", path=path
        )
    width, height = header["frame"]
    return FacesFile(path=path, width=width, height=height, tracks=tracks)


def _header(table: dict[str, Any]) -> dict[str, Any]:
    if table.get("faces_of") is None:
        raise ConfigError("the first line must have faces_of, as bgsoft faces writes it")
    frame = table.get("frame")
    if not (isinstance(frame, list) and len(frame) == 2 and all(map(_is_whole, frame))):
        raise ConfigError("frame must be [width, height]")
    return table


def _track(table: dict[str, Any], known: set[int]) -> SavedTrack:
    for key in table:
        if key not in _KEYS:
            raise ConfigError(f"unknown key {key}{did_you_mean(key, _KEYS)}")
    id = table.get("id")
    if not (isinstance(id, int) and _is_whole(id)) or id in known:
        raise ConfigError(f"id must be a whole number and differ from other tracks', not {id!r}")
    for key in ("main", "hide", "interpolate"):
        if not isinstance(table.get(key, True), bool):
            raise ConfigError(f"{key} must be true or false, not {table[key]!r}")
    entries = table.get("faces")
    if not isinstance(entries, list) or not entries:
        raise ConfigError("faces must be a list of [pts, left, top, right, bottom]")
    return SavedTrack(
        id=id,
        main=table.get("main", False),
        hide=table.get("hide", True),
        interpolate=table.get("interpolate", False),
        faces=dict(sorted(map(_face, entries))),
    )


def _face(entry: object) -> tuple[int, tuple[float, ...]]:
    form = "a face must be [pts, left, top, right, bottom]"
    if not isinstance(entry, list) or not all(map(_is_number, entry)):
        raise ConfigError(f"{form}, not {entry!r}")
    low, high = _NUMBERS
    if not (low <= len(entry) <= 9 or len(entry) == high) or not _is_whole(abs(entry[0])):
        raise ConfigError(f"{form}, not {entry!r}")
    pts, *numbers = entry
    left, top, right, bottom = numbers[:4]
    if left >= right or top >= bottom:
        raise ConfigError(f"a face must have left < right and top < bottom, not {entry!r}")
    return pts, tuple(map(float, numbers))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


class FacesRecorder:
    """A ``FaceTaker`` that collects the faces of every frame, in order."""

    wants_landmarks = False

    def __init__(self) -> None:
        self._pts, self._seconds, self._ends = array("q"), array("d"), array("q")
        """Of each frame its times, and the number of faces up to its last one."""
        self._numbers = array("d")
        """:data:`_RECORDED` a face; 104 bytes, a fifth of what objects take."""

    def write(self, frame: Frame, faces: Sequence[Face]) -> None:
        """Add the faces of the next frame."""
        for face in faces:
            numbers = (*face.box_xyxy, face.angle, face.score, face.detected, face.age_frames)
            self._numbers.extend((face.id, *numbers, *face.square[:3], face.is_proven))
        self._pts.append(frame.pts)
        self._seconds.append(frame.time_seconds)
        self._ends.append(len(self._numbers) // _RECORDED)

    @property
    def frames(self) -> int:
        """Frames so far."""
        return len(self._pts)

    @property
    def count(self) -> int:
        """Tracks so far."""
        return len({*self._numbers[::_RECORDED]})

    def items(self) -> Iterator[tuple[int, float, list[Face]]]:
        """Yield pts, seconds and faces of each frame."""
        for at, (pts, seconds) in enumerate(zip(self._pts, self._seconds, strict=True)):
            yield pts, seconds, [self._face(number) for number in self._places(at)]

    def faces(self, pts: int) -> list[Face] | None:
        """Return the faces of a frame; None: there was no such frame."""
        at = bisect_left(self._pts, pts)
        if at == len(self._pts) or self._pts[at] != pts:
            return None
        return [self._face(number) for number in self._places(at)]

    def _places(self, at: int) -> range:
        return range(self._ends[at - 1] if at else 0, self._ends[at])

    def _row(self, number: int) -> list[float]:
        return self._numbers[number * _RECORDED : (number + 1) * _RECORDED].tolist()

    def _face(self, number: int) -> Face:
        id, left, top, right, bottom, angle, score, seen, age, *rest = self._row(number)
        x, y, side, is_proven = rest
        return Face(
            id=int(id),
            score=score,
            box_xyxy=(left, top, right, bottom),
            angle=angle,
            square=Roi(x, y, side, angle),
            detected=bool(seen),
            age_frames=int(age),
            is_proven=bool(is_proven),
        )

    def text(self, info: VideoInfo) -> str:
        """Return the contents of a file of tracks."""
        size = [info.format.width, info.format.height]
        header = {"faces_of": info.path.name, "frame": size, "time_base": str(info.time_base)}
        tracks: dict[int, list[list[float]]] = {}
        for at, pts in enumerate(self._pts):
            for number in self._places(at):
                id, *box, angle, score, seen, age, x, y, side, _ = self._row(number)
                numbers = [*box, angle, score, int(seen), int(age), x, y, side]
                tracks.setdefault(int(id), []).append([pts, *numbers])
        lines = [header, *({"id": id, "faces": faces} for id, faces in tracks.items())]
        return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


class KnownFinder(FaceFinder):
    """A finder that returns faces that are known instead of detected ones.

    Args:
        known: Faces of the frame of a pts; None: there is no such frame.
        format: Format of the frames.
        networks, settings: See :class:`FaceFinder`; only landmarks are made by networks.
    """

    def __init__(
        self,
        known: Callable[[int], list[Face] | None],
        format: FrameFormat,
        networks: FaceNetworks,
        settings: FinderSettings,
    ) -> None:
        super().__init__(format, networks, settings)
        self._known = known

    def _find(self, views: object, at: int, frame: Frame) -> list[Face]:
        self.doubts.append([])
        known = self._known(frame.pts)
        if known is None:
            raise InferenceError(
                "cannot hide faces: other frames were decoded when faces were searched for;"
                " check that the input does not change, and render again"
            )
        return known


class RecordedFinder(KnownFinder):
    """A finder that returns the faces of a file instead of detected ones.

    Args:
        file: The file.
        format, networks, settings: See :class:`KnownFinder`.
        is_part: A part of the video is rendered.

    Raises:
        ConfigError: The file belongs to a video of another size.
    """

    def __init__(
        self,
        file: FacesFile,
        format: FrameFormat,
        networks: FaceNetworks,
        settings: FinderSettings,
        *,
        is_part: bool = False,
    ) -> None:
        if (file.width, file.height) != (format.width, format.height):
            raise ConfigError(
                f"cannot use face file {file.path}: its frames are {file.width}x{file.height},"
                f" but the video's are {format.width}x{format.height}",
                path=file.path,
            )
        super().__init__(self._faces, format, networks, settings)
        self._file, self._is_part = file, is_part
        self._used: set[int] = set()

    def _faces(self, pts: int) -> list[Face]:
        self._used.add(pts)
        faces = [track.face(pts) for track in self._file.tracks]
        return sorted(filter(None, faces), key=lambda face: -face_size(face.box_xyxy))

    def notices(self) -> list[str]:
        """Return notices, after a whole video, about faces that belong to no frame."""
        return self._file.notices(self._used, is_part=self._is_part)
