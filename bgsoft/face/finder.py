"""Finding the faces of frames, on the CPU, and the order of work that every device shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bgsoft.closing import Closing
from bgsoft.errors import InferenceError
from bgsoft.face.anchors import anchor_centres
from bgsoft.face.base import Face
from bgsoft.face.detect import Detections, decode, merge, weighted_nms
from bgsoft.face.geometry import Tile, frame_from_roi, frame_from_tile, letterbox, tiles
from bgsoft.face.landmarks import presence, to_frame
from bgsoft.face.track import Proposal, Tracker
from bgsoft.face.warp import CpuWarper, View, choose_source
from bgsoft.frame import Frame, FrameFormat, Reduced
from bgsoft.infer.cpu import CpuNetwork
from bgsoft.models.catalog import ModelSpec, ResolvedModel, resolve

__all__ = [
    "DETECTOR",
    "LANDMARKER",
    "CpuFaceFinder",
    "FaceModels",
    "FinderSettings",
    "Following",
    "network_shapes",
]

DETECTOR, LANDMARKER = "blazeface-short", "face-mesh"
"""Names in the model catalogue."""

Raw = tuple[NDArray[np.floating], NDArray[np.floating]]
"""Two outputs of one view: boxes and scores, or landmarks and presence; logits as they come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinderSettings:
    """How faces are looked for."""

    detect_every: int = 8
    """Frames between runs of the detector while all faces are followed safely."""
    small_faces: bool = False
    """Look for small faces, too, by showing the detector parts of the frame."""
    small_every: int = 32
    """Frames between searches for small faces; the first after a reset always is one."""
    max_faces: int = 32
    """Followed at a time."""
    min_score: float = 0.5
    """Of a new face's detection, at the second look."""
    min_first_score: float = 0.3
    """Of a detection that is worth a second look, or confirms a face that is followed."""

    def __post_init__(self) -> None:
        if min(self.detect_every, self.small_every, self.max_faces) < 1:
            raise ValueError("detect_every, small_every and max_faces must be 1 or more")
        if not 0 < self.min_first_score <= self.min_score < 1:
            raise ValueError("scores must be in (0, 1), the first look's at most the other")


class FaceModels(Protocol):
    """Both networks on one device, given views of frames."""

    def detect(self, asked: Sequence[tuple[Frame, Reduced, View]]) -> list[Raw]:
        """Boxes (896, 16) and scores (896, 1) of each view, on the host."""
        ...

    def landmarks(self, asked: Sequence[tuple[Frame, Reduced, View]]) -> list[Raw]:
        """Points (468, 3) and presence (1,) of each view, on the host."""
        ...

    def close(self) -> None:
        """Free the networks; safe to call twice."""
        ...


def network_shapes(spec: ModelSpec, batch: int) -> dict[str, tuple[int, ...]]:
    """The input shapes to load a face model with."""
    if spec.layout == "NCHW":
        return {spec.input: (batch, 3, spec.height, spec.width)}
    return {spec.input: (batch, spec.height, spec.width, 3)}


