"""Frames that ``bgsoft live --share NAME`` publishes, for other processes of the same user.

::

    with Reader("camera") as reader:
        while reader.wait(5):
            frame = reader.copy()
"""

from __future__ import annotations

import mmap
import os
import time
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bgsoft.closing import Closing
from bgsoft.errors import OpenError, os_errors_as
from bgsoft.frame import ColorInfo, FrameFormat, PixelLayout
from bgsoft.live.layout import (
    CONTROL,
    CONTROL_MAGIC,
    HEADER_BYTES,
    RING,
    RING_MAGIC,
    VERSION,
    Geometry,
    SharedFormat,
    Slot,
    check_name,
    control_path,
    is_own,
    ring_path,
)
from bgsoft.live.waking import is_locked, wait_for_change

_LOOK_SECONDS = 0.25
"""How often a waiting reader looks whether its writer was replaced."""
_NO_WRITER_SECONDS = 0.02
"""How often it looks for a writer where there is none."""
_TRIES = 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharedFrame:
    """A published frame.

    Its arrays are its own (:meth:`Reader.copy`), or are the shared memory itself, read-only
    (:meth:`Reader.view`): those are overwritten when the writer comes round to their slot.
    """

    number: int
    """1, 2, 3 … in the order of publication; what is missing was published and not read."""
    index: int
    pts: int
    """In ``time_base`` units, from the stream's first frame."""
    time_base: Fraction
    captured_ns: int
    """When it arrived, :func:`time.monotonic_ns`."""
    published_ns: int
    """When it was ready to be read, on the same clock."""
    stale: bool
    """Whether the source has stopped, and this is its last frame, dimmed."""
    format: FrameFormat
    """Size, layout, and of the colours their matrix and range."""
    pixel_format: SharedFormat
    picture: tuple[NDArray[Any], ...]
    """(luma, chroma), or with ``bgr`` one array of (H, W, 3)."""
    alpha: NDArray[np.uint8]
    """(H, W): the matte, 255 = person."""
    faces: NDArray[Any]
    """(N,) of :data:`bgsoft.live.layout.FACE`."""
    _sequence: NDArray[np.uint64] | None
    """The slot's; None: the arrays are the frame's own."""

    def valid(self) -> bool:
        """Whether the arrays still show this frame: ask after what was made of them."""
        return self._sequence is None or int(self._sequence[0]) == 2 * self.number


class Reader(Closing):
    """Reads the newest frame that is published under a name; for one thread.

    It cannot hold up or disturb the writer, and may come before it and outlive it: it follows the
    writer to other sizes, and its successors.

    Raises:
        ConfigError: It is no name for sharing frames.
    """

    def __init__(self, name: str) -> None:
        self.name = check_name(name)
        self.torn = 0
        """Copies that were overwritten while they were made, and made again."""
        self._link: _Link | None = None
        self._seen = 0

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a frame newer than the one last read; False: none came for so many seconds.

        Raises:
            OpenError: What has the name is not what a writer of this version makes.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            self._follow()
            link = self._link
            published = 0 if link is None else int(link.published[0])
            if published not in (0, self._seen):
                return True
            left = _LOOK_SECONDS if until is None else until - time.monotonic()
            if left <= 0:
                return False
            if link is None or link.is_removed():
                time.sleep(min(left, _NO_WRITER_SECONDS))
            else:
                wait_for_change(link.published, published, min(left, _LOOK_SECONDS))

    def view(self) -> SharedFrame | None:
        """The newest frame, where it lies; None before there is one.

        Raises:
            OpenError: As for :meth:`wait`.
        """
        self._follow()
        for _ in range(_TRIES if self._link is not None else 0):
            assert self._link is not None
            frame = self._link.newest()
            if frame is not None:
                self._seen = frame.number
                return frame
            if not self._link.published[0]:
                return None
            time.sleep(0.0005)  # the writer is at a change of generation, or was killed in it
        return None

    def copy(self) -> SharedFrame | None:
        """The newest frame, whole, in memory of its own; None before there is one.

        Raises:
            OpenError: As for :meth:`wait`.
        """
        for _ in range(_TRIES):
            view = self.view()
            if view is None:
                return None
            copied = replace(
                view,
                picture=tuple(plane.copy() for plane in view.picture),
                alpha=view.alpha.copy(),
                faces=view.faces.copy(),
                _sequence=None,
            )
            if view.valid():
                return copied
            self.torn += 1
        return None

    @property
    def connected(self) -> bool:
        """Whether somebody publishes under this name now."""
        self._follow()
        link = self._link
        return link is not None and is_locked(link.fd) and not link.is_removed()

    def close(self) -> None:
        """Let go of the shared memory; views that are left keep their part of it."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def _follow(self) -> None:
        """Take the writer's successor where it is gone, once there is one."""
        if self._link is not None and not self._link.is_removed():
            return
        found = _Link.open(self.name)
        if found is not None:
            self.close()
            self._link, self._seen = found, 0


