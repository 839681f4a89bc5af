"""Conversion of an analysis frame to a network's input, without a full RGB frame."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bgsoft.frame import AnalysisFrame, Array, FrameFormat
from bgsoft.models.catalog import ModelSpec
from bgsoft.models.families import REFINER
from bgsoft.ops.placement import HOST, Placement
from bgsoft.ops.resize import Resized

MAX_BILINEAR_SHRINK = 3.0
"""Reduction up to which a picture is sampled bilinearly, and beyond which it is averaged. At 2.5,
averaging takes 0.6 ms longer and the mask of the selfie model is the same (IoU 0.994 to 0.998)."""


STRETCHED, SHOWN = 2.1, 16 / 9
"""How much wider a picture may be than a model's input of its height, for the embedded models to be
shown it stretched; a wider one is shown as if it were by the second, between black bars. Two people
side by side, of a real clip each, have a mean IoU of 0.94 at 2.39:1 (``fast``: 0.83), and of 0.92
(0.87) at 2.67:1; without, 0.70 (0.50) and 0.56 (0.29). With bars from 2:1 on it is 0.951 there, not
0.965."""


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


def normalisation(spec: ModelSpec) -> NDArray[np.float32]:
    """Three gains and three biases: (code / 255 − mean) / std = code · gain + bias."""
    mean, std = np.array(spec.mean), np.array(spec.std)
    return np.concatenate([1.0 / (255.0 * std), -mean / std]).astype(np.float32)


class Preprocessor:
    """Resizes, converts and normalises frames of one format into a network's input.

    Frames or parts of them take one launch each.

    Args:
        spec: Whose input it is.
        format: Format of the frames.
        placement: Host or device of the frames.
    """

    def __init__(self, spec: ModelSpec, format: FrameFormat, placement: Placement = HOST) -> None:
        self._spec, self._placement, self._size = spec, placement, (spec.height, spec.width)
        self._has_bars = spec.embedded and spec.family != REFINER
        self._most = [MAX_BILINEAR_SHRINK * each for each in self._size]
        self._luma = Resized(placement, self._size, format.dtype)
        self._chroma = Resized(placement, (*self._size, 2), format.dtype)
        self._channels_last = spec.layout != "NCHW"
        self.shape = (*self._size, 3) if self._channels_last else (3, *self._size)
        """Shape of an item of the input: (3, H, W) or (H, W, 3) by the model's layout."""
        self._by_maximum = spec.divide_by == "maximum"
        # The largest is known once all are there: codes are written, and divided after that.
        plain = np.array([1, 1, 1, 0, 0, 0], np.float32)
        norm = plain if self._by_maximum else normalisation(spec)
        self._constants = placement.array(fixed_matrix(spec, format)), placement.array(norm)
        of_channel = (1, 1, 3) if self._channels_last else (3, 1, 1)
        mean, std = (np.array(each).reshape(of_channel) for each in (spec.mean, spec.std))
        self._std, self._bias = placement.array(std), placement.array(-mean / std, np.float32)
        bits = 8 * format.bytes_per_sample
        self._run = placement.operation("preprocess", "preprocess", sample_bits=bits)

    def write(self, picture: AnalysisFrame, tensor: Array, index: int = 0) -> slice | None:
        """Write a picture, whose rows may be padded, into an item of a batch.

        Args:
            picture: Of it what networks are shown.
            tensor: (N, *:attr:`shape`), C-contiguous.
            index: Item of the tensor that is overwritten.

        Returns:
            The rows of the input that it takes up, between bars; None: all.

        Raises:
            ValueError: The tensor's shape or dtype is another, or it has no such item.
        """
        dtype = tensor.dtype
        if dtype not in (np.float16, np.float32) or not (
            tensor.shape[1:] == self.shape and 0 <= index < tensor.shape[0]
        ):
            raise ValueError(
                f"expected item {index} of {self.shape} float32 or float16, "
                f"not {tensor.shape} {dtype}"
            )
        shown = picture.detail or picture
        luma, chroma, (rows, columns) = shown.luma, shown.chroma, self._most
        values, at, size, shape, target = tensor, index, self._size, self.shape, tensor[index]
        height, width = luma.shape
        part = None
        if width * size[0] > STRETCHED * height * size[1] and self._has_bars:
            size = max(1, round(SHOWN * size[1] * height / width)), size[1]
            first_row = (self._size[0] - size[0]) // 2
            part = slice(first_row, first_row + size[0])
            shape = 3, *size  # the embedded models' layout is NCHW
            target[...] = self._bias
            target = target[:, part]
        area = height > rows or width > columns
        first = self._luma.arguments(luma, size, area=area)
        area = chroma.shape[0] > rows or chroma.shape[1] > columns
        second = self._chroma.arguments(chroma, size, area=area)
        if dtype == np.float16 or size is not self._size:
            values, at = self._placement.xp.empty((1, *shape), np.float32), 0
        planes = (*first, *second)
        self._run(size, *planes, *self._constants, values, *size, at, self._channels_last)
        if self._by_maximum:
            self._divide(values[at])
        if values is not tensor:
            target[...] = values[0]
        return part

    def _divide(self, codes: Array) -> None:
        """(code / maximum − mean) / std, where there is the code."""
        most = self._placement.xp.maximum(codes.max(), np.float32(1.0))
        codes *= (1.0 / (most * self._std)).astype(np.float32)
        codes += self._bias
