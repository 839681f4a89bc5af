"""Segmentation by one network, on the host or on a device: one run a frame.

Models that see a frame at a time are shown its analysis frame. Models that remember, as Robust
Video Matting does, take the whole frame and give its alpha, frame after frame in order; what they
remember stays where they run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import numpy as np

from bgsoft.analysis.base import analysis_shape, detail_factor
from bgsoft.errors import ModelError
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat
from bgsoft.infer.base import Driver, Network
from bgsoft.models.catalog import ModelSpec
from bgsoft.ops.placement import HOST, Placement
from bgsoft.segment.base import Segmenter
from bgsoft.segment.families import FAMILIES
from bgsoft.segment.preprocess import Preprocessor
from bgsoft.workers import Workers

_MAX_LOGIT = 60.0
"""Beyond it the sigmoid is 0 or 1 in float32 anyway, and its exponential would overflow."""
_STRETCHED_FROM = (0.25, 0.5)
"""``stretch = "min-max"`` takes the least and the greatest probability of a frame to 0 and 1, as is
done with photographs. But no more than the first and no less than the second: where nobody is to be
seen, noise would become people; where nothing but a person is, the person would vanish."""


class NetworkSegmenter(Segmenter):
    """Runs a network on every frame that it is given.

    Args:
        spec: The model's contract.
        driver: Runs the network, wired as its family says; closed with the segmenter.
        format: Format of the frames.
        workers: What prepares and reads; a lane a frame.
        placement: Where the frames are.
        batch: Frames at a time on a device.
        tell: Called with a notice where a user's model makes no numbers of the first frame.

    Raises:
        ModelError: The network's output is not what the contract says.
    """

    def __init__(
        self,
        spec: ModelSpec,
        driver: Driver,
        format: FrameFormat,
        workers: Workers | None = None,
        *,
        placement: Placement = HOST,
        batch: int = 1,
        tell: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self.name = spec.name
        self._placement, self._workers = placement, workers or Workers()
        self._driver = driver
        makes_alpha = FAMILIES[spec.family].makes_alpha
        shape = channels(driver.network, spec).shape
        self._mask_shape = shape[2:]
        if makes_alpha:
            spec = replace(spec, width=format.width, height=format.height)
            if self._mask_shape != format.luma_shape:
                raise ModelError(
                    f"model {spec.name}: output of shape {shape} is no alpha of the frame"
                )
        self._spec = spec
        """With the size of what the network is shown."""
        # The frame itself is shown where its reduction has less than the model takes. At 1080p the
        # masks of IS-Net, 1024×1024, are within 0.00015 of those that it makes of the frame reduced
        # with Lanczos (mean, IoU 0.9996); of 480×270, within 0.0007 (0.998).
        rows, columns = analysis_shape(
            format.width, format.height, detail_factor(format.width, format.height)
        )
        self._whole = makes_alpha or rows < spec.height or columns < spec.width
        self._lanes = lanes = 1 if runs_singly(spec) else self._workers.lanes
        self._preprocessors = [Preprocessor(self._spec, format, placement) for _ in range(lanes)]
        # Of the networks that run: each one's arrays stay what they are.
        self._raw: Callable[..., Array] = lru_cache(self._workers.lanes)(
            lambda network: channels(network, spec)
        )
        planes = max(batch, self._workers.lanes), *self._mask_shape
        self._masks = placement.xp.zeros(planes, np.float32)
        """Masks of the frames of a batch."""
        self._planes: list[Array] = list(self._masks)
        self._tell = tell
        self._unproved = spec.checksum is None
        """It is a user's model, whose output nobody has looked at yet."""

    def start(self) -> None:
        self._driver.start()
        self._driver.reset()

    def masks(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> Sequence[Array]:
        return self.run(frames, self.shown(frames, reduced))

    def shown(
        self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]
    ) -> Sequence[AnalysisFrame]:
        """Return what the model is shown of whole frames."""
        if not self._whole:
            return reduced
        return [AnalysisFrame(1, frame.luma, frame.chroma) for frame in frames]

    def run(self, frames: Sequence[Frame], shown: Sequence[AnalysisFrame]) -> Sequence[Array]:
        """Masks of pictures, which may be parts of the frames.

        Mirrored, the model sees them from right to left; masks are as without.
        """
        spec, preprocessors, lanes = self._spec, self._preprocessors, self._lanes

        parts: list[slice | None] = [None] * len(frames)

        def write(network: Network, start: int, stop: int) -> None:
            tensor = network.inputs[spec.input]
            if stop - start == 1:
                parts[start] = preprocessors[start % lanes].write(shown[start], tensor)
            else:
                parts[start:stop] = self._workers.map(
                    lambda _, at: preprocessors[at % lanes].write(shown[at], tensor, at - start),
                    range(start, stop),
                )

        def read(network: Network, start: int, stop: int) -> None:
            raw, masks = self._raw(network)[: stop - start], self._masks[start:stop]
            if self._unproved and start == 0:
                self._unproved = False
                self._prove(raw[0, spec.output_channel])
            if stop - start == 1 or self._placement.on_device:  # there it is one launch
                to_masks(self._placement, raw, spec, masks)
            else:
                self._workers.map(
                    lambda _, one, mask: to_masks(self._placement, one, spec, mask),
                    raw[:, None],
                    masks[:, None],
                )

        self._driver.run(frames, write, read)
        masks = self._planes[: len(frames)]
        for index, part in enumerate(parts):
            if part is not None:  # the embedded models' masks are of the size of their input
                masks[index] = masks[index][part]
        return masks

    def _prove(self, raw: Array) -> None:
        """Once: to wait for a device costs too much for every frame."""
        if not np.isfinite(raw.get() if self._placement.on_device else raw).any():
            text = "has no finite number for the first frame: its mask is empty, or full"
            self._tell(f"the output of model {self.name} {text}")

    def reset(self) -> None:
        self._driver.reset()

    def close(self) -> None:
        self._driver.close()


