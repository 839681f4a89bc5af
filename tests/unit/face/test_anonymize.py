"""Faces made unrecognisable."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from bgsoft.face.anonymize import MAX_CELLS, CpuAnonymizer, make_patch
from bgsoft.face.base import Ellipse, face_outline, hiding_ellipse
from bgsoft.frame import PixelLayout
from tests.pictures import SIZES, flat_frame, frame_format, random_frame
from tests.unit.face.shapes import make_face

LAYOUTS = list(PixelLayout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_detail_inside_goes_and_not_a_bit_outside_changes(layout: PixelLayout) -> None:
    format = frame_format((1280, 720), layout)
    frame = random_frame(format, np.random.default_rng(1))
    luma, chroma = frame.luma.copy(), frame.chroma.copy()
    face = make_face(600, 350, 180, roll=0.4)
    CpuAnonymizer(format).apply(frame, [hiding_ellipse(face)])
    inside = np.zeros(format.luma_shape, np.uint8)
    cv2.fillPoly(inside, [np.rint(face_outline(face)).astype(np.int32)], 1)
    scale = 1 << format.shift
    top = (1 << format.bit_depth) * scale
    # Noise over the whole range becomes nearly flat.
    assert frame.luma[inside > 0].astype(float).std() < 0.03 * top
    assert frame.chroma[inside[::2, ::2] > 0].astype(float).std() < 0.03 * top
    assert not (frame.luma & (scale - 1)).any()
    reach = cv2.dilate(inside, np.ones((161, 161), np.uint8))
    np.testing.assert_array_equal(frame.luma[reach == 0], luma[reach == 0])
    np.testing.assert_array_equal(frame.chroma[reach[::2, ::2] == 0], chroma[reach[::2, ::2] == 0])
    assert (frame.luma != luma)[inside > 0].mean() > 0.9


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_flat_picture_stays_as_it_is(layout: PixelLayout) -> None:
    format = frame_format((640, 360), layout)
    frame = flat_frame(format, 90, 110, 140)
    before = frame.luma.copy(), frame.chroma.copy()
    CpuAnonymizer(format).apply(frame, [hiding_ellipse(make_face(20, 340, 200))])
    np.testing.assert_array_equal(frame.luma, before[0])
    np.testing.assert_array_equal(frame.chroma, before[1])


def test_only_coarse_means_are_left_of_a_face() -> None:
    """Bars as wide as an eye, a seventh of the face, cannot be told any more."""
    format = frame_format((1280, 720))
    frame = flat_frame(format, 128, 128, 128)
    width = 210
    columns = np.arange(1280)
    frame.luma[:] = np.where(columns // (width // 7) % 2, 200, 60)
    CpuAnonymizer(format).apply(frame, [hiding_ellipse(make_face(640, 360, width))])
    middle = frame.luma[300:420, 560:720].astype(float)
    assert np.ptp(middle) < 70  # of 140


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_size_with_faces_anywhere(size: tuple[int, int], layout: PixelLayout) -> None:
    format = frame_format(size, layout)
    width, height = size
    frame = random_frame(format, np.random.default_rng(2))
    before = frame.luma.copy()
    anonymizer = CpuAnonymizer(format)
    faces = [
        make_face(width * x, height * y, max(1.0, width * 0.3), roll=x)
        for x, y in [(0.5, 0.5), (0, 0), (1, 1), (0, 1), (-5, 0.5), (0.5, 9)]
    ]
    anonymizer.apply(frame, [hiding_ellipse(face) for face in faces])
    if width * height > 100:
        assert (frame.luma != before).any()
    once = frame.luma.copy()
    anonymizer.apply(frame, [hiding_ellipse(face) for face in faces[4:]])
    np.testing.assert_array_equal(frame.luma, once)  # out of sight


@pytest.mark.parametrize("ratio", [0.01, 0.2, 1.0, 5.0, 100.0])
@pytest.mark.parametrize("roll", [0.0, 0.5, 1.2])
def test_a_patch_holds_its_ellipse_in_few_cells(ratio: float, roll: float) -> None:
    format = frame_format((1920, 1080))
    cos, sin = float(np.cos(roll)), float(np.sin(roll))
    ellipse = Ellipse(x=801.3, y=377.7, cos=cos, sin=sin, across=100.0, along=100 * ratio)
    patch = make_patch(ellipse, format)
    assert patch is not None
    assert patch.edge % 2 == patch.left % 2 == patch.top % 2 == 0
    assert max(patch.rows, patch.columns) <= MAX_CELLS
    turn = np.linspace(0, 2 * np.pi, 100)
    u, v = 1.15 * ellipse.across * np.cos(turn), 1.15 * ellipse.along * np.sin(turn)
    x, y = ellipse.x + u * cos - v * sin, ellipse.y + u * sin + v * cos
    assert x.min() >= patch.left
    assert x.max() <= patch.left + patch.columns * patch.edge
    assert y.min() >= patch.top
    assert y.max() <= patch.top + patch.rows * patch.edge


def test_what_is_not_a_number_hides_nothing() -> None:
    ellipse = Ellipse(x=float("nan"), y=1.0, cos=1.0, sin=0.0, across=5.0, along=5.0)
    assert make_patch(ellipse, frame_format((64, 64))) is None
