"""Find faces: when the detector runs, on which views of a frame, and which detections count.

The detector is shown whole frames at an interval, and each next frame while a face is new, missing
or fast. Between, faces are expected where they were going. Where faces are hidden, doubt hides:
the detector is also shown each frame at half the scale, and turned by quarters; now and then
enlarged, or with less reduction; and each place that it is not sure of, or where a face is expected
and not seen, once more, enlarged and upright. Small places are then smoothed, which shows faces in
noise and in the dark. The best score counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from bgsoft.closing import Closing
from bgsoft.errors import InferenceError
from bgsoft.face.base import Face
from bgsoft.face.detect import BORDER_PX, MAX_OVERLAP, Canvas, Canvases, Detection, merge
from bgsoft.face.geometry import Box, box_area, box_iou, face_size, shared_area
from bgsoft.face.meshes import MeshMaker
from bgsoft.face.networks import FaceNetworks, FramePair
from bgsoft.face.track import LARGE_SIGHTINGS, FaceTracker
from bgsoft.frame import AnalysisFrame, Frame, FrameFormat
from bgsoft.records import dataclass

SURE_SCORE, CLEAR_SCORE, HIDDEN_SCORE, TURNED_SCORE = 0.67, 0.81, 0.83, 0.87
"""Score above which a detection is a face. Hands have up to 0.66 in upright views. Large faces, and
those that the frame's edge cuts, need the second: mirrored things and prints have up to 0.8.
Where faces are hidden, all need the third, because closer views decide about others: moving hands
have up to 0.81. Large and cut ones have to be confirmed there by closer views, or seen three times,
if their score is not the fourth: prints have up to 0.86. Turned views need the fourth: gestures
have up to 0.84 there."""
_LARGE_PART, _VAGUE_PART = 0.15, 0.12
"""Part of the frame's short side from which a face is large; and where only closer views show it.
With 0.15 for both, where moving hands are not, 26 of 450 frames of ordinary clips hide something
else, not 0. With 0.1, 95 face-frames are open in 18 kinds, not 77."""
CLOSE_SCORE, CHECK_SHARE, _FIRST_SHARE = 0.64, 0.15, 0.2
"""Evidence above which a place is a face: the mean score of two closer views, this share of another
detector's score, and this share of the score before. The second view is centred on what the first
one shows. One view alone hides something else in 424 of 2,850 frames, not 235. Without the other
detector, 112 face-frames are open in 18 kinds, not 77, and 42 of 900 frames of ordinary clips hide
something else, not 0."""
_CHECKED_SCORE, _USUAL_SCORE, _LEAST_SCORE = 0.0, -1.3, -2.0
"""Score of the other detector from which one sighting is enough: of 214 large faces in doubt, 168
have more, and of 66 other things none. Its usual score of other things: for small faces, less does
not count, as in noise. And the same for large ones: prints have down to -1.8, patterns to -4."""
_AGAIN_SCORE = 0.6
"""Score in the first of two closer views from which there is a second."""
FAINT_SCORE, KNOWN_SCORE = 0.05, 0.3
"""Score from which a detection continues a track: where faces are hidden, when it is also worth a
closer view; and elsewhere, and for large ones. With 0.1, 84 % of faces of 12 to 16 pixels are
hidden, not 99.8. If large ones counted from 0.05 on, 100 face-frames would be open, not 84."""
_MAX_FAINT = 1000
"""Largest number of faint detections in a view; where there are more, only likely ones count. White
noise, enlarged, has up to 70,000, with scores up to 0.52; they would take minutes."""
LIKELY_SCORE = 0.5
"""Score from which something that is not hidden is reported as doubtful."""
_TICK_SECONDS = 1e-4
"""Times of frames are rounded."""
_MIN_VISIBLE = 0.2
"""Part of a face's box in the frame; less is the mirrored border."""
_MIN_SAME = 0.3
"""Intersection over union of a detection in a closer view with the one that it is to confirm."""
_TURNS = (1, 2, 3)
"""Quarters by which frames are turned."""
_SMOOTHED_SCORE = 0.1
"""Score from which a small place is smoothed. With 0.2, two more face-frames in dark noise are open
of 1,296; without a limit as many."""
_CLOSE_TURNS = 0.5, -0.5, 1.57, -1.57, 2.6, -2.6
"""Radians by which closer views are turned where the upright one shows no sure face.
In other views a face may seem to be upright. Without turns, 79 % of faces that are turned by 210
degrees are hidden, not 99. With the first two alone, it is 89 % at 120 and 330 degrees, not 100."""
_FINE_PX, _MAX_FINE_SCALE, _FINE_SECONDS = 2560, 2.0, 2.0
"""Largest size (long side, input pixels) and scale of the fine view, and the longest time to the
next one. In a drawing of new scenes 82 % of faces of 12 to 16 pixels at rest are hidden without
enlargement, and 96 % with it; in 1080p 92 % of those of 12 to 28 pixels, and 98 %. All of a 4K
frame would take 740 MB."""
_TURNED_AGAIN_SCORE = 0.4
"""Score, in the closer view or before, from which a place is also shown turned. With 0.2, as many
faces are hidden, and in a room with shelves there are two thirds more closer views. With the closer
view's score alone, 80 % are hidden at 60 degrees, not 90."""


