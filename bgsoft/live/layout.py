"""How frames lie in shared memory: the one description for writers, readers and other languages.

Two files of ``/dev/shm``, where Linux keeps POSIX shared memory, belong to a name. The *control*,
``bgsoft-UID-NAME``, says who writes and which frame is the newest. It is locked by its writer for
as long as that lives. The *ring*, ``bgsoft-UID-NAME.GENERATION``, holds frames of one geometry; a
new geometry is a new generation, in a file of its own.

Frames are numbered 1, 2, 3 … over all generations. Frame n is in slot n modulo the number of slots.
The sequence of a slot is 2n - 1 while frame n is written to it, and 2n once it is whole: who finds
2n both before and after reading has read frame n, whole.

That holds because x86 processors make the stores of one core visible in their order, and do not
reorder loads with loads. Python adds no reordering: each access is a call of its own into compiled
code, and aligned 64-bit words are stored by one instruction. A memcpy that bypasses the cache ends
with a fence. Processors with a weaker order, which bgsoft has no packages for, would need fences.

Everything is little-endian. ``multiprocessing.shared_memory`` opens the same objects, but does not
serve here: it can map them for writing only, before Python 3.13 its resource tracker removes what
another process owns, and memory that the machine lacks is found out by a bus error.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bgsoft.errors import ConfigError
from bgsoft.frame import FrameFormat, PixelLayout

VERSION = 1
CONTROL_MAGIC, RING_MAGIC = b"BGSOFT-C", b"BGSOFT-R"
HEADER_BYTES = 4096
"""Of the control, and of the ring's header: a page."""
MOST_FACES = 32
LANDMARKS = 468

_FOLDER = Path("/dev/shm")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LINE = 64
"""Bytes of a cache line: what planes are aligned to."""


class SharedFormat(StrEnum):
    """What the picture of a slot is made of."""

    NV12 = "nv12"
    P010 = "p010"
    BGR = "bgr"
    """(H, W, 3) uint8 R'G'B', blue first."""


CONTROL = np.dtype(
    [
        ("magic", "S8"),
        ("version", "<u4"),
        ("pid", "<u4"),
        ("generation", "<u8"),
        ("published", "<u8"),
    ]
)
"""``published`` is the newest frame's number, 0 before there is one; its low half, at byte 24, is a
futex, which is woken at each frame. ``pid`` is for messages: whether the writer lives is what the
lock says."""

RING = np.dtype(
    [
        ("magic", "S8"),
        ("version", "<u4"),
        ("pixel_format", "S4"),
        ("width", "<u4"),
        ("height", "<u4"),
        ("matrix", "<u4"),
        ("full_range", "<u4"),
        ("slots", "<u8"),
        ("slot_bytes", "<u8"),
        ("picture", "<u8"),
        ("alpha", "<u8"),
        ("faces", "<u8"),
    ]
)
"""``matrix`` is ITU-T H.273's number; the last three are where a slot's parts begin in it."""

SLOT = np.dtype(
    [
        ("sequence", "<u8"),
        ("index", "<i8"),
        ("pts", "<i8"),
        ("time_base", "<i8", (2,)),
        ("captured_ns", "<i8"),
        ("published_ns", "<i8"),
        ("stale", "<u4"),
        ("faces", "<u4"),
    ]
)
"""Beginning of a slot. ``time_base`` is numerator and denominator; times are CLOCK_MONOTONIC's."""

FACE = np.dtype(
    [
        ("id", "<i8"),
        ("score", "<f4"),
        ("box_xyxy", "<f4", (4,)),
        ("has_landmarks", "<u4"),
        ("landmarks", "<f4", (LANDMARKS, 3)),
    ]
)
"""In frame pixels; without landmarks these are 0."""


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
    found = _FOLDER.glob(f"bgsoft-{os.geteuid()}-*")
    return [path for path in found if not path.suffix]


def ring_paths(control: Path) -> list[Path]:
    """Rings that there are beside a control."""
    return list(control.parent.glob(f"{control.name}.*"))


def is_own(fd: int) -> bool:
    """Whether an open file is a plain one of this user; the folder is everybody's."""
    found = os.fstat(fd)
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()


class Slot(NamedTuple):
    """Parts of one slot, as arrays on the shared memory."""

    sequence: NDArray[np.uint64]
    """(1,)."""
    about: NDArray[Any]
    """(1,) of :data:`SLOT`."""
    picture: tuple[NDArray[Any], ...]
    """(luma, chroma), or one of (H, W, 3)."""
    alpha: NDArray[np.uint8]
    """(H, W)."""
    faces: NDArray[Any]
    """(MOST_FACES,) of :data:`FACE`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """Of the frames of one ring."""

    format: FrameFormat
    pixel_format: SharedFormat
    slots: int

    @property
    def picture_shapes(self) -> list[tuple[int, ...]]:
        if self.pixel_format is SharedFormat.BGR:
            return [(*self.format.luma_shape, 3)]
        return [self.format.luma_shape, self.format.chroma_shape]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the picture's samples."""
        return np.dtype("<u2" if self.pixel_format is SharedFormat.P010 else "u1")

    def header(self) -> NDArray[Any]:
        """(1,) of :data:`RING`."""
        made = np.zeros(1, RING)
        picture = _aligned(SLOT.itemsize)
        samples = sum(int(np.prod(shape)) for shape in self.picture_shapes)
        alpha = _aligned(picture + samples * self.dtype.itemsize)
        faces = _aligned(alpha + int(np.prod(self.format.luma_shape)))
        color = self.format.color
        made[0] = (
            *(RING_MAGIC, VERSION, self.pixel_format.encode()),
            *(self.format.width, self.format.height, color.matrix, color.full_range),
            *(self.slots, _aligned(faces + MOST_FACES * FACE.itemsize), picture, alpha, faces),
        )
        return made

    def slot(self, buffer: Any, header: Any, number: int) -> Slot:
        """The slot of a frame's number in a mapped ring."""
        start = HEADER_BYTES + int(header["slot_bytes"]) * (number % self.slots)

        def array(dtype: Any, shape: tuple[int, ...], offset: int) -> NDArray[Any]:
            return np.ndarray(shape, dtype, buffer, start + offset)

        at, picture = int(header["picture"]), []
        for shape in self.picture_shapes:
            picture.append(array(self.dtype, shape, at))
            at += picture[-1].nbytes
        return Slot(
            sequence=array("<u8", (1,), 0),
            about=array(SLOT, (1,), 0),
            picture=tuple(picture),
            alpha=array("u1", self.format.luma_shape, int(header["alpha"])),
            faces=array(FACE, (MOST_FACES,), int(header["faces"])),
        )


def shared_format(layout: PixelLayout, *, bgr: bool) -> SharedFormat:
    """How frames of a layout are shared."""
    return SharedFormat.BGR if bgr else SharedFormat(layout.value)


def _aligned(offset: int) -> int:
    return -(-offset // _LINE) * _LINE
