"""Runs every backend of every stage alone, and compares it with the CPU.

``bgsoft doctor`` runs each backend briefly; :mod:`bgsoft.diagnose.full` runs everything.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bgsoft.cuda.driver import driver_problem
from bgsoft.cuda.video_codec import decoder_caps, encoder_caps
from bgsoft.decode.nv_stream import caps_reason, nv_codec
from bgsoft.diagnose.clips import CLIPS, ClipSpec, draw_frame, write_clip
from bgsoft.diagnose.machine import reason_of
from bgsoft.diagnose.parity import MIN_ENCODED_DB, DeviceUnderTest, HostUnderTest, mask_tolerance
from bgsoft.diagnose.stages import decode_clip, difference, encode_frames, run_model
from bgsoft.errors import BackendUnavailableError, VerificationError, translated
from bgsoft.frame import PixelLayout
from bgsoft.media.probe import probe
from bgsoft.models.catalog import resolve
from bgsoft.records import dataclass
from bgsoft.rendering.backends import Candidate
from bgsoft.settings.config import Codec, EffectConfig, MatteConfig, Precision, SegmentConfig

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice

_SIZE = (1280, 720)
_FRAMES = 25
_MODEL_RUNS = 20
_COMPOSITE_SECONDS = 1.0
"""Longest time of the compositor's measurement."""


class SkippedError(BackendUnavailableError):
    """A check's backend is not installed, or this GPU does not support it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of a check that passed."""

    detail: str
    ms_per_frame: float | None = None
    """Time in short runs, whatever else runs: a sign of life, not a benchmark."""


