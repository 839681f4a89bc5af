"""What finding faces frame by frame and in batches share: networks, searches and tracks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bgsoft.closing import Closing
from bgsoft.errors import InferenceError
from bgsoft.face.networks import FaceNetworks, resolve_detector
from bgsoft.face.search import PATIENCE, FinderSettings, Searches
from bgsoft.face.track import Tracker
from bgsoft.frame import Frame, FrameFormat

__all__ = ["Finding"]


class Finding(Closing):
    """The state of one finder.

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
        # Where every frame is searched nothing is to be missed, whatever it costs.
        self._patience = PATIENCE if settings.detect_every > 1 else 0

    def start(self) -> None:
        """Run both networks once, in the thread that will use them."""
        self._networks.start()

    def reset(self) -> None:
        """End all tracks."""
        self._tracker.reset()
        self._searches.reset()

    @contextmanager
    def _faults_at(self, frame: Frame) -> Iterator[None]:
        """Faults inside name the stage and this frame."""
        try:
            yield
        except InferenceError as exc:
            exc.stage, exc.pts = "face", frame.pts
            raise

    def close(self) -> None:
        """Free the networks."""
        self._networks.close()
