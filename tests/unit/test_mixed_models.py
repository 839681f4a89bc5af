"""Models that a GPU's provider runs in part.

``contract/test_onnxruntime_gpu`` has ONNX Runtime's reports; ``gpu/test_outside_models`` runs
models.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from bgsoft.errors import (
    BackendUnavailableError,
    BgsoftError,
    InferenceError,
    MixedModelError,
    ModelError,
)
from bgsoft.infer import loading
from bgsoft.infer.base import GpuModel, GpuRun, Network, Wiring
from bgsoft.infer.cpu import HostNetwork
from bgsoft.infer.loading import NetworkLoader
from bgsoft.infer.sessions import RECORD_PLACEMENT, describe_assignment
from bgsoft.models.catalog import resolve
from tests.outside_models import INPUT, write_mixed

WIRING = Wiring(inputs={INPUT: (2, 3, 32, 32)}, outputs=("mask",))
STREAM = types.SimpleNamespace(ptr=1)
DEVICE: Any = types.SimpleNamespace(number=0)


class Shared(Network):
    """A network that several providers run; it takes a given time."""

    def __init__(self, clock: list[float], seconds: float) -> None:
        self.provider = "fake"
        self.mixed = "mixed.onnx is slow on cuda"
        self.inputs = {INPUT: np.zeros((2, 3, 32, 32), np.float32)}
        self.outputs: dict[str, Any] = {}
        self.closed = False
        self._clock, self._seconds = clock, seconds

    def run(self) -> None:
        self._clock[0] += self._seconds

    def close(self) -> None:
        self.closed = True


class Gpu:
    """Stands for :mod:`bgsoft.infer.cuda` and the clock."""

    cpu_ms: float = 2
    """Time of a run on the CPU; on the GPU one takes 1 ms."""

    def __init__(self) -> None:
        self.now = [0.0]
        self.tried: list[tuple[str, str]] = []
        self.made: list[Shared] = []

    def whole(self, model: GpuModel, *_: Any, **__: Any) -> Network:
        self.tried.append(("whole", model.backend))
        raise MixedModelError("as ONNX Runtime says")

    def serve(
        self, monkeypatch: pytest.MonkeyPatch, fail: Callable[[GpuModel, int], None]
    ) -> tuple[Network, list[str]]:
        """Replace the GPU's network; return it, and a list for the names of the loaded files.

        ``fail`` gets the model and the number of loads so far, and may raise.
        """
        running = Shared(self.now, 0)
        running.mixed = ""
        files: list[str] = []

        def whole(model: GpuModel, *_: Any, **__: Any) -> Network:
            files.append(model.path.name)
            fail(model, len(files))
            return running

        monkeypatch.setattr(sys.modules["bgsoft.infer.cuda"], "GpuNetwork", whole)
        return running, files

    def mixed(self, model: GpuModel) -> Network:
        self.tried.append(("mixed", model.backend))
        self.made.append(Shared(self.now, 0.001))
        return self.made[-1]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    gpu = Gpu()
    module = types.ModuleType("bgsoft.infer.cuda")
    module.GpuNetwork = gpu.whole  # type: ignore[attr-defined]
    module.MixedNetwork = gpu.mixed  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bgsoft.infer.cuda", module)
    monkeypatch.setattr(loading, "_moved_models", {})
    monkeypatch.setattr(loading, "_failed_files", {})
    monkeypatch.setattr(loading.time, "perf_counter", lambda: gpu.now[0])
    run = HostNetwork.run

    def run_on_cpu(network: HostNetwork) -> None:
        gpu.now[0] += gpu.cpu_ms / 1000
        run(network)

    monkeypatch.setattr("bgsoft.infer.cpu.CpuNetwork.run", run_on_cpu)
    return gpu


def loader(folder: Path, told: list[str], *instead: str) -> NetworkLoader:
    model = resolve(str(write_mixed(folder / "mixed.onnx")))
    return NetworkLoader(model, on_notice=told.append, cores=2, instead=instead)


def test_a_named_backend_is_kept_and_reported_once(gpu: Gpu, tmp_path: Path) -> None:
    told: list[str] = []
    made = loader(tmp_path, told)
    assert made.on_gpu(WIRING, GpuRun("cuda", DEVICE, STREAM)) is gpu.made[0]
    # Loaded again, as after a fault, it is not tried with the options of one provider.
    made.on_gpu(WIRING, GpuRun("cuda", DEVICE, STREAM, graphs=False))
    assert gpu.tried == [("whole", "cuda"), ("mixed", "cuda"), ("mixed", "cuda")]
    assert told == ["mixed.onnx is slow on cuda"]


@pytest.mark.parametrize(("cpu_ms", "left"), [(0.5, True), (1, True), (2, False)])
def test_the_cpu_is_preferred_where_it_is_as_fast(
    gpu: Gpu, tmp_path: Path, cpu_ms: float, left: bool
) -> None:
    gpu.cpu_ms, told = cpu_ms, []
    made = loader(tmp_path, told, "cuda", "cpu")
    if not left:
        made.on_gpu(WIRING, GpuRun("cuda", DEVICE, STREAM))
        assert len(told) == 1
        return
    for _ in range(2):
        with pytest.raises(BackendUnavailableError, match="slow on cuda; the CPU alone takes"):
            made.on_gpu(WIRING, GpuRun("cuda", DEVICE, STREAM))
    assert len(gpu.tried) == 2, "that it is left is found out once"
    assert gpu.made[0].closed
    assert told == []


def test_cuda_is_preferred_to_a_part_of_tensorrt(gpu: Gpu, tmp_path: Path) -> None:
    made = loader(tmp_path, [], "cuda")
    with pytest.raises(BackendUnavailableError, match="slow on cuda"):
        made.on_gpu(WIRING, GpuRun("tensorrt", DEVICE, STREAM))
    assert made.on_gpu(WIRING, GpuRun("cuda", DEVICE, STREAM)) is gpu.made[1]


@pytest.mark.parametrize("failure", [InferenceError, BackendUnavailableError, MixedModelError])
def test_the_plain_file_serves_where_the_providers_own_does_not_run(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, failure: type[BgsoftError]
) -> None:
    told: list[str] = []

    def fail(model: GpuModel, _tried: int) -> None:
        if model.path.stem.endswith("_cuda"):
            raise failure("cuDNN has no such kernel")

    running, files = gpu.serve(monkeypatch, fail)
    for _ in range(2):  # renders of one process
        made = NetworkLoader(resolve("selfie-general"), on_notice=told.append)
        for _ in range(2):
            assert made.on_gpu(WIRING, GpuRun("cuda", DEVICE, STREAM)) is running
    assert files == ["selfie_general_cuda.onnx", *["selfie_general.onnx"] * 4]
    assert told == 2 * [
        "selfie_general.onnx in place of selfie_general_cuda.onnx: cuDNN has no such kernel"
    ]


def test_a_file_is_not_refused_where_the_plain_one_fails_as_well(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example if the device is out of memory; the driver then tries smaller batches."""
    told: list[str] = []

    def fail(model: GpuModel, tried: int) -> None:
        if model.must_run and tried < 3:
            raise InferenceError("out of memory")

    running, files = gpu.serve(monkeypatch, fail)
    made = NetworkLoader(resolve("selfie-general"), on_notice=told.append)
    for _ in range(2):
        assert made.on_gpu(WIRING, GpuRun("cuda", DEVICE, STREAM)) is running
    own, plain = "selfie_general_cuda.onnx", "selfie_general.onnx"
    assert files == [own, plain, plain, own]
    assert not told


