"""A kernel that fails, and a device that is lost: a render ends right, or fails cleanly."""

from __future__ import annotations

from pathlib import Path

import pytest

import bgsoft
from bgsoft.exitcodes import ExitCode, exit_code
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
