"""ONNX Runtime's GPU execution providers: their availability and options."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import importlib.util
import io
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bgsoft.errors import BackendUnavailableError, errors_as
from bgsoft.records import NamedTuple
from bgsoft.settings.config import Precision
from bgsoft.startup import span

if TYPE_CHECKING:
    from bgsoft.infer.base import GpuModel

PROVIDERS = {"tensorrt": "TensorrtExecutionProvider", "cuda": "CUDAExecutionProvider"}
"""Backend name → ONNX Runtime's name."""

CUDA_OPTIONS = {
    # EXHAUSTIVE makes a run of 8 a sixth faster (0.80 instead of 0.95 ms for the plain file on an
    # H100), but the first frame waits two seconds for it.
    "cudnn_conv_algo_search": "HEURISTIC",
    "arena_extend_strategy": "kSameAsRequested",
    # Full float32, so that masks agree with the CPU's.
    "use_tf32": "0",
}
"""Options of every session on CUDA."""

_TENSORRT_LIBRARIES = ("libnvinfer.so.10", "libnvonnxparser.so.10")
"""Libraries that ONNX Runtime's provider is linked against, in order of their dependence."""
_TENSORRT_MIN_VERSION = (10, 14)
"""Version that ONNX Runtime was compiled against: an older library lacks functions it calls."""
_PACKAGES = ("onnxruntime", "onnxruntime_gpu")
"""Distributions that install into the same folder."""
_FIRST_CUDA13_RUNTIME = (1, 27)

ORT_ERRORS = (Exception,)
"""ONNX Runtime raises types that it does not export."""
ort_errors_as = functools.partial(errors_as, ORT_ERRORS)


class Missing(NamedTuple):
    """Reason why a provider cannot run, and its fix."""

    reason: str
    fix: str | None = None


def runtime_problem() -> Missing | None:
    """Return why ONNX Runtime cannot be imported, without importing it; None if it can."""
    spec = importlib.util.find_spec("onnxruntime")
    if spec is None:
        return Missing(
            "ONNX Runtime is missing", "pip install '.[cpu]' (or '.[gpu]' with an NVIDIA GPU)"
        )
    if spec.origin is None:  # the folder exists without the package's __init__.py
        return Missing("ONNX Runtime is damaged", _reinstall(_distributions(spec)))
    return None


def require_runtime() -> None:
    """Raise BackendUnavailableError if no ONNX Runtime is installed."""
    problem = runtime_problem()
    if problem is not None:
        raise BackendUnavailableError(f"{problem.reason}: {problem.fix}")


def runtime_clash() -> Missing | None:
    """Return the problem if both packages of ONNX Runtime are installed: they share files."""
    spec = importlib.util.find_spec("onnxruntime")
    installed = {} if spec is None else _distributions(spec)
    if len(installed) < len(_PACKAGES):
        return None
    return Missing(
        "onnxruntime and onnxruntime-gpu are both installed, and overwrite each other",
        _reinstall(installed),
    )


def _distributions(spec: Any) -> dict[str, str]:
    """Return version by name of ONNX Runtime's packages; reading package metadata is slower."""
    folders = [Path(place).parent for place in spec.submodule_search_locations or ()]
    parts = [info.stem.partition("-") for at in folders for info in at.glob("*.dist-info")]
    return {name: version for name, _, version in parts if name in _PACKAGES}


def _reinstall(installed: Mapping[str, str]) -> str:
    version = installed.get("onnxruntime_gpu")
    numbers = (int(part) for part in (version or "").split(".")[:2] if part.isdigit())
    cuda13 = tuple(numbers) >= _FIRST_CUDA13_RUNTIME
    extra = "cpu" if version is None else "gpu-cu13" if cuda13 else "gpu"
    return f"pip uninstall -y onnxruntime onnxruntime-gpu && pip install '.[{extra}]'"


@functools.cache
def missing_provider(backend: str) -> Missing | None:
    """Return why ``tensorrt`` or ``cuda`` cannot run here; None if no reason is known."""
    problem = runtime_problem()
    if problem is not None:
        return problem
    import onnxruntime as ort

    if PROVIDERS[backend] not in ort.get_available_providers():
        return Missing(
            f"this ONNX Runtime {ort.__version__} is built without it",
            "pip uninstall -y onnxruntime && pip install '.[gpu]'",
        )
    preload_libraries()
    return _missing_tensorrt() if backend == "tensorrt" else None


