"""Models with a memory: order, resets and any number of threads, by known numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bgsoft
from bgsoft.analysis.base import analysis_factor, analysis_shape
from bgsoft.errors import ModelError
from bgsoft.frame import Frame, FrameFormat, PixelLayout
from bgsoft.infer.cpu import CpuNetwork
from bgsoft.infer.loading import NetworkLoader
from bgsoft.models.catalog import ResolvedModel, resolve
from bgsoft.segment.base import Segmenter
from bgsoft.segment.factory import HostSegmenterFactory
from bgsoft.segment.families import downsample_ratio, wiring
from bgsoft.settings.config import MatteConfig
from bgsoft.threads import LanePool
from tests.mattes import matte_stage
from tests.pictures import flat_frame, frame_format
from tests.recurrent_model import expected_alphas, recurrent_model, write_model
from tests.rendering import read_back
from tests.synthetic import write_frames

LEVELS = [235, 16, 126, 235, 60]
GREYS = [(level - 16) / 219 for level in LEVELS]


@pytest.fixture
def model(tmp_path: Path) -> ResolvedModel:
    return recurrent_model(tmp_path)


def make_segmenter(model: ResolvedModel, format: FrameFormat) -> Segmenter:
    loader = NetworkLoader(model)
    made = HostSegmenterFactory("cpu", format, LanePool(8)).create(loader)
    made.start()
    return made


def flat_frames(format: FrameFormat, levels: list[int]) -> list[Frame]:
    return [flat_frame(format, level, 128, 128) for level in levels]


@pytest.mark.parametrize("layout", list(PixelLayout))
@pytest.mark.parametrize("size", [(64, 48), (65, 47), (1, 1), (641, 359)])
def test_alpha_follows_the_frames_in_order(
    model: ResolvedModel, size: tuple[int, int], layout: PixelLayout
) -> None:
    format = frame_format(size, layout)
    segmenter = make_segmenter(model, format)
    frames = flat_frames(format, LEVELS)
    first = [mask.copy() for mask in segmenter.masks(frames[:3], [])]  # type: ignore[arg-type]
    masks = first + list(segmenter.masks(frames[3:], []))
    for mask, alpha in zip(masks, expected_alphas(GREYS), strict=True):
        assert mask.shape == format.luma_shape
        np.testing.assert_allclose(mask, alpha, atol=0.003)
    segmenter.reset()
    (mask,) = segmenter.masks(frames[:1], [])
    np.testing.assert_allclose(mask, 0.5, atol=0.003)
    segmenter.close()


def test_the_run_that_tells_the_shapes_keeps_to_its_cores(
    model: ResolvedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def load(*args: Any, **options: Any) -> CpuNetwork:
        threads.append(options["threads"])
        return CpuNetwork(*args, **options)

    monkeypatch.setattr("bgsoft.infer.loading.CpuNetwork", load)
    loader = NetworkLoader(model, cores=3)
    (network,) = loader.on_cpu(wiring(model.spec, frame_format((64, 48)), 1), threads=2)
    network.close()
    assert threads == [3, 2]


def test_the_picture_is_upright_and_in_full(model: ResolvedModel) -> None:
    format = frame_format((641, 359))
    frame = flat_frame(format, 16, 128, 128)
    frame.luma[300:, :7] = 235
    (mask,) = make_segmenter(model, format).masks([frame], [])
    assert (mask[300:, :7] > 0.49).all()
    mask[300:, :7] = 0
    assert (mask < 0.01).all()


def test_the_ratio_keeps_the_inner_picture_small() -> None:
    assert downsample_ratio(1920, 1080) == pytest.approx(0.26667, abs=1e-5)
    assert downsample_ratio(1080, 1920) == downsample_ratio(1920, 1080)
    assert downsample_ratio(480, 360) == downsample_ratio(512, 512) == 1


def test_a_ratio_in_the_file_is_kept(tmp_path: Path) -> None:
    model = resolve(str(write_model(tmp_path, ratio_input=False)))
    segmenter = make_segmenter(model, frame_format((64, 48)))
    (mask,) = segmenter.masks(flat_frames(frame_format((64, 48)), [235]), [])
    np.testing.assert_allclose(mask, 0.5, atol=0.003)


def test_a_file_that_is_not_so_wired(tmp_path: Path) -> None:
    path = write_model(tmp_path)
    path.with_suffix(".toml").write_text(
        'family = "recurrent"\n[state]\ninputs = ["r1i"]\noutputs = ["r9o"]\n'
    )
    with pytest.raises(ModelError, match=r"r2i|no output 'r9o'"):
        make_segmenter(resolve(str(path)), frame_format((64, 48)))
    path.with_suffix(".toml").write_text('family = "recurrent"\n[[outputs]]\nname = "r2o"\n')
    with pytest.raises(ModelError, match="does not have the size of the frame"):
        make_segmenter(resolve(str(path)), frame_format((1024, 512)))


DARK = 30


def write_scenes(path: Path, scenes: list[list[int]]) -> None:
    """Grey frames, half of each dark: the lower half in the first scene, then the right one."""
    pictures = []
    for number, scene in enumerate(scenes):
        for level in scene:
            luma = np.full((48, 64), level, np.uint8)
            luma[lit_half(number, lit=False)] = DARK
            pictures.append(np.concatenate([luma, np.full((24, 64), 128, np.uint8)]))
    write_frames(path, pictures, "yuv420p")


def lit_half(scene: int, *, lit: bool = True) -> tuple[slice, ...]:
    near, far = slice(None, 24 if scene == 0 else 32), slice(24 if scene == 0 else 32, None)
    half = near if lit else far
    return (half,) if scene == 0 else (slice(None), half)


def test_a_render_forgets_at_cuts_whatever_the_batch(model: ResolvedModel, tmp_path: Path) -> None:
    scenes = [[60, 70, 66, 72, 60], [200, 190, 210, 205]]
    source = tmp_path / "scenes.mkv"
    write_scenes(source, scenes)
    shown = []
    for batch in (1, 3, 8):
        target = tmp_path / f"{batch}.mkv"
        report = bgsoft.render(
            source,
            target,
            preset=None,
            effect="matte",
            codec="ffv1",
            face="off",
            model=str(model.path),
            batch=batch,
        )
        assert [event.frame for event in report.events if event.kind == "scene-cut"] == [5]
        shown.append([frame.planes[0] for frame in read_back(target)])
    first = 0
    for number, scene in enumerate(scenes):
        planes = shown[0][first : first + len(scene)]
        first += len(scene)
        for lit, levels in ((True, scene), (False, [DARK] * len(scene))):
            alphas = expected_alphas([(level - 16) / 219 for level in levels])
            for plane, alpha in zip(planes, alphas, strict=True):
                half = plane[lit_half(number, lit=lit)].astype(float)
                np.testing.assert_allclose(half, 16 + 219 * alpha, atol=1.5)
    assert first == len(shown[0])
    for one, *others in zip(*shown, strict=True):
        assert all(np.array_equal(one, other) for other in others)


@pytest.mark.parametrize("size", [(65, 47), (641, 359), (1026, 770), (1, 1)])
def test_a_matte_is_taken_as_it_is(size: tuple[int, int]) -> None:
    format = frame_format(size)
    rng = np.random.default_rng(5)
    masks = [rng.random(format.luma_shape, dtype=np.float32) for _ in range(2)]
    frames = [flat_frame(format, 0, 128, 128) for _ in range(3)]
    stage = matte_stage(MatteConfig(), format, LanePool(3), from_alpha=True)
    mattes = stage.refine([masks[0], masks[1], None], frames, [])
    for matte, frame, mask in zip(mattes, frames, (*masks, masks[1]), strict=True):
        assert matte.alpha is frame.planes.alpha
        np.testing.assert_array_equal(matte.alpha, np.rint(mask * 255))
        factor = analysis_factor(*size)
        assert matte.reduced.shape == analysis_shape(*size)
        rows, columns = size[1] // factor, size[0] // factor
        cells = matte.alpha[: rows * factor, : columns * factor].astype(float)
        means = cells.reshape(rows, factor, columns, factor).mean(axis=(1, 3))
        np.testing.assert_allclose(matte.reduced[:rows, :columns], means, atol=1)
    assert [matte.held for matte in mattes] == [False, False, True]


def test_a_held_matte_is_the_models_own() -> None:
    format = frame_format((64, 48))
    stage = matte_stage(MatteConfig(), format, from_alpha=True)
    frames = flat_frames(format, [0, 0])
    (first,) = stage.refine([np.full((48, 64), 0.5, np.float32)], frames[:1], [])
    first.alpha[:], first.reduced[:] = 255, 255  # as if a face had been filled in
    (held,) = stage.refine([None], frames[1:], [])
    assert (held.alpha == 128).all()
    assert (held.reduced == 128).all()


def test_the_edge_can_be_moved() -> None:
    format = frame_format((200, 100))
    mask = np.zeros((100, 200), np.float32)
    mask[:, 100:] = 1
    frames = flat_frames(format, [0])
    wide = matte_stage(MatteConfig(expand_pct=3.0), format, from_alpha=True)
    (matte,) = wide.refine([mask], frames, [])
    assert matte.alpha[50].astype(int).argmax() == 97
    soft = matte_stage(MatteConfig(feather_pct=10.0), format, from_alpha=True)
    (matte,) = soft.refine([mask], frames, [])
    assert (matte.alpha[50, 100:] == 255).all()
    assert 0 < matte.alpha[50, 95] < 255 == matte.alpha[50, 100]
    assert matte.alpha[50, 85] == 0
