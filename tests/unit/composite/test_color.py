from __future__ import annotations

import numpy as np
import pytest

from bgsoft.composite.color import parse_color, planes_from_rgb, to_frame_rgb
from bgsoft.composite.plate import color_background
from bgsoft.errors import ConfigError
from bgsoft.frame import ColorInfo, PixelLayout
from bgsoft.ops.placement import HOST
from tests.pictures import frame_format, planes_behind

LAYOUTS = (PixelLayout.NV12, PixelLayout.P010)

# Published 8-bit limited-range colour bars, 100 %: (Y, Cb, Cr).
BARS_709 = {
    "#ffffff": (235, 128, 128),
    "#ffff00": (219, 16, 138),
    "#00ffff": (188, 154, 16),
    "#00ff00": (173, 42, 26),
    "#ff00ff": (78, 214, 230),
    "#ff0000": (63, 102, 240),
    "#0000ff": (32, 240, 118),
    "#000000": (16, 128, 128),
}
BARS_601 = {
    "#ffffff": (235, 128, 128),
    "#ffff00": (210, 16, 146),
    "#00ffff": (170, 166, 16),
    "#00ff00": (145, 54, 34),
    "#ff00ff": (106, 202, 222),
    "#ff0000": (81, 90, 240),
    "#0000ff": (41, 240, 110),
    "#000000": (16, 128, 128),
}


@pytest.mark.parametrize(
    ("text", "rgb"),
    [
        ("#ff8000", (255, 128, 0)),
        ("#FF8000", (255, 128, 0)),
        ("00b140", (0, 177, 64)),
        ("#f80", (255, 136, 0)),
        ("green", (0, 128, 0)),
        (" Lime ", (0, 255, 0)),
        ("chroma-green", (0, 177, 64)),
        ("rebeccapurple", (102, 51, 153)),
    ],
)
def test_colours_are_read(text: str, rgb: tuple[int, int, int]) -> None:
    assert tuple(round(value * 255) for value in parse_color(text)) == rgb


@pytest.mark.parametrize("text", ["", "#", "#12345", "#gggggg", "fff", "room.png", "٣٣٣٣٣٣"])
def test_what_is_no_colour_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not a colour"):
        parse_color(text)


def test_a_misspelt_name_gets_a_hint() -> None:
    with pytest.raises(ConfigError, match="did you mean orange"):
        parse_color("ornage")


@pytest.mark.parametrize(("matrix", "bars"), [(1, BARS_709), (6, BARS_601), (5, BARS_601)])
def test_colour_bars(matrix: int, bars: dict[str, tuple[int, int, int]]) -> None:
    format = frame_format((4, 2), matrix=matrix)
    for text, (luma, cb, cr) in bars.items():
        plate = color_background(HOST, text, format)
        assert np.abs(planes_behind(plate, format)[0][:2].astype(int) - luma).max() <= 1
        assert np.abs(planes_behind(plate, format)[1][:1].astype(int) - (cb, cr)).max() <= 1


@pytest.mark.parametrize("full_range", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("matrix", "kr", "kb"), [(1, 0.2126, 0.0722), (6, 0.299, 0.114), (9, 0.2627, 0.0593)]
)
def test_planes_turn_back_into_the_colour(
    matrix: int, kr: float, kb: float, layout: PixelLayout, full_range: bool
) -> None:
    """The inverse formulas, as players use them, are written out for each range."""
    format = frame_format((2, 2), layout, full_range=full_range, matrix=matrix)
    depth = format.bit_depth
    top = 2**depth - 1
    for text in ("#123456", "#fedcba", "#00b140", "#ff0000", "#0000ff", "#ffffff", "#000000"):
        plate = color_background(HOST, text, format)
        y = int(planes_behind(plate, format)[0][:1][0, 0]) >> format.shift
        cb, cr = (int(value) >> format.shift for value in planes_behind(plate, format)[1][:1][0, 0])
        if full_range:
            luma, pb, pr = y / top, (cb - 2 ** (depth - 1)) / top, (cr - 2 ** (depth - 1)) / top
        else:
            scale = 2 ** (depth - 8)
            luma = (y / scale - 16) / 219
            pb, pr = (cb / scale - 128) / 224, (cr / scale - 128) / 224
        red = luma + 2 * (1 - kr) * pr
        blue = luma + 2 * (1 - kb) * pb
        green = (luma - kr * red - kb * blue) / (1 - kr - kb)
        error = np.array([red, green, blue]) - parse_color(text)
        # Half a code of each signal, times its gain; a whole one where chroma is clipped.
        assert np.abs(error).max() <= 2.6 / (219 * 2 ** (depth - 8))


def test_the_default_is_chroma_green() -> None:
    format = frame_format((2, 2), matrix=1)
    default, named = (color_background(HOST, text, format) for text in (None, "#00b140"))
    for plane, same in zip(default.arguments, named.arguments, strict=True):
        assert np.array_equal(plane, same)


def test_chroma_is_the_mean_of_its_pixels() -> None:
    format = frame_format((3, 3), PixelLayout.P010, matrix=1, full_range=True)
    rgb = np.random.default_rng(0).random((3, 3, 3)).astype(np.float32)
    _, chroma = planes_from_rgb(rgb, format)
    luma = rgb @ np.array([0.2126, 0.7152, 0.0722])
    cb = (rgb[..., 2] - luma) / 1.8556
    for (row, column), pixels in {
        (0, 0): cb[:2, :2],
        (0, 1): cb[:2, 2:],
        (1, 0): cb[2:, :2],
        (1, 1): cb[2:, 2:],
    }.items():
        wanted = 512 + 1023 * pixels.mean()
        assert abs(int(chroma[row, column, 0]) / 64 - wanted) <= 0.51


@pytest.mark.parametrize(
    ("transfer", "signal"),
    [(16, 0.58), (18, 0.75)],  # ITU-R BT.2408-7, table 1: HDR reference white in PQ and in HLG
)
def test_white_is_hdr_reference_white(transfer: int, signal: float) -> None:
    color = ColorInfo(primaries=9, transfer=transfer, matrix=9)
    white = to_frame_rgb(np.ones((1, 1, 3), np.float32), color)
    assert np.abs(white - signal).max() < 0.002
    black = to_frame_rgb(np.zeros((1, 1, 3), np.float32), color)
    assert np.abs(black).max() < 1e-3


def test_wide_gamut_keeps_greys_and_tames_primaries() -> None:
    color = ColorInfo(primaries=9, transfer=14, matrix=9)
    grey = to_frame_rgb(np.full((1, 1, 3), 0.5, np.float32), color)
    assert np.abs(grey - 0.5).max() < 1e-3
    red, green, blue = to_frame_rgb(np.array([[[1, 0, 0]]], np.float32), color)[0, 0]
    # ITU-R BT.2087: 0.6274, 0.0691 and 0.0164 in linear light.
    assert red == pytest.approx(0.812, abs=0.003)
    assert green == pytest.approx(0.292, abs=0.003)
    assert blue == pytest.approx(0.135, abs=0.003)
