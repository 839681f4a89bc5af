"""What of bgsoft works on this machine, and what to do about the rest."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import os
import platform
import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import bgsoft
from bgsoft.backends import Candidate, probe_all
from bgsoft.errors import BgsoftError
from bgsoft.models import cache
from bgsoft.models.catalog import catalog, spec_path

__all__ = ["ENCODERS", "DoctorReport", "ModelCheck", "examine"]

ENCODERS = ("libx264", "libx265", "libsvtav1", "libvpx-vp9", "prores_ks", "ffv1")
"""The encoders that bgsoft's codecs stand for on the CPU."""

_PACKAGES = ("av", "numpy", "cv2", "onnxruntime", "cupy", "PyNvVideoCodec")
_REQUIRED = ("av", "numpy", "cv2", "onnxruntime")
_DISTRIBUTIONS = {"cv2": ("opencv-python-headless", "opencv-python")}
_DRIVER_FILE = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCheck:
    """Whether one model's file is what the catalogue says."""

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
    """Each stage's backends, best first."""
    models: list[ModelCheck]
    """Embedded models, and pulled ones."""
    cpu_count: int
    """CPUs that this process may use."""
    gpu_driver: str | None
    """Version of the NVIDIA driver; None where there is none."""
    problems: list[str]
    """What keeps a render on the CPU from working; empty where it works."""

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON types."""
        return dataclasses.asdict(self)


def examine(gpu: int = 0) -> DoctorReport:
    """Look at everything a render needs.

    Args:
        gpu: CUDA device number that GPU backends are probed on.
    """
    versions: dict[str, str | None] = {
        "bgsoft": bgsoft.__version__,
        "python": platform.python_version(),
    }
    import_errors = {}
    for name in _PACKAGES:
        versions[name], error = _package(name)
        if error:
            import_errors[name] = error
    usable = {name for name in _PACKAGES if versions[name] and name not in import_errors}
    encoders = _encoders() if "av" in usable else dict.fromkeys(ENCODERS, False)
    stages = probe_all(gpu)
    models = _check_models()
    return DoctorReport(
        versions=versions,
        import_errors=import_errors,
        ffmpeg=_ffmpeg_libraries() if "av" in usable else {},
        execution_providers=_providers() if "onnxruntime" in usable else [],
        encoders=encoders,
        stages=stages,
        models=models,
        cpu_count=_cpu_count(),
        gpu_driver=_gpu_driver(),
        problems=_problems(versions, import_errors, encoders, stages, models),
    )


def _package(name: str) -> tuple[str | None, str | None]:
    """(version or None, why it does not load or None) of a package."""
    if importlib.util.find_spec(name) is None:
        return None, None
    try:
        module = importlib.import_module(name)
    except Exception as exc:  # a broken binary package may raise anything
        return _distribution_version(name) or "unknown", f"{type(exc).__name__}: {exc}"
    return str(getattr(module, "__version__", None) or _distribution_version(name)), None


def _distribution_version(name: str) -> str | None:
    for distribution in _DISTRIBUTIONS.get(name, (name,)):
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None


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
        path = spec_path(spec)
        if not spec.embedded and not path.is_file():
            continue
        reason = None
        try:
            cache.check_file(path, size_bytes=spec.bytes, sha256=spec.sha256 or "")
        except BgsoftError as exc:
            reason = str(exc)
        checks.append(
            ModelCheck(name=spec.name, embedded=spec.embedded, ok=reason is None, reason=reason)
        )
    return checks


def _cpu_count() -> int:
    # A container or taskset may leave fewer than the machine has.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _gpu_driver() -> str | None:
    try:
        text = _DRIVER_FILE.read_text(encoding="utf-8")
    except OSError:
        return None
    version = re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", text)
    return version.group() if version else "unknown"


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
            fix = "pip install 'bgsoft[cpu]' (or 'bgsoft[gpu]')"
            problems.append(f"{name} is missing: {fix}")
        elif name in import_errors:
            problems.append(f"{name} does not load: {import_errors[name]}")
    if not encoders["libx264"]:
        problems.append("PyAV has no libx264 encoder: pip install --force-reinstall av")
    for stage, candidates in stages.items():
        if not any(c.available and c.name == "cpu" for c in candidates):
            reason = next((c.reason for c in candidates if c.name == "cpu"), "no CPU backend")
            problems.append(f"{stage} cannot run on the CPU: {reason}")
    problems += [f"{m.name}: {m.reason}" for m in models if m.embedded and not m.ok]
    return problems
