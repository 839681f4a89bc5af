"""The registry of backends: which exist for each stage, in which order, and what runs here.

``auto`` takes the first candidate that is available. A backend that the user names, or a CPU
choice under ``require_gpu``, is an error instead of a fallback.
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


class Choice(NamedTuple):
    """The backend chosen for one stage."""

    backend: str
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


class Backend(NamedTuple):
    """One way to run a stage."""

    maker: str = ""
    """``module:function`` that makes it, imported when it is first wanted:

    - decode: (path, settings, info, resources) → :class:`bgsoft.decode.base.Decoder`;
    - composite: (resources, batch) → :class:`bgsoft.rendering.host.HostStages` or their like;
    - encode: (muxer, config, info, kind, resources) → :class:`bgsoft.encode.base.Encoder`;
    - infer has none: :class:`bgsoft.infer.loading.NetworkLoader` knows its providers.

    ``resources`` is a :class:`bgsoft.resources.Resources`.
    """
    needs: tuple[str, ...] = ()
    """Python modules that it needs, where it works on a GPU."""
    encodes_matte_out: bool = False
    """Whether the file of ``--matte-out`` is encoded by it."""


_CUDA = ("cupy",)
_VIDEO = ("cupy", "PyNvVideoCodec")
REGISTRY: dict[str, dict[str, Backend]] = {
    "decode": {
        "nvdec": Backend("bgsoft.decode.nvdec:open_decoder", _VIDEO),
        "cpu": Backend("bgsoft.decode.cpu:open_decoder"),
    },
    "infer": {
        "tensorrt": Backend(needs=_CUDA),
        "cuda": Backend(needs=_CUDA),
        "cpu": Backend(),
    },
    "composite": {
        "cuda": Backend("bgsoft.rendering.device:DeviceStages", _CUDA),
        "cpu": Backend("bgsoft.rendering.host:HostStages"),
    },
    "encode": {
        "nvenc": Backend("bgsoft.encode.nvenc:open_encoder", _VIDEO),
        "cpu": Backend("bgsoft.encode.cpu:open_encoder", encodes_matte_out=True),
    },
}
"""The backends of each stage by name, best first. A new one: its maker, a line here, and its name
among the settings."""


def chosen_gpu(named: int | None) -> int:
    """CUDA's number of the GPU to use; ``named`` is the user's, None: the first, if there is one.

    Raises:
        BackendUnavailableError: The GPU that was named is not there.
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


def probe(stage: str, name: str, gpu: int = 0) -> Candidate:
    """Whether a backend can run here in general; making it may still fail."""
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
    """Which Python module is missing, or does not load."""
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
    """Every stage's candidates, best first; those for a GPU on this one."""
    return {stage: [probe(stage, name, gpu) for name in names(stage)] for stage in STAGES}


def may_use_gpu(config: BackendConfig) -> bool:
    """Whether a GPU would be used if there were one; there may be none."""
    wanted = {getattr(config, stage) for stage in STAGES}
    return wanted != {"cpu"} and importlib.util.find_spec("cupy") is not None


def names(stage: str) -> tuple[str, ...]:
    """The backends of a stage, best first."""
    return tuple(REGISTRY[stage])


def on_gpu(stage: str, name: str) -> bool:
    """Whether a backend works on a GPU."""
    return bool(REGISTRY[stage][name].needs)


def matte_out_encoder() -> str:
    """The backend that encodes ``--matte-out``."""
    return next(name for name, each in REGISTRY["encode"].items() if each.encodes_matte_out)


def maker(stage: str, name: str) -> Callable[..., Any]:
    """What makes a backend; see :attr:`Backend.maker`."""
    module, _, attribute = REGISTRY[stage][name].maker.partition(":")
    made: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return made


def first_available(stage: str, wanted: str) -> str:
    """What :func:`create` would make first; what it makes in the end may be another."""
    candidates = (name for name in names(stage) if wanted in ("auto", name))
    return next((name for name in candidates if probe(stage, name).available), "cpu")


def create(
    stage: str, config: BackendConfig, make: Callable[[str], T], gpu: int = 0
) -> tuple[Choice, T]:
    """Make the backend of one stage, the best that works.

    A candidate that is available in general may still refuse when it is made (a codec that NVDEC
    lacks, a GPU without NVENC): under ``auto`` the next one is tried then.

    Args:
        stage: One of :data:`STAGES`.
        config: What is wanted: for each stage ``auto`` or a backend's name.
        make: Makes a backend by its name; raises BackendUnavailableError where it cannot run.
        gpu: CUDA device number.

    Returns:
        The choice, and what ``make`` returned.

    Raises:
        BackendUnavailableError: The named backend, or every backend, is unavailable; or only the
            CPU is left under ``require_gpu``; or the installation is at fault.
    """
    rejected: list[Candidate] = []
    wanted = getattr(config, stage)
    for name in names(stage):
        if wanted not in ("auto", name):
            continue
        if config.require_gpu and name == "cpu":
            passed_over = Choice("cpu", tuple(rejected)).fallback_reason
            why = passed_over or f"--{stage} cpu was asked for"
            raise BackendUnavailableError(
                f"--require-gpu: {stage} would run on the CPU: {why}", stage=stage
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
        raise BackendUnavailableError(f"{stage}: {reason}", stage=stage)
    if not rejected:
        raise BackendUnavailableError(f"--{stage}: there is no backend {wanted!r}", stage=stage)
    raise BackendUnavailableError(
        f"--{stage} {wanted} is unavailable: {rejected[0].explanation}", stage=stage
    )
