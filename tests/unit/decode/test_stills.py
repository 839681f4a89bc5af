"""Picture files as they are read, against Pillow."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image, ImageOps

from bgsoft.decode.stills import read_still
from bgsoft.errors import MediaError, OpenError, UnsupportedFormatError
from bgsoft.media.stills import read_file, with_alpha, with_profile
from tests.stills import KINDS, colourful, encoded, load, profile, save


def rgb(path: Path) -> np.ndarray:
    return read_still(path).pixels[..., ::-1].astype(int)


def by_pillow(path: Path) -> np.ndarray:
    return np.asarray(ImageOps.exif_transpose(Image.open(path)).convert("RGB")).astype(int)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", KINDS)
def test_pictures_stand_upright(tmp_path: Path, kind: str, orientation: int) -> None:
    path = save(tmp_path / f"a{KINDS[kind]}", colourful(), orientation=orientation, icc=profile())
    found, wanted = rgb(path), by_pillow(path)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= (2 if kind == "jpeg" else 0)
    facts, _ = read_file(path)
    assert facts.size == wanted.shape[1::-1]
    assert facts.profile == profile()
    assert read_still(path).profile == profile()


@pytest.mark.parametrize("mode", ["L", "1", "P", "LA", "CMYK"])
def test_other_samples_become_colour(tmp_path: Path, mode: str) -> None:
    path = tmp_path / ("a.jpg" if mode == "CMYK" else "a.png")
    Image.fromarray(colourful()).convert(mode).save(path)
    assert np.abs(rgb(path) - by_pillow(path)).max() <= 2


@pytest.mark.parametrize("size", [(1, 1), (3, 1), (1, 3), (7, 5)])
@pytest.mark.parametrize("kind", KINDS)
def test_small_and_odd_sizes(tmp_path: Path, kind: str, size: tuple[int, int]) -> None:
    path = save(tmp_path / f"a{KINDS[kind]}", colourful(*size))
    assert np.abs(rgb(path) - by_pillow(path)).max() <= 2


@pytest.mark.parametrize("ending", [".png", ".tif", ".webp"])
def test_transparent_parts_are_laid_over_black(tmp_path: Path, ending: str) -> None:
    pixels = np.dstack([colourful(), np.full((48, 64), 255, np.uint8)])
    pixels[:10, :, 3], pixels[10:20, :, 3] = 0, 100
    path = save(tmp_path / f"a{ending}", pixels)
    black = Image.alpha_composite(Image.new("RGBA", (64, 48), "black"), Image.open(path))
    assert np.abs(rgb(path) - np.asarray(black)[..., :3]).max() <= 1
    assert read_still(path).notices == ("transparent parts are laid over black",)


def tiff(path: Path, pixels: np.ndarray, tag: int, before: int, after: int) -> Path:
    """Write a TIFF file, and change the value of a tag."""
    data = cv2.imencode(".tif", pixels)[1].tobytes()
    data = with_alpha(data) if pixels.shape[2:] == (4,) else data
    entry = struct.pack("<HHIHH", tag, 3, 1, before, 0)
    assert entry in data
    path.write_bytes(data.replace(entry, struct.pack("<HHIHH", tag, 3, 1, after, 0)))
    return path


def test_deep_associated_alpha_is_not_applied_again(tmp_path: Path) -> None:
    samples = np.full((20, 30, 4), 20_000, np.uint16)
    samples[..., 3] = 40_000
    still = read_still(tiff(tmp_path / "a.tif", samples, 338, 2, 1))
    assert (still.pixels == 20_000).all()
    assert still.notices == ("transparent parts are laid over black",)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_a_spare_channel_is_no_alpha(tmp_path: Path, dtype: type) -> None:
    samples = np.full((20, 30, 4), 90, dtype)
    still = read_still(tiff(tmp_path / "a.tif", samples, 338, 2, 0))
    assert (still.pixels == 90).all()
    assert still.notices == ("channel after the colours left out: it is not alpha",)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_zero_may_be_white(tmp_path: Path, dtype: type) -> None:
    samples = np.full((20, 30), 90, dtype)
    path = tiff(tmp_path / "a.tif", samples, 262, 1, 0)
    assert (read_still(path).pixels == np.iinfo(dtype).max - 90).all()


def test_samples_that_opencv_does_not_know_are_named(tmp_path: Path) -> None:
    path = tiff(tmp_path / "a.tif", np.full((20, 30, 4), 90, np.uint16), 262, 2, 5)
    with pytest.raises(OpenError, match="it is damaged, or of a kind that is not supported"):
        read_still(path)


def test_a_thumbnail_is_not_the_picture(tmp_path: Path) -> None:
    """Camera raw, as in NEF and DNG, begins with it; the picture is in another directory."""
    image = Image.fromarray(colourful())
    image.save(tmp_path / "a.tif", tiffinfo={254: 1})
    assert np.array_equal(rgb(tmp_path / "a.tif"), colourful())
    image.save(tmp_path / "a.tif", tiffinfo={254: 1, 330: 8})  # where the other begins
    with pytest.raises(UnsupportedFormatError, match="begins with a thumbnail, as camera raw"):
        read_still(tmp_path / "a.tif")


@pytest.mark.parametrize("kind", ["png", "tiff"])
def test_transparency_of_grey_samples_is_named(tmp_path: Path, kind: str) -> None:
    path, gray = tmp_path / "a", Image.fromarray(colourful()).convert("L")
    more = {"transparency": gray.getpixel((0, 0))} if kind == "png" else {}
    gray.convert("L" if kind == "png" else "LA").save(path, kind, **more)
    assert read_still(path).notices == ("alpha channel dropped",)


@pytest.mark.parametrize("ending", [".png", ".tif"])
def test_sixteen_bits_stay(tmp_path: Path, ending: str) -> None:
    samples = np.arange(30 * 20 * 3, dtype=np.uint16).reshape(20, 30, 3) * 31
    cv2.imwrite(str(tmp_path / f"a{ending}"), samples)
    facts, _ = read_file(tmp_path / f"a{ending}")
    assert facts.bits == 16
    assert np.array_equal(read_still(tmp_path / f"a{ending}").pixels, samples)


def png(width: int, height: int) -> bytes:
    def chunk(name: bytes, body: bytes) -> bytes:
        checksum = zlib.crc32(name + body)
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(b"\0" * 99)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


IMAGE = Image.fromarray(colourful())
MOVING = {"save_all": True, "append_images": [IMAGE.rotate(90)]}
BAD: dict[str, tuple[bytes, type[MediaError], str]] = {
    "absurd": (png(60_000, 60_000), UnsupportedFormatError, "60000x60000"),
    "empty": (b"", OpenError, "empty"),
    "text": (b"no picture at all\n", UnsupportedFormatError, "it is none of JPEG, PNG"),
    "damaged": (flipped(encoded(IMAGE, "PNG")), OpenError, "checksum"),
    "animated WebP": (encoded(IMAGE, "WEBP", **MOVING), UnsupportedFormatError, "animated"),
    "animated PNG": (encoded(IMAGE, "PNG", **MOVING), UnsupportedFormatError, "animated"),
    "no size": (png(0, 5), OpenError, "size is 0x5"),
}
CUT = {kind: encoded(IMAGE, kind.upper()) for kind in KINDS}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_picture_is_one_clear_error(tmp_path: Path, name: str) -> None:
    data, error, words = BAD[name]
    path = tmp_path / "bad.png"
    path.write_bytes(data)
    with pytest.raises(error, match=words) as caught:
        read_still(path)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_that_is_cut_off_anywhere_is_an_error(tmp_path: Path, kind: str) -> None:
    data, path = CUT[kind], tmp_path / "cut"
    for length in range(1, len(data) - 12, max(1, len(data) // 40)):
        path.write_bytes(data[:length])
        with pytest.raises((OpenError, UnsupportedFormatError)):
            read_still(path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [5, 588, 100_001])
def test_a_profile_is_put_into_a_finished_file(tmp_path: Path, kind: str, length: int) -> None:
    icc = bytes(range(256)) * (length // 256) + bytes(length % 256)
    path = tmp_path / f"a{KINDS[kind]}"
    for alpha in (False, True):
        if alpha and kind == "jpeg":
            continue
        pixels = colourful()[..., ::-1]
        if alpha:
            pixels = np.dstack([pixels, colourful()[..., 0]])
        _, data = cv2.imencode(path.suffix, pixels)
        path.write_bytes(with_profile(with_alpha(data.tobytes()) if alpha else data.tobytes(), icc))
        with Image.open(path) as image:
            assert image.info["icc_profile"] == icc
            assert image.mode == ("RGBA" if alpha else "RGB")
            if alpha and kind == "tiff":
                assert image.tag_v2[338] == (2,)  # ExtraSamples: unassociated alpha
        if kind in ("png", "tiff"):
            assert np.array_equal(load(path)[..., :3], colourful())
        assert read_file(path)[0].profile == icc
        assert load(path).shape == pixels.shape
