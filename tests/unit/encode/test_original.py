"""Restored chroma of people: by value, against plain loops."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from bgsoft.encode.original import FineChroma, give_back
from bgsoft.frame import Frame, FrameFormat, OriginalChroma, PixelLayout
from tests.fakes import host_planes

SIZES = [(1, 1), (2, 1), (1, 2), (3, 5), (8, 6), (9, 7), (64, 48)]
STEPS = {"4:2:2": (1, 2), "4:4:0": (2, 1), "4:4:4": (1, 1)}


def frame_with_original(
    size: tuple[int, int], layout: PixelLayout, sampling: str
) -> tuple[Frame, OriginalChroma]:
    """Noise everywhere; most of alpha is 0 or 255, as in a matte."""
    format = FrameFormat(width=size[0], height=size[1], layout=layout)
    rng = np.random.default_rng(size[0] + size[1])
    most = 1 << format.bit_depth

    def noise(*shape: int) -> np.ndarray:
        return rng.integers(0, most, shape).astype(format.dtype)

    planes = host_planes(format)
    planes.chroma[:] = noise(*format.chroma_shape) << format.shift
    planes.alpha[:] = rng.choice([0, 0, 1, 77, 254, 255, 255, 255], format.luma_shape)
    down, across = STEPS[sampling]
    fine = noise(-(-size[1] // down), -(-size[0] // across), 2)
    original = OriginalChroma(chroma=noise(*format.chroma_shape) << format.shift, fine=fine)
    return Frame(planes, format, 0, 0, Fraction(1, 25), original=original), original


@pytest.mark.parametrize("sampling", STEPS)
@pytest.mark.parametrize("layout", PixelLayout)
@pytest.mark.parametrize("size", SIZES)
def test_every_sample_is_what_the_formula_says(
    size: tuple[int, int], layout: PixelLayout, sampling: str
) -> None:
    frame, original = frame_with_original(size, layout, sampling)
    original.hidden.append((2, 2, 6, 4))
    before = [plane.copy() for plane in (frame.chroma, frame.planes.alpha, original.fine)]
    maker = FineChroma(frame.format, original.fine.shape[:2])
    other = frame_with_original(size, layout, sampling)
    other[0].planes.alpha[:] ^= 255
    maker.planes(*other)  # nothing of it stays
    out = np.stack(maker.planes(frame, original), axis=-1)
    after = (frame.chroma, frame.planes.alpha, original.fine)
    assert all(map(np.array_equal, before, after)), "only read"
    assert (out.shape, out.dtype) == (original.fine.shape, original.fine.dtype)
    down, across = STEPS[sampling]
    shift, most = frame.format.shift, (1 << frame.format.bit_depth) - 1
    for row, column, channel in np.ndindex(*out.shape):
        y, x = row * down, column * across
        alpha = frame.planes.alpha[y : y + down, x : x + across].mean() / 255
        if 2 <= y < 4 and 2 <= x < 6:
            alpha = 0
        shown, left = (
            int(each[y // 2, x // 2, channel]) >> shift for each in (frame.chroma, original.chroma)
        )
        own = int(original.fine[row, column, channel])
        if alpha == 1:
            assert out[row, column, channel] == own
        else:
            wanted = min(max(shown + alpha * (own - left), 0), most)
            assert abs(out[row, column, channel] - wanted) <= 0.501


def test_what_was_left_is_only_made_where_there_is_an_edge() -> None:
    def never(_at: np.ndarray) -> np.ndarray:
        raise AssertionError

    picture, original = np.zeros((4, 4, 3), np.uint8), np.full((4, 4, 3), 9, np.uint8)
    alpha = np.repeat(np.array([[0, 255]], np.uint8), 2, axis=1).repeat(4, axis=0)
    give_back(picture, original, never, alpha)
    assert np.array_equal(picture[..., 0], np.where(alpha, 9, 0))
