"""The registry of backends: which exist for each stage, in which order, and what runs here.

``auto`` takes the first candidate that is available. A backend that the user names, or a CPU
choice under ``require_gpu``, is an error instead of a fallback.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from bgsoft.config import BackendConfig
from bgsoft.cuda.driver import NO_GPU, cuda_number, driver_problem, shown_number
from bgsoft.errors import BackendUnavailableError
from bgsoft.startup import span

__all__ = [
    "STAGES",
    "Candidate",
    "Choice",
    "chosen_gpu",
    "create",
    "driver_problem",
    "first_available",
    "may_use_gpu",
    "names",
    "probe_all",
]

T = TypeVar("T")

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
    blocks: bool = False
    """Whether the installation is at fault, so that to fall back would hide it."""

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


def chosen_gpu(named: int | None) -> int:
    """The device to use where there is one; a GPU that was named has to be there.

    Args:
        named: The GPU as the user counts; None: nobody cares which.

    Returns:
        CUDA's number of it.

    Raises:
        BackendUnavailableError: There is no such GPU.
    """
    if named is None:
        return 0
    number = cuda_number(named)
    problem = driver_problem(number)
    if problem == NO_GPU and number != named:
        problem = f"there is no GPU {named} here"
    if problem is not None:
        raise BackendUnavailableError(f"--gpu {named}: {problem}")
    return number


_GPU_EXTRA = "pip install '.[gpu]' (CUDA 12) or '.[gpu-cu13]' (CUDA 13)"


def _gpu_problem(gpu: int, *modules: str) -> tuple[str, str | None] | None:
    """(reason, fix) where driver, device or a Python module is missing."""
    reason = driver_problem(gpu)
    if reason is not None:
        return reason, None
    for module in modules:
        if importlib.util.find_spec(module) is None:
            return f"{module} is missing", _GPU_EXTRA
    if "cupy" in modules:
        try:
            with span("import cupy"):
                importlib.import_module("cupy")
        except Exception as exc:  # a broken installation may raise anything
            return f"cupy does not load: {exc.__cause__ or exc}", _GPU_EXTRA
    return None


def _gpu_entry(name: str, *modules: str) -> _Entry:
    """A GPU backend that needs some Python modules; what more it needs shows when it is made."""

    def probe(gpu: int) -> Candidate:
        problem = _gpu_problem(gpu, *modules)
        return _candidate(name, gpu, problem)

    return _Entry(name, probe)


def _gpu_inference(name: str) -> _Entry:
    def probe(gpu: int) -> Candidate:
        from bgsoft.infer.providers import missing_provider, runtime_clash

        problem = _gpu_problem(gpu)
        clash = runtime_clash() if problem is None else None
        if clash is not None:
            return replace(_candidate(name, gpu, (clash.reason, clash.fix)), blocks=True)
        problem = problem or _gpu_problem(gpu, "cupy")
        if problem is None:
            missing = missing_provider(name)
            problem = None if missing is None else (missing.reason, missing.fix)
        return _candidate(name, gpu, problem)

    return _Entry(name, probe)


def _candidate(name: str, gpu: int, problem: tuple[str, str | None] | None) -> Candidate:
    reason, fix = problem or (None, None)
    return Candidate(
        name=name,
        device=f"cuda:{shown_number(gpu)}",
        available=problem is None,
        reason=reason,
        fix=fix,
    )


def _cpu_entry() -> _Entry:
    return _Entry("cpu", lambda _gpu: Candidate(name="cpu", device="cpu", available=True))


def _probe_cpu_inference(_gpu: int) -> Candidate:
    from bgsoft.infer.providers import runtime_problem

    missing = runtime_problem()
    if missing is None:
        return Candidate(name="cpu", device="cpu", available=True)
    return Candidate(
        name="cpu", device="cpu", available=False, reason=missing.reason, fix=missing.fix
    )


_REGISTRY: dict[str, tuple[_Entry, ...]] = {
    "decode": (_gpu_entry("nvdec", "cupy", "PyNvVideoCodec"), _cpu_entry()),
    "infer": (
        _gpu_inference("tensorrt"),
        _gpu_inference("cuda"),
        _Entry("cpu", _probe_cpu_inference),
    ),
    "composite": (_gpu_entry("cuda", "cupy"), _cpu_entry()),
    "encode": (_gpu_entry("nvenc", "cupy", "PyNvVideoCodec"), _cpu_entry()),
}


def probe_all(gpu: int = 0) -> dict[str, list[Candidate]]:
    """Every stage's candidates, best first.

    Args:
        gpu: CUDA device number that GPU candidates are probed on.
    """
    return {stage: [entry.probe(gpu) for entry in _REGISTRY[stage]] for stage in STAGES}


def may_use_gpu(config: BackendConfig) -> bool:
    """Whether a GPU would be used if it were there; tells nothing of whether it is."""
    wanted = {getattr(config, stage) for stage in STAGES}
    return wanted != {"cpu"} and importlib.util.find_spec("cupy") is not None


def names(stage: str) -> tuple[str, ...]:
    """The backends of a stage, best first."""
    return tuple(entry.name for entry in _REGISTRY[stage])


def first_available(stage: str, wanted: str, gpu: int = 0) -> str:
    """What :func:`create` would make first; what it makes in the end may be another.

    Args:
        stage: One of :data:`STAGES`.
        wanted: ``auto`` or a backend's name.
        gpu: CUDA device number.
    """
    for entry in _REGISTRY[stage]:
        if wanted in ("auto", entry.name) and entry.probe(gpu).available:
            return entry.name
    return "cpu"


def create(
    stage: str,
    wanted: str,
    makers: Mapping[str, Callable[[], T]],
    *,
    gpu: int = 0,
    require_gpu: bool = False,
) -> tuple[Choice, T]:
    """Make the backend of one stage, the best that works.

    A candidate that is available in general may still refuse when it is made (a codec that NVDEC
    lacks, a GPU without NVENC): under ``auto`` the next one is tried then.

    Args:
        stage: One of :data:`STAGES`.
        wanted: ``auto`` or a backend's name.
        makers: By backend name, what makes it; raises BackendUnavailableError where it cannot run.
        gpu: CUDA device number.
        require_gpu: Make a CPU choice an error.

    Returns:
        The choice, and what its maker returned.

    Raises:
        BackendUnavailableError: The named backend, or every backend, is unavailable; or only the
            CPU is left under ``require_gpu``; or the installation is at fault.
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
        if candidate.blocks:
            raise BackendUnavailableError(candidate.explanation, stage=stage)
        if candidate.available:
            try:
                made = makers[entry.name]()
            except BackendUnavailableError as exc:
                candidate = replace(candidate, available=False, reason=exc.message, fix=None)
            else:
                choice = Choice(
                    stage=stage,
                    backend=candidate.name,
                    device=candidate.device,
                    rejected=tuple(rejected),
                )
                return choice, made
        rejected.append(candidate)
    if wanted == "auto":
        none = Choice(stage=stage, backend="", device="", rejected=tuple(rejected))
        raise BackendUnavailableError(f"{stage}: {none.fallback_reason}", stage=stage)
    if not rejected:
        raise BackendUnavailableError(f"--{stage}: there is no backend {wanted!r}", stage=stage)
    raise BackendUnavailableError(
        f"--{stage} {wanted} is unavailable: {rejected[0].explanation}", stage=stage
    )
