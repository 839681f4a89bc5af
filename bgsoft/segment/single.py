"""Segmentation by models that look at one frame at a time, on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bgsoft.errors import InferenceError, ModelError
from bgsoft.frame import Frame, FrameFormat, Reduced
from bgsoft.infer.base import Network
from bgsoft.models.catalog import ModelSpec
from bgsoft.segment.preprocess import CpuPreprocessor

__all__ = ["SingleShotSegmenter", "network_shapes"]

_MAX_LOGIT = 60.0
"""Beyond it the sigmoid is 0 or 1 in float32 anyway, and its exponential would overflow."""


def network_shapes(spec: ModelSpec, batch: int = 1) -> dict[str, tuple[int, ...]]:
    """The input shapes to load a model of one image input with.

    Args:
        spec: The model.
        batch: Frames per run.

    Returns:
        One entry, for the image input.
    """
    if spec.layout == "NCHW":
        return {spec.input: (batch, 3, spec.height, spec.width)}
    return {spec.input: (batch, spec.height, spec.width, 3)}


class SingleShotSegmenter:
    """Runs a :class:`Network` on every frame it is given.

    Args:
        spec: The model's contract.
        network: The model, loaded with :func:`network_shapes`.
        format: Format of the frames.

    Raises:
        ModelError: The network's output is not what the contract says.
    """

    def __init__(self, spec: ModelSpec, network: Network, format: FrameFormat) -> None:
        self.name = spec.name
        self._network = network
        self._preprocessor = CpuPreprocessor(spec, format)
        self._tensor = network.inputs[spec.input][0]
        output = network.outputs.get(spec.output)
        if output is None:
            raise ModelError(
                f"model {spec.name} has no output {spec.output!r}, only "
                f"{', '.join(network.outputs)}"
            )
        self._channels = _channels_first(output, spec)
        self._channel = spec.output_channel
        if not 0 <= self._channel < self._channels.shape[0]:
            raise ModelError(f"model {spec.name} has no output channel {self._channel}")
        self._activation = spec.activation
        self._mask = np.empty(self._channels.shape[1:], np.float32)

    def start(self) -> None:
        self._network.run()

    def mask(self, frame: Frame, reduced: Reduced) -> NDArray[np.float32]:
        self._preprocessor.write(reduced, self._tensor)
        try:
            self._network.run()
        except InferenceError as exc:
            exc.pts = frame.pts
            raise
        raw = self._channels[self._channel]
        if self._activation == "sigmoid":
            np.clip(raw, -_MAX_LOGIT, _MAX_LOGIT, out=self._mask, casting="unsafe")
            np.negative(self._mask, out=self._mask)
            np.exp(self._mask, out=self._mask)
            self._mask += 1.0
            np.reciprocal(self._mask, out=self._mask)
        elif self._activation == "softmax":
            shifted = np.exp(self._channels - self._channels.max(axis=0))
            np.divide(shifted[self._channel], shifted.sum(axis=0), out=self._mask)
        else:
            np.copyto(self._mask, raw, casting="unsafe")
        np.nan_to_num(self._mask, copy=False, nan=0.0, posinf=1.0, neginf=0.0)
        np.clip(self._mask, 0.0, 1.0, out=self._mask)
        return self._mask

    def reset(self) -> None:
        """Nothing to forget: every frame stands alone."""

    def close(self) -> None:
        self._network.close()


def _channels_first(output: NDArray[Any], spec: ModelSpec) -> NDArray[Any]:
    """View (C, h, w) of the first item of a batched output, whichever its layout."""
    item: NDArray[Any] = output[0]
    if item.ndim == 2:
        return item[None]
    if item.ndim != 3:
        raise ModelError(f"model {spec.name}: output of shape {output.shape} is no mask")
    # Masks are small planes of one or two channels: the short axis is the channel axis.
    return item if item.shape[0] <= item.shape[-1] else np.moveaxis(item, -1, 0)
