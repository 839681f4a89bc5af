"""Where the background is replaced, edges have the person's own colour."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from bgsoft.frame import Frame, FrameFormat, Matte, PixelLayout
from bgsoft.settings.config import EffectConfig, EffectKind
from tests.marks import crossed, slow
from tests.pictures import (
    SIZES,
    chroma_alpha,
    codes,
    composite,
    disc_mask,
    frame_format,
    make_frame,
    matte_from,
    no_one,
    random_frame,
)

CUTOUT = EffectConfig(kind=EffectKind.ALPHA)
LAYOUTS = (PixelLayout.NV12, PixelLayout.P010)
Array = NDArray[np.float64]


def textured(format: FrameFormat, base: tuple[int, int, int], seed: int) -> list[Array]:
    """Luma, Cb and Cr, 8-bit code values, each of the frame's size: shapes around one colour."""
    rng = np.random.default_rng(seed)
    size = (format.width, format.height)
    shapes = [
        cv2.resize(rng.normal(0, 1, (cells, 2 * cells)), size, interpolation=cv2.INTER_CUBIC)
        for cells in (8, 40)
    ]
    pattern = 10 * shapes[0] + 5 * shapes[1]
    return [np.clip(value + pattern, 16, 235) for value in base]


def with_strands(mask: Array) -> Array:
    """The mask with thin hair standing out all round."""
    height, width = mask.shape
    drawn = np.zeros(mask.shape, np.uint8)
    for angle in np.linspace(0, 2 * np.pi, 90):
        way = np.array([np.cos(angle), np.sin(angle)])
        middle = np.array([width / 2, height / 2])
        ends = [np.rint(middle + way * height * reach).astype(int) for reach in (0.25, 0.38)]
        cv2.line(drawn, ends[0].tolist(), ends[1].tolist(), 255, 2, cv2.LINE_AA)
    return np.maximum(mask, cv2.GaussianBlur(drawn / 255.0, (0, 0), 0.8))


def as_frame(format: FrameFormat, planes: list[Array]) -> Frame:
    scale = 1 << (format.bit_depth - 8)
    luma, *chroma = (plane * scale for plane in planes)
    pairs = np.stack([chroma_alpha(plane) for plane in chroma], axis=-1)
    return make_frame(format, codes(format, np.rint(luma)), codes(format, np.rint(pairs)))


def as_codes(frame: Frame) -> list[Array]:
    """Luma and chroma, 8-bit code values."""
    scale = 1 << (frame.format.bit_depth - 8 + frame.format.shift)
    return [frame.luma / scale, frame.chroma / scale]


def edge_error(got: Frame, wanted: Frame, matte: Matte) -> float:
    """Mean colour error where alpha is 0.05 to 0.95, in 8-bit code values."""
    errors = []
    alphas = (matte.alpha / 255.0, chroma_alpha(matte.alpha) / 255.0)
    for one, other, alpha in zip(as_codes(got), as_codes(wanted), alphas, strict=True):
        errors.append(np.abs(one - other)[(alpha > 0.05) & (alpha < 0.95)].mean())
    return float(np.mean(errors))


@pytest.mark.parametrize("hair", [False, True], ids=["plain", "hair"])
@crossed(layout=LAYOUTS, room=[(225, 120, 130), (40, 110, 150)])
@pytest.mark.parametrize("size", [slow((1280, 720)), (641, 359), (320, 240)], ids=str)
def test_a_third_of_the_rooms_colour_is_left_at_most(
    size: tuple[int, int], layout: PixelLayout, hair: bool, room: tuple[int, int, int]
) -> None:
    """Known foregrounds are blended over known rooms."""
    format = frame_format(size, layout)
    mask = cv2.GaussianBlur(disc_mask(format), (0, 0), size[1] / 240)
    alpha = np.rint((with_strands(mask) if hair else mask) * 255).astype(np.uint8)
    reduced = matte_from(format, alpha / 255.0).reduced
    matte = Matte(alpha=alpha, reduced=reduced)
    person, wall = textured(format, (110, 105, 160), 1), textured(format, room, 2)

    share, pairs = alpha / 255.0, zip(person, wall, strict=True)
    shot = as_frame(format, [share * one + (1 - share) * other for one, other in pairs])
    truth = as_frame(format, person)
    cut = composite(CUTOUT, shot, matte)
    assert edge_error(cut, truth, matte) < edge_error(shot, truth, matte) / 3

    # Over a new background it is the same colour that shows.
    green = EffectConfig(kind=EffectKind.COLOR)
    result, behind = composite(green, shot, matte), composite(green, shot, no_one(format))
    for got, ours, new in zip(*map(as_codes, (result, cut, behind)), strict=True):
        mean = share if got.ndim == 2 else chroma_alpha(alpha)[..., None] / 255
        error = np.abs(got - mean * ours - (1 - mean) * new)
        assert (error * (mean > 0.05)).max() < 1.6


@crossed(size=SIZES, layout=LAYOUTS)
def test_opaque_samples_stay(size: tuple[int, int], layout: PixelLayout) -> None:
    format = frame_format(size, layout)
    rng = np.random.default_rng(5)
    for mask in (disc_mask(format), rng.random((5, 8)), np.ones((1, 1))):
        frame, matte = random_frame(format, rng), matte_from(format, mask)
        for kind in (EffectKind.ALPHA, EffectKind.COLOR):
            result = composite(EffectConfig(kind=kind), frame, matte)
            opaque = matte.alpha == 255
            assert np.array_equal(result.luma[opaque], frame.luma[opaque])
            opaque = chroma_alpha(matte.alpha) == 255
            assert np.array_equal(result.chroma[opaque], frame.chroma[opaque])


def test_one_colour_everywhere_stays_that_colour() -> None:
    format = frame_format((641, 359))
    frame = as_frame(format, [np.full(format.luma_shape, value) for value in (77.0, 90.0, 201.0)])
    matte = matte_from(format, disc_mask(format))
    seen = matte.alpha > 0
    result = composite(CUTOUT, frame, matte)
    assert np.array_equal(result.luma[seen], frame.luma[seen])
