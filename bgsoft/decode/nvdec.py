"""Decoding on the GPU's video engine (NVDEC), through PyNvVideoCodec.

The demuxer, the choice of frames and their timestamps are those of the CPU decoder; NVDEC only
decodes the pictures. For streams that it cannot decode, the constructor raises
:class:`~bgsoft.errors.BackendUnavailableError`.
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
    """Decoder of a file's video stream, into ring slots on a CUDA device.

    See :class:`bgsoft.decode.base.Decoder`. The slots come from
    :func:`bgsoft.cuda.device.device_planes`. A frame's ``ready`` event is recorded when its planes
    are complete. Before a returned slot is overwritten, the device waits for the event that its
    frame then has.

    The constructor decodes the first picture on host and device and compares them. Decoding is
    exact in all these codecs, so a difference (unusual cropping, a mislabelled pixel format) means
    that the CPU must decode the stream.

    Raises:
        BackendUnavailableError: NVDEC cannot decode this stream here; the message is the reason.
        OpenError: The file cannot be opened or has no decodable video.
        UnsupportedFormatError: It is not a video, or no decoder exists for it.
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
        """The last frame of each slot; its event may have been replaced since."""
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
        """Raise BackendUnavailableError unless the first picture equals the CPU decoder's."""
        path = self.info.path
        with CpuDecoder(path, DecodeSettings(threads=1), info=self.info) as decoder:
            reference = next(decoder.pictures(), None)
        if reference is None:
            return  # nothing to compare with; decoding itself will report the error
        if reference.is_corrupt:
            reason = "the first picture is damaged; only the CPU conceals and counts damage"
            raise _unavailable(self.info, reason)
        with closing(self.pictures()) as pictures, _translated(self.info, DecodeError):
            reason = self._difference(next(pictures, None), reference)
        if reason:
            raise _unavailable(self.info, reason)

    def _difference(self, picture: NvPicture | None, reference: VideoFrame) -> str:
        """Return how a picture differs from the CPU decoder's; empty where it is equal."""
        if picture is None:
            return "it decodes no picture of this stream"
        if picture.pts is None:
            return "pictures without a timestamp are decoded on the CPU"
        if picture.pts != reference.pts:
            return f"its first picture has pts {picture.pts}, FFmpeg's has {reference.pts}"
        width, height = reference.width, reference.height
        if (picture.width, picture.height) != (width, height):
            return f"it crops to {picture.width}x{picture.height}, not {width}x{height}"
        format = self.info.format
        (expected,) = plane_views(reference.planes[:1], format.dtype)
        equal = np.array_equal(self._luma(picture), expected << format.shift)
        return "" if equal else "its first picture differs from the CPU decoder's"

    def _luma(self, picture: NvPicture) -> np.ndarray[Any, Any]:
        """Copy a picture's luma to the host."""
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
    """Copies surfaces of one stream, complete on a CuPy stream, into device slots."""

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
            DecodeError: The picture's size differs from the stream's.
        """
        if (picture.width, picture.height) != self._size:
            width, height = self._size
            raise DecodeError(
                f"cannot decode with NVDEC: the picture size changes from {width}x{height} to "
                f"{picture.width}x{picture.height}; use --decode cpu, which scales it to fit",
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
    """Open the decoder of a render, on its GPU."""
    return NvdecDecoder(path, settings, device=resources.device, info=info)
