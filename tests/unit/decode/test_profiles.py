"""Colour profiles of pictures: kept where they fit, applied where they don't."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image, ImageCms

from bgsoft.decode.stills import UNUSABLE, in_srgb, read_still
from tests.profiles import (
    adobe_as_srgb,
    adobe_profile,
    cmyk_profile,
    gray_as_srgb,
    gray_profile,
    lab_as_srgb,
)
from tests.stills import colourful, encoded, profile, save

LAB = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
RAMP = np.tile(np.arange(256, dtype=np.uint8), (8, 1))
INKS = {0: (100.0, 0.0, 0.0), 8: (55.0, -35.0, -48.0), 4: (48.0, 72.0, -4.0), 2: (88.0, -6.0, 92.0)}


@pytest.mark.parametrize("ending", [".png", ".jpg", ".tif"])
def test_grey_samples_are_converted_by_their_profile(tmp_path: Path, ending: str) -> None:
    path = save(tmp_path / f"a{ending}", RAMP, icc=gray_profile(1.0))
    still = read_still(path)
    wanted = gray_as_srgb(RAMP / 255, 1.0)[..., None]
    assert np.abs(still.pixels - wanted).max() <= 1.5
    assert (still.profile, still.notices) == (b"", ())


def test_deep_grey_samples_are_converted_by_their_profile(tmp_path: Path) -> None:
    deep = np.arange(1 << 12, dtype=np.uint16).reshape(64, 64) << 4
    path = save(tmp_path / "a.png", deep, icc=gray_profile(1.8))
    wanted = gray_as_srgb(deep / 65_535, 1.8)[..., None] * 257
    # LittleCMS works on 8 bits here: half a step, but in the darkest parts, where curves are steep.
    assert np.abs(read_still(path).pixels - wanted)[4:].max() <= 200


@pytest.mark.parametrize(("ending", "orientation"), [(".jpg", 1), (".tif", 1), (".tif", 6)])
def test_cmyk_is_converted_by_its_profile(tmp_path: Path, ending: str, orientation: int) -> None:
    path = tmp_path / f"a{ending}"
    jpeg = {"quality": 100, "subsampling": 0}
    more = jpeg if ending == ".jpg" else {"tiffinfo": {274: orientation}}
    samples = np.zeros((48, 64, 4), np.uint8)
    for number, place in enumerate((None, 0, 1, 2)):
        if place is not None:
            samples[:, 16 * number : 16 * number + 16, place] = 255
    inks = [Image.fromarray(np.ascontiguousarray(samples[..., ink])) for ink in range(4)]
    Image.merge("CMYK", inks).save(path, icc_profile=cmyk_profile(INKS), **more)
    still = read_still(path)
    if orientation == 6:
        still = still._replace(pixels=np.rot90(still.pixels))
    for number, bits in enumerate((0, 8, 4, 2)):
        wanted = lab_as_srgb(*INKS[bits])[::-1]
        shown = still.pixels[24, 16 * number + 8].astype(int)
        # The darkest of sRGB and of ink are made equal, which moves the others a little.
        assert np.abs(shown - wanted).max() <= 6, bits
    assert (still.profile, still.notices) == (b"", ())


@pytest.mark.parametrize("icc", [None, LAB, adobe_profile()])
def test_lab_is_relative_to_d50(tmp_path: Path, icc: bytes | None) -> None:
    """The matrix is that from XYZ of D50 to sRGB, adapted by Bradford (brucelindbloom.com)."""
    lab = np.random.default_rng(1).integers((90, -20, -20), (200, 20, 20), (1, 30, 3))
    image = Image.frombytes("LAB", (30, 1), (lab & 255).astype(np.uint8).tobytes())
    image.save(tmp_path / "a.tif", icc_profile=icc)
    fy = (lab[..., 0] / 2.55 + 16) / 116
    f = np.stack([fy + lab[..., 1] / 500, fy, fy - lab[..., 2] / 200], -1)
    rows = (3.13386, -1.61687, -0.49061, -0.97877, 1.91614, 0.03345, 0.07195, -0.22899, 1.40524)
    linear = f**3 * (0.96422, 1, 0.82521) @ np.reshape(rows, (3, 3)).T
    wanted = 255 * (1.055 * linear ** (1 / 2.4) - 0.055)
    still = read_still(tmp_path / "a.tif")
    assert np.abs(still.pixels[..., ::-1] - wanted).max() <= 3
    assert (still.profile, still.notices) == (b"", ())


@pytest.mark.parametrize("mode", ["RGB", "CMYK"])
def test_a_profile_of_other_samples_is_left_out(tmp_path: Path, mode: str) -> None:
    icc = {"RGB": cmyk_profile(INKS), "CMYK": gray_profile(2.2)}[mode]
    path = tmp_path / "a.jpg"
    Image.fromarray(colourful()).convert(mode).save(path, icc_profile=icc)
    plain = encoded(Image.fromarray(colourful()).convert(mode), "JPEG")
    (tmp_path / "b.jpg").write_bytes(plain)
    still = read_still(path)
    assert np.array_equal(still.pixels, read_still(tmp_path / "b.jpg").pixels)
    assert still.profile == b""
    name = icc[16:20].decode().strip()
    assert still.notices == (f"colour profile left out: it is for {name} samples",)


def test_wide_colours_become_srgb(tmp_path: Path) -> None:
    muted = (colourful() // 4 + 96).astype(np.uint8)
    still = read_still(save(tmp_path / "a.png", muted, icc=adobe_profile()))
    assert still.profile == adobe_profile()
    assert np.array_equal(still.pixels[..., ::-1], muted)
    shown = in_srgb(still)
    assert np.abs(shown.pixels[..., ::-1] - adobe_as_srgb(muted / 255)).max() <= 1.5
    assert (shown.profile, shown.notices) == (b"", ())


def test_srgb_stays_as_it_is(tmp_path: Path) -> None:
    still = read_still(save(tmp_path / "a.png", colourful(), icc=profile()))
    assert in_srgb(still) is still


@pytest.mark.parametrize("deep", [False, True])
def test_what_cannot_be_converted_is_named(tmp_path: Path, deep: bool) -> None:
    pixels = colourful()
    path = save(tmp_path / "a.png", pixels, icc=b"\0" * 16 + b"RGB " + b"\0" * 108)
    if deep:
        image = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR).astype(np.uint16) * 257
        assert cv2.imwrite(str(tmp_path / "c.png"), image)
        still = read_still(tmp_path / "c.png")._replace(profile=adobe_profile())
        notice = "colour profile left out: 16-bit samples are not converted"
    else:
        still, notice = read_still(path), UNUSABLE
    shown = in_srgb(still)
    assert (shown.profile, shown.notices) == (b"", (notice,))
    assert np.array_equal(shown.pixels, still.pixels)
