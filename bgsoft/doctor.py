"""What of bgsoft works on this machine, and what to do about the rest."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bgsoft.backends import Candidate, probe_all
from bgsoft.cuda.driver import driver_version
from bgsoft.errors import BgsoftError
from bgsoft.infer.providers import runtime_clash
from bgsoft.machine import DecodeCaps, EncodeCaps, GpuInfo, decode_caps, encode_caps, gpu_info
from bgsoft.models.catalog import catalog, check_files, spec_path
from bgsoft.versions import LIBRARIES, installed_version, library_versions
from bgsoft.workers import usable_cores

if TYPE_CHECKING:
    from bgsoft.selftest.checks import Trial
    from bgsoft.selftest.parity import Parity

__all__ = ["ENCODERS", "NEVER_RUN", "DoctorReport", "ModelCheck", "examine"]

T = TypeVar("T")

ENCODERS = ("libx264", "libx265", "libsvtav1", "libvpx-vp9", "prores_ks", "ffv1")
"""The encoders that bgsoft's codecs stand for on the CPU."""

_REQUIRED = ("av", "numpy", "cv2", "onnxruntime")
NEVER_RUN = ("inference on TensorRT", "encoding on NVENC")
"""Written from documentation: bgsoft's makers had no hardware that has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCheck:
    """Whether one model's files are what the catalogue says."""

    name: str
    embedded: bool
    ok: bool
    reason: str | None = None
    """Why not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorReport:
    """What was found."""

    versions: dict[str, str | None]
    """bgsoft, python, and packages; None where a package is not installed."""
    import_errors: dict[str, str]
    """Installed packages that do not load, and why."""
    ffmpeg: dict[str, str]
    """Versions of the FFmpeg libraries inside PyAV."""
    execution_providers: list[str]
    """What this ONNX Runtime was built with."""
    encoders: dict[str, bool]
    """Whether each of :data:`ENCODERS` is there."""
    stages: dict[str, list[Candidate]]
    """Each stage's backends, best first; unavailable where the self-test failed."""
    trials: list[Trial] = field(default_factory=list)
    """What came of the self-test: one for each of :attr:`stages`, in the same order."""
    gpu: GpuInfo | None = None
    decode_caps: list[DecodeCaps] = field(default_factory=list)
    encode_caps: list[EncodeCaps] = field(default_factory=list)
    parity: list[Parity] = field(default_factory=list)
    """The GPU's picture stages against the CPU's."""
    models: list[ModelCheck]
    """Embedded models, and pulled ones."""
    cpu_count: int
    """CPUs that this process may use."""
    gpu_driver: str | None
    """Version of the NVIDIA driver; None where there is none."""
    problems: list[str]
    """What keeps a render from working; empty where it works, on the GPU or the CPU."""
    gpu_problems: list[str]
    """What ``bgsoft render --require-gpu`` would refuse, or do otherwise than the CPU; empty where
    all stages run on the GPU."""
    never_run: tuple[str, ...] = NEVER_RUN
    """What of bgsoft has never been run by its makers."""

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON types."""
        return dataclasses.asdict(self)


def examine(gpu: int = 0, *, self_test: bool = True) -> DoctorReport:
    """Look at everything a render needs.

    Args:
        gpu: CUDA device number that GPU backends are probed on.
        self_test: Also run every backend for a moment, and compare the GPU with the CPU.
    """
    versions: dict[str, str | None] = dict(library_versions())
    import_errors = {}
    for name in LIBRARIES:
        versions[name], error = _package(name)
        if error:
            import_errors[name] = error
    usable = {name for name in LIBRARIES if versions[name] and name not in import_errors}
    encoders = _encoders() if "av" in usable else dict.fromkeys(ENCODERS, False)
    stages = probe_all(gpu)
    models = _check_models()
    driver = driver_version()
    info: GpuInfo | None = None
    if _offered(stages, "composite", "cuda"):
        info = _attempt(lambda: gpu_info(gpu), None)
    trials: list[Trial] = []
    if self_test and usable.issuperset(_REQUIRED):
        stages, trials = _self_test(stages, gpu)
    parity: list[Parity] = []
    obstacle: str | None = None
    if trials and _offered(stages, "composite", "cuda"):
        parity, obstacle = _parity(gpu)
    video = info is not None and "PyNvVideoCodec" in usable
    return DoctorReport(
        versions=versions,
        import_errors=import_errors,
        ffmpeg=_ffmpeg_libraries() if "av" in usable else {},
        execution_providers=_providers() if "onnxruntime" in usable else [],
        encoders=encoders,
        stages=stages,
        trials=trials,
        gpu=info,
        decode_caps=_attempt(lambda: decode_caps(gpu), []) if video else [],
        encode_caps=_attempt(lambda: encode_caps(gpu), []) if video else [],
        parity=parity,
        models=models,
        cpu_count=usable_cores(),
        gpu_driver=driver,
        problems=_problems(versions, import_errors, encoders, stages, models),
        gpu_problems=_gpu_problems(stages, parity, obstacle),
    )


def _offered(stages: dict[str, list[Candidate]], stage: str, backend: str) -> bool:
    return any(c.name == backend and c.available for c in stages[stage])


def _attempt(question: Callable[[], T], otherwise: T) -> T:
    """The answer, or something else where a vendor's library fails: the rest is still worth it."""
    try:
        return question()
    except Exception:
        return otherwise