def runs_singly(spec: ModelSpec) -> bool:
    """Return whether a frame has all threads of the CPU, and not each frame one."""
    return FAMILIES[spec.family].in_order or spec.large


def channels(network: Network, spec: ModelSpec) -> Array:
    """View (B, C, h, w) of a model's main output, whichever its layout.

    Raises:
        ModelError: It is no mask, or has no such channel.
    """
    raw = network.outputs.get(spec.output)
    if raw is None:
        given = ", ".join(network.outputs)
        raise ModelError(f"model {spec.name} has no output {spec.output!r}, only {given}")
    shape = raw.shape
    if raw.ndim == 3:
        raw = raw[:, None]
    if raw.ndim != 4 or not raw.size:
        raise ModelError(f"model {spec.name}: output of shape {shape} is no mask")
    seen = network.inputs[spec.input].shape
    pictures = seen[0]
    if len(raw) < pictures:
        text = f"output of shape {shape} has no mask for each of {pictures} pictures"
        raise ModelError(f"model {spec.name}: {text}")
    height, width = seen[2:] if spec.layout == "NCHW" else seen[1:3]
    first, second, third = raw.shape[1:]
    # A mask has the picture's proportions; where none has, the short axis is the channel axis.
    as_first, as_last = second * width == third * height, first * width == second * height
    if not as_first and (as_last or first > third):
        raw = raw.transpose(0, 3, 1, 2)
    if not 0 <= spec.output_channel < raw.shape[1]:
        raise ModelError(f"model {spec.name} has no output channel {spec.output_channel}")
    if spec.activation == "softmax" and raw.shape[1] == 1:
        text = "softmax takes several channels, and its output has one: sigmoid or none is right"
        raise ModelError(f"model {spec.name}: {text}")
    return raw


def to_masks(placement: Placement, raw: Array, spec: ModelSpec, masks: Array) -> None:
    """Turn (n, C, h, w) raw output into (n, h, w) float32 masks in [0, 1]."""
    xp, person = placement.xp, raw[:, spec.output_channel]
    if spec.activation == "sigmoid":
        logits = xp.clip(person.astype(np.float32, copy=False), -_MAX_LOGIT, _MAX_LOGIT)
        person = 1.0 / (1.0 + xp.exp(-logits))
    elif spec.activation == "softmax":
        with np.errstate(invalid="ignore"):  # what is no number, or endless
            shifted = xp.exp(raw - raw.max(axis=1, keepdims=True))
        person = shifted[:, spec.output_channel] / shifted.sum(axis=1)
    # What is no number becomes 0.
    if placement.on_device:
        _limited()(person, masks)
    else:
        np.fmax(person, np.float32(0.0), out=masks)
        np.fmin(masks, np.float32(1.0), out=masks)
    if spec.stretch == "min-max":
        low, high = _STRETCHED_FROM
        least = xp.minimum(masks.min(axis=(1, 2), keepdims=True), np.float32(low))
        most = xp.maximum(masks.max(axis=(1, 2), keepdims=True), np.float32(high))
        masks -= least
        masks *= (1.0 / (most.astype(np.float64) - least)).astype(np.float32)
        xp.clip(masks, 0.0, 1.0, out=masks)


@cache
def _limited() -> Any:
    """One launch of CuPy's in place of two."""
    import cupy

    limited = "mask = raw > T(0) ? min(float(raw), 1.0f) : 0.0f"  # NaN is greater than nothing
    return cupy.ElementwiseKernel("T raw", "float32 mask", limited, "limit_mask")
