"""The shared-memory sink: a ring of frames that any number of readers may look into."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bgsoft.closing import Closing
from bgsoft.errors import OutputError, os_errors_as
from bgsoft.face.base import Face
from bgsoft.frame import Frame, FrameFormat
from bgsoft.live.base import LiveFrame
from bgsoft.live.layout import (
    CONTROL,
    CONTROL_MAGIC,
    HEADER_BYTES,
    MOST_FACES,
    RING,
    VERSION,
    Geometry,
    SharedFormat,
    Slot,
    check_name,
    control_path,
    control_paths,
    is_own,
    ring_path,
    ring_paths,
    shared_format,
)
from bgsoft.live.waking import take_lock, wake

_SLOTS = 4
"""A reader may look at a frame while three more come: a tenth of a second at 30 frames/s."""
_CLAIM_SECONDS = 0.2
"""How long a name may be taken before it is refused: another start tries the lock of every name for
a moment, to see whether it is a leftover."""
_CREATE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class SharedWriter(Closing):
    """Publishes frames under a name; the sink of ``--share``.

    Readers map the memory read-only and leave no trace in it, so that none can hold the writer up.
    What killed writers have left is removed, whatever their names were.

    Args:
        name: Letters, digits, ``-`` and ``_``.
        bgr: Share R'G'B', blue first, instead of 4:2:0; takes the writer a conversion a frame.
        slots: Frames in the ring.

    Raises:
        ConfigError: It is no such name.
        OutputError: Somebody shares under this name, or there is no shared memory.
    """

    wants_source = False
    dropped = 0

    def __init__(self, name: str, *, bgr: bool = False, slots: int = _SLOTS) -> None:
        self.name = check_name(name)
        self._bgr, self._slots = bgr, slots
        self._path = control_path(name)
        _remove_leftovers()
        self._fd = _claim(self._path, name)
        with self._errors(self._path):
            buffer = _mapped(self._fd, HEADER_BYTES)
        self._control = np.ndarray(1, CONTROL, buffer)
        self._published = np.ndarray(1, "<u8", buffer, CONTROL.fields["published"][1])  # type: ignore[index]
        self._generation = self._number = 0
        self._control["version"], self._control["pid"] = VERSION, os.getpid()
        self._control["magic"] = CONTROL_MAGIC  # last: with it readers take the rest for valid
        self._format: FrameFormat | None = None
        self._ring: list[Slot] = []
        self._to_bgr: Callable[[Frame], NDArray[np.uint8]] | None = None
        self._open = True

    def publish(self, frame: LiveFrame) -> None:
        is_new = frame.frame.format != self._format
        if is_new:
            self._start_ring(frame.frame.format)
        number = self._number + 1
        slot = self._ring[number % self._slots]
        slot.sequence[0] = 2 * number - 1
        self._fill(slot, frame)
        slot.sequence[0] = 2 * number
        if is_new:
            self._control["generation"] = self._generation
        self._published[0] = self._number = number
        wake(self._published)
        if is_new:
            ring_path(self.name, self._generation - 1).unlink(missing_ok=True)

    def _errors(self, path: Path, *what: str) -> AbstractContextManager[None]:
        return os_errors_as(OutputError, ": ".join((_cannot(self.name), *what)), path=path)

    def _start_ring(self, format: FrameFormat) -> None:
        """Make the ring of the next generation; readers follow once it has a frame."""
        self._generation += 1
        pixel_format = shared_format(format.layout, bgr=self._bgr)
        geometry = Geometry(format=format, pixel_format=pixel_format, slots=self._slots)
        header = geometry.header()
        size = HEADER_BYTES + self._slots * int(header["slot_bytes"][0])
        path = ring_path(self.name, self._generation)
        with self._errors(path, f"{size / 1e6:.0f} MB of {path.parent}"):
            fd = os.open(path, _CREATE | os.O_EXCL, 0o600)
            try:
                buffer = _mapped(fd, size)
            except OSError:
                path.unlink()
                raise
            finally:
                os.close(fd)
        np.ndarray(1, RING, buffer)[:] = header
        self._ring = [geometry.slot(buffer, header[0], slot) for slot in range(self._slots)]
        self._format = format
        if pixel_format is SharedFormat.BGR:
            from bgsoft.rendering.frames import RgbPictures

            self._to_bgr = RgbPictures(format, blue_first=True).picture

    def _fill(self, slot: Slot, shared: LiveFrame) -> None:
        frame = shared.frame
        if self._to_bgr is None:
            np.copyto(slot.picture[0], frame.luma)
            np.copyto(slot.picture[1], frame.chroma)
        else:
            np.copyto(slot.picture[0], self._to_bgr(frame))
        np.copyto(slot.alpha, frame.planes.alpha)
        about = slot.about[0]
        about["index"], about["pts"] = frame.index, frame.pts
        about["time_base"] = frame.time_base.as_integer_ratio()
        about["stale"] = shared.stale
        about["faces"] = _write_faces(slot, shared.faces)
        about["captured_ns"], about["published_ns"] = shared.captured_ns, time.monotonic_ns()

    def close(self) -> None:
        """Remove the name; frames that readers look at stay until they let go of them."""
        if not self._open:
            return
        self._open = False
        _remove(self._path)
        wake(self._published)
        # Mapped memory keeps the lock too; with the last array both are gone.
        self._ring.clear()
        del self._control, self._published
        os.close(self._fd)


def _write_faces(slot: Slot, faces: Sequence[Face]) -> int:
    """Write the surest faces there is room for; returns how many they are."""
    if len(faces) > MOST_FACES:
        faces = sorted(faces, key=lambda face: -face.score)[:MOST_FACES]
    for target, face in zip(slot.faces, faces, strict=False):
        target["id"], target["score"] = face.id, face.score
        target["box_xyxy"] = face.box_xyxy
        target["has_landmarks"] = face.has_landmarks
        target["landmarks"] = face.landmarks if face.has_landmarks else 0
    return len(faces)


def _mapped(fd: int, size: int) -> mmap.mmap:
    """Memory that is there: OSError now where it is short, rather than a bus error later."""
    os.posix_fallocate(fd, 0, size)
    return mmap.mmap(fd, size, mmap.MAP_SHARED | mmap.MAP_POPULATE)


def _cannot(name: str) -> str:
    return f"cannot share frames as {name}"


def _claim(path: Path, name: str) -> int:
    """The control of a name, new and locked."""
    until = time.monotonic() + _CLAIM_SECONDS
    while True:
        with os_errors_as(OutputError, _cannot(name), path=path):
            fd = os.open(path, _CREATE, 0o600)
            if is_own(fd) and take_lock(fd):
                found = os.fstat(fd)
                if found.st_nlink and not found.st_size:
                    return fd
                # It was removed before we had the lock, or a killed writer has just left it.
                if found.st_nlink:
                    _remove(path)
                os.close(fd)
                continue
            owner = _owner(fd)
            os.close(fd)
        if time.monotonic() > until:
            raise OutputError(f"{_cannot(name)}: {owner} does already", path=path)
        time.sleep(0.01)


def _owner(fd: int) -> str:
    if not is_own(fd):
        return "another user"
    header = os.pread(fd, CONTROL.itemsize, 0).ljust(CONTROL.itemsize, b"\0")
    return f"process {np.frombuffer(header, CONTROL)['pid'][0]}"


def _remove_leftovers() -> None:
    """Remove what killed writers have left: their locks are free."""
    for path in control_paths():
        with suppress(OSError):
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if is_own(fd) and take_lock(fd) and os.fstat(fd).st_nlink:
                    _remove(path)
            finally:
                os.close(fd)


def _remove(control: Path) -> None:
    """Remove a control and its rings, whose lock the caller has; the control last, so that a ring
    never stands alone."""
    for path in (*ring_paths(control), control):
        path.unlink(missing_ok=True)