class Checks:
    """Each method runs one check.

    It raises SkippedError if the check cannot run here, VerificationError for a wrong result, and
    the backend's own errors. Clips and encoded files go into ``folder``; ``stages`` are those of
    :func:`bgsoft.rendering.backends.probe_all`.
    """

    def __init__(self, folder: Path, gpu: int, stages: Mapping[str, Sequence[Candidate]]) -> None:
        self.folder = folder
        self.gpu = gpu
        self.stages = stages
        self._device: CudaDevice | None = None

    @property
    def device(self) -> CudaDevice:
        """The GPU, initialised when it is first needed."""
        problem = driver_problem(self.gpu)
        if problem is not None:
            raise SkippedError(problem)
        if self._device is None:
            try:
                from bgsoft.cuda.device import CudaDevice
            except ImportError as exc:
                raise SkippedError(f"{exc}: pip install '.[gpu]'") from exc
            self._device = CudaDevice(self.gpu)
        return self._device

    def need(self, stage: str, backend: str) -> CudaDevice | None:
        """Return a backend's device, None for the CPU; raises SkippedError if it is unavailable."""
        candidate = next(c for c in self.stages[stage] if c.name == backend)
        if not candidate.available:
            raise SkippedError(candidate.explanation)
        return None if backend == "cpu" else self.device

    def need_decoder(self, backend: str, clip: Path) -> CudaDevice | None:
        """Return the device for decoding a clip; NVDEC reports what it does not decode."""
        device = self.need("decode", backend)
        if backend == "nvdec":
            info = probe(clip)
            caps = decoder_caps(self.gpu, nv_codec(info).name, info.format.bit_depth)
            reason = caps_reason(caps, info)
            if reason is not None:
                raise SkippedError(f"NVDEC: {reason}")
        return device

    def need_encoder(
        self, backend: str, codec: Codec = Codec.H264, bits: int = 8
    ) -> CudaDevice | None:
        """Return the device for encoding; NVENC reports what it does not encode."""
        device = self.need("encode", backend)
        if backend == "nvenc":
            with translated(BackendUnavailableError, to=lambda exc: SkippedError(str(exc))):
                caps = encoder_caps(self.gpu, codec.value)
            if bits > 8 and not caps.get("support_10bit_encode", 0):
                raise SkippedError(f"NVENC: this GPU does not encode {codec} at {bits} bits")
        return device

    def decode(self, backend: str, spec: ClipSpec = CLIPS[0]) -> Finding:
        """Decode a clip; NVDEC must give the CPU's frames, samples and timestamps."""
        self.need("decode", backend)
        clip = write_clip(self.folder, spec)
        shown, seconds = decode_clip(clip, backend, self.need_decoder(backend, clip))
        if len(shown) != spec.frames:
            raise VerificationError(f"{len(shown)} frames came out, not {spec.frames}")
        detail = Path(spec.name).stem
        if backend != "cpu":
            problem = difference(shown, decode_clip(clip)[0])
            if problem is not None:
                raise VerificationError(f"its frames differ from the CPU's: {problem}")
            detail += ", equal to the CPU's frames and timestamps"
        return Finding(detail, 1000 * seconds / len(shown))

    def infer(
        self, backend: str, model: str | None = None, precision: Precision = Precision.FP32
    ) -> Finding:
        """Segment a frame; ``model=None``: by the default model."""
        device = self.need("infer", backend)
        resolved, frame = resolve(model or SegmentConfig().model), draw_frame(7, *_SIZE)
        mask, detail, milliseconds = run_model(
            resolved, frame, backend, device, precision=precision, runs=_MODEL_RUNS
        )
        share = float((mask > 0.5).mean())
        if not 0.02 < share < 0.9:
            raise VerificationError(f"{share:.0%} of the picture is person")
        if backend != "cpu":
            reference, *_ = run_model(resolved, frame, runs=1)
            worst = float(np.abs(mask - reference).max())
            allowed = mask_tolerance(backend, precision)
            if not worst <= allowed:
                raise VerificationError(
                    f"its mask differs from the CPU's by up to {worst:.3f}, more than {allowed}"
                )
            detail += f", within {worst:.0e} of the CPU's mask"
        return Finding(detail, milliseconds)

    def composite(self, backend: str) -> Finding:
        """Time matte and blur; :mod:`bgsoft.diagnose.parity` compares them with the CPU's."""
        device = self.need("composite", backend)
        tested: HostUnderTest = HostUnderTest() if device is None else DeviceUnderTest(device)
        source = draw_frame(0, *_SIZE)
        format = source.format
        frame = tested.place(source)
        stages = tested.stages()
        reducer, matte = stages.reducer(format), stages.matte_stage(MatteConfig(), format)
        compositor = stages.compositor(EffectConfig(), format)
        mask = tested.place_array(np.full((256, 256), 0.5, np.float32))
        wait: Callable[[], None] = (lambda: None) if device is None else device.synchronize

        def once() -> None:
            reduced = reducer.reduce([frame])[0]
            compositor.apply([frame], [matte.refine([mask], [frame], [reduced])[0]], [reduced])

        once()
        wait()
        started, frames = time.perf_counter(), 0
        while frames < _FRAMES and time.perf_counter() - started < _COMPOSITE_SECONDS:
            once()
            frames += 1
        wait()
        seconds = time.perf_counter() - started
        compositor.close()
        return Finding(f"matte and blur at {_SIZE[0]}x{_SIZE[1]}", 1000 * seconds / frames)

    def encode(
        self, backend: str, codec: Codec = Codec.H264, layout: PixelLayout = PixelLayout.NV12
    ) -> Finding:
        """Encode at a variable rate; check timestamps exactly, and pictures by PSNR."""
        device = self.need_encoder(backend, codec, 10 if layout is PixelLayout.P010 else 8)
        frames = [draw_frame(index, *_SIZE, layout) for index in range(_FRAMES)]
        times = ClipSpec(name="", frames=_FRAMES + 1, variable_rate=True).pts
        for frame, (begin, end) in zip(frames, pairwise(times), strict=True):
            frame.pts, frame.duration = begin, end - begin
        path = self.folder / f"encoded-{backend}-{codec}-{layout}.mp4"
        encoder, worst, milliseconds = encode_frames(path, frames, codec, backend, device)
        detail = f"{encoder}, exact timestamps, {decibels(worst)}"
        check_psnr(worst, MIN_ENCODED_DB, detail)
        return Finding(detail, milliseconds)


def check_psnr(worst_db: float, min_db: float, detail: str) -> None:
    """Raise VerificationError if a PSNR is too low."""
    if worst_db < min_db:
        raise VerificationError(f"{detail}: less than {min_db:g} dB")


def decibels(value: float) -> str:
    """Format a PSNR."""
    return "equal" if math.isinf(value) else f"{value:.1f} dB"


def try_candidates(
    stages: Mapping[str, Sequence[Candidate]], folder: Path, gpu: int = 0
) -> Iterator[tuple[str, Candidate, Finding | None]]:
    """Run every available backend briefly, with files in an empty folder.

    Yields:
        (stage, candidate, finding); a candidate that fails becomes unavailable, with the reason.
    """
    checks = Checks(folder, gpu, stages)
    for stage, candidates in stages.items():
        check: Callable[[str], Finding] = getattr(checks, stage)
        for candidate in candidates:
            if not candidate.available:
                yield stage, candidate, None
                continue
            try:
                found = check(candidate.name)
            except Exception as exc:  # vendors' libraries raise any type
                failed = replace(candidate, available=False, reason=reason_of(exc))
                yield stage, failed, None
            else:
                yield stage, candidate, found
