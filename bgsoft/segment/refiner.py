"""Refining of masks: a network finds the edge of the people whom a coarse mask shows.

The network was trained for this (``docs/models.md``). It sees a crop of the frame and the coarse
mask of that crop. The result is averaged with the coarse mask: over 81 photographs the mean of both
is better than either (``docs/training.md``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat
from bgsoft.infer.base import Driver, Network
from bgsoft.models.catalog import ModelSpec
from bgsoft.ops.placement import HOST, Placement
from bgsoft.ops.resize import Resized
from bgsoft.segment.families import COARSE_INPUT
from bgsoft.segment.preprocess import Preprocessor
from bgsoft.threads import LanePool


class MaskRefiner:
    """Runs the refiner on crops of frames of one format.

    Args:
        spec: The refiner's contract.
        driver: Runs the network; closed with the refiner.
        format: Format of the frames.
        pool: Threads that prepare the inputs; one lane per frame.
        placement: Host or device of the frames and masks.
        batch: Frames at a time on a device.
    """

    def __init__(
        self,
        spec: ModelSpec,
        driver: Driver,
        format: FrameFormat,
        pool: LanePool,
        *,
        placement: Placement = HOST,
        batch: int = 1,
    ) -> None:
        self.size = spec.height, spec.width
        """(rows, columns) of its input and of its masks."""
        self._spec, self._driver, self._pool = spec, driver, pool
        lanes = range(pool.lanes)
        self._preprocessors = [Preprocessor(spec, format, placement) for _ in lanes]
        self._resized = [Resized(placement, self.size, np.float32) for _ in lanes]
        self._resize = placement.operation("zoom", "resize_mask")
        self._masks = placement.xp.zeros((max(batch, pool.lanes), *self.size), np.float32)

    def start(self) -> None:
        """Run once, before the first frame."""
        self._driver.start()

    def run(
        self, frames: Sequence[Frame], crops: Sequence[AnalysisFrame], coarse: Sequence[Array]
    ) -> Sequence[Array]:
        """Refine the masks of crops.

        Args:
            frames: The frames; errors carry their pts.
            crops: A part of each.
            coarse: Its mask: (rows, columns) float32 in [0, 1], of any size.

        Returns:
            For each (h, w) float32 in [0, 1], stretched over the crop; overwritten by the next
            call.

        Raises:
            InferenceError: The model failed; carries a frame's pts.
        """
        lanes = self._pool.lanes

        def write_one(network: Network, at: int, item: int) -> None:
            lane = at % lanes
            self._preprocessors[lane].write(crops[at], network.inputs[self._spec.input], item)
            arguments = self._resized[lane].arguments(coarse[at], self.size, area=None)
            target = network.inputs[COARSE_INPUT][item, 0]
            self._resize(self.size, *arguments, target, *self.size)

        def write(network: Network, start: int, stop: int) -> None:
            if stop - start == 1:
                write_one(network, start, 0)
            else:
                self._pool.map(
                    lambda _lane, at: write_one(network, at, at - start), range(start, stop)
                )

        def read(network: Network, start: int, stop: int) -> None:
            self._masks[start:stop] = network.outputs[self._spec.output][: stop - start, 0]

        self._driver.run(frames, write, read)
        return [*self._masks[: len(frames)]]

    def close(self) -> None:
        """Free the model; safe to call twice."""
        self._driver.close()
