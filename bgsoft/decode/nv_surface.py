"""Copies decoded surfaces into ring slots on the device, upright."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from bgsoft.decode.nv_session import NvPicture
from bgsoft.errors import DecodeError
from bgsoft.frame import Planes
from bgsoft.kernels.loader import BLOCK, blocks, kernel
from bgsoft.media.info import VideoInfo

__all__ = ["SurfaceWriter"]

_DEVICE_TO_DEVICE = 3  # cudaMemcpyKind


class SurfaceWriter:
    """Fills device slots from the surfaces of one stream: one launch a frame.

    Args:
        info: The stream; its surfaces must have its stored size.
        stream: CuPy stream that the surfaces are complete on.
    """

    def __init__(self, info: VideoInfo, stream: Any) -> None:
        format = info.format
        self._size = (info.coded_width, info.coded_height)
        self._row_bytes = info.coded_width * format.bytes_per_sample
        self._stream = stream
        self._upright = info.orientation.is_identity
        self._quarters = np.int32(info.orientation.rotation // 90)
        self._mirror = np.int32(info.orientation.mirror)
        self._kernel = kernel("surface", "take_surface", sample_bits=8 * format.bytes_per_sample)
        height, width, _ = format.chroma_shape
        self._blocks = blocks(width, height)

    def write(self, picture: NvPicture, planes: Planes) -> None:
        """Launch the copy of a picture into a slot, on the stream.

        Raises:
            DecodeError: The picture's size is not the stream's.
        """
        if (picture.width, picture.height) != self._size:
            raise DecodeError(
                f"NVDEC: the picture size changes from {self._size[0]}x{self._size[1]} to "
                f"{picture.width}x{picture.height}; use --decode cpu, which fits it in",
                stage="decode",
                pts=picture.pts,
            )
        if self._upright and picture.pitch == self._row_bytes:
            self._copy(picture.pointer, planes)
            return
        args = (
            np.uintp(picture.pointer),
            np.int32(picture.pitch),
            np.int32(picture.width),
            np.int32(picture.height),
            self._quarters,
            self._mirror,
            planes.luma,
            planes.chroma,
        )
        with self._stream:
            self._kernel(self._blocks, BLOCK, args)

    def _copy(self, pointer: int, planes: Planes) -> None:
        """Copy without turning: both planes at once where the slot has them end to end."""
        luma, chroma = planes.luma, planes.chroma
        copy = cupy.cuda.runtime.memcpyAsync
        at, stream = luma.data.ptr, self._stream.ptr
        if chroma.data.ptr == at + luma.nbytes:
            copy(at, pointer, luma.nbytes + chroma.nbytes, _DEVICE_TO_DEVICE, stream)
            return
        copy(at, pointer, luma.nbytes, _DEVICE_TO_DEVICE, stream)
        after = pointer + luma.nbytes
        copy(chroma.data.ptr, after, chroma.nbytes, _DEVICE_TO_DEVICE, stream)
