"""The mattes of the GPU against those of the CPU."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from bgsoft.analysis.base import analysis_shape
from bgsoft.analysis.reduce import Reducer
from bgsoft.diagnose.parity import MATTE, DeviceUnderTest, compare_mattes
from bgsoft.frame import Frame, FrameFormat, PixelLayout
from bgsoft.settings.config import MatteConfig, MatteStyle, Refine
from tests.gpu.device_frames import frame_on_device, grid_on_device
from tests.mattes import matte_stage
from tests.pictures import codes, flat_frame, frame_format, make_frame, random_frame
from tests.unit.matte.scenes import discs

pytestmark = pytest.mark.gpu

Mask = NDArray[np.float32]
SOFT_SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"refine": Refine.NONE},
    {"smooth": 0.0},
    {"smooth": 1.0},
    {"min_area": 0.0},
    {"min_area": 0.2},
    {"temporal": 0.0},
    {"temporal": 1.0},
    {"threshold": None},
    {"softness": 0.0},
    {"expand_pct": 0.2},
    {"expand_pct": -5.0},
    {"expand_pct": 3.3, "refine": Refine.NONE},
    {"feather_pct": 0.3},
    {"feather_pct": 8.0, "expand_pct": 1.0},
)


def person_at(format: FrameFormat, rng: np.random.Generator, x: float) -> tuple[Frame, Mask]:
    """A noisy picture of a head with shoulders, and a mask with islands, holes and noise."""

    def inside(shape: tuple[int, int]) -> NDArray[np.bool_]:
        return discs(shape, (x, 0.45, 0.22), (x, 1.05, 0.4)) > 0.5

    height, width = format.luma_shape
    rows, columns, _ = format.chroma_shape
    top = (1 << format.bit_depth) - 1
    luma = np.where(inside((height, width)), 0.6, 0.3) + 0.08 * np.sin(np.arange(width) / 9)
    luma = luma + rng.normal(0, 0.012, (height, width))
    chroma = np.where(inside((rows, columns))[..., None], (0.43, 0.58), (0.52, 0.49))
    chroma = chroma + rng.normal(0, 0.008, format.chroma_shape)
    frame = make_frame(
        format,
        codes(format, np.clip(luma * top, 0, top)),
        codes(format, np.clip(chroma * top, 0, top)),
    )
    shape = (256, 256)
    mask = discs(shape, (x, 0.45, 0.21), (x, 1.05, 0.39), (0.92, 0.1, 0.05), (0.05, 0.5, 0.02))
    mask -= discs(shape, (x, 0.4, 0.05), (x, 0.9, 0.015))
    mask -= 0.58 * discs(shape, (x, 0.75, 0.015))  # the model is not sure of this hole
    mask += rng.normal(0, 0.08, shape) * (rng.random(shape) < 0.3)
    mask = cv2.GaussianBlur(np.clip(mask, 0, 1).astype(np.float32), (0, 0), 0.7)
    return frame, mask


def check(
    gpu: Any,
    config: MatteConfig,
    format: FrameFormat,
    *,
    held: tuple[int, ...] = (),
    cuts: tuple[int, ...] = (),
    frames: int = 4,
    mask_shape: tuple[int, int] | None = None,
    batch: int = 1,
    fine: bool = False,
) -> None:
    rng = np.random.default_rng(31)
    scene = [person_at(format, rng, 0.45 + 0.02 * index) for index in range(frames)]
    if mask_shape is not None:
        scene = [(frame, cv2.resize(mask, mask_shape[::-1])) for frame, mask in scene]
    masks = [None if index in held else mask for index, (_, mask) in enumerate(scene)]
    pictures = [frame for frame, _ in scene]
    found = compare_mattes(
        DeviceUnderTest(gpu), config, pictures, masks, batch=batch, cuts=cuts, fine=fine
    )
    assert found.ok, found


@pytest.mark.parametrize("settings", SOFT_SETTINGS, ids=str)
@pytest.mark.parametrize("fine", [False, True])
def test_soft(gpu: Any, settings: dict[str, Any], fine: bool) -> None:
    check(gpu, MatteConfig(**settings), frame_format((1280, 720)), held=(3,), fine=fine)


@pytest.mark.parametrize("settings", [{}, {"expand_pct": 1.0, "feather_pct": 3.0}])
@pytest.mark.parametrize("layout", list(PixelLayout))
@pytest.mark.parametrize(
    "size", [(1, 1), (2, 3), (65, 47), (641, 359), (1027, 579), (514, 515), (333, 700)]
)
@pytest.mark.parametrize("fine", [False, True])
def test_soft_at_any_size(
    gpu: Any, size: tuple[int, int], layout: PixelLayout, settings: dict[str, Any], fine: bool
) -> None:
    check(gpu, MatteConfig(**settings), frame_format(size, layout), held=(2,), fine=fine)


@pytest.mark.parametrize("layout", list(PixelLayout))
@pytest.mark.parametrize(("batch", "frames"), [(3, 7), (8, 11), (20, 22)])
@pytest.mark.parametrize("held", [(), (1, 2, 5)])
@pytest.mark.parametrize("fine", [False, True])
def test_soft_in_batches(
    gpu: Any, layout: PixelLayout, batch: int, frames: int, held: tuple[int, ...], fine: bool
) -> None:
    """Islands of all frames of a batch are found together."""
    settings = {"held": held, "frames": frames, "batch": batch, "fine": fine}
    check(gpu, MatteConfig(min_area=0.01), frame_format((642, 360), layout), **settings)


@pytest.mark.parametrize("size", [(1280, 720), (641, 359), (65, 47)])
def test_masks_of_the_grids_own_size(gpu: Any, size: tuple[int, int]) -> None:
    format = frame_format(size)
    check(gpu, MatteConfig(), format, held=(2,), mask_shape=analysis_shape(*size))


@pytest.mark.parametrize("fine", [False, True])
def test_soft_at_2160_lines(gpu: Any, fine: bool) -> None:
    check(gpu, MatteConfig(), frame_format((3840, 2160)), frames=2, fine=fine)


@pytest.mark.parametrize("fine", [False, True])
def test_cuts_and_held_frames(gpu: Any, fine: bool) -> None:
    format = frame_format((1280, 720))
    check(gpu, MatteConfig(), format, held=(1, 2, 5), cuts=(3,), frames=7, fine=fine)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"smooth": 0.0},
        {"threshold": None},
        {"expand_pct": 0.7},
        {"expand_pct": -2.0},
        {"feather_pct": 3.7},
        {"feather_pct": 0.2, "expand_pct": 1.0, "temporal": 0.5},
    ],
)
@pytest.mark.parametrize("size", [(1280, 720), (641, 359), (3, 2)])
def test_obs(gpu: Any, size: tuple[int, int], settings: dict[str, Any]) -> None:
    config = MatteConfig(
        **{"style": MatteStyle.OBS, "min_area": 0.05, "temporal": 0.15, **settings}
    )
    before = gpu.copies.d2h_bytes
    check(gpu, config, frame_format(size), held=(2,))
    assert gpu.copies.d2h_bytes - before == 3 * 256 * 256 * 4


@pytest.mark.parametrize("seed", range(8))
def test_components_are_those_of_opencv(gpu: Any, seed: int) -> None:
    """Random blobs of every size, nested and touching at corners, over three frames."""
    rng = np.random.default_rng(seed)
    size = [(131, 97), (200, 150), (33, 65), (500, 260)][seed % 4]
    format = frame_format(size)
    config = MatteConfig(
        refine=Refine.NONE, smooth=0, temporal=0, threshold=None, min_area=[0.0005, 0.01][seed // 4]
    )
    masks = []
    for _ in range(3):
        noise = rng.random(format.luma_shape).astype(np.float32)
        mask = cv2.GaussianBlur(noise, (0, 0), 0.8 + seed % 3)
        mask = np.clip((mask - mask.mean()) / mask.std() * 0.25 + 0.5, 0, 1)
        masks.append(mask.astype(np.float32))
    frames = [flat_frame(format, 99, 0, 0)] * 3
    assert compare_mattes(DeviceUnderTest(gpu), config, frames, masks).max_difference == 0


@pytest.mark.parametrize("size", [(131, 97), (641, 359), (1027, 579), (360, 640), (1920, 1080)])
@pytest.mark.parametrize("mask_shape", [(256, 256), (144, 256)])
def test_gaps_are_those_of_the_host(
    gpu: Any, size: tuple[int, int], mask_shape: tuple[int, int]
) -> None:
    """Small holes of every depth in a person, over three frames; sure holes stay."""
    rng = np.random.default_rng(5)
    depth = cv2.GaussianBlur(rng.random(mask_shape).astype(np.float32), (0, 0), 4)
    depth = (depth - depth.mean()) / depth.std()
    masks = [np.clip(0.8 + (0.2 + 0.02 * turn) * depth, 0, 1) for turn in range(3)]
    config = MatteConfig(refine=Refine.NONE, smooth=0, temporal=0, min_area=0.05)
    frames = [flat_frame(frame_format(size), 99, 0, 0)] * 3
    assert compare_mattes(DeviceUnderTest(gpu), config, frames, masks).max_difference <= MATTE.usual


@pytest.mark.parametrize("size", [(65, 47), (641, 359), (1026, 770), (1920, 1080), (1, 1)])
@pytest.mark.parametrize(
    "settings",
    [{}, {"expand_pct": 1.3}, {"expand_pct": -0.4}, {"feather_pct": 3.0, "expand_pct": 0.5}],
)
def test_mattes_of_the_frames_size(
    gpu: Any, size: tuple[int, int], settings: dict[str, float]
) -> None:
    format = frame_format(size)
    rng = np.random.default_rng(3)
    frames = [random_frame(format, rng) for _ in range(4)]
    masks = [rng.random(format.luma_shape, dtype=np.float32) for _ in range(2)]
    found = compare_mattes(
        DeviceUnderTest(gpu),
        MatteConfig(**settings),
        frames,
        [masks[0], None, masks[1], None],
        batch=3,
        from_alpha=True,
    )
    assert found.ok, found


def test_a_bad_mask_does_not_stay(gpu: Any) -> None:
    import cupy

    format = frame_format((641, 359))
    stage = matte_stage(MatteConfig(), format, device=gpu)
    frame, _ = person_at(format, np.random.default_rng(3), 0.5)
    twin, grid = frame_on_device(frame), grid_on_device(Reducer(format).reduce([frame])[0])
    for value, code in ((np.nan, None), (1.0, 255), (0.0, 0)):
        mask = cupy.full((256, 256), value, np.float32)
        alpha = stage.refine([mask], [twin], [grid])[0].alpha.get()
        if code is not None:
            assert (alpha == code).all()


@pytest.mark.parametrize("style", list(MatteStyle))
def test_there_must_be_a_mask_to_hold(gpu: Any, style: MatteStyle) -> None:
    import cupy

    format = frame_format((64, 64))
    stage = matte_stage(MatteConfig(style=style), format, device=gpu)
    frame, _ = person_at(format, np.random.default_rng(3), 0.5)
    twin, grid = frame_on_device(frame), grid_on_device(Reducer(format).reduce([frame])[0])
    with pytest.raises(ValueError, match="cannot hold the last mask"):
        stage.refine([None], [twin], [grid])
    stage.refine([cupy.ones((256, 256), np.float32)], [twin], [grid])
    stage.reset()
    with pytest.raises(ValueError, match="cannot hold the last mask"):
        stage.refine([None], [twin], [grid])


def test_frames_after_the_first_allocate_nothing(gpu: Any) -> None:
    import cupy

    format = frame_format((1280, 720))
    config = MatteConfig(expand_pct=0.7, feather_pct=1)
    stage = matte_stage(config, format, device=gpu)
    frame, mask = person_at(format, np.random.default_rng(3), 0.5)
    twin, grid = frame_on_device(frame), grid_on_device(Reducer(format).reduce([frame])[0])
    on_device = cupy.asarray(mask)
    first = [stage.refine([on_device], [twin], [grid])[0].reduced for _ in range(2)]
    pool = cupy.get_default_memory_pool()
    before = pool.used_bytes()
    for index in range(4):
        result = stage.refine([None if index % 2 else on_device], [twin], [grid])[0]
        assert result.reduced is first[index % 2]
        assert pool.used_bytes() == before
