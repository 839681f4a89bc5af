"""Values of settings, as they are typed."""

from __future__ import annotations

import pytest

from bgsoft.settings.setting import parse_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1:08.96", 68.96), ("0:01:08.96", 68.96), ("-1:08.96", -68.96), ("2:00:00.1", 7200.1)],
)
def test_a_time_in_hours_is_the_same_number(text: str, seconds: float) -> None:
    assert parse_seconds(text, "--start") == seconds
