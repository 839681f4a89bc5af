"""Finding the faces of a batch of frames at once, for devices where a run costs more than its size.

Both networks run once a batch. The detector looks at the whole frame where that is due, and in
every frame near the place where each known face is expected; what it sees there moves the square
of the landmark model. Only a face that is new takes a second run of the detector, which looks for
it in the rest of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bgsoft.face.base import Face
from bgsoft.face.detect import Detections, Sighting, merge
from bgsoft.face.finding import Finding
from bgsoft.face.networks import AskedView, FaceNetworks
from bgsoft.face.search import SURE_SCORE, FinderSettings
from bgsoft.face.track import MAX_SAME, MIN_MATCH, Proposal, Track
from bgsoft.frame import Frame, FrameFormat, Reduced

__all__ = ["Together"]

Box = tuple[float, float, float, float]

_MAX_SUSPECTS = 4


@dataclass(slots=True, eq=False)
class _Path:
    """One face through the frames of a batch."""

    places: list[Box]
    """Where it is expected in each frame."""
    track: Track | None = None
    """None: not one yet."""
    new: bool = False
    """It was not known before this batch."""
    first: int = 0
    """Frame in which it is looked for first."""
    looks: list[Detections | None] = field(default_factory=list)
    """What the detector shows near each place."""
    seen: list[Sighting | None] = field(default_factory=list)
    """The face itself, where it was seen."""
    dx: float = 0.0
    dy: float = 0.0
    """By how much the face was last off its place."""

    def expected(self, index: int) -> Box:
        """Its place in a frame, from where it was in those before."""
        left, top, right, bottom = self.places[index]
        return left + self.dx, top + self.dy, right + self.dx, bottom + self.dy

    def at(self, index: int) -> Box:
        """Where it was seen in a frame that is dealt with, else where it must have been."""
        sighting = self.seen[index]
        return self.expected(index) if sighting is None else _box(sighting)

    def see(self, index: int, sighting: Sighting | None) -> None:
        """Take what the next frame shows of it."""
        self.seen.append(sighting)
        if sighting is not None:
            left, top, right, bottom = _box(sighting)
            place = self.places[index]
            self.dx = (left + right - place[0] - place[2]) / 2
            self.dy = (top + bottom - place[1] - place[3]) / 2


@dataclass(slots=True, eq=False)
class _Suspect:
    """What looked like a new face in the last batch, but turned out to be none."""

    box: Box
    batches: int = 1
    """In which it did."""
    look: Detections = field(default_factory=Detections.none)
    """What the detector shows from near."""


class Together(Finding):
    """Finds faces in batches of consecutive frames; the tracks go on from batch to batch.

    Args:
        format: Format of the frames.
        networks: Both networks; closed with it.
        settings: How to look.
    """

    def __init__(
        self, format: FrameFormat, networks: FaceNetworks, settings: FinderSettings
    ) -> None:
        super().__init__(format, networks, settings)
        self._suspects: list[_Suspect] = []

    def reset(self) -> None:
        """End all tracks."""
        super().reset()
        self._suspects = []

    def find(self, frames: Sequence[Frame], grids: Sequence[Reduced]) -> list[list[Face]]:
        """See :meth:`bgsoft.face.base.FaceFinder.find`."""
        if not frames:
            return []
        with self._faults_at(frames[0]):
            return self._find(frames, grids)

    def _find(self, frames: Sequence[Frame], grids: Sequence[Reduced]) -> list[list[Face]]:
        paths = self._known(frames)
        paths += self._look(frames, grids, paths)
        proposals = [self._propose(index, paths) for index in range(len(frames))]
        meshes = self._networks.landmarks(
            [
                (frame, grid, proposal.roi)
                for frame, grid, proposed in zip(frames, grids, proposals, strict=True)
                for proposal in proposed
            ]
        )
        faces, start = [], 0
        for frame, proposed in zip(frames, proposals, strict=True):
            stop = start + len(proposed)
            part = meshes.part(start, stop)
            faces.append(self._tracker.update(proposed, part, frame.time_seconds))
            start = stop
        self._suspect(paths)
        return faces

    def _known(self, frames: Sequence[Frame]) -> list[_Path]:
        """A path for each face that lives."""
        now = self._tracker.time_seconds
        ahead = [0.0 if now is None else max(0.0, frame.time_seconds - now) for frame in frames]
        return [
            _Path([track.place(seconds) for seconds in ahead], track)
            for track in self._tracker.tracks
        ]

    def _look(
        self, frames: Sequence[Frame], grids: Sequence[Reduced], paths: Sequence[_Path]
    ) -> list[_Path]:
        """Complete the known paths, and find new ones."""
        asked: list[AskedView] = []
        searched: list[int] = []
        for index, (frame, grid) in enumerate(zip(frames, grids, strict=True)):
            wanted = not paths or (index == 0 and self._tracker.wants_detection)
            views = self._searches.take(wanted)
            asked += [(frame, grid, view) for view in views]
            searched.append(len(views))
        near = self._near(frames, grids, paths)
        # What was no face will most probably be none again: it is looked at in the same run.
        suspects = self._suspects if any(searched) else []
        near += [(frames[0], grids[0], self._searches.near(each.box)) for each in suspects]
        answers = iter(self._detect(asked + near))
        searches = [[next(answers) for _ in range(count)] for count in searched]
        for path in paths:
            path.looks = [next(answers) for _ in path.places]
        for suspect, look in zip(suspects, answers, strict=True):
            suspect.look = look
        self._see(paths, len(frames))
        new = self._new(searches, paths)
        if any(searched):
            self._suspects = []
            new = [path for path in new if not self._is_suspect(path, suspects)]
        # What is no face after all must not keep a face out.
        del new[max(0, self._settings.max_faces - len(paths)) :]
        if new:
            answers = iter(self._detect(self._near(frames, grids, new)))
            for path in new:
                path.looks = [None] * path.first
                path.looks += [next(answers) for _ in path.places[path.first :]]
            self._see(new, len(frames))
        return new

    def _is_suspect(self, path: _Path, suspects: Sequence[_Suspect]) -> bool:
        """Whether what looks like a new face did so before, and from near still hardly does."""
        place = path.places[path.first]
        for suspect in suspects:
            if _shared(place, suspect.box) > MIN_MATCH:
                looks = zip(suspect.look.boxes.tolist(), suspect.look.scores.tolist(), strict=True)
                if suspect.batches >= self._patience or any(
                    score >= SURE_SCORE and _shared(box, place) > MIN_MATCH for box, score in looks
                ):
                    return False
                self._suspects.append(_Suspect(place, suspect.batches + 1))
                return True
        return False

    def _suspect(self, paths: Sequence[_Path]) -> None:
        """Remember what looked like a new face and is none."""
        for path in paths:
            if path.new and (path.track is None or path.track.dead):
                self._suspects.append(_Suspect(path.places[path.first]))
        del self._suspects[_MAX_SUSPECTS:]

    def _near(
        self, frames: Sequence[Frame], grids: Sequence[Reduced], paths: Sequence[_Path]
    ) -> list[AskedView]:
        return [
            (frames[index], grids[index], self._searches.near(path.places[index]))
            for path in paths
            for index in range(path.first, len(frames))
        ]

    def _detect(self, asked: Sequence[AskedView]) -> list[Detections]:
        if not asked:
            return []
        return self._networks.detect(asked, self._settings.min_first_score)

    def _see(self, paths: Sequence[_Path], count: int) -> None:
        """Tell in each frame which face is which: closest places first, no face twice."""
        for index in range(count):
            pairs: list[tuple[float, int, Sighting]] = []
            for number, path in enumerate(paths):
                look = path.looks[index]
                if look is None or not len(look):
                    continue
                expected = path.expected(index)
                for row, (box, score) in enumerate(
                    zip(look.boxes.tolist(), look.scores.tolist(), strict=True)
                ):
                    shared = _shared(box, expected)
                    if score >= self._settings.min_score and shared > MIN_MATCH:
                        pairs.append((shared, number, look.at(row)))
            pairs.sort(key=lambda pair: -pair[0])
            taken: dict[int, Sighting] = {}
            for _, number, sighting in pairs:
                if number not in taken and not any(
                    _shared(_box(sighting), _box(other)) > MAX_SAME for other in taken.values()
                ):
                    taken[number] = sighting
            for number, path in enumerate(paths):
                path.see(index, taken.get(number))

    def _new(self, searches: Sequence[Sequence[Detections]], known: Sequence[_Path]) -> list[_Path]:
        """Faces that a search shows and no path has."""
        new: list[_Path] = []
        for index, views in enumerate(searches):
            found = merge(views) if any(len(view) for view in views) else Detections.none()
            places = [path.at(index) for path in known]
            for row in range(len(found)):
                box = _box(found.at(row))
                if any(_shared(box, place) > MIN_MATCH for place in places):
                    continue
                path = next((p for p in new if _shared(box, p.places[index]) > MIN_MATCH), None)
                if path is not None:
                    path.places[index:] = [box] * (len(searches) - index)
                else:
                    new.append(_Path([box] * len(searches), new=True, first=index))
        return new

    def _propose(self, index: int, paths: Sequence[_Path]) -> list[Proposal]:
        """Where the landmark model is to look in a frame."""
        proposals = []
        for path in paths:
            sighting = path.seen[index]
            if path.track is None and sighting is not None:
                path.track = self._tracker.begin(sighting)
            if path.track is not None:
                proposals.append(self._tracker.advance(path.track, sighting, later=index > 0))
        return proposals


def _box(sighting: Sighting) -> Box:
    left, top, right, bottom = sighting.box.tolist()
    return left, top, right, bottom


def _shared(a: Sequence[float], b: Sequence[float]) -> float:
    """Intersection over union of two boxes; of few boxes, Python is faster than NumPy."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    shared = width * height
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared
    return float(shared / union)
