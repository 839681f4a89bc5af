"""Locks and wake-ups between processes, which the kernel releases when one is killed."""

from __future__ import annotations

import ctypes
import fcntl
import math
import struct
from typing import Any

from numpy.typing import NDArray

_FLOCK = "hhqqi4x"
"""struct flock: type, whence, start, length, pid."""
_SYS_FUTEX = 202
"""System call number on x86-64."""
_FUTEX_WAIT, _FUTEX_WAKE = 0, 1
_EVERYBODY = 0x7FFFFFFF
_libc: Any = ctypes.CDLL(None)


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def _whole_file(kind: int) -> bytes:
    return struct.pack(_FLOCK, kind, 0, 0, 0, 0)


def take_lock(fd: int) -> bool:
    """Lock a file while its description is open; return False if it is locked.

    The lock belongs to the description, not to the process: closing another description in the same
    process does not release it.
    """
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _whole_file(fcntl.F_WRLCK))
    except BlockingIOError:
        return False
    return True


def is_locked(fd: int) -> bool:
    """Return whether a file is locked, without taking a lock."""
    answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _whole_file(fcntl.F_RDLCK))
    return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)


def wait_for_change(word: NDArray[Any], value: int, seconds: float) -> None:
    """Sleep until a shared 32-bit word differs from ``value`` and its writer calls :func:`wake`.

    It may return early. The word may be mapped read-only.
    """
    fraction, whole = math.modf(seconds)
    limit = _Timespec(int(whole), int(fraction * 1e9))
    address = ctypes.c_void_p(word.ctypes.data)
    expected = ctypes.c_uint32(value & 0xFFFFFFFF)
    _libc.syscall(
        *(ctypes.c_long(_SYS_FUTEX), address, ctypes.c_int(_FUTEX_WAIT), expected),
        *(ctypes.byref(limit), None, 0),
    )


def wake(word: NDArray[Any]) -> None:
    """Wake all waiters for a shared word; takes two microseconds, and never blocks."""
    _libc.syscall(
        *(ctypes.c_long(_SYS_FUTEX), ctypes.c_void_p(word.ctypes.data)),
        *(ctypes.c_int(_FUTEX_WAKE), ctypes.c_int(_EVERYBODY), None, None, 0),
    )
