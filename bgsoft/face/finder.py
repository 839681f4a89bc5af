"""Finding the faces of one frame after another: the detector now and then, landmarks always."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bgsoft.face.base import Face
from bgsoft.face.detect import Detections, Sighting, merge
from bgsoft.face.finding import Finding
from bgsoft.face.geometry import overlap
from bgsoft.face.networks import CpuFaceNetworks, FaceNetworks
from bgsoft.face.search import SURE_SCORE, FinderSettings
from bgsoft.face.track import MIN_MATCH
from bgsoft.face.warp import View
from bgsoft.frame import Frame, FrameFormat, Reduced

__all__ = ["CpuFaceFinder", "FinderSettings", "Following"]


class Following(Finding):
    """Finds faces frame by frame; on a device, :class:`bgsoft.face.together.Together` is faster.

    Args:
        format: Format of the frames.
        networks: Both networks; closed with it.
        settings: How to look.
    """

    def __init__(
        self, format: FrameFormat, networks: FaceNetworks, settings: FinderSettings
    ) -> None:
        super().__init__(format, networks, settings)
        self._refused: list[tuple[NDArray[np.float64], int]] = []
        """Boxes in the last search that were no faces from near, and in how many they were."""

    def reset(self) -> None:
        """End all tracks."""
        super().reset()
        self._refused = []

    def find(self, frames: Sequence[Frame], grids: Sequence[Reduced]) -> list[list[Face]]:
        """See :meth:`bgsoft.face.base.FaceFinder.find`."""
        found = []
        for frame, grid in zip(frames, grids, strict=True):
            with self._faults_at(frame):
                found.append(self._find(frame, grid))
        return found

    def _find(self, frame: Frame, grid: Reduced) -> list[Face]:
        views = self._searches.take(self._tracker.wants_detection)
        found = self._search(frame, grid, views) if views else None
        proposals = self._tracker.propose(found, self._settings.min_score)
        proposals, resting = self._tracker.parted(proposals, self._settings.rest_every)
        asked = [(frame, grid, proposal.roi) for proposal in proposals]
        meshes = self._networks.landmarks(asked)
        return self._tracker.update(proposals, meshes, frame.time_seconds, resting)

    def _search(self, frame: Frame, grid: Reduced, views: Sequence[View]) -> Detections:
        """Look at the frame, and once more from near at what is not clear."""
        score = self._settings.min_first_score
        found = merge(self._networks.detect([(frame, grid, view) for view in views], score))
        # What the last frame had and the detector does not see is looked for from near, too.
        lost = self._tracker.unseen(found)
        found = found.with_guesses(lost)
        guesses = range(len(found) - len(lost), len(found))
        sides = (found.boxes[:, 2:] - found.boxes[:, :2]).max(axis=1)
        unclear = [
            index
            for index in self._tracker.unknown(found)
            if sides[index] < self._searches.clear_side and found.scores[index] > 0
        ]
        times = {index: self._times_refused(found.at(index)) for index in unclear}
        refused = [index for index in unclear if 0 < times[index] <= self._patience]
        unclear = [index for index in unclear if index not in refused]
        chosen = [*unclear[: self._settings.max_faces], *guesses]
        near = [(frame, grid, self._searches.near(found.boxes[index].tolist())) for index in chosen]
        looks = self._networks.detect(near, self._settings.min_score) if near else []
        seen = dict(zip(chosen, looks, strict=True)) | dict.fromkeys(refused, Detections.none())
        wrong = [index for index in unclear if index in seen and not len(seen[index])]
        self._refused = [(found.boxes[index], 1) for index in wrong]
        self._refused += [(found.boxes[index], times[index] + 1) for index in refused]
        return found.replaced(seen)

    def _times_refused(self, sighting: Sighting) -> int:
        """In how many searches on end something there was no face; 0 where it looks like one."""
        if sighting.score >= SURE_SCORE:
            return 0
        for box, times in self._refused:
            if overlap(box[None], sighting.box)[0] > MIN_MATCH:
                return times
        return 0


class CpuFaceFinder(Following):
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
        super().__init__(format, CpuFaceNetworks(format, threads), settings or FinderSettings())
