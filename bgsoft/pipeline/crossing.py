"""Decoders and encoders whose frames are wanted on the other side of PCIe.

Copies are asynchronous, on a stream of their own, from or to pinned memory, and counted in
:attr:`bgsoft.cuda.device.CudaDevice.copies`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import cupy

from bgsoft.closing import Closing
from bgsoft.cuda.device import CudaDevice, device_planes, pinned_planes
from bgsoft.decode.base import Decoder, DecodeStats
from bgsoft.encode.base import Encoder, PictureKind
from bgsoft.frame import Array, Frame, FrameFormat, Planes
from bgsoft.media.info import VideoInfo
from bgsoft.ops.sides import address
from bgsoft.report import Event
from bgsoft.ring import FrameRing

_DECODER_SLOTS = 4
"""Slots between decoder and copy: one being decoded into, the others on their way."""


class FrameCopier:
    """Copies frames from host to device (``up``) or back; of their planes those of ``kind``."""

    def __init__(
        self, device: CudaDevice, *, up: bool, kind: PictureKind = PictureKind.COLOR
    ) -> None:
        self.stream = device.new_stream()
        self._direction = 1 if up else 2  # cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost
        self._count = device.copies.add_h2d if up else device.copies.add_d2h
        self._color = kind is not PictureKind.MATTE
        self._alpha = kind is not PictureKind.COLOR

    def start(
        self,
        source: Planes,
        target: Planes,
        done: Any,
        after: Any = None,
        *,
        alpha: bool = False,
    ) -> None:
        """Launch the copies of one frame.

        Args:
            source: To be left alone until ``done``.
            target: Has planes of the same shapes.
            done: CuPy event recorded behind the copies.
            after: CuPy event that the copies wait for; None: nothing.
            alpha: The matte is wanted, whatever the kind.
        """
        if after is not None:
            self.stream.wait_event(after)
        pairs: list[tuple[Array, Array]] = []
        if self._color:
            pairs += [(source.luma, target.luma), (source.chroma, target.chroma)]
        if self._alpha or alpha:
            pairs.append((source.alpha, target.alpha))
        for one, other in pairs:
            if one.shape != other.shape or one.dtype != other.dtype:
                raise ValueError(f"a plane of {one.shape} does not fit one of {other.shape}")
            cupy.cuda.runtime.memcpyAsync(
                address(other), address(one), one.nbytes, self._direction, self.stream.ptr
            )
        self._count(sum(int(one.nbytes) for one, _ in pairs))
        done.record(self.stream)


class _CrossingDecoder(Closing):
    """A decoder around another, which is closed with it; one of both has its frames on a device."""

    def __init__(self, decoder: Decoder, device: CudaDevice) -> None:
        self._decoder = decoder
        self._device = device
        self.info: VideoInfo = decoder.info
        self.stats: DecodeStats = decoder.stats
        self.events: list[Event] = decoder.events

    def close(self) -> None:
        self._decoder.close()


class UploadingDecoder(_CrossingDecoder):
    """A decoder on the host whose frames go on to a device.

    The next frame is decoded while this one is copied. Slots are waited for as in
    :class:`bgsoft.decode.nvdec.NvdecDecoder`.
    """

    def frames(self, ring: FrameRing) -> Iterator[Frame]:
        self._device.make_current()
        copier = FrameCopier(self._device, up=True)
        format = self.info.format
        host = FrameRing(_DECODER_SLOTS, lambda slot: pinned_planes(format, slot))
        pending: deque[tuple[Planes, Any]] = deque()
        last: dict[int, Frame] = {}
        ready: dict[int, Any] = {}
        for frame in self._decoder.frames(host):
            source = frame.planes
            target = ring.acquire()
            try:
                if target.slot not in ready:
                    ready[target.slot] = cupy.cuda.Event(disable_timing=True)
                done, before = ready[target.slot], last.get(target.slot)
                copier.start(source, target, done, None if before is None else before.ready)
            except BaseException:
                ring.release(target)
                raise
            frame.planes = target
            frame.ready = done
            last[target.slot] = frame
            pending.append((source, done))
            # The decoder takes its next slot from the same thread: one has to be free by then.
            while pending and (len(pending) == _DECODER_SLOTS or pending[0][1].done):
                planes, event = pending.popleft()
                event.synchronize()
                host.release(planes)
            yield frame
        copier.stream.synchronize()


class DownloadingDecoder(_CrossingDecoder):
    """A decoder on a device whose frames go on to the host, into slots that should be pinned."""

    def frames(self, ring: FrameRing) -> Iterator[Frame]:
        self._device.make_current()
        copier = FrameCopier(self._device, up=False)
        done = cupy.cuda.Event(disable_timing=True)
        format = self.info.format
        # NVDEC is ahead of the copy by what fits in here.
        slots = FrameRing(_DECODER_SLOTS, lambda slot: device_planes(format, slot))
        for frame in self._decoder.frames(slots):
            target = ring.acquire()
            try:
                copier.start(frame.planes, target, done, frame.ready)
                done.synchronize()
            except BaseException:
                ring.release(target)
                raise
            slots.release(frame)
            frame.planes = target
            frame.ready = None
            yield frame


class CrossingEncoder:
    """An encoder around another, which is closed with it; one of both has its frames on a device.

    While a frame is copied to the host, the one before it is encoded; so an error of the encoder
    comes one frame later there, with the pts of the frame it belongs to.

    Args:
        encoder: The other.
        device: The device.
        format: Layout of the frames.
        kind: Which planes the encoder reads; no others are copied.
        up: Frames go from the host to the device.
    """

    def __init__(
        self,
        encoder: Encoder,
        device: CudaDevice,
        format: FrameFormat,
        kind: PictureKind,
        *,
        up: bool,
    ) -> None:
        self.name, self.pixel_format = encoder.name, encoder.pixel_format
        self.frames = 0
        self._encoder = encoder
        self._device, self._up = device, up
        self._copier = FrameCopier(device, up=up, kind=kind)
        allocate = device_planes if up else pinned_planes
        self._slots = [
            (allocate(format, slot), cupy.cuda.Event(disable_timing=True)) for slot in range(2)
        ]
        self._waiting: Frame | None = None
        """Copied, to be encoded during the next copy."""

    def encode(self, frame: Frame) -> None:
        self._device.make_current()
        self._slots.reverse()
        planes, done = self._slots[0]
        # By its alpha an encoder shows what a frame was made from.
        alpha = frame.original is not None
        self._copier.start(frame.planes, planes, done, frame.ready, alpha=alpha)
        self._encode_waiting()
        done.synchronize()
        self._waiting = replace(frame, planes=planes, ready=done if self._up else None)
        if self._up:
            self._encode_waiting()  # at once: a device may read a slot after it has answered
        self.frames += 1

    def _encode_waiting(self) -> None:
        frame, self._waiting = self._waiting, None
        if frame is not None:
            self._encoder.encode(frame)

    def finish(self) -> None:
        self._encode_waiting()
        self._encoder.finish()

    def close(self) -> None:
        self._encoder.close()
