"""From a frame's analysis frame to a network's input, without ever making a full RGB frame."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.frame import AnalysisFrame, FrameFormat
from bgsoft.models.catalog import ModelSpec
from bgsoft.ops.sides import HOST

MAX_BILINEAR_SHRINK = 3.0
"""Reduction up to which a picture is sampled bilinearly, and beyond which it is averaged. At 2.5,
averaging takes 0.6 ms longer and the mask of the selfie model is the same (IoU 0.994 to 0.998)."""


def yuv_to_rgb_matrix(format: FrameFormat) -> NDArray[np.float64]:
    """The affine transform from 8-bit Y'CbCr code values to R'G'B' in [0, 255].

    Args:
        format: Gives matrix coefficients and range; 10-bit frames are taken to 8 bits first.

    Returns:
        (3, 4) matrix for column vectors (Y, Cb, Cr, 1), from the equations of ITU-T H.273, 8.3
        (the inverse of Y' = kr R' + (1 − kr − kb) G' + kb B', Cb = (B' − Y') / (2 (1 − kb)),
        Cr = (R' − Y') / (2 (1 − kr))).
    """
    kr, kb = format.color.kr_kb(format.height)
    kg = 1.0 - kr - kb
    if format.color.full_range:
        luma_gain, luma_offset, chroma_gain = 1.0, 0.0, 1.0
    else:
        luma_gain, luma_offset, chroma_gain = 255.0 / 219.0, 16.0, 255.0 / 224.0
    to_rgb = np.array(
        [
            [1.0, 0.0, 2.0 * (1.0 - kr)],
            [1.0, -2.0 * kb * (1.0 - kb) / kg, -2.0 * kr * (1.0 - kr) / kg],
            [1.0, 2.0 * (1.0 - kb), 0.0],
        ]
    )
    gains = np.diag([luma_gain, chroma_gain, chroma_gain])
    linear = to_rgb @ gains
    offset = -linear @ np.array([luma_offset, 128.0, 128.0])
    return np.hstack([linear, offset[:, None]])


def fixed_matrix(spec: ModelSpec, format: FrameFormat) -> NDArray[np.int32]:
    """:func:`yuv_to_rgb_matrix` in the model's order of channels, as operations take it.

    Returns:
        (3, 4) int32 in 1/1024; the last column has the half that makes flooring a rounding.
    """
    matrix = yuv_to_rgb_matrix(format)
    matrix[:, 3] += 0.5
    fixed: NDArray[np.int32] = np.rint(1024 * matrix).astype(np.int32)
    return np.ascontiguousarray(fixed[::-1] if spec.color_order == "bgr" else fixed)


def normalisation(spec: ModelSpec, divisor: float = 255.0) -> NDArray[np.float32]:
    """Three gains and three biases: (code / divisor − mean) / std = code · gain + bias."""
    mean, std = np.array(spec.mean), np.array(spec.std)
    return np.concatenate([1.0 / (divisor * std), -mean / std]).astype(np.float32)


class Normaliser:
    """Converts planes of a network's input size, and writes them into its input."""

    def __init__(self, spec: ModelSpec, format: FrameFormat) -> None:
        self._matrix, self._norm = fixed_matrix(spec, format), normalisation(spec)
        self._channels_last = spec.layout != "NCHW"
        self._spec = spec
        self._by_maximum = spec.divide_by == "maximum"
        if self._by_maximum:
            # The largest is known once all are there: codes are written, and divided after that.
            self._norm = np.array([1, 1, 1, 0, 0, 0], np.float32)
        bits = 8 * format.bytes_per_sample
        self._normalise = HOST.operation("preprocess", "normalise", sample_bits=bits)

    def write(self, luma: NDArray[Any], chroma: NDArray[Any], tensor: NDArray[Any]) -> None:
        """Into a C-contiguous (3, H, W) or (H, W, 3) tensor, by the model's layout.

        Args:
            luma: (H, W), of the frame's dtype.
            chroma: (H, W, 2), the same.
            tensor: Overwritten; float32 or float16.
        """
        size, last = luma.shape, int(self._channels_last)
        values = tensor if tensor.dtype == np.float32 else np.empty(tensor.shape, np.float32)
        self._normalise(size, luma, chroma, self._matrix, self._norm, values, luma.size, last)
        if self._by_maximum:
            of_channel = (1, 1, 3) if self._channels_last else (3, 1, 1)
            norm = normalisation(self._spec, max(1.0, float(values.max())))
            gain, bias = norm.reshape(2, *of_channel)
            values *= gain
            values += bias
        if values is not tensor:
            np.copyto(tensor, values, casting="same_kind")


class CpuPreprocessor:
    """Resizes, converts and normalises frames of one format into a network's input."""

    def __init__(self, spec: ModelSpec, format: FrameFormat) -> None:
        self._size = (spec.width, spec.height)
        shape = (spec.height, spec.width)
        self._luma = np.empty(shape, format.dtype)
        self._chroma = np.empty((*shape, 2), format.dtype)
        self._normaliser = Normaliser(spec, format)

    def write(self, reduced: AnalysisFrame, tensor: NDArray[Any]) -> None:
        """Write one picture into a tensor, as :meth:`Normaliser.write`."""
        picture = reduced.for_networks
        self._resize(picture.luma, self._luma)
        self._resize(picture.chroma, self._chroma)
        self._normaliser.write(self._luma, self._chroma, tensor)

    def _resize(self, source: NDArray[Any], target: NDArray[Any]) -> None:
        shrink = max(source.shape[0] / target.shape[0], source.shape[1] / target.shape[1])
        cv2.resize(
            source,
            self._size,
            dst=target,
            interpolation=cv2.INTER_AREA if shrink > MAX_BILINEAR_SHRINK else cv2.INTER_LINEAR,
        )
