"""Faces in the pipeline: found before the matte is made, used before and after compositing."""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Sequence, Set
from dataclasses import replace
from functools import partial
from typing import Any

from bgsoft.closing import Closing
from bgsoft.face.anonymize import FrameFaces, HiddenFaces
from bgsoft.face.base import LOOKAHEAD_FRAMES, Face, FaceTaker, hiding_ellipse, outline_square
from bgsoft.face.detect import Detection
from bgsoft.face.faces_file import KnownFaces
from bgsoft.face.finder import FaceFinder
from bgsoft.face.guard import MAY_MISS_SHARE, MISSED_SHARE, Guard, MatteEditor, Plane8
from bgsoft.face.journal import FaceJournal, entry_of
from bgsoft.face.people import Picker
from bgsoft.face.subjects import MatteSeparator
from bgsoft.frame import AnalysisFrame, Frame, FrameFormat, Matte
from bgsoft.hide.hider import Hider
from bgsoft.hide.record import HiddenPlace, HiddenRecord
from bgsoft.records import dataclass
from bgsoft.settings.config import FaceConfig, FaceMode

_MAX_WHOLE = MISSED_SHARE - MAY_MISS_SHARE
"""A face that lacks more than :data:`bgsoft.face.guard.MISSED_SHARE` gets landmarks in any case."""


@dataclass(slots=True, eq=False)
class FoundFaces:
    """The faces of one frame, on their way from finding to their use."""

    faces: list[Face]
    main: dict[int, Face]
    """The main ones by id, where they are or were last seen."""
    covered: list[tuple[Face, float]]
    """Faces to fill in where the matte has missed them, and how opaque."""
    seen: FrameFaces
    """For hiding."""
    separator: MatteSeparator | None
    """That of the scene; None: mattes are not divided."""
    limit: Plane8 | None = None
    """Upper limit of its matte; None: no limit."""


