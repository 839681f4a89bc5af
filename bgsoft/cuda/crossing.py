"""Frames that cross between host and device, where neighbouring stages run on different ones.

Each crossing goes through pinned memory, asynchronously on a stream of its own, and is counted in
:attr:`bgsoft.cuda.device.CudaDevice.copies`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import cupy
import numpy as np
import numpy.typing as npt

from bgsoft.cuda.device import PLANE_ALIGNMENT, CudaDevice, device_planes
from bgsoft.decode.base import Decoder, DecodeStats
from bgsoft.encode.base import Encoder, PictureKind
from bgsoft.frame import Array, Frame, FrameFormat, Planes
from bgsoft.media.info import VideoInfo
from bgsoft.pipeline.ring import FrameRing
from bgsoft.report import Event

__all__ = [
    "DeviceUpload",
    "DownloadingDecoder",
    "DownloadingEncoder",
    "HostDownload",
    "UploadingDecoder",
    "UploadingEncoder",
    "pinned_planes",
]

_HOST_TO_DEVICE, _DEVICE_TO_HOST = 1, 2  # cudaMemcpyKind
_UPLOAD_SLOTS = 4
"""Host slots of an upload: one being decoded into, the others on their way."""


def pinned_planes(format: FrameFormat, slot: int) -> Planes:
    """The buffers of one ring slot in page-locked host memory, laid out as the device's are.

    See :func:`bgsoft.cuda.device.device_planes`.
    """
    dtype = np.dtype(format.dtype)
    luma_bytes = math.prod(format.luma_shape) * dtype.itemsize
    chroma_bytes = math.prod(format.chroma_shape) * dtype.itemsize
    chroma_at = -(-luma_bytes // PLANE_ALIGNMENT) * PLANE_ALIGNMENT
    buffer = _pinned(chroma_at + chroma_bytes)
    alpha = _pinned(math.prod(format.luma_shape)).reshape(format.luma_shape)
    alpha.fill(0)
    return Planes(
        slot=slot,
        luma=buffer[:luma_bytes].view(dtype).reshape(format.luma_shape),
        chroma=buffer[chroma_at:].view(dtype).reshape(format.chroma_shape),
        alpha=alpha,
    )


def _pinned(size: int) -> npt.NDArray[np.uint8]:
    """Page-locked bytes; freed with the last view of them."""
    memory = cupy.cuda.alloc_pinned_memory(size)  # may be larger than asked for
    return np.frombuffer(memory, np.uint8, size)


def _address(array: Array) -> int:
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)


class _Copier:
    """Copies the planes of one slot into those of another, on one stream.

    Args:
        stream: CuPy stream of the copies.
        kind: cudaMemcpyKind.
        color: Copy luma and chroma.
        alpha: Copy alpha.
    """

    def __init__(self, stream: Any, kind: int, *, color: bool, alpha: bool) -> None:
        self.stream = stream
        self._kind = kind
        self._color = color
        self._alpha = alpha

    def copy(self, source: Planes, target: Planes) -> int:
        """Launch the copies; returns the bytes they move."""
        pairs: list[tuple[Array, Array]] = []
        if self._color:
            pairs += [(source.luma, target.luma), (source.chroma, target.chroma)]
        if self._alpha:
            pairs.append((source.alpha, target.alpha))
        for one, other in pairs:
            if one.shape != other.shape or one.dtype != other.dtype:
                raise ValueError(f"a plane of {one.shape} does not fit one of {other.shape}")
            cupy.cuda.runtime.memcpyAsync(
                _address(other), _address(one), one.nbytes, self._kind, self.stream.ptr
            )
        return sum(int(one.nbytes) for one, _ in pairs)


class DeviceUpload:
    """Copies luma and chroma of host slots to device slots.

    Args:
        device: The target.
    """

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self.stream = device.new_stream()
        self._copier = _Copier(self.stream, _HOST_TO_DEVICE, color=True, alpha=False)

    def start(self, source: Planes, target: Planes, done: Any, after: Any = None) -> None:
        """Launch an upload.

        Args:
            source: Slot in pinned memory; to be left alone until ``done``.
            target: Slot on the device.
            done: CuPy event recorded behind the copies.
            after: CuPy event that the copies wait for; None: nothing.
        """
        if after is not None:
            self.stream.wait_event(after)
        self._device.copies.h2d_bytes += self._copier.copy(source, target)
        done.record(self.stream)


class HostDownload:
    """Copies device slots to two pinned host slots, in turns.

    Args:
        device: The source.
        format: Layout of the frames.
        kind: Which planes the receiver reads; no others are copied.
    """

    def __init__(self, device: CudaDevice, format: FrameFormat, kind: PictureKind) -> None:
        self._device = device
        self.stream = device.new_stream()
        self._copier = _Copier(
            self.stream,
            _DEVICE_TO_HOST,
            color=kind is not PictureKind.MATTE,
            alpha=kind is not PictureKind.COLOR,
        )
        self._slots = [pinned_planes(format, slot) for slot in range(2)]
        self._done = [cupy.cuda.Event(disable_timing=True) for _ in range(2)]
        self._turn = 0

    def start(self, frame: Frame) -> int:
        """Launch the download of a frame, once it is ready.

        Returns:
            The turn, for :meth:`finish`. The host slot is overwritten by the next but one.
        """
        turn, self._turn = self._turn, 1 - self._turn
        if frame.ready is not None:
            self.stream.wait_event(frame.ready)
        self._device.copies.d2h_bytes += self._copier.copy(frame.planes, self._slots[turn])
        self._done[turn].record(self.stream)
        return turn

    def finish(self, turn: int) -> Planes:
        """Wait for a download; returns the host slot."""
        self._done[turn].synchronize()
        return self._slots[turn]


class UploadingDecoder:
    """A decoder on the host whose frames go on to a device.

    See :class:`bgsoft.decode.base.Decoder`. The next frame is decoded while this one is copied.
    Slots are waited for as in :class:`bgsoft.decode.nvdec.NvdecDecoder`.

    Args:
        decoder: Decodes into host slots; closed with this one.
        device: Where the slots given to :meth:`frames` are.
    """

    def __init__(self, decoder: Decoder, device: CudaDevice) -> None:
        self._decoder = decoder
        self._device = device
        self.info: VideoInfo = decoder.info
        self.stats: DecodeStats = decoder.stats
        self.events: list[Event] = decoder.events
        self._last: dict[int, Frame] = {}
        self._ready: dict[int, Any] = {}

    def frames(self, ring: FrameRing) -> Iterator[Frame]:
        cupy.cuda.Device(self._device.number).use()  # of the calling thread
        upload = DeviceUpload(self._device)
        format = self.info.format
        host = FrameRing(_UPLOAD_SLOTS, lambda slot: pinned_planes(format, slot))
        pending: deque[tuple[Planes, Any]] = deque()
        for frame in self._decoder.frames(host):
            source = frame.planes
            target = ring.acquire()
            try:
                done = self._ready.setdefault(target.slot, None)
                if done is None:
                    done = self._ready[target.slot] = cupy.cuda.Event(disable_timing=True)
                last = self._last.get(target.slot)
                upload.start(source, target, done, None if last is None else last.ready)
            except BaseException:
                ring.release(target)
                raise
            frame.planes = target
            frame.ready = done
            self._last[target.slot] = frame
            pending.append((source, done))
            # The decoder takes its next slot from the same thread: one has to be free by then.
            while pending and (len(pending) == _UPLOAD_SLOTS or pending[0][1].done):
                planes, event = pending.popleft()
                event.synchronize()
                host.release(planes)
            yield frame
        upload.stream.synchronize()

    def close(self) -> None:
        self._decoder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class DownloadingEncoder:
    """An encoder on the host that takes frames from a device.

    See :class:`bgsoft.encode.base.Encoder`. While a frame is copied, the one before it is encoded;
    so an error of the encoder comes one frame later, with the pts of the frame it belongs to.

    Args:
        encoder: Encodes host frames.
        device: Where the frames are.
        format: Their layout.
        kind: Which planes the encoder reads.
    """

    def __init__(
        self,
        encoder: Encoder,
        device: CudaDevice,
        format: FrameFormat,
        kind: PictureKind = PictureKind.COLOR,
    ) -> None:
        self.name = encoder.name
        self.frames = 0
        self._encoder = encoder
        self._device = device
        self._download = HostDownload(device, format, kind)
        self._waiting: Frame | None = None
        """Downloaded, to be encoded during the next download."""

    def encode(self, frame: Frame) -> None:
        cupy.cuda.Device(self._device.number).use()  # of the calling thread
        turn = self._download.start(frame)
        self._encode_waiting()
        self._waiting = Frame(
            planes=self._download.finish(turn),
            format=frame.format,
            index=frame.index,
            pts=frame.pts,
            time_base=frame.time_base,
            duration=frame.duration,
            concealed=frame.concealed,
        )
        self.frames += 1

    def _encode_waiting(self) -> None:
        frame, self._waiting = self._waiting, None
        if frame is not None:
            self._encoder.encode(frame)

    def finish(self) -> None:
        self._encode_waiting()
        self._encoder.finish()

    def close(self) -> None:
        self._waiting = None
        self._encoder.close()


class DownloadingDecoder:
    """A decoder on a device whose frames go on to the host.

    See :class:`bgsoft.decode.base.Decoder`.

    Args:
        decoder: Decodes into device slots; closed with this one.
        device: Where it decodes.
    """

    def __init__(self, decoder: Decoder, device: CudaDevice) -> None:
        self._decoder = decoder
        self._device = device
        self.info: VideoInfo = decoder.info
        self.stats: DecodeStats = decoder.stats
        self.events: list[Event] = decoder.events

    def frames(self, ring: FrameRing) -> Iterator[Frame]:
        """See :meth:`bgsoft.decode.base.Decoder.frames`; the slots should be pinned."""
        cupy.cuda.Device(self._device.number).use()  # of the calling thread
        stream = self._device.new_stream()
        copier = _Copier(stream, _DEVICE_TO_HOST, color=True, alpha=False)
        done = cupy.cuda.Event(disable_timing=True)
        format = self.info.format
        # NVDEC is ahead of the copy by what fits in here.
        slots = FrameRing(_UPLOAD_SLOTS, lambda slot: device_planes(format, slot))
        for frame in self._decoder.frames(slots):
            target = ring.acquire()
            try:
                if frame.ready is not None:
                    stream.wait_event(frame.ready)
                self._device.copies.d2h_bytes += copier.copy(frame.planes, target)
                done.record(stream)
                done.synchronize()
            except BaseException:
                ring.release(target)
                raise
            slots.release(frame)
            frame.planes = target
            frame.ready = None
            yield frame

    def close(self) -> None:
        self._decoder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class UploadingEncoder:
    """An encoder on a device that takes frames from the host.

    See :class:`bgsoft.encode.base.Encoder`.

    Args:
        encoder: Encodes device frames.
        device: Where it encodes.
        format: Layout of the frames.
        kind: Which planes it reads.
    """

    def __init__(
        self,
        encoder: Encoder,
        device: CudaDevice,
        format: FrameFormat,
        kind: PictureKind = PictureKind.COLOR,
    ) -> None:
        self.name = encoder.name
        self.frames = 0
        self._encoder = encoder
        self._device = device
        self._stream = device.new_stream()
        self._copier = _Copier(
            self._stream,
            _HOST_TO_DEVICE,
            color=kind is not PictureKind.MATTE,
            alpha=kind is not PictureKind.COLOR,
        )
        self._slots = [device_planes(format, slot) for slot in range(2)]
        self._done = [cupy.cuda.Event(disable_timing=True) for _ in range(2)]
        self._turn = 0

    def encode(self, frame: Frame) -> None:
        cupy.cuda.Device(self._device.number).use()  # of the calling thread
        turn, self._turn = self._turn, 1 - self._turn
        source = frame.planes
        self._device.copies.h2d_bytes += self._copier.copy(source, self._slots[turn])
        self._done[turn].record(self._stream)
        self._done[turn].synchronize()
        self._encoder.encode(
            Frame(
                planes=self._slots[turn],
                format=frame.format,
                index=frame.index,
                pts=frame.pts,
                time_base=frame.time_base,
                duration=frame.duration,
                concealed=frame.concealed,
                ready=self._done[turn],
            )
        )
        self.frames += 1

    def finish(self) -> None:
        self._encoder.finish()

    def close(self) -> None:
        self._encoder.close()
