"""Tries every backend of every stage for a moment, and tells what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bgsoft.backends import Candidate
from bgsoft.errors import BackendUnavailableError, BgsoftError, VerificationError

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice
    from bgsoft.frame import Frame

__all__ = ["Trial", "run_trials"]

_SIZE = (1280, 720)
_SECONDS = 1.0
"""Longest that the compositor is timed."""
_FRAMES = 25
_LEAST_PSNR_DB = 32.0
"""Of luma after encoding; a wrong picture is far below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One backend of one stage, tried."""

    stage: str
    backend: str
    ok: bool
    reason: str | None = None
    """Why it does not work."""
    fix: str | None = None
    ms_per_frame: float | None = None
    """Of short runs, alone on the machine or not: a sign of life, no benchmark."""
    detail: str = ""
    """What ran, and how it compares with the CPU."""


@dataclass(frozen=True, slots=True)
class _Finding:
    ms_per_frame: float
    detail: str


class _Bench:
    """What the trials share, each part made when it is first needed.

    Args:
        folder: For clips and encoded files.
        gpu: CUDA device number.
    """

    def __init__(self, folder: Path, gpu: int) -> None:
        self._folder = folder
        self._gpu = gpu
        self._device: CudaDevice | None = None

    @property
    def device(self) -> CudaDevice:
        if self._device is None:
            from bgsoft.cuda.device import CudaDevice

            self._device = CudaDevice(self._gpu)
        return self._device

    def _device_for(self, backend: str) -> CudaDevice | None:
        return None if backend == "cpu" else self.device

    def decode(self, backend: str) -> _Finding:
        from bgsoft.selftest.clips import CLIPS, write_clip
        from bgsoft.selftest.stages import decode_clip, difference

        clip = write_clip(self._folder, CLIPS[0])
        shown, seconds = decode_clip(clip, backend, self._device_for(backend))
        if len(shown) != CLIPS[0].frames:
            raise VerificationError(f"{len(shown)} frames came out, not {CLIPS[0].frames}")
        detail = "H.264"
        if backend != "cpu":
            problem = difference(shown, decode_clip(clip)[0])
            if problem is not None:
                raise VerificationError(f"not what the CPU decodes: {problem}")
            detail = "H.264, equal to the CPU's frames and timestamps"
        return _Finding(1000 * seconds / len(shown), detail)

    def infer(self, backend: str) -> _Finding:
        import numpy as np

        from bgsoft.config import Precision, SegmentConfig
        from bgsoft.models.catalog import resolve
        from bgsoft.selftest.parity import mask_tolerance
        from bgsoft.selftest.stages import run_model

        model = resolve(SegmentConfig().model)
        frame = self._frame()
        mask = run_model(model, frame, backend, self._device_for(backend))
        detail = mask.provider
        if backend != "cpu":
            reference = run_model(model, frame, runs=1)
            worst = float(np.abs(mask.values - reference.values).max())
            if not worst <= mask_tolerance(backend, Precision.FP32):
                raise VerificationError(f"its mask differs from the CPU's by up to {worst:.3f}")
            detail += f", within {worst:.0e} of the CPU's mask"
        return _Finding(mask.ms_per_frame, detail)

    def composite(self, backend: str) -> _Finding:
        import numpy as np

        from bgsoft.config import EffectConfig, MatteConfig
        from bgsoft.selftest.parity import CudaSide, HostSide, Side

        side: Side = HostSide() if backend == "cpu" else CudaSide(self.device)
        source = self._frame()
        format = source.format
        frame = side.place(source)
        reducer, matter = side.reducer(format), side.matte_stage(MatteConfig(), format)
        compositor = side.compositor(EffectConfig(), format)
        mask = side.place_array(np.full((256, 256), 0.5, np.float32))
        wait: Callable[[], None] = (lambda: None) if backend == "cpu" else self.device.synchronize

        def once() -> None:
            reduced = reducer.reduce([frame])[0]
            compositor.apply([frame], [matter.refine([mask], [frame], [reduced])[0]], [reduced])

        once()
        wait()
        started, frames = time.perf_counter(), 0
        while frames < _FRAMES and time.perf_counter() - started < _SECONDS:
            once()
            frames += 1
        wait()
        seconds = time.perf_counter() - started
        compositor.close()
        return _Finding(1000 * seconds / frames, f"matte and blur at {_SIZE[0]}x{_SIZE[1]}")

    def encode(self, backend: str) -> _Finding:
        from bgsoft.selftest.clips import draw_frame
        from bgsoft.selftest.stages import encode_frames

        frames = [draw_frame(index, *_SIZE) for index in range(_FRAMES)]
        path = self._folder / f"encoded-{backend}.mp4"
        made = encode_frames(path, frames, backend=backend, device=self._device_for(backend))
        if made.lowest_psnr_db < _LEAST_PSNR_DB:
            raise VerificationError(f"its pictures are {made.lowest_psnr_db:.1f} dB from ours")
        detail = f"{made.encoder}, exact timestamps, {made.lowest_psnr_db:.1f} dB"
        return _Finding(made.ms_per_frame, detail)

    @staticmethod
    def _frame() -> Frame:
        from bgsoft.selftest.clips import draw_frame

        return draw_frame(0, *_SIZE)


def run_trials(
    stages: Mapping[str, Sequence[Candidate]], folder: Path, gpu: int = 0
) -> list[Trial]:
    """Try every candidate; those that were found unavailable before are not tried.

    Args:
        stages: As :func:`bgsoft.backends.probe_all` gives them.
        folder: Empty, for files of a few megabytes.
        gpu: CUDA device number.

    Returns:
        One for each candidate, in the same order.
    """
    bench = _Bench(folder, gpu)
    trials: dict[str, Callable[[str], _Finding]] = {
        "decode": bench.decode,
        "infer": bench.infer,
        "composite": bench.composite,
        "encode": bench.encode,
    }
    return [
        _try(stage, candidate, trials[stage])
        for stage, candidates in stages.items()
        for candidate in candidates
    ]


def _try(stage: str, candidate: Candidate, trial: Callable[[str], _Finding]) -> Trial:
    common: dict[str, Any] = {"stage": stage, "backend": candidate.name}
    if not candidate.available:
        return Trial(**common, ok=False, reason=candidate.reason, fix=candidate.fix)
    try:
        finding = trial(candidate.name)
    except BackendUnavailableError as exc:
        return Trial(**common, ok=False, reason=exc.message)
    except BgsoftError as exc:
        return Trial(**common, ok=False, reason=str(exc))
    except Exception as exc:  # whatever a vendor's library raises is the answer, not an accident
        return Trial(**common, ok=False, reason=f"{type(exc).__name__}: {exc}")
    return Trial(**common, ok=True, ms_per_frame=finding.ms_per_frame, detail=finding.detail)
