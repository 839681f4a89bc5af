"""Face tracks of a video: recorded from its frames, or read from a file that a user may edit.

A file is JSON lines, one for the video, then one per track:
``{"id": 3, "faces": [[pts, left, top, right, bottom, …], …]}``. ``docs/faces.md`` has the form.
"""

from __future__ import annotations

import json
import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeGuard

from bgsoft.errors import (
    ConfigError,
    InferenceError,
    VerificationError,
    errors_as,
    os_errors_as,
)
from bgsoft.face.base import Face, square_of
from bgsoft.face.finder import FaceFinder, FinderSettings
from bgsoft.face.geometry import Roi, face_size
from bgsoft.face.networks import FaceNetworks
from bgsoft.frame import Frame, FrameFormat
from bgsoft.media.info import VideoInfo
from bgsoft.records import dataclass
from bgsoft.suggestions import did_you_mean
from bgsoft.untrusted import file_state, parse_json

_KEYS = ("id", "main", "hide", "interpolate", "faces")
_LENGTHS = (4, 5, 6, 7, 8, 11, 12, 13)
"""Numbers that a face may have in a file, after its pts."""
_MAX_FRAMES = 10
"""Maximum size of a box, in widths and heights of the frame; the work of a mosaic grows with it."""
_ROW = 13
"""Numbers of a face in memory. With the pts they take 112 bytes, and objects five times as much."""
_DEFAULTS = (0.0, 1.0, 1.0, 1000.0)
"""Angle, score, seen and age of a face that a user added: it is old, so that it counts at once."""
_LAST = 1.0, 0.0
"""Whether such a face is proven, and its doubtful size."""


@dataclass(slots=True, kw_only=True, eq=False)
class SavedTrack:
    """One track."""

    id: int
    main: bool = False
    """The track is of a main person."""
    hide: bool | None = None
    """False: the face is never hidden. True: it is hidden wherever it is listed, also where it was
    only expected or in doubt."""
    interpolate: bool = False
    """Faces are interpolated between the listed ones."""
    pts: array[int] = field(default_factory=lambda: array("q"))
    """Of its faces, ascending; one at least."""
    numbers: array[float] = field(default_factory=lambda: array("d"))
    """:data:`_ROW` of each face."""

    def add(self, pts: int, row: Sequence[float]) -> None:
        """Add the face of a later frame."""
        self.pts.append(pts)
        self.numbers.extend(row)

    def row(self, at: int) -> list[float]:
        """Return the numbers of a face."""
        return self.numbers[at * _ROW : (at + 1) * _ROW].tolist()

    def face(self, pts: int) -> Face | None:
        """Return the track's face at a time, or None."""
        at = bisect_left(self.pts, pts)
        if at == len(self.pts):
            return None
        row = self.row(at)
        if self.pts[at] != pts:
            if at == 0 or not self.interpolate:
                return None
            share = (pts - self.pts[at - 1]) / (self.pts[at] - self.pts[at - 1])
            pairs = zip(self.row(at - 1)[:5], row[:5], strict=True)
            row = _filled([a + share * (b - a) for a, b in pairs])
        left, top, right, bottom, angle, score, seen, age, x, y, side, is_proven, doubtful = row
        return Face(
            id=self.id,
            score=score,
            box_xyxy=(left, top, right, bottom),
            angle=angle,
            square=Roi(x, y, side, angle),
            detected=bool(seen or self.hide),
            age_frames=int(age),
            is_proven=bool(is_proven or self.hide),
            doubtful_size=doubtful,
        )


def _file_bytes(info: VideoInfo) -> int | None:
    """Return the size of a video's file; None: it is not one, or is gone."""
    if info.pipe is None and not info.stills:
        with suppress(OSError):
            return info.path.stat().st_size
    return None


def _filled(numbers: Sequence[float]) -> list[float]:
    """Return all numbers of a face, by those of a file."""
    row = [*numbers, *_DEFAULTS[len(numbers) - 4 :]]
    if len(row) < 11:
        left, top, right, bottom, angle, *_ = row
        row += square_of((left, top, right, bottom), angle)[:3]
    return [*row, *_LAST[len(row) - 11 :]]


