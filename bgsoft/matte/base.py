"""What a matte stage is to the rest of bgsoft."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from bgsoft.frame import AnalysisFrame, Array, Frame, Matte


class MatteStage(ABC):
    """Turns raw masks into mattes for frames of one format; holds the state between frames."""

    _has_mask = False

    def refine(
        self, masks: Sequence[Array | None], frames: Sequence[Frame], grids: Sequence[AnalysisFrame]
    ) -> list[Matte]:
        """Make the mattes of consecutive frames of one scene.

        Args:
            masks: For each frame (h, w) float32 in [0, 1], the model's raw mask; None where it
                was not segmented and the last mask holds.
            frames: The frames; their alpha planes are written.
            grids: The same frames on the analysis frame.

        Returns:
            The mattes, whose planes may be changed: the next call goes on from others. Overwritten
            when the slot is reused or by the next call.

        Raises:
            ValueError: A mask is None on the first frame after construction or reset.
        """
        if masks[0] is None and not self._has_mask:
            raise ValueError("no mask to hold: the first frame must be segmented")
        mattes = self._refine(masks, frames, grids)
        self._has_mask = True
        return mattes

    @abstractmethod
    def _refine(
        self, masks: Sequence[Array | None], frames: Sequence[Frame], grids: Sequence[AnalysisFrame]
    ) -> list[Matte]:
        """The same, once there is a mask for the first frame or one from before."""

    def reset(self) -> None:
        """Forget earlier frames (scene cut)."""
        self._has_mask = False


class DirectMatte(MatteStage):
    """The matte of a model that makes one itself, at the frame's size.

    Nothing is smoothed, fitted or filled: such a model has looked at the whole picture and at the
    frames before it. Only what moves the edge on purpose is done: expansion, then feather. A held
    frame gets the last matte unchanged.

    Args:
        reduced: For each frame of a batch a (gh, gw) uint8 plane, for its matte on the grid.
        last: Two planes more, of the frame's and of the grid's shape: faces may change what is
            given out, so what a held mask goes on from is kept apart.
    """

    def __init__(self, reduced: Sequence[Array], last: tuple[Array, Array]) -> None:
        self._reduced = reduced
        self._last = last

    def _refine(
        self, masks: Sequence[Array | None], frames: Sequence[Frame], grids: Sequence[AnalysisFrame]
    ) -> list[Matte]:
        mattes = [
            Matte(alpha=frame.planes.alpha, reduced=reduced, held=mask is None)
            for mask, frame, reduced in zip(masks, frames, self._reduced, strict=False)
        ]
        self._make(masks, mattes)
        before = self._last
        for matte in mattes:
            if matte.held:
                self._copy(before, (matte.alpha, matte.reduced))
            before = (matte.alpha, matte.reduced)
        self._copy(before, self._last)
        return mattes

    @abstractmethod
    def _make(self, masks: Sequence[Array | None], mattes: Sequence[Matte]) -> None:
        """Write the mattes of those frames that have a mask: (H, W) float32."""

    @abstractmethod
    def _copy(self, source: tuple[Array, Array], target: tuple[Array, Array]) -> None:
        """Copy a matte and that on the grid."""
