"""Backgrounds behind the people in a frame, as arguments of a kernel of ``blend.cu``.

Blurred gradients are so flat that rounding them to code values shows as bands; a fixed ordered
dither breaks these up.

Camera noise in a blurred picture becomes a slow wavering by fractions of a code value. It is
invisible, but the dither turns it into flickering grain, which costs an encoder bits and time. So a
cell keeps its value until it has changed by :data:`bgsoft.composite.plan.HOLD_STEPS`. On a 1080p
webcam clip this cut the encoder's work by a sixth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bgsoft.composite.plan import HOLD_STEPS, CellsPlan, dither_pattern
from bgsoft.frame import AnalysisFrame, Array, Frame, Matte
from bgsoft.ops.placement import Placement

RUN = 128
"""COLUMNS of ``blend.cu``: samples of a row that may be read together."""

CellFilter = Callable[[Frame, Matte, AnalysisFrame], None]
"""Fills the cells that it was made for, from a frame that is not composited yet."""


class Background:
    """The background of one frame at a time.

    Frames of a batch are processed in parallel, each by its own background; these share the state
    of earlier frames.

    Args:
        kernel: Name of a kernel in ``blend.cu``.
        arguments: Its arguments after those that describe the frame, the same for each.
    """

    notices: tuple[str, ...] = ()
    """Notices about it, for a user."""

    def __init__(self, kernel: str, *arguments: Any) -> None:
        self.kernel = kernel
        self.arguments = arguments

    def prepare(self, frame: Frame, matte: Matte, reduced: AnalysisFrame) -> None:
        """Prepare the next frame, in parallel to others; the frame itself is only read."""

    def advance(self, frame: Frame) -> None:
        """Apply the state of earlier frames; called in presentation order.

        Raises:
            DecodeError: A background video can no longer be read.
        """

    def refresh(self) -> None:
        """See :meth:`bgsoft.composite.compositor.PictureCompositor.refresh`."""

    def close(self) -> None:
        """Free resources; safe to call twice."""


class Hold:
    """The displayed values of a background's cells, from frame to frame."""

    def __init__(self, placement: Placement, plan: CellsPlan) -> None:
        self._launch = placement.operation("hold", "hold_cells", block=(256, 1, 1))
        self._steps = HOLD_STEPS[plan.format.bit_depth]
        self._last: Array | None = None
        self.fresh = True
        """Whether the next frame's cells are used unchanged."""

    def follow(self, cells: Array, shown: Array) -> None:
        """Update the displayed cells, in presentation order, where they differ enough.

        Args:
            cells: (n,) uint16.
            shown: (n,) uint16, written; may be the last displayed cells.
        """
        steps = 0 if self.fresh else self._steps
        last = shown if self._last is None else self._last
        self._launch((1, cells.size), cells, last, shown, cells.size, steps)
        self._last, self.fresh = shown, False


class CellsBackground(Background):
    """A background on 16-bit cells, which are enlarged bilinearly and dithered while blending.

    Args:
        placement: Device of the frames, or the host.
        plan: The cells.
        hold: Displayed cells, shared by the backgrounds of a batch; None: display all changes.
        make_filter: Makes the filter that fills the cells: (n,) uint16, planes one after another.
        kernel: Name of a kernel in ``blend.cu``.
    """

    def __init__(
        self,
        placement: Placement,
        plan: CellsPlan,
        hold: Hold | None,
        make_filter: Callable[[Array], CellFilter],
        kernel: str = "blend_grid",
    ) -> None:
        self._hold = hold
        self._cells = placement.xp.empty(plan.count, np.uint16)
        self._shown = placement.xp.empty_like(self._cells) if hold else self._cells
        self._filter = make_filter(self._cells)
        # At most 239, so bytes hold it.
        pattern = dither_pattern(plan.format).astype(np.uint8)
        pattern = np.pad(pattern, ((0, 0), (0, -pattern.shape[1] % RUN)))
        # One more cell on each side, and the reach of a run.
        pitch = plan.shapes[0][1] + 2 + RUN
        lines = placement.scratch((4, pitch), np.float32)
        logs = [scale.bit_length() - 1 for scale in plan.scales]
        numbers = (*plan.shapes[0], *plan.shapes[1], *logs, *plan.offsets, pattern.shape[1], pitch)
        super().__init__(
            kernel, placement.array(numbers, np.int32), self._shown, placement.array(pattern), lines
        )

    def prepare(self, frame: Frame, matte: Matte, reduced: AnalysisFrame) -> None:
        self._filter(frame, matte, reduced)

    def advance(self, frame: Frame) -> None:
        if self._hold:
            self._hold.follow(self._cells, self._shown)

    def refresh(self) -> None:
        if self._hold:
            self._hold.fresh = True
