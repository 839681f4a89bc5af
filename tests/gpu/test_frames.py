"""Frames and single pictures as arrays are the CPU's, within what its effects may differ by."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import bgsoft
from tests.face_clips import SAMPLE

pytestmark = pytest.mark.gpu

ON_GPU: Any = {"infer": "cuda", "composite": "cuda"}
ON_CPU: Any = {"infer": "cpu", "composite": "cpu"}


@pytest.mark.parametrize("effect", ["blur", "alpha", "matte"])
def test_frames(gpu: Any, effect: Any) -> None:
    settings: Any = {"effect": effect, "duration": 0.5, "alpha": effect != "matte"}
    ours = list(bgsoft.frames(SAMPLE, **settings, **ON_GPU))
    theirs = list(bgsoft.frames(SAMPLE, **settings, **ON_CPU, decode="cpu"))
    assert [frame.pts for frame in ours] == [frame.pts for frame in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert isinstance(one.picture, np.ndarray)
        assert np.abs(one.picture.astype(int) - other.picture).mean() < 1
        if other.alpha is not None:
            assert one.alpha is not None
            assert np.abs(one.alpha.astype(int) - other.alpha).mean() < 1


def test_leaving_early(gpu: Any) -> None:
    before = threading.active_count()
    for _ in range(3):
        for _ in bgsoft.frames(SAMPLE, **ON_GPU):
            break
        assert threading.active_count() == before


def test_single_pictures(gpu: Any) -> None:
    picture = next(bgsoft.frames(SAMPLE, effect="dim", strength=0, preset=None)).picture
    with (
        bgsoft.Processor(background="green", **ON_GPU) as ours,
        bgsoft.Processor(background="green", **ON_CPU) as theirs,
    ):
        for image in (picture, picture[:359, :641], picture[:1, :1], picture):
            made, alpha = ours.process(image), ours.matte(image)
            assert np.abs(alpha.astype(int) - theirs.matte(image)).mean() < 1
            assert np.abs(made.astype(int) - theirs.process(image)).mean() < 1
            assert np.array_equal(made[alpha == 255], image[alpha == 255])
        assert np.array_equal(ours.process(picture), made)
