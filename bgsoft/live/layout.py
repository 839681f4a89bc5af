"""Layout of frames in shared memory, for writers, readers and other languages.

A name has two files in ``/dev/shm``, where Linux keeps POSIX shared memory. The *control*,
``bgsoft-UID-NAME``, holds the writer and the newest frame's number; its writer keeps it locked. The
*ring*, ``bgsoft-UID-NAME.GENERATION``, has a header of one page, and slots with frames of one
geometry. Another geometry is another generation, in another file.

Frames are numbered 1, 2, 3 … over all generations; frame n is in slot n modulo the number of slots.
A slot's sequence is 2n - 1 while frame n is written to it, and 2n once it is complete. A reader
that finds 2n before and after reading has read all of frame n.

This relies on x86: a core's stores become visible in order, and loads are not reordered with loads.
Python adds no reordering: each access is a call into compiled code, and an aligned 64-bit word is
one store. A memcpy that bypasses the cache ends with a fence. Processors with a weaker order, which
bgsoft does not support here, would need fences.

``multiprocessing.shared_memory`` opens the same objects, but is unsuitable: it maps them for
writing only; before Python 3.13, its resource tracker removes objects of other processes; and a
lack of memory shows as a bus error.
"""

from __future__ import annotations

import os
import re
import stat
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from bgsoft.errors import ConfigError
from bgsoft.frame import FrameFormat, PixelLayout

VERSION = 1
CONTROL_MAGIC, RING_MAGIC = b"BGSOFT-C", b"BGSOFT-R"
HEADER_BYTES = 4096
"""Size of the control, and of a ring's header: one page."""
MAX_FACES = 32

_FOLDER = Path("/dev/shm")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LINE = 64
"""Bytes of a cache line: planes are aligned to it."""


class SharedFormat(StrEnum):
    """Format of the picture in a slot."""

    NV12 = "nv12"
    P010 = "p010"
    BGR = "bgr"
    """(H, W, 3) uint8 R'G'B', blue first."""


def _record(fields: str) -> np.dtype[Any]:
    """Return a record of little-endian fields without gaps, each given as ``name:type``."""
    return np.dtype([tuple(field.split(":")) for field in fields.split()])


CONTROL = _record("magic:S8 version:<u4 pid:<u4 generation:<u8 published:<u8")
"""``published`` is the newest frame's number, 0 before the first. Its low half, at byte 24, is a
futex that is woken at each frame. ``pid`` is for messages: the lock shows whether the writer lives.
"""
RING = _record(
    "magic:S8 version:<u4 pixel_format:S4 width:<u4 height:<u4 matrix:<u4 full_range:<u4"
    " slots:<u8 slot_bytes:<u8 picture:<u8 alpha:<u8 faces:<u8"
)
"""``matrix`` is a number of ITU-T H.273; the last three are offsets of parts of a slot."""
_ABOUT = _record(
    "sequence:<u8 index:<i8 pts:<i8 time_base:(2,)<i8 captured_ns:<i8 published_ns:<i8"
    " stale:<u4 face_count:<u4"
)
"""Start of a slot; ``time_base`` is numerator and denominator, times are CLOCK_MONOTONIC's."""
FACE = _record("id:<i8 score:<f4 box_xyxy:(4,)<f4 has_landmarks:<u4 landmarks:(468,3)<f4")
"""A face in frame pixels; missing landmarks are 0."""


def shared_format(layout: PixelLayout, *, bgr: bool) -> SharedFormat:
    """Return the shared format for frames of a layout."""
    return SharedFormat.BGR if bgr else SharedFormat(layout.value)


def picture_fields(pixel_format: SharedFormat) -> tuple[str, ...]:
    """Return the names of the picture's parts in a slot."""
    return ("bgr",) if pixel_format is SharedFormat.BGR else ("luma", "chroma")


def slot_type(format: FrameFormat, pixel_format: SharedFormat) -> np.dtype[Any]:
    """Return the type of a slot: frame data, picture, matte, faces."""
    samples = "<u2" if pixel_format is SharedFormat.P010 else "u1"
    shapes = {
        "luma": format.luma_shape,
        "chroma": format.chroma_shape,
        "bgr": (*format.luma_shape, 3),
    }
    fields: dict[str, Any] = {name: _ABOUT[name] for name in _ABOUT.names or ()}
    offsets = [_ABOUT.fields[name][1] for name in fields]  # type: ignore[index]
    end = _ABOUT.itemsize
    planes: dict[str, Any] = {
        name: (samples, shapes[name]) for name in picture_fields(pixel_format)
    }
    planes |= {"alpha": ("u1", format.luma_shape), "faces": (FACE, (MAX_FACES,))}
    for name, kind in planes.items():
        # Chroma follows luma without a gap, as in NV12 buffers.
        start = end if name == "chroma" else -(-end // _LINE) * _LINE
        fields[name] = np.dtype(kind)
        offsets.append(start)
        end = start + fields[name].itemsize
    return np.dtype(
        {
            "names": list(fields),
            "formats": list(fields.values()),
            "offsets": offsets,
            "itemsize": -(-end // _LINE) * _LINE,
        }
    )


def check_name(name: str) -> str:
    """Return a valid name for shared frames; raises ConfigError otherwise."""
    if not _NAME.fullmatch(name):
        rule = "1 to 64 letters, digits, - and _"
        raise ConfigError(f"the name of shared frames must be {rule}, not {name!r}")
    return name


def control_path(name: str) -> Path:
    """Return the path of a control. Each user has own names: two users may use the same one."""
    return _FOLDER / f"bgsoft-{os.geteuid()}-{name}"


def ring_path(name: str, generation: int) -> Path:
    """Return the path of a generation's ring."""
    return control_path(name).with_suffix(f".{generation}")


def control_paths() -> list[Path]:
    """Return all controls of this user."""
    return [path for path in _FOLDER.glob(control_path("*").name) if not path.suffix]


def ring_paths(control: Path) -> list[Path]:
    """Return all rings of a control."""
    return list(control.parent.glob(f"{control.name}.*"))


def is_own(fd: int) -> bool:
    """Return whether an open file is a regular one of this user; the folder is shared by all."""
    found = os.fstat(fd)
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
