"""The doctor's checks, on the CPU and with stand-ins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bgsoft.compare.measure import psnr
from bgsoft.decode.cpu import CpuDecoder
from bgsoft.diagnose import checks, stages
from bgsoft.diagnose.checks import Checks, try_candidates
from bgsoft.diagnose.clips import CLIPS, TIME_BASE, ClipSpec, draw_frame, write_clip
from bgsoft.diagnose.parity import (
    EFFECTS,
    HostUnderTest,
    Parity,
    compare_composites,
    measure_parity,
)
from bgsoft.diagnose.stages import (
    DecodedFrame,
    decode_clip,
    difference,
    encode_frames,
    lowest_psnr_db,
)
from bgsoft.errors import BackendUnavailableError, VerificationError
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat, Matte, PixelLayout
from bgsoft.models.catalog import ModelSpec, find_spec
from bgsoft.rendering.backends import Candidate
from bgsoft.rendering.host import HostStages
from bgsoft.resources import Resources
from bgsoft.settings.config import Codec, EffectConfig, EffectKind, Precision


@pytest.mark.parametrize("spec", CLIPS, ids=lambda spec: spec.name)
def test_clips_come_back_at_their_times(spec: ClipSpec, tmp_path: Path) -> None:
    spec = replace(spec, frames=12)
    path = write_clip(tmp_path, spec)
    written = path.stat().st_mtime_ns
    assert write_clip(tmp_path, spec).stat().st_mtime_ns == written, "made once"
    with CpuDecoder(path) as decoder:
        time_base, format = decoder.info.time_base, decoder.info.format
    shown, _ = decode_clip(path)
    assert [frame.pts * time_base for frame in shown] == [pts * TIME_BASE for pts in spec.pts]
    layout = PixelLayout.P010 if spec.pixel_format == "yuv420p10le" else PixelLayout.NV12
    assert format.layout is layout
    drawn = draw_frame(3, spec.width, spec.height, layout)
    for plane in ("luma", "chroma"):
        error = float(
            np.square(getattr(shown[3], plane) - getattr(drawn, plane).astype(float)).mean()
        )
        assert psnr(error, 8 * format.bytes_per_sample) > 35


def shown(pts: int, luma: int = 9) -> DecodedFrame:
    return DecodedFrame(pts, np.full((4, 6), luma, np.uint8), np.full((2, 3, 2), 128, np.uint8))


def test_differences_are_reported() -> None:
    reference = [shown(0), shown(40)]
    assert difference([shown(0), shown(40)], reference) is None
    assert difference([shown(0)], reference) == "1 frames, not 2"
    assert difference([shown(0), shown(41)], reference) == "frame 1 is at 41, not 40"
    assert difference([shown(0), shown(40, luma=8)], reference) == "luma of frame 1 differs"
    other = shown(0)
    other.chroma[1, 1, 1] += 1
    assert difference([other, shown(40)], reference) == "chroma of frame 0 differs"


def test_the_worst_frame_counts() -> None:
    reference = [shown(0), shown(40)]
    assert lowest_psnr_db(reference, reference) == np.inf
    worse = lowest_psnr_db([shown(0), shown(40, luma=10)], reference)
    assert worse == pytest.approx(20 * np.log10(255))


@pytest.mark.parametrize("layout", list(PixelLayout))
def test_encoders_are_checked(layout: PixelLayout, tmp_path: Path) -> None:
    frames = [draw_frame(index, 320, 180, layout) for index in range(8)]
    encoder, worst, milliseconds = encode_frames(tmp_path / "out.mp4", frames, Codec.HEVC)
    assert encoder == "libx265"
    assert worst > 36
    assert milliseconds > 0


def test_an_encoder_that_loses_frames_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = stages.decode_clip
    monkeypatch.setattr(stages, "decode_clip", lambda path: (whole(path)[0][1:], 1.0))
    with pytest.raises(VerificationError, match="7 frames came back at other times"):
        encode_frames(tmp_path / "out.mp4", [draw_frame(i, 320, 180) for i in range(8)])


SMALL = (320, 180)


def parities(ours: Any, **options: Any) -> list[Parity]:
    return list(measure_parity(ours, find_spec("selfie-general"), size=SMALL, **options))


def test_a_side_agrees_with_itself() -> None:
    found = parities(HostUnderTest())
    assert len(found) == 2 * (4 + len(EFFECTS))
    assert len({parity.name for parity in found}) == len(found)
    assert all(parity.ok and parity.max_difference == 0 for parity in found)


class FaultyStages(HostStages):
    def __init__(self, fault: str, batch: int) -> None:
        super().__init__(Resources(), batch)
        self._fault = fault

    def reducer(self, format: FrameFormat) -> Any:
        reducer = super().reducer(format)
        if self._fault != "reduce":
            return reducer

        class Brighter:
            def reduce(self, frames: Sequence[Frame]) -> list[AnalysisFrame]:
                reduced = reducer.reduce(frames)
                for grid in reduced:
                    grid.luma[0, 0] += 1 << format.shift
                return reduced

        return Brighter()

    def matte_stage(self, config: Any, format: FrameFormat, **options: Any) -> Any:
        matter = super().matte_stage(config, format, **options)
        if self._fault != ("fine matte" if options["fine"] else "matte"):
            return matter

        class Softer:
            def refine(self, masks: Any, frames: Any, reduced: Any) -> list[Matte]:
                mattes = matter.refine(masks, frames, reduced)
                for matte in mattes:
                    matte.alpha[:10] += 3
                return mattes

        return Softer()

    def compositor(self, config: EffectConfig, format: FrameFormat, began: Any = None) -> Any:
        if self._fault == f"composite {config.kind}":
            config = EffectConfig(kind=EffectKind.DIM, strength=5)
        return super().compositor(config, format, began)


class FaultyHost(HostUnderTest):
    def __init__(self, fault: str) -> None:
        self._fault = fault

    def stages(self, batch: int = 1) -> HostStages:
        return FaultyStages(self._fault, batch)

    def write_tensor(self, spec: ModelSpec, format: FrameFormat, reduced: AnalysisFrame) -> Array:
        tensor = super().write_tensor(spec, format, reduced)
        if self._fault == "preprocess":
            tensor[1, 5, 5] += 3 / 255
        return tensor


@pytest.mark.parametrize(
    "fault", ["reduce", "preprocess", "matte", "fine matte", "composite blur", "composite dim"]
)
def test_a_fault_is_found_where_it_is(fault: str) -> None:
    wrong = [parity.name for parity in parities(FaultyHost(fault)) if not parity.ok]
    assert wrong == [f"{fault}, 8 bits", f"{fault}, 10 bits"]


class _PersonTouched(HostStages):
    def compositor(self, config: EffectConfig, format: FrameFormat, began: Any = None) -> Any:
        compositor = super().compositor(config, format, began)

        class Brighter:
            close = compositor.close

            def apply(self, frames: Any, mattes: Any, reduced: Any) -> None:
                compositor.apply(frames, mattes, reduced)
                for frame, matte in zip(frames, mattes, strict=True):
                    frame.luma[matte.alpha == 255] += 1

        return Brighter()


class _TouchedHost(HostUnderTest):
    def stages(self, batch: int = 1) -> HostStages:
        return _PersonTouched(Resources(), batch)


def test_a_code_of_a_person_is_too_much_where_one_of_the_background_is_not() -> None:
    frame = draw_frame(0, *SMALL)
    matte = Matte(alpha=np.zeros(SMALL[::-1], np.uint8), reduced=np.zeros((180, 320), np.uint8))
    for value, ok in ((254, True), (255, False)):
        matte.alpha[40:90, 40:90] = matte.reduced[40:90, 40:90] = value
        assert compare_composites(_TouchedHost(), EffectConfig(), frame, matte).ok is ok


def cpu(**changes: Any) -> Candidate:
    return Candidate(**{"name": "cpu", "device": "cpu", "available": True, **changes})


@pytest.mark.slow  # the doctor runs them all, too
def test_the_cpu_passes_its_checks(tmp_path: Path) -> None:
    stages = {stage: [cpu()] for stage in ("decode", "infer", "composite", "encode")}
    for stage, candidate, found in try_candidates(stages, tmp_path):
        assert candidate.available, (stage, candidate.reason)
        assert found is not None
        assert found.ms_per_frame is not None
        assert found.ms_per_frame > 0
        assert found.detail


def test_what_is_unavailable_is_not_tried(tmp_path: Path) -> None:
    gone = Candidate(name="nvdec", device="cuda:0", available=False, reason="no GPU", fix="buy one")
    assert list(try_candidates({"decode": [gone]}, tmp_path)) == [("decode", gone, None)]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (BackendUnavailableError("NVENC: this GPU has no NVENC"), "NVENC: this GPU has no NVENC"),
        (VerificationError("2 frames lost"), "2 frames lost"),
        (RuntimeError("vendor says no"), "RuntimeError: vendor says no"),
    ],
)
def test_a_check_that_fails_is_a_reason(
    error: Exception, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        raise error

    monkeypatch.setattr(Checks, "encode", fail)
    ((_, candidate, found),) = try_candidates({"encode": [cpu()]}, tmp_path)
    assert (candidate.available, candidate.reason, found) == (False, reason, None)


def test_wrong_results_fail_a_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU decoder returns other frames, and the provider another mask."""
    monkeypatch.setattr(Checks, "need", lambda *_: None)
    monkeypatch.setattr(Checks, "need_decoder", lambda *_: None)
    decode, infer = checks.decode_clip, checks.run_model

    def brighter(path: Path, backend: str = "cpu", device: Any = None) -> Any:
        frames, seconds = decode(path)
        if backend != "cpu":
            frames[-1].luma[0, 0] += 1
        return frames, seconds

    def another(model: Any, frame: Frame, backend: str = "cpu", *_: Any, **options: Any) -> Any:
        mask, *more = infer(model, frame, precision=Precision.FP32, runs=1)
        if backend != "cpu":
            mask[0, 0] += 0.01
        return mask, *more

    monkeypatch.setattr(checks, "decode_clip", brighter)
    monkeypatch.setattr(checks, "run_model", another)
    candidates = {"decode": [cpu(name="nvdec")], "infer": [cpu(name="cuda")]}
    decoded, inferred = (candidate for _, candidate, _ in try_candidates(candidates, tmp_path))
    assert decoded.reason == "its frames differ from the CPU's: luma of frame 49 differs"
    assert inferred.reason is not None
    assert "mask differs from the CPU's by up to 0.010" in inferred.reason
