"""Finding the faces of a video: the detector now and then, landmarks in almost every frame.

Faces are found in one frame after another, and where the models look in a frame follows from what
they said of the frames before it. On a GPU a run of one look takes as long as a run of many, and
mostly it can be guessed where the next frames will be looked at: that is done ahead of time, and
the answer is kept. It is used if the place turns out to be that very one, else thrown away. So who
is found does not depend on batches, nor on the hardware.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import TypeVar

from bgsoft.closing import Closing
from bgsoft.errors import InferenceError
from bgsoft.face.base import Face
from bgsoft.face.closeups import CloseUps
from bgsoft.face.detect import Detection, merge, nearest
from bgsoft.face.geometry import Affine, Roi, frame_from_tile, tiles
from bgsoft.face.landmarks import ROI_SCALE, Mesh
from bgsoft.face.networks import FaceNetworks, resolve_detector
from bgsoft.face.track import MIN_MATCH, MIN_SCORE, Track, Tracker
from bgsoft.frame import AnalysisFrame, Frame, FrameFormat
from bgsoft.records import dataclass

_HALF_SHAPE = 1.2
"""Frames longer than this are shown as squares of their short side, too: a face of a tenth of it,
108 pixels at 1080p, is 13 pixels high in the detector's input. Without, recall falls from 0.91 to
0.67 (11 made-hard clips, of scripts/measure_faces.py; so below)."""
_SMALL_TILES = (0.72, 0.27)
"""Tile sides as parts of the frame's short side: faces of 10 % and 3.7 % of it, 108 and 40 pixels
at 1080p, are 18 pixels high in the detector's input."""
_SHARED = 0.2
"""What neighbouring tiles share at least, as a part of their side."""
_NEAR = 3.0
"""Side of what the detector is shown of one face, over the face's: in a small face the eyes are off
by half their distance, and much that is no face looks like one from afar. Without: a recall of
0.58; without it for faces that are followed and not seen from afar: 0.70."""
_HALVES_EVERY = 2
"""Searches from one with the squares to the next."""
_MIN_FIRST_SCORE = 0.3
"""Of a detection that is worth a second look, or confirms a face that is followed."""

