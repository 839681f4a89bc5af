"""The detector's inputs: whole frames of any size, turned or not."""

from __future__ import annotations

import numpy as np
import pytest

from bgsoft.face.create import finder_settings
from bgsoft.face.detect import Canvas
from bgsoft.face.geometry import Affine
from bgsoft.settings.config import FaceConfig, FaceMode
from tests.pictures import frame_format
from tests.unit.face.shapes import in_frame

FRAMES = [
    *((16, 16), (17, 31), (1, 1), (1, 2000), (2000, 1), (320, 180), (641, 359), (333, 777)),
    *((1280, 720), (1920, 1080), (1080, 1920), (3840, 2160), (4097, 2161), (7680, 4320)),
]
BORDERS = {FaceMode.GUARD: 6, FaceMode.MAIN: 32, FaceMode.ANONYMIZE: 32}


def canvases(size: tuple[int, int], mode: FaceMode) -> list[tuple[Canvas, int]]:
    """All inputs of the detector, with their quarter turns."""
    format = frame_format(size)
    settings = finder_settings(FaceConfig(mode=mode), format, writes_data=False)
    whole, half, side, fine = settings.canvases(format)
    shown = [(whole, 0), (whole, 2)]
    shown += [(half, 0)] if half else []
    shown += [(side, 1), (side, 3)] if side else []
    assert len(shown) == (5 if mode is FaceMode.ANONYMIZE else 2)
    return shown + ([(fine, 0)] if fine else [])


def inverse(view: Affine) -> Affine:
    matrix = np.linalg.inv(np.vstack([np.array(view).reshape(2, 3), [0, 0, 1]]))
    return Affine(*matrix[:2].ravel().tolist())


@pytest.mark.parametrize("mode", BORDERS)
@pytest.mark.parametrize("size", FRAMES)
def test_a_canvas_holds_the_frame_with_a_border(size: tuple[int, int], mode: FaceMode) -> None:
    border = BORDERS[mode]
    corners = np.array([[0, 0], [size[0], 0], [0, size[1]], size], float)
    for canvas, quarters in canvases(size, mode):
        assert canvas.width % 32 == canvas.height % 32 == 0
        places = in_frame(inverse(canvas.view(quarters)), corners)
        low, high = places.min(axis=0), places.max(axis=0)
        assert (low >= border - 1e-6).all()
        assert (high <= np.array([canvas.width, canvas.height]) - border + 1e-6).all()
        # No more around it than the next multiple of 32 asks for, in the middle.
        assert (low < border + 16 + 1e-6).all()
        np.testing.assert_allclose(low, [canvas.width, canvas.height] - high, atol=1e-6)
        extent = np.array(size if quarters % 2 == 0 else size[::-1]) * canvas.scale
        np.testing.assert_allclose(high - low, extent, atol=1e-6)


@pytest.mark.parametrize("quarters", range(-1, 5))
def test_the_frame_is_turned_by_quarters_about_its_middle(quarters: int) -> None:
    canvas = Canvas.of(frame_format((640, 360)), 0.5, on_side=quarters % 2 == 1)
    view = canvas.view(quarters)
    assert view.scale == pytest.approx(2)
    middle = np.array([canvas.width, canvas.height]) / 2
    np.testing.assert_allclose(in_frame(view, middle), [320, 180])
    # The input's up is where an upright face's forehead would be that is turned so.
    up = in_frame(view, middle - [0, 10]) - [320, 180]
    expected = [(0, -20), (20, 0), (0, 20), (-20, 0)][quarters % 4]
    np.testing.assert_allclose(up, expected, atol=1e-9)


def test_half_the_scale_is_that() -> None:
    format = frame_format((1920, 1080))
    settings = finder_settings(FaceConfig(mode=FaceMode.ANONYMIZE), format, writes_data=False)
    whole, half, side, _ = settings.canvases(format)
    assert half is not None
    assert side is not None
    assert half.scale == whole.scale / 2
    assert (side.scale, side.width, side.height) == (whole.scale, whole.height, whole.width)


@pytest.mark.parametrize(
    ("size", "scale"),
    [
        *[((640, 360), 2), ((960, 540), 2), ((1280, 720), 2), ((1080, 1920), 4 / 3)],
        *[((3840, 2160), 2 / 3), ((7680, 4320), None)],
    ],
)
def test_a_fine_view_shows_more_than_a_whole_frame(
    size: tuple[int, int], scale: float | None
) -> None:
    format = frame_format(size)
    settings = finder_settings(FaceConfig(mode=FaceMode.ANONYMIZE), format, writes_data=False)
    fine = settings.canvases(format).fine
    assert (None if fine is None else fine.scale) == pytest.approx(scale)


@pytest.mark.parametrize(("mode", "is_late"), [(FaceMode.ANONYMIZE, True), (FaceMode.GUARD, False)])
def test_where_faces_are_hidden_the_detector_runs_before_they_are_forgotten(
    mode: FaceMode, is_late: bool
) -> None:
    """Also with few frames a second: a live stream knows no later ones."""
    config = FaceConfig(mode=mode, detect_every=8)
    settings = finder_settings(config, frame_format((640, 360)), writes_data=False)
    assert [settings.is_late(0.4, 2), settings.is_late(0.6, 3)] == [False, is_late]


@pytest.mark.parametrize("size", FRAMES)
def test_where_faces_are_hidden_a_reduction_hides_no_face_of_24_pixels(
    size: tuple[int, int],
) -> None:
    """The detector sees faces from 12 pixels of its input on."""
    for canvas, _ in canvases(size, FaceMode.ANONYMIZE)[:1]:
        assert 24 * canvas.scale >= 12
        assert canvas.scale <= 2
