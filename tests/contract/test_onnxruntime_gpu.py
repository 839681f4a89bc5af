"""The real onnxruntime-gpu, on a machine without a GPU: libraries of CUDA and TensorRT stand in.

Each case is a process of its own, since a library is loaded once and for all.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bgsoft.models.catalog import resolve
from tests.outside_models import write_grey, write_mixed
from tests.processes import ROOT, run_python
from tests.stub_libraries import PLAN, missing_tools, write_cuda, write_tensorrt

pytestmark = pytest.mark.onnxruntime_gpu

_TENSORRT_PACKAGE = """
import ctypes, os, pathlib
libraries = sorted(pathlib.Path(__file__).parent.glob("*.so*"), reverse={reverse})
for library in libraries:
    try:
        ctypes.CDLL(str(library))
    except OSError:
        pass
"""
"""A stand-in for NVIDIA's ``tensorrt_libs``, whose order is the file system's."""

_CHILD = """
import contextlib, json, sys
import onnxruntime as ort
ort.preload_dlls = lambda: None  # the stand-ins, not the CUDA that may be installed as well
from types import SimpleNamespace
from pathlib import Path
from bgsoft.settings.config import Precision
from bgsoft.errors import BackendUnavailableError
from bgsoft.infer.base import GpuModel
from bgsoft.infer.providers import missing_provider
from bgsoft.models.catalog import resolve

backend, precision, graphs = sys.argv[1:]
told, found = [], {"error": None, "options": None}
missing = missing_provider(backend)
found["missing"] = None if missing is None else [missing.reason, missing.fix]
model = resolve("selfie-general")
device = SimpleNamespace(number=1, name="stub", compute_capability="90")
asked = GpuModel(
    path=model.path, shapes={"image": (8, 3, 256, 256)}, backend=backend, device=device,
    precision=Precision(precision), sha256=model.sha256, on_notice=told.append,
)
from bgsoft.infer.sessions import open_session
try:
    session = open_session(asked, 4096, graphs=graphs == "graphs")
except BackendUnavailableError as exc:
    found["error"] = exc.message
else:
    found["providers"] = session.get_providers()
    found["options"] = session.get_provider_options()
maps = Path("/proc/self/maps").read_text()
found["loaded"] = sorted({line.split("/")[-1] for line in maps.splitlines() if ".so" in line})
print(json.dumps(found | {"told": told}))
"""


_PLACES = """
import json, sys
import onnxruntime as ort
ort.preload_dlls = lambda: None
from pathlib import Path
from types import SimpleNamespace
from bgsoft.errors import BackendUnavailableError
from bgsoft.infer.base import GpuModel
from bgsoft.infer.sessions import open_session, describe_assignment

found = {}
device = SimpleNamespace(number=0, name="stub", compute_capability="90")
model = GpuModel(path=Path(sys.argv[1]), shapes={}, backend="cuda", device=device)
for stream in (4096, None):
    try:
        session = open_session(model, stream)
    except BackendUnavailableError as exc:
        found[str(stream)] = type(exc).__name__
    else:
        found[str(stream)] = describe_assignment(session, "cuda")
        taken = session.get_provider_options()["CUDAExecutionProvider"]
        found["options"] = [taken["has_user_compute_stream"], taken["enable_cuda_graph"]]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    reason = missing_tools()
    if reason is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("cuda")
    write_cuda(folder)
    return folder


@pytest.fixture(scope="module")
def tensorrt(tmp_path_factory: pytest.TempPathFactory, cuda: Path) -> Path:
    """A folder to import from, with a package of TensorRT's libraries."""
    folder = tmp_path_factory.mktemp("tensorrt")
    write_tensorrt(folder / "tensorrt_libs")
    (folder / "tensorrt_libs" / "__init__.py").write_text(_TENSORRT_PACKAGE.format(reverse=False))
    return folder


Open = Callable[..., dict[str, Any]]


