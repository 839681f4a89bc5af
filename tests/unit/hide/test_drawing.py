"""Places that are hidden beyond recognition."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from bgsoft.face.base import EXPECTED_HALF, NO_LANDMARKS, hiding_ellipse, oval_points
from bgsoft.face.geometry import Roi
from bgsoft.frame import Frame, FrameFormat, PixelLayout
from bgsoft.hide.hider import Hider
from bgsoft.hide.plan import MAX_CELLS, Ellipse, HidePlan, Place, Rectangle
from bgsoft.settings.hide import HideShape, HideStyle
from tests.marks import crossed
from tests.pictures import SIZES, copy_frame, flat_frame, frame_format, random_frame
from tests.unit.face.shapes import box_in, make_face

LAYOUTS = list(PixelLayout)
STYLES = list(HideStyle)
SHAPES = list(HideShape)


def hide(frame: Frame, *places: Place, **settings: Any) -> None:
    Hider(HidePlan(format=frame.format, **settings)).apply(frame, places)


def face_mask(format: FrameFormat, face: Any) -> NDArray[np.uint8]:
    inside = np.zeros(format.luma_shape, np.uint8)
    cv2.fillPoly(inside, [np.rint(oval_points(face).T).astype(np.int32)], 1)
    return inside


def correlation(one: NDArray[Any], other: NDArray[Any]) -> float:
    if np.ptp(one) == 0:
        return 0.0
    return float(np.corrcoef(one.ravel().astype(float), other.ravel().astype(float))[0, 1])


@crossed(layout=LAYOUTS, style=STYLES, shape=SHAPES)
def test_detail_inside_goes_and_not_a_bit_outside_changes(
    layout: PixelLayout, style: HideStyle, shape: HideShape
) -> None:
    format = frame_format((1280, 720), layout)
    frame = random_frame(format, np.random.default_rng(1))
    luma, chroma = frame.luma.copy(), frame.chroma.copy()
    face = make_face(600, 350, 180, roll=0.4)
    hide(frame, hiding_ellipse(face), style=style, shape=shape)
    inside = face_mask(format, face)
    scale = 1 << format.shift
    top = (1 << format.bit_depth) * scale
    # Noise over the whole range becomes nearly flat.
    assert frame.luma[inside > 0].astype(float).std() < 0.03 * top
    assert frame.chroma[inside[::2, ::2] > 0].astype(float).std() < 0.03 * top
    assert abs(correlation(frame.luma[inside > 0], luma[inside > 0])) < 0.1
    assert not (frame.luma & (scale - 1)).any()
    reach = cv2.dilate(inside, np.ones((161, 161), np.uint8))
    np.testing.assert_array_equal(frame.luma[reach == 0], luma[reach == 0])
    np.testing.assert_array_equal(frame.chroma[reach[::2, ::2] == 0], chroma[reach[::2, ::2] == 0])
    assert (frame.luma != luma)[inside > 0].mean() > 0.9


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("style", STYLES)
def test_a_rectangle_is_replaced_to_its_last_sample_and_no_further(
    layout: PixelLayout, style: HideStyle
) -> None:
    format = frame_format((641, 359), layout)
    frame = random_frame(format, np.random.default_rng(1))
    luma, chroma = frame.luma.copy(), frame.chroma.copy()
    box = Rectangle(500, 100, 642, 360)  # over both edges, as sides are even
    hide(frame, box, style=style)
    for plane, before, place in (
        (frame.luma, luma, np.s_[100:, 500:]),
        (frame.chroma, chroma, np.s_[50:, 250:]),
    ):
        outside = np.ones(before.shape, np.bool_)
        outside[place] = False
        np.testing.assert_array_equal(plane[outside], before[outside])
        hidden, original = plane[place].astype(float), before[place].astype(float)
        assert hidden.std() < 0.1 * original.std()
        assert abs(correlation(hidden, original)) < 0.1
        # Up to the edge: what is left there is no nearer to what was than anywhere else.
        for side in (np.s_[0], np.s_[-1], np.s_[:, 0], np.s_[:, -1]):
            assert np.abs(hidden[side] - original[side]).mean() > 0.5 * original.std()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("style", [HideStyle.BLUR, HideStyle.PIXELATE])
@pytest.mark.parametrize("left", [-40, 30, 250])
def test_cells_are_those_of_opencv(layout: PixelLayout, style: HideStyle, left: int) -> None:
    """Also for cells that the frame's edge cuts, where the edge is repeated."""
    format = frame_format((333, 207), layout)
    frame = random_frame(format, np.random.default_rng(1))
    box = Rectangle(left, 100, left + 120, 230)
    before, (rows, columns) = copy_frame(frame), (5, 5)
    hide(frame, box, style=style)
    patch = HidePlan(format=format).patch(box)
    assert patch is not None
    for step, plane, shown in ((1, before.luma, frame.luma), (2, before.chroma, frame.chroma)):
        (x, y, *_), edge = (side // step for side in patch.hidden), patch.edge // step
        size, margin = (columns * edge, rows * edge), 150
        wide = cv2.copyMakeBorder(plane.astype(np.float32), *4 * (margin,), cv2.BORDER_REPLICATE)
        wide = wide[y + margin :, x + margin :][: size[1], : size[0]]
        means = cv2.resize(wide, (columns, rows), interpolation=cv2.INTER_AREA)
        way = cv2.INTER_LINEAR if style is HideStyle.BLUR else cv2.INTER_NEAREST
        cut = np.s_[max(y, 0) : patch.hidden.bottom // step, max(x, 0) : patch.hidden.right // step]
        wanted = cv2.resize(means, size, interpolation=way)[max(-y, 0) :, max(-x, 0) :]
        drawn = shown[cut] / float(1 << format.shift)
        wanted = wanted[: drawn.shape[0], : drawn.shape[1]] / float(1 << format.shift)
        np.testing.assert_allclose(drawn, wanted, atol=0.51)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("full_range", [False, True])
def test_solid_is_black(layout: PixelLayout, full_range: bool) -> None:
    """The whole ellipse is black."""
    format = frame_format((640, 360), layout, full_range=full_range)
    frame = random_frame(format, np.random.default_rng(1))
    face = make_face(300, 180, 120, roll=0.3)
    hide(frame, hiding_ellipse(face), style=HideStyle.SOLID)
    inside = face_mask(format, face)
    assert set(frame.luma[inside > 0].tolist()) == {format.luma_range[0]}
    assert set(frame.chroma[inside[::2, ::2] > 0].ravel().tolist()) == {format.chroma_neutral}


def test_a_mosaic_has_flat_cells() -> None:
    format = frame_format((640, 360))
    frame = random_frame(format, np.random.default_rng(1))
    plan = HidePlan(format=format, style=HideStyle.PIXELATE, shape=HideShape.BOX)
    ellipse = hiding_ellipse(make_face(300, 180, 120))
    patch = plan.patch(ellipse)
    assert patch is not None
    Hider(plan).apply(frame, [ellipse])
    (left, top, _, _), edge = patch.hidden, patch.edge
    for row in range(patch.rows - 1):
        for column in range(patch.columns - 1):
            y, x = top + row * edge, left + column * edge
            assert np.ptp(frame.luma[y : y + edge, x : x + edge]) == 0
    cells = frame.luma[top : top + 4 * edge : edge, left : left + 4 * edge : edge]
    assert len(np.unique(cells)) > 4


@pytest.mark.parametrize("roll", [0.0, 0.6, -1.5])
def test_without_landmarks_a_face_is_hidden_where_it_is_to_be_expected(roll: float) -> None:
    side = 180.0
    square = Roi(300 - 0.04 * side * math.sin(roll), 180 + 0.04 * side * math.cos(roll), side, roll)
    width, height = (2 * half * side for half in EXPECTED_HALF)
    known = make_face(300, 180, width, height=height, roll=roll)
    dim = replace(known, landmarks=NO_LANDMARKS, square=square, box_xyxy=box_in(square))
    one, other = hiding_ellipse(known), hiding_ellipse(dim)
    for name in ("x", "y", "angle"):
        assert getattr(other, name) == pytest.approx(getattr(one, name), abs=0.05 * side)
    for name in ("across", "along"):
        assert getattr(other, name) == pytest.approx(getattr(one, name), rel=0.15)


def test_a_box_holds_the_ellipse_and_a_margin_more() -> None:
    format = frame_format((640, 360))
    ellipse = hiding_ellipse(make_face(300, 180, 100, roll=0.5))
    hidden = []
    for settings in (
        {},
        {"shape": HideShape.BOX},
        {"margin": 0.3},
        {"shape": HideShape.BOX, "margin": 0.3},
    ):
        frame = flat_frame(format, 200, 128, 128)
        hide(frame, ellipse, style=HideStyle.SOLID, **settings)
        hidden.append(frame.luma == 16)
    for smaller, larger in ((0, 1), (0, 2), (1, 3), (2, 3)):
        assert not (hidden[smaller] & ~hidden[larger]).any()
        assert hidden[larger].sum() > 1.2 * hidden[smaller].sum()
    assert hidden[2].sum() == pytest.approx(1.3**2 * hidden[0].sum(), rel=0.02)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("style", [HideStyle.BLUR, HideStyle.PIXELATE])
@pytest.mark.parametrize("by_alpha", [False, True])
def test_a_flat_picture_stays_as_it_is(
    layout: PixelLayout, style: HideStyle, by_alpha: bool
) -> None:
    format = frame_format((640, 360), layout)
    frame = flat_frame(format, 90, 110, 140)
    frame.planes.alpha[:] = 255
    before = frame.luma.copy(), frame.chroma.copy()
    places = [hiding_ellipse(make_face(20, 340, 200)), Rectangle(300, 100, 340, 300)]
    hide(frame, *places, style=style, by_alpha=by_alpha)
    unit = by_alpha << format.shift  # black counts as a thousandth
    np.testing.assert_allclose(frame.luma.astype(int), before[0], atol=unit)
    np.testing.assert_allclose(frame.chroma.astype(int), before[1], atol=unit)


@pytest.mark.parametrize("style", [HideStyle.BLUR, HideStyle.PIXELATE])
def test_what_is_clear_does_not_darken_a_cutout(style: HideStyle) -> None:
    format = frame_format((640, 360))
    frame = flat_frame(format, 16, 128, 128)
    person = np.s_[100:, 200:331]  # its edge lies inside of cells
    frame.planes.alpha[person] = 255
    frame.luma[person] = 180
    frame.chroma[50:, 100:166] = (110, 150)
    frame.planes.alpha[100:, 330] = 60  # a cutout's edge has the person's own colour
    dark = copy_frame(frame)
    box = Rectangle(190, 90, 400, 300)
    hide(frame, box, style=style, by_alpha=True)
    inside = np.s_[100:300, 200:331]
    assert frame.luma[inside].min() >= 178
    assert np.abs(frame.chroma[50:150, 100:165].astype(int) - (110, 150)).max() <= 2
    hide(dark, box, style=style)
    assert dark.luma[inside].min() < 150


def test_only_coarse_means_are_left_of_a_face() -> None:
    """Bars as wide as an eye, a seventh of the face, become invisible."""
    format = frame_format((1280, 720))
    width = 210
    columns = np.arange(1280)
    for style in (HideStyle.BLUR, HideStyle.PIXELATE):
        frame = flat_frame(format, 128, 128, 128)
        frame.luma[:] = np.where(columns // (width // 7) % 2, 200, 60)
        hide(frame, hiding_ellipse(make_face(640, 360, width)), style=style)
        middle = frame.luma[300:420, 560:720].astype(float)
        assert np.ptp(middle) < 70  # of 140


def test_lettering_in_a_rectangle_is_coarser_than_its_lines() -> None:
    """A line of text has cells of its own height, several letters wide."""
    plan = HidePlan(format=frame_format((1280, 720)), style=HideStyle.PIXELATE)
    patch = plan.patch(Rectangle(100, 100, 700, 160))
    assert patch is not None
    assert (patch.edge, patch.columns, patch.rows) == (120, 5, 1)


@crossed(size=SIZES, layout=LAYOUTS, style=STYLES, shape=SHAPES, by_alpha=[False, True])
def test_every_size_with_places_anywhere(
    size: tuple[int, int], layout: PixelLayout, style: HideStyle, shape: HideShape, by_alpha: bool
) -> None:
    format = frame_format(size, layout)
    width, height = size
    rng = np.random.default_rng(2)
    frame = random_frame(format, rng)
    frame.planes.alpha[:] = rng.integers(0, 256, format.luma_shape)
    before, alpha = frame.luma.copy(), frame.planes.alpha.copy()
    hider = Hider(HidePlan(format=format, style=style, shape=shape, by_alpha=by_alpha))
    faces = [
        make_face(width * x, height * y, max(1.0, width * 0.3), roll=x)
        for x, y in [(0.5, 0.5), (0, 0), (1, 1), (0, 1), (-5, 0.5), (0.5, 9)]
    ]
    hider.apply(frame, [hiding_ellipse(face) for face in faces])
    if width * height > 100:
        assert (frame.luma != before).any()
    once = frame.luma.copy()
    hider.apply(frame, [hiding_ellipse(face) for face in faces[4:]])
    np.testing.assert_array_equal(frame.luma, once)  # out of sight
    hider.apply(frame, [Rectangle(0, 0, width + width % 2, height + height % 2)])
    if width * height > 1000:
        assert np.ptp(frame.luma) < np.ptp(before)
    np.testing.assert_array_equal(frame.planes.alpha, alpha)


@pytest.mark.parametrize("ratio", [0.01, 0.2, 1.0, 5.0, 100.0])
@pytest.mark.parametrize("roll", [0.0, 0.5, 1.2])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_patch_holds_its_ellipse_in_few_cells(
    ratio: float, roll: float, shape: HideShape
) -> None:
    format = frame_format((1920, 1080))
    cos, sin = float(np.cos(roll)), float(np.sin(roll))
    ellipse = Ellipse(x=801.3, y=377.7, angle=roll, across=100.0, along=100 * ratio)
    patch = HidePlan(format=format, shape=shape).patch(ellipse)
    assert patch is not None
    assert not any(side % 2 for side in (patch.edge, *patch.hidden))
    assert max(patch.rows, patch.columns) <= MAX_CELLS
    reach = 1.0 if shape is HideShape.BOX else 1.15
    turn = np.linspace(0, 2 * np.pi, 100)
    u, v = reach * ellipse.across * np.cos(turn), reach * ellipse.along * np.sin(turn)
    x, y = ellipse.x + u * cos - v * sin, ellipse.y + u * sin + v * cos
    left, top, right, bottom = patch.hidden
    assert left <= x.min() < x.max() <= right <= left + patch.columns * patch.edge
    assert top <= y.min() < y.max() <= bottom <= top + patch.rows * patch.edge


def test_what_is_not_a_number_hides_nothing() -> None:
    ellipse = Ellipse(x=float("nan"), y=1.0, angle=0.0, across=5.0, along=5.0)
    assert HidePlan(format=frame_format((64, 64))).patch(ellipse) is None