@dataclass(kw_only=True, eq=False)
class FaceStep(Closing):
    """Does to a video what the face settings ask for, frame by frame.

    For frames of one scene at a time, in order: :meth:`find`; with their mattes :meth:`inspect`,
    then :meth:`edit_mattes`; after compositing :meth:`finish`, which may keep frames back for a
    while; after the last frame :meth:`flush`. The first two wait for models, and are made to be
    called by another thread than the others.

    Finder and editor are closed with the step.
    """

    config: FaceConfig
    format: FrameFormat
    finder: FaceFinder
    editor: MatteEditor
    hider: Hider
    picker: Picker
    data: FaceTaker | None = None
    known: KnownFaces | None = None
    backend: str = "cpu"
    """Backend of the models, for the report."""
    device: str = "cpu"
    """Device of the models, for the report."""

    def __post_init__(self) -> None:
        hides = self.config.mode is FaceMode.ANONYMIZE
        guards = self.config.mode in (FaceMode.GUARD, FaceMode.MAIN)
        self._guard = Guard()
        self._never_hidden = frozenset[int]() if self.known is None else self.known.shown
        self._always_hidden = frozenset[int]() if self.known is None else self.known.hidden
        self._separator: MatteSeparator | None = None
        self.held = LOOKAHEAD_FRAMES if hides else 0
        """Frames that :meth:`finish` keeps back at most; where that is 0, it does nothing."""
        self.trim_start = -math.inf
        """Frames with an earlier pts are not counted."""
        self._hidden = HiddenFaces()
        self._waiting: deque[tuple[Frame, FrameFaces]] = deque()
        """Composited, but their faces are not hidden yet."""
        self._journal = FaceJournal(self.format, measures=guards, hides=hides)
        if self.known is not None and self.known.summary is not None:
            self._journal.take_doubtful(self.known.summary)
        self._scene = 0
        self.record = HiddenRecord("network" if self.config.file is None else "hand")
        """Hidden places of the frames that count."""
        self.counts = array("H")
        """Faces of each frame that counts."""
        self.every = 1
        """Interval of detection: faces are detected on every Nth frame of a scene, and keep their
        places in between. It is 1 where faces are hidden. May be changed between frames."""
        self._since = 0
        self._found: FoundFaces | None = None
        self._is_first = True
        """The next frame follows none."""
        self._whole: dict[int, float] = {}
        """Share that a matte seemed to lack of each face, although it had its outline. Landmarks
        are made again once one lacks more. Otherwise they are made in 118 of 300 frames, not 33."""
        self.start, self.boundary = self.finder.start, self._journal.boundary
        self._begin_scene()

    def reset(self) -> None:
        """Forget all faces; the next frame begins a new scene."""
        self.finder.reset()
        self._guard.reset()
        self.picker.reset()
        self._hidden, self._is_first = HiddenFaces(), True
        self._begin_scene()

    def cut(self) -> None:
        """The next frame begins a new scene.

        Where faces are hidden, tracks go on: a cut that is none, as in a crossfade or a flash,
        shows nobody. Somebody else may be in the same place, so new ids begin.
        """
        if not self.held:
            self.reset()
            return
        self.finder.cut()
        self.picker.cut()
        self._begin_scene()

    def follow(self, earlier: FaceStep, *, is_alike: bool) -> None:
        """Go on in the scene of an earlier step that was used up to now.

        Where faces are hidden, people who were hidden stay so.

        Args:
            earlier: The step; a later call of it must not be in progress if ``is_alike``.
            is_alike: Its frames show the same view in the same size: its tracks go on. Otherwise
                nobody is shown before the next cut, unless nobody was chosen yet.
        """
        if not (self.held and earlier.held) or (self.config.subjects, self.config.main) != (
            earlier.config.subjects,
            earlier.config.main,
        ):
            return
        if is_alike:
            self.finder.follow(earlier.finder)
            self.picker, self._hidden = earlier.picker, earlier._hidden
            self._scene = earlier._scene
        else:
            self.picker.follow(earlier.picker)

    def _begin_scene(self) -> None:
        self._found = None
        self._whole.clear()
        self._scene += 1
        self._journal.cut()
        if self.config.mode is FaceMode.MAIN:
            self._separator = MatteSeparator(self.format)

    def refresh(self) -> None:
        """See :meth:`bgsoft.face.finder.FaceFinder.refresh`."""
        self._whole.clear()
        self.finder.refresh()

    def summary(self) -> dict[str, Any]:
        """For the report; complete once the step is closed."""
        return {"mode": self.config.mode.value, **self._journal.summary()}

    def warnings(self) -> list[str]:
        """Return what a user should know, after the last frame."""
        texts = self._journal.warnings(is_hiding=bool(self.record.runs))
        return [*texts, *self.picker.warnings(), *self.finder.warnings()]

    def find(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> list[FoundFaces]:
        """Find the faces of the next frames of a scene, which are not composited yet.

        Raises:
            InferenceError: A model failed.
            OutputError: The face data cannot be written.
        """
        if self.every > 1 and self._found is not None and not self.held:
            self._since += 1
            if self._since < self.every:
                return [replace(self._found, limit=None) for _ in frames]
        self._since = 0
        faces = self.finder.find(frames, reduced)
        found = [*map(self._decide, frames, faces, self.finder.doubts)]
        self._found = found[-1]
        return found

    def _decide(self, frame: Frame, faces: list[Face], doubts: Sequence[Detection]) -> FoundFaces:
        """Note the next frame's faces, and decide who is main."""
        is_kept, seconds = frame.pts >= self.trim_start, frame.time_seconds
        if is_kept:
            self.counts.append(len(faces))
        self._journal.add(frame, faces, doubts, is_kept=is_kept)
        if self.data is not None and is_kept:
            wanted = [f for f in faces if f.has_landmarks or not self.data.wants_landmarks]
            self.data.write(frame, wanted)
        before = {*self.picker.main}
        end = frame.shown_until
        until = -math.inf if end is None else float(end * frame.time_base)
        seen_faces = [f for f in faces if f.id not in self._always_hidden]
        main = self.picker.update(seen_faces, seconds, until)
        after = {*self.picker.main}
        if is_kept and before and before != after:
            self._journal.note("main_changes", entry_of(frame), ids=sorted(after))
        guarded = {FaceMode.GUARD: faces, FaceMode.MAIN: [f for f in faces if f.id in main]}
        covered = self._guard.faces(guarded.get(self.config.mode, ()))
        shown, is_decided = {*main, *self._never_hidden}, self.picker.is_decided
        seen = self._seen(faces, shown, seconds, self._scene)
        seen.is_decided = is_decided
        if self._is_first and self.known is not None:
            # The last sighting is hidden for less than a second, or until one in the next frames.
            # The velocity follows from the sighting before, which may be as much older.
            reach = 2 * (math.ceil(1 / frame.time_base) + self.held * self.known.frame_ticks)
            seen.before = self._not_rendered(frame, seen, frame.pts - reach, frame.pts)
        self._is_first = False
        return FoundFaces(faces, main, covered, seen, self._separator)

    def _seen(
        self, faces: Sequence[Face], shown: Set[int], seconds: float, scene: int
    ) -> FrameFaces:
        places = {f.id: hiding_ellipse(f) for f in faces if f.detected and self.held}
        proven = {face.id for face in faces if face.is_proven}
        return FrameFaces(places, proven, shown, seconds, scene)

    def _not_rendered(
        self, frame: Frame, seen: FrameFaces, begin: int, end: int
    ) -> list[FrameFaces]:
        """Return the known faces from a pts on until another, before or after all given frames.

        Args:
            frame: The given frame next to them.
            seen: Its faces.
            begin: The first pts.
            end: The pts after the last.
        """
        if self.known is None or not self.held:
            return []
        shown, cuts = {*seen.shown, *self.picker.main}, self.known.cuts or ()
        found = []
        for pts in self.known.listed(begin, end):
            passed = sum(min(pts, frame.pts) < cut <= max(pts, frame.pts) for cut in cuts)
            scene = seen.scene + (passed if pts > frame.pts else -passed)
            seconds = float(pts * frame.time_base)
            found.append(self._seen(self.known.faces(pts), shown, seconds, scene))
        return found

    def inspect(
        self,
        frames: Sequence[Frame],
        reduced: Sequence[AnalysisFrame],
        mattes: Sequence[Matte],
        found: Sequence[FoundFaces],
    ) -> None:
        """Inspect mattes, and note in ``found`` the edits for :meth:`edit_mattes`.

        Raises:
            InferenceError: A model failed.
            BackendUnavailableError, ModelError: A model that was not needed before does not load.
        """
        for frame, matte, each in zip(frames, mattes, found, strict=True):
            each.limit = self._limit(frame, matte, each)
        # The landmarks of faces that mattes may have missed; the others are not covered.
        asked = [
            (at, face)
            for at, each in enumerate(found)
            for face, _ in each.covered
            if not face.has_landmarks
        ]
        shares = self.editor.missing([(mattes[at], face.square) for at, face in asked])
        lacks = {(at, face.id): share for (at, face), share in zip(asked, shares, strict=True)}
        missed = [
            (at, face)
            for at, face in asked
            if lacks[at, face.id] > MAY_MISS_SHARE + self._whole.get(face.id, 0.0)
        ]
        outlines: list[tuple[int, Face]] = []
        for at, each in enumerate(found):
            faces = [face for index, face in missed if index == at]
            close = self.finder.close_up(frames[at], reduced[at], faces) if faces else ()
            outlines += ((at, face) for face in close)
            seen = {face.id: face for face in close}
            covered = ((seen.get(face.id, face), opacity) for face, opacity in each.covered)
            each.covered = [(face, opacity) for face, opacity in covered if face.has_landmarks]
        shares = self.editor.missing([(mattes[at], outline_square(face)) for at, face in outlines])
        for (at, face), share in zip(outlines, shares, strict=True):
            is_whole = share <= MAY_MISS_SHARE
            self._whole[face.id] = min(lacks[at, face.id], _MAX_WHOLE) if is_whole else 0.0

    def edit_mattes(
        self, frames: Sequence[Frame], mattes: Sequence[Matte], found: Sequence[FoundFaces]
    ) -> None:
        """Cut mattes down to the main people and fill in missed faces."""
        for frame, matte, each in zip(frames, mattes, found, strict=True):
            if each.covered or each.limit is not None:
                on_coverage = None
                if frame.pts >= self.trim_start:
                    on_coverage = partial(self._journal.add_coverage, entry_of(frame))
                self.editor.apply(matte, each.covered, each.limit, on_coverage)

    def _limit(self, frame: Frame, matte: Matte, found: FoundFaces) -> Plane8 | None:
        separator, main = found.separator, [*found.main.values()]
        if separator is None:
            return None
        if separator.is_fresh and not main and not self.picker.is_named:
            return None
        others = [face for face in found.faces if face.id not in found.main]
        limit, is_shared = separator.separate(self.editor.read(matte), main, others)
        if is_shared and frame.pts >= self.trim_start:
            self._journal.note("shared", entry_of(frame))
        return limit

    def finish(self, frames: Sequence[Frame], found: Sequence[FoundFaces]) -> list[Frame]:
        """Hide faces in composited frames, as the mode asks; returns those finished now, in order.

        Perhaps earlier ones: faces are hidden in a frame once those of the next :attr:`held` frames
        are known.
        """
        if not self.held:
            return list(frames)
        finished = []
        for frame, each in zip(frames, found, strict=True):
            self._waiting.append((frame, each.seen))
            if len(self._waiting) > self.held:
                finished.append(self._hide_next())
        return finished

    def flush(self) -> list[Frame]:
        """Hide faces in the frames that are kept back, by what is known now; returns them."""
        last = self._waiting[-1] if self._waiting else None
        return [self._hide_next(last) for _ in range(len(self._waiting))]

    def _hide_next(self, last: tuple[Frame, FrameFaces] | None = None) -> Frame:
        """Hide faces in the next frame; ``last`` is the last one that is rendered, if known."""
        frame, faces = self._waiting.popleft()
        ahead = [each for _, each in self._waiting]
        if not faces.is_decided:
            faces.shown = [each for each in (faces, *ahead) if each.scene == faces.scene][-1].shown
        if last is not None and self.known is not None:
            until = frame.pts + round((self.held + 0.5) * self.known.frame_ticks)
            after = self._not_rendered(*last, last[0].pts + 1, until)
            if after and not ahead:  # a single view counts in the last frame
                faces.proven = faces.proven | faces.places.keys()
            ahead += after
        ellipses = self._hidden.update(faces, ahead)
        hidden = self.hider.apply(frame, ellipses) if ellipses else ()
        if frame.pts >= self.trim_start:
            self.record.add(frame, map(HiddenPlace, hidden))
        return frame

    def close(self) -> None:
        self.editor.close()
        self.finder.close()
