"""Conversion of a network's output to masks."""

from __future__ import annotations

import numpy as np

from bgsoft.errors import ModelError
from bgsoft.frame import Array
from bgsoft.infer.base import Network
from bgsoft.models.catalog import ModelSpec
from bgsoft.ops.placement import Placement

_MAX_LOGIT = 60.0
"""Largest logit. Beyond it the sigmoid is 0 or 1 in float32 anyway, and its exponential would
overflow."""
_STRETCHED_FROM = (0.25, 0.5)
"""``stretch = "min-max"`` takes the least and the greatest probability of a frame to 0 and 1, as is
done with photographs. But no more than the first and no less than the second: where nobody is to be
seen, noise would become people; where nothing but a person is, the person would vanish."""


def channels(network: Network, spec: ModelSpec) -> Array:
    """View (B, C, h, w) of a model's main output, whichever its layout.

    Raises:
        ModelError: It is no mask, or has no such channel.
    """
    raw = network.outputs.get(spec.output)
    if raw is None:
        given = ", ".join(network.outputs)
        raise ModelError(
            f"cannot use model {spec.name}: it has no output {spec.output!r}, only {given}"
        )
    shape = raw.shape
    if raw.ndim == 3:
        raw = raw[:, None]
    if raw.ndim != 4 or not raw.size:
        raise ModelError(f"cannot use model {spec.name}: its output of shape {shape} is not a mask")
    seen = network.inputs[spec.input].shape
    pictures = seen[0]
    if len(raw) < pictures:
        text = f"its output of shape {shape} lacks a mask for each of {pictures} pictures"
        raise ModelError(f"cannot use model {spec.name}: {text}")
    height, width = seen[2:] if spec.layout == "NCHW" else seen[1:3]
    first, second, third = raw.shape[1:]
    # A mask has the picture's proportions; where none has, the short axis is the channel axis.
    as_first, as_last = second * width == third * height, first * width == second * height
    if not as_first and (as_last or first > third):
        raw = raw.transpose(0, 3, 1, 2)
    if not 0 <= spec.output_channel < raw.shape[1]:
        raise ModelError(
            f"cannot use model {spec.name}: it has no output channel {spec.output_channel}"
        )
    if spec.activation == "softmax" and raw.shape[1] == 1:
        text = "softmax needs several channels, and its output has one; use sigmoid or none"
        raise ModelError(f"cannot use model {spec.name}: {text}")
    return raw


def to_masks(placement: Placement, raw: Array, spec: ModelSpec, masks: Array) -> None:
    """Turn (n, C, h, w) raw output into (n, h, w) float32 masks in [0, 1]."""
    xp, person = placement.xp, raw[:, spec.output_channel]
    if spec.activation == "sigmoid":
        logits = xp.clip(person.astype(np.float32, copy=False), -_MAX_LOGIT, _MAX_LOGIT)
        person = 1.0 / (1.0 + xp.exp(-logits))
    elif spec.activation == "softmax":
        with np.errstate(invalid="ignore"):  # NaN or infinite values
            shifted = xp.exp(raw - raw.max(axis=1, keepdims=True))
        person = shifted[:, spec.output_channel] / shifted.sum(axis=1)
    xp.fmax(person, np.float32(0.0), out=masks)  # NaN becomes 0
    xp.fmin(masks, np.float32(1.0), out=masks)
    if spec.stretch == "min-max":
        low, high = _STRETCHED_FROM
        least = xp.minimum(masks.min(axis=(1, 2), keepdims=True), np.float32(low))
        most = xp.maximum(masks.max(axis=(1, 2), keepdims=True), np.float32(high))
        masks -= least
        masks *= (1.0 / (most.astype(np.float64) - least)).astype(np.float32)
        xp.clip(masks, 0.0, 1.0, out=masks)