class Following:
    """The order of work: when to detect, what to look at, what becomes of the answers.

    Args:
        format: Format of the frames.
        models: Both networks.
        settings: How to look.
        detector_size: Side of the detector's input, pixels.
        landmarker_size: Side of the landmark model's input, pixels.
    """

    _HALF_SHAPE = 1.2
    """Frames longer than this are shown as squares of their short side, too: a face of a tenth of
    it, 108 pixels at 1080p, is 13 pixels high in the detector's input."""
    _SMALL_TILES = (0.72, 0.27)
    """Tile sides as parts of the frame's short side: faces of 10 % and 3.7 % of it, 108 and 40
    pixels at 1080p, are 18 pixels high in the detector's input."""
    _SHARED = 0.2
    _SECOND_LOOK = 3.0
    """Side of what the detector is shown again of a new face, over the face's: in a small face the
    eyes are off by half their distance, and much that is no face looks like one from afar."""
    _CLEAR_PART = 0.3
    """A face of this part of the detector's input needs no second look."""

    def __init__(
        self,
        format: FrameFormat,
        models: FaceModels,
        settings: FinderSettings,
        detector_size: int,
        landmarker_size: int,
    ) -> None:
        self._models = models
        self._settings = settings
        self._anchors = anchor_centres(detector_size)
        self._sizes = detector_size, landmarker_size
        width, height = format.width, format.height
        self._whole = View(letterbox(width, height, detector_size).inverse(), False)
        short = min(width, height)
        halves = [1.0] if max(width, height) > self._HALF_SHAPE * short else []
        small = self._SMALL_TILES if settings.small_faces else ()
        # Views, and the frames from one time that they are due to the next.
        self._searches = [
            (self._tiles(format, detector_size, halves), settings.detect_every),
            (self._tiles(format, detector_size, small), settings.small_every),
        ]
        self._waited = [every for _, every in self._searches]
        """Frames since each search."""
        self._tracker = Tracker(settings.max_faces)
        self._since_detection = settings.detect_every
        self._waited = [every for _, every in self._searches]

    def _tiles(self, format: FrameFormat, size: int, parts: Sequence[float]) -> list[View]:
        """Views of squares, whose sides are parts of the frame's short side."""
        width, height = format.width, format.height
        return [
            View(frame_from_tile(tile, size), False)
            for part in parts
            if part * min(width, height) >= size / 2  # enlarging further shows nothing new
            for tile in tiles(width, height, part * min(width, height), self._SHARED)
        ]

    def reset(self) -> None:
        """End all tracks."""
        self._tracker.reset()
        self._since_detection = self._settings.detect_every
        self._waited = [every for _, every in self._searches]

    def find(self, frames: Sequence[Frame], grids: Sequence[Reduced]) -> list[list[Face]]:
        """The faces of consecutive frames, found together.

        With more than one, the detector runs on all of them, and both networks once. The first
        frame of a batch continues from the landmarks before it.
        """
        if not frames:
            return []
        try:
            return self._find(frames, grids)
        except InferenceError as exc:
            exc.stage, exc.pts = "face", frames[0].pts
            raise

    def _find(self, frames: Sequence[Frame], grids: Sequence[Reduced]) -> list[list[Face]]:
        together = len(frames) > 1
        due = (
            together
            or self._since_detection + 1 >= self._settings.detect_every
            or any(
                views and waited >= every
                for (views, every), waited in zip(self._searches, self._waited, strict=True)
            )
            or self._tracker.wants_detection
        )
        found: list[Detections | None] = [None] * len(frames)
        if due:
            self._since_detection = 0
            first = self._detect(frames, grids)
            # What the last frame had and the detector does not see is looked for from near.
            lost = self._tracker.unseen(first[0])
            first[0] = first[0].with_guesses(lost)
            guesses = range(len(first[0]) - len(lost), len(first[0]))
            chosen = [self._unclear(seen, known=together) for seen in first]
            chosen[0] += guesses
            found = list(self._look_again(frames, grids, first, chosen))
        else:
            self._since_detection += 1
            self._waited = [waited + 1 for waited in self._waited]
        proposals: list[list[Proposal]] = []
        for index, detections in enumerate(found):
            proposals.append(
                self._tracker.propose(
                    detections, self._settings.min_score, prefer_detections=index > 0
                )
            )
        answers = iter(self._landmarks(frames, grids, proposals))
        faces = []
        for frame, proposed in zip(frames, proposals, strict=True):
            size = self._sizes[1]
            raw = [next(answers) for _ in proposed]
            points = [to_frame(r[0], p.roi, size) for p, r in zip(proposed, raw, strict=True)]
            sure = presence(np.array([np.ravel(r[1])[0] for r in raw]))
            faces.append(
                self._tracker.update(
                    proposed,
                    np.array(points),
                    sure,
                    frame.time_seconds,
                )
            )
        return faces

    def _detect(self, frames: Sequence[Frame], grids: Sequence[Reduced]) -> list[Detections]:
        """Detections of every frame, in frame pixels, not yet looked at twice."""
        views: list[list[View]] = []
        for _ in frames:
            seen = [self._whole]
            for index, (parts, every) in enumerate(self._searches):
                due = self._waited[index] >= every
                seen += parts if due else ()
                self._waited[index] = 1 if due else self._waited[index] + 1
            views.append(seen)
        answers = iter(self._seen(frames, grids, views, self._settings.min_first_score))
        return [merge([next(answers) for _ in seen]) for seen in views]

    def _look_again(
        self,
        frames: Sequence[Frame],
        grids: Sequence[Reduced],
        found: Sequence[Detections],
        chosen: Sequence[Sequence[int]],
    ) -> list[Detections]:
        """Show the detector some of its detections from near.

        Args:
            frames: The frames.
            grids: The same on the analysis grid.
            found: Their detections.
            chosen: Which of them, a sequence a frame.

        Returns:
            All detections; those looked at are better, or gone.
        """
        views = [
            [
                _around(detections.boxes[index], self._SECOND_LOOK, self._sizes[0])
                for index in picked
            ]
            for detections, picked in zip(found, chosen, strict=True)
        ]
        answers = iter(self._seen(frames, grids, views, self._settings.min_score))
        looks = zip(found, chosen, strict=True)
        return [
            found_.replaced({index: next(answers) for index in picked}) for found_, picked in looks
        ]

    def _unclear(self, found: Detections, *, known: bool) -> list[int]:
        """Faces that are small in the detector's input: new ones, or all.

        In a batch, tracks are moved by what the detector says of them.
        """
        clear = self._CLEAR_PART * self._sizes[0] * self._whole.frame_from_input.scale
        sides = (found.boxes[:, 2:] - found.boxes[:, :2]).max(axis=1)
        asked = range(len(found)) if known else self._tracker.unknown(found)
        unclear = [index for index in asked if sides[index] < clear and found.scores[index] > 0]
        return unclear[: self._settings.max_faces]

    def _seen(
        self,
        frames: Sequence[Frame],
        grids: Sequence[Reduced],
        views: Sequence[Sequence[View]],
        score: float,
    ) -> list[Detections]:
        """What the detector is that sure of in all views of all frames, in frame pixels."""
        asked = [
            (frame, grid, view)
            for frame, grid, seen in zip(frames, grids, views, strict=True)
            for view in seen
        ]
        size = self._sizes[0]
        answers = self._models.detect(asked) if asked else []
        return [
            weighted_nms(decode(*raw, size, score, self._anchors)).moved(view.frame_from_input)
            for raw, (_, _, view) in zip(answers, asked, strict=True)
        ]

    def _landmarks(
        self,
        frames: Sequence[Frame],
        grids: Sequence[Reduced],
        proposals: Sequence[Sequence[Proposal]],
    ) -> list[Raw]:
        asked = [
            (frame, grid, View(frame_from_roi(proposal.roi, self._sizes[1]), True))
            for frame, grid, proposed in zip(frames, grids, proposals, strict=True)
            for proposal in proposed
        ]
        return self._models.landmarks(asked) if asked else []

    def close(self) -> None:
        """Free the models."""
        self._models.close()


