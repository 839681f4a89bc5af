"""Finding the faces of one frame after another: the detector now and then, landmarks always."""

from __future__ import annotations

from collections.abc import Sequence

from bgsoft.closing import Closing
from bgsoft.errors import InferenceError
from bgsoft.face.base import Face
from bgsoft.face.detect import Detections, merge
from bgsoft.face.networks import CpuFaceNetworks, FaceNetworks, resolve_detector
from bgsoft.face.search import FinderSettings, Searches
from bgsoft.face.track import Tracker
from bgsoft.face.warp import View
from bgsoft.frame import Frame, FrameFormat, Reduced

__all__ = ["CpuFaceFinder", "FinderSettings", "Following"]


class Following(Closing):
    """Finds faces frame by frame; on a device, :class:`bgsoft.face.together.Together` is faster.

    Args:
        format: Format of the frames.
        networks: Both networks; closed with it.
        settings: How to look.
    """

    def __init__(
        self, format: FrameFormat, networks: FaceNetworks, settings: FinderSettings
    ) -> None:
        self._networks = networks
        self._settings = settings
        self._searches = Searches(format, settings, resolve_detector().spec.width)
        self._tracker = Tracker(settings.max_faces)

    def reset(self) -> None:
        """End all tracks."""
        self._tracker.reset()
        self._searches.reset()

    def find(self, frame: Frame, grid: Reduced) -> list[Face]:
        """The faces of the next frame; see :class:`bgsoft.face.base.FaceFinder`."""
        try:
            return self._find(frame, grid)
        except InferenceError as exc:
            exc.stage, exc.pts = "face", frame.pts
            raise

    def _find(self, frame: Frame, grid: Reduced) -> list[Face]:
        views = self._searches.take(self._tracker.wants_detection)
        found = self._search(frame, grid, views) if views else None
        proposals = self._tracker.propose(found, self._settings.min_score)
        asked = [(frame, grid, proposal.roi) for proposal in proposals]
        meshes = self._networks.landmarks(asked)
        return self._tracker.update(proposals, meshes, frame.time_seconds)

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
        chosen = [*unclear[: self._settings.max_faces], *guesses]
        near = [(frame, grid, self._searches.near(found.boxes[index].tolist())) for index in chosen]
        looks = self._networks.detect(near, self._settings.min_score) if near else []
        return found.replaced(dict(zip(chosen, looks, strict=True)))

    def close(self) -> None:
        """Free the networks."""
        self._networks.close()


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
