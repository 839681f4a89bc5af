"""A matting model's mattes, averaged with the embedded models' masks."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock, call

import cv2
import numpy as np
import pytest

import bgsoft
from bgsoft.analysis.base import analysis_shape
from bgsoft.errors import ConfigError
from bgsoft.segment.averaged import AveragedSegmenter, MaskAverage, thin_width
from bgsoft.segment.base import Segmenter
from bgsoft.threads import LanePool
from tests.pictures import frame_format
from tests.recurrent_model import write_model
from tests.rendering import read_back

SAMPLE = Path(__file__).parents[3] / "samples" / "person.mp4"
SIZE = (1280, 720)
GRID = analysis_shape(*SIZE)


def drawn(*boxes: tuple[int, int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Draw blurred boxes (left, top, right, bottom): at the frame's size, and on the grid."""
    plane = np.zeros(SIZE[::-1], np.float32)
    for left, top, right, bottom in boxes:
        plane[top:bottom, left:right] = 1
    plane = cv2.GaussianBlur(plane, (0, 0), 2)
    return plane, cv2.resize(plane, GRID[::-1], interpolation=cv2.INTER_AREA)


BODY, ARM, CHAIR = (400, 200, 800, 720), (800, 300, 960, 380), (100, 500, 250, 700)


def averaged(matte: np.ndarray, mask: np.ndarray) -> np.ndarray:
    changed = matte.copy()
    MaskAverage(frame_format(SIZE)).apply(changed, mask)
    return changed


def test_what_both_see_stays_as_it_is() -> None:
    matte, mask = drawn(BODY)
    for coarse in (mask, cv2.GaussianBlur(mask, (0, 0), 3)):
        np.testing.assert_array_equal(averaged(matte, coarse), matte)


def test_a_missing_part_is_filled_in() -> None:
    matte, _ = drawn(BODY)
    whole, mask = drawn(BODY, ARM)
    changed = averaged(matte, mask)
    assert (changed[310:370, 830:940] > 0.5).all()
    assert np.abs(changed - matte)[:, :780].max() == 0
    assert (changed <= whole + 0.05).all()


def test_what_only_the_matte_has_fades_where_it_was_unsure() -> None:
    (sure, _), (_, mask) = drawn(BODY, CHAIR), drawn(BODY)
    unsure = sure.copy()
    unsure[:, :300] *= 0.5
    assert averaged(unsure, mask)[550:650, 130:220].max() < 0.15
    assert averaged(sure, mask)[550:650, 130:220].min() > 0.5


def test_the_edge_is_the_mattes_own() -> None:
    """The mask is wider all round, by less than the tolerance."""
    matte, _ = drawn(BODY)
    pixels = (thin_width(GRID) - 2) * SIZE[1] // GRID[0]
    left, top, right, bottom = BODY
    _, mask = drawn((left - pixels, top - pixels, right + pixels, bottom))
    np.testing.assert_array_equal(averaged(matte, mask), matte)


def test_what_happens_between_frames_is_reported_to_both() -> None:
    """A chunk starts with a refresh, as the whole render has it there."""
    mattes, masks = (Mock(spec=[*dir(Segmenter), "name"]) for _ in range(2))
    both = AveragedSegmenter(mattes, masks, frame_format(SIZE), LanePool())
    for name in ("start", "reset", "refresh", "close"):
        getattr(both, name)()
        assert [each.method_calls for each in (mattes, masks)] == [[getattr(call, name)()]] * 2
        mattes.reset_mock()
        masks.reset_mock()


@pytest.mark.slow
def test_a_render_takes_it(tmp_path: Path) -> None:
    model = str(write_model(tmp_path))
    shown = []
    for quality in ("fast", "best"):
        target = tmp_path / f"{quality}.mkv"
        bgsoft.render(
            SAMPLE,
            target,
            model=model,
            matte=quality,
            effect="matte",
            codec="ffv1",
            face="off",
            duration=0.2,
        )
        shown.append([frame.planes[0] for frame in read_back(target)])
    alone, both = shown
    assert len(alone) == len(both) > 0
    # The model's alpha is the picture's grey; the embedded ones know who stands where.
    change = both[-1].astype(int) - alone[-1]
    assert (change > 20).mean() > 0.01
    assert (change < -20).mean() > 0.05
    with pytest.raises(ConfigError, match=r"matte with model .*itself"):
        bgsoft.render(SAMPLE, tmp_path / "o.mkv", model=model, matte="standard")
