"""ONNX Runtime's GPU execution providers: whether they can run here, and their options."""

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
    # EXHAUSTIVE makes a run of 8 a sixth faster (the plain file's 0.80 against 0.95 ms on an H100),
    # but the first frame waits two seconds for it.
    "cudnn_conv_algo_search": "HEURISTIC",
    "arena_extend_strategy": "kSameAsRequested",
    # Full float32, so that masks agree with the CPU's.
    "use_tf32": "0",
}
"""Of every session on CUDA."""

_TENSORRT_LIBRARIES = ("libnvinfer.so.10", "libnvonnxparser.so.10")
"""ONNX Runtime's provider is linked against them; in the order of their dependence."""
_TENSORRT_MIN_VERSION = (10, 14)
"""ONNX Runtime was compiled against it: calls into an older library would go astray."""
_PACKAGES = ("onnxruntime", "onnxruntime_gpu")
"""Distributions that own the same folder."""
_FIRST_CUDA13_RUNTIME = (1, 27)

ORT_ERRORS = (Exception,)
"""ONNX Runtime raises types that it does not export."""
ort_errors_as = functools.partial(errors_as, ORT_ERRORS)


class Missing(NamedTuple):
    """Why a provider cannot run."""

    reason: str
    fix: str | None = None


def runtime_problem() -> Missing | None:
    """Why there is no ONNX Runtime at all, without importing it; None where there is."""
    spec = importlib.util.find_spec("onnxruntime")
    if spec is None:
        return Missing(
            "ONNX Runtime is missing", "pip install '.[cpu]' (or '.[gpu]' with an NVIDIA GPU)"
        )
    if spec.origin is None:  # the folder is there, what makes it a package is not
        return Missing("ONNX Runtime is damaged", _reinstall(_distributions(spec)))
    return None


def require_runtime() -> None:
    """Raise BackendUnavailableError where bgsoft was installed without a runtime for models."""
    problem = runtime_problem()
    if problem is not None:
        raise BackendUnavailableError(f"{problem.reason}: {problem.fix}")


def runtime_clash() -> Missing | None:
    """The problem where both of ONNX Runtime's packages are installed: they share their files."""
    spec = importlib.util.find_spec("onnxruntime")
    installed = {} if spec is None else _distributions(spec)
    if len(installed) < len(_PACKAGES):
        return None
    return Missing(
        "onnxruntime and onnxruntime-gpu are both installed, and overwrite each other",
        _reinstall(installed),
    )


def _distributions(spec: Any) -> dict[str, str]:
    """Version by name, of ONNX Runtime's packages; package metadata takes longer to read."""
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
    """Why ``tensorrt`` or ``cuda`` cannot run here; None where nothing speaks against it."""
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
    # The package loads what it holds, in any order: also what TensorRT opens to build engines.
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
"""Two threads that silence standard output at once would leave it silent."""


def preload_libraries() -> None:
    """Load CUDA's and cuDNN's libraries from NVIDIA's Python packages, where they are installed.

    ONNX Runtime's provider library is linked against them and does not search there by itself.
    """
    with _PRELOADING:
        _preload()


@functools.cache
def _preload() -> None:
    import onnxruntime as ort

    if hasattr(ort, "preload_dlls"):
        # It prints what it did not find; whether that matters shows when a session is made.
        with span("CUDA libraries"), contextlib.redirect_stdout(io.StringIO()):
            ort.preload_dlls()


def _loads(library: str) -> bool:
    """Load a library of TensorRT's: one that is loaded, that the system knows, or its package's."""
    spec = importlib.util.find_spec("tensorrt_libs")
    folders = (spec.submodule_search_locations or ()) if spec else ()
    for name in (library, *(str(Path(folder) / library) for folder in folders)):
        with contextlib.suppress(OSError):
            ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
            return True
    return False


def loader_problem(provider: str) -> str | None:
    """The system's reason why a provider library does not load; to be asked after ONNX Runtime has
    tried: loaded before it, the library would not work."""
    import onnxruntime as ort

    name = provider.removesuffix("ExecutionProvider").lower()
    folder = Path(ort.__file__).parent / "capi"
    try:
        ctypes.CDLL(str(folder / f"libonnxruntime_providers_{name}.so"))
    except OSError as exc:
        return str(exc)
    return None


def provider_options(model: GpuModel, stream: int | None, *, graphs: bool = True) -> dict[str, str]:
    """The options of a model's provider, as ONNX Runtime's documentation of each names them.

    Args:
        model: Shapes, precision and provider.
        stream: Handle of the stream that all work is put on; None: the provider has its own, as a
            model needs that runs on several, and replays no graph.
        graphs: Replay as a CUDA graph.
    """
    options = {"device_id": str(model.device.number)}
    if stream is None:
        graphs = False
    else:
        options["user_compute_stream"] = str(stream)
    if model.backend == "cuda":
        return options | CUDA_OPTIONS | {"enable_cuda_graph": str(int(graphs))}
    # TensorRT's switches are True and False; ONNX Runtime's Python takes nothing else.
    options |= {
        "trt_fp16_enable": str(model.precision is Precision.FP16),
        "trt_cuda_graph_enable": str(graphs),
        "trt_builder_optimization_level": "3",
    }
    # A run beyond the profile would not rebuild the engine but fail.
    most = model.largest_batch or next(iter(model.shapes.values()))[0]
    for name, batch in (("min", 1), ("opt", most), ("max", most)):
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
    """Version of the TensorRT library, e.g. ``10.14.1``; only where it has been found."""
    return ".".join(map(str, _tensorrt_numbers()))
