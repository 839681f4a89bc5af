"""How frames lie in shared memory: the one description for writers, readers and other languages.

Two files of ``/dev/shm``, where Linux keeps POSIX shared memory, belong to a name. The *control*,
``bgsoft-UID-NAME``, says who writes and which frame is the newest; its writer has it locked for as
long as it lives. The *ring*, ``bgsoft-UID-NAME.GENERATION``, is a header of a page and slots with
frames of one geometry; another geometry is another generation, in a file of its own.

Frames are numbered 1, 2, 3 … over all generations; frame n is in slot n modulo the number of slots.
A slot's sequence is 2n - 1 while frame n is written to it, and 2n once it is whole: whoever finds
2n before and after reading has read frame n, whole.

That holds because x86 processors make the stores of a core visible in their order, and do not
reorder loads with loads. Python adds no reordering: each access is a call into compiled code, and
an aligned word of 64 bits is one store. A memcpy that goes around the cache ends with a fence.
Processors with a weaker order, for which there is no bgsoft, would need fences here.

``multiprocessing.shared_memory`` opens the same objects, but does not serve: it maps them for
writing only, before Python 3.13 its resource tracker removes what another process owns, and memory
that the machine lacks is found out by a bus error.
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
"""Of the control, and of a ring before its slots: a page."""
MAX_FACES = 32

_FOLDER = Path("/dev/shm")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LINE = 64
"""Bytes of a cache line: planes begin with one."""


class SharedFormat(StrEnum):
    """What the picture of a slot is made of."""

    NV12 = "nv12"
    P010 = "p010"
    BGR = "bgr"
    """(H, W, 3) uint8 R'G'B', blue first."""


def _record(fields: str) -> np.dtype[Any]:
    """Little-endian fields without gaps, each as ``name:type``."""
    return np.dtype([tuple(field.split(":")) for field in fields.split()])


CONTROL = _record("magic:S8 version:<u4 pid:<u4 generation:<u8 published:<u8")
"""``published`` is the newest frame's number, 0 before there is one; its low half, at byte 24, is a
futex that is woken at each frame. ``pid`` is for messages: the lock says whether the writer lives.
"""
RING = _record(
    "magic:S8 version:<u4 pixel_format:S4 width:<u4 height:<u4 matrix:<u4 full_range:<u4"
    " slots:<u8 slot_bytes:<u8 picture:<u8 alpha:<u8 faces:<u8"
)
"""``matrix`` is ITU-T H.273's number; the last three are where parts of a slot begin in it."""
_ABOUT = _record(
    "sequence:<u8 index:<i8 pts:<i8 time_base:(2,)<i8 captured_ns:<i8 published_ns:<i8"
    " stale:<u4 face_count:<u4"
)
"""Beginning of a slot; ``time_base`` is numerator and denominator, times are CLOCK_MONOTONIC's."""
FACE = _record("id:<i8 score:<f4 box_xyxy:(4,)<f4 has_landmarks:<u4 landmarks:(468,3)<f4")
"""In frame pixels; without landmarks these are 0."""


def shared_format(layout: PixelLayout, *, bgr: bool) -> SharedFormat:
    """How frames of a layout are shared."""
    return SharedFormat.BGR if bgr else SharedFormat(layout.value)


def picture_fields(pixel_format: SharedFormat) -> tuple[str, ...]:
    """Names of the picture's parts in a slot."""
    return ("bgr",) if pixel_format is SharedFormat.BGR else ("luma", "chroma")


def slot_type(format: FrameFormat, pixel_format: SharedFormat) -> np.dtype[Any]:
    """A slot: what is known of the frame, its picture, its matte, its faces."""
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
        # Chroma follows luma without a gap, as in every NV12 buffer.
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
    """The name, if frames may be shared under it; ConfigError otherwise."""
    if not _NAME.fullmatch(name):
        rule = "1 to 64 letters, digits, - and _"
        raise ConfigError(f"a name for sharing frames has {rule}, not {name!r}")
    return name


def control_path(name: str) -> Path:
    """Names are the user's own: two users may share frames under the same one."""
    return _FOLDER / f"bgsoft-{os.geteuid()}-{name}"


def ring_path(name: str, generation: int) -> Path:
    """The ring of a generation."""
    return control_path(name).with_suffix(f".{generation}")


def control_paths() -> list[Path]:
    """Controls of this user that there are."""
    return [path for path in _FOLDER.glob(control_path("*").name) if not path.suffix]


def ring_paths(control: Path) -> list[Path]:
    """Rings that there are of a control."""
    return list(control.parent.glob(f"{control.name}.*"))


def is_own(fd: int) -> bool:
    """Whether an open file is a plain one of this user; the folder is everybody's."""
    found = os.fstat(fd)
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
