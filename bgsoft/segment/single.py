"""Segmentation by models that look at one frame at a time, on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bgsoft.errors import InferenceError, ModelError
from bgsoft.frame import Array, Frame, FrameFormat, Reduced
from bgsoft.infer.base import Network
from bgsoft.models.catalog import ModelSpec
from bgsoft.segment.preprocess import CpuPreprocessor
from bgsoft.workers import Workers

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
    """Runs a network on every frame it is given, those of a batch side by side.

    Args:
        spec: The model's contract.
        networks: The model, loaded with :func:`network_shapes`: one for each lane of the workers,
            or a single one that takes a frame for each lane in one run.
        format: Format of the frames.
        workers: What runs them.

    Raises:
        ModelError: The network's output is not what the contract says.
    """

    def __init__(
        self,
        spec: ModelSpec,
        networks: Sequence[Network],
        format: FrameFormat,
        workers: Workers | None = None,
    ) -> None:
        self.name = spec.name
        self._workers = workers or Workers()
        self._networks = networks
        self._together = len(networks) < self._workers.lanes
        self._lanes = [
            _Lane(spec, networks[0], lane, format)
            if self._together
            else _Lane(spec, networks[lane], 0, format)
            for lane in range(self._workers.lanes)
        ]

    def start(self) -> None:
        self._networks[0].run()

    def masks(self, frames: Sequence[Frame], grids: Sequence[Reduced]) -> list[Array]:
        """See :meth:`bgsoft.segment.base.Segmenter.masks`."""
        if not self._together:
            return self._workers.map(self._mask, frames, grids)
        self._workers.map(self._write, grids)
        _run(self._networks[0], frames[0])
        return self._workers.map(self._read, frames)

    def _mask(self, index: int, frame: Frame, grid: Reduced) -> Array:
        self._lanes[index].write(grid)
        _run(self._networks[index], frame)
        return self._lanes[index].read()

    def _write(self, index: int, grid: Reduced) -> None:
        self._lanes[index].write(grid)

    def _read(self, index: int, _frame: Frame) -> Array:
        return self._lanes[index].read()

    def reset(self) -> None:
        """Nothing to forget: every frame stands alone."""

    def close(self) -> None:
        for network in self._networks:
            network.close()


def _run(network: Network, frame: Frame) -> None:
    try:
        network.run()
    except InferenceError as exc:
        exc.pts = frame.pts
        raise


class _Lane:
    """What fills a network's input with one frame, and what reads its output."""

    def __init__(self, spec: ModelSpec, network: Network, item: int, format: FrameFormat) -> None:
        self._preprocessor = CpuPreprocessor(spec, format)
        self._tensor = network.inputs[spec.input][item]
        output = network.outputs.get(spec.output)
        if output is None:
            raise ModelError(
                f"model {spec.name} has no output {spec.output!r}, only "
                f"{', '.join(network.outputs)}"
            )
        self._channels = _channels_first(output[item], spec)
        self._channel = spec.output_channel
        if not 0 <= self._channel < self._channels.shape[0]:
            raise ModelError(f"model {spec.name} has no output channel {self._channel}")
        self._activation = spec.activation
        self._mask = np.empty(self._channels.shape[1:], np.float32)

    def write(self, grid: Reduced) -> None:
        self._preprocessor.write(grid, self._tensor)

    def read(self) -> NDArray[np.float32]:
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


def _channels_first(item: NDArray[Any], spec: ModelSpec) -> NDArray[Any]:
    """View (C, h, w) of one item of a batched output, whichever its layout."""
    if item.ndim == 2:
        return item[None]
    if item.ndim != 3:
        raise ModelError(f"model {spec.name}: output of shape {item.shape} is no mask")
    # Masks are small planes of one or two channels: the short axis is the channel axis.
    return item if item.shape[0] <= item.shape[-1] else np.moveaxis(item, -1, 0)
