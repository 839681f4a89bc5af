"""Encoding on the GPU's video engine (NVENC), through PyNvVideoCodec."""

from __future__ import annotations

from functools import partial
from typing import Any

import cupy
import numpy as np

from bgsoft.cuda.device import CudaDevice
from bgsoft.cuda.video_codec import codec_errors_as, encoder_caps, nvenc_reason, video_codec
from bgsoft.encode.base import PictureKind
from bgsoft.encode.nv_packets import CodedPackets
from bgsoft.encode.nv_settings import GOP, NvencChoice, choose_nvenc, fit_to_caps
from bgsoft.errors import BackendUnavailableError, EncodeError
from bgsoft.frame import Frame, FrameFormat
from bgsoft.media.info import VideoInfo
from bgsoft.media.mux import Muxer
from bgsoft.media.writer import Writer
from bgsoft.ops.loader import kernel
from bgsoft.resources import Resources
from bgsoft.settings.config import EncodeConfig
from bgsoft.startup import span

_SURFACES = 4
"""Surfaces between the ring and NVENC's own: a slot is free once its frame has been copied."""
_DEVICE_TO_DEVICE = 3  # cudaMemcpyKind
_PICTURE_TYPE_IDR = 3  # NV_ENC_PIC_TYPE_IDR, of AV1's key frames too
_FORCE_IDR = 2  # NV_ENC_PIC_FLAG_FORCEIDR
_THREADS = 256
"""Threads per block, for kernels over a plane that ignore its rows."""


class _Plane:
    """A plane in PyNvVideoCodec's shape: (rows, samples or pairs, 1 or 2).

    At ten bits the strides follow PyNvVideoCodec, not the CUDA array interface.
    """

    def __init__(
        self, pointer: int, shape: tuple[int, int, int], strides: tuple[int, int, int], sample: int
    ) -> None:
        self.__cuda_array_interface__ = {
            "shape": shape,
            "strides": strides,
            "typestr": f"|u{sample}",
            "data": (pointer, False),
            "version": 3,
        }


