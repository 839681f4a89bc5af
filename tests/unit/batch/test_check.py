"""Faults that would stop every file of a batch are reported before the first render."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bgsoft.batch.check import check_encoding, check_settings
from bgsoft.batch.job import BatchJob
from bgsoft.errors import BackendUnavailableError, ConfigError
from bgsoft.exitcodes import one_line
from bgsoft.rendering import backends
from bgsoft.rendering.configure import build_config
from bgsoft.settings.config import Codec


@pytest.mark.parametrize("given", [{"encode": "nvenc"}, {"require_gpu": True}])
def test_a_gpu_without_nvenc_is_found_out(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    """Opening an encoder shows it, as each file's render would."""

    def encoder_caps(_gpu: int, codec: str) -> dict[str, int]:
        raise BackendUnavailableError(f"NVENC: none for {codec}")

    def probe(stage: str, name: str, gpu: int = 0) -> backends.Candidate:
        return backends.Candidate(name=name, device="cuda:0", available=True)

    monkeypatch.setattr(backends, "probe", probe)
    monkeypatch.setattr("bgsoft.cuda.video_codec.encoder_caps", encoder_caps)
    config = build_config(Path("a.mp4"), Path("b.mp4"), flags={"backends": given})
    with pytest.raises(BackendUnavailableError, match="NVENC: none for h264"):
        check_settings(config, here=True)


def test_the_file_that_settings_do_not_fit_is_named() -> None:
    given = {"encode": {"codec": Codec.HEVC}, "backends": {"encode": "cpu"}}
    jobs = [
        BatchJob(build_config(Path("in") / name, Path("out") / name, flags=given), number)
        for number, name in enumerate(("a.mp4", "b.jpg", "c.jpg"), 1)
    ]
    with pytest.raises(ConfigError) as caught:
        check_encoding(jobs)
    assert one_line(caught.value) == "in/b.jpg: cannot use --codec with JPEG: it is a picture"
