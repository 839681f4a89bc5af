"""The shared-memory sink: a ring of frames for any number of readers."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bgsoft.closing import Closing
from bgsoft.errors import OutputError, os_errors_as
from bgsoft.face.base import Face
from bgsoft.frame import Frame, FrameFormat
from bgsoft.live import layout
from bgsoft.live.base import LiveFrame
from bgsoft.live.layout import CONTROL, HEADER_BYTES, VERSION, control_path, is_own, ring_path
from bgsoft.live.waking import take_lock, wake

_SLOTS = 4
"""A reader may use a frame while three more come: a tenth of a second at 30 frames/s."""
_CLAIM_SECONDS = 0.2
"""Time for which a name may be locked before it is an error: each start briefly tries the locks of
all names, to find leftovers."""
_CREATE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class SharedWriter(Closing):
    """Publishes frames under a name; the sink of ``--share``.

    Readers map the memory read-only and write nothing to it, so none can delay the writer.
    Leftovers of killed writers are removed, whatever their names.

    Args:
        name: Letters, digits, ``-`` and ``_``.
        bgr: Share R'G'B', blue first, instead of 4:2:0; costs the writer a conversion a frame.
        slots: Frames in the ring.

    Raises:
        ConfigError: The name is invalid.
        OutputError: Another process uses the name, or there is no shared memory.
    """

    wants_source = False
    dropped = 0

    def __init__(self, name: str, *, bgr: bool = False, slots: int = _SLOTS) -> None:
        self.name = layout.check_name(name)
        self._bgr, self._slots = bgr, slots
        self._path = control_path(name)
        _remove_leftovers()
        self._fd = _claim(self._path, name)
        with _errors(name, self._path):
            try:
                buffer = _mapped(self._fd, HEADER_BYTES)
            except OSError:
                _remove(self._path)
                os.close(self._fd)
                raise
        self._control: NDArray[Any] = np.ndarray(1, CONTROL, buffer)
        self._published: NDArray[Any] = self._control["published"]
        self._control["version"], self._control["pid"] = VERSION, os.getpid()
        self._control["magic"] = layout.CONTROL_MAGIC  # last: readers trust the rest once it is set
        self._generation = self._number = 0
        self._format: FrameFormat | None = None
        self._ring: NDArray[Any] = np.empty(0)
        self._picture: Callable[[Frame], Sequence[NDArray[Any]]] = _planes
        self._open = True

    def publish(self, frame: LiveFrame) -> None:
        is_new = frame.frame.format != self._format
        if is_new:
            self._start_ring(frame.frame.format)
        number = self._number + 1
        slot = self._ring[number % self._slots : number % self._slots + 1]
        slot["sequence"] = 2 * number - 1
        self._fill(slot, frame)
        slot["sequence"] = 2 * number
        if is_new:
            self._control["generation"] = self._generation
        self._published[0] = self._number = number
        wake(self._published)
        if is_new:
            ring_path(self.name, self._generation - 1).unlink(missing_ok=True)

    def _start_ring(self, format: FrameFormat) -> None:
        """Create the ring of the next generation; readers follow once it has a frame."""
        pixel_format = layout.shared_format(format.layout, bgr=self._bgr)
        slot = layout.slot_type(format, pixel_format)
        size = HEADER_BYTES + self._slots * slot.itemsize
        path = ring_path(self.name, self._generation + 1)
        with _errors(self.name, path, f"{size / 1e6:.0f} MB of {path.parent}"):
            fd = os.open(path, _CREATE | os.O_EXCL, 0o600)
            try:
                buffer = _mapped(fd, size)
            except OSError:
                path.unlink()
                raise
            finally:
                os.close(fd)
        header: NDArray[Any] = np.ndarray(1, layout.RING, buffer)
        self._fields = layout.picture_fields(pixel_format)
        parts = (self._fields[0], "alpha", "faces")
        header[0] = (
            *(layout.RING_MAGIC, VERSION, pixel_format.encode(), format.width, format.height),
            *(format.color.matrix, format.color.full_range, self._slots, slot.itemsize),
            *(slot.fields[part][1] for part in parts),  # type: ignore[index]
        )
        self._ring = np.ndarray(self._slots, slot, buffer, HEADER_BYTES)
        self._generation += 1
        self._format = format
        if self._bgr:
            from bgsoft.encode.rgb import RgbPictures

            pictures = RgbPictures(format, blue_first=True)
            self._picture = lambda frame: [pictures.picture(frame)]

    def _fill(self, slot: NDArray[Any], shared: LiveFrame) -> None:
        frame = shared.frame
        for name, samples in zip(self._fields, self._picture(frame), strict=True):
            np.copyto(slot[name][0], samples)
        np.copyto(slot["alpha"][0], frame.planes.alpha)
        slot["face_count"] = _write_faces(slot["faces"][0], shared.faces)
        slot["index"], slot["pts"], slot["stale"] = frame.index, frame.pts, shared.stale
        slot["time_base"] = frame.time_base.as_integer_ratio()
        slot["captured_ns"], slot["published_ns"] = shared.captured_ns, time.monotonic_ns()

    def close(self) -> None:
        """Remove the name; frames in use by readers stay until they release them."""
        if self._open:
            self._open = False
            _remove(self._path)
            wake(self._published)
            # Mapped memory keeps the lock.
            del self._ring, self._control, self._published
            os.close(self._fd)


def _planes(frame: Frame) -> Sequence[NDArray[Any]]:
    return frame.luma, frame.chroma


def _write_faces(target: NDArray[Any], faces: Sequence[Face]) -> int:
    """Write faces, the surest ones if there are too many; return their number."""
    if len(faces) > len(target):
        faces = sorted(faces, key=lambda face: -face.score)[: len(target)]
    for place, face in zip(target, faces, strict=False):
        landmarks = face.landmarks if face.has_landmarks else 0
        place["id"], place["score"], place["box_xyxy"] = face.id, face.score, face.box_xyxy
        place["has_landmarks"], place["landmarks"] = face.has_landmarks, landmarks
    return len(faces)


def _errors(name: str, path: Path, *what: str) -> AbstractContextManager[None]:
    return os_errors_as(OutputError, ": ".join((_cannot(name), *what)), path=path)


def _cannot(name: str) -> str:
    return f"cannot share frames as {name}"


def _mapped(fd: int, size: int) -> mmap.mmap:
    """Reserve shared memory: a lack of it is an OSError now, not a bus error later."""
    os.posix_fallocate(fd, 0, size)
    return mmap.mmap(fd, size, mmap.MAP_SHARED | mmap.MAP_POPULATE)


def _claim(path: Path, name: str) -> int:
    """Create and lock the control of a name."""
    until = time.monotonic() + _CLAIM_SECONDS
    while True:
        with _errors(name, path):
            fd = os.open(path, _CREATE, 0o600)
            if is_own(fd) and take_lock(fd):
                found = os.fstat(fd)
                if found.st_nlink and not found.st_size:
                    return fd
                if found.st_nlink:  # a writer has just been killed
                    _remove(path)
                os.close(fd)
                continue
            owner = _owner(fd)
            os.close(fd)
        if time.monotonic() > until:
            raise OutputError(f"{_cannot(name)}: {owner} uses this name", path=path)
        time.sleep(0.01)


def _owner(fd: int) -> str:
    if not is_own(fd):
        return "another user"
    header = os.pread(fd, CONTROL.itemsize, 0).ljust(CONTROL.itemsize, b"\0")
    return f"process {np.frombuffer(header, CONTROL)['pid'][0]}"


def _remove_leftovers() -> None:
    """Remove leftovers of killed writers, whose locks are free."""
    for path in layout.control_paths():
        with suppress(OSError):
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if is_own(fd) and take_lock(fd) and os.fstat(fd).st_nlink:
                    _remove(path)
            finally:
                os.close(fd)


def _remove(control: Path) -> None:
    """Remove a locked control, after its rings, so that no ring is left without one."""
    for path in layout.ring_paths(control):
        with suppress(PermissionError):  # another user's file has this name
            path.unlink(missing_ok=True)
    control.unlink(missing_ok=True)
