"""The trace of a render on a GPU has a row for its stream, and the monitor's figures."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bgsoft.chunks.run import render_config
from bgsoft.diagnose.clips import ClipSpec, write_clip
from bgsoft.rendering.configure import build_config

pytestmark = pytest.mark.gpu


def test_stages_on_the_device_lie_on_its_row_in_order(gpu: Any, tmp_path: Path) -> None:
    spec = ClipSpec(name="clip.mp4", frames=50, options={"preset": "ultrafast"})
    trace = tmp_path / "trace.json"
    config = build_config(
        write_clip(tmp_path, spec),
        tmp_path / "out.mp4",
        flags={"backends": {"composite": "cuda", "encode": "cpu"}},
        trace=trace,
    )
    report = render_config(config)
    events = json.loads(trace.read_text())["traceEvents"]
    (row,) = [
        (e["pid"], e["tid"])
        for e in events
        if e["name"] == "thread_name" and e["args"]["name"] == "picture stream"
    ]
    spans = [e for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == row]
    for stage in ("matte", "composite"):
        found = [e for e in spans if e["name"] == stage]
        assert len(found) == math.ceil(50 / 8)  # one a batch
        assert sum(e["dur"] for e in found) / 1000 / 50 == pytest.approx(
            report.stages[stage].ms_per_frame, rel=0.01
        )
    ends = [(e["ts"], e["ts"] + e["dur"]) for e in spans]
    # CUDA's events have a resolution of half a microsecond.
    assert all(after[0] >= before[1] - 1 for before, after in pairwise(ends))
    hosts = [e for e in events if e["ph"] == "X" and e["name"] == "picture"]
    assert min(start for start, _ in ends) >= hosts[0]["ts"] - 1000
