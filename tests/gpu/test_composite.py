"""The compositor on a GPU against the one on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from bgsoft.analysis.reduce import Reducer
from bgsoft.composite.background import Hold
from bgsoft.composite.compositor import PictureCompositor
from bgsoft.composite.effects import create_compositor
from bgsoft.composite.plan import CellsPlan
from bgsoft.diagnose.parity import DeviceUnderTest, compare_composites
from bgsoft.frame import AnalysisFrame, Frame, FrameFormat, Matte, PixelLayout
from bgsoft.ops.placement import HOST, current_device
from bgsoft.settings.config import REPLACING, EffectConfig, EffectKind
from tests.gpu.device_frames import frame_on_device, grid_on_device
from tests.gpu.tolerances import STRUCTURED_DB
from tests.pictures import (
    SIZES,
    background_files,
    composite,
    copy_frame,
    disc_mask,
    effect,
    flat_frame,
    frame_format,
    make_frame,
    matte_from,
    no_one,
    random_frame,
)

pytestmark = pytest.mark.gpu

LAYOUTS = (PixelLayout.NV12, PixelLayout.P010)
EFFECTS = [kind for kind in EffectKind if kind is not EffectKind.MATTE]
OWN_PICTURE = (EffectKind.BLUR, EffectKind.BOKEH, EffectKind.PIXELATE)
"""Effects that average the frame's own background."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[EffectKind, Path]:
    return background_files(tmp_path_factory.mktemp("backgrounds"))


def device_matte(frame: Frame, matte: Matte) -> Matte:
    """The matte on the device, its alpha in the frame's slot."""
    import cupy

    frame.planes.alpha.set(matte.alpha)
    return Matte(alpha=frame.planes.alpha, reduced=cupy.asarray(matte.reduced))


def device_grid(frame: Frame) -> AnalysisFrame:
    """The analysis frame that the CPU makes, on the device."""
    return grid_on_device(Reducer(frame.format).reduce([frame])[0])


def create_on(gpu: Any, config: EffectConfig, format: FrameFormat) -> PictureCompositor:
    return create_compositor(config, format, placement=current_device(), copies=gpu.copies)


def composite_on(gpu: Any, config: EffectConfig, frame: Frame, matte: Matte) -> Frame:
    """The frame as the device composites it, on the host."""
    target = frame_on_device(frame)
    compositor = create_on(gpu, config, frame.format)
    compositor.apply([target], [device_matte(target, matte)], [device_grid(frame)])
    compositor.close()
    return to_host(target)


def to_host(frame: Frame) -> Frame:
    return make_frame(frame.format, frame.luma.get(), frame.chroma.get(), frame.pts)


def check(gpu: Any, config: EffectConfig, frame: Frame, matte: Matte, min_db: float = 0) -> None:
    found = compare_composites(DeviceUnderTest(gpu), config, frame, matte, min_db=min_db)
    assert found.ok, found


def mattes(format: FrameFormat, rng: np.random.Generator) -> list[Matte]:
    """Someone in the middle, patches everywhere, nobody, a person all over."""
    return [
        matte_from(format, disc_mask(format)),
        matte_from(format, rng.random((5, 8))),
        no_one(format),
        matte_from(format, np.ones(format.luma_shape)),
    ]


def structured_frame(format: FrameFormat, rng: np.random.Generator) -> Frame:
    """Large shapes and some grain: what filters leave of it is not one colour."""
    height, width = format.luma_shape
    top = (1 << format.bit_depth) - 1
    planes = []
    for rows, columns in ((height, width), *(format.chroma_shape[:2],) * 2):
        coarse = rng.random((6, 9)).astype(np.float32)
        plane = cv2.resize(coarse, (columns, rows), interpolation=cv2.INTER_CUBIC)
        grain = rng.normal(0, 0.05, (rows, columns))
        scaled = np.clip(plane.reshape(rows, columns) + grain, 0, 1) * top
        planes.append((np.rint(scaled).astype(format.dtype) << format.shift).astype(format.dtype))
    chroma = np.ascontiguousarray(np.stack(planes[1:], axis=-1))
    return make_frame(format, planes[0], chroma)


@pytest.mark.parametrize("full_range", [False, True], ids=["limited", "full"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("kind", EFFECTS)
def test_gives_what_the_cpu_gives(
    kind: EffectKind,
    size: tuple[int, int],
    layout: PixelLayout,
    full_range: bool,
    files: dict[EffectKind, Path],
    gpu: Any,
) -> None:
    format = frame_format(size, layout, full_range=full_range)
    rng = np.random.default_rng(7)
    config = effect(kind, files)
    for matte in mattes(format, rng):
        for frame in (random_frame(format, rng), structured_frame(format, rng)):
            check(gpu, config, frame, matte)


@pytest.mark.parametrize("strength", [0.2, 0.6, 1.0, 2.5, 6.0, 12.0, 25.0])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "size",
    [(64, 48), (640, 360), (641, 359), (1026, 770), (1280, 720)],
    ids=lambda size: f"{size[0]}x{size[1]}",
)
@pytest.mark.parametrize("kind", OWN_PICTURE)
def test_strengths_give_what_the_cpu_gives(
    kind: EffectKind, size: tuple[int, int], layout: PixelLayout, strength: float, gpu: Any
) -> None:
    format = frame_format(size, layout)
    frame = structured_frame(format, np.random.default_rng(1))
    matte = matte_from(format, disc_mask(format))
    check(gpu, EffectConfig(kind=kind, strength=strength), frame, matte, STRUCTURED_DB)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [(65, 47), (320, 240), (641, 359), (1280, 720)], ids=str)
