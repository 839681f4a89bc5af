"""``bgsoft doctor --full`` without a GPU, and its verdicts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bgsoft.diagnose import checks, full
from bgsoft.diagnose.checks import Checks, Finding, SkippedError
from bgsoft.diagnose.full import GROUPS, FullChecks, run_group
from bgsoft.errors import BackendUnavailableError, VerificationError
from bgsoft.rendering import backends
from tests.marks import slow

ON_GPU = {"nvdec", "cuda", "tensorrt", "nvenc"}


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (backends, checks):
        monkeypatch.setattr(module, "driver_problem", lambda _gpu: "no NVIDIA GPU found")


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    "group", [slow(each) if each in ("encode", "decode") else each for each in GROUPS]
)
def test_without_a_gpu_the_cpu_rows_pass(group: str) -> None:
    rows = list(run_group(group))
    assert rows
    for row in rows:
        on_cpu = group not in ("memory", "exit") and not ON_GPU & set(row.name.split())
        assert row.status == ("pass" if on_cpu else "skip"), row
        if not on_cpu:
            assert row.detail == "no NVIDIA GPU found"
    if group == "combinations":
        assert len(rows) == 24


@pytest.mark.parametrize(
    ("error", "status", "detail"),
    [
        (BackendUnavailableError("it does not load"), "FAIL", "it does not load"),
        (VerificationError("too far"), "FAIL", "too far"),
        (SkippedError("no GPU"), "skip", "no GPU"),
        (RuntimeError("CUDA\n error 700"), "FAIL", "RuntimeError: CUDA error 700"),
    ],
)
def test_rows(monkeypatch: pytest.MonkeyPatch, error: Exception, status: str, detail: str) -> None:
    def check(_: FullChecks) -> Finding:
        raise error

    monkeypatch.setitem(full.GROUPS, "exit", lambda: {"name": check})
    (row,) = run_group("exit")
    assert (row.group, row.name, row.status, row.detail) == ("exit", "name", status, detail)


def test_what_the_gpu_says_it_lacks_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def encoder_caps(_gpu: int, codec: str) -> dict[str, int]:
        raise BackendUnavailableError(f"NVENC: none for {codec}")

    monkeypatch.setattr(checks, "encoder_caps", encoder_caps)
    monkeypatch.setattr(checks, "decoder_caps", lambda *_: {"supported": 0})
    monkeypatch.setattr(Checks, "need", lambda *_: None)
    monkeypatch.setattr(full, "CLIPS", [replace(spec, frames=12) for spec in full.CLIPS])
    on_gpu = []
    for group in ("encode", "decode"):
        every = GROUPS[group]()
        alone = {name: every[name] for name in every if name.startswith("nv")}
        monkeypatch.setitem(GROUPS, group, lambda alone=alone: alone)
        on_gpu += run_group(group)
    assert {row.status for row in on_gpu} == {"skip"}
    assert "NVENC: none for h264" in {row.detail for row in on_gpu}
    assert "NVDEC: this GPU does not decode AV1 at 8 bits" in {row.detail for row in on_gpu}
