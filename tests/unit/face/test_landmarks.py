"""Squares around faces, landmarks in the frame, and sampled views."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import pytest

from bgsoft.analysis.reduce import Reducer
from bgsoft.face.base import square_of
from bgsoft.face.geometry import Affine, Roi, frame_from_roi
from bgsoft.face.meshes import OneEuro
from bgsoft.face.networks import resolve_detector
from bgsoft.face.track import steadied
from bgsoft.face.warp import EDGE, MIRRORED, FrameView, Warper
from bgsoft.frame import AnalysisFrame, Frame, FrameFormat, PixelLayout
from bgsoft.models.catalog import ModelSpec, find_spec
from bgsoft.segment.preprocess import yuv_to_rgb_matrix
from tests.marks import crossed
from tests.pictures import codes, flat_frame, frame_format, make_frame, random_frame
from tests.unit.face import shapes
from tests.unit.face.shapes import in_frame

MESH, DETECTOR = find_spec("face-mesh"), resolve_detector().spec
BORDERS = {EDGE: cv2.BORDER_REPLICATE, MIRRORED: cv2.BORDER_REFLECT}


@pytest.mark.parametrize("angle", [0.0, 0.7, -2.0])
def test_the_square_of_a_detection(angle: float) -> None:
    """It lies towards the chin; a box that is only longer does not enlarge it."""
    square = square_of((0.0, 0.0, 40.0, 90.0), angle)
    assert square.angle == angle
    assert square.side == pytest.approx(1.54 * 60)
    down = -math.sin(angle), math.cos(angle)
    fall = np.subtract((square.x, square.y), (20, 45))
    np.testing.assert_allclose(fall, np.multiply(0.055 * 60, down), atol=1e-9)


def test_a_square_rests_until_the_face_has_left_it() -> None:
    last = Roi(300, 200, 100, 0.1)
    for near in (Roi(305, 195, 104, 0.15), Roi(300, 200, 93, 0.05), last):
        assert steadied(last, near) is last
    far = (Roi(320, 205, 101, 0.12), last._replace(angle=0.4), last._replace(side=150))
    assert [steadied(last, roi) for roi in far] == [*far]
    assert steadied(last, last._replace(angle=0.1 + math.tau)) is last


def write(spec: ModelSpec, seen: FrameView, tensor: np.ndarray, border: int = EDGE) -> None:
    Warper(spec, seen[0].format, border=border).write([seen], tensor[None])


def test_landmarks_return_to_where_they_were() -> None:
    face = shapes.mesh(300, 200)
    face[:, 2] = 30
    roi = Roi(310, 190, 150, 0.7)
    xx, xy, x0, yx, yy, y0 = view = frame_from_roi(roi, 192)
    places = np.linalg.solve([[xx, xy], [yx, yy]], face[:, :2].T - [[x0], [y0]])
    seen = np.column_stack([*places, face[:, 2] * 192 / roi.side])
    np.testing.assert_allclose(view.applied(seen), face.T, atol=1e-4)


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
    """Views of frames and of grids, averaged or not, have no offset."""
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


def warped(frame: Frame, view: Affine, shape: tuple[int, int], border: int) -> np.ndarray[Any, Any]:
    """Return a view of a frame by the definition, without its grid: (H, W, 3) codes."""
    planes = []
    for plane, cell in ((frame.luma[..., None], 1), (frame.chroma, 2)):
        spacing = view.scale / cell
        taps = 1 if spacing <= 2 else 2 if spacing <= 4 else 4
        (rows, columns), reach = plane.shape[:2], max(plane.shape[:2]) + 4
        if border == MIRRORED:
            # OpenCV mirrors as often as it takes; this border is mirrored once and then stays.
            around = [np.arange(-side, 2 * side) for side in (rows, columns)]
            mirrored = [
                cv2.borderInterpolate(int(at), side, cv2.BORDER_REFLECT)
                for side, all in zip((rows, columns), around, strict=True)
                for at in all
            ]
            plane = plane[mirrored[: 3 * rows]][:, mirrored[3 * rows :]]
            start = np.array([columns, rows])
        else:
            start = np.array([0, 0])
        ends = np.pad(plane.astype(float), ((reach, reach), (reach, reach), (0, 0)), mode="edge")
        at = [(np.arange(side * taps) + 0.5) / taps for side in shape[::-1]]
        place = in_frame(view, np.stack(np.meshgrid(*at), axis=-1)) / cell - 0.5
        # Farther out the edge is repeated, whatever lies there.
        place = np.clip(place + start, 1 - reach, np.array(plane.shape[1::-1]) + reach - 3) + reach
        (x, y), (dx, dy) = np.moveaxis(place.astype(int), -1, 0), np.moveaxis(place % 1, -1, 0)
        first, second = (
            ends[y, x + right] * (1 - dy[..., None]) + ends[y + 1, x + right] * dy[..., None]
            for right in (0, 1)
        )
        sampled = np.rint(first * (1 - dx[..., None]) + second * dx[..., None])
        blocks = sampled.reshape(shape[0], taps, shape[1], taps, -1)
        planes.append(np.rint(blocks.mean(axis=(1, 3))))
    return np.dstack(planes)


@crossed(
    border=BORDERS, size=[(301, 199), (33, 21), (1, 1)], side=[0.3, 1.1, 4.3, 9.0], angle=[0.0, 0.7]
)
def test_views_are_as_defined(
    size: tuple[int, int], side: float, angle: float, border: int
) -> None:
    """From enlarged views to averages over 4×4 samples, inside and outside the frame."""
    format = frame_format(size)
    frame = random_frame(format, np.random.default_rng(7))
    grid = AnalysisFrame(1, frame.luma, frame.chroma)  # the frame itself is looked at
    spec = replace(MESH, width=96, height=64)
    tensor = np.empty((3, 64, 96), np.float32)
    for x, y in ((0.5, 0.52), (-0.4, -2.5), (0.9, 0.85)):
        view = frame_from_roi(Roi(x * size[0], y * size[1], side * size[1], angle), 80)
        write(spec, (frame, grid, view), tensor, border)
        codes = warped(frame, view, (64, 96), border).reshape(-1, 3).T
        rgb = yuv_to_rgb_matrix(format) @ np.vstack([codes, np.ones(codes.shape[1])])
        expected = np.clip(np.floor(rgb + 0.5), 0, 255).reshape(3, 64, 96)
        off = np.abs(tensor * 255 - expected)
        # Seldom, a sample half-way between two codes is rounded otherwise.
        assert (off > 1.01).mean() < 4e-3
        assert off.max() < 4


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("size", [(64, 32), (40, 41), (34, 34)])
def test_the_border_is_that_of_opencv(size: tuple[int, int], border: int) -> None:
    """Equal pixel by pixel up to one frame's width; grey frames are their luma."""
    format = frame_format(size, full_range=True, matrix=1)
    frame = random_frame(format, np.random.default_rng(3))
    frame.chroma[:] = 128
    across, down = 32, 24
    spec = replace(MESH, width=size[0] + 2 * across, height=size[1] + 2 * down)
    tensor = np.empty((3, spec.height, spec.width), np.float32)
    grid = AnalysisFrame(1, frame.luma, frame.chroma)
    write(spec, (frame, grid, Affine(1, 0, -across, 0, 1, -down)), tensor, border)
    expected = cv2.copyMakeBorder(frame.luma, down, down, across, across, BORDERS[border])
    for channel in tensor:
        np.testing.assert_allclose(channel * 255, expected, atol=1e-3)


def test_the_detector_takes_codes_in_the_order_of_opencv() -> None:
    format = frame_format((64, 64), full_range=True, matrix=1)
    frame = flat_frame(format, 120, 90, 200)
    grid = AnalysisFrame(1, frame.luma, frame.chroma)
    tensor = np.empty((3, 128, 128), np.float32)
    write(DETECTOR, (frame, grid, Affine(1, 0, 0, 0, 1, 0)), tensor, MIRRORED)
    red, green, blue = yuv_to_rgb_matrix(format) @ [120, 90, 200, 1]
    np.testing.assert_allclose(tensor[:, 20, 20], [blue, green, red], atol=0.6)


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
    face = shapes.mesh(300, 200).T
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
    face = shapes.mesh(300, 200)
    np.testing.assert_array_equal(OneEuro().update(face, 1 / 30, 100), face)
