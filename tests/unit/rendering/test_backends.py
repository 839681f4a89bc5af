from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bgsoft.errors import BackendUnavailableError
from bgsoft.infer.providers import runtime_clash
from bgsoft.rendering import backends
from bgsoft.rendering.backends import Candidate, Choice, create, probe_all
from bgsoft.settings.config import BackendConfig, EncodeBackend


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """A registry of one GPU and one CPU backend; the value says whether the GPU one works."""
    state = {"gpu": True}

    def probe(stage: str, name: str, gpu: int = 0) -> Candidate:
        if name == "cpu":
            return Candidate(name="cpu", device="cpu", available=True)
        if state["gpu"]:
            return Candidate(name="fast", device=f"cuda:{gpu}", available=True)
        return Candidate(
            name="fast", device=f"cuda:{gpu}", available=False, reason="no GPU", fix="buy one"
        )

    monkeypatch.setattr(backends, "probe", probe)
    monkeypatch.setattr(backends, "REGISTRY", dict.fromkeys(backends.STAGES, ("fast", "cpu")))
    return state


def wants(stage: str, name: str, require_gpu: bool = False) -> Any:
    """The settings that name a backend for one stage."""
    return SimpleNamespace(**{stage: name, "require_gpu": require_gpu})


def choose(stage: str, wanted: str, *, gpu: int = 0, require_gpu: bool = False) -> Choice:
    config = wants(stage, wanted, require_gpu)
    choice, made = create(stage, config, "made {}".format, gpu)
    assert made == f"made {choice.backend}"
    return choice


def refuse_fast(name: str) -> str:
    if name == "fast":
        raise BackendUnavailableError("it lacks 4:2:2")
    return f"{name} decoder"


def test_auto_falls_back_where_a_backend_refuses_this_file(registry: dict[str, bool]) -> None:
    choice, made = create("decode", wants("decode", "auto"), refuse_fast)
    assert (choice.backend, made) == ("cpu", "cpu decoder")
    assert choice.fallback_reason == "fast: it lacks 4:2:2"


def test_a_named_backend_that_refuses_is_an_error(registry: dict[str, bool]) -> None:
    with pytest.raises(BackendUnavailableError, match="cannot use --decode fast: it lacks"):
        create("decode", wants("decode", "fast"), refuse_fast)


def test_auto_takes_the_first_available(registry: dict[str, bool]) -> None:
    choice = choose("decode", "auto", gpu=2)
    assert (choice.backend, choice.fallback_reason) == ("fast", None)


def test_auto_falls_back_with_the_reason(registry: dict[str, bool]) -> None:
    registry["gpu"] = False
    choice = choose("decode", "auto")
    assert (choice.backend, choice.fallback_reason) == ("cpu", "fast: no GPU: buy one")


def test_a_named_backend_never_falls_back(registry: dict[str, bool]) -> None:
    registry["gpu"] = False
    with pytest.raises(BackendUnavailableError, match=r"cannot use --decode fast: no GPU"):
        choose("decode", "fast")


def test_naming_the_cpu_is_no_fallback(registry: dict[str, bool]) -> None:
    assert choose("decode", "cpu").fallback_reason is None


def test_require_gpu_refuses_the_cpu(registry: dict[str, bool]) -> None:
    assert choose("encode", "auto", require_gpu=True).backend == "fast"
    registry["gpu"] = False
    with pytest.raises(BackendUnavailableError, match="would run on the CPU: fast: no GPU"):
        choose("encode", "auto", require_gpu=True)
    with pytest.raises(BackendUnavailableError, match="--encode cpu was given"):
        choose("encode", "cpu", require_gpu=True)


def test_the_real_registry_has_a_cpu_backend_last_for_every_stage() -> None:
    for stage, candidates in probe_all().items():
        assert candidates[-1].name == "cpu", stage
        for candidate in candidates:
            assert candidate.available or candidate.reason


def test_named_gpu_inference_without_a_gpu_is_an_error() -> None:
    candidates = {c.name: c for c in probe_all()["infer"]}
    if candidates["cuda"].available:
        pytest.skip("CUDA inference is available here")
    with pytest.raises(BackendUnavailableError, match="cannot use --infer cuda"):
        create("infer", wants("infer", "cuda"), str)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def problem(gpu: int) -> str | None:
        return None if gpu < 2 else f"there is no GPU {gpu}: this machine has 2"

    monkeypatch.setattr(backends, "driver_problem", problem)


