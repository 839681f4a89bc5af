"""ICC profiles written by hand (ICC.1:2022), and their samples in sRGB."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

_WHITE = (0.9642, 1.0, 0.8249)  # D50, the profile connection space's
# Bruce Lindbloom's matrices, adapted to D50 by Bradford's method: columns red, green, blue.
_SRGB = np.array(
    [
        [0.4360747, 0.3850649, 0.1430804],
        [0.2225045, 0.7168786, 0.0606169],
        [0.0139322, 0.0971045, 0.7141733],
    ]
)
_ADOBE = np.array(
    [
        [0.6097559, 0.2052401, 0.1492240],
        [0.3111242, 0.6256560, 0.0632197],
        [0.0194811, 0.0608902, 0.7448387],
    ]
)
ADOBE_GAMMA = 2.19921875


def _profile(kind: bytes, space: bytes, pcs: bytes, tags: dict[bytes, bytes]) -> bytes:
    table, data = b"", b""
    start = 128 + 4 + 12 * len(tags)
    for name, content in tags.items():
        content += bytes(-len(content) % 4)
        table += struct.pack(">4sII", name, start + len(data), len(content))
        data += content
    body = struct.pack(">I", len(tags)) + table + data
    head = struct.pack(">I4sI4s4s4s", 128 + len(body), bytes(4), 0x02400000, kind, space, pcs)
    head += struct.pack(">6H4s", 2026, 1, 1, 0, 0, 0, b"acsp") + bytes(28) + _xyz(_WHITE)[8:]
    return head.ljust(128, b"\0") + body


def _xyz(values: tuple[float, ...]) -> bytes:
    return b"XYZ " + bytes(4) + b"".join(struct.pack(">i", round(v * 65_536)) for v in values)


def _gamma(value: float) -> bytes:
    return b"curv" + bytes(4) + struct.pack(">IH", 1, round(value * 256))


def gray_profile(gamma: float) -> bytes:
    tags = {b"wtpt": _xyz(_WHITE), b"kTRC": _gamma(gamma)}
    return _profile(b"mntr", b"GRAY", b"XYZ ", tags)


def adobe_profile() -> bytes:
    """Adobe RGB (1998): much more of green than sRGB has."""
    columns = zip((b"rXYZ", b"gXYZ", b"bXYZ"), _ADOBE.T, strict=True)
    curves = {name: _gamma(ADOBE_GAMMA) for name in (b"rTRC", b"gTRC", b"bTRC")}
    tags = {b"wtpt": _xyz(_WHITE)} | {name: _xyz(tuple(xyz)) for name, xyz in columns} | curves
    return _profile(b"mntr", b"RGB ", b"XYZ ", tags)


def cmyk_profile(inks: dict[int, tuple[float, float, float]]) -> bytes:
    """A printer whose inks have given CIELAB colours, alone and together.

    Args:
        inks: Lightness, a and b by the inks' bits, 8 for cyan to 1 for black; others are black.
    """
    grid = b""
    for bits in range(16):
        light, a, b = inks.get(bits, (0.0, 0.0, 0.0))
        grid += bytes((round(light * 2.55), round(a + 128), round(b + 128)))
    identity = b"".join(
        struct.pack(">i", 65_536 * (row == column)) for row in range(3) for column in range(3)
    )
    ramp = bytes(range(256))
    table = b"mft1" + bytes(4) + bytes((4, 3, 2, 0)) + identity + ramp * 4 + grid + ramp * 3
    tags = {b"wtpt": _xyz(_WHITE), b"A2B0": table, b"A2B1": table}
    return _profile(b"prtr", b"CMYK", b"Lab ", tags)


def _encoded(linear: NDArray[np.float64]) -> NDArray[np.float64]:
    """Linear light as sRGB's code values (IEC 61966-2-1), of 255."""
    light = np.clip(linear, 0, 1)
    return 255 * np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)


def gray_as_srgb(samples: NDArray[np.float64], gamma: float) -> NDArray[np.float64]:
    """Return grey samples from 0 to 1 as sRGB from 0 to 255."""
    return _encoded(samples**gamma)


def adobe_as_srgb(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (…, 3) Adobe RGB samples from 0 to 1 as sRGB from 0 to 255."""
    return _encoded(samples**ADOBE_GAMMA @ _ADOBE.T @ np.linalg.inv(_SRGB).T)


def lab_as_srgb(light: float, a: float, b: float) -> NDArray[np.float64]:
    """Return a CIELAB colour under D50 as sRGB from 0 to 255."""
    y = (light + 16) / 116
    terms = np.array([y + a / 500, y, y - b / 200])
    xyz = np.where(terms > 6 / 29, terms**3, 3 * (6 / 29) ** 2 * (terms - 4 / 29)) * _WHITE
    return _encoded(np.linalg.inv(_SRGB) @ xyz)
