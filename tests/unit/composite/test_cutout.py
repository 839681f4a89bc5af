"""The colour planes of a cut-out show nothing of the room."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from bgsoft.analysis.reduce import Reducer
from bgsoft.composite.effects import create_compositor
from bgsoft.frame import Frame, Matte, PixelLayout
from bgsoft.settings.config import EffectConfig, EffectKind
from tests.marks import slow
from tests.pictures import (
    SIZES,
    chroma_alpha,
    composite,
    copy_frame,
    disc_mask,
    flat_frame,
    frame_format,
    matte_from,
    no_one,
    random_frame,
)

CUTOUT = EffectConfig(kind=EffectKind.ALPHA)
HD = frame_format((1280, 720))
LAYOUTS = (PixelLayout.NV12, PixelLayout.P010)


def chroma_seen(alpha: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Chroma samples of which any pixel has any alpha."""
    height, width = alpha.shape
    padded = np.pad(alpha, ((0, height % 2), (0, width % 2)))
    return padded.reshape(padded.shape[0] // 2, 2, padded.shape[1] // 2, 2).max(axis=(1, 3)) > 0


def in_another_room(frame: Frame, matte: Matte, rng: np.random.Generator) -> Frame:
    """The frame with all that is not seen replaced."""
    other, room = copy_frame(frame), random_frame(frame.format, rng)
    hidden = matte.alpha == 0
    other.luma[hidden] = room.luma[hidden]
    hidden = ~chroma_seen(matte.alpha)
    other.chroma[hidden] = room.chroma[hidden]
    return other


@pytest.mark.parametrize(("layout", "full_range"), list(zip(LAYOUTS, (False, True), strict=True)))
@pytest.mark.parametrize("size", [*SIZES[:-1], slow(SIZES[-1])], ids=lambda s: f"{s[0]}x{s[1]}")
def test_nothing_hidden_shows(size: tuple[int, int], layout: PixelLayout, full_range: bool) -> None:
    """The planes, also those spread from people's edges, are the same for every room."""
    format = frame_format(size, layout, full_range=full_range)
    rng = np.random.default_rng(7)
    soft = cv2.GaussianBlur(disc_mask(format), (0, 0), max(1.0, size[1] / 50))
    mattes = (disc_mask(format), soft.reshape(format.luma_shape), rng.random((5, 8)))
    for matte in (*(matte_from(format, mask) for mask in mattes), no_one(format)):
        frame = random_frame(format, rng)
        result = composite(CUTOUT, frame, matte)
        other = composite(CUTOUT, in_another_room(frame, matte, rng), matte)
        sure = (matte.alpha == 0) | (matte.alpha == 255)
        assert np.array_equal(result.luma[sure], other.luma[sure])
        sure = ~chroma_seen(matte.alpha) | (chroma_alpha(matte.alpha) == 255)
        assert np.array_equal(result.chroma[sure], other.chroma[sure])
        if layout is PixelLayout.P010:
            assert not (result.luma & 63).any()
            assert not (result.chroma & 63).any()


@pytest.mark.parametrize("full_range", [False, True], ids=["limited", "full"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_colour_runs_out_into_black(layout: PixelLayout, full_range: bool) -> None:
    format = frame_format((1280, 720), layout, full_range=full_range)
    frame = flat_frame(format, 180, 90, 170)
    matte = matte_from(format, disc_mask(format))
    black, neutral = format.luma_range[0], format.chroma_neutral
    result = composite(CUTOUT, frame, matte)
    edge = int(np.nonzero(matte.alpha[360])[0].max())
    one = 1 << format.shift
    row = result.luma[360, edge:].astype(int)
    seen = 2 - edge % 2  # to the end of its chroma sample
    assert np.abs(row[:seen] - frame.luma[0, 0]).max() <= one
    assert np.diff(row).max() <= 0
    assert np.abs(np.diff(row)).max() <= (row[0] - row[-1]) / 2
    assert (row[16:] == black).all()
    colour = result.chroma[180, edge // 2 :].astype(int)
    assert np.abs(colour[0] - frame.chroma[0, 0]).max() <= one
    assert (colour[8:] == neutral).all()
    near = cv2.dilate((matte.alpha > 0).astype(np.uint8), np.ones((33, 33), np.uint8))
    assert (result.luma[near == 0] == black).all()
    assert (result.chroma[~chroma_seen(near)] == neutral).all()


def test_nobody_and_people_who_are_nowhere_opaque_leave_no_colour_outside() -> None:
    """No person's colour is sure enough to spread, and the room's is never used."""
    for matte in (no_one(HD), matte_from(HD, disc_mask(HD) * 0.5)):
        frame = flat_frame(HD, 180, 90, 170)
        result = composite(CUTOUT, frame, matte)
        assert (result.luma[matte.alpha == 0] == 16).all()
        assert (result.chroma[~chroma_seen(matte.alpha)] == 128).all()


def over_white(luma: NDArray[np.float64], alpha: NDArray[np.float64]) -> NDArray[np.float64]:
    return luma * alpha + 235 * (1 - alpha)


@pytest.mark.parametrize("steps", [2, 4])
def test_scaling_makes_no_rim(steps: int) -> None:
    """Players scale colour and alpha apart; over white, this equals scaling the blend."""

    def scaled(plane: NDArray[np.float64]) -> NDArray[np.float64]:
        size = (HD.width // steps, HD.height // steps)
        return np.asarray(cv2.resize(plane, size, interpolation=cv2.INTER_AREA))

    frame, matte = flat_frame(HD, 180, 90, 170), matte_from(HD, disc_mask(HD))
    alpha = matte.alpha / 255.0
    luma = composite(CUTOUT, frame, matte).luma.astype(np.float64)
    wanted = scaled(over_white(luma, alpha))
    rim = np.abs(over_white(scaled(luma), scaled(alpha)) - wanted).max()
    cut = np.where(alpha > 0, luma, 16)  # with nothing running out
    assert rim < 4
    assert rim < np.abs(over_white(scaled(cut), scaled(alpha)) - wanted).max() / 2


def test_frames_do_not_influence_each_other() -> None:

    rng = np.random.default_rng(3)
    compositor = create_compositor(CUTOUT, HD)
    reducer = Reducer(HD)
    for radius in (0.4, 0.1):
        frame, matte = random_frame(HD, rng), matte_from(HD, disc_mask(HD, radius))
        alone = composite(CUTOUT, frame, matte)
        compositor.apply([frame], [matte], [reducer.reduce([frame])[0]])
        assert np.array_equal(frame.luma, alone.luma)
        assert np.array_equal(frame.chroma, alone.chroma)
    compositor.close()
