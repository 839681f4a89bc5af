"""The registry of backends of each stage, best first, and the choice among them.

``auto`` takes the first available candidate. If a named backend is unavailable, or only the CPU is
left under ``require_gpu``, an error is raised instead of a fallback.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from bgsoft.cuda.driver import NO_GPU, cuda_number, driver_problem, shown_number
from bgsoft.errors import BackendUnavailableError
from bgsoft.records import NamedTuple, dataclass
from bgsoft.settings.config import BackendConfig
from bgsoft.startup import span

T = TypeVar("T")

STAGES = ("decode", "infer", "composite", "encode")
"""Stages with their own backend; matte uses that of composite, face that of infer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One backend of one stage, with its availability on this machine."""

    name: str
    """Name on the command line."""
    device: str
    """``cpu`` or ``cuda:N``."""
    available: bool
    reason: str | None = None
    """Reason if it is not available."""
    fix: str | None = None
    """Remedy for the user, if there is one."""
    blocks: bool = False
    """True: the installation is broken, which a fallback would hide."""

    @property
    def explanation(self) -> str:
        """Reason and fix in one text; empty if the candidate is available."""
        return ": ".join(part for part in (self.reason, self.fix) if part)


class Choice(NamedTuple):
    """The backend chosen for one stage."""

    backend: str
    rejected: tuple[Candidate, ...] = ()
    """Better candidates that are unavailable; empty if the first or the named one runs."""

    @property
    def fallback_reason(self) -> str | None:
        """Reasons why better candidates were skipped, each once; None if none was."""
        by_reason: dict[str, list[str]] = {}
        for candidate in self.rejected:
            by_reason.setdefault(candidate.explanation, []).append(candidate.name)
        parts = [f"{', '.join(names)}: {reason}" for reason, names in by_reason.items()]
        return "; ".join(parts) or None


class Backend(NamedTuple):
    """One way to run a stage."""

    maker: str = ""
    """``module:function`` that makes the backend, imported at first use:

    - decode: (path, settings, info, resources) → :class:`bgsoft.decode.base.Decoder`;
    - composite: (resources, batch) → :class:`bgsoft.rendering.host.HostStages` or another maker;
    - encode: (muxer, config, info, kind, resources) → :class:`bgsoft.encode.base.Encoder`;
    - infer has none: :class:`bgsoft.infer.loading.NetworkLoader` knows its providers.

    ``resources`` is a :class:`bgsoft.resources.Resources`.
    """
    needs: tuple[str, ...] = ()
    """Python modules that a backend on a GPU needs; empty for the CPU."""
    encodes_matte_out: bool = False
    """True: it encodes the file of ``--matte-out``."""


_CUDA = ("cupy",)
_VIDEO = ("cupy", "PyNvVideoCodec")
REGISTRY: dict[str, dict[str, Backend]] = {
    "decode": {
        "nvdec": Backend("bgsoft.decode.nvdec:open_decoder", _VIDEO),
        "cpu": Backend("bgsoft.decode.cpu:open_decoder"),
    },
    "infer": {"tensorrt": Backend(needs=_CUDA), "cuda": Backend(needs=_CUDA), "cpu": Backend()},
    "composite": {
        "cuda": Backend("bgsoft.rendering.device:DeviceStages", _CUDA),
        "cpu": Backend("bgsoft.rendering.host:HostStages"),
    },
    "encode": {
        "nvenc": Backend("bgsoft.encode.nvenc:open_encoder", _VIDEO),
        "cpu": Backend("bgsoft.encode.cpu:open_encoder", encodes_matte_out=True),
    },
}
"""The backends of each stage by name, best first.

To add one, write its maker, add a line here, and add its name to the settings."""


def chosen_gpu(named: int | None) -> int:
    """Return CUDA's number of the GPU that the user named, or 0 if ``named`` is None.

    Raises:
        BackendUnavailableError: The named GPU does not exist.
    """
    if named is None:
        return 0
    number = cuda_number(named)
    problem = driver_problem(number)
    if problem == NO_GPU and number != named:
        problem = f"there is no GPU {named} here"
    if problem is not None:
        raise BackendUnavailableError(f"cannot use --gpu {named}: {problem}")
    return number


_GPU_EXTRA = "pip install '.[gpu]' (CUDA 12) or '.[gpu-cu13]' (CUDA 13)"


def probe(stage: str, name: str, gpu: int = 0) -> Candidate:
    """Return a backend's availability on this machine; making it may still fail."""
    needs = REGISTRY[stage][name].needs
    reason, fix, blocks = driver_problem(gpu) if needs else None, None, False
    if reason is None and stage == "infer":
        from bgsoft.infer.providers import runtime_clash, runtime_problem

        missing = runtime_clash() if needs else runtime_problem()
        if missing is not None:
            reason, fix, blocks = missing.reason, missing.fix, bool(needs)
    if reason is None and needs:
        reason = _module_problem(*needs)
        fix = None if reason is None else _GPU_EXTRA
    if reason is None and needs and stage == "infer":
        from bgsoft.infer.providers import missing_provider

        missing = missing_provider(name)
        if missing is not None:
            reason, fix = missing.reason, missing.fix
    return Candidate(
        name=name,
        device=f"cuda:{shown_number(gpu)}" if needs else "cpu",
        available=reason is None,
        reason=reason,
        fix=fix,
        blocks=blocks,
    )


