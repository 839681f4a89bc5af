"""Adapters that copy frames between host and device for a decoder or an encoder.

Copies are asynchronous: they run on a stream of their own, from or to pinned memory, and are
counted in :attr:`bgsoft.cuda.device.CudaDevice.copies`.
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
from bgsoft.ops.placement import address
from bgsoft.report import Event
from bgsoft.ring import FrameRing

_DECODER_SLOTS = 4
"""Slots between decoder and copy: one to decode into, the others for copies in progress."""


class FrameCopier:
    """Copies the planes of ``kind`` from host to device (``up``) or back."""

    def __init__(
        self, device: CudaDevice, *, up: bool, kind: PictureKind = PictureKind.COLOR
    ) -> None:
        self.stream = device.new_stream()
        self._direction = 1 if up else 2  # cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost
        self._count = device.copies.add_h2d if up else device.copies.add_d2h
        self._color = kind is not PictureKind.MATTE
        self._alpha = kind is not PictureKind.COLOR

    def start(
        self, source: Planes, target: Planes, done: Any, after: Any = None, *, alpha: bool = False
    ) -> None:
        """Launch the copies of one frame.

        Args:
            source: Must not change until ``done``.
            target: Planes of the same shapes.
            done: CuPy event, recorded after the copies.
            after: CuPy event that the copies wait for; None: none.
            alpha: Also copy the matte, whatever the kind.
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
                raise ValueError(f"cannot copy a plane of {one.shape} to one of {other.shape}")
            cupy.cuda.runtime.memcpyAsync(
                address(other), address(one), one.nbytes, self._direction, self.stream.ptr
            )
        self._count(sum(int(one.nbytes) for one, _ in pairs))
        done.record(self.stream)


class _CrossingDecoder(Closing):
    """A decoder around another, which it closes; one of them has its frames on a device."""

    def __init__(self, decoder: Decoder, device: CudaDevice) -> None:
        self._decoder = decoder
        self._device = device
        self.info: VideoInfo = decoder.info
        self.stats: DecodeStats = decoder.stats
        self.events: list[Event] = decoder.events

    def close(self) -> None:
        self._decoder.close()


class UploadingDecoder(_CrossingDecoder):
    """Copies the frames of a decoder on the host to a device.

    The next frame is decoded while this one is copied. Slots are awaited as in
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
            # The decoder takes its next slot in this thread, so one must be free by then.
            while pending and (len(pending) == _DECODER_SLOTS or pending[0][1].done):
                planes, event = pending.popleft()
                event.synchronize()
                host.release(planes)
            yield frame
        copier.stream.synchronize()


class DownloadingDecoder(_CrossingDecoder):
    """Copies the frames of a decoder on a device to the host, into slots that should be pinned."""

    def frames(self, ring: FrameRing) -> Iterator[Frame]:
        self._device.make_current()
        copier = FrameCopier(self._device, up=False)
        done = cupy.cuda.Event(disable_timing=True)
        format = self.info.format
        # NVDEC runs ahead of the copies by this number of frames.
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
    """An encoder around another, which it closes; one of them takes its frames on a device.

    A frame is encoded while the next one is copied to the host. So an error of the encoder comes
    one frame later, with the pts of its own frame.

    Args:
        encoder: The encoder to wrap.
        device: The device.
        format: Layout of the frames.
        kind: Planes that the encoder reads; only these are copied.
        up: Copy from host to device.
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
        """Frame that has been copied, to be encoded during the next copy."""

    def encode(self, frame: Frame) -> None:
        self._device.make_current()
        self._slots.reverse()
        planes, done = self._slots[0]
        # The encoder blends the source's colour by alpha.
        alpha = frame.original is not None
        self._copier.start(frame.planes, planes, done, frame.ready, alpha=alpha)
        self._encode_waiting()
        done.synchronize()
        self._waiting = replace(frame, planes=planes, ready=done if self._up else None)
        if self._up:
            self._encode_waiting()  # now: a device may read a slot after encode() has returned
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
