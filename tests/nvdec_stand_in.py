"""A stand-in for PyNvVideoCodec, and NVDEC's decoder on top of it without a GPU.

It takes the same packets, by address, and decodes them with FFmpeg; it passes a number through from
packet to picture as NVDEC does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import av
import numpy as np
import pytest
from av.packet import Packet

from bgsoft.decode import nv_stream
from bgsoft.decode.base import DecodeSettings
from bgsoft.decode.convert import turn_plane
from bgsoft.decode.nv_stream import NvPicture, NvStreamDecoder, nv_codec
from bgsoft.frame import Frame
from bgsoft.media.planes import plane_views
from bgsoft.media.probe import probe
from tests.synthetic import Plane

NVDEC_CLIPS = [
    "cfr.mp4",
    "bframes.mp4",
    "bframes.mkv",
    "ntsc.mkv",
    "vfr.mp4",
    "vfr.mkv",
    "late.mp4",
    "editlist.mp4",
    "trimmed.mov",
    "opengop.mkv",
    "bluray.ts",
    "wrap.ts",
    "av1.mp4",
    "hdr10.mp4",
    "hlg.mkv",
    "full.mp4",
    "upright-90.mp4",
    "mirrored-270.mp4",
]
"""Clips that NVDEC can decode."""


class StandInError(Exception):
    """An error like PyNvVideoCodec's, which have no base but Exception."""


class UnsupportedError(Exception):
    """The other one."""


class _Surface:
    """A picture as NVDEC stores it: luma rows, then rows of interleaved chroma, end to end."""

    def __init__(self, frame: av.VideoFrame) -> None:
        self._pts = frame.pts
        wide = frame.format.name.endswith("10le")
        self.format = "P016" if wide else "NV12"
        luma, cb, cr = plane_views(frame.planes, "<u2" if wide else "u1")
        chroma = np.stack((cb, cr), axis=-1).reshape(cb.shape[0], -1)
        self._samples = np.concatenate((luma, chroma)) << (6 if wide else 0)

    def getPTS(self) -> int:  # noqa: N802  (the library's name)
        return self._pts or 0

    def GetPtrToPlane(self, plane: int) -> int:  # noqa: N802
        assert plane == 0
        return int(self._samples.ctypes.data)


class _Decoder:
    def __init__(self, codec: str) -> None:
        self._codec = codec
        self._context: Any = None
        self._size = (0, 0)
        self.faults: Iterator[Exception | None] = iter(())

    def Decode(self, packet: Any) -> list[_Surface]:  # noqa: N802
        fault = next(self.faults, None)
        if fault is not None:
            raise fault
        if self._context is None:
            self._context = av.CodecContext.create(self._codec, "r")
            self._size = (0, 0)
            self._context.thread_count = 1
        fed = None
        if packet.bsl:
            fed = Packet(ctypes.string_at(packet.bsl_data, packet.bsl))
            fed.pts = packet.pts
        try:
            frames = self._context.decode(fed)
        except av.FFmpegError as exc:
            if self._size == (0, 0):
                return []  # NVDEC's parser passes over what comes before parameter sets
            raise StandInError(f"Decode : \nError code : 999\nError Type : {exc}\n") from exc
        if fed is None:
            self._context = None
        if frames:
            self._size = (frames[0].width, frames[0].height)
        return [_Surface(frame) for frame in frames]

    def GetWidth(self) -> int:  # noqa: N802
        return self._size[0]

    def GetHeight(self) -> int:  # noqa: N802
        return self._size[1]


class StandIn:
    """The part of the PyNvVideoCodec module that decoding needs."""

    cudaVideoCodec = SimpleNamespace(  # noqa: N815
        H264="h264", HEVC="hevc", AV1="libdav1d", VP9="vp9"
    )
    Pixel_Format = SimpleNamespace(P016="P016", NV12="NV12")
    PyNvVCException = StandInError
    PyNvVCExceptionUnsupported = UnsupportedError

    def __init__(self) -> None:
        self.decoders: list[_Decoder] = []

    def CreateDecoder(self, **settings: Any) -> _Decoder:  # noqa: N802
        assert settings["usedevicememory"]
        assert settings["cudastream"] == 1234
        self.decoders.append(_Decoder(settings["codec"]))
        return self.decoders[-1]

    @staticmethod
    def PacketData() -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(bsl_data=0, bsl=0, pts=0)


def install(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Put the stand-in where the library is looked for."""
    stand_in = StandIn()
    monkeypatch.setattr(nv_stream, "video_codec", lambda: stand_in)
    errors = (StandInError, UnsupportedError, RuntimeError, ValueError)
    monkeypatch.setattr(nv_stream, "codec_errors", lambda: errors)
    return stand_in


class StandInDecoder(NvStreamDecoder):
    """All of NVDEC's decoder but the device: its surfaces are copied on the host."""

    def __init__(self, path: Path, settings: DecodeSettings | None = None) -> None:
        info = probe(path)
        stream: Any = SimpleNamespace(ptr=1234, synchronize=lambda: None)
        device: Any = SimpleNamespace(number=0, context=1)
        super().__init__(info, settings, nv_codec(info), device, stream)

    def _write(self, picture: NvPicture, frame: Frame) -> None:
        rows, columns = picture.height, picture.width
        chroma_rows, pairs = (rows + 1) // 2, (columns + 1) // 2
        size = (rows + chroma_rows) * picture.pitch
        memory = (ctypes.c_uint8 * size).from_address(picture.pointer)
        samples = np.frombuffer(memory, self.info.format.dtype).reshape(-1, columns)
        chroma = samples[rows:].reshape(chroma_rows, pairs, 2)
        self._copy(samples[:rows], frame.luma)
        for channel in (0, 1):
            self._copy(chroma[..., channel], frame.chroma[..., channel])

    def _copy(self, source: Plane, target: Plane) -> None:
        if self.info.orientation.is_identity:
            target[:] = source
        else:
            upright = np.empty(target.shape, target.dtype)
            turn_plane(np.ascontiguousarray(source), upright, self.info.orientation)
            target[:] = upright