@pytest.fixture
def open_model(cuda: Path, tmp_path: Path) -> Open:
    """Opens a session in a process of its own and tells what came of it."""

    def run(
        backend: str,
        packages: Path | None = None,
        *,
        precision: str = "fp32",
        graphs: bool = True,
        **environment: str,
    ) -> dict[str, Any]:
        paths = [str(ROOT), *([] if packages is None else [str(packages)])]
        environment |= {
            "PYTHONPATH": os.pathsep.join(paths),
            "LD_LIBRARY_PATH": str(cuda),
            "BGSOFT_CACHE": str(tmp_path / "cache"),
        }
        asked = (backend, precision, "graphs" if graphs else "none")
        done = run_python("-c", _CHILD, *asked, environment=environment)
        assert done.returncode == 0, done.stderr
        # One line: ONNX Runtime has not printed an error of its own beside it.
        (line,) = done.stdout.splitlines()
        found: dict[str, Any] = json.loads(line)
        return found

    return run


def engines(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache").rglob("*.engine"))


@pytest.mark.parametrize("graphs", [True, False])
def test_cuda_takes_its_options(open_model: Open, graphs: bool) -> None:
    found = open_model("cuda", graphs=graphs)
    assert (found["missing"], found["error"]) == (None, None)
    assert found["providers"] == ["CUDAExecutionProvider", "CPUExecutionProvider"]
    taken = found["options"]["CUDAExecutionProvider"]
    assert taken["device_id"] == "1"
    assert taken["user_compute_stream"] == "4096"
    assert taken["enable_cuda_graph"] == str(int(graphs))
    assert (taken["use_tf32"], taken["cudnn_conv_algo_search"]) == ("0", "HEURISTIC")


def placed(cuda: Path, model: Path) -> dict[str, Any]:
    done = run_python("-c", _PLACES, model, environment={"LD_LIBRARY_PATH": str(cuda)})
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_what_cuda_cannot_run_alone_is_reported(cuda: Path, tmp_path: Path) -> None:
    found = placed(cuda, write_mixed(tmp_path / "mixed.onnx"))
    assert found["4096"] == "MixedModelError"
    assert found["None"] == "2 of 5 nodes run on CPU (DynamicQuantizeLinear, ConvInteger)"
    assert found["options"] == ["0", "0"]


@pytest.mark.parametrize("name", ["selfie-general", "selfie-landscape", "grey"])
def test_what_cuda_runs_alone_loads(cuda: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / "grey.onnx"
    write_grey(path, 32, sigmoid=True)
    if name != "grey":
        path = resolve(name).path
    assert placed(cuda, path)["4096"].startswith("no node runs elsewhere")


@pytest.mark.parametrize(("precision", "graphs"), [("fp32", True), ("fp16", False)])
def test_tensorrt_takes_its_options(
    open_model: Open, tensorrt: Path, precision: str, graphs: bool
) -> None:
    found = open_model("tensorrt", tensorrt, precision=precision, graphs=graphs)
    assert (found["missing"], found["error"]) == (None, None)
    assert found["providers"][:2] == ["TensorrtExecutionProvider", "CUDAExecutionProvider"]
    taken = found["options"]["TensorrtExecutionProvider"]
    assert (taken["device_id"], taken["user_compute_stream"]) == ("1", "4096")
    assert taken["trt_fp16_enable"] == str(int(precision == "fp16"))
    assert taken["trt_cuda_graph_enable"] == str(int(graphs))
    assert taken["trt_engine_cache_enable"] == taken["trt_timing_cache_enable"] == "1"
    assert taken["trt_profile_min_shapes"] == "image:1x3x256x256"
    assert taken["trt_profile_max_shapes"] == "image:8x3x256x256"
    assert found["options"]["CUDAExecutionProvider"]["user_compute_stream"] == "4096"


def test_what_tensorrt_takes_a_part_of_is_reported(open_model: Open, tensorrt: Path) -> None:
    """With CUDA graphs, TensorRT must run the whole model; without them, CUDA runs the rest."""
    found = open_model("tensorrt", tensorrt, STUB_LEAVES_ONE="1")
    assert "graph capture" in found["error"]
    assert len(found["told"]) == 1
    # Its engine is kept, for the next one who asks and for who takes it so.
    assert open_model("tensorrt", tensorrt, STUB_LEAVES_ONE="1") | {"told": []} == found | {
        "told": []
    }
    taken = open_model(
        "tensorrt", tensorrt, graphs=False, STUB_LEAVES_ONE="1", STUB_BUILD_FAILS="1"
    )
    assert (taken["error"], taken["told"]) == (None, [])


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_tensorrt_loads_from_its_package_in_any_order(
    open_model: Open, tensorrt: Path, tmp_path: Path, reverse: bool
) -> None:
    shutil.copytree(tensorrt, tmp_path / "packages")
    start = tmp_path / "packages" / "tensorrt_libs" / "__init__.py"
    start.write_text(_TENSORRT_PACKAGE.format(reverse=reverse))
    found = open_model("tensorrt", tmp_path / "packages")
    assert (found["missing"], found["error"]) == (None, None)
    libraries = [name for name in found["loaded"] if name.startswith("libnv")]
    assert libraries == [
        "libnvinfer.so.10",
        "libnvinfer_builder_resource.so.10.14.1",
        "libnvinfer_plugin.so.10",
        "libnvonnxparser.so.10",
    ]


@pytest.mark.parametrize(
    ("tensorrt_is", "reason"),
    [
        ({}, "libnvinfer.so.10 not found"),
        ({"parser": False}, "libnvonnxparser.so.10 not found"),
        ({"version": 100900}, "TensorRT 10.9.0 is older than 10.14"),
    ],
    ids=["nothing", "no parser", "too old"],
)
def test_a_tensorrt_that_cannot_serve_is_named(
    open_model: Open, tmp_path: Path, tensorrt_is: dict[str, Any], reason: str
) -> None:
    package = tmp_path / "packages" / "tensorrt_libs"
    if tensorrt_is:
        write_tensorrt(package, **tensorrt_is)
        (package / "__init__.py").write_text(_TENSORRT_PACKAGE.format(reverse=False))
    found = open_model("tensorrt", tmp_path / "packages")
    import onnxruntime as ort

    cuda13 = ort.cuda_version.startswith("13")
    extras = "gpu-cu13,tensorrt-cu13" if cuda13 else "gpu,tensorrt"
    assert found["missing"] == [reason, f"pip install '.[{extras}]'"]
    assert found["error"] == f"tensorrt: {reason}"


def test_a_library_of_cuda_that_is_missing_is_named(
    open_model: Open, cuda: Path, tmp_path: Path
) -> None:
    rest = tmp_path / "cuda"
    shutil.copytree(cuda, rest)
    (gone,) = rest.glob("libcublasLt.so.1?")
    gone.unlink()
    found = open_model("cuda", LD_LIBRARY_PATH=str(rest))
    assert found["error"].startswith("CUDAExecutionProvider cannot start: ")
    assert f"{gone.name}: cannot open shared object file" in found["error"]


def test_a_build_that_fails_is_reported_in_its_own_words(
    open_model: Open, tensorrt: Path, tmp_path: Path
) -> None:
    found = open_model("tensorrt", tensorrt, STUB_BUILD_FAILS="1")
    assert "TensorRT EP failed to create engine from network" in found["error"]
    assert found["told"] == ["building the TensorRT engine, once, about a minute"]
    assert engines(tmp_path) == []


def test_an_engine_is_built_once(open_model: Open, tensorrt: Path, tmp_path: Path) -> None:
    assert len(open_model("tensorrt", tensorrt)["told"]) == 1
    (engine,) = engines(tmp_path)
    assert engine.read_bytes() == PLAN
    # No build any more, so one that would fail is not missed; and graphs make no other engine.
    found = open_model("tensorrt", tensorrt, graphs=False, STUB_BUILD_FAILS="1")
    assert (found["error"], found["told"]) == (None, [])


def test_a_torn_engine_is_built_again(open_model: Open, tensorrt: Path, tmp_path: Path) -> None:
    open_model("tensorrt", tensorrt)
    (engine,) = engines(tmp_path)
    engine.write_bytes(PLAN[:5])
    found = open_model("tensorrt", tensorrt)
    assert found["error"] is None
    (notice,) = found["told"]
    assert notice.startswith("cannot load the cached TensorRT engine; building it again: ")
    assert "could not deserialize engine from cache" in notice
    assert engine.read_bytes() == PLAN
    engine.write_bytes(PLAN[:5])
    failed = open_model("tensorrt", tensorrt, STUB_BUILD_FAILS="1")
    assert "failed to create engine" in failed["error"]
    assert engines(tmp_path) == []


def test_a_folder_that_cannot_be_written_ends_nothing(
    open_model: Open, tensorrt: Path, tmp_path: Path
) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file, where the folder should be")
    found = open_model("tensorrt", tensorrt, BGSOFT_CACHE=str(blocked))
    assert found["error"] is None
    (notice,) = found["told"]
    assert notice.startswith("cannot keep the TensorRT engine in ")
    assert "(Not a directory)" in notice
