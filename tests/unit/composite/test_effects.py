"""Rules that every effect keeps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bgsoft.analysis.reduce import Reducer
from bgsoft.composite.effects import create_compositor
from bgsoft.errors import ConfigError
from bgsoft.frame import FrameFormat, Matte, PixelLayout
from bgsoft.settings.config import DEFAULT_STRENGTH_PCT, LENGTH_EFFECTS, EffectConfig, EffectKind
from tests.marks import crossed, slow
from tests.pictures import (
    SIZES,
    background_files,
    chroma_alpha,
    composite,
    copy_frame,
    disc_mask,
    effect,
    flat_frame,
    frame_format,
    matte_from,
    no_one,
    random_frame,
)

LAYOUTS = (PixelLayout.NV12, PixelLayout.P010)
OWN_PICTURE = sorted(LENGTH_EFFECTS)
"""Effects that average the frame's own background."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[EffectKind, Path]:
    return background_files(tmp_path_factory.mktemp("backgrounds"))


@pytest.mark.parametrize("size", [*SIZES[:-1], slow(SIZES[-1])], ids=lambda s: f"{s[0]}x{s[1]}")
@crossed(kind=EffectKind, layout=LAYOUTS)
def test_people_stay_bit_for_bit(
    kind: EffectKind, size: tuple[int, int], layout: PixelLayout, files: dict[EffectKind, Path]
) -> None:
    format = frame_format(size, layout, full_range=layout is PixelLayout.P010)
    rng = np.random.default_rng(7)
    frame = random_frame(format, rng)
    for matte in (
        matte_from(format, disc_mask(format)),
        matte_from(format, rng.random((5, 8))),
        matte_from(format, np.ones(format.luma_shape)),
    ):
        result = composite(effect(kind, files), frame, matte)
        person = matte.alpha == 255
        assert np.array_equal(result.luma[person], frame.luma[person])
        person = chroma_alpha(matte.alpha) == 255
        assert np.array_equal(result.chroma[person], frame.chroma[person])
        if layout is PixelLayout.P010:
            assert not (result.luma & 63).any()
            assert not (result.chroma & 63).any()


def test_matte_leaves_colour_alone() -> None:
    format = frame_format((65, 47))
    frame = random_frame(format, np.random.default_rng(2))
    result = composite(EffectConfig(kind=EffectKind.MATTE), frame, no_one(format))
    assert np.array_equal(result.luma, frame.luma)
    assert np.array_equal(result.chroma, frame.chroma)


@pytest.mark.parametrize("kind", [kind for kind in EffectKind if kind is not EffectKind.MATTE])
def test_every_effect_changes_the_room(kind: EffectKind, files: dict[EffectKind, Path]) -> None:
    format = frame_format((320, 240))
    frame = random_frame(format, np.random.default_rng(2))
    result = composite(effect(kind, files), frame, no_one(format))
    assert (result.chroma != frame.chroma).mean() > 0.5


@pytest.mark.parametrize("kind", DEFAULT_STRENGTH_PCT)
def test_no_strength_leaves_the_picture_alone(kind: EffectKind) -> None:
    format = frame_format((65, 47))
    frame = random_frame(format, np.random.default_rng(2))
    result = composite(EffectConfig(kind=kind, strength=0), frame, no_one(format))
    assert np.array_equal(result.luma, frame.luma)
    assert np.array_equal(result.chroma, frame.chroma)


@crossed(strength=[0.2, 2.5, 25.0], layout=LAYOUTS, kind=OWN_PICTURE)
@pytest.mark.parametrize("size", [(65, 47), (1, 1), (641, 359), slow((1026, 770))])
def test_one_colour_stays_that_colour(
    kind: EffectKind, size: tuple[int, int], layout: PixelLayout, strength: float
) -> None:
    format = frame_format(size, layout)
    frame = flat_frame(format, 77, 90, 201)
    for mask in (np.zeros(format.luma_shape), disc_mask(format)):
        result = composite(
            EffectConfig(kind=kind, strength=strength), frame, matte_from(format, mask)
        )
        assert np.array_equal(result.luma, frame.luma)
        assert np.array_equal(result.chroma, frame.chroma)


@crossed(strength=[0.2, 2.5, 25.0], layout=LAYOUTS, kind=OWN_PICTURE)
@pytest.mark.parametrize("size", [(640, 360), (641, 359), slow((1026, 770))])
def test_people_never_bleed_into_the_background(
    kind: EffectKind, size: tuple[int, int], layout: PixelLayout, strength: float
) -> None:
    """A bright red person before a dark grey wall."""
    format = frame_format(size, layout)
    frame, red = flat_frame(format, 60, 128, 128), flat_frame(format, 200, 90, 230)
    mask = disc_mask(format)
    person = mask > 0
    frame.luma[person] = red.luma[person]
    pairs = chroma_alpha(person * 255) > 0
    frame.chroma[pairs] = red.chroma[pairs]
    matte = matte_from(format, mask)
    result = composite(EffectConfig(kind=kind, strength=strength), frame, matte)

    away = matte.alpha == 0
    assert 0.4 < away.mean() < 0.9
    wall = int(flat_frame(format, 60, 128, 128).luma[0, 0])
    code = 1 << format.shift
    assert np.abs(result.luma[away].astype(int) - wall).max() <= code
    away = chroma_alpha(matte.alpha) == 0
    assert np.abs(result.chroma[away].astype(int) - format.chroma_neutral).max() <= code


