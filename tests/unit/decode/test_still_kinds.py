"""Kinds of pictures that phones and old programs write, against Pillow."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image, ImageOps, features

from bgsoft.decode.stills import read_still
from bgsoft.errors import OpenError, UnsupportedFormatError
from bgsoft.media.containers import container_for
from bgsoft.media.endpoints import source_for, suffix_like
from bgsoft.media.source import open_input
from bgsoft.media.stills import read_file, still_kind
from tests.stills import colourful, encoded, profile

avif = pytest.mark.skipif(not features.check("avif"), reason="this Pillow has no AVIF")


def heic(image: Image.Image, **more: Any) -> bytes:
    pillow_heif = pytest.importorskip("pillow_heif")
    buffer = io.BytesIO()
    pillow_heif.from_pillow(image).save(buffer, quality=-1, chroma=444, **more)
    return buffer.getvalue()


def smooth() -> Image.Image:
    return Image.fromarray(cv2.GaussianBlur(colourful(), (9, 9), 3))


@avif
@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_avif(tmp_path: Path, orientation: int) -> None:
    path = tmp_path / "a.avif"
    exif = Image.Exif()
    exif[274] = orientation
    smooth().save(path, quality=95, subsampling="4:4:4", exif=exif, icc_profile=profile())
    with Image.open(path) as image:
        wanted = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    still = read_still(path)
    assert np.array_equal(still.pixels[..., ::-1], wanted)
    assert still.profile == profile()
    facts, _ = read_file(path)
    assert (facts.kind, facts.size) == ("avif", wanted.shape[1::-1])


@avif
def test_transparent_avif(tmp_path: Path) -> None:
    path = tmp_path / "a.avif"
    image = smooth()
    image.putalpha(Image.linear_gradient("L").resize(image.size))
    image.save(path, quality=95)
    black = Image.new("RGBA", image.size, "black")
    with Image.open(path) as stored:
        wanted = np.asarray(Image.alpha_composite(black, stored))[..., :3].astype(int)
    still = read_still(path)
    assert np.abs(still.pixels[..., ::-1] - wanted).max() <= 1
    assert still.notices == ("transparent parts are laid over black",)


@avif
def test_deep_avif_is_reduced_with_a_notice(tmp_path: Path) -> None:
    path = tmp_path / "a.avif"
    deep = np.asarray(smooth()).astype(np.uint16) * 4
    try:
        written = cv2.imwrite(str(path), deep, [cv2.IMWRITE_AVIF_DEPTH, 10])
    except cv2.error:
        written = False
    if not written:
        pytest.skip("this OpenCV writes no AVIF")
    assert read_still(path).notices == ("10-bit samples reduced to 8 bits",)


@avif
def test_animated_avif_is_an_error(tmp_path: Path) -> None:
    """FFmpeg takes its alpha for a video track of its own."""
    path = tmp_path / "a.avif"
    smooth().save(path, save_all=True, append_images=[smooth().rotate(90)])
    assert source_for(path).pictures == (path,)
    with pytest.raises(UnsupportedFormatError, match="it is an animated picture"):
        read_still(path)


def test_heic(tmp_path: Path) -> None:
    path = tmp_path / "a.HEIC"
    path.write_bytes(heic(smooth(), icc_profile=profile()))
    still = read_still(path)
    assert np.abs(still.pixels[..., ::-1] - np.asarray(smooth()).astype(int)).max() <= 3
    assert source_for(path).pictures == (path,)
    assert read_file(path)[0].kind == "heif"


def test_deep_heic(tmp_path: Path) -> None:
    pillow_heif = pytest.importorskip("pillow_heif")
    path = tmp_path / "a.heic"
    deep = np.asarray(smooth()).astype(np.uint16) * 257
    made = pillow_heif.from_bytes("RGB;16", (64, 48), deep.tobytes())
    made.save(path, quality=-1, chroma=444)
    pixels = read_still(path).pixels
    assert pixels.dtype == np.uint16
    assert np.abs(pixels[..., ::-1].astype(int) - deep).max() <= 3 * 257


def test_heic_without_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.heic"
    path.write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(100))
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(UnsupportedFormatError, match=r"pip install 'bgsoft\[heif\]'"):
        read_still(path)


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "1"])
def test_bmp(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "a.bmp"
    Image.fromarray(colourful(7, 5)).convert(mode).save(path)
    with Image.open(path) as image:
        wanted = np.asarray(image.convert("RGB"))
    assert np.array_equal(read_still(path).pixels[..., ::-1], wanted)
    assert read_file(path)[0].size == (7, 5)


@pytest.mark.parametrize("kind", ["AVIF", "BMP", "HEIC"])
def test_a_picture_that_is_cut_off_is_an_error(tmp_path: Path, kind: str) -> None:
    data = heic(smooth()) if kind == "HEIC" else encoded(smooth(), kind)
    path = tmp_path / "a.jpg"  # names tell nothing
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(OpenError, match="is damaged"):
        read_still(path)


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"\0\0\0\x0cJXL \r\n\x87\n", "JPEG XL"),
        (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"),
        (b"8BPS\0\1", "PSD"),
    ],
)
def test_an_unread_kind_is_refused_by_name(tmp_path: Path, head: bytes, name: str) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(head + bytes(1000))
    with pytest.raises(UnsupportedFormatError) as caught:
        open_input(path)
    names = "JPEG, PNG, WebP, TIFF, BMP, AVIF, HEIC"
    assert str(caught.value) == f"cannot read {path}: pictures may be {names}, not {name}"


def test_text_that_begins_like_bmp_is_none() -> None:
    assert still_kind(b"BMW and other cars, a long story") is None


@pytest.mark.parametrize("ending", [".jfif", ".jpe", ".JFIF"])
def test_other_names_of_jpeg(ending: str) -> None:
    assert container_for(Path(f"a{ending}")).name == "JPEG"


@pytest.mark.parametrize(
    ("name", "ending"),
    [
        ("a.HEIC", ".jpg"),
        ("a.avif", ".jpg"),
        ("a.bmp", ".bmp"),
        ("a.jfif", ".jfif"),
        ("a.wmv", ".mkv"),
    ],
)
def test_outputs_are_like_their_inputs(name: str, ending: str) -> None:
    assert suffix_like(Path(name)) == ending


@pytest.mark.parametrize(
    ("kind", "ending"), [("PNG", ".png"), ("JPEG", ".jpg"), ("WEBP", ".webp"), ("TIFF", ".tif")]
)
@pytest.mark.parametrize("name", ["photo", "photo.orig"])
def test_outputs_of_pictures_with_other_names_are_of_their_kind(
    tmp_path: Path, name: str, kind: str, ending: str
) -> None:
    path = tmp_path / name
    smooth().save(path, kind)
    assert suffix_like(path) == ending
    path.write_bytes(b"something else")
    assert suffix_like(path) == ".mkv"


@pytest.mark.parametrize("kind", ["avif", "heic"])
def test_metadata_of_photographs_are_named(tmp_path: Path, kind: str) -> None:
    exif = Image.Exif()
    exif[271], exif[306] = "Maker", "2026:01:01 00:00:00"
    path = tmp_path / f"a.{kind}"
    if kind == "heic":
        path.write_bytes(heic(smooth(), exif=exif.tobytes()))
    elif features.check("avif"):
        smooth().save(path, exif=exif)
    else:
        pytest.skip("this Pillow has no AVIF")
    assert len(read_file(path)[0].metadata) == 2