def _missing_tensorrt() -> Missing | None:
    import onnxruntime as ort

    cuda13 = str(getattr(ort, "cuda_version", "")).startswith("13")
    fix = "pip install '.[gpu-cu13,tensorrt-cu13]'" if cuda13 else "pip install '.[gpu,tensorrt]'"
    # The package loads all its libraries, also those that TensorRT opens to build engines.
    with contextlib.suppress(ImportError):
        importlib.import_module("tensorrt_libs")
    for library in _TENSORRT_LIBRARIES:
        if not _loads(library):
            return Missing(f"{library} not found", fix)
    if _tensorrt_numbers() < _TENSORRT_MIN_VERSION:
        least = ".".join(map(str, _TENSORRT_MIN_VERSION))
        return Missing(f"TensorRT {tensorrt_version()} is older than {least}", fix)
    return None


_PRELOADING = threading.Lock()
"""Serialises redirection of standard output: two threads at once would leave it redirected."""


def preload_libraries() -> None:
    """Load CUDA's and cuDNN's libraries from NVIDIA's Python packages, if installed.

    ONNX Runtime's provider library is linked against them and does not search there.
    """
    with _PRELOADING:
        _preload()


@functools.cache
def _preload() -> None:
    import onnxruntime as ort

    if hasattr(ort, "preload_dlls"):
        # It prints which libraries are missing; a session reports what matters.
        with span("CUDA libraries"), contextlib.redirect_stdout(io.StringIO()):
            ort.preload_dlls()


def _loads(library: str) -> bool:
    """Load a TensorRT library that is loaded, known to the system, or in its package."""
    spec = importlib.util.find_spec("tensorrt_libs")
    folders = (spec.submodule_search_locations or ()) if spec else ()
    for name in (library, *(str(Path(folder) / library) for folder in folders)):
        with contextlib.suppress(OSError):
            ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
            return True
    return False


def loader_problem(provider: str) -> str | None:
    """Return the system's reason why a provider library does not load.

    Call it after ONNX Runtime has failed: loaded earlier, the library would not work.
    """
    import onnxruntime as ort

    name = provider.removesuffix("ExecutionProvider").lower()
    folder = Path(ort.__file__).parent / "capi"
    try:
        ctypes.CDLL(str(folder / f"libonnxruntime_providers_{name}.so"))
    except OSError as exc:
        return str(exc)
    return None


def provider_options(model: GpuModel, stream: int | None, *, graphs: bool = True) -> dict[str, str]:
    """Return the options of a model's provider, named as in ONNX Runtime's documentation.

    Args:
        model: Shapes, precision and provider.
        stream: Handle of the stream of all work. None: the provider has its own and replays no
            graph, as a model on several providers needs.
        graphs: Replay as a CUDA graph.
    """
    options = {"device_id": str(model.device.number)}
    if stream is None:
        graphs = False
    else:
        options["user_compute_stream"] = str(stream)
    if model.backend == "cuda":
        return options | CUDA_OPTIONS | {"enable_cuda_graph": str(int(graphs))}
    # TensorRT's switches must be spelled True and False.
    options |= {
        "trt_fp16_enable": str(model.precision is Precision.FP16),
        "trt_cuda_graph_enable": str(graphs),
        "trt_builder_optimization_level": "3",
    }
    # A larger run would fail, not rebuild the engine.
    largest = model.largest_batch or next(iter(model.shapes.values()))[0]
    for name, batch in (("min", 1), ("opt", largest), ("max", largest)):
        options[f"trt_profile_{name}_shapes"] = ",".join(
            f"{tensor}:{'x'.join(map(str, (batch, *shape[1:])))}"
            for tensor, shape in model.shapes.items()
        )
    return options


def _tensorrt_numbers() -> tuple[int, int, int]:
    library: Any = ctypes.CDLL(_TENSORRT_LIBRARIES[0])
    number = library.getInferLibVersion()  # 10 and later: major · 10000 + minor · 100 + patch
    return number // 10000, number // 100 % 100, number % 100


def tensorrt_version() -> str:
    """Return the version of the TensorRT library, e.g. ``10.14.1``; it must be loaded."""
    return ".".join(map(str, _tensorrt_numbers()))