@pytest.mark.parametrize("kind", OWN_PICTURE)
def test_a_frame_full_of_half_seen_people_gets_its_own_mean(kind: EffectKind) -> None:
    """No background is visible, so the mean of the picture replaces it, not black."""
    format = frame_format((320, 240))
    frame = flat_frame(format, 120, 100, 150)
    matte = matte_from(format, np.full(format.luma_shape, 0.5))
    result = composite(EffectConfig(kind=kind), frame, matte)
    assert np.abs(result.luma.astype(int) - 120).max() <= 1
    assert np.abs(result.chroma.astype(int) - (100, 150)).max() <= 1


@pytest.mark.parametrize("kind", list(EffectKind))
def test_frames_do_not_influence_each_other(
    kind: EffectKind, files: dict[EffectKind, Path]
) -> None:
    format = frame_format((320, 240))
    rng = np.random.default_rng(4)
    first, second = random_frame(format, rng), random_frame(format, rng)
    mattes = matte_from(format, disc_mask(format)), matte_from(format, rng.random((6, 8)))
    config = effect(kind, files)
    alone = composite(config, second, mattes[1])

    compositor, reducer = create_compositor(config, format), Reducer(format)
    for frame, matte in ((copy_frame(first), mattes[0]), (copy_frame(second), mattes[1])):
        compositor.apply([frame], [matte], [reducer.reduce([frame])[0]])
    compositor.close()
    compositor.close()
    # Blurred backgrounds may keep up to a code value of the frame before.
    kept = 1 if kind in (EffectKind.BLUR, EffectKind.BOKEH) else 0
    assert np.abs(frame.luma.astype(int) - alone.luma).max() <= kept
    assert np.abs(frame.chroma.astype(int) - alone.chroma).max() <= kept


@pytest.mark.parametrize("kind", [EffectKind.BLUR, EffectKind.BOKEH])
def test_camera_noise_leaves_a_blurred_background_still(kind: EffectKind) -> None:
    format = frame_format((320, 240))
    rng = np.random.default_rng(9)
    scene = random_frame(format, rng)
    matte = no_one(format)
    compositor = create_compositor(EffectConfig(kind=kind, strength=4.0), format)
    reducer = Reducer(format)
    results = []
    for step in range(6):
        frame = copy_frame(scene)
        noise = rng.integers(-3, 4, frame.luma.shape)
        frame.luma[:] = np.clip(frame.luma + noise, 0, 255)
        if step >= 4:
            frame.luma[:, 160:] = np.minimum(frame.luma[:, 160:], 230) + 20
        compositor.apply([frame], [matte], [reducer.reduce([frame])[0]])
        results.append(frame.luma.copy())
    for result in results[1:4]:
        assert np.mean(result != results[0]) < 0.03
    change = results[4].astype(int) - results[0]
    assert np.abs(change[:, :80]).max() <= 2, "the dark half stays"
    assert change[:, 240:].mean() > 10, "the half that was lit follows at once"


@pytest.mark.parametrize(
    "kind", [EffectKind.BLUR, EffectKind.PIXELATE, EffectKind.COLOR, EffectKind.ALPHA]
)
def test_planes_of_another_format_are_refused(kind: EffectKind) -> None:
    rng = np.random.default_rng(0)
    format, small = frame_format((320, 240)), frame_format((300, 240))
    frame, matte = random_frame(format, rng), no_one(format)
    reduced = Reducer(format).reduce([frame])[0]
    compositor = create_compositor(EffectConfig(kind=kind), format)
    for given, its_matte in (
        (frame, no_one(small)),
        (random_frame(small, rng), matte),
        (random_frame(frame_format((320, 240), PixelLayout.P010), rng), matte),
        (frame, Matte(alpha=matte.alpha.astype(np.float32), reduced=matte.reduced)),
        (frame, Matte(alpha=matte.alpha, reduced=no_one(small).reduced)),
    ):
        with pytest.raises(ValueError, match="not "):
            compositor.apply([given], [its_matte], [reduced])


@pytest.mark.parametrize("kind", [EffectKind.IMAGE, EffectKind.VIDEO])
def test_a_missing_file_is_a_config_error(kind: EffectKind, tmp_path: Path) -> None:
    path = tmp_path / "nothing.bin"
    with pytest.raises(ConfigError, match=r"nothing\.bin"):
        create_compositor(
            EffectConfig(kind=kind, background=str(path)), FrameFormat(width=8, height=8)
        )
    path.write_bytes(b"this is neither an image nor a video" * 20)
    with pytest.raises(ConfigError, match=r"nothing\.bin"):
        create_compositor(
            EffectConfig(kind=kind, background=str(path)), FrameFormat(width=8, height=8)
        )


def test_a_wrong_colour_is_a_config_error() -> None:
    config = EffectConfig(kind=EffectKind.COLOR, background="gren")
    with pytest.raises(ConfigError, match="green"):
        create_compositor(config, FrameFormat(width=8, height=8))
