"""The JSON report as a file."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from bgsoft.errors import OutputError
from bgsoft.report import RenderReport


def make_report() -> RenderReport:
    return RenderReport(
        bgsoft_version="0",
        input="in.mp4",
        output="out.mp4",
        frames_decoded=1,
        frames_encoded=1,
        duration_s=1.0,
        wall_s=1.0,
        fps=1.0,
        settings={},
        model=None,
        stages={},
        peak_rss_bytes=0,
    )


def test_a_full_disk_leaves_no_half_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(self: Path, text: str, **_: Any) -> int:
        with self.open("w") as file:
            file.write(text[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", fill)
    with pytest.raises(OutputError, match="No space left"):
        make_report().write_json(tmp_path / "report.json")
    assert list(tmp_path.iterdir()) == []
