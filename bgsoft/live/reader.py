"""Frames that ``bgsoft live --share NAME`` publishes, for other processes of the same user."""

from __future__ import annotations

import mmap
import os
import time
from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bgsoft.closing import Closing
from bgsoft.errors import OpenError, os_errors_as
from bgsoft.frame import ColorInfo, FrameFormat, PixelLayout
from bgsoft.live import layout
from bgsoft.live.layout import CONTROL, HEADER_BYTES, RING, SharedFormat
from bgsoft.live.waking import is_locked, wait_for_change
from bgsoft.records import dataclass

_LOOK_SECONDS = 0.25
"""How often a waiting reader looks whether its writer was replaced."""
_NO_WRITER_SECONDS = 0.02
"""How often it looks for a writer where there is none."""
_TRIES = 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharedFrame:
    """A published frame.

    Its arrays are its own (:meth:`Reader.copy`), or the shared memory itself, read-only
    (:meth:`Reader.view`): those are overwritten when the writer comes round to them.
    """

    number: int
    """1, 2, 3 … in the order of publication."""
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
    """(luma, chroma), or of ``bgr`` one array."""
    alpha: NDArray[np.uint8]
    """(H, W): the matte, 255 = person."""
    faces: NDArray[Any]
    """(N,) of :data:`bgsoft.live.layout.FACE`."""
    _sequence: NDArray[np.uint64] | None
    """The slot's; None: the arrays are the frame's own."""

    def valid(self) -> bool:
        """Whether the arrays still show this frame: to be asked after they were used."""
        return self._sequence is None or int(self._sequence[0]) == 2 * self.number


class Reader(Closing):
    """Reads the newest frame that is published under a name; for one thread.

    It cannot hold up or disturb the writer. It may come before it and stay after it, and follows it
    to other sizes, and to its successors.

    Raises:
        ConfigError: It is no name for sharing frames.
    """

    def __init__(self, name: str) -> None:
        self.name = layout.check_name(name)
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
            link = self._follow()
            newest = 0 if link is None else int(link.published[0])
            if newest not in (0, self._seen):
                return True
            left = _LOOK_SECONDS if until is None else until - time.monotonic()
            if left <= 0:
                return False
            if link is None or link.is_removed():
                time.sleep(min(left, _NO_WRITER_SECONDS))
            else:
                wait_for_change(link.published, newest, min(left, _LOOK_SECONDS))

    def view(self) -> SharedFrame | None:
        """The newest frame, where it lies; None before there is one.

        Raises:
            OpenError: As for :meth:`wait`.
        """
        link = self._follow()
        for _ in range(_TRIES):
            if link is None or not link.published[0]:
                break
            frame = link.newest()
            if frame is not None:
                self._seen = frame.number
                return frame
            time.sleep(0.0005)  # the writer goes over to another ring, or was killed at that
        return None

    def copy(self) -> SharedFrame | None:
        """The newest frame, whole, in memory of its own; None before there is one.

        Raises:
            OpenError: As for :meth:`wait`.
        """
        for _ in range(_TRIES):
            view = self.view()
            if view is None:
                break
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
        link = self._follow()
        return link is not None and is_locked(link.fd) and not link.is_removed()

    def close(self) -> None:
        """Let go of the shared memory; views that are left keep their part of it."""
        if self._link is not None:
            os.close(self._link.fd)
            self._link = None

    def _follow(self) -> _Link | None:
        """The link to the writer, or to its successor once there is one."""
        if self._link is None or self._link.is_removed():
            with os_errors_as(OpenError, _cannot(self.name)):
                found = _open_link(self.name)
            if found is not None:
                self.close()
                self._link, self._seen = found, 0
        return self._link


class _Link:
    """A control, and the ring that it points to, mapped read-only."""

    def __init__(self, name: str, fd: int, control: NDArray[Any]) -> None:
        self.fd = fd
        self.published: NDArray[np.uint64] = control["published"]
        self._name = name
        self._wanted = control["generation"]
        self._generation = 0
        self._ring: NDArray[Any] = np.empty(0)

    def is_removed(self) -> bool:
        return os.fstat(self.fd).st_nlink == 0

    def newest(self) -> SharedFrame | None:
        """The newest frame; None: it is just changing."""
        generation = int(self._wanted[0])
        if generation != self._generation and not self._map_ring(generation):
            return None
        number = int(self.published[0])
        place = number % len(self._ring)
        slot = self._ring[place : place + 1]
        if slot["sequence"][0] != 2 * number:
            return None
        numbers = ("index", "pts", "captured_ns", "published_ns")
        frame = SharedFrame(
            number=number,
            **{name: int(slot[name][0]) for name in numbers},
            time_base=Fraction(*slot["time_base"][0].tolist()),
            stale=bool(slot["stale"][0]),
            format=self._format,
            pixel_format=self._pixel_format,
            picture=tuple(slot[name][0] for name in layout.picture_fields(self._pixel_format)),
            alpha=slot["alpha"][0],
            faces=slot["faces"][0][: int(slot["face_count"][0])],
            _sequence=slot["sequence"],
        )
        return frame if frame.valid() else None

    def _map_ring(self, generation: int) -> bool:
        """Map the ring of a generation; False: there is none (yet), or it is gone already."""
        path = layout.ring_path(self._name, generation)
        with os_errors_as(OpenError, _cannot(self._name), path=path):
            fd = _open(path)
            if fd is None:
                return False
            with os.fdopen(fd, "rb") as file:
                flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
                buffer = mmap.mmap(file.fileno(), 0, flags, mmap.PROT_READ)
        header = np.ndarray(1, RING, buffer)[0]
        _check(header, layout.RING_MAGIC, self._name, path)
        self._pixel_format = SharedFormat(header["pixel_format"].decode())
        deep = self._pixel_format is SharedFormat.P010
        self._format = FrameFormat(
            width=int(header["width"]),
            height=int(header["height"]),
            layout=PixelLayout.P010 if deep else PixelLayout.NV12,
            color=ColorInfo(matrix=int(header["matrix"]), full_range=bool(header["full_range"])),
        )
        slot = layout.slot_type(self._format, self._pixel_format)
        self._ring = np.ndarray(int(header["slots"]), slot, buffer, HEADER_BYTES)
        self._generation = generation
        return True


def _open_link(name: str) -> _Link | None:
    """A link to the writer of a name; None: there is none, or it has not quite begun."""
    path = layout.control_path(name)
    fd = _open(path)
    if fd is None:
        return None
    with ExitStack() as stack:
        stack.callback(os.close, fd)
        if os.fstat(fd).st_size >= HEADER_BYTES:
            buffer = mmap.mmap(fd, HEADER_BYTES, mmap.MAP_SHARED, mmap.PROT_READ)
            control: NDArray[Any] = np.ndarray(1, CONTROL, buffer)
            if control["magic"][0]:
                _check(control[0], layout.CONTROL_MAGIC, name, path)
                stack.pop_all()
                return _Link(name, fd, control)
    return None


def _open(path: Path) -> int | None:
    """A file of the user's own to read; None: there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    if layout.is_own(fd):
        return fd
    os.close(fd)
    raise OpenError(f"{path} belongs to another user", path=path)


def _check(header: Any, magic: bytes, name: str, path: Path) -> None:
    if header["magic"] != magic or header["version"] != layout.VERSION:
        what = f"layout {header['version']}, not {layout.VERSION}"
        raise OpenError(f"{_cannot(name)}: they are another version's ({what})", path=path)


def _cannot(name: str) -> str:
    return f"cannot read the frames shared as {name}"
