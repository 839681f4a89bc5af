"""Finds faces: what the detector is shown of which frame, and which of its answers count.

The detector sees a frame whole, on a canvas of a stated scale, at a stated interval; between, faces
are expected where they were going, and where one is new, missing or fast, the next frame is looked
at, too. Where faces are hidden, doubt hides: the detector also sees frames at half the scale, which
shows faces in noise, and turned by quarters; and each place that it is not sure of is shown to it
once more, enlarged and turned upright. The best score of all counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from bgsoft.closing import Closing
from bgsoft.errors import InferenceError
from bgsoft.face.base import LOOK_AHEAD, Box, Face
from bgsoft.face.canvas import Canvas, Canvases
from bgsoft.face.detect import Detection, merge
from bgsoft.face.geometry import box_iou
from bgsoft.face.meshes import MeshMaker
from bgsoft.face.networks import FaceNetworks, FramePair
from bgsoft.face.track import Tracker, face_size
from bgsoft.frame import AnalysisFrame, Frame, FrameFormat
from bgsoft.records import dataclass

SURE_SCORE, TURNED_SCORE, CLOSE_SCORE = 0.65, 0.87, 0.8
"""Of a detection that is a face whatever else is seen: in an upright view, where hands have up to
0.64; in a turned view, where gestures have up to 0.84; and in the closer view of one place."""
LARGE_SCORE, _LARGE_PART = 0.82, 0.15
"""The same of a face that is larger than this part of the frame's short side, at half the scale and
in a closer view, where prints on shirts and textures have up to 0.82; and"""
EDGE_SCORE = 0.75
"""of one that an edge of the frame cuts, however large: what is mirrored has up to 0.75, faces of
which both eyes are to be seen 0.77 and more."""
FAINT_SCORE = 0.1
"""Of a detection that is worth a closer view, or continues a track, where faces are hidden;"""
KNOWN_SCORE = 0.3
"""of one that continues a track elsewhere;"""
LIKELY_SCORE = 0.5
"""and of one whose closer view is turned a little to either side, too: in other views a face seems
more upright than it is."""
_TICK_SECONDS = 1e-4
"""Times of frames are rounded."""
_MIN_VISIBLE = 0.2
"""Part of a face's box that lies in the frame: others are seen in the mirrored border."""
_MIN_SEEN_PX = 12
"""Input pixels from which a face is surely seen."""
_SAME_PLACE = 0.5
"""The same of a place that the closer view has shown no face in: it is not looked at again for as
many frames as a face may be found late."""
_MIN_SAME = 0.3
"""Intersection over union of what the closer view shows with the face that it was made for."""
_TURNED, _TURNED_EVERY = (1, 2, 3), 2
"""Quarters, and looks from one to the next."""
_CLOSE_TURNS = (0.0, 0.5, -0.5)
"""Radians by which closer views are turned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinderSettings:
    """How faces are looked for."""

    scale: float
    """Input pixels a frame pixel."""
    seconds: float = 0.13
    """From one look to the next,"""
    every: int | None = None
    """or frames; None: as ``seconds`` says."""
    most_frames: int = 300
    """At most so many frames from one look to the next."""
    hides: bool = False
    """Doubt hides: all that may be a face is found."""
    by_landmarks: bool = False
    """Make landmarks of all faces; else where :meth:`FaceFinder.close_up` asks for them."""

    def canvases(self, format: FrameFormat) -> Canvases:
        """What the detector is shown of whole frames."""
        whole = Canvas.of(format, self.scale)
        if not self.hides:
            return Canvases(whole, None, None)
        half = Canvas.of(format, self.scale / 2)
        return Canvases(whole, half, Canvas.of(format, self.scale, on_side=True))


class FaceFinder(Closing):
    """Finds the faces of frames of one format, in presentation order; holds the tracks.

    It closes its networks, which are where the frames are, and have been made for the settings'
    canvases.
    """

    def __init__(
        self, format: FrameFormat, networks: FaceNetworks, settings: FinderSettings
    ) -> None:
        self._size = format.width, format.height
        self._networks = networks
        self._settings = settings
        self._canvases = settings.canvases(format)
        self._tracker = Tracker()
        self._meshes = MeshMaker(networks)
        self.doubts: list[list[Detection]] = []
        """For each frame of the last :meth:`find`, what resembled a face and was not taken for
        one."""
        self._begin()

    def _begin(self) -> None:
        """Look at the next frame in every way."""
        self._waited = self._turns = self._frames = 0
        self._half_is_done = False
        self._rejected: list[tuple[int, Box]] = []
        """Places of which the closer view has shown no face, and in which frame."""
        self._looked_at: float | None = None

    def start(self) -> None:
        """Run the networks once, in the thread that will call :meth:`find`."""
        self._networks.start()

    def reset(self) -> None:
        """End all tracks (scene cut)."""
        self._tracker.reset()
        self._meshes.reset()
        self._begin()

    def refresh(self) -> None:
        """Look at the next frame, and follow known faces from there."""
        self._tracker.refresh()
        self._meshes.reset()
        self._begin()

    def find(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> list[list[Face]]:
        """The faces of consecutive frames of one scene, a list a frame, largest first.

        Args:
            frames: Where the networks read them, any number.
            reduced: The same frames on the analysis frame.

        Raises:
            InferenceError: A model failed; carries the frame's pts.
        """
        pairs = [*zip(frames, reduced, strict=True)]
        views = _Views(self._networks, pairs, self._canvases.whole, self._settings.hides)
        self.doubts = []
        try:
            faces = [self._find(views, at, frame) for at, frame in enumerate(frames)]
            return self._meshes.make(pairs, faces) if self._settings.by_landmarks else faces
        except InferenceError as exc:
            exc.stage, exc.pts = "face", frames[len(self.doubts) - 1].pts
            raise

    def close_up(self, frame: Frame, reduced: AnalysisFrame, faces: Sequence[Face]) -> list[Face]:
        """Faces of a frame with their landmarks; without those that the landmark model sees not.

        Called for frames in order, for any of them.

        Args:
            frame: Where the networks read it.
            reduced: The same on the analysis frame.
            faces: Some that :meth:`find` has found in it.

        Raises:
            InferenceError: A model failed; carries the frame's pts.
        """
        try:
            (seen,) = self._meshes.make([(frame, reduced)], [faces])
        except InferenceError as exc:
            exc.stage, exc.pts = "face", frame.pts
            raise
        return [face for face in seen if face.has_landmarks]

    def _find(self, views: _Views, at: int, frame: Frame) -> list[Face]:
        self.doubts.append([])
        self._frames += 1
        tracker = self._tracker
        tracker.advance(frame.time_seconds)
        canvas = self._due(frame.time_seconds)
        if canvas is not None:
            self._look(views, at, canvas)
        return tracker.faces()

    def _due(self, seconds: float) -> Canvas | None:
        """The canvas on which this frame is looked at; None: it is not."""
        every, interval = self._settings.every, self._settings.seconds
        self._waited += 1
        last = self._looked_at
        passed = 0.0 if last is None else seconds - last + _TICK_SECONDS
        if every is None:
            is_time = passed >= interval or passed < 0 or self._waited >= self._settings.most_frames
            is_half_time = passed >= interval / 2
        else:
            is_time = self._waited >= every
            is_half_time = 2 * self._waited >= every
        if last is None or is_time or self._tracker.is_restless:
            self._waited, self._half_is_done = 0, False
            self._looked_at = seconds
            return self._canvases.whole
        if is_half_time and not self._half_is_done:
            self._half_is_done = True
            return self._canvases.half
        return None

    def _look(self, views: _Views, at: int, canvas: Canvas) -> None:
        """Show the detector a frame, and take what it sees."""
        tracker = self._tracker
        seen = views.see(at, canvas)
        if self._settings.hides and canvas is self._canvases.whole:
            half = self._canvases.half
            if half is not None and (not tracker.tracks or tracker.is_fresh or self._is_missing()):
                seen += views.see(at, half)
            seen += self._turned(views, at, seen)
        seen = merge(filter(self._is_visible, seen))
        tracks = [None] * len(seen) if tracker.is_fresh else tracker.match(seen)
        taken: list[Detection] = []
        unsure: list[Detection] = []
        for each, track in zip(seen, tracks, strict=True):
            (taken if each.is_sure or track is not None else unsure).append(each)
        self.doubts[at] = unsure
        if self._settings.hides:
            new = [each for each in unsure if not self._was_rejected(each)]
            confirmed = views.see_close(at, new)
            taken += filter(None, confirmed)
            rejected = [each for each, face in zip(new, confirmed, strict=True) if face is None]
            self.doubts[at] = [each for each in unsure if each not in new or each in rejected]
            frame = self._frames
            self._rejected = [each for each in self._rejected if frame - each[0] < LOOK_AHEAD]
            self._rejected += [(frame, each.box) for each in rejected]
        tracker.update(taken, _MIN_SEEN_PX / canvas.scale)

    def _was_rejected(self, found: Detection) -> bool:
        """Whether the closer view of this place has just shown no face."""
        return any(box_iou(box, found.box) >= _SAME_PLACE for _, box in self._rejected)

    def _turned(self, views: _Views, at: int, found: Sequence[Detection]) -> list[Detection]:
        """What the frame shows turned by quarters: one of them every other time; all of them at
        first, and where upright nobody is seen surely, or a face is missing."""
        tracker = self._tracker
        is_sure = any(each.is_sure for each in found)
        self._turns += 1
        due: Sequence[int] = _TURNED
        if is_sure and not self._is_missing() and not tracker.is_fresh:
            turn, rest = divmod(self._turns, _TURNED_EVERY)
            due = () if rest else (_TURNED[turn % len(_TURNED)],)
        whole, _, side = self._canvases
        seen: list[Detection] = []
        for quarters in due:
            canvas = side if quarters % 2 else whole
            if canvas is not None:
                seen += views.see(at, canvas, quarters)
        return seen

    def _is_missing(self) -> bool:
        """Whether a face was in sight just before, and is not."""
        return any(track.is_missing for track in self._tracker.tracks)

    def _is_visible(self, found: Detection) -> bool:
        left, top, right, bottom = found.box
        width, height = self._size
        inside = max(0.0, min(right, width) - max(left, 0.0))
        inside *= max(0.0, min(bottom, height) - max(top, 0.0))
        return inside >= _MIN_VISIBLE * face_size(found.box) ** 2

    def close(self) -> None:
        """Free the networks; safe to call twice."""
        self._networks.close()


class _Views:
    """What the detector says of the frames of a batch, of several at a time where it takes them."""

    def __init__(
        self,
        networks: FaceNetworks,
        pairs: Sequence[FramePair],
        whole: Canvas,
        hides: bool,
    ) -> None:
        self._networks, self._pairs, self._whole = networks, pairs, whole
        self._min_score = FAINT_SCORE if hides else KNOWN_SCORE
        self._known: dict[tuple[int, Canvas, int], list[Detection]] = {}

    def see(self, at: int, canvas: Canvas, quarters: int = 0) -> list[Detection]:
        """The faces of a frame, on a canvas, turned so many quarters."""
        if (at, canvas, quarters) not in self._known:
            view, pairs = canvas.view(quarters), self._pairs
            places = range(at, min(len(pairs), at + self._networks.views_per_run))
            asked = [(*pairs[place], view) for place in places]
            for place, found in zip(
                places, self._networks.detect(canvas, asked, self._min_score), strict=True
            ):
                self._known[place, canvas, quarters] = found
        found = self._known[at, canvas, quarters]
        least = TURNED_SCORE if quarters else SURE_SCORE
        large = least if canvas is self._whole else max(least, LARGE_SCORE)
        return [each._replace(is_sure=self._is_sure(each, least, large)) for each in found]

    def _is_sure(self, found: Detection, least: float, large: float) -> bool:
        """Whether it has the score that is asked for, of a large face ``large``."""
        height, width = self._pairs[0][0].luma.shape
        left, top, right, bottom = found.box
        if left < 0 or top < 0 or right > width or bottom > height:
            least = max(least, EDGE_SCORE)
        elif face_size(found.box) > _LARGE_PART * min(height, width):
            least = large
        return found.score > least

    def see_close(self, at: int, asked: Sequence[Detection]) -> list[Detection | None]:
        """Detections as the closer view shows them; None where it is not sure of a face there."""
        seen: list[Detection | None] = [None] * len(asked)
        for turn in _CLOSE_TURNS:
            rows = [
                row
                for row, each in enumerate(asked)
                if seen[row] is None and (each.score >= LIKELY_SCORE or not turn)
            ]
            turned = [asked[row]._replace(angle=asked[row].angle + turn) for row in rows]
            for row, each in zip(rows, self._closer(at, turned), strict=True):
                seen[row] = each
        return seen

    def _closer(self, at: int, asked: Sequence[Detection]) -> list[Detection | None]:
        pair = self._pairs[at]
        seen = self._networks.detect_close([(pair, each) for each in asked], CLOSE_SCORE)
        made: list[Detection | None] = []
        for each, shown in zip(asked, seen, strict=True):
            near = next((s for s in shown if box_iou(s.box, each.box) >= _MIN_SAME), None)
            face = near and Detection(each.box, near.angle, near.score, True)
            is_sure = face and self._is_sure(face, CLOSE_SCORE, LARGE_SCORE)
            made.append(face if is_sure else None)
        return made