def test_nothing_is_reported_of_a_file_where_no_other_runs(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def whole(model: GpuModel, *_: Any, **__: Any) -> Network:
        raise BackendUnavailableError("no driver")

    monkeypatch.setattr(sys.modules["bgsoft.infer.cuda"], "GpuNetwork", whole)
    with pytest.raises(BackendUnavailableError, match="no driver"):
        NetworkLoader(resolve("selfie-general"), on_notice=told.append).on_gpu(
            WIRING, GpuRun("cuda", DEVICE, STREAM)
        )
    assert not told


def session(path: Path) -> Any:
    options = ort.SessionOptions()
    options.add_session_config_entry(RECORD_PLACEMENT, "1")
    options.log_severity_level = 4
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def test_the_operators_that_run_elsewhere_are_named(tmp_path: Path) -> None:
    opened = session(write_mixed(tmp_path / "mixed.onnx"))
    if not hasattr(opened, "get_provider_graph_assignment_info"):
        pytest.skip("this ONNX Runtime is older than those for GPUs that are supported")
    words = describe_assignment(opened, "cuda")
    assert words.startswith("5 of 5 nodes run on CPU (")
    assert words.count(",") == 2


def test_a_shared_session_is_fed_from_the_host(tmp_path: Path) -> None:
    path = write_mixed(tmp_path / "mixed.onnx")
    network = HostNetwork(session(path), path, {INPUT: (2, 3, 32, 32)}, ("mask",))
    mask = network.outputs["mask"]
    for level in (0.25, 0.75):  # its arrays stay, what they hold is read anew
        network.inputs[INPUT][...] = level
        network.run()
        np.testing.assert_allclose(mask, level, atol=0.003)
    network.close()
    with pytest.raises(ModelError, match="no output 'alpha', only mask"):
        HostNetwork(session(path), path, {INPUT: (2, 3, 32, 32)}, ("alpha",))
