"""Mattes in picture files and GIF."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from bgsoft.errors import ConfigError, DecodeError
from bgsoft.matte.given import MatteReader
from bgsoft.media.sequence import probe_stills
from bgsoft.settings.config import SegmentConfig
from tests.pictures import flat_frame
from tests.stills import save

SIZE = (64, 48)
MATTE = np.zeros(SIZE[::-1], np.uint8)
MATTE[:, :20] = 255


def read(path: Path) -> np.ndarray:
    """The matte of a picture of 64x48 pixels."""
    cv2.imwrite(str(path.with_name("in.png")), np.zeros((*MATTE.shape, 3), np.uint8))
    info = probe_stills(path, [path.with_name("in.png")], None)
    with MatteReader(SegmentConfig(matte_in=str(path)), info) as reader:
        return reader.opacity(flat_frame(info.format, 0, 128, 128))


@pytest.mark.parametrize("orientation", [1, 3, 6])
@pytest.mark.parametrize("ending", [".jpg", ".png", ".tif"])
def test_mattes_stand_upright(tmp_path: Path, ending: str, orientation: int) -> None:
    stored = np.rot90(MATTE, {1: 0, 3: 2, 6: 1}[orientation])
    path = save(tmp_path / f"m{ending}", stored, orientation=orientation)
    assert np.abs(read(path).astype(int) - MATTE).max() <= 2


@pytest.mark.parametrize("ending", [".jpg", ".tif"])
def test_a_matte_of_four_inks(tmp_path: Path, ending: str) -> None:
    Image.fromarray(MATTE).convert("CMYK").save(tmp_path / f"m{ending}", quality=95)
    assert np.abs(read(tmp_path / f"m{ending}").astype(int) - MATTE).max() <= 8


def test_matte_of_a_phone(tmp_path: Path) -> None:
    pillow_heif = pytest.importorskip("pillow_heif")
    pillow_heif.from_pillow(Image.fromarray(MATTE)).save(tmp_path / "m.heic", quality=-1)
    assert np.abs(read(tmp_path / "m.heic").astype(int) - MATTE).max() <= 2


@pytest.mark.parametrize(
    ("matte", "message"),
    [
        (Image.fromarray(MATTE / np.float32(255)), "its samples are float32; only 8 and 16 bits"),
        (Image.fromarray(MATTE.astype(np.int32)), "its samples are int32; only 8 and 16 bits"),
        (Image.merge("LA", [Image.fromarray(MATTE)] * 2), "bgsoft cannot read its alpha channel"),
    ],
)
def test_samples_that_cannot_be_read_are_an_error(
    tmp_path: Path, matte: Image.Image, message: str
) -> None:
    matte.save(tmp_path / "m.tif")
    with pytest.raises(DecodeError, match=message):
        read(tmp_path / "m.tif")


def test_gif_is_refused(tmp_path: Path) -> None:
    Image.fromarray(MATTE).save(tmp_path / "m.gif")
    with pytest.raises(ConfigError, match="a GIF does not state whether it has an alpha channel"):
        read(tmp_path / "m.gif")
