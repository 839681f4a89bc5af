"""Squares around faces, landmarks back in the frame, and how a view is sampled."""

from __future__ import annotations

import math
from typing import Any

import cv2
import numpy as np
import pytest

from bgsoft.analysis.reduce import Reducer
from bgsoft.face.detect import probability
from bgsoft.face.geometry import Affine, Roi, frame_from_roi, frame_from_tile
from bgsoft.face.landmarks import OneEuro, make_mesh, roi_from_box
from bgsoft.face.warp import FrameView, Warper
from bgsoft.frame import AnalysisFrame, Frame, FrameFormat, PixelLayout
from bgsoft.models.catalog import ModelSpec, find_spec
from bgsoft.segment.preprocess import yuv_to_rgb_matrix
from tests.pictures import codes, flat_frame, frame_format, make_frame, random_frame
from tests.unit.face.shapes import in_frame, meshes

MESH, DETECTOR = find_spec("face-mesh"), find_spec("blazeface-short")


def turned_face(angle: float) -> np.ndarray:
    """(468, 3): an ellipse with eyes, turned clockwise by an angle about (300, 200)."""
    t = np.linspace(0, 2 * math.pi, 468, endpoint=False)
    points = np.stack([40 * np.cos(t), 50 * np.sin(t)], axis=1)
    points[33], points[263] = (-20, -10), (20, -10)
    cosine, sine = math.cos(angle), math.sin(angle)
    points = points @ np.array([[cosine, sine], [-sine, cosine]]) + [300, 200]
    return np.column_stack([points, np.zeros(468)])


@pytest.mark.parametrize("angle", [0.0, 0.3, -1.2, 2.5])
def test_the_square_turns_with_the_face(angle: float) -> None:
    roi = meshes([turned_face(angle)], [1.0])[0].roi
    assert roi.angle == pytest.approx(angle)
    assert (roi.x, roi.y) == pytest.approx((300, 200), abs=0.1)
    assert roi.side == pytest.approx(150, abs=0.1)


def test_the_square_of_a_detection() -> None:
    roi = roi_from_box((0.0, 0.0, 40.0, 80.0), [(10, 20), (30, 40), *[(0, 0)] * 4])
    assert (roi.x, roi.y, roi.side) == (20, 40, 120)
    assert roi.angle == pytest.approx(math.pi / 4)


def write(spec: ModelSpec, seen: FrameView, tensor: np.ndarray) -> None:
    Warper(spec, seen[0].format).write([seen], tensor[None])


def test_landmarks_return_to_where_they_were() -> None:
    face = turned_face(0.7)
    face[:, 2] = 30
    roi = meshes([face], [1.0])[0].roi
    xx, xy, x0, yx, yy, y0 = view = frame_from_roi(roi, 192)
    places = np.linalg.solve([[xx, xy], [yx, yy]], face[:, :2].T - [[x0], [y0]])
    seen = np.column_stack([*places, face[:, 2] * 192 / roi.side])
    found = make_mesh(view.applied(seen), 1.0)
    np.testing.assert_allclose(found.points, face.T, atol=1e-4)
    low, high = face[:, :2].min(axis=0), face[:, :2].max(axis=0)
    assert found.box == pytest.approx((*low, *high))
    again = found.roi
    assert (again.x, again.y, again.side) == pytest.approx((roi.x, roi.y, roi.side))
    assert again.angle == pytest.approx(roi.angle)


@pytest.mark.parametrize("index", [0, 200, 467])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("axis", [0, 1])
def test_points_that_are_no_numbers_have_no_finite_box(axis: int, bad: float, index: int) -> None:
    raw = turned_face(0.1)
    view = frame_from_roi(Roi(300, 200, 150, 0.2), 192)
    assert np.isfinite(make_mesh(view.applied(raw), 1.0).box).all()
    raw[index, axis] = bad
    assert not np.isfinite(make_mesh(view.applied(raw), 1.0).box).all()


def test_presence_is_a_probability_whatever_comes() -> None:
    logits = 0.0, 3e38, -3e38, math.nan, math.inf
    assert [*map(probability, logits)] == pytest.approx([0.5, 1, 0, 0, 1], abs=1e-12)


