from __future__ import annotations

import numpy as np

from bgsoft.analysis.scenes import THUMB_SHAPE, CpuSceneProbe, SceneCutDetector
from bgsoft.frame import FrameFormat, PixelLayout, Proxy


def picture(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    coarse = rng.random((3, 4)).astype(np.float32)
    return np.kron(coarse, np.ones((6, 8), np.float32))


def test_a_cut_between_unlike_pictures_is_found_at_its_frame() -> None:
    detector = SceneCutDetector()
    rng = np.random.default_rng(1)
    cuts = []
    for index in range(60):
        base = picture(0 if index < 25 else 5)
        noisy = base + rng.normal(0, 0.01, THUMB_SHAPE).astype(np.float32)
        if detector.update(noisy.astype(np.float32)):
            cuts.append(index)
    assert cuts == [25]


def test_steady_motion_is_no_cut() -> None:
    detector = SceneCutDetector()
    base = picture(2)
    assert not any(
        detector.update(np.roll(base, index, axis=1).astype(np.float32)) for index in range(80)
    )


def test_flashing_light_is_at_most_its_first_flash() -> None:
    detector = SceneCutDetector()
    base = picture(3) * 0.5
    found = [detector.update((base + (0.3 if i % 2 else 0)).astype(np.float32)) for i in range(40)]
    assert sum(found) <= 2
    assert not any(found[4:])


def test_a_slow_fade_is_no_cut() -> None:
    detector = SceneCutDetector()
    a, b = picture(4), picture(6)
    assert not any(
        detector.update((a * (1 - t) + b * t).astype(np.float32)) for t in np.linspace(0, 1, 30)
    )


def reduced(value: int, dtype: str, noise: int = 0) -> Proxy:
    rng = np.random.default_rng(0)
    luma = np.full((27, 48), value, dtype)
    if noise:
        luma = (luma + rng.integers(0, noise, luma.shape)).astype(dtype)
    return Proxy(4, luma, np.zeros((27, 48, 2), dtype))


def test_similarity_is_psnr_in_either_depth() -> None:
    for layout, scale in ((PixelLayout.NV12, 1), (PixelLayout.P010, 256)):
        format = FrameFormat(width=192, height=108, layout=layout)
        probe = CpuSceneProbe(format)
        assert not probe.is_similar(reduced(100 * scale, format.dtype), 35)
        probe.keep(reduced(100 * scale, format.dtype))
        assert probe.is_similar(reduced(100 * scale, format.dtype), 99)
        # An offset of one 8-bit code is 48.1 dB, of ten is 28.1 dB.
        assert probe.is_similar(reduced(101 * scale, format.dtype), 45)
        assert not probe.is_similar(reduced(110 * scale, format.dtype), 35)
