"""Decoders and encoders whose frames are wanted on the other side of PCIe."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import cupy

from bgsoft.closing import Closing
from bgsoft.cuda.device import CudaDevice, device_planes
from bgsoft.cuda.pinned import pinned_planes
from bgsoft.decode.base import Decoder, DecodeStats
from bgsoft.encode.base import Encoder, PictureKind
from bgsoft.frame import Frame, FrameFormat, Planes
from bgsoft.media.info import VideoInfo
from bgsoft.pipeline.copies import DeviceUpload, HostDownload, PlaneCopier
from bgsoft.pipeline.ring import FrameRing
from bgsoft.report import Event

__all__ = ["DownloadingDecoder", "DownloadingEncoder", "UploadingDecoder", "UploadingEncoder"]

_UPLOAD_SLOTS = 4
"""Slots between decoder and copy: one being decoded into, the others on their way."""


class UploadingDecoder(Closing):
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
        self._device.make_current()
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
        self._device.make_current()
        turn = self._download.start(frame)
        self._encode_waiting()
        self._waiting = replace(frame, planes=self._download.finish(turn), ready=None)
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


class DownloadingDecoder(Closing):
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
        self._device.make_current()
        stream = self._device.new_stream()
        copier = PlaneCopier(stream, PlaneCopier.DEVICE_TO_HOST, PictureKind.COLOR)
        done = cupy.cuda.Event(disable_timing=True)
        format = self.info.format
        # NVDEC is ahead of the copy by what fits in here.
        slots = FrameRing(_UPLOAD_SLOTS, lambda slot: device_planes(format, slot))
        for frame in self._decoder.frames(slots):
            target = ring.acquire()
            try:
                if frame.ready is not None:
                    stream.wait_event(frame.ready)
                self._device.copies.add_d2h(copier.copy(frame.planes, target))
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
        self._copier = PlaneCopier(self._stream, PlaneCopier.HOST_TO_DEVICE, kind)
        self._slots = [device_planes(format, slot) for slot in range(2)]
        self._done = [cupy.cuda.Event(disable_timing=True) for _ in range(2)]
        self._turn = 0

    def encode(self, frame: Frame) -> None:
        self._device.make_current()
        turn, self._turn = self._turn, 1 - self._turn
        source = frame.planes
        self._device.copies.add_h2d(self._copier.copy(source, self._slots[turn]))
        self._done[turn].record(self._stream)
        self._done[turn].synchronize()
        self._encoder.encode(replace(frame, planes=self._slots[turn], ready=self._done[turn]))
        self.frames += 1

    def finish(self) -> None:
        self._encoder.finish()

    def close(self) -> None:
        self._encoder.close()
