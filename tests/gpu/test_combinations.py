"""Every combination of backends renders the same video, and copies no more than it must."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

import bgsoft
from bgsoft.report import RenderReport
from bgsoft.selftest.clips import CLIPS, ClipSpec, write_clip
from bgsoft.selftest.stages import DecodedFrame, decode_clip, lowest_psnr_db

pytestmark = pytest.mark.gpu

SMALL_BYTES = 10_240
"""Per frame: what may cross beside frames and the model's tensors."""
COMBINATIONS = list(product(("nvdec", "cpu"), ("cuda", "cpu"), ("cuda", "cpu")))
SPECS = {
    "b-frames, variable rate": CLIPS[1],
    "10 bits": CLIPS[3],
}
SELFIE_INPUT_BYTES = 3 * 256 * 256 * 4
SELFIE_OUTPUT_BYTES = 256 * 256 * 4


def frame_bytes(spec: ClipSpec) -> int:
    samples = spec.width * spec.height * 3 // 2
    return samples * (2 if spec.pixel_format.endswith("10le") else 1)


def render(
    clip: Path, target: Path, decode: str, infer: str, composite: str, **options: str
) -> tuple[RenderReport, list[DecodedFrame]]:
    report = bgsoft.render(
        clip,
        target,
        overwrite=True,
        decode=decode,
        infer=infer,
        composite=composite,
        encode="cpu",
        face="off",  # what is copied is the mask alone
        matte="fast",
        quality=8,
        speed="ultrafast",
        **options,
    )
    return report, decode_clip(target)[0]


@pytest.fixture(scope="module", params=SPECS, ids=list(SPECS))
def clip(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[ClipSpec, Path]:
    spec = SPECS[request.param]
    return spec, write_clip(tmp_path_factory.mktemp("clip"), spec)


@pytest.fixture(scope="module")
def reference(
    clip: tuple[ClipSpec, Path], tmp_path_factory: pytest.TempPathFactory
) -> list[DecodedFrame]:
    """What the CPU alone makes of the clip."""
    target = tmp_path_factory.mktemp("reference") / "cpu.mp4"
    return render(clip[1], target, "cpu", "cpu", "cpu")[1]


@pytest.mark.parametrize(("decode", "infer", "composite"), COMBINATIONS)
def test_all_make_the_same_video(
    gpu: Any,
    clip: tuple[ClipSpec, Path],
    reference: list[DecodedFrame],
    tmp_path: Path,
    decode: str,
    infer: str,
    composite: str,
) -> None:
    spec, path = clip
    report, shown = render(path, tmp_path / "out.mp4", decode, infer, composite)
    backends = {name: stage.backend for name, stage in report.stages.items()}
    assert backends == {
        "decode": decode,
        "segment": infer,
        "matte": composite,
        "composite": composite,
        "encode": "cpu",
        "face": "off",
    }
    assert [frame.pts for frame in shown] == [frame.pts for frame in reference]
    assert len(shown) == spec.frames
    assert lowest_psnr_db(shown, reference) >= 40
    assert not [event for event in report.events if event.kind in ("fault", "retry", "fallback")]
    if (decode, infer, composite) != ("cpu", "cpu", "cpu"):
        assert report.gpu is not None
        assert report.gpu["samples"] >= 2 or report.gpu["reason"]
        assert (report.peak_vram_bytes or 0) > frame_bytes(spec)
    else:
        assert (report.gpu, report.peak_vram_bytes) == (None, None)

    frame = frame_bytes(spec)
    # Where frames have to cross: to the compositor, and to the encoder on the host.
    up = frame * (decode == "cpu" and composite == "cuda")
    down = frame * (composite == "cuda" or decode == "nvdec")
    if infer != composite:
        # The model's tensors cross, the input towards the model: in batches of up to 8, the last
        # one partly empty, and one more run captures or warms up.
        runs = 1.5
        to_model, from_model = SELFIE_INPUT_BYTES, SELFIE_OUTPUT_BYTES
        up_tensors, down_tensors = (
            (from_model, to_model) if composite == "cuda" else (to_model, from_model)
        )
        assert up + up_tensors <= report.h2d_bytes <= up + runs * up_tensors + SMALL_BYTES
        assert down + down_tensors <= report.d2h_bytes <= down + runs * down_tensors + SMALL_BYTES
    else:
        assert up <= report.h2d_bytes <= up + SMALL_BYTES
        assert down <= report.d2h_bytes <= down + SMALL_BYTES


def test_an_all_gpu_picture_path_keeps_frames_on_the_device(
    gpu: Any, clip: tuple[ClipSpec, Path], tmp_path: Path
) -> None:
    """Nothing goes up, and what comes down is what the encoder takes."""
    spec, path = clip
    report, _ = render(path, tmp_path / "out.mp4", "nvdec", "cuda", "cuda")
    assert report.h2d_bytes < SMALL_BYTES
    assert report.d2h_bytes - frame_bytes(spec) < SMALL_BYTES


def test_half_precision_renders_the_same_video(
    gpu: Any, clip: tuple[ClipSpec, Path], reference: list[DecodedFrame], tmp_path: Path
) -> None:
    _, shown = render(clip[1], tmp_path / "half.mp4", "auto", "cuda", "auto", precision="fp16")
    assert [frame.pts for frame in shown] == [frame.pts for frame in reference]
    assert lowest_psnr_db(shown, reference) >= 38
