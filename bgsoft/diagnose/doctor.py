"""A report of the parts that work on this machine, and how to repair the others."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bgsoft.cuda.driver import driver_version
from bgsoft.diagnose.machine import GpuInfo, attempt, gpu_info, reason_of, video_engines
from bgsoft.errors import BgsoftError, PresetError
from bgsoft.infer.providers import runtime_clash
from bgsoft.models.catalog import catalog, check_files, find_spec, is_present
from bgsoft.records import dataclass
from bgsoft.rendering.backends import Candidate, probe_all
from bgsoft.settings.user import config_path, read_user_config
from bgsoft.threads import usable_cores
from bgsoft.versions import LIBRARIES, installed_version, library_versions

if TYPE_CHECKING:
    from bgsoft.diagnose.checks import Finding
    from bgsoft.diagnose.full import CheckResult
    from bgsoft.diagnose.parity import Parity


ENCODERS = ("libx264", "libx265", "libsvtav1", "libvpx-vp9", "prores_ks", "ffv1")
"""The CPU encoders of bgsoft's codecs."""

_REQUIRED = ("av", "numpy", "cv2", "onnxruntime")
NEVER_RUN = ("inference on TensorRT", "encoding on NVENC")
"""Written from documentation, and never run on such hardware."""


@dataclass(slots=True, kw_only=True)
class DoctorReport:
    """State of the installation and of every backend."""

    versions: dict[str, str | None]
    """None where a package is not installed."""
    import_errors: dict[str, str] = field(default_factory=dict)
    """Installed packages that cannot be loaded, with the reason."""
    ffmpeg: dict[str, str] = field(default_factory=dict)
    """Versions of the FFmpeg libraries inside PyAV."""
    execution_providers: list[str] = field(default_factory=list)
    """Providers in this build of ONNX Runtime."""
    encoders: dict[str, bool]
    """Whether each of :data:`ENCODERS` exists, by name."""
    stages: dict[str, list[Candidate]]
    """Each stage's backends, best first; unavailable where the self-test failed."""
    findings: dict[str, dict[str, Finding]] = field(default_factory=dict)
    """Results of the self-test: stage → backend that worked → finding."""
    gpu: GpuInfo | None = None
    video_engines: dict[str, str] = field(default_factory=dict)
    """See :func:`bgsoft.diagnose.machine.video_engines`."""
    parity: list[Parity] = field(default_factory=list)
    """The GPU's picture stages against the CPU's."""
    full: list[CheckResult] = field(default_factory=list)
    """Rows of ``--full``."""
    models: dict[str, str | None]
    """Embedded and pulled models: name → problem of its files; None: none."""
    config_file: str | None = None
    """The user's defaults; None: there are none."""
    cpu_count: int
    """CPUs that this process may use."""
    operations: str | None = None
    """Variant and compiler of the native operations; None if they cannot be loaded."""
    gpu_driver: str | None
    """Version; None where there is none."""
    problems: list[str] = field(default_factory=list)
    """Obstacles to any render; empty where one works, on the GPU or the CPU."""
    gpu_problems: list[str] = field(default_factory=list)
    """Obstacles to ``bgsoft render --require-gpu``, and differences from the CPU."""
    never_run: tuple[str, ...] = NEVER_RUN

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON types."""
        return dataclasses.asdict(self)


def examine(gpu: int = 0) -> DoctorReport:
    """Examine everything a render needs, and run every backend briefly."""
    report = DoctorReport(
        versions=dict(library_versions()),
        encoders=dict.fromkeys(ENCODERS, False),
        stages=probe_all(gpu),
        models=_check_models(),
        cpu_count=usable_cores(),
        gpu_driver=driver_version(),
    )
    for name in LIBRARIES:
        report.versions[name], error = _package(name)
        if error:
            report.import_errors[name] = error
    usable = {name for name in LIBRARIES if report.versions[name]} - report.import_errors.keys()
    if "av" in usable:
        _ask_pyav(report)
    if "onnxruntime" in usable:
        import onnxruntime

        report.execution_providers = [*map(str, onnxruntime.get_available_providers())]
    if _on_cuda(report):
        report.gpu = attempt(lambda: gpu_info(gpu))
    if usable.issuperset(_REQUIRED):
        from bgsoft.ops.native import description

        report.operations = attempt(description)
        _self_test(report, gpu)
    obstacle: str | None = None
    if report.findings and _on_cuda(report):
        report.parity, obstacle = _parity(gpu)
    if report.gpu is not None and "PyNvVideoCodec" in usable:
        report.video_engines = attempt(lambda: video_engines(gpu)) or {}
    report.problems = _problems(report)
    find_user_config(report)
    report.gpu_problems = _gpu_problems(report.stages, report.parity, obstacle)
    return report


def find_user_config(report: DoctorReport) -> None:
    """Record the file with the user's defaults; an invalid one is a problem."""
    path = config_path()
    try:
        path = read_user_config().path
    except PresetError as exc:
        report.problems.append(str(exc))
    report.config_file = None if path is None else str(path)