P = TypeVar("P", Affine, Roi)
A = TypeVar("A", list[Detection], Mesh)
Ask = tuple[P, Callable[[int], list[P]] | None]
"""A place to look at in a frame; and what gives it with those of the next ones, so many in all.
None: it stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinderSettings:
    """How faces are looked for."""

    detect_every: int = 8
    """Frames between runs of the detector while all faces are followed safely."""
    small_faces: bool = False
    """Look for small faces, too, by showing the detector parts of the frame."""
    small_every: int = 32
    """Frames between searches for small faces; the first after a reset always is one."""
    by_landmarks: bool = True
    """Follow faces by their landmarks; else landmarks are made where :meth:`FaceFinder.close_up`
    asks for them."""
    trusts_detector: bool = False
    """Report faces that the detector is sure of, and the landmark model not, without landmarks."""
    max_faces: int = 32
    """Followed at a time."""


class FaceFinder(Closing):
    """Finds the faces of frames of one format, in presentation order; holds the tracks.

    It closes its networks, which are where the frames are.
    """

    def __init__(
        self, format: FrameFormat, networks: FaceNetworks, settings: FinderSettings | None = None
    ) -> None:
        self._networks = networks
        self._settings = settings = settings or FinderSettings()
        self._views = _SearchViews(format, settings, resolve_detector().spec.width)
        self._tracker = Tracker(
            settings.max_faces,
            by_landmarks=settings.by_landmarks,
            trusts_detector=settings.trusts_detector,
        )
        self._close_ups = CloseUps(networks)

    def start(self) -> None:
        """Run both networks once, in the thread that will call :meth:`find`."""
        self._networks.start()

    def reset(self) -> None:
        """End all tracks (scene cut)."""
        self._tracker.reset()
        self._close_ups.reset()
        self._views.reset()

    def refresh(self) -> None:
        """Search the next frame, and follow known faces from there."""
        self._tracker.refresh()
        self._views.reset()

    def find(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> list[list[Face]]:
        """The faces of consecutive frames of one scene, a list a frame, largest first.

        Args:
            frames: Where the networks read them, any number.
            reduced: The same frames on the analysis frame.

        Raises:
            InferenceError: A model failed; carries the frame's pts.
        """
        passes = _Passes(self._networks, list(zip(frames, reduced, strict=True)))
        try:
            return [self._find(passes, at, frame) for at, frame in enumerate(frames)]
        except InferenceError as exc:
            exc.stage, exc.pts = "face", frames[passes.at].pts
            raise

    def close_up(self, frame: Frame, reduced: AnalysisFrame, faces: Sequence[Face]) -> list[Face]:
        """Faces of a frame with their landmarks; without those that the landmark model sees not.

        Called for frames in order, for any of them.

        Args:
            frame: Where the networks read it.
            reduced: The same on the analysis frame.
            faces: Some that :meth:`find` has found in it, without landmarks.

        Raises:
            InferenceError: A model failed; carries the frame's pts.
        """
        try:
            return self._close_ups.look(frame, reduced, faces)
        except InferenceError as exc:
            exc.stage, exc.pts = "face", frame.pts
            raise

    def _find(self, passes: _Passes, at: int, frame: Frame) -> list[Face]:
        passes.at = at
        views = self._views.take(self._tracker.wants_detection)
        found = self._search(passes, views) if views or self._tracker.wants_check else None
        tracks = self._tracker.propose(found)
        meshes = passes.meshes(tracks) if tracks else []
        return self._tracker.update(tracks, meshes, frame.time_seconds)

    def _search(self, passes: _Passes, views: Sequence[Ask[Affine]]) -> list[Detection]:
        """Look at the frame; from near at each face that is followed, and at each new one.

        Only from near is a box good enough to say whether the face is where it was followed to.
        """
        is_fresh = self._tracker.frames == 0
        tracks = [] if is_fresh else self._tracker.tracks
        near = [*map(self._near, tracks)]
        seen = passes.detections([*views, *near], _MIN_FIRST_SCORE)
        found: list[Detection] = []
        elsewhere: list[Detection] = []
        for track, around in zip(tracks, seen[len(views) :], strict=True):
            one = nearest(around, track.box, MIN_MATCH)
            if one is not None:
                (found if track.agrees(one.box) else elsewhere).append(one)
        unknown: list[Detection] = []
        if views:
            far = merge(chain.from_iterable(seen[: len(views)]))
            unknown = [each for each in far if nearest(found, each.box) is None]
        if unknown or elsewhere or is_fresh:
            found += self._look_again(passes, unknown, elsewhere)
        return merge(found)

    def _look_again(
        self, passes: _Passes, unknown: Sequence[Detection], elsewhere: Sequence[Detection]
    ) -> list[Detection]:
        """What is seen from near of faces that were found, and where known ones were last."""
        most = self._settings.max_faces
        # Beside its track a face is at the edge of what was shown of that.
        boxes = [each.box for each in merge([*unknown[:most], *elsewhere])]
        if self._tracker.frames == 0:
            matches = self._tracker.match(unknown)
            known = enumerate(self._tracker.tracks)
            boxes += [track.box for at, track in known if at not in matches]
        asks: list[Ask[Affine]] = []
        for left, top, right, bottom in boxes:
            side = max(right - left, bottom - top)
            asks.append((self._views.near((left + right) / 2, (top + bottom) / 2, side), None))
        again = map(nearest, passes.detections(asks, MIN_SCORE), boxes)
        return [*unknown[most:], *(one for one in again if one is not None)]

    def _near(self, track: Track) -> Ask[Affine]:
        """A face and its surroundings where a track looks next."""
        near, roi = self._views.near, track.roi

        def ahead(count: int) -> list[Affine]:
            return [near(r.x, r.y, r.side / ROI_SCALE) for r in track.squares(count)]

        return near(roi.x, roi.y, roi.side / ROI_SCALE), ahead

    def close(self) -> None:
        """Free the networks; safe to call twice."""
        self._networks.close()


class _Passes:
    """What the networks say of the frames of a batch, some of it before it is asked for."""

    def __init__(
        self, networks: FaceNetworks, frames: Sequence[tuple[Frame, AnalysisFrame]]
    ) -> None:
        self.at = 0
        """The frame that is looked at."""
        self._networks = networks
        self._frames = frames
        self._detections: dict[tuple[int, Affine], list[Detection]] = {}
        self._meshes: dict[tuple[int, Roi], Mesh] = {}

    def detections(self, asks: Sequence[Ask[Affine]], min_score: float) -> list[list[Detection]]:
        """The faces in some views of the frame; of a view always asked for with one score."""
        ask = partial(self._networks.detect, min_score=min_score)
        return self._answers(asks, self._detections, ask)

    def meshes(self, tracks: Sequence[Track]) -> list[Mesh]:
        """The landmarks in the squares of some tracks."""
        asks: list[Ask[Roi]] = [(track.roi, track.squares) for track in tracks]
        return self._answers(asks, self._meshes, self._networks.landmarks)

    def _answers(
        self,
        asks: Sequence[Ask[P]],
        known: dict[tuple[int, P], A],
        ask: Callable[[list[tuple[Frame, AnalysisFrame, P]]], list[A]],
    ) -> list[A]:
        """What a network says of some places, from what is known, or by asking it."""
        here = self.at
        missing = [each for each in asks if (here, each[0]) not in known]
        if missing:
            ahead_of_each = max(1, self._networks.looks_per_run // len(missing))
            count = min(len(self._frames) - here, ahead_of_each)
            keys: list[tuple[int, P]] = []
            for first, ahead in missing:
                places = ahead(count) if ahead and count > 1 else [first] * count
                keys += enumerate(places, here)
            frames = self._frames
            asked = [(frames[at][0], frames[at][1], place) for at, place in keys]
            known.update(zip(keys, ask(asked), strict=True))
        return [known[here, place] for place, _ in asks]


class _SearchViews:
    """What the detector, whose input is ``size`` pixels a side, is shown of each frame."""

    def __init__(self, format: FrameFormat, settings: FinderSettings, size: int) -> None:
        self._size = size
        self._detect_every = settings.detect_every
        width, height = format.width, format.height
        short = min(width, height)
        side = max(width, height)
        whole = (width - side) / 2, (height - side) / 2, float(side)
        self._whole: Ask[Affine] = frame_from_tile(whole, size), None

        def squares(*parts: float) -> list[Ask[Affine]]:
            """Views that cover the frame, whose sides are parts of its short side."""
            return [
                (frame_from_tile(tile, size), None)
                for part in parts
                if part * short >= size / 2  # enlarging further shows nothing new
                for tile in tiles(width, height, part * short, _SHARED)
            ]

        halves = squares(1.0) if max(width, height) > _HALF_SHAPE * short else []
        small = squares(*_SMALL_TILES) if settings.small_faces else []
        self._parts = (
            (halves, _HALVES_EVERY * settings.detect_every),
            (small, settings.small_every),
        )
        """Views, and the frames from one time that they are due to the next."""
        self.reset()

    def reset(self) -> None:
        """Everything is due."""
        self._since = self._detect_every
        self._waited = [every for _, every in self._parts]
        """Frames since the parts were last shown."""

    def take(self, wanted: bool) -> list[Ask[Affine]]:
        """The views of the next frame, none where no search is due; ``wanted`` makes one due."""
        self._since += 1
        shown: list[Ask[Affine]] = []
        for index, (views, every) in enumerate(self._parts):
            self._waited[index] += 1
            if views and self._waited[index] > every:
                shown += views
                self._waited[index] = 1
        is_time = self._since >= self._detect_every
        if is_time:  # what is searched between changes nothing of when the next search is
            self._since = 0
        return [self._whole, *shown] if wanted or shown or is_time else []

    def near(self, x: float, y: float, face: float) -> Affine:
        """A face of that size in the middle, and its surroundings."""
        side = face * _NEAR
        return frame_from_tile((x - side / 2, y - side / 2, side), self._size)
