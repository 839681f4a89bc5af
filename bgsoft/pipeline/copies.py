"""Copies of frames between host and device.

Each goes through pinned memory, asynchronously on a stream of its own, and is counted in
:attr:`bgsoft.cuda.device.CudaDevice.copies`.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from bgsoft.cuda.device import CudaDevice
from bgsoft.cuda.pinned import pinned_planes
from bgsoft.encode.base import PictureKind
from bgsoft.frame import Array, Frame, FrameFormat, Planes

__all__ = ["DeviceUpload", "HostDownload", "PlaneCopier"]


def _address(array: Array) -> int:
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)


class PlaneCopier:
    """Copies the planes of one slot into those of another, on one stream.

    Args:
        stream: CuPy stream of the copies.
        direction: :attr:`HOST_TO_DEVICE` or :attr:`DEVICE_TO_HOST`.
        kind: Which planes the receiver reads; no others are copied.
    """

    HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2  # cudaMemcpyKind

    def __init__(self, stream: Any, direction: int, kind: PictureKind) -> None:
        self.stream = stream
        self._direction = direction
        self._color = kind is not PictureKind.MATTE
        self._alpha = kind is not PictureKind.COLOR

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
                _address(other), _address(one), one.nbytes, self._direction, self.stream.ptr
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
        self._copier = PlaneCopier(self.stream, PlaneCopier.HOST_TO_DEVICE, PictureKind.COLOR)

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
        self._device.copies.add_h2d(self._copier.copy(source, target))
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
        self._copier = PlaneCopier(self.stream, PlaneCopier.DEVICE_TO_HOST, kind)
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
        self._device.copies.add_d2h(self._copier.copy(frame.planes, self._slots[turn]))
        self._done[turn].record(self.stream)
        return turn

    def finish(self, turn: int) -> Planes:
        """Wait for a download; returns the host slot."""
        self._done[turn].synchronize()
        return self._slots[turn]
