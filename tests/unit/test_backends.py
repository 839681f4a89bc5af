from __future__ import annotations

import pytest

from bgsoft import backends
from bgsoft.backends import Candidate, Choice, create, probe_all
from bgsoft.errors import BackendUnavailableError


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """A registry of one GPU and one CPU backend; the value says whether the GPU one works."""
    state = {"gpu": True}

    def gpu(number: int) -> Candidate:
        if state["gpu"]:
            return Candidate(name="fast", device=f"cuda:{number}", available=True)
        return Candidate(
            name="fast", device=f"cuda:{number}", available=False, reason="no GPU", fix="buy one"
        )

    def cpu(_gpu: int) -> Candidate:
        return Candidate(name="cpu", device="cpu", available=True)

    entries = (backends._Entry("fast", gpu), backends._Entry("cpu", cpu))
    monkeypatch.setattr(backends, "_REGISTRY", dict.fromkeys(backends.STAGES, entries))
    return state


def choose(stage: str, wanted: str, *, gpu: int = 0, require_gpu: bool = False) -> Choice:
    makers = {"fast": lambda: "made fast", "cpu": lambda: "made cpu"}
    choice, made = create(stage, wanted, makers, gpu=gpu, require_gpu=require_gpu)
    assert made == f"made {choice.backend}"
    return choice


def refuse() -> str:
    raise BackendUnavailableError("it lacks 4:2:2")


def test_auto_falls_back_where_a_backend_refuses_this_file(registry: dict[str, bool]) -> None:
    choice, made = create("decode", "auto", {"fast": refuse, "cpu": lambda: "cpu decoder"})
    assert (choice.backend, made) == ("cpu", "cpu decoder")
    assert choice.fallback_reason == "fast: it lacks 4:2:2"


def test_a_named_backend_that_refuses_is_an_error(registry: dict[str, bool]) -> None:
    with pytest.raises(BackendUnavailableError, match="--decode fast is unavailable: it lacks"):
        create("decode", "fast", {"fast": refuse, "cpu": lambda: "cpu decoder"})


def test_auto_takes_the_first_available(registry: dict[str, bool]) -> None:
    choice = choose("decode", "auto", gpu=2)
    assert (choice.backend, choice.device, choice.fallback_reason) == ("fast", "cuda:2", None)


def test_auto_falls_back_with_the_reason(registry: dict[str, bool]) -> None:
    registry["gpu"] = False
    choice = choose("decode", "auto")
    assert (choice.backend, choice.fallback_reason) == ("cpu", "fast: no GPU: buy one")


def test_a_named_backend_never_falls_back(registry: dict[str, bool]) -> None:
    registry["gpu"] = False
    with pytest.raises(BackendUnavailableError, match=r"--decode fast is unavailable: no GPU"):
        choose("decode", "fast")


def test_naming_the_cpu_is_no_fallback(registry: dict[str, bool]) -> None:
    assert choose("decode", "cpu").fallback_reason is None


def test_require_gpu_refuses_the_cpu(registry: dict[str, bool]) -> None:
    assert choose("encode", "auto", require_gpu=True).backend == "fast"
    registry["gpu"] = False
    with pytest.raises(BackendUnavailableError, match="would run on the CPU: fast: no GPU"):
        choose("encode", "auto", require_gpu=True)
    with pytest.raises(BackendUnavailableError, match="--encode cpu was asked for"):
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
    with pytest.raises(BackendUnavailableError, match="--infer cuda is unavailable"):
        create("infer", "cuda", {})
