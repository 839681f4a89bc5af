"""What a segmenter is to the rest of bgsoft, and a family of models to what makes one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat
from bgsoft.infer.base import Driver, Wiring
from bgsoft.models.catalog import ModelSpec
from bgsoft.workers import Workers


class Segmenter(Protocol):
    """Makes the raw person mask of frames of one format."""

    name: str
    """Catalogue name of the model."""

    def start(self) -> None:
        """Run once, in the thread that will call :meth:`masks`, before the first frame."""
        ...

    def begin(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> None:
        """Start on frames that will be segmented next, if no scene ends among them.

        What is done for nothing then is no loss but of time. Arguments and errors are those of
        :meth:`masks`.
        """
        return

    def masks(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> Sequence[Array]:
        """Segment some frames of one scene, in order.

        Args:
            frames: The frames, on this segmenter's device.
            reduced: The same frames on the analysis frame.

        Returns:
            For each (h, w) float32 in [0, 1], 1 = person, at the model's own size, stretched over
            the whole frame; overwritten by the next call.

        Raises:
            InferenceError: The model failed; carries a frame's pts.
        """
        ...

    def reset(self) -> None:
        """Forget earlier frames (scene cut); nothing, where every frame stands alone."""
        return

    def refresh(self) -> None:
        """Decide anew what would else be kept for as long as it holds; seen by nobody."""
        return

    def close(self) -> None:
        """Free the model; safe to call twice."""
        ...


class Family(Protocol):
    """Models that are driven alike. Registered in :mod:`bgsoft.segment.families`."""

    in_order: bool
    """Frames have to be run one after another: the model remembers earlier ones."""
    makes_alpha: bool
    """Its masks are mattes of the frame's own size, which need no refining."""

    def wiring(self, spec: ModelSpec, format: FrameFormat, batch: int) -> Wiring:
        """How to load a model for frames of one format.

        Args:
            spec: The model's contract.
            format: Format of the frames.
            batch: Frames per run; 1 where they go in order.
        """
        ...

    def on_host(
        self, spec: ModelSpec, format: FrameFormat, driver: Driver, workers: Workers
    ) -> Segmenter:
        """The segmenter for frames on the host.

        Args:
            spec: The model's contract.
            format: Format of the frames.
            driver: Runs the model, wired so; its arrays are on the host. Closed with the segmenter.
            workers: A lane for each frame of a batch.

        Raises:
            ModelError: The model's output is not what the contract says.
        """
        ...

    def on_device(
        self, spec: ModelSpec, format: FrameFormat, driver: Driver, batch: int
    ) -> Segmenter:
        """The same for frames on a CUDA device, which is current.

        Args:
            spec: The model's contract.
            format: Format of the frames.
            driver: As for the host; its arrays are on the device.
            batch: Frames that come at a time, at most.
        """
        ...