def ramps(format: FrameFormat) -> tuple[np.ndarray, np.ndarray]:
    """Code values that rise with the place: luma to the right, Cb down, Cr to the right."""
    rows, columns = format.luma_shape
    luma = np.broadcast_to(60 + 100 * (np.arange(columns) + 0.5) / columns, (rows, columns))
    down = 90 + 60 * (np.arange(format.chroma_shape[0]) + 0.5) / (rows / 2)
    along = 100 + 50 * (np.arange(format.chroma_shape[1]) + 0.5) / (columns / 2)
    chroma = np.stack(np.broadcast_arrays(down[:, None], along[None]), axis=-1)
    scale = 1 << (format.bit_depth - 8)
    return np.rint(luma * scale), np.rint(chroma * scale)


@pytest.mark.parametrize("layout", list(PixelLayout))
@pytest.mark.parametrize("side", [60.0, 150.0, 420.0, 700.0])
@pytest.mark.parametrize("angle", [0.0, 0.5, math.pi])
def test_a_view_shows_what_is_there(layout: PixelLayout, side: float, angle: float) -> None:
    """From full frames and from the grid, with and without averaging: no offset anywhere."""
    format = frame_format((1200, 1024), layout, full_range=True, matrix=1)
    luma, chroma = ramps(format)
    frame = make_frame(format, codes(format, luma), codes(format, chroma))
    grid = Reducer(format).reduce([frame])[0]
    view = frame_from_roi(Roi(610, 500, side, angle), 192)
    tensor = np.empty((3, 192, 192), np.float32)
    write(MESH, (frame, grid, view), tensor)
    at = np.stack(np.meshgrid(np.arange(192) + 0.5, np.arange(192) + 0.5), axis=-1)
    x, y = np.moveaxis(in_frame(view, at), -1, 0)
    yuv = np.stack([60 + 100 * x / 1200, 90 + 60 * y / 1024, 100 + 50 * x / 1200, np.ones_like(x)])
    rgb = np.tensordot(yuv_to_rgb_matrix(format), yuv, axes=1) / 255
    inside = slice(8, -8)  # samples beyond the edge repeat it
    off = np.abs(tensor - np.clip(rgb, 0, 1))[:, inside, inside]
    # A step of luma is 12 pixels wide: an offset of a pixel would show in the mean.
    assert off.max() <= 5 / 255
    assert abs((tensor - np.clip(rgb, 0, 1))[:, inside, inside].mean(axis=(1, 2))).max() < 1 / 255


def warped(frame: Frame, view: Affine) -> np.ndarray[Any, Any]:
    """(128, 128, 3) codes that a frame shows whose grid is not looked at, by the definition."""
    planes = []
    for plane, cell, border in ((frame.luma[..., None], 1, 16), (frame.chroma, 2, 128)):
        spacing = view.scale / cell
        taps = 1 if spacing <= 2 else 2 if spacing <= 4 else 4
        ends = np.pad(plane.astype(float), ((1, 1), (1, 1), (0, 0)), constant_values=border)
        at = np.stack(np.meshgrid(*[(np.arange(128 * taps) + 0.5) / taps] * 2), axis=-1)
        # A sample of border lies around; what is farther out is border likewise.
        place = in_frame(view, at) / cell + 0.5
        place = np.clip(place, 0, np.array(ends.shape[1::-1]) - 1.001)
        (x, y), (dx, dy) = np.moveaxis(place.astype(int), -1, 0), np.moveaxis(place % 1, -1, 0)
        first, second = (
            ends[y, x + right] * (1 - dy[..., None]) + ends[y + 1, x + right] * dy[..., None]
            for right in (0, 1)
        )
        sampled = np.rint(first * (1 - dx[..., None]) + second * dx[..., None])
        planes.append(np.rint(sampled.reshape(128, taps, 128, taps, -1).mean(axis=(1, 3))))
    return np.dstack(planes)


