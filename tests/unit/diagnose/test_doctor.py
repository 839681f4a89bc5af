"""The doctor's verdict on a machine, with stand-ins for the GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bgsoft.cli.doctor import report_lines
from bgsoft.diagnose import doctor
from bgsoft.diagnose import machine as described
from bgsoft.diagnose.checks import Finding
from bgsoft.diagnose.doctor import DoctorReport, examine
from bgsoft.diagnose.machine import GpuInfo
from bgsoft.diagnose.parity import Parity
from bgsoft.errors import BackendUnavailableError
from bgsoft.infer.providers import Missing
from bgsoft.rendering.backends import Candidate


def candidate(name: str, reason: str | None = None, fix: str | None = None) -> Candidate:
    return Candidate(
        name=name,
        device="cpu" if name == "cpu" else "cuda:0",
        available=reason is None,
        reason=reason,
        fix=fix,
    )


GPU_STAGES = {
    "decode": [candidate("nvdec"), candidate("cpu")],
    "infer": [
        candidate("tensorrt", "libnvinfer.so.10 not found", "pip install '.[tensorrt]'"),
        candidate("cuda"),
        candidate("cpu"),
    ],
    "composite": [candidate("cuda"), candidate("cpu")],
    "encode": [candidate("nvenc"), candidate("cpu")],
}
"""Registry of a machine whose NVENC has not been tried yet."""


def stand_in_parity(monkeypatch: pytest.MonkeyPatch, *found: Parity) -> None:
    device = SimpleNamespace(CudaDevice=lambda _number: None)
    monkeypatch.setitem(sys.modules, "bgsoft.cuda.device", device)  # type: ignore[arg-type]
    monkeypatch.setattr("bgsoft.diagnose.parity.measure_parity", lambda *_: found)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], str]:
    """A machine with a GPU; the parameter names what fails in its trials, and why."""
    faults: dict[tuple[str, str], str] = {}

    def run(stages: dict[str, list[Candidate]], folder: Path, gpu: int) -> Iterator[Any]:
        assert folder.is_dir()
        for stage, candidates in stages.items():
            for one in candidates:
                fault = one.reason or faults.get((stage, one.name))
                found = None if fault else Finding(f"{one.name} ran", 1.25)
                yield stage, replace(one, available=fault is None, reason=fault), found

    monkeypatch.setattr(doctor, "probe_all", lambda _gpu: GPU_STAGES)
    monkeypatch.setattr(doctor, "driver_version", lambda: "580.1")
    stand_in_parity(monkeypatch)
    monkeypatch.setattr("bgsoft.diagnose.checks.try_candidates", run)
    return faults


def test_a_gpu_without_nvenc(machine: dict[tuple[str, str], str]) -> None:
    machine["encode", "nvenc"] = "NVENC: this GPU has no NVENC (status 2)"
    report = examine()
    assert report.problems == []
    assert report.gpu_problems == [
        "encode would run on the CPU: nvenc: NVENC: this GPU has no NVENC (status 2)"
    ]
    nvenc, encoder = report.stages["encode"]
    assert not nvenc.available
    assert encoder.available
    text = "\n".join(report_lines(report))
    assert "no: libnvinfer.so.10 not found (pip install '.[tensorrt]')" in text
    assert "ok, 1.25 ms a frame: nvdec ran" in text
    assert "A render works, but not every stage runs on the GPU:" in text


def test_a_whole_gpu(machine: dict[tuple[str, str], str]) -> None:
    report = examine()
    assert report.gpu_problems == []
    assert report_lines(report)[-1] == "A render works, with every stage on the GPU."


def test_a_gpu_makes_up_for_the_cpu(machine: dict[tuple[str, str], str]) -> None:
    machine["composite", "cpu"] = "cv2.error: no"
    assert examine().problems == []
    machine["composite", "cuda"] = "CUDARuntimeError: no"
    report = examine()
    assert report.problems == [
        "composite cannot run: cpu: cv2.error: no; cuda: CUDARuntimeError: no"
    ]
    assert report_lines(report)[-2:] == ["Problems", f"  {report.problems[0]}"]


def test_everything_about_a_gpu_is_shown(machine: dict[tuple[str, str], str]) -> None:
    info = GpuInfo(
        name="NVIDIA T4",
        memory_bytes=16 << 30,
        compute_capability="7.5",
        driver="580.1",
        driver_cuda="13.0",
        runtime="12.9",
        nvrtc="12.9",
        cudnn="9.10.2",
        tensorrt=None,
    )
    report: DoctorReport = replace(
        examine(),
        gpu=info,
        video_engines={"NVDEC HEVC 10 bits": "up to 8192x8192", "NVENC av1": "no: status 8"},
        parity=[
            Parity(
                name="matte, 8 bits",
                max_difference=3,
                mean_difference=0.01,
                tolerance="2",
                ok=False,
            )
        ],
    )
    text = "\n".join(report_lines(report))
    for words in (
        "NVIDIA T4, 16 GiB, compute capability 7.5",
        "runtime 12.9, driver up to 13.0",
        "9.10.2",
        "TensorRT         not found",
        "NVDEC HEVC 10 bits    up to 8192x8192",
        "NVENC av1             no: status 8",
        "DIFFERS: max 3, mean 0.01 (allowed: 2)",
    ):
        assert words in text


def stand_in_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_nvrtc() -> tuple[int, int]:
        raise OSError("libnvrtc.so.12")

    runtime = SimpleNamespace(
        memGetInfo=lambda: (1 << 30, 80 << 30),
        driverGetVersion=lambda: 13000,
        runtimeGetVersion=lambda: 12090,
    )
    cuda = SimpleNamespace(
        runtime=runtime,
        Device=lambda _number: SimpleNamespace(compute_capability="103"),
        nvrtc=SimpleNamespace(getVersion=no_nvrtc),
    )
    device = SimpleNamespace(CudaDevice=lambda number: SimpleNamespace(name=f"GPU {number}"))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "bgsoft.cuda.device", device)  # type: ignore[arg-type]


def test_a_gpu_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_cupy(monkeypatch)
    cudnn = SimpleNamespace(cudnnGetVersion=lambda: 91002)
    monkeypatch.setattr(described.ctypes, "CDLL", lambda _name: cudnn)
    monkeypatch.setattr("bgsoft.infer.providers.preload_libraries", lambda: None)
    missing = Missing("libnvinfer.so.10 not found", "pip ...")
    monkeypatch.setattr("bgsoft.infer.providers.missing_provider", lambda _name: missing)
    found = described.gpu_info(1)
    assert (found.name, found.memory_bytes) == ("GPU 1", 80 << 30)
    assert found.compute_capability == "10.3"
    assert (found.driver_cuda, found.runtime) == ("13.0", "12.9")
    assert (found.nvrtc, found.cudnn, found.tensorrt) == (None, "9.10.2", None)


def test_video_engines_are_asked_for_every_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    def decoding(gpu: int, codec: str, depth: int) -> dict[str, int]:
        assert gpu == 2
        if codec == "AV1":
            raise BackendUnavailableError("NVDEC does not answer: no")
        return {"supported": int(depth == 8), "width_max": 4096, "height_max": 2304}

    def encoding(_gpu: int, codec: str) -> dict[str, int]:
        if codec == "av1":
            raise BackendUnavailableError("NVENC: this GPU has no NVENC")
        return {"support_10bit_encode": int(codec == "hevc"), "width_max": 4096, "height_max": 4096}

    monkeypatch.setattr("bgsoft.cuda.video_codec.decoder_caps", decoding)
    monkeypatch.setattr("bgsoft.cuda.video_codec.encoder_caps", encoding)
    found = described.video_engines(2)
    assert len(found) == 10
    assert found["NVDEC H.264 8 bits"] == "up to 4096x2304"
    assert found["NVDEC HEVC 10 bits"] == "no: not on this GPU"
    assert found["NVDEC AV1 8 bits"] == "no: NVDEC does not answer: no"
    assert found["NVENC h264"] == "8 bits, up to 4096x4096"
    assert found["NVENC hevc"] == "8 and 10 bits, up to 4096x4096"
    assert found["NVENC av1"] == "no: NVENC: this GPU has no NVENC"
    monkeypatch.setattr("bgsoft.cuda.video_codec.decoder_caps", lambda *_: None)
    assert not any(name.startswith("NVDEC") for name in described.video_engines(2))


def test_a_library_that_fails_does_not_stop_the_doctor(
    machine: dict[tuple[str, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        raise OSError("lost")

    monkeypatch.setattr(doctor, "gpu_info", fail)
    report = examine()
    assert report.gpu is None
    assert report.problems == []


def test_pictures_that_differ_are_a_problem(
    machine: dict[tuple[str, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    far = Parity(
        name="matte, 8 bits", max_difference=9, mean_difference=1, tolerance="max 2", ok=False
    )
    near = replace(far, name="reduce, 8 bits", max_difference=0, ok=True)
    stand_in_parity(monkeypatch, near, far)
    assert examine().gpu_problems == [
        "matte, 8 bits: GPU and CPU differ by up to 9 (allowed: max 2)"
    ]


def test_a_comparison_that_breaks_is_reported(
    machine: dict[tuple[str, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_number: int) -> Any:
        raise OSError("lost")

    device: Any = SimpleNamespace(CudaDevice=fail)
    monkeypatch.setitem(sys.modules, "bgsoft.cuda.device", device)
    report = examine()
    assert report.parity == []
    assert report.gpu_problems == ["cannot compare GPU and CPU: OSError: lost"]


def test_two_onnx_runtimes_are_reported(
    machine: dict[tuple[str, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "runtime_clash", lambda: Missing("both are installed", "pip ..."))
    report = examine()
    assert report.problems == []  # by the registry: no GPU is in the way
    assert report.gpu_problems == ["both are installed: pip ..."]
    blocked = replace(GPU_STAGES["infer"][1], available=False, reason="both", blocks=True)
    monkeypatch.setitem(GPU_STAGES, "infer", [blocked, GPU_STAGES["infer"][2]])
    assert examine().problems == ["both"]