class _Link:
    """A control, and the ring that it points to, mapped read-only."""

    def __init__(self, name: str, fd: int) -> None:
        self.fd = fd
        buffer = mmap.mmap(fd, HEADER_BYTES, mmap.MAP_SHARED, mmap.PROT_READ)
        self.control: NDArray[Any] = np.ndarray(1, CONTROL, buffer)
        offset = CONTROL.fields["published"][1]  # type: ignore[index]
        self.published: NDArray[np.uint64] = np.ndarray(1, "<u8", buffer, offset)
        self._name = name
        self._generation = 0
        self._geometry: Geometry | None = None
        self._ring: list[Slot] = []

    @classmethod
    def open(cls, name: str) -> _Link | None:
        """None: there is no writer, or it has not quite begun."""
        path = control_path(name)
        with os_errors_as(OpenError, f"cannot read the frames shared as {name}", path=path):
            fd = _open(path)
            if fd is None:
                return None
            if os.fstat(fd).st_size >= HEADER_BYTES:
                link = cls(name, fd)
                if link.control["magic"][0]:
                    _check(link.control[0], CONTROL_MAGIC, name, path)
                    return link
            os.close(fd)
        return None

    def is_removed(self) -> bool:
        return os.fstat(self.fd).st_nlink == 0

    def newest(self) -> SharedFrame | None:
        """The newest frame; None: there is none yet, or it is just changing."""
        if int(self.control["generation"][0]) != self._generation and not self._map_ring():
            return None
        number = int(self.published[0])
        if self._geometry is None or not number:
            return None
        slot = self._ring[number % self._geometry.slots]
        if int(slot.sequence[0]) != 2 * number:
            return None
        about = slot.about[0]
        frame = SharedFrame(
            number=number,
            index=int(about["index"]),
            pts=int(about["pts"]),
            time_base=Fraction(*map(int, about["time_base"])),
            captured_ns=int(about["captured_ns"]),
            published_ns=int(about["published_ns"]),
            stale=bool(about["stale"]),
            format=self._geometry.format,
            pixel_format=self._geometry.pixel_format,
            picture=slot.picture,
            alpha=slot.alpha,
            faces=slot.faces[: int(about["faces"])],
            _sequence=slot.sequence,
        )
        return frame if frame.valid() else None

    def _map_ring(self) -> bool:
        """Map the ring of the present generation; False: it is gone already."""
        generation = int(self.control["generation"][0])
        path = ring_path(self._name, generation)
        with os_errors_as(OpenError, f"cannot read the frames shared as {self._name}", path=path):
            fd = _open(path)
            if fd is None:
                return False
            try:
                size = os.fstat(fd).st_size
                flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
                buffer = mmap.mmap(fd, size, flags, mmap.PROT_READ)
            finally:
                os.close(fd)
        header = np.ndarray(1, RING, buffer)[0]
        _check(header, RING_MAGIC, self._name, path)
        pixel_format = SharedFormat(header["pixel_format"].decode())
        deep = pixel_format is SharedFormat.P010
        color = ColorInfo(matrix=int(header["matrix"]), full_range=bool(header["full_range"]))
        self._geometry = Geometry(
            format=FrameFormat(
                width=int(header["width"]),
                height=int(header["height"]),
                layout=PixelLayout.P010 if deep else PixelLayout.NV12,
                color=color,
            ),
            pixel_format=pixel_format,
            slots=int(header["slots"]),
        )
        slots = range(self._geometry.slots)
        self._ring = [self._geometry.slot(buffer, header, slot) for slot in slots]
        self._generation = generation
        return True

    def close(self) -> None:
        """Close the file; the memory goes with the last array on it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _open(path: Path) -> int | None:
    """A file of the user's own to read; None: there is none. OSError, OpenError otherwise."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    if is_own(fd):
        return fd
    os.close(fd)
    raise OpenError(f"{path} belongs to another user", path=path)


def _check(header: Any, magic: bytes, name: str, path: Path) -> None:
    if header["magic"] != magic or header["version"] != VERSION:
        what = f"layout {header['version']}, not {VERSION}"
        raise OpenError(f"frames shared as {name} are another version's: {what}", path=path)
