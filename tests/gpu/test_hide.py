"""Places made unrecognisable: the GPU against the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bgsoft
from bgsoft.face.base import hiding_ellipse
from bgsoft.frame import FrameFormat, PixelLayout
from bgsoft.hide.hider import Hider
from bgsoft.hide.plan import HidePlan, Place, Raster, Rectangle
from bgsoft.ops.placement import current_device
from bgsoft.settings.hide import HideShape, HideStyle
from tests.face_clips import SAMPLE
from tests.gpu.device_frames import frame_on_device
from tests.gpu.test_face_effects import some_faces
from tests.pictures import SIZES, frame_format, random_frame
from tests.rendering import psnr, read_back

pytestmark = pytest.mark.gpu


def some_places(format: FrameFormat) -> list[Place]:
    """Faces; a corner; half the frame, over its edges; a line; and out of sight."""
    width, height = format.width, format.height
    right, bottom = width + width % 2, height + height % 2
    return [
        *map(hiding_ellipse, some_faces(format)),
        Rectangle(0, 0, 10, 10),
        Rectangle(width // 4 * 2, height // 4 * 2, right, bottom),
        Rectangle(0, height // 6 * 2, right, height // 6 * 2 + 2),
        Rectangle(right, 0, right + 50, 50),
    ]


@pytest.mark.parametrize("size", [*SIZES, (1920, 1080)])
@pytest.mark.parametrize("layout", list(PixelLayout))
@pytest.mark.parametrize("style", list(HideStyle))
@pytest.mark.parametrize("shape", list(HideShape))
@pytest.mark.parametrize("by_alpha", [False, True])
def test_places_are_hidden_as_on_the_cpu(
    gpu: Any,
    size: tuple[int, int],
    layout: PixelLayout,
    style: HideStyle,
    shape: HideShape,
    by_alpha: bool,
) -> None:
    """Also where a cell is transparent, wholly or nearly."""
    import cupy

    format = frame_format(size, layout, full_range=by_alpha)
    rng = np.random.default_rng(4)
    frame = random_frame(format, rng)
    alpha = frame.planes.alpha
    alpha[:] = rng.integers(0, 256, format.luma_shape)
    alpha[:, : size[0] // 2] = 0
    alpha[size[1] // 3] = 1
    on_device = frame_on_device(frame)
    on_device.planes.alpha[...] = cupy.asarray(alpha)
    plan = HidePlan(format=format, style=style, shape=shape, margin=0.1, by_alpha=by_alpha)
    places = some_places(format)
    Hider(plan).apply(frame, places)
    Hider(plan, current_device()).apply(on_device, places)
    np.testing.assert_array_equal(on_device.luma.get(), frame.luma)
    np.testing.assert_array_equal(on_device.chroma.get(), frame.chroma)
    np.testing.assert_array_equal(on_device.planes.alpha.get(), alpha)


@pytest.mark.parametrize("layout", list(PixelLayout))
def test_any_shape_is_hidden_as_on_the_cpu(gpu: Any, layout: PixelLayout) -> None:
    import cupy

    format = frame_format((321, 181), layout)
    rng = np.random.default_rng(4)
    frame = random_frame(format, rng)
    on_device = frame_on_device(frame)
    box = Rectangle(40, 20, 322, 182)
    inside = rng.integers(0, 2, (81, 141), np.uint8)
    plan = HidePlan(format=format)
    Hider(plan).apply(frame, [Raster(box, inside)])
    Hider(plan, current_device()).apply(on_device, [Raster(box, cupy.asarray(inside))])
    np.testing.assert_array_equal(on_device.luma.get(), frame.luma)
    np.testing.assert_array_equal(on_device.chroma.get(), frame.chroma)


def test_regions_of_mattes_are_as_on_the_cpu(gpu: Any, tmp_path: Path) -> None:
    file = tmp_path / "r.toml"
    file.write_text(
        '[[region]]\naction = "keep"\npolygon = "5%,5% 40%,10% 20%,60%"\n'
        '[[region]]\naction = "drop"\nellipse = "40%,20%,20%,50%"\nfollow = true\n'
        '[[region]]\naction = "hide"\npolygon = "70%,60% 95%,60% 85%,95%"\n'
    )
    settings: dict[str, Any] = {"preset": "green", "regions": str(file), "invert": True}
    settings |= {"duration": 1, "codec": "ffv1"}
    for name in ("cpu", "cuda"):
        bgsoft.render(SAMPLE, tmp_path / f"{name}.mkv", composite=name, encode="cpu", **settings)
    one, other = (read_back(tmp_path / f"{name}.mkv") for name in ("cpu", "cuda"))
    for before, after in zip(one, other, strict=True):
        assert psnr(before.planes[0], after.planes[0], 8) > 40


@pytest.mark.parametrize("effect", ["dim", "alpha"])
def test_a_render_hides_places_and_faces(gpu: Any, tmp_path: Path, effect: str) -> None:
    """In every frame of every batch, at the requested times."""
    target = tmp_path / "out.mkv"
    report = bgsoft.render(
        SAMPLE,
        target,
        preset=None,
        effect=effect,
        subjects=0,
        hide=["60%,80%,200,100", "0,0,10%,10%@0.5-"],
        anonymize_style="solid",
        anonymize_shape="box",
        duration=0.7,
        batch=4,
        infer="cuda",
        composite="cuda",
        encode="cpu",
        codec="ffv1",
    )
    assert report.stages["composite"].backend == "cuda"
    frames = read_back(target)
    assert len(frames) == 21
    for number, frame in enumerate(frames):
        luma, cb, cr = frame.planes[:3]
        for y, x in (np.s_[576:676, 768:968], np.s_[200:420, 570:710]):
            assert (luma[y, x] == 16).all()
            small = slice(y.start // 2, y.stop // 2), slice(x.start // 2, x.stop // 2)
            assert (cb[small] == 128).all()
            assert (cr[small] == 128).all()
        if effect == "dim":
            assert (luma[:72, :128] == 16).all() == (number >= 15)