class _Surface:
    """Device memory in NVENC's input layout: luma, then interleaved chroma, without padding."""

    def __init__(self, width: int, height: int, sample: int) -> None:
        luma = width * height * sample
        memory = cupy.empty(luma + luma // 2, np.uint8)
        self.luma, self.chroma = memory[:luma], memory[luma:]
        self.copied = cupy.cuda.Event(disable_timing=True)
        """Recorded when the frame has been copied here."""
        self.taken = cupy.cuda.Event(disable_timing=True)
        """Recorded when NVENC has copied it."""
        pitch = width * sample
        self._planes = [
            _Plane(self.luma.data.ptr, (height, width, 1), (pitch, sample, 1), sample),
            _Plane(self.chroma.data.ptr, (height // 2, width // 2, 2), (pitch, 2, 1), sample),
        ]

    def cuda(self) -> list[_Plane]:
        """Return the planes; called by PyNvVideoCodec."""
        return self._planes


class NvencEncoder:
    """Encoder of frames on a CUDA device; see :class:`bgsoft.encode.base.Encoder`.

    A frame is copied, on the device, to a surface of ours, which PyNvVideoCodec copies to NVENC's.
    So the frame's slot is free before NVENC encodes it.

    Raises:
        BackendUnavailableError: NVENC is missing or cannot encode this. Nothing has been added to
            the muxer.
        UnsupportedFormatError: The container cannot hold the codec.
    """

    def __init__(self, muxer: Muxer, choice: NvencChoice, *, device: CudaDevice) -> None:
        format = muxer.info.format
        with span("NVENC caps"):
            caps = encoder_caps(device.number, str(choice.codec))
        choice = fit_to_caps(choice, caps, format.width, format.height)
        self.name, self.pixel_format = choice.encoder, choice.coded_format
        self.notices = choice.notices
        """Features that this GPU's NVENC lacks."""
        self.frames = 0
        self._muxer = muxer
        self._device = device
        self._range = format.color.luma_range(8)
        self._stream = device.new_stream()
        self._copies = device.new_stream()
        self._sei = list(choice.sei)
        sample = 1 if choice.bit_depth == 8 else 2
        self._encoder = self._create(choice, format)
        self._surfaces = [_Surface(format.width, format.height, sample) for _ in range(_SURFACES)]
        self._matte_kernel: Any = None
        if choice.kind is PictureKind.MATTE:
            self._matte_kernel = kernel("surface", "matte_luma")
            for surface in self._surfaces:
                surface.chroma.fill(128)
            cupy.cuda.get_current_stream().synchronize()
        self._packets = CodedPackets(
            muxer, str(choice.codec), delay=choice.b_frames, tag_filter=choice.tag_filter
        )

    def _create(self, choice: NvencChoice, format: FrameFormat) -> Any:
        error = partial(BackendUnavailableError, stage="encode")
        try:
            with codec_errors_as(error, "NVENC", reason=nvenc_reason):
                return video_codec().CreateEncoder(
                    format.width,
                    format.height,
                    choice.pixel_format,
                    False,  # frames are in device memory
                    gpu_id=self._device.number,
                    cudacontext=self._device.context,
                    cudastream=self._stream.ptr,
                    **choice.options,
                )
        finally:
            # NVENC's failure may leave another context current.
            cupy.cuda.runtime.setDevice(self._device.number)

    def encode(self, frame: Frame) -> None:
        self._device.make_current()
        pts = self._muxer.timestamp(frame.pts)
        messages = frame.messages if self._matte_kernel is None else ()
        number = self._packets.enter(pts, frame.duration, messages)
        surface = self._surfaces[number % _SURFACES]
        copies = self._copies
        if number >= _SURFACES:
            copies.wait_event(surface.taken)
        if frame.ready is not None:
            copies.wait_event(frame.ready)
        self._fill(surface, frame)
        surface.copied.record(copies)
        self._stream.wait_event(surface.copied)
        failed = f"cannot encode frame {frame.index} with {self.name}"
        with codec_errors_as(EncodeError, failed, stage="encode", pts=frame.pts):
            if self._sei and number % GOP == 0:
                coded = self._encoder.Encode(surface, _FORCE_IDR, self._sei)
            else:
                coded = self._encoder.Encode(surface)
        surface.taken.record(self._stream)
        self.frames += 1
        self._write(coded)
        surface.copied.synchronize()  # the slot may be reused from here on

    def _fill(self, surface: _Surface, frame: Frame) -> None:
        """Launch the copy of a frame into a surface, on the copying stream."""
        planes = frame.planes
        if self._matte_kernel is not None:
            black, white = self._range
            count = planes.alpha.size
            args = (planes.alpha, surface.luma, np.int32(count), np.int32(black), np.int32(white))
            with self._copies:
                self._matte_kernel((-(-count // _THREADS),), (_THREADS,), args)
            return
        for source, target in ((planes.luma, surface.luma), (planes.chroma, surface.chroma)):
            cupy.cuda.runtime.memcpyAsync(
                target.data.ptr, source.data.ptr, source.nbytes, _DEVICE_TO_DEVICE, self._copies.ptr
            )

    def _write(self, coded: list[dict[str, Any]]) -> None:
        """Write NVENC's pictures, whose timestamps are the numbers of their frames."""
        for picture in coded:
            self._packets.write(
                bytes(picture["data"]),
                int(picture["timestamp"]),
                key_frame=int(picture["picture_type"]) == _PICTURE_TYPE_IDR,
            )

    def finish(self) -> None:
        with codec_errors_as(EncodeError, f"cannot finish {self.name}", stage="encode"):
            coded = self._encoder.EndEncode()
        self._write(coded)
        self._packets.finish()

    def close(self) -> None:
        """Free the session; the encoder goes before its stream."""
        self._encoder = None
        self._copies.synchronize()
        self._stream.synchronize()


def open_encoder(
    writer: Writer, config: EncodeConfig, info: VideoInfo, kind: PictureKind, resources: Resources
) -> NvencEncoder:
    """Open the encoder that a render's settings ask for."""
    if not isinstance(writer, Muxer):
        reason = f"NVENC: {writer.container.name} pictures are encoded on the CPU"
        raise BackendUnavailableError(reason, stage="encode")
    choice = choose_nvenc(config, writer.container, info, kind)
    encoder = NvencEncoder(writer, choice, device=resources.device)
    resources.notice("encode", *encoder.notices)
    return encoder