@pytest.mark.parametrize("size", [(641, 359), (300, 200), (33, 21), (7, 5), (1, 1)])
@pytest.mark.parametrize("side", [0.3, 0.71, 1.1, 4.3])
@pytest.mark.parametrize("angle", [0.0, 0.7])
def test_views_are_as_defined(size: tuple[int, int], side: float, angle: float) -> None:
    """From enlarged to averaged over 4×4 samples, inside of the frame and far outside."""
    format = frame_format(size)
    frame = random_frame(format, np.random.default_rng(7))
    grid = AnalysisFrame(1, frame.luma, frame.chroma)  # the frame itself is looked at
    tensor = np.empty((3, 128, 128), np.float32)
    for x, y in ((0.5, 0.52), (-0.4, -2.5), (0.9, 0.85)):
        roi = Roi(x * size[0], y * size[1], side * size[1], angle)
        view = frame_from_roi(roi, 128)
        write(DETECTOR, (frame, grid, view), tensor)
        codes = warped(frame, view).reshape(-1, 3).T
        rgb = yuv_to_rgb_matrix(format) @ np.vstack([codes, np.ones(codes.shape[1])])
        expected = np.clip(np.floor(rgb + 0.5), 0, 255).reshape(3, 128, 128) / 127.5 - 1
        off = np.abs(tensor - expected) * 127.5
        # Seldom, a sample half-way between two codes is rounded otherwise.
        assert (off > 1.01).mean() < 1e-3
        assert off.max() < 4


@pytest.mark.parametrize("size", [(640, 360), (360, 640), (64, 64), (641, 359)])
def test_beyond_the_frame_is_black(size: tuple[int, int]) -> None:
    format = frame_format(size)
    frame = flat_frame(format, 235, 128, 128)
    side = max(size)
    left, top = ((side - each) / 2 for each in size)
    view = frame_from_tile((-left, -top, side), 128)
    grid = Reducer(format).reduce([frame])[0]
    tensor = np.empty((3, 128, 128), np.float32)
    write(DETECTOR, (frame, grid, view), tensor)
    white = np.zeros((128, 128), bool)
    corners = np.array([[left, top], [left + size[0], top + size[1]]])
    low, high = np.rint(corners * 128 / side).astype(int)
    white[low[1] : high[1], low[0] : high[0]] = True
    inner = cv2.erode(white.astype(np.uint8), np.ones((5, 5)), borderValue=0) > 0
    outer = cv2.dilate(white.astype(np.uint8), np.ones((5, 5))) == 0
    np.testing.assert_allclose(tensor[:, inner], 1, atol=0.02)
    np.testing.assert_allclose(tensor[:, outer], -1, atol=0.02)


def test_the_grid_serves_large_faces_only() -> None:
    format = frame_format((1920, 1080))
    white = flat_frame(format, 235, 128, 128)
    grid = Reducer(format).reduce([white])[0]
    frame = flat_frame(format, 16, 128, 128)
    tensor = np.empty((3, 192, 192), np.float32)
    for side, shown in ((900, 1), (300, 0)):
        view = frame_from_roi(Roi(960, 540, side, 0), 192)
        write(MESH, (frame, grid, view), tensor)
        np.testing.assert_allclose(tensor, shown, atol=0.01)


def test_the_filter_rests_and_follows() -> None:
    rng = np.random.default_rng(0)
    face = turned_face(0).T
    still = OneEuro()
    noisy = [face + rng.normal(0, 0.3, face.shape) for _ in range(90)]
    smooth = np.array([still.update(points, 1 / 30, 100) for points in noisy])
    assert np.std(smooth[30:], axis=0).mean() < 0.35 * np.std(noisy, axis=0).mean()

    moving = OneEuro()
    for index in range(30):
        moved = face + np.array([[index * 3.0], [0], [0]])
        followed = moving.update(moved, 1 / 30, 100)
    assert np.abs(followed - moved).max() < 3.0


def test_the_filter_starts_where_the_signal_is() -> None:
    face = turned_face(0)
    np.testing.assert_array_equal(OneEuro().update(face, 1 / 30, 100), face)
