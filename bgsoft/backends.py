"""The registry of backends: which exist for each stage, in which order, and what runs here.

``auto`` takes the first candidate that is available. A backend that the user names, or a CPU
choice under ``require_gpu``, is an error instead of a fallback.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

from bgsoft.config import BackendConfig
from bgsoft.errors import BackendUnavailableError

__all__ = ["STAGES", "Candidate", "Choice", "choose", "choose_all", "probe_all"]

STAGES = ("decode", "infer", "composite", "encode")
"""The stages that have a backend of their own; matte follows composite, face follows infer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One backend of one stage, and whether it can run on this machine."""

    name: str
    """As the command line spells it."""
    device: str
    """``cpu`` or ``cuda:N``."""
    available: bool
    reason: str | None = None
    """Why not, where it is not available."""
    fix: str | None = None
    """What the user can do about it, where there is something."""

    @property
    def explanation(self) -> str:
        """Reason and fix in one text; empty where the candidate is available."""
        return ": ".join(part for part in (self.reason, self.fix) if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The backend chosen for one stage."""

    stage: str
    backend: str
    device: str
    rejected: tuple[Candidate, ...] = ()
    """Better candidates that are unavailable; empty where the first or the named one runs."""

    @property
    def fallback_reason(self) -> str | None:
        """Why better candidates were passed over, each reason once; None where none was."""
        by_reason: dict[str, list[str]] = {}
        for candidate in self.rejected:
            by_reason.setdefault(candidate.explanation, []).append(candidate.name)
        parts = [f"{', '.join(names)}: {reason}" for reason, names in by_reason.items()]
        return "; ".join(parts) or None


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    probe: Callable[[int], Candidate]


def _no_driver() -> str | None:
    """Why no CUDA device can be used at all, or None where the driver is there."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver found (libcuda.so.1)"
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return "the NVIDIA driver does not start"
    if count.value == 0:
        return "no NVIDIA GPU found"
    return None


def _gpu_stage(name: str, what: str) -> _Entry:
    """A GPU backend that this release names but does not have yet."""

    def probe(gpu: int) -> Candidate:
        reason = _no_driver() or f"this release of bgsoft has no {what} yet"
        return Candidate(name=name, device=f"cuda:{gpu}", available=False, reason=reason)

    return _Entry(name, probe)


def _cpu_stage() -> _Entry:
    return _Entry("cpu", lambda _gpu: Candidate(name="cpu", device="cpu", available=True))


def _probe_cpu_inference(_gpu: int) -> Candidate:
    if importlib.util.find_spec("onnxruntime") is None:
        return Candidate(
            name="cpu",
            device="cpu",
            available=False,
            reason="ONNX Runtime is missing",
            fix="pip install 'bgsoft[cpu]' (or 'bgsoft[gpu]' with an NVIDIA GPU)",
        )
    return Candidate(name="cpu", device="cpu", available=True)


_REGISTRY: dict[str, tuple[_Entry, ...]] = {
    "decode": (_gpu_stage("nvdec", "NVDEC decoder"), _cpu_stage()),
    "infer": (
        _gpu_stage("tensorrt", "TensorRT inference"),
        _gpu_stage("cuda", "CUDA inference"),
        _Entry("cpu", _probe_cpu_inference),
    ),
    "composite": (_gpu_stage("cuda", "CUDA compositor"), _cpu_stage()),
    "encode": (_gpu_stage("nvenc", "NVENC encoder"), _cpu_stage()),
}


def probe_all(gpu: int = 0) -> dict[str, list[Candidate]]:
    """Every stage's candidates, best first.

    Args:
        gpu: CUDA device number that GPU candidates are probed on.
    """
    return {stage: [entry.probe(gpu) for entry in _REGISTRY[stage]] for stage in STAGES}


def choose(stage: str, wanted: str, *, gpu: int = 0, require_gpu: bool = False) -> Choice:
    """Choose the backend of one stage.

    Args:
        stage: One of :data:`STAGES`.
        wanted: ``auto`` or a backend's name.
        gpu: CUDA device number.
        require_gpu: Make a CPU choice an error.

    Raises:
        BackendUnavailableError: The named backend, or every backend, is unavailable; or only the
            CPU is left under ``require_gpu``.
    """
    rejected: list[Candidate] = []
    for entry in _REGISTRY[stage]:
        if wanted not in ("auto", entry.name):
            continue
        if require_gpu and entry.name == "cpu":
            # What was passed over before it, told as a fallback to it would be.
            fallback = Choice(stage=stage, backend="cpu", device="cpu", rejected=tuple(rejected))
            why = fallback.fallback_reason or f"--{stage} cpu was asked for"
            raise BackendUnavailableError(
                f"--require-gpu: {stage} would run on the CPU: {why}", stage=stage
            )
        candidate = entry.probe(gpu)
        if candidate.available:
            return Choice(
                stage=stage,
                backend=candidate.name,
                device=candidate.device,
                rejected=tuple(rejected),
            )
        rejected.append(candidate)
    if wanted == "auto":
        none = Choice(stage=stage, backend="", device="", rejected=tuple(rejected))
        raise BackendUnavailableError(f"{stage}: {none.fallback_reason}", stage=stage)
    if not rejected:
        raise BackendUnavailableError(f"--{stage}: there is no backend {wanted!r}", stage=stage)
    raise BackendUnavailableError(
        f"--{stage} {wanted} is unavailable: {rejected[0].explanation}", stage=stage
    )


def choose_all(config: BackendConfig) -> dict[str, Choice]:
    """Choose the backend of every stage.

    Raises:
        BackendUnavailableError: As :func:`choose`.
    """
    wanted = {
        "decode": config.decode,
        "infer": config.infer,
        "composite": config.composite,
        "encode": config.encode,
    }
    return {
        stage: choose(stage, wanted[stage].value, gpu=config.gpu, require_gpu=config.require_gpu)
        for stage in STAGES
    }