@pytest.mark.usefixtures("two_gpus")
def test_a_gpu_that_is_named_has_to_be_there() -> None:
    assert backends.chosen_gpu(1) == 1
    with pytest.raises(BackendUnavailableError, match="--gpu 5: there is no GPU 5"):
        backends.chosen_gpu(5)


def test_no_gpu_need_be_there_where_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "driver_problem", lambda _gpu: "no NVIDIA GPU found")
    assert backends.chosen_gpu(None) == 0
    with pytest.raises(BackendUnavailableError, match="--gpu 0: no NVIDIA GPU found"):
        backends.chosen_gpu(0)


@pytest.fixture
def runtimes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Install empty packages of ONNX Runtime in place of the real one."""

    def install(*distributions: str) -> Path:
        package = tmp_path / "onnxruntime"
        package.mkdir()
        (package / "__init__.py").touch()
        for name in distributions:
            (tmp_path / f"{name}.dist-info").mkdir()
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "onnxruntime", raising=False)
        return package

    return install


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(("version", "extra"), [("1.26.0", "gpu"), ("1.31.1", "gpu-cu13")])
def test_two_onnx_runtimes_are_an_error_where_a_gpu_is(
    runtimes: Callable[..., Path], version: str, extra: str
) -> None:
    runtimes("onnxruntime-1.31.1", f"onnxruntime_gpu-{version}")
    for wanted in ("auto", "cuda", "tensorrt"):
        with pytest.raises(BackendUnavailableError) as caught:
            create("infer", wants("infer", wanted), str)
        assert caught.value.message == (
            "onnxruntime and onnxruntime-gpu are both installed, and overwrite each other: "
            "pip uninstall -y onnxruntime onnxruntime-gpu && pip install " + f"'.[{extra}]'"
        )
    choice, _ = create("infer", wants("infer", "cpu"), str)
    assert choice.backend == "cpu"


def test_two_onnx_runtimes_render_where_no_gpu_is(
    runtimes: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    runtimes("onnxruntime-1.31.1", "onnxruntime_gpu-1.26.0")
    monkeypatch.setattr(backends, "driver_problem", lambda _gpu: "no NVIDIA GPU found")
    assert create("infer", wants("infer", "auto"), str)[0].backend == "cpu"
    assert runtime_clash() is not None


@pytest.mark.parametrize("name", ["onnxruntime-1.31.1", "onnxruntime_gpu-1.26.0"])
def test_one_onnx_runtime_is_no_clash(runtimes: Callable[..., Path], name: str) -> None:
    runtimes(name, "onnxruntime_extensions-0.14")
    assert runtime_clash() is None


def test_what_an_uninstall_left_of_onnx_runtime_is_no_runtime(
    runtimes: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    rest = ModuleSpec("onnxruntime", None, is_package=True)
    rest.submodule_search_locations = [str(runtimes("onnxruntime_gpu-1.26.0"))]
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: rest)
    with pytest.raises(BackendUnavailableError, match=r"ONNX Runtime is damaged: pip uninstall"):
        create("infer", wants("infer", "cpu"), str)


@pytest.mark.usefixtures("two_gpus")
def test_a_cupy_that_does_not_load_is_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cupy").mkdir()
    (tmp_path / "cupy" / "__init__.py").write_text("raise ImportError('no module cuda')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    with pytest.raises(BackendUnavailableError, match="cupy does not load: no module cuda: pip"):
        create("composite", wants("composite", "cuda"), str)


def test_what_would_be_made_first_is_reported_without_making_it(registry: dict[str, bool]) -> None:
    assert backends.names("infer") == ("fast", "cpu")
    assert backends.first_available("infer", "auto") == "fast"
    assert backends.first_available("infer", "cpu") == "cpu"
    registry["gpu"] = False
    assert backends.first_available("infer", "auto") == "cpu"


def test_nothing_is_prepared_for_a_gpu_that_no_stage_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: object())
    on_cpu = BackendConfig().on_cpu()
    assert not backends.may_use_gpu(on_cpu)
    assert backends.may_use_gpu(replace(on_cpu, encode=EncodeBackend.AUTO))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert not backends.may_use_gpu(BackendConfig())