def _self_test(
    stages: dict[str, list[Candidate]], gpu: int
) -> tuple[dict[str, list[Candidate]], list[Trial]]:
    """Try every backend; returns the candidates as they turned out to be, and the trials."""
    from bgsoft.selftest.checks import run_trials

    with tempfile.TemporaryDirectory(prefix="bgsoft-doctor-") as folder:
        trials = run_trials(stages, Path(folder), gpu)
    by_backend = {(trial.stage, trial.backend): trial for trial in trials}

    def tried(stage: str, candidate: Candidate) -> Candidate:
        trial = by_backend[stage, candidate.name]
        return dataclasses.replace(
            candidate, available=trial.ok, reason=trial.reason, fix=trial.fix
        )

    return {stage: [tried(stage, c) for c in found] for stage, found in stages.items()}, trials


def _parity(gpu: int) -> tuple[list[Parity], str | None]:
    """The comparisons that could be made, and why not all could."""
    from bgsoft.config import SegmentConfig
    from bgsoft.models.catalog import find_spec
    from bgsoft.selftest.parity import CudaSide, measure_parity

    found: list[Parity] = []
    try:
        from bgsoft.cuda.device import CudaDevice

        side = CudaSide(CudaDevice(gpu))
        found.extend(measure_parity(side, find_spec(SegmentConfig().model)))
    except Exception as exc:  # whatever a vendor's library raises is the answer
        return found, f"GPU and CPU cannot be compared: {type(exc).__name__}: {exc}"
    return found, None


def _package(name: str) -> tuple[str | None, str | None]:
    """(version or None, why it does not load or None) of a package."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        return None, None
    if spec.origin is None:
        return installed_version(name) or "unknown", "only remains of it are installed"
    try:
        module = importlib.import_module(name)
    except Exception as exc:  # a broken binary package may raise anything
        return installed_version(name) or "unknown", f"{type(exc).__name__}: {exc}"
    return str(getattr(module, "__version__", None) or installed_version(name)), None


def _ffmpeg_libraries() -> dict[str, str]:
    import av

    return {
        name: ".".join(str(part) for part in version)
        for name, version in sorted(av.library_versions.items())
    }


def _encoders() -> dict[str, bool]:
    import av
    from av.codec.codec import UnknownCodecError

    found = {}
    for name in ENCODERS:
        try:
            av.Codec(name, "w")
        except UnknownCodecError:
            found[name] = False
        else:
            found[name] = True
    return found


def _providers() -> list[str]:
    import onnxruntime

    return [str(name) for name in onnxruntime.get_available_providers()]


def _check_models() -> list[ModelCheck]:
    checks = []
    for spec in catalog().values():
        if not spec.embedded and not spec_path(spec).is_file():
            continue
        reason = None
        try:
            check_files(spec)
        except BgsoftError as exc:
            reason = str(exc)
        checks.append(
            ModelCheck(name=spec.name, embedded=spec.embedded, ok=reason is None, reason=reason)
        )
    return checks


def _problems(
    versions: dict[str, str | None],
    import_errors: dict[str, str],
    encoders: dict[str, bool],
    stages: dict[str, list[Candidate]],
    models: list[ModelCheck],
) -> list[str]:
    problems = []
    for name in _REQUIRED:
        if versions[name] is None:
            fix = "pip install '.[cpu]' (or '.[gpu]')"
            problems.append(f"{name} is missing: {fix}")
        elif name in import_errors:
            problems.append(f"{name} does not load: {import_errors[name]}")
    if not encoders["libx264"]:
        problems.append("PyAV has no libx264 encoder: pip install --force-reinstall av")
    problems += {c.explanation: c for found in stages.values() for c in found if c.blocks}
    for stage, candidates in stages.items():
        if not any(c.available for c in candidates):
            reasons = "; ".join(f"{c.name}: {c.explanation}" for c in reversed(candidates))
            problems.append(f"{stage} cannot run: {reasons}")
    problems += [f"{m.name}: {m.reason}" for m in models if m.embedded and not m.ok]
    return problems


def _gpu_problems(
    stages: dict[str, list[Candidate]], parity: Sequence[Parity], obstacle: str | None
) -> list[str]:
    """One for each stage that no GPU backend runs, and for each that differs from the CPU's."""
    problems = [
        f"{p.name}: GPU and CPU differ by up to {p.max_difference:.3g} (allowed: {p.tolerance})"
        for p in parity
        if not p.ok
    ]
    if obstacle is not None:
        problems.append(obstacle)
    clash = runtime_clash()
    if clash is not None:
        problems.append(f"{clash.reason}: {clash.fix}")
    for stage, candidates in stages.items():
        on_gpu: Sequence[Candidate] = [c for c in candidates if c.name != "cpu"]
        if not any(c.available for c in on_gpu):
            reasons = "; ".join(f"{c.name}: {c.explanation}" for c in on_gpu)
            problems.append(f"{stage} would run on the CPU: {reasons}")
    return problems
