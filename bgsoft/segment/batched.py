"""Segmentation on a CUDA device by models that look at one frame at a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import cupy
import numpy as np

from bgsoft.errors import ModelError
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat
from bgsoft.infer.base import Driver, Network
from bgsoft.models.catalog import ModelSpec
from bgsoft.segment.base import Segmenter
from bgsoft.segment.cuda import CudaPreprocessor
from bgsoft.segment.single import STRETCHED_FROM, seen_by


class BatchedSegmenter(Segmenter):
    """Masks of the frames of a batch, in as few runs as the driver makes of them.

    Args:
        spec: The model's contract.
        driver: Runs the network, its arrays on the device.
        format: Format of the frames.
        batch: Frames at a time.

    Raises:
        ModelError: The network's output is not what the contract says.
    """

    def __init__(self, spec: ModelSpec, driver: Driver, format: FrameFormat, batch: int) -> None:
        self.name = spec.name
        self._spec = spec
        self._format = format
        self._driver = driver
        self._preprocessor: CudaPreprocessor | None = None
        output = _output(driver.network, spec)
        self._masks = cupy.zeros((batch, *output.shape[2:]), np.float32)

    def start(self) -> None:
        self._driver.start()

    def masks(
        self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame], *, mirrored: bool = False
    ) -> list[Array]:
        """See :meth:`bgsoft.segment.single.SingleShotSegmenter.masks`."""
        seen = seen_by(self._spec, self._format, frames, reduced)
        self._driver.run(frames, partial(self._write, seen, mirrored), self._read)
        masks = self._masks[: len(frames)]
        if mirrored:
            masks[...] = masks[..., ::-1].copy()
        return list(masks)

    def _write(
        self,
        reduced: Sequence[AnalysisFrame],
        mirrored: bool,
        network: Network,
        start: int,
        stop: int,
    ) -> None:
        tensor = network.inputs[self._spec.input]
        preprocessor = self._preprocessor
        if preprocessor is None or preprocessor.shape != tensor.shape:
            preprocessor = CudaPreprocessor(self._spec, self._format, tensor.shape[0])
            self._preprocessor = preprocessor
        for item, grid in enumerate(reduced[start:stop]):
            preprocessor.write(grid, tensor, item)
        if mirrored:
            pictures = tensor if self._spec.layout == "NCHW" else tensor.swapaxes(2, 3)
            pictures[...] = pictures[..., ::-1].copy()

    def _read(self, network: Network, start: int, stop: int) -> None:
        raw = _output(network, self._spec)[: stop - start]
        to_masks(raw, self._spec, self._masks[start:stop])

    def close(self) -> None:
        self._driver.close()


def _output(network: Network, spec: ModelSpec) -> Array:
    """(B, C, h, w) view of the raw output, whichever its layout."""
    raw = network.outputs.get(spec.output)
    if raw is None:
        raise ModelError(f"model {spec.name} has no output {spec.output!r}")
    if raw.ndim == 3:
        raw = raw[:, None]
    if raw.ndim != 4:
        raise ModelError(f"model {spec.name}: output of shape {raw.shape} is no mask")
    # Masks have one or two channels: the short axis is the channel axis.
    channels = raw if raw.shape[1] <= raw.shape[-1] else cupy.moveaxis(raw, -1, 1)
    if spec.output_channel >= channels.shape[1]:
        raise ModelError(f"model {spec.name} has no output channel {spec.output_channel}")
    return channels


_limited = cupy.ElementwiseKernel(
    "T raw", "float32 mask", "mask = raw > T(0) ? min(float(raw), 1.0f) : 0.0f", "limit_mask"
)
"""NaN is greater than nothing, so it becomes 0."""

_stretched = cupy.ElementwiseKernel(
    "float32 raw, float32 least, float32 most",
    "float32 mask",
    "mask = __saturatef((raw - least) / (most - least))",
    "stretch_mask",
)


def to_masks(raw: Array, spec: ModelSpec, masks: Array) -> None:
    """Turn (n, C, h, w) raw outputs into (n, h, w) masks in [0, 1]."""
    person = raw[:, spec.output_channel]
    if spec.activation == "sigmoid":
        person = 1.0 / (1.0 + cupy.exp(-cupy.clip(person, -60.0, 60.0)))
    elif spec.activation == "softmax":
        shifted = cupy.exp(raw - raw.max(axis=1, keepdims=True))
        person = shifted[:, spec.output_channel] / shifted.sum(axis=1)
    _limited(person, masks)
    if spec.stretch == "min-max":
        low, high = STRETCHED_FROM
        least = cupy.minimum(masks.min(axis=(1, 2), keepdims=True), np.float32(low))
        most = cupy.maximum(masks.max(axis=(1, 2), keepdims=True), np.float32(high))
        _stretched(masks, least, most, masks)
