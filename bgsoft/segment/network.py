"""Segmentation by one network, on the host or on a device: one run a frame.

Models that see a frame at a time are shown its analysis frame. Models that remember, as Robust
Video Matting does, take the whole frame and give its alpha, frame after frame in order; what they
remember stays where they run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from bgsoft.analysis.base import analysis_shape, detail_factor
from bgsoft.errors import ModelError
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat
from bgsoft.infer.base import Driver, Network
from bgsoft.models.catalog import ModelSpec
from bgsoft.models.families import REFINER
from bgsoft.ops.placement import HOST, Placement
from bgsoft.ops.resize import Resized
from bgsoft.segment.base import Segmenter
from bgsoft.segment.families import COARSE_INPUT, PROCESSING, Processing, runs_singly, with_size
from bgsoft.segment.masks import channels
from bgsoft.threads import LanePool


class NetworkSegmenter(Segmenter):
    """Runs a network on every frame that it is given.

    Args:
        spec: The model's contract.
        driver: Runs the network, wired as its family says; closed with the segmenter.
        format: Format of the frames.
        pool: Threads that prepare inputs and read outputs; one lane per frame.
        placement: Host or device of the frames.
        batch: Frames at a time on a device.
        on_notice: Called with a notice where a user's model makes no numbers of the first frame.

    Raises:
        ModelError: The network's output is not what the contract says.
    """

    def __init__(
        self,
        spec: ModelSpec,
        driver: Driver,
        format: FrameFormat,
        pool: LanePool | None = None,
        *,
        placement: Placement = HOST,
        batch: int = 1,
        on_notice: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self.name = spec.name
        self._placement, self._pool = placement, pool or LanePool()
        self.driver = driver
        self._spec = spec = with_size(spec, format)
        shape = channels(driver.network, spec).shape
        if spec.of_family.makes_alpha and shape[2:] != format.luma_shape:
            text = f"its output of shape {shape} does not have the size of the frame"
            raise ModelError(f"cannot use model {spec.name}: {text}")
        # The frame itself is shown where its reduction has less than the model takes. At 1080p the
        # masks of IS-Net, 1024×1024, are within 0.00015 of those that it makes of the frame reduced
        # with Lanczos (mean, IoU 0.9996); of 480×270, within 0.0007 (0.998).
        rows, columns = analysis_shape(
            format.width, format.height, detail_factor(format.width, format.height)
        )
        self._whole = spec.of_family.takes_frame or rows < spec.height or columns < spec.width
        self._lanes = lanes = 1 if runs_singly(spec) else self._pool.lanes
        code = PROCESSING.get(spec.family, Processing())
        self._preprocessors = [code.preprocessor(spec, format, placement) for _ in range(lanes)]
        self._to_masks = code.to_masks
        self.size = spec.height, spec.width
        """(rows, columns) of the input."""
        if spec.family == REFINER:
            self._resized = [Resized(placement, self.size, np.float32) for _ in range(lanes)]
            self._resize = placement.operation("zoom", "resize_mask")
        # Of the networks that run: each one's arrays stay what they are.
        self._raw: Callable[..., Array] = lru_cache(self._pool.lanes)(
            lambda network: channels(network, spec)
        )
        planes = max(batch, self._pool.lanes), *shape[2:]
        self._masks = placement.xp.zeros(planes, np.float32)
        """Masks of the frames of a batch."""
        self._planes: list[Array] = list(self._masks)
        self._on_notice = on_notice
        self._unproved = spec.checksum is None
        """It is a user's model, whose output has not been checked yet."""

    def start(self) -> None:
        self.driver.start()
        self.driver.reset()

    def masks(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> Sequence[Array]:
        return self.run(frames, self.shown(frames, reduced))

    def shown(
        self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]
    ) -> Sequence[AnalysisFrame]:
        """Return what the model is shown of whole frames."""
        if not self._whole:
            return reduced
        return [AnalysisFrame(1, frame.luma, frame.chroma) for frame in frames]

    def run(
        self,
        frames: Sequence[Frame],
        shown: Sequence[AnalysisFrame],
        coarse: Sequence[Array] | None = None,
    ) -> Sequence[Array]:
        """Return the masks of pictures, which may be parts of the frames.

        Args:
            frames: The frames; errors carry their pts.
            shown: A picture of each.
            coarse: For the refiner: the picture's mask, (rows, columns) float32 of any size.
        """
        spec, preprocessors, lanes = self._spec, self._preprocessors, self._lanes
        parts: list[slice | None] = [None] * len(frames)

        def write_one(network: Network, at: int, item: int) -> None:
            lane, inputs = at % lanes, network.inputs
            parts[at] = preprocessors[lane].write(shown[at], inputs[spec.input], item)
            if coarse is not None:
                given = self._resized[lane].arguments(coarse[at], self.size, area=None)
                self._resize(self.size, *given, inputs[COARSE_INPUT][item], *self.size)

        def write(network: Network, start: int, stop: int) -> None:
            if stop - start == 1:
                write_one(network, start, 0)
            else:
                self._pool.map(lambda _, at: write_one(network, at, at - start), range(start, stop))

        def read(network: Network, start: int, stop: int) -> None:
            raw, masks = self._raw(network)[: stop - start], self._masks[start:stop]
            if self._unproved and start == 0:
                self._unproved = False
                self._prove(raw[0, spec.output_channel])
            if stop - start == 1 or self._placement.on_device:  # there it is one launch
                self._to_masks(self._placement, raw, spec, masks)
            else:
                self._pool.map(
                    lambda _, one, mask: self._to_masks(self._placement, one, spec, mask),
                    raw[:, None],
                    masks[:, None],
                )

        self.driver.run(frames, write, read)
        masks = self._planes[: len(frames)]
        for index, part in enumerate(parts):
            if part is not None:  # the embedded models' masks are of the size of their input
                masks[index] = masks[index][part]
        return masks

    def _prove(self, raw: Array) -> None:
        """Once: to wait for a device costs too much for every frame."""
        if not np.isfinite(raw.get() if self._placement.on_device else raw).any():
            text = "has no finite number for the first frame: its mask is empty, or full"
            self._on_notice(f"the output of model {self.name} {text}")

    def reset(self) -> None:
        self.driver.reset()

    def close(self) -> None:
        self.driver.close()
