from __future__ import annotations

import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest

from bgsoft.composite.plate import (
    color_background,
    cover,
    image_background,
    image_planes,
    read_image,
)
from bgsoft.errors import ConfigError
from bgsoft.frame import PixelLayout
from bgsoft.media.stills import with_color
from bgsoft.ops.placement import HOST
from tests.pictures import Array, frame_format

RED, GREEN, BLUE, WHITE = (0, 0, 255), (0, 255, 0), (255, 0, 0), (255, 255, 255)


def quarters(height: int, width: int) -> Array:
    """Red, green / blue, white."""
    image = np.empty((height, width, 3), np.uint8)
    image[: height // 2, : width // 2], image[: height // 2, width // 2 :] = RED, GREEN
    image[height // 2 :, : width // 2], image[height // 2 :, width // 2 :] = BLUE, WHITE
    return image


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def with_exif_orientation(png: bytes, orientation: int) -> bytes:
    # TIFF header, one entry: tag 0x0112 (Orientation), type SHORT, count 1.
    exif = b"MM\0*\0\0\0\x08" + struct.pack(">HHHIHHI", 1, 0x0112, 3, 1, orientation, 0, 0)
    return png[:33] + chunk(b"eXIf", exif) + png[33:]


def png_of(image: Array) -> bytes:
    done, data = cv2.imencode(".png", image)
    assert done
    return data.tobytes()


@pytest.mark.parametrize(
    ("size", "kept"),
    [
        ((100, 50), np.s_[:, :]),  # 2:1 source to 2:1 frame
        ((50, 50), np.s_[:, 50:150]),  # sides cut off
        ((200, 20), np.s_[40:60, :]),  # above and below cut off
    ],
)
def test_cover_keeps_the_middle(size: tuple[int, int], kept: tuple[slice, slice]) -> None:
    gradient = np.zeros((100, 200, 3), np.uint8)
    gradient[..., 0] = np.arange(200)
    gradient[..., 1] = np.arange(100)[:, None]
    width, height = size
    result = cover(gradient, width, height).astype(float)
    assert result.shape == (height, width, 3)
    part = gradient[kept].astype(float)
    step = part.shape[1] / width
    # Each pixel is the mean of what it covers, so ramps stay ramps.
    xs = part[0, 0, 0] + (np.arange(width) + 0.5) * step - 0.5
    ys = part[0, 0, 1] + (np.arange(height) + 0.5) * step - 0.5
    assert np.abs(result[..., 0] - xs).max() <= 1
    assert np.abs(result[..., 1] - ys[:, None]).max() <= 1


@pytest.mark.parametrize("shape", [(1, 5000), (5000, 1), (1, 1), (3, 2)])
def test_cover_of_extreme_shapes(shape: tuple[int, int]) -> None:
    image = np.full((*shape, 3), 7, np.uint8)
    assert (cover(image, 65, 47) == 7).all()


@pytest.mark.parametrize("transparent", [False, True])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_honoured(orientation: int, transparent: bool, tmp_path: Path) -> None:
    stored = quarters(8, 12)
    if transparent:
        stored = np.dstack([stored, np.full((8, 12), 255, np.uint8)])
        stored[:4, :6, 3] = 0  # the red quarter
    path = tmp_path / "turned.png"
    path.write_bytes(with_exif_orientation(png_of(stored), orientation))
    red = (0, 0, 0) if transparent else RED
    # Exif 2.32, tag 0x0112: which stored corner ends up at the upper left, then clockwise.
    names = {"r": red, "g": GREEN, "b": BLUE, "w": WHITE}
    corners = ["rgwb", "grbw", "wbrg", "bwgr", "rbwg", "brgw", "wgrb", "gwbr"][orientation - 1]
    image = read_image(path).pixels
    assert image.shape == ((8, 12, 3) if orientation < 5 else (12, 8, 3))
    seen = [image[0, 0], image[0, -1], image[-1, -1], image[-1, 0]]
    assert [tuple(color.tolist()) for color in seen] == [names[name] for name in corners]


def test_transparency_is_laid_over_black(tmp_path: Path) -> None:
    image = np.full((4, 4, 4), 200, np.uint8)
    image[..., 3] = np.array([0, 51, 128, 255])
    path = tmp_path / "glass.png"
    path.write_bytes(png_of(image))
    assert read_image(path).pixels[0, :, 0].tolist() == [0, 40, 100, 200]


def test_sixteen_bits_reach_a_ten_bit_frame(tmp_path: Path) -> None:
    ramp = np.linspace(0, 65535, 1024).astype(np.uint16)
    path = tmp_path / "deep.png"
    path.write_bytes(png_of(np.dstack([np.tile(ramp, (4, 1))] * 3)))
    format = frame_format((1024, 4), PixelLayout.P010, full_range=True, matrix=1)
    plate = image_planes(read_image(path).pixels, format)
    luma = plate[0][:4][0] >> 6
    assert np.abs(luma.astype(int) - np.arange(1024)).max() <= 1
    assert len(np.unique(luma)) > 1000
    assert (plate[1][:2] == format.chroma_neutral).all()


def test_grey_images_have_no_colour(tmp_path: Path) -> None:
    path = tmp_path / "grey.png"
    path.write_bytes(png_of(np.full((5, 5), 90, np.uint8)))
    format = frame_format((65, 47), full_range=True)
    plate = image_planes(read_image(path).pixels, format)
    assert (plate[0] == 90).all()
    assert (plate[1][:24] == 128).all()


def test_the_strips_of_a_tall_image_join(tmp_path: Path) -> None:
    """A tall image is converted in strips; rows and colours must not shift between them."""
    path = tmp_path / "tall.png"
    image = np.zeros((301, 8, 3), np.uint8)
    image[150:] = RED
    path.write_bytes(png_of(image))
    format = frame_format((8, 301), matrix=6)
    plate = image_planes(read_image(path).pixels, format)
    assert (plate[0][:150] == 16).all()
    assert (plate[0][150:301] == 81).all()
    assert (plate[1][:75] == (128, 128)).all()
    assert (plate[1][75:151] == (90, 240)).all()


def test_what_is_no_image_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        read_image(tmp_path / "nothing.png")
    with pytest.raises(ConfigError, match="is not a file"):
        read_image(tmp_path)
    empty = tmp_path / "empty.png"
    empty.touch()
    with pytest.raises(ConfigError, match="is empty"):
        read_image(empty)
    cut = tmp_path / "cut.png"
    cut.write_bytes(png_of(quarters(40, 40))[:60])
    with pytest.raises(ConfigError, match="is damaged or cut off"):
        read_image(cut)
    odd = tmp_path / "odd.tif"
    odd.write_bytes(b"II*\0\x08\0\0\0\1\0" + struct.pack("<HHII", 256, 4, 1, 99) + bytes(4))
    with pytest.raises(ConfigError, match="is damaged"):
        read_image(odd)
    assert "TIFF" not in capfd.readouterr().err


def test_a_picture_too_large_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    path = tmp_path / "large.png"
    rows, columns = 12_000, 12_000
    raw = zlib.compress(bytes(rows * (columns + 1)))

    def part(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    head = part(b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, 0, 0, 0, 0))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + head + part(b"IDAT", raw) + part(b"IEND", b""))
    with pytest.raises(ConfigError, match="its 12000x12000 pixels exceed"):
        read_image(path)


@pytest.mark.parametrize(("primaries", "transfer"), [(1, 1), (9, 16), (9, 14), (12, 1), (12, 16)])
def test_colours_of_other_primaries_are_named(
    tmp_path: Path, primaries: int, transfer: int
) -> None:
    format = frame_format((8, 4), matrix=1, primaries=primaries, transfer=transfer)
    (tmp_path / "a.png").write_bytes(png_of(quarters(4, 8)))
    color = color_background(HOST, "red", format)
    image = image_background(HOST, tmp_path / "a.png", format)
    assert len(color.notices) == len(image.notices) == (primaries == 12)


def test_a_label_of_wide_colours_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(with_color(png_of(quarters(4, 8)), 9, 16))
    background = image_background(HOST, tmp_path / "a.png", frame_format((8, 4), matrix=1))
    assert [notice.rpartition(": ")[2] for notice in background.notices] == [
        "HDR or wide colours are taken for sRGB"
    ]