class KnownFaces:
    """All faces of a video: of a file at a path, or recorded by :meth:`write`."""

    wants_landmarks = False

    def __init__(self, path: Path | None = None) -> None:
        self.tracks: dict[int, SavedTrack] = {}
        self.frames: Sequence[int] = ()
        """pts of all frames, ascending; empty: unknown."""
        self.time_base: Fraction | None = None
        """Seconds of a unit of pts; None: unknown."""
        self.cuts: Collection[int] | None = None
        """pts of frames that may begin a shot; None: unknown."""
        self.summary: Mapping[str, Any] | None = None
        """Report about the faces, of the pass that recorded them."""
        self.frame_ticks = 0
        """Nominal duration of a frame; 0: unknown."""
        self._path = path
        self._size: tuple[int, int] | None = None
        """Width and height of the frames of a file's video."""
        self._last: float = math.inf
        """pts of its last frame; inf: unknown."""
        self._names = "", ""
        """Names of that video and of the rendered one; empty: unknown."""
        self._bytes: tuple[int | None, int | None] = None, None
        """Sizes of their files; None: unknown."""
        self._reached: float = math.inf
        self._coming: list[SavedTrack] = []
        self._open: list[SavedTrack] = []
        """Tracks that begin after that time, and others that may go on."""

    @property
    def main(self) -> frozenset[int]:
        """Ids of the tracks that are main."""
        return frozenset(track.id for track in self.tracks.values() if track.main)

    @property
    def shown(self) -> frozenset[int]:
        """Ids of the tracks that are never hidden."""
        return frozenset(track.id for track in self.tracks.values() if track.hide is False)

    @property
    def hidden(self) -> frozenset[int]:
        """Ids of the tracks that are hidden wherever they are listed, and never main."""
        return frozenset(track.id for track in self.tracks.values() if track.hide)

    @property
    def tells_shots(self) -> bool:
        """Return whether the main people of shots follow from it, without the video."""
        is_whole = not any(track.interpolate for track in self.tracks.values())
        return self.cuts is not None and (is_whole or bool(self.frames))

    def write(self, frame: Frame, faces: Sequence[Face]) -> None:
        """Add the faces of the next frame."""
        for face in faces:
            track = self.tracks.setdefault(face.id, SavedTrack(id=face.id))
            numbers = (*face.box_xyxy, face.angle, face.score, face.detected, face.age_frames)
            track.add(frame.pts, (*numbers, *face.square[:3], face.is_proven, face.doubtful_size))

    def faces(self, pts: int) -> list[Face]:
        """Return the faces of a frame, largest first; frames in order are fastest."""
        if pts < self._reached:
            self._open = []
            self._coming = sorted(self.tracks.values(), key=lambda track: -track.pts[0])
        self._reached = pts
        while self._coming and self._coming[-1].pts[0] <= pts:
            self._open.append(self._coming.pop())
        self._open = [track for track in self._open if track.pts[-1] >= pts]
        found = filter(None, (track.face(pts) for track in self._open))
        return sorted(found, key=lambda face: -face_size(face.box_xyxy))

    def listed(self, begin: int, end: int) -> list[int]:
        """Return the pts of all faces from a pts on until another, which is excluded."""
        found = set[int]()
        for track in self.tracks.values():
            found.update(track.pts[bisect_left(track.pts, begin) : bisect_left(track.pts, end)])
        return sorted(found)

    def items(self) -> Iterator[tuple[int, float, list[Face]]]:
        """Yield pts, seconds and faces of all frames that are known, but the :attr:`hidden`."""
        listed, hidden = (track.pts for track in self.tracks.values()), self.hidden
        for pts in self.frames or sorted(set().union(*listed)):
            faces = [face for face in self.faces(pts) if face.id not in hidden]
            yield pts, float(pts * (self.time_base or 1)), faces

    def text(self, info: VideoInfo) -> str:
        """Return the contents of a file."""
        header = {
            "faces_of": info.path.name,
            "bytes": _file_bytes(info),
            "frame": [info.format.width, info.format.height],
            "time_base": str(info.time_base),
            "last": max(self.frames, default=None),
            "cuts": sorted(self.cuts or ()),
        }
        lines: list[dict[str, Any]] = [header]
        for track in self.tracks.values():
            rows: list[list[float]] = [[pts, *track.row(at)] for at, pts in enumerate(track.pts)]
            for row in rows:
                row[7], row[8], row[12] = map(int, (row[7], row[8], row[12]))
            lines.append({"id": track.id, "faces": rows})
        return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)

    def take_header(self, table: Mapping[str, Any]) -> None:
        """Take the first line of a file; raises ValueError where it is malformed."""
        if table.get("faces_of") is None:
            raise ConfigError("the first line must have faces_of, as bgsoft faces writes it")
        frame, cuts, last = (table.get(key) for key in ("frame", "cuts", "last"))
        if not (isinstance(frame, list) and len(frame) == 2 and all(map(_is_whole, frame))):
            raise ConfigError("frame must be [width, height]")
        if cuts is not None and not (isinstance(cuts, list) and all(map(_is_pts, cuts))):
            raise ConfigError(f"cuts must be a list of pts, not {cuts!r}")
        if last is not None:
            if not _is_pts(last):
                raise ConfigError(f"last must be the pts of the last frame, not {last!r}")
            self._last = last
        self._size, self._names = (frame[0], frame[1]), (str(table["faces_of"]), "")
        size = table.get("bytes")
        if size is not None and not _is_whole(size):
            raise ConfigError(f"bytes must be the size of the video's file, not {size!r}")
        self._bytes = size, None
        if "time_base" in table:
            self.time_base, self.cuts = Fraction(str(table["time_base"])), cuts

    def take_track(self, table: Mapping[str, Any]) -> None:
        """Take another line; raises ValueError or ArithmeticError where it is malformed."""
        for key in table:
            if key not in _KEYS:
                raise ConfigError(f"unknown key {key}{did_you_mean(key, _KEYS)}")
        id, entries = table.get("id"), table.get("faces")
        if not _is_whole(id) or id in self.tracks:
            raise ConfigError(
                f"id must be a whole number and differ from other tracks', not {id!r}"
            )
        flags = {key: table[key] for key in ("main", "hide", "interpolate") if key in table}
        for key, value in flags.items():
            if not isinstance(value, bool):
                raise ConfigError(f"{key} must be true or false, not {value!r}")
        if flags.get("main") and flags.get("hide"):
            raise ConfigError("a track that is main cannot be hidden wherever it is listed")
        if not isinstance(entries, list) or not entries:
            raise ConfigError("faces must be a list of [pts, left, top, right, bottom]")
        self.tracks[id] = SavedTrack(id=id, **flags)
        faces = dict(_face(entry, self._size) for entry in entries)
        if len(faces) < len(entries):
            raise ConfigError(
                "a track has one face at a time; give other faces a track of their own"
            )
        if flags.get("interpolate") and len(faces) < 2:
            raise ConfigError(
                "an interpolated track needs two faces; for a face in one frame, leave out"
                " interpolate"
            )
        for pts, numbers in sorted(faces.items()):
            self.tracks[id].add(pts, _filled(numbers))
        if not self._touches_frame([numbers[:4] for numbers in faces.values()]):
            raise ConfigError("the track lies outside the frame")

    def _touches_frame(self, boxes: Sequence[Sequence[float]]) -> bool:
        """Return whether the box around some boxes has a part in the frames of a file's video."""
        if self._size is None:
            return True
        left, top, *_ = map(min, zip(*boxes, strict=True))
        *_, right, bottom = map(max, zip(*boxes, strict=True))
        width, height = self._size
        return bool(left < width and top < height and right > 0 and bottom > 0)

    def require_video(self, info: VideoInfo) -> None:
        """Raise ConfigError if the file belongs to a video of another size or time base.

        Times of pictures are their numbers, so they count in the time base of the rendered ones.
        The video's name and size in bytes are only kept for :meth:`warnings`, and its frame rate.
        """
        size = info.format.width, info.format.height
        self._names = self._names[0], "" if info.pipe or info.stills else info.path.name
        self._bytes = self._bytes[0], _file_bytes(info)
        self.frame_ticks = info.nominal_ticks
        if info.stills:
            self.time_base = info.time_base
        if self._size is not None and self._size != size:
            found, wanted = "frames are {}x{}".format(*self._size), "{}x{}".format(*size)
        elif self.time_base not in (None, info.time_base):
            found, wanted = f"times are in units of {self.time_base} s", f"{info.time_base} s"
        else:
            return
        raise ConfigError(
            f"cannot use face file {self._path}: its {found}, but the video's are {wanted};"
            " make it from this video with bgsoft faces",
            path=self._path,
        )

    def require_frames(self, rendered: Collection[int], *, is_part: bool) -> None:
        """Check that each face that is to be hidden was in a frame; see :meth:`warnings`.

        Raises:
            VerificationError: A time of a track without ``interpolate`` is that of no frame, or
                there are frames after those of the file's video.
        """
        late = self._late(rendered)
        if late:
            raise VerificationError(
                f"cannot hide faces: {late}; make the file from this video with bgsoft faces",
                path=self._path,
                stage="face",
            )
        tracks = [track for track in self.tracks.values() if not track.interpolate]
        unused = self._unused(tracks, rendered, is_part=is_part)
        if unused:
            raise VerificationError(
                f"cannot hide faces: {unused} of {self._path} match no rendered frame; make it"
                " from this video with bgsoft faces, or correct the times",
                path=self._path,
                stage="face",
            )

    def warnings(self, rendered: Collection[int], *, is_part: bool) -> list[str]:
        """Return warnings about a file that may be of another video, and faces that hide nothing.

        They belong to no frame of the rendered part, or lie outside the frame although they count
        as seen.

        Args:
            rendered: pts of all frames, in any order.
            is_part: They are a part of the video; other faces may belong to its other frames.
        """
        unused = self._unused([*self.tracks.values()], rendered, is_part=is_part)
        texts = [f"{self._path}: {unused} match no rendered frame"] if unused else []
        texts += filter(None, [self._late(rendered)])
        searched, shown = self._names
        if searched and shown and searched != shown and self._path:
            texts.append(f"{self._path} has the faces of {searched}; this is {shown}")
        elif None not in self._bytes and self._bytes[0] != self._bytes[1]:
            sizes = "{} bytes; now it has {} bytes".format(*self._bytes)
            name = searched or "a video"
            texts.append(f"{self._path} has the faces of {name} when it had {sizes}")
        tracks = [track for track in self.tracks.values() if not track.interpolate]
        rows = (track.row(at) for track in tracks for at in range(len(track.pts)))
        outside = sum(1 for row in rows if row[6] and not self._touches_frame([row[:4]]))
        if outside:
            count = sum(len(track.pts) for track in tracks)
            texts.append(f"{self._path}: {outside} of {count} faces lie outside the frame")
        return texts

    def _late(self, rendered: Collection[int]) -> str:
        """Return how many frames come after the file's last one; empty: none."""
        late = sum(pts > self._last for pts in rendered)
        return f"{late} frames come after the last one of {self._path}" if late else ""

    def _unused(
        self, tracks: Sequence[SavedTrack], rendered: Collection[int], *, is_part: bool
    ) -> str:
        """Return how many times of a file's tracks match no rendered frame; empty: all match."""
        spans, times = [track.pts for track in tracks if track.interpolate], sorted(rendered)
        listed = set().union(*(track.pts for track in tracks))
        if is_part:
            listed = {pts for pts in listed if times[0] <= pts <= times[-1]}
        # An interpolated face needs a frame in its span, but none at its own times.
        shown = (p for p in spans if bisect_left(times, p[0]) < bisect_right(times, p[-1]))
        last = times[-1] + self.frame_ticks if times else 0
        between = {pts for pts in set().union(*shown) if times[0] <= pts <= last}
        unused = len(listed.difference(times, between))
        return f"{unused} of {len(listed)} times" if unused and self._path else ""