def _on_cuda(report: DoctorReport) -> bool:
    return any(c.name == "cuda" and c.available for c in report.stages["composite"])


def _self_test(report: DoctorReport, gpu: int) -> None:
    """Run every backend, and record which ones work."""
    from bgsoft.diagnose.checks import try_candidates

    stages: dict[str, list[Candidate]] = {stage: [] for stage in report.stages}
    with tempfile.TemporaryDirectory(prefix="bgsoft-doctor-") as folder:
        for stage, candidate, found in try_candidates(report.stages, Path(folder), gpu):
            stages[stage].append(candidate)
            if found is not None:
                report.findings.setdefault(stage, {})[candidate.name] = found
    report.stages = stages


def _parity(gpu: int) -> tuple[list[Parity], str | None]:
    """Return the comparisons, and why some could not be made."""
    from bgsoft.diagnose.parity import DeviceUnderTest, measure_parity
    from bgsoft.settings.config import SegmentConfig

    found: list[Parity] = []
    try:
        from bgsoft.cuda.device import CudaDevice

        tested = DeviceUnderTest(CudaDevice(gpu))
        found.extend(measure_parity(tested, find_spec(SegmentConfig().model)))
    except Exception as exc:  # vendors' libraries raise any type
        return found, f"cannot compare GPU and CPU: {reason_of(exc)}"
    return found, None


def _package(name: str) -> tuple[str | None, str | None]:
    """Return (version or None, why it cannot be loaded or None) of a package."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        return None, None
    if spec.origin is None:
        return installed_version(name) or "unknown", "only parts of it are installed"
    try:
        module = importlib.import_module(name)
    except Exception as exc:  # a broken binary package may raise anything
        return installed_version(name) or "unknown", reason_of(exc)
    return str(getattr(module, "__version__", None) or installed_version(name)), None


def _ask_pyav(report: DoctorReport) -> None:
    import av

    for name, version in sorted(av.library_versions.items()):
        report.ffmpeg[name] = ".".join(map(str, version))
    for name in ENCODERS:
        with suppress(av.codec.codec.UnknownCodecError):
            av.Codec(name, "w")
            report.encoders[name] = True


def _check_models() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for spec in catalog().values():
        try:
            if spec.embedded or is_present(spec):
                found[spec.name] = None
                check_files(spec)
        except BgsoftError as exc:
            found[spec.name] = str(exc)
    return found


def _problems(report: DoctorReport) -> list[str]:
    problems = []
    for name in _REQUIRED:
        if report.versions[name] is None:
            problems.append(f"{name} is missing: pip install '.[cpu]' (or '.[gpu]')")
        elif name in report.import_errors:
            problems.append(f"cannot load {name}: {report.import_errors[name]}")
    if not report.encoders["libx264"]:
        problems.append("PyAV has no libx264 encoder: pip install --force-reinstall av")
    problems += {c.explanation: c for found in report.stages.values() for c in found if c.blocks}
    for stage, candidates in report.stages.items():
        if not any(c.available for c in candidates):
            reasons = "; ".join(f"{c.name}: {c.explanation}" for c in reversed(candidates))
            problems.append(f"{stage} cannot run: {reasons}")
    for name, reason in report.models.items():
        if reason is not None and find_spec(name).embedded:
            problems.append(f"{name}: {reason}")
    return problems


def _gpu_problems(
    stages: dict[str, list[Candidate]], parity: Sequence[Parity], obstacle: str | None
) -> list[str]:
    """Return a problem for each stage without a GPU backend, or that differs from the CPU."""
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
