"""Permissions of files that count also for root, as tests in containers run."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_SECUREBITS = 28
_NO_SETUID_FIXUP = 4
"""Also os.access goes by the effective capabilities."""


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


@contextmanager
def closed(folder: Path, mode: int = 0) -> Iterator[None]:
    """Take the permissions from a folder, and from this thread the right to ignore that."""
    header, sets = _Header(0x20080522, 0), (_Data * 2)()
    _LIBC.capget(ctypes.byref(header), sets)
    held = [each.effective for each in sets]
    before = folder.stat().st_mode
    folder.chmod(mode)
    _LIBC.prctl(_PR_SET_SECUREBITS, _NO_SETUID_FIXUP, 0, 0, 0)
    try:
        _set(header, sets, [0, 0])
        yield
    finally:
        _set(header, sets, held)
        _LIBC.prctl(_PR_SET_SECUREBITS, 0, 0, 0, 0)
        folder.chmod(before)


def _set(header: _Header, sets: ctypes.Array[_Data], effective: list[int]) -> None:
    for each, bits in zip(sets, effective, strict=True):
        each.effective = bits
    if _LIBC.capset(ctypes.byref(header), sets):
        raise OSError(ctypes.get_errno(), "capset")
