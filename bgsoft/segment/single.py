"""Segmentation by models that look at one frame at a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.base import analysis_shape, detail_factor
from bgsoft.errors import ModelError
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat
from bgsoft.infer.base import Driver, Network, Wiring
from bgsoft.models.catalog import ModelSpec
from bgsoft.segment.base import Family, Segmenter
from bgsoft.segment.preprocess import CpuPreprocessor
from bgsoft.workers import Workers

_MAX_LOGIT = 60.0
"""Beyond it the sigmoid is 0 or 1 in float32 anyway, and its exponential would overflow."""
STRETCHED_FROM = (0.25, 0.5)
"""``stretch = "min-max"`` takes the least and the greatest probability of a frame to 0 and 1, as is
done with photographs. But no more than the first and no less than the second: where nobody is to be
seen, noise would become people; where nothing but a person is, the person would vanish."""


def network_shapes(spec: ModelSpec, batch: int = 1) -> dict[str, tuple[int, ...]]:
    """The input shapes to load a model of one image input with.

    Args:
        spec: The model.
        batch: Frames per run, where the model takes any number.

    Returns:
        One entry, for the image input.
    """
    return {spec.input: spec.input_shape(batch)}


def seen_by(
    spec: ModelSpec, format: FrameFormat, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]
) -> Sequence[AnalysisFrame]:
    """What a model is shown: the reduced, or the frames where a grid has less than the model takes.

    At 1080p the masks of IS-Net, 1024×1024, are within 0.00015 of those that it makes of the frame
    reduced with Lanczos (mean, IoU 0.9996); of a grid of 480×270, within 0.0007 (0.998).
    """
    rows, columns = analysis_shape(
        format.width, format.height, detail_factor(format.width, format.height)
    )
    if rows >= spec.height and columns >= spec.width:
        return reduced
    return [AnalysisFrame(1, frame.luma, frame.chroma) for frame in frames]


class SingleShotSegmenter(Segmenter):
    """Runs a network on every frame it is given; what surrounds it is done side by side.

    Args:
        spec: The model's contract.
        driver: Runs the network, loaded with :func:`network_shapes`, its arrays on the host.
        format: Format of the frames.
        workers: What prepares and reads; a lane a frame.

    Raises:
        ModelError: The network's output is not what the contract says.
    """

    def __init__(
        self, spec: ModelSpec, driver: Driver, format: FrameFormat, workers: Workers | None = None
    ) -> None:
        self.name = spec.name
        self._spec = spec
        self._format = format
        self._driver = driver
        self._workers = workers or Workers()
        lanes = range(self._workers.lanes)
        self._preprocessors = [CpuPreprocessor(spec, format) for _ in lanes]
        shape = _channels(driver.network, spec, 0).shape[1:]
        self._masks = [np.empty(shape, np.float32) for _ in lanes]

    def start(self) -> None:
        self._driver.start()

    def masks(
        self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame], *, mirrored: bool = False
    ) -> list[Array]:
        """See :meth:`bgsoft.segment.base.Segmenter.masks`.

        Args:
            frames: For messages.
            reduced: What is looked at.
            mirrored: Show it to the model from left to right; masks are as without.
        """
        seen = seen_by(self._spec, self._format, frames, reduced)
        self._driver.run(frames, partial(self._write, seen, mirrored), self._read)
        masks = self._masks[: len(frames)]
        if mirrored:
            self._workers.map(lambda _lane, mask: _mirror(mask), masks)
        return masks

    def _write(
        self,
        reduced: Sequence[AnalysisFrame],
        mirrored: bool,
        network: Network,
        start: int,
        stop: int,
    ) -> None:
        tensor = network.inputs[self._spec.input]

        def write(item: int, index: int) -> None:
            self._preprocessors[index].write(reduced[index], tensor[item])
            if mirrored:
                _mirror(
                    tensor[item] if self._spec.layout == "NCHW" else tensor[item].swapaxes(1, 2)
                )

        self._workers.map(write, range(start, stop))

    def _read(self, network: Network, start: int, stop: int) -> None:
        def read(item: int, index: int) -> None:
            to_mask(_channels(network, self._spec, item), self._spec, self._masks[index])

        self._workers.map(read, range(start, stop))

    def close(self) -> None:
        self._driver.close()


def _mirror(array: NDArray[Any]) -> None:
    """Turn the last axis round, in place."""
    array[...] = array[..., ::-1].copy()


def _channels(network: Network, spec: ModelSpec, item: int) -> NDArray[Any]:
    """View (C, h, w) of one item of the model's main output; raises ModelError if it is no mask."""
    output = network.outputs.get(spec.output)
    if output is None:
        raise ModelError(
            f"model {spec.name} has no output {spec.output!r}, only {', '.join(network.outputs)}"
        )
    channels = _channels_first(output[item], spec)
    if not 0 <= spec.output_channel < channels.shape[0]:
        raise ModelError(f"model {spec.name} has no output channel {spec.output_channel}")
    return channels


def to_mask(channels: NDArray[Any], spec: ModelSpec, mask: NDArray[np.float32]) -> None:
    """Write the person's probability.

    Args:
        channels: (C, h, w), a model's raw output.
        spec: Says which channel is the person, and what its values are.
        mask: (h, w) float32; filled with values in [0, 1].
    """
    raw = channels[spec.output_channel]
    if spec.activation == "sigmoid":
        np.clip(raw, -_MAX_LOGIT, _MAX_LOGIT, out=mask, casting="unsafe")
        np.negative(mask, out=mask)
        np.exp(mask, out=mask)
        mask += 1.0
        np.reciprocal(mask, out=mask)
    elif spec.activation == "softmax":
        shifted = np.exp(channels - channels.max(axis=0))
        np.divide(shifted[spec.output_channel], shifted.sum(axis=0), out=mask)
    else:
        np.copyto(mask, raw, casting="unsafe")
    # What is no number becomes 0.
    np.fmax(mask, np.float32(0.0), out=mask)
    np.fmin(mask, np.float32(1.0), out=mask)
    if spec.stretch == "min-max":
        low, high = STRETCHED_FROM
        least, most = min(float(mask.min()), low), max(float(mask.max()), high)
        mask -= np.float32(least)
        mask *= np.float32(1.0 / (most - least))
        np.clip(mask, 0.0, 1.0, out=mask)


def _channels_first(item: NDArray[Any], spec: ModelSpec) -> NDArray[Any]:
    """View (C, h, w) of one item of a batched output, whichever its layout."""
    if item.ndim == 2:
        return item[None]
    if item.ndim != 3:
        raise ModelError(f"model {spec.name}: output of shape {item.shape} is no mask")
    # Masks are small planes of one or two channels: the short axis is the channel axis.
    return item if item.shape[0] <= item.shape[-1] else np.moveaxis(item, -1, 0)


class _SingleShot(Family):
    in_order = False
    makes_alpha = False

    def wiring(self, spec: ModelSpec, format: FrameFormat, batch: int) -> Wiring:
        return Wiring(inputs=network_shapes(spec, batch), outputs=(spec.output,))

    def on_host(
        self, spec: ModelSpec, format: FrameFormat, driver: Driver, workers: Workers
    ) -> Segmenter:
        return SingleShotSegmenter(spec, driver, format, workers)

    def on_device(
        self, spec: ModelSpec, format: FrameFormat, driver: Driver, batch: int
    ) -> Segmenter:
        from bgsoft.segment.batched import BatchedSegmenter

        return BatchedSegmenter(spec, driver, format, batch)


SINGLE_SHOT = _SingleShot()