def _has_passed(interval: float, seconds: float) -> bool:
    """Return whether an interval is over after so many seconds, or time went backwards."""
    return seconds + _TICK_SECONDS >= interval or seconds < 0


def _overlaps(found: Detection, others: Iterable[Detection]) -> bool:
    return any(box_iou(found.box, other.box) > MAX_OVERLAP for other in others)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinderSettings:
    """Settings of the search for faces."""

    scale: float
    """Input pixels a frame pixel."""
    border: int = BORDER_PX
    """Smallest width of the mirrored border, input pixels."""
    seconds: float
    """Longest time from one detector pass to the next,"""
    most_frames: int
    """and most frames."""
    hides: bool = False
    """Doubt hides: all that may be a face is found."""
    by_landmarks: bool = False
    """Make landmarks of all faces; else :meth:`FaceFinder.close_up` makes them."""

    def is_late(self, seconds: float, frames: int) -> bool:
        """Return whether the detector has to run so long after its last pass."""
        return _has_passed(self.seconds, seconds) or frames >= self.most_frames

    def canvases(self, format: FrameFormat) -> Canvases:
        """Return what the detector is shown of whole frames."""
        whole = Canvas.of(format, self.scale, self.border)
        if not self.hides:
            return Canvases(whole, None, None, None)
        half = Canvas.of(format, self.scale / 2)
        on_side = Canvas.of(format, self.scale, on_side=True)
        scale = min(_MAX_FINE_SCALE, _FINE_PX / max(format.width, format.height))
        fine = Canvas.of(format, scale) if scale > self.scale else None
        return Canvases(whole, half, on_side, fine)


