"""The JSON report as a file."""

from __future__ import annotations

import json
from pathlib import Path

from bgsoft.report import RenderReport


def test_a_report_is_plain_json(tmp_path: Path) -> None:
    report = RenderReport(
        bgsoft_version="0",
        input="in.mp4",
        output="out.mp4",
        frames_decoded=1,
        frames_encoded=1,
        duration_s=1.0,
        wall_s=1.0,
        fps=1.0,
        settings={"preset": Path("x")},
        model=None,
        stages={},
        peak_rss_bytes=0,
    )
    report.write_json(tmp_path / "report.json")
    read = json.loads((tmp_path / "report.json").read_text())
    assert read == {**report.to_dict(), "settings": {"preset": "x"}}
