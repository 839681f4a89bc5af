"""A kernel that fails, and a device that is lost: a render ends right, or fails cleanly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bgsoft
from bgsoft.exitcodes import ExitCode, exit_code
from bgsoft.infer import loading
from bgsoft.infer.base import GpuModel
from bgsoft.models.catalog import resolve
from tests.faults import DEVICE_FAULTS, DEVICE_STAGES, Plant, planted
from tests.synthetic import VideoSpec, regular_times, write_video

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]


@pytest.mark.parametrize("fault", DEVICE_FAULTS)
@pytest.mark.parametrize("stage", DEVICE_STAGES)
def test_a_fault_on_the_device(stage: str, fault: str, tmp_path: Path) -> None:
    source = tmp_path / "in.mp4"
    write_video(source, VideoSpec(width=320, height=240, times=regular_times(24)))
    target = tmp_path / "out.mkv"
    plant = Plant(fault)
    with planted(DEVICE_STAGES[stage], plant):
        error: Exception | None = None
        try:
            assert bgsoft.render(source, target).frames_encoded == 24
        except Exception as exc:
            error = exc
    assert sorted(tmp_path.iterdir()) == ([source, target] if error is None else [source])
    assert error is None or exit_code(error) in set(ExitCode)
    if not plant.reached.is_set():
        pytest.skip(f"this GPU has no part in {stage}")
    assert bgsoft.render(source, target, overwrite=True).frames_encoded == 24


def test_a_file_of_the_providers_own_operators_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bgsoft.infer import cuda

    class Failing:
        def __init__(self, session: Any) -> None:
            self._session = session

        def __getattr__(self, name: str) -> Any:
            return getattr(self._session, name)

        def run_with_iobinding(self, *_: Any) -> None:
            raise RuntimeError("no such kernel")

    def opened(model: GpuModel, *args: Any, **named: Any) -> Any:
        session = whole(model, *args, **named)
        return Failing(session) if model.path.stem.endswith("_cuda") else session

    whole = cuda.open_session
    monkeypatch.setattr(cuda, "open_session", opened)
    monkeypatch.setattr(loading, "_failed_files", {})
    source = tmp_path / "in.mp4"
    write_video(source, VideoSpec(width=320, height=240, times=regular_times(24)))
    report = bgsoft.render(source, tmp_path / "out.mkv", infer="cuda", composite="cuda")
    told = [event.message for event in report.events if "_cuda.onnx" in event.message]
    start = "selfie_general.onnx in place of selfie_general_cuda.onnx: "
    assert any(start in text and "no such kernel" in text for text in told)
    assert report.frames_encoded == 24
    assert report.stages["segment"].backend == "cuda"
    assert "retry" not in {event.kind for event in report.events}
    assert report.model.sha256 == resolve("selfie-general").sha256