class FaceFinder(Closing):
    """Finds the faces of frames of one format, in presentation order; holds the tracks.

    It closes its networks, which are where the frames are and have the settings' canvases.
    """

    def __init__(
        self, format: FrameFormat, networks: FaceNetworks, settings: FinderSettings
    ) -> None:
        self._frame: Box = (0, 0, format.width, format.height)
        self._networks, self.start = networks, networks.start
        self._settings = settings
        self._canvases = settings.canvases(format)
        self._tracker = FaceTracker()
        self._meshes = MeshMaker(networks)
        self.doubts: list[list[Detection]] = []
        """For each frame of the last :meth:`find`, detections that are not taken for faces."""
        self._renew()

    def _renew(self) -> None:
        """Run the detector on the next frame, in every view; tracks go on."""
        self._waited = self._passes = 0
        self._passed_at = self._fine_at = -math.inf

    def cut(self) -> None:
        """Go on after a cut that may be none: tracks go on, but whoever is seen gets a new id."""
        self._tracker.is_cut = True
        self._renew()

    def follow(self, earlier: FaceFinder) -> None:
        """Go on with the tracks of an earlier finder of the same format."""
        self._tracker = earlier._tracker

    def reset(self) -> None:
        """End all tracks (scene cut)."""
        self._tracker.tracks.clear()
        self.refresh()

    def refresh(self) -> None:
        """Run the detector on the next frame, and follow known faces from there."""
        self._tracker.is_fresh = True
        self._meshes.reset()
        self._renew()

    def find(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> list[list[Face]]:
        """Return the faces of consecutive frames of one scene, a list a frame, largest first.

        Args:
            frames: The frames, on the networks' host or device; any number.
            reduced: The same frames on the analysis frame.

        Raises:
            InferenceError: A model failed; carries the frame's pts.
        """
        pairs = [*zip(frames, reduced, strict=True)]
        views = _Views(self._networks, pairs, self._frame, self._settings)
        self.doubts = []
        try:
            faces = [self._find(views, at, frame) for at, frame in enumerate(frames)]
            return self._meshes.make(pairs, faces) if self._settings.by_landmarks else faces
        except InferenceError as exc:
            exc.stage, exc.pts = "face", frames[len(self.doubts) - 1].pts
            raise

    def close_up(self, frame: Frame, reduced: AnalysisFrame, faces: Sequence[Face]) -> list[Face]:
        """Return those faces of a frame that have landmarks, with them.

        Where landmarks of all faces are made, the others have none.

        Args:
            frame: The frame, on the networks' host or device; frames come in order.
            reduced: Its analysis frame.
            faces: Some of the faces that :meth:`find` returned for it.

        Raises:
            InferenceError: A model failed; carries the frame's pts.
        """
        if self._settings.by_landmarks:
            return []
        try:
            (seen,) = self._meshes.make([(frame, reduced)], [faces])
        except InferenceError as exc:
            exc.stage, exc.pts = "face", frame.pts
            raise
        return [face for face in seen if face.has_landmarks]

    def _find(self, views: _Views, at: int, frame: Frame) -> list[Face]:
        self.doubts.append([])
        self._tracker.advance(frame.time_seconds)
        if self._is_due(frame.time_seconds):
            views.is_dense = self._tracker.is_restless
            self.doubts[at] = self._detect(views, at)
            if at in views.noisy:  # a face may be anywhere
                self.doubts[at].append(Detection(self._frame, 0.0, LIKELY_SCORE))
        return self._tracker.faces()

    def _is_due(self, seconds: float) -> bool:
        """Return whether the detector runs on this frame."""
        self._waited += 1
        is_late = self._settings.is_late(seconds - self._passed_at, self._waited)
        if not is_late and not self._tracker.is_restless:
            return False
        self._waited, self._passed_at = 0, seconds
        return True

    def _detect(self, views: _Views, at: int) -> list[Detection]:
        """Take the faces that the detector sees in a frame; return what is left in doubt."""
        tracker = self._tracker
        seen = merge(
            each
            for each in filter(self._is_visible, self._seen(views, at))
            if each.score >= KNOWN_SCORE or not views.is_large(each, _LARGE_PART)
        )
        taken: list[Detection] = []
        doubts: list[Detection] = []
        for each, track in zip(seen, tracker.match(seen), strict=True):
            is_known = track is not None and (track.is_established or not self._settings.hides)
            goes_on = is_known and not tracker.is_fresh
            is_certain = each.is_sure and each.needed == 1
            (taken if is_certain or goes_on else doubts).append(each)
        if self._settings.hides:
            doubts += filter(self._is_visible, tracker.missing(taken))
            confirmed = views.see_close(at, doubts)
            taken += filter(None, confirmed)
            doubts = [each for each, face in zip(doubts, confirmed, strict=True) if face is None]
            # Clear ones that closer views do not show have to be seen more often.
            clear = [each for each in doubts if each.is_sure and not _overlaps(each, taken)]
            doubts = [each for each in doubts if each not in clear]
            taken = merge([*taken, *(each._replace(needed=LARGE_SIGHTINGS) for each in clear)])
        tracker.update([*zip(taken, tracker.match(taken), strict=True)])
        return doubts

    def _seen(self, views: _Views, at: int) -> list[Detection]:
        """Return what the detector sees in the views of a frame that are due.

        Half the scale and a turned view take turns. All are due at first, where nobody upright is
        sure, and where a face is missing. While one is vague, the same are due again.
        """
        (whole, half, on_side, fine), tracks = self._canvases, self._tracker.tracks
        seen = views.see(at, whole)
        if half is None or on_side is None:
            return seen
        is_sure = any(each.is_sure for each in seen)
        if fine is not None and _has_passed(_FINE_SECONDS, self._passed_at - self._fine_at):
            self._fine_at = self._passed_at
            seen += views.see(at, fine, looks_ahead=False) + views.see(at, half)
        if self._passes and any(track.is_vague for track in tracks):
            self._passes -= 1
        turn, is_half = divmod(self._passes, 2)
        is_all = not self._passes or not is_sure or any(track.is_missing for track in tracks)
        self._passes += 1
        if is_all or is_half:
            seen += views.see(at, half)
        turns = _TURNS if is_all else () if is_half else (_TURNS[turn % len(_TURNS)],)
        for quarters in turns:
            seen += views.see(at, on_side if quarters % 2 else whole, quarters)
        return seen

    def _is_visible(self, found: Detection) -> bool:
        return shared_area(found.box, self._frame) >= _MIN_VISIBLE * box_area(found.box)

    def warnings(self) -> list[str]:
        """Return no warning: nothing is left to report after the last frame."""
        return []

    def close(self) -> None:
        self._networks.close()


@dataclass(slots=True, eq=False)
class _Views:
    """Detections in the frames of a batch; a run takes several frames where it can."""

    networks: FaceNetworks
    pairs: Sequence[FramePair]
    frame: Box
    settings: FinderSettings
    is_dense: bool = False
    """The next frame will be asked for, too."""
    noisy: set[int] = field(default_factory=set)
    """Frames of which a view has too many faint detections."""
    known: dict[tuple[int, Canvas, int], list[Detection]] = field(default_factory=dict)

    def is_large(self, found: Detection, part: float) -> bool:
        """Return whether it is larger than a part of the frame's short side."""
        return face_size(found.box) > part * min(self.frame[2:])

    def see(
        self, at: int, canvas: Canvas, quarters: int = 0, *, looks_ahead: bool = True
    ) -> list[Detection]:
        """Return the detections of a frame, on a canvas, turned by quarters.

        It looks ahead where the same view of the next frames will be asked for, too.
        """
        hides = self.settings.hides
        if (at, canvas, quarters) not in self.known:
            view = canvas.view(quarters)
            places = self._due(at) if looks_ahead else [at]
            asked = [(*self.pairs[place], view) for place in places]
            answers = self.networks.detect(canvas, asked, FAINT_SCORE if hides else KNOWN_SCORE)
            for place, found in zip(places, answers, strict=True):
                if sum(each.score < KNOWN_SCORE for each in found) > _MAX_FAINT:
                    self.noisy.add(place)
                    found = [each for each in found if each.score >= LIKELY_SCORE]
                self.known[place, canvas, quarters] = found
        min_score = TURNED_SCORE if quarters else HIDDEN_SCORE if hides else SURE_SCORE
        return [self._judged(each, min_score) for each in self.known[at, canvas, quarters]]

    def _due(self, at: int) -> list[int]:
        """Return this frame, and those that will be asked for next, as many as a run takes."""
        due, last = [at], self.pairs[at][0]
        for place in range(at + 1, len(self.pairs)):
            if len(due) == self.networks.views_per_run:
                break
            frame, _ = self.pairs[place]
            passed = frame.time_seconds - last.time_seconds
            if self.is_dense or self.settings.is_late(passed, place - due[-1]):
                due.append(place)
                last = frame
        return due

    def _is_demanding(self, found: Detection) -> bool:
        """Return whether it is large or cut by the frame's edge: more has to speak for it then."""
        is_cut = shared_area(found.box, self.frame) < box_area(found.box)
        return is_cut or self.is_large(found, _LARGE_PART)

    def _judged(self, found: Detection, min_score: float) -> Detection:
        """Return a detection with whether it is a face, and by that alone."""
        if self._is_demanding(found):
            min_score = max(min_score, CLEAR_SCORE)
            if self.settings.hides and found.score <= TURNED_SCORE:
                found = found._replace(needed=2)
        return found._replace(is_sure=found.score > min_score)

    def see_close(self, at: int, asked: Sequence[Detection]) -> list[Detection | None]:
        """Return detections as closer views show them; None where they are not sure of a face."""
        upright = self._close(at, [*enumerate(asked)])
        seen = self._confirmed(at, asked, upright)
        doubtful = [
            row
            for row, shown in upright.items()
            if row not in seen and max(shown.score, asked[row].score) >= _TURNED_AGAIN_SCORE
        ]
        turned = [(row, asked[row].turned(turn)) for turn in _CLOSE_TURNS for row in doubtful]
        seen |= self._confirmed(at, asked, self._close(at, turned))
        small = [
            (row, each)
            for row, each in enumerate(asked)
            if row not in seen and each.score >= _SMOOTHED_SCORE and not self._is_demanding(each)
        ]
        smoothed = self._close(at, small, smoothed=True)
        seen |= self._confirmed(at, asked, smoothed, smoothed=True)
        return [seen.get(row) for row in range(len(asked))]

    def _confirmed(
        self,
        at: int,
        asked: Sequence[Detection],
        shown: Mapping[int, Detection],
        *,
        smoothed: bool = False,
    ) -> dict[int, Detection]:
        """Return those that a closer view has shown which are faces, by row."""
        promising = [(row, first) for row, first in shown.items() if first.score > _AGAIN_SCORE]
        again = self._close(at, promising, smoothed=smoothed)
        checks = self.networks.check([(self.pairs[at], face) for face in again.values()])
        confirmed: dict[int, Detection] = {}
        for (row, second), check in zip(again.items(), checks, strict=True):
            score = (shown[row].score + second.score) / 2
            is_vague = self.is_large(second, _VAGUE_PART)
            least = _LEAST_SCORE if is_vague else _USUAL_SCORE
            evidence = score + _FIRST_SHARE * asked[row].score + CHECK_SHARE * max(least, check)
            if evidence > CLOSE_SCORE and not (smoothed and self._is_demanding(second)):
                needed = LARGE_SIGHTINGS if is_vague and not smoothed else 2
                if check > _CHECKED_SCORE or (score > TURNED_SCORE and not is_vague):
                    needed = 1
                confirmed[row] = second._replace(score=score, is_sure=True, needed=needed)
        return confirmed

    def _close(
        self, at: int, asked: Sequence[tuple[int, Detection]], *, smoothed: bool = False
    ) -> dict[int, Detection]:
        """Return the best that closer views show of each row where it is asked for."""
        places = [(self.pairs[at], each) for _, each in asked]
        answers = self.networks.detect_close(places, FAINT_SCORE, smoothed=smoothed)
        best: dict[int, Detection] = {}
        for (row, each), shown in zip(asked, answers, strict=True):
            near = next((face for face in shown if box_iou(face.box, each.box) >= _MIN_SAME), None)
            if near is not None and (row not in best or near.score > best[row].score):
                best[row] = near
        return best
