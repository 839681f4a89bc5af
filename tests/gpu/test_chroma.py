"""4:2:2 and 4:4:4 where frames are composited on the GPU, decoded and encoded on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bgsoft
from tests.contract.test_render_chroma import (
    SIZE,
    averaged,
    coarse,
    enlarged,
    planes,
    rendered,
    striped,
)
from tests.outside import ffmpeg
from tests.stills import load

pytestmark = pytest.mark.gpu

ON_GPU: Any = {"infer": "cuda", "composite": "cuda", "decode": "cpu", "encode": "cpu"}


@pytest.mark.parametrize("more", [{}, {"hide": "131,81,61,51"}], ids=["plain", "hidden"])
@pytest.mark.parametrize("pixels", ["yuv422p10le", "yuv444p"])
def test_people_s_colour_comes_back_as_it_was(
    gpu: Any, tmp_path: Path, pixels: str, more: dict[str, Any]
) -> None:
    clip, plain = striped(tmp_path / "in.mkv", pixels), tmp_path / "plain.mkv"
    target = tmp_path / "out.mkv"
    report, mattes = rendered(clip, target, codec="ffv1", **ON_GPU, **more)
    rendered(clip, plain, codec="ffv1", chroma="420", **ON_GPU, **more)
    assert (report.pixel_format, report.stages["composite"].backend) == (pixels, "cuda")
    films = [planes(path, pixels, SIZE) for path in (clip, target)]
    films += [planes(plain, coarse(pixels), SIZE)]
    for source, out, composited, matte in zip(*films, mattes, strict=True):
        if more:
            matte = matte.copy()
            matte[80:132, 130:192] = 0
        for plane in (1, 2):
            alpha = averaged(matte, source[plane].shape)
            person, room = alpha == 1, alpha == 0
            assert 0.05 < person.mean() < 0.6
            np.testing.assert_array_equal(out[plane][person], source[plane][person])
            shown = enlarged(composited[plane], source[plane].shape)
            np.testing.assert_array_equal(out[plane][room], shown[room])


def test_people_in_a_picture_stay_untouched(gpu: Any, tmp_path: Path) -> None:
    """A picture file without alpha still needs the matte to keep people's colour."""
    ffmpeg("-i", striped(tmp_path / "in.mkv", "gbrp"), "-frames:v", "1", tmp_path / "in.png")
    out, matte = tmp_path / "out.png", tmp_path / "matte.png"
    bgsoft.render(tmp_path / "in.png", out, matte_out=matte, face="off", composite="cuda")
    opaque = load(matte) == 255
    assert 0.05 < opaque.mean() < 0.9
    assert np.array_equal(load(out)[opaque], load(tmp_path / "in.png")[opaque])