def _module_problem(*modules: str) -> str | None:
    """Return a text about a Python module that is missing or does not load, or None."""
    missing = next((each for each in modules if importlib.util.find_spec(each) is None), None)
    if missing is not None:
        return f"{missing} is missing"
    try:
        with span("import cupy"):
            importlib.import_module("cupy")
    except Exception as exc:  # a broken installation may raise anything
        return f"cupy does not load: {exc.__cause__ or exc}"
    return None


def probe_all(gpu: int = 0) -> dict[str, list[Candidate]]:
    """Return the candidates of every stage, best first, for one GPU."""
    return {stage: [probe(stage, name, gpu) for name in names(stage)] for stage in STAGES}


def may_use_gpu(config: BackendConfig) -> bool:
    """Return True if the settings allow a GPU; the machine may have none."""
    wanted = {getattr(config, stage) for stage in STAGES}
    return wanted != {"cpu"} and importlib.util.find_spec("cupy") is not None


def names(stage: str) -> tuple[str, ...]:
    """Return the names of a stage's backends, best first."""
    return tuple(REGISTRY[stage])


def on_gpu(stage: str, name: str) -> bool:
    """Return True if a backend works on a GPU."""
    return bool(REGISTRY[stage][name].needs)


def matte_out_encoder() -> str:
    """Return the name of the backend that encodes ``--matte-out``."""
    return next(name for name, each in REGISTRY["encode"].items() if each.encodes_matte_out)


def maker(stage: str, name: str) -> Callable[..., Any]:
    """Return the function that makes a backend; see :attr:`Backend.maker`."""
    module, _, attribute = REGISTRY[stage][name].maker.partition(":")
    made: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return made


def first_available(stage: str, wanted: str) -> str:
    """Return the backend that :func:`create` would try first."""
    candidates = (name for name in names(stage) if wanted in ("auto", name))
    return next((name for name in candidates if probe(stage, name).available), "cpu")


def create(
    stage: str, config: BackendConfig, make: Callable[[str], T], gpu: int = 0
) -> tuple[Choice, T]:
    """Make the best backend of one stage that works.

    An available candidate may still fail when it is made, such as for a codec that NVDEC lacks.
    ``auto`` then tries the next one.

    Args:
        stage: One of :data:`STAGES`.
        config: For each stage, ``auto`` or a backend's name.
        make: Makes a backend by its name; raises BackendUnavailableError if it cannot run.
        gpu: CUDA device number.

    Returns:
        The choice, and what ``make`` returned.

    Raises:
        BackendUnavailableError: The named backend, or every backend, is unavailable; or only the
            CPU is left under ``require_gpu``; or the installation is broken.
    """
    rejected: list[Candidate] = []
    wanted = getattr(config, stage)
    for name in names(stage):
        if wanted not in ("auto", name):
            continue
        if config.require_gpu and name == "cpu":
            passed_over = Choice("cpu", tuple(rejected)).fallback_reason
            why = passed_over or f"--{stage} cpu was given"
            raise BackendUnavailableError(
                f"cannot satisfy --require-gpu: {stage} would run on the CPU: {why}", stage=stage
            )
        candidate = probe(stage, name, gpu)
        if candidate.blocks:
            raise BackendUnavailableError(candidate.explanation, stage=stage)
        if candidate.available:
            try:
                made = make(name)
            except BackendUnavailableError as exc:
                candidate = replace(candidate, available=False, reason=exc.message, fix=None)
            else:
                return Choice(name, tuple(rejected)), made
        rejected.append(candidate)
    if wanted == "auto":
        reason = Choice("", tuple(rejected)).fallback_reason
        raise BackendUnavailableError(f"cannot run {stage}: {reason}", stage=stage)
    if not rejected:
        raise BackendUnavailableError(f"cannot use --{stage}: no backend {wanted!r}", stage=stage)
    raise BackendUnavailableError(
        f"cannot use --{stage} {wanted}: {rejected[0].explanation}", stage=stage
    )