@pytest.mark.parametrize("kind", REPLACING)
def test_edges_have_the_colour_that_the_cpu_finds(
    kind: EffectKind,
    size: tuple[int, int],
    layout: PixelLayout,
    files: dict[EffectKind, Path],
    gpu: Any,
) -> None:
    format = frame_format(size, layout)
    frame = structured_frame(format, np.random.default_rng(1))
    soft = cv2.GaussianBlur(disc_mask(format), (0, 0), size[1] / 120)
    reduced = matte_from(format, soft).reduced
    matte = Matte(alpha=np.rint(soft * 255).astype(np.uint8), reduced=reduced)
    check(gpu, effect(kind, files), frame, matte, STRUCTURED_DB)


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [(1920, 1080), (1080, 1920), (3840, 2160)])
@pytest.mark.parametrize("kind", EFFECTS)
def test_large_frames_give_what_the_cpu_gives(
    kind: EffectKind,
    size: tuple[int, int],
    layout: PixelLayout,
    files: dict[EffectKind, Path],
    gpu: Any,
) -> None:
    format = frame_format(size, layout)
    frame = structured_frame(format, np.random.default_rng(1))
    matte = matte_from(format, disc_mask(format))
    check(gpu, effect(kind, files), frame, matte)


@pytest.mark.parametrize("highlights", [0.0, 1.0])
def test_highlights_bloom_as_on_the_cpu(highlights: float, gpu: Any) -> None:
    """Bright lamps in the dark show rounding errors of the disc filter most."""
    format = frame_format((640, 360))
    frame = flat_frame(format, 20, 128, 128)
    lamps = np.random.default_rng(9).integers(0, (360, 640), (40, 2))
    for row, column in lamps:
        frame.luma[row : row + 3, column : column + 3] = 235
    config = EffectConfig(kind=EffectKind.BOKEH, strength=4, highlights=highlights)
    assert composite(config, frame, no_one(format)).luma.max() > 30
    check(gpu, config, frame, no_one(format))


@pytest.mark.parametrize("kind", EFFECTS)
def test_frames_do_not_influence_each_other(
    kind: EffectKind, files: dict[EffectKind, Path], gpu: Any
) -> None:
    format = frame_format((320, 240))
    rng = np.random.default_rng(4)
    config = effect(kind, files)
    first, second = random_frame(format, rng), random_frame(format, rng)
    first_matte, second_matte = mattes(format, rng)[:2]
    alone = composite_on(gpu, config, second, second_matte)
    compositor = create_on(gpu, config, format)
    for frame, matte in ((first, first_matte), (second, second_matte)):
        target = frame_on_device(frame)
        compositor.apply([target], [device_matte(target, matte)], [device_grid(frame)])
    compositor.close()
    compositor.close()
    result = to_host(target)
    # Blurred backgrounds may keep up to a code value of the frame before.
    kept = 1 if kind in (EffectKind.BLUR, EffectKind.BOKEH) else 0
    assert np.abs(result.luma.astype(int) - alone.luma).max() <= kept
    assert np.abs(result.chroma.astype(int) - alone.chroma).max() <= kept


def test_a_video_crosses_once_for_each_of_its_pictures(
    files: dict[EffectKind, Path], gpu: Any
) -> None:
    format = frame_format((320, 240))
    frame, matte = random_frame(format, np.random.default_rng(1)), no_one(format)
    config = effect(EffectKind.VIDEO, files)
    on_cpu, compositor = (create_compositor(config, format), create_on(gpu, config, format))
    before = gpu.copies.h2d_bytes
    pictures: list[NDArray[Any]] = []
    for pts in range(0, 400, 7):  # thousandths of a second; the clip is far shorter
        expected = copy_frame(frame)
        expected.pts = pts
        target = frame_on_device(expected)
        on_cpu.apply([expected], [matte], [Reducer(format).reduce([expected])[0]])
        compositor.apply([target], [device_matte(target, matte)], [device_grid(frame)])
        np.testing.assert_array_equal(target.luma.get(), expected.luma)
        np.testing.assert_array_equal(target.chroma.get(), expected.chroma)
        if not pictures or not np.array_equal(pictures[-1], expected.luma):
            pictures.append(expected.luma)
    assert len(pictures) > 3
    assert gpu.copies.h2d_bytes - before == len(pictures) * 320 * 240 * 3 // 2
    compositor.close()


@pytest.mark.parametrize("kind", EFFECTS)
def test_frames_allocate_nothing(kind: EffectKind, files: dict[EffectKind, Path], gpu: Any) -> None:
    import cupy

    format = frame_format((640, 360))
    frame = random_frame(format, np.random.default_rng(0))
    target = frame_on_device(frame)
    matte, grid = device_matte(target, matte_from(format, disc_mask(format))), device_grid(frame)
    compositor = create_on(gpu, effect(kind, files), format)
    compositor.apply([target], [matte], [grid])
    pool = cupy.get_default_memory_pool()
    before = pool.used_bytes(), pool.total_bytes()
    for _ in range(5):
        compositor.apply([target], [matte], [grid])
    assert (pool.used_bytes(), pool.total_bytes()) == before


def test_noise_is_held_back_as_on_the_cpu(gpu: Any) -> None:
    plan = CellsPlan(frame_format((100, 50)), 1, 2)
    rng = np.random.default_rng(3)
    cells = rng.integers(0, 65536, plan.count)
    shown = []
    for _ in range(4):
        shown.append(cells.astype(np.uint16))
        cells = np.clip(cells + rng.integers(-400, 400, cells.shape), 0, 65535)
    found = []
    for placement in (HOST, current_device()):
        hold, held = Hold(placement, plan), placement.xp.empty(plan.count, np.uint16)
        for each in shown:
            hold.follow(placement.array(each), held)
            found.append(placement.xp.asarray(held).tolist())
    assert found[:4] == found[4:]
    assert found[0] != found[3] != shown[3].tolist()
