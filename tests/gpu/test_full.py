"""``bgsoft doctor --full`` passes, except for features that this GPU lacks."""

from __future__ import annotations

from typing import Any

import pytest

from bgsoft.diagnose.full import GROUPS, run_group

pytestmark = pytest.mark.gpu

OPTIONAL = ("tensorrt", "nvenc", "av1")
"""Not on every GPU, or not installed."""


@pytest.mark.parametrize("group", [name for name in GROUPS if name != "memory"])
def test_group(gpu: Any, group: str) -> None:
    rows = list(run_group(group))
    assert not [row for row in rows if row.status == "FAIL"]
    for row in rows:
        assert row.status == "pass" or any(word in row.name for word in OPTIONAL), row
    on_gpu = [row for row in rows if group == "exit" or {"cuda", "nvdec"} & set(row.name.split())]
    assert any(row.status == "pass" for row in on_gpu) or group == "encode"
