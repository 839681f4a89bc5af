"""From the analysis frame to a network's input batch on a CUDA device."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.base import analysis_shape, detail_factor
from bgsoft.analysis.cuda_resize import resampling
from bgsoft.frame import AnalysisFrame, Array, FrameFormat
from bgsoft.models.catalog import ModelSpec
from bgsoft.ops.loader import BLOCK, blocks, kernel
from bgsoft.segment.preprocess import MAX_BILINEAR_SHRINK, yuv_to_rgb_matrix

_MOST_TABLES = 256
"""Sizes of source planes that tables are kept for; crops may have any."""

_MATRIX_ONE = 1024
"""Colour matrix entries are whole multiples of its reciprocal, as in ``cv2.transform``."""


class CudaPreprocessor:
    """Writes frames of one format, or parts of them, into a batch tensor; one launch each.

    Args:
        spec: Input size, channel order, layout and normalisation.
        format: Format of the frames.
        batch: Items of the tensor.
        whole_frame: What is written is the frame itself, not its grid.
    """

    def __init__(
        self, spec: ModelSpec, format: FrameFormat, batch: int = 1, *, whole_frame: bool = False
    ) -> None:
        self._bits = 8 * format.bytes_per_sample
        self._batch = batch
        self._size = (spec.height, spec.width)
        channels_last = spec.layout != "NCHW"
        channels = (*self._size, 3) if channels_last else (3, *self._size)
        self.shape = (batch, *channels)
        """Of the tensor: (B, 3, H, W) or (B, H, W, 3) by the model's layout."""
        factor = 1 if whole_frame else detail_factor(format.width, format.height)
        luma_shape = analysis_shape(format.width, format.height, factor)
        chroma_shape = luma_shape if factor > 1 else format.chroma_shape[:2]
        self._tables: dict[tuple[int, int], tuple[Any, ...]] = {}
        for shape in (luma_shape, chroma_shape):
            self._tables_for(shape)
        mean, std = np.array(spec.mean), np.array(spec.std)
        norm = np.concatenate([1.0 / (255.0 * std), -mean / std])
        self._by_maximum: tuple[Any, Any] | None = None
        if spec.divide_by == "maximum":
            # The largest is known once all are there: codes are written, and divided after that.
            of_channel = (1, 1, 3) if channels_last else (3, 1, 1)
            gains, biases = (part.reshape(of_channel) for part in (1.0 / std, -mean / std))
            self._by_maximum = cupy.asarray(gains, np.float32), cupy.asarray(biases, np.float32)
            norm = np.repeat([1.0, 0.0], 3)
        constants = (_fixed_matrix(spec, format), norm.astype(np.float32))
        self._constants = tuple(cupy.asarray(each) for each in constants)
        height, width = map(np.int32, self._size)
        last = np.int32(channels_last)
        self._places = [(height, width, np.int32(index), last) for index in range(batch)]
        self._grid = blocks(self._size[1], self._size[0])
        self._kernels = {
            dtype: kernel("preprocess", f"preprocess_{dtype}", sample_bits=self._bits)
            for dtype in ("float32", "float16")
        }

    def write(self, reduced: AnalysisFrame, tensor: Array, index: int = 0) -> None:
        """Resize, convert and normalise one frame.

        Args:
            reduced: The frame on the analysis frame, on the device; or a part of one: its planes'
                rows may be padded.
            tensor: Of :attr:`shape`, float32 or float16, C-contiguous.
            index: Item of the tensor that is overwritten.

        Raises:
            ValueError: The tensor's shape or dtype is another, or it has no such item.
        """
        run = self._kernels.get(tensor.dtype.name)
        if run is None or tensor.shape != self.shape or not 0 <= index < self._batch:
            raise ValueError(
                f"expected item {index} of {self.shape} float32 or float16, "
                f"not {tensor.shape} {tensor.dtype}"
            )
        picture = reduced.for_networks
        luma, chroma = picture.luma, picture.chroma
        planes = (luma, _pitch(luma), chroma, _pitch(chroma))
        tables = (*self._tables_for(luma.shape), *self._tables_for(chroma.shape[:2]))
        run(self._grid, BLOCK, (*planes, *tables, *self._constants, tensor, *self._places[index]))
        if self._by_maximum is not None:
            codes = tensor[index]
            _divided(codes, codes.max(), *self._by_maximum, codes)

    def _tables_for(self, source: tuple[int, int]) -> tuple[Any, ...]:
        """The arguments that say how planes of a size are resized."""
        found = self._tables.get(source)
        if found is None:
            if len(self._tables) >= _MOST_TABLES:
                self._tables.clear()
            shrink = max(s / t for s, t in zip(source, self._size, strict=True))
            area = shrink > MAX_BILINEAR_SHRINK
            found = resampling(source, self._size, area=area, fixed_point=self._bits == 8).args
            self._tables[source] = found
        return found


_divided = cupy.ElementwiseKernel(
    "T code, T most, float32 gain, float32 bias",
    "T value",
    "value = T(float(code) * (gain / max(float(most), 1.0f)) + bias)",
    "divide_by_maximum",
)
"""(code / maximum − mean) / std; one reading of the picture for the maximum comes before it."""


def _pitch(plane: Array) -> np.int32:
    """Samples a row, padding included."""
    return np.int32(plane.strides[0] // plane.itemsize)


def _fixed_matrix(spec: ModelSpec, format: FrameFormat) -> NDArray[np.int32]:
    """(3, 4) int32 in 1/1024; the last column has the half that makes flooring a rounding."""
    matrix = yuv_to_rgb_matrix(format)
    if spec.color_order == "bgr":
        matrix = matrix[::-1]
    matrix = matrix.copy()
    matrix[:, 3] += 0.5
    fixed: NDArray[np.int32] = np.rint(matrix * _MATRIX_ONE).astype(np.int32)
    return fixed