def _around(box: NDArray[np.float64], scale: float, size: int) -> View:
    """A square around a box, ``scale`` times its longer side."""
    side = float((box[2:] - box[:2]).max()) * scale
    x, y = (box[:2] + box[2:]) / 2 - side / 2
    return View(frame_from_tile(Tile(float(x), float(y), side), size), False)


class _CpuModel:
    """One network that is shown one view after the other: a batch of several takes as long."""

    def __init__(self, model: ResolvedModel, format: FrameFormat, threads: int) -> None:
        spec = model.spec
        self._network = CpuNetwork(model.path, network_shapes(spec, 1), threads=threads)
        self._tensor = self._network.inputs[spec.input][0]
        self._warper = CpuWarper(spec, format)

    def run(
        self, asked: Sequence[tuple[Frame, Reduced, View]], outputs: tuple[str, str]
    ) -> list[Raw]:
        answers = []
        for frame, grid, view in asked:
            self._warper.write(choose_source(frame, grid, view), view, self._tensor)
            self._network.run()
            first, second = (self._network.outputs[name][0].copy() for name in outputs)
            answers.append((first, second))
        return answers

    def close(self) -> None:
        self._network.close()


class _CpuModels:
    """Implements :class:`FaceModels` with ONNX Runtime on the CPU."""

    def __init__(
        self, detector: ResolvedModel, landmarker: ResolvedModel, format: FrameFormat, threads: int
    ) -> None:
        self._detector = _CpuModel(detector, format, threads)
        self._landmarker = _CpuModel(landmarker, format, threads)

    def detect(self, asked: Sequence[tuple[Frame, Reduced, View]]) -> list[Raw]:
        return self._detector.run(asked, ("boxes", "scores"))

    def landmarks(self, asked: Sequence[tuple[Frame, Reduced, View]]) -> list[Raw]:
        return self._landmarker.run(asked, ("landmarks", "presence"))

    def close(self) -> None:
        self._detector.close()
        self._landmarker.close()


class CpuFaceFinder(Closing):
    """Implements :class:`bgsoft.face.base.FaceFinder` on the CPU.

    Args:
        format: Format of the frames.
        settings: How to look; the defaults where left out.
        threads: Threads of each network.

    Raises:
        ModelError: A model's file is damaged.
    """

    device = "cpu"

    def __init__(
        self, format: FrameFormat, settings: FinderSettings | None = None, *, threads: int = 1
    ) -> None:
        detector = resolve(DETECTOR, ("face-detector",))
        landmarker = resolve(LANDMARKER, ("face-landmarks",))
        self._following = Following(
            format,
            _CpuModels(detector, landmarker, format, threads),
            settings or FinderSettings(),
            detector.spec.width,
            landmarker.spec.width,
        )

    def find(self, frame: Frame, reduced: Reduced) -> list[Face]:
        return self._following.find([frame], [reduced])[0]

    def reset(self) -> None:
        self._following.reset()

    def close(self) -> None:
        self._following.close()
