"""Reader of frames that ``bgsoft live --share NAME`` publishes to processes of the same user."""

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

_CHECK_SECONDS = 0.25
"""Interval at which a waiting reader checks whether the writer was replaced."""
_NO_WRITER_SECONDS = 0.02
"""Interval at which it checks for a missing writer."""
_TRIES = 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharedFrame:
    """A published frame.

    Its arrays are copies (:meth:`Reader.copy`), or the read-only shared memory itself
    (:meth:`Reader.view`), which the writer overwrites some frames later.
    """

    number: int
    """1, 2, 3 … in the order of publication."""
    index: int
    pts: int
    """In ``time_base`` units, from the stream's first frame."""
    time_base: Fraction
    captured_ns: int
    """Time of its arrival, :func:`time.monotonic_ns`."""
    published_ns: int
    """Time of its publication, on the same clock."""
    stale: bool
    """Whether the source has stopped; this is its last frame, dimmed."""
    format: FrameFormat
    """Size, layout, colour matrix and range."""
    pixel_format: SharedFormat
    picture: tuple[NDArray[Any], ...]
    """(luma, chroma); one array for ``bgr``."""
    alpha: NDArray[np.uint8]
    """(H, W): the matte, 255 = person."""
    faces: NDArray[Any]
    """(N,) of :data:`bgsoft.live.layout.FACE`."""
    _sequence: NDArray[np.uint64] | None
    """Sequence of the slot; None: the arrays are copies."""

    def valid(self) -> bool:
        """Return whether the arrays still hold this frame; ask after using them."""
        return self._sequence is None or int(self._sequence[0]) == 2 * self.number


class Reader(Closing):
    """Reads the newest frame that is published under a name; for one thread.

    It cannot delay or disturb the writer. It may start before the writer and outlive it, and
    follows it to other sizes and to its successors.

    Raises:
        ConfigError: The name is invalid.
    """

    def __init__(self, name: str) -> None:
        self.name = layout.check_name(name)
        self.torn = 0
        """Number of copies that were overwritten and made again."""
        self._link: _Link | None = None
        self._seen = 0

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a frame newer than the one last read; return False after the timeout.

        Raises:
            OpenError: The shared memory was made by another version, or by another program.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            link = self._follow()
            newest = 0 if link is None else int(link.published[0])
            if newest not in (0, self._seen):
                return True
            left = _CHECK_SECONDS if until is None else until - time.monotonic()
            if left <= 0:
                return False
            if link is None or link.is_removed():
                time.sleep(min(left, _NO_WRITER_SECONDS))
            else:
                wait_for_change(link.published, newest, min(left, _CHECK_SECONDS))

    def view(self) -> SharedFrame | None:
        """Return the newest frame in the shared memory; None before the first.

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
            time.sleep(0.0005)  # the writer changes to another ring, or was killed then
        return None

    def copy(self) -> SharedFrame | None:
        """Return a copy of the newest frame; None before the first.

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
        """True if a writer publishes under this name now."""
        link = self._follow()
        return link is not None and is_locked(link.fd) and not link.is_removed()

    def close(self) -> None:
        """Release the shared memory; remaining views keep their part of it."""
        if self._link is not None:
            os.close(self._link.fd)
            self._link = None

    def _follow(self) -> _Link | None:
        """Return the link to the writer, or to its successor."""
        if self._link is None or self._link.is_removed():
            with os_errors_as(OpenError, _cannot(self.name)):
                found = _open_link(self.name)
            if found is not None:
                self.close()
                self._link, self._seen = found, 0
        return self._link


class _Link:
    """A control with its current ring, mapped read-only."""

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
        """Return the newest frame; None: it is changing."""
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
        """Map the ring of a generation; return False if it does not exist."""
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
    """Open a link to the writer of a name; None: there is none, or it is starting."""
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
    """Open a file of this user for reading; None: there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    if layout.is_own(fd):
        return fd
    os.close(fd)
    raise OpenError(f"cannot read {path}: it belongs to another user", path=path)


def _check(header: Any, magic: bytes, name: str, path: Path) -> None:
    if header["magic"] != magic or header["version"] != layout.VERSION:
        what = f"layout {header['version']}, not {layout.VERSION}"
        raise OpenError(
            f"{_cannot(name)}: another version of bgsoft writes them ({what})", path=path
        )


def _cannot(name: str) -> str:
    return f"cannot read the frames shared as {name}"
