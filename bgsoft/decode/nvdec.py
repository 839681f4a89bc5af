"""Decoding on the GPU's video engine (NVDEC), through PyNvVideoCodec.

The demuxer, the choice of frames and their timestamps are those of the CPU decoder; NVDEC only
makes the pictures. For what it cannot decode it raises
:class:`~bgsoft.errors.BackendUnavailableError` before the first frame.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from functools import partial
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from av.video.frame import VideoFrame

from bgsoft.cuda.device import CudaDevice
from bgsoft.cuda.video_codec import codec_errors_as, decoder_caps
from bgsoft.decode.base import DecodeSettings
from bgsoft.decode.cpu import CpuDecoder
from bgsoft.decode.nv_stream import NvPicture, NvStreamDecoder, caps_reason, nv_codec
from bgsoft.errors import BackendUnavailableError, DecodeError
from bgsoft.frame import Frame, Planes
from bgsoft.media.info import VideoInfo
from bgsoft.media.planes import plane_views
from bgsoft.media.probe import probe
from bgsoft.ops.loader import BLOCK, blocks, kernel
from bgsoft.resources import Resources
from bgsoft.startup import span

_DEVICE_TO_HOST, _DEVICE_TO_DEVICE = 2, 3  # cudaMemcpyKind


class NvdecDecoder(NvStreamDecoder):
    """Decodes a file's video stream into ring slots on a CUDA device.

    See :class:`bgsoft.decode.base.Decoder`. The slots come from
    :func:`bgsoft.cuda.device.device_planes`; each frame's ``ready`` event is reached when its
    planes are complete, and the event that stands there when a slot comes back is waited for, on
    the device, before the slot is overwritten.

    The first picture is decoded here on both sides and compared: decoding is exact in all codecs
    that come this far, so a difference (an unusual cropping, a pixel format in disguise) means that
    the CPU should do it.

    Raises:
        BackendUnavailableError: NVDEC cannot decode this stream here; the message is the reason.
        OpenError: The file cannot be opened or has no decodable video.
        UnsupportedFormatError: It is no video, or no decoder exists for it.
    """

    def __init__(
        self,
        path: Path,
        settings: DecodeSettings | None = None,
        *,
        device: CudaDevice,
        info: VideoInfo | None = None,
    ) -> None:
        info = info or probe(path)
        codec = nv_codec(info)
        with span("NVDEC caps"):
            caps = decoder_caps(device.number, codec.name, info.format.bit_depth)
        if (reason := caps_reason(caps, info)) is not None:
            raise _unavailable(info, reason)
        self._device = device
        self._last: dict[int, Frame] = {}
        """The frame that was last in each slot; its event may have been replaced since."""
        self._ready: dict[int, Any] = {}
        """An event for each slot."""
        with span("NVDEC session"), _translated(info):
            super().__init__(info, settings, codec, device, device.new_stream())
        self._writer: SurfaceWriter | None = None
        try:
            with span("NVDEC's first picture"):
                self._check_first_picture()
        except BaseException:
            self.close()
            raise

    def _check_first_picture(self) -> None:
        """Raise BackendUnavailableError unless the first picture is the CPU decoder's."""
        path = self.info.path
        with CpuDecoder(path, DecodeSettings(threads=1), info=self.info) as decoder:
            reference = next(decoder.pictures(), None)
        if reference is None:
            return  # nothing to compare with; decoding itself will show
        if reference.is_corrupt:
            reason = "a damaged first picture is patched, and counted, on the CPU"
            raise _unavailable(self.info, reason)
        with closing(self.pictures()) as pictures, _translated(self.info, DecodeError):
            reason = self._difference(next(pictures, None), reference)
        if reason:
            raise _unavailable(self.info, reason)

    def _difference(self, picture: NvPicture | None, reference: VideoFrame) -> str:
        """How a picture differs from the CPU decoder's; empty where it is equal."""
        if picture is None:
            return "it shows no picture of this stream"
        if picture.pts is None:
            return "pictures without a timestamp are left to the CPU"
        if picture.pts != reference.pts:
            return f"its first picture is at {picture.pts}, FFmpeg's at {reference.pts}"
        width, height = reference.width, reference.height
        if (picture.width, picture.height) != (width, height):
            return f"it crops to {picture.width}x{picture.height}, not {width}x{height}"
        format = self.info.format
        (expected,) = plane_views(reference.planes[:1], format.dtype)
        equal = np.array_equal(self._luma(picture), expected << format.shift)
        return "" if equal else "its first picture differs from the CPU decoder's"

    def _luma(self, picture: NvPicture) -> np.ndarray[Any, Any]:
        """A picture's luma on the host."""
        dtype = np.dtype(self.info.format.dtype)
        host = np.empty((picture.height, picture.pitch // dtype.itemsize), dtype)
        self.stream.synchronize()
        cupy.cuda.runtime.memcpy(host.ctypes.data, picture.pointer, host.nbytes, _DEVICE_TO_HOST)
        return host[:, : picture.width]

    def _shown(self, from_pts: int | None) -> Iterator[NvPicture]:
        self._device.make_current()
        self._writer = SurfaceWriter(self.info, self.stream)
        return super()._shown(from_pts)

    def _write(self, picture: NvPicture, frame: Frame) -> None:
        assert self._writer is not None
        slot = frame.planes.slot
        last = self._last.get(slot)
        if last is not None and last.ready is not None:
            self.stream.wait_event(last.ready)
        self._writer.write(picture, frame.planes)
        if slot not in self._ready:
            self._ready[slot] = cupy.cuda.Event(disable_timing=True)
        frame.ready = self._ready[slot]
        frame.ready.record(self.stream)
        self._last[slot] = frame


def _unavailable(info: VideoInfo, reason: str) -> BackendUnavailableError:
    return BackendUnavailableError(f"NVDEC: {reason}", stage="decode", path=info.path)


def _translated(info: VideoInfo, *also: type[Exception]) -> AbstractContextManager[None]:
    error = partial(BackendUnavailableError, stage="decode", path=info.path)
    return codec_errors_as(error, "NVDEC", *also)


class SurfaceWriter:
    """Fills device slots from the surfaces of one stream, which are complete on a CuPy stream."""

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
            width, height = self._size
            raise DecodeError(
                f"NVDEC: the picture size changes from {width}x{height} to {picture.width}x"
                f"{picture.height}; use --decode cpu, which fits it in",
                stage="decode",
                pts=picture.pts,
            )
        if self._upright and picture.pitch == self._row_bytes:
            pointer = picture.pointer
            for plane in (planes.luma, planes.chroma):
                cupy.cuda.runtime.memcpyAsync(
                    plane.data.ptr, pointer, plane.nbytes, _DEVICE_TO_DEVICE, self._stream.ptr
                )
                pointer += plane.nbytes
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


def open_decoder(
    path: Path, settings: DecodeSettings, info: VideoInfo | None, resources: Resources
) -> NvdecDecoder:
    """The decoder of a render, on its GPU."""
    return NvdecDecoder(path, settings, device=resources.device, info=info)