def read_faces_file(path: Path) -> KnownFaces:
    """Read a file of tracks.

    Raises:
        ConfigError: It cannot be read, or is malformed; the message names the line.
    """
    what, known = f"cannot read face file {path}", KnownFaces(path)
    with os_errors_as(ConfigError, what, path=path):
        file_state(path)
        lines = enumerate(path.read_bytes().splitlines(), 1)
    filled = [(number, line) for number, line in lines if line.strip()]
    if not filled:
        raise ConfigError(f"{what}: it is empty; make one with bgsoft faces", path=path)
    take = known.take_header
    for number, line in filled:
        bad = f"{what}: line {number}"
        with errors_as((ValueError, ArithmeticError), ConfigError, bad, path=path):
            table = parse_json(line)
            if not isinstance(table, dict):
                raise ConfigError("it is not a JSON object")
            take(table)
        take = known.take_track
    return known


def _face(entry: object, size: tuple[int, int] | None) -> tuple[int, tuple[float, ...]]:
    if (
        not isinstance(entry, list)
        or len(entry) - 1 not in _LENGTHS
        or not all(type(each) in (int, float) and math.isfinite(each) for each in entry)
        or not _is_pts(entry[0])
    ):
        raise ConfigError(f"a face must be [pts, left, top, right, bottom], not {entry!r}")
    pts, *numbers = entry
    left, top, right, bottom = numbers[:4]
    if left >= right or top >= bottom:
        raise ConfigError(f"a face must have left < right and top < bottom, not {entry!r}")
    if size and (right - left > _MAX_FRAMES * size[0] or bottom - top > _MAX_FRAMES * size[1]):
        raise ConfigError(f"a face must be smaller than {_MAX_FRAMES} frames, not {entry!r}")
    return pts, tuple(map(float, numbers))


def _is_whole(value: object) -> TypeGuard[int]:
    return type(value) is int and value >= 0


def _is_pts(value: object) -> bool:
    return type(value) is int and abs(value) < 2**63


class KnownFinder(FaceFinder):
    """A finder of known faces, for a whole video or a part; networks only make landmarks."""

    def __init__(
        self,
        known: KnownFaces,
        format: FrameFormat,
        networks: FaceNetworks,
        settings: FinderSettings,
        *,
        is_part: bool = False,
    ) -> None:
        super().__init__(format, networks, settings)
        self._known, self._is_part = known, is_part
        self._searched = frozenset(known.frames)
        self._used: set[int] = set()

    def _find(self, views: object, at: int, frame: Frame) -> list[Face]:
        self.doubts.append([])
        self._used.add(frame.pts)
        if self._searched and frame.pts not in self._searched:
            raise InferenceError(
                "cannot hide faces: other frames were decoded when faces were searched for;"
                " check that the input does not change, and render again"
            )
        return self._known.faces(frame.pts)

    def warnings(self) -> list[str]:
        """Return warnings, after a whole video, about faces that belong to no frame."""
        return self._known.warnings(self._used, is_part=self._is_part)
